//! Tokens of MONGODB-OIDC from the metadata of Azure and Google Cloud, by an exchange of HTTP.

use std::time::Duration;

use sdam_core::auth::{OidcEndpoints, OidcEnvironment, OidcToken};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::transport::TransportConfig;

use super::CONNECT_TIME;
use crate::net::http::Exchange;
use crate::net::reactor::{Lane, Reactor};

/// Asks for a token, each time, within the time that the question allows. The metadata are asked
/// directly, whatever proxy leads to the servers.
pub(super) async fn token<R: Reactor>(
    reactor: &R,
    environment: &OidcEnvironment,
    endpoints: &OidcEndpoints,
    time: Duration,
) -> Result<OidcToken, Failure> {
    let request = environment.request(endpoints);
    let exchange = Exchange {
        by_dialer: false,
        stage: Stage::Credentials,
        refusal: Cause::Configuration,
        lane: &Lane::Credentials,
        filters: &TransportConfig::default(),
        connect_time: CONNECT_TIME.min(time),
        time,
    };
    let failure = |cause, detail: &str| {
        let (name, endpoint) = (environment.name(), &request.endpoint);
        let detail = format!("no token for ENVIRONMENT:{name} from {endpoint}: {detail}");
        Failure::new(Stage::Credentials, cause, detail)
    };
    let response = exchange.run(reactor, &request, &mut environment.reader()).await;
    let response = response.map_err(|error| failure(error.cause, &error.detail))?;
    let token = environment.token(&response);
    token.map_err(|error| failure(Cause::Configuration, &error.to_string()))
}
