//! A deployment that tests are played on: how to connect to it, and what it is.

use std::any::Any;
use std::fmt;

use bson::{Bson, Document, RawDocumentBuf, doc};
use sdam_cluster::encoded;
use sdam_core::config::{Options, OptionsError, ServerApi, ServerApiVersion};
use sdam_host::Runtime;

use super::defect::defect;
use super::{skip_lists, unsupported};
use crate::mongod::Version;
use crate::unified::format::{Csfle, File, Requirement, Serverless, Test, Topology};
use crate::unified::matching::{Entities, Matcher};
use crate::unified::play::{Broken, Fault, OpenClient};

/// The option that says how often servers are checked.
const HEARTBEAT_FREQUENCY: &str = "heartbeatFrequencyMS";

/// The option that names the mechanism of a login, and the mechanism that takes tokens.
const AUTH_MECHANISM: &str = "authMechanism";
const OIDC: &str = "MONGODB-OIDC";

/// The key of a value that the runner has to know (Unified Test Format, "$$placeholder").
const PLACEHOLDER: &str = "$$placeholder";

/// The option that names compressors.
const COMPRESSORS: &str = "compressors";

/// A deployment, which ends when this is dropped.
pub struct Deployment {
    /// Its name in reports.
    pub name: String,
    /// Its kind.
    pub topology: Topology,
    /// True if no real server is in it.
    pub(super) is_embedded: bool,
    /// Its hosts; of balancers, the one that leads to several mongos.
    pub(super) hosts: Vec<String>,
    /// The host of each mongos, or of a balancer before it.
    pub(super) mongos: Vec<String>,
    /// The host of clients that are to connect to one mongos only.
    pub(super) one_host: String,
    /// The user and the password, if it demands them.
    pub(super) login: Option<(String, String)>,
    /// Options of connection strings.
    pub(super) options: Vec<(String, String)>,
    /// The compressor of the clients that are tested, if they are to have one: not that of the
    /// runner's own.
    pub(super) compressor: Option<String>,
    /// The servers, which end with it.
    pub(super) _servers: Box<dyn Any + Send + Sync>,
}

/// The properties of a deployment, as it reports them.
#[derive(Clone, Debug)]
pub struct Facts {
    version: Version,
    topology: Topology,
    is_embedded: bool,
    /// True if it is a replica set of one.
    has_one_member: bool,
    has_auth: bool,
    parameters: Document,
}

/// The reason why a test cannot be played on a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// It needs another kind of deployment.
    Topology,
    /// It needs another version.
    Version,
    /// It needs a server with, or without, authentication.
    Auth,
    /// It needs a mechanism of authentication.
    Mechanism,
    /// It needs other parameters of the server.
    Parameters,
    /// It needs a deployment without servers of its own.
    Serverless,
    /// It needs client-side encryption, and nothing else that is missing: the client's part, which
    /// it does not have.
    Encryption,
    /// Its file says that it is skipped.
    Skipped,
    /// Its deployment has one member, and it is about several.
    Members,
    /// Nothing can pass it: it expects more than it brings about.
    Contradiction(&'static str),
    /// It asks for what this version of the server cannot do.
    Defect(&'static str),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Topology => "it needs another kind of deployment",
            Self::Version => "it needs another version of the server",
            Self::Auth => "it needs a server that differs in demanding logins",
            Self::Mechanism => "it needs a mechanism of authentication",
            Self::Parameters => "it needs other parameters of the server",
            Self::Encryption => "it needs client-side encryption",
            Self::Serverless => "it needs a serverless deployment",
            Self::Skipped => "its file says that it is skipped",
            Self::Members => "it is about several members",
            Self::Contradiction(reason) => return write!(f, "of the test: {reason}"),
            Self::Defect(defect) => return write!(f, "of the server: {defect}"),
        })
    }
}

impl Deployment {
    /// Has the clients that are tested compress what they send, with this compressor.
    #[must_use]
    pub fn with_compressor(mut self, compressor: Option<&str>) -> Self {
        self.compressor = compressor.map(str::to_owned);
        self
    }

    /// Returns the connection string of the runner's own client.
    pub(super) fn internal_uri(&self) -> String {
        let hosts = match self.topology {
            // One mongos has to see all that the runner does.
            Topology::Sharded => std::slice::from_ref(&self.one_host),
            _ => &self.hosts,
        };
        self.uri(hosts, self.own_options())
    }

    /// Returns the connection strings of the runner's clients of one mongos each.
    pub(super) fn mongos_uris(&self) -> Vec<String> {
        let of = |host: &String| self.uri(std::slice::from_ref(host), self.own_options());
        self.mongos.iter().map(of).collect()
    }

