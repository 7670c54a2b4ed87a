//! The requests for the metadata of Azure and Google Cloud, and what is read of the responses.

use std::time::Duration;

use super::{MAX_SHOWN_LEN, OidcEndpoints, OidcEnvironment, OidcEnvironmentError};
use crate::config::{AuthMechanism, Options};
use crate::http::{Endpoint, HttpRequest, HttpResponse};

/// A resource with what a query has to escape, and what it leaves as it is.
const RESOURCE: &str = "api://a b/~x?y=1&z=ä";

fn environment(name: &str, username: Option<&str>) -> OidcEnvironment {
    let options = Options::builder()
        .uri("mongodb://h")
        .unwrap()
        .auth_mechanism(AuthMechanism::Oidc)
        .auth_mechanism_property("ENVIRONMENT", name)
        .auth_mechanism_property("TOKEN_RESOURCE", RESOURCE);
    let options = match username {
        Some(username) => options.username(username),
        None => options,
    };
    OidcEnvironment::of(options.build().unwrap().credential().unwrap()).unwrap()
}

fn lines(request: &HttpRequest) -> Vec<&str> {
    std::str::from_utf8(&request.bytes).unwrap().split("\r\n").collect()
}

/// "Azure": "Make an HTTP GET request to", "with headers"; "If a `username` is not provided, the
/// `client_id` query parameter should be omitted."
#[test]
fn azure_is_asked_for_the_resource_and_as_the_user_if_there_is_one() {
    let cases = [(None, ""), (Some("an id/1"), "&client_id=an%20id%2F1")];
    for (username, client) in cases {
        let request = environment("azure", username).request(&OidcEndpoints::default());
        assert_eq!(request.endpoint, Endpoint::new("169.254.169.254", 80, false));
        let target = format!(
            "GET /metadata/identity/oauth2/token?api-version=2018-02-01\
             &resource=api%3A%2F%2Fa%20b%2F~x%3Fy%3D1%26z%3D%C3%A4{client} HTTP/1.1"
        );
        let headers = ["Host: 169.254.169.254", "Accept: application/json", "Metadata: true"];
        let expected = [&[&*target], &headers[..], &["Connection: close", "", ""]].concat();
        assert_eq!(lines(&request), expected);
    }
}

/// "GCP": "Make an HTTP GET request to", "with headers".
#[test]
fn google_cloud_is_asked_for_the_audience() {
    let request = environment("gcp", None).request(&OidcEndpoints::default());
    assert_eq!(request.endpoint, Endpoint::new("metadata", 80, false));
    let target = "GET /computeMetadata/v1/instance/service-accounts/default/identity\
                  ?audience=api%3A%2F%2Fa%20b%2F~x%3Fy%3D1%26z%3D%C3%A4 HTTP/1.1";
    let headers = ["Host: metadata", "Metadata-Flavor: Google", "Connection: close", "", ""];
    assert_eq!(lines(&request), [&[target], &headers[..]].concat());
}

#[test]
fn other_endpoints_are_asked_without_tls_too() {
    let other = |name: &str| Endpoint::new(name, 8080, true);
    let endpoints = OidcEndpoints::new(other("one"), other("two"));
    for (name, host) in [("azure", "one"), ("gcp", "two")] {
        let environment = environment(name, None);
        assert_eq!(environment.name(), name);
        let request = environment.request(&endpoints);
        assert_eq!(request.endpoint, Endpoint::new(host, 8080, false));
        assert_eq!(lines(&request)[1], format!("Host: {host}:8080"));
        assert!(!format!("{environment:?} {request:?}").contains("api"));
    }
}

#[test]
fn other_environments_have_no_metadata() {
    let options = |options: &str| Options::parse(&format!("mongodb://ann:x@h/{options}")).unwrap();
    assert_eq!(OidcEnvironment::of(options("").credential().unwrap()), None);
    let k8s = "mongodb://h/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s";
    assert_eq!(OidcEnvironment::of(Options::parse(k8s).unwrap().credential().unwrap()), None);
}