    /// Returns the options of the runner's own clients.
    fn own_options(&self) -> Vec<(String, String)> {
        let (name, quick) = ("appName".to_owned(), HEARTBEAT_FREQUENCY.to_owned());
        let own = vec![(name, "sdam-unified".to_owned()), (quick, "500".to_owned())];
        [&self.options[..], &own].concat()
    }

    /// Returns the options of a client.
    pub(super) fn options(&self, client: &OpenClient) -> Result<Options, Fault> {
        let broken =
            |reason: String| Fault::from(Broken::new(format!("client {}", client.name), reason));
        let refused = |error: OptionsError| super::refused(&client.name, error);
        let mut options = self.options.clone();
        options.extend(self.compressor.iter().map(|name| (COMPRESSORS.to_owned(), name.clone())));
        for (name, value) in &client.uri_options {
            options.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            if value.as_document().is_some_and(|it| it.contains_key(PLACEHOLDER)) {
                continue;
            }
            let values = texts(name, value).map_err(broken)?;
            options.extend(values.into_iter().map(|text| (name.clone(), text)));
        }
        let is = |name: &str, wanted: &str| {
            options.iter().any(|(known, value)| known.eq_ignore_ascii_case(name) && value == wanted)
        };
        let is_direct = is("directConnection", "true");
        let takes_tokens = is(AUTH_MECHANISM, OIDC);
        if !client.uri_options.keys().any(|name| name.eq_ignore_ascii_case(HEARTBEAT_FREQUENCY)) {
            // The least that clients take. A fail point that reports another primary marks a server
            // as unknown until the hello that is under way is answered, as no topology version has
            // changed: hundreds of tests wait for that once each.
            options.push((HEARTBEAT_FREQUENCY.to_owned(), "500".to_owned()));
        }
        if is_direct {
            options.retain(|(name, _)| name != "replicaSet");
        }
        let first = std::slice::from_ref(&self.one_host);
        let hosts = match (self.topology, client.use_multiple_mongoses) {
            _ if is_direct => first,
            (Topology::Sharded | Topology::LoadBalanced, Some(false)) => first,
            // Else it would be a matter of luck whether it meets them.
            (Topology::Sharded, None) if client.meets_fail_points => first,
            (Topology::Sharded, Some(true)) if self.hosts.len() < 2 => {
                return Err(broken("the deployment has one mongos only".to_owned()));
            }
            _ => &self.hosts,
        };
        let builder = Options::builder().uri(&self.uri(hosts, options));
        let mut builder = builder.map_err(refused)?;
        if takes_tokens {
            // What stands for the placeholder of its properties.
            builder = builder.oidc_callback(true);
        }
        if let Some(api) = &client.server_api {
            let version = match api.version.as_str() {
                "1" => ServerApiVersion::V1,
                other => {
                    let reason = format!("{other:?} is no version of the server's API");
                    return Err(super::refused(&client.name, reason));
                }
            };
            let declared = ServerApi::from(version).with_strict(api.strict);
            builder = builder.server_api(declared.with_deprecation_errors(api.deprecation_errors));
        }
        builder.build().map_err(refused)
    }

    fn uri(&self, hosts: &[String], options: Vec<(String, String)>) -> String {
        let is_oidc = |(name, value): &(String, String)| {
            name.eq_ignore_ascii_case(AUTH_MECHANISM) && value == OIDC
        };
        // The token says which user it is.
        let login = self.login.as_ref().filter(|_| !options.iter().any(is_oidc));
        let login = login.map_or_else(String::new, |(user, password)| {
            format!("{}:{}@", encoded(user), encoded(password))
        });
        let options =
            options.into_iter().map(|(name, value)| format!("{name}={}", encoded(&value)));
        let options: Vec<String> = options.collect();
        format!("mongodb://{login}{}/?{}", hosts.join(","), options.join("&"))
    }
}

/// Writes the value of an option as connection strings have it: once, or once for each tag set.
fn texts(name: &str, value: &Bson) -> Result<Vec<String>, String> {
    let text = |value: &Bson| match value {
        Bson::String(text) => Ok(text.clone()),
        Bson::Boolean(value) => Ok(value.to_string()),
        Bson::Int32(number) => Ok(number.to_string()),
        Bson::Int64(number) => Ok(number.to_string()),
        other => Err(format!("the option {name} is {other}, which this runner has no text for")),
    };
    match value {
        Bson::Array(values) => values.iter().map(text).collect(),
        Bson::Document(pairs) => {
            let pair = |(key, value)| text(value).map(|value| format!("{key}:{value}"));
            Ok(vec![pairs.iter().map(pair).collect::<Result<Vec<_>, _>>()?.join(",")])
        }
        value => Ok(vec![text(value)?]),
    }
}