/// "The driver MUST use the returned "access_token" value as the access token".
#[test]
fn the_token_of_azure_is_in_its_json() {
    let azure = environment("azure", None);
    let token = |json: &str| azure.token(&HttpResponse::new(200, json));
    let whole = r#"{"access_token": "planted.jwt", "refresh_token": "", "expires_in": "3599",
        "expires_on": "1506484173", "not_before": "1506480273", "resource": "api",
        "token_type": "Bearer"}"#;
    let given = token(whole).unwrap();
    assert_eq!(given.access_token.expose(), "planted.jwt");
    assert_eq!(given.expires_in, Some(Duration::from_secs(3599)));
    for (expiry, wanted) in [("", None), (r#", "expires_in": 7"#, Some(7))] {
        let given = token(&format!(r#"{{"access_token": "a"{expiry}}}"#)).unwrap();
        assert_eq!(given.expires_in, wanted.map(Duration::from_secs), "{expiry}");
    }
    // "OIDC Callback": "Drivers MUST error if a negative value is returned."
    let others = [
        r#"{"access_token": "planted", "expires_in": -1}"#,
        r#"{"access_token": "planted", "expires_in": "-1"}"#,
        r#"{"access_token": "planted", "expires_in": "soon"}"#,
        r#"{"access_token": 7}"#,
        r#"{"token": "planted"}"#,
        r#"["planted"]"#,
        "planted",
        "",
    ];
    for json in others {
        let error = token(json).unwrap_err();
        assert_eq!(error, OidcEnvironmentError::Json, "{json}");
        assert!(!error.to_string().contains("planted"), "{error}");
    }
    for none in ["", "planted two", "planted\\n"] {
        let error = token(&format!(r#"{{"access_token": "{none}"}}"#)).unwrap_err();
        assert_eq!(error, OidcEnvironmentError::NoToken, "{none:?}");
    }
}

/// "GCP": "The response body will be the access token itself."
#[test]
fn the_body_of_google_cloud_is_the_token() {
    let gcp = environment("gcp", None);
    let token = |body: &[u8]| gcp.token(&HttpResponse::new(200, body));
    for body in ["planted.jwt", "planted.jwt\n"] {
        assert_eq!(token(body.as_bytes()).unwrap().access_token.expose(), "planted.jwt");
    }
    for body in [&b""[..], b" \n", b"planted two", b"planted\0", b"planted\xff"] {
        let error = token(body).unwrap_err();
        assert_eq!(error, OidcEnvironmentError::NoToken, "{body:?}");
        assert!(!error.to_string().contains("planted"), "{error}");
    }
}

/// "If the response does not return a status code of 200, the driver MUST raise an error including
/// the HTTP response body."
#[test]
fn a_refusal_shows_the_beginning_of_its_body_on_one_line() {
    let cases = [
        ("{\r\n \"error\":\t\"Identity not found\"\n}", "{ \"error\": \"Identity not found\" }"),
        ("no\u{1b}[31m", "no [31m"),
        ("", "nothing"),
        (" \n", "nothing"),
    ];
    for environment in [environment("azure", None), environment("gcp", None)] {
        for (body, shown) in cases {
            let error = environment.token(&HttpResponse::new(404, body)).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("the answer has the HTTP status 404, not 200, and says: {shown}")
            );
        }
        for length in [MAX_SHOWN_LEN, MAX_SHOWN_LEN + 1] {
            let body = "x".repeat(length);
            let error = environment.token(&HttpResponse::new(500, body)).unwrap_err();
            let body = "x".repeat(MAX_SHOWN_LEN);
            assert_eq!(error, OidcEnvironmentError::Refused { status: 500, body });
        }
        let error = environment.token(&HttpResponse::new(500, b"no\xff")).unwrap_err();
        assert!(error.to_string().ends_with("says: no\u{fffd}"), "{error}");
    }
}