impl Facts {
    /// Asks a deployment.
    pub(super) async fn ask<R: Runtime>(
        client: &sdam_host::Topology<R>,
        deployment: &Deployment,
    ) -> Result<Self, String> {
        let ask = async |command: Document| {
            let command = RawDocumentBuf::try_from(&command).map_err(|error| error.to_string())?;
            let reply = client.run_command("admin", &command).await;
            let reply = reply.map_err(|error| error.to_string())?;
            Document::try_from(&**reply.document()).map_err(|error| error.to_string())
        };
        let build = ask(doc! { "buildInfo": 1 }).await?;
        let version = build.get_str("version").map_err(|error| error.to_string())?.parse()?;
        // The embedded deployment has a few parameters only, and does not list them.
        let parameters = ask(doc! { "getParameter": "*" }).await.unwrap_or_default();
        let has_auth = deployment.login.is_some();
        Ok(Self {
            version,
            topology: deployment.topology,
            is_embedded: deployment.is_embedded,
            has_one_member: deployment.topology == Topology::ReplicaSet
                && deployment.hosts.len() == 1,
            has_auth,
            parameters,
        })
    }

    /// Returns why a test cannot be played here, if it cannot: of several sets of requirements none
    /// of which is met, the one that comes nearest.
    pub fn obstacle(&self, file: &File, test: &Test) -> Option<Obstacle> {
        if test.skip_reason.is_some() {
            return Some(Obstacle::Skipped);
        }
        let unmet = [&file.requirements, &test.requirements].into_iter().find_map(|requirements| {
            let obstacles = requirements.iter().map(|requirement| self.unmet(requirement));
            let obstacles: Option<Vec<Obstacle>> = obstacles.collect();
            obstacles.and_then(|obstacles| obstacles.into_iter().max())
        });
        if unmet.is_none() && self.has_one_member && skip_lists::is_about_members(file, test) {
            return Some(Obstacle::Members);
        }
        let contradiction = || skip_lists::contradiction(test).map(Obstacle::Contradiction);
        unmet.or_else(contradiction).or_else(|| {
            let defect = match self.is_embedded {
                true => unsupported::reason(test),
                false => defect(self.version, file, test),
            };
            defect.map(Obstacle::Defect)
        })
    }

    /// Returns which part of a requirement is not met; none if all are.
    fn unmet(&self, requirement: &Requirement) -> Option<Obstacle> {
        let is_of = |topologies: &Vec<Topology>| {
            let wider = match self.topology {
                // Every shard is a replica set by now.
                Topology::Sharded => Topology::ShardedReplicaSet,
                other => other,
            };
            topologies.contains(&self.topology) || topologies.contains(&wider)
        };
        let is_below = requirement.min_server_version.is_some_and(|least| self.version < least);
        let is_above = requirement.max_server_version.is_some_and(|most| self.version > most);
        if !requirement.topologies.as_ref().is_none_or(is_of) {
            Some(Obstacle::Topology)
        } else if is_below || is_above {
            Some(Obstacle::Version)
        } else if requirement.auth.is_some_and(|wanted| wanted != self.has_auth) {
            Some(Obstacle::Auth)
        } else if !requirement.auth_mechanism.as_ref().is_none_or(|it| self.has_mechanism(it)) {
            Some(Obstacle::Mechanism)
        } else if requirement.serverless == Some(Serverless::Require) {
            Some(Obstacle::Serverless)
        } else if !self.has_parameters(&requirement.server_parameters) {
            Some(Obstacle::Parameters)
        } else if matches!(requirement.csfle, Some(Csfle::Required(_))) {
            Some(Obstacle::Encryption)
        } else {
            None
        }
    }

    fn has_mechanism(&self, wanted: &str) -> bool {
        let mechanisms = self.parameters.get_array("authenticationMechanisms");
        let is_it = |name: &Bson| name.as_str().is_some_and(|it| it.eq_ignore_ascii_case(wanted));
        mechanisms.is_ok_and(|mechanisms| mechanisms.iter().any(is_it))
    }

    fn has_parameters(&self, wanted: &Document) -> bool {
        let matcher = Matcher::new(&NoEntities);
        let has = |(name, value): (&String, &Bson)| {
            matcher.value(name, value, self.parameters.get(name)).is_ok()
        };
        wanted.iter().all(has)
    }
}

/// Requirements name no entities.
struct NoEntities;

impl Entities for NoEntities {
    fn value(&self, _: &str) -> Option<Bson> {
        None
    }

    fn session_id(&self, _: &str) -> Option<Document> {
        None
    }
}
