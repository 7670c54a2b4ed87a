//! Initial DNS Seedlist Discovery, against a real name server.

use std::env;
use std::path::Path;

use bson::{Document, RawDocumentBuf, rawdoc};
use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::ServerType;
use sdam_core::dns::Question;
use sdam_core::dns::srv::{SrvError, complete};
use serde::Deserialize;

use super::difference::Differences;
use super::format::{Address, CaseError, list, parse};
use super::report::CaseReport;
use crate::name_server::{NameServer, ZONES, lookup};
use sdam_core::harness::{CheckOutcome, Harness};

/// The folder of the suite.
pub(super) const FOLDER: &str = "initial-dns-seedlist-discovery/tests";

/// The fields that are not compared, and why.
pub(super) const NOT_COMPARED: &str = "ping, a command over an application's connection, which \
    this layer does not have yet; hosts are those of a modelled deployment";

/// The number of rounds for newly found servers; three members know all there are.
const MAX_ROUNDS: usize = 4;

/// The seed of the draw of hosts where not all may be used.
const SEED: u64 = 1;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    uri: String,
    seeds: Option<Vec<Address>>,
    #[serde(rename = "numSeeds")]
    number_of_seeds: Option<i64>,
    hosts: Option<Vec<Address>>,
    #[serde(rename = "numHosts")]
    number_of_hosts: Option<i64>,
    options: Option<Document>,
    parsed_options: Option<ParsedOptions>,
    #[serde(default)]
    error: bool,
    #[serde(rename = "ping")]
    _ping: Option<bool>,
    #[serde(rename = "comment")]
    _comment: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParsedOptions {
    user: Option<String>,
    password: Option<String>,
    #[serde(alias = "defaultDatabase", alias = "auth_database")]
    db: Option<String>,
}

/// Returns why the suite is not run, if it is not: without zones, except in CI, where it fails.
pub(super) fn skip_reason(file: &str) -> Option<&'static str> {
    let in_ci = env::var_os("CI").is_some_and(|ci| ci == "true");
    let skipped = file.starts_with(FOLDER) && env::var_os(ZONES).is_none() && !in_ci;
    skipped.then_some("SDAM_DNS_ZONES does not name the folder of the DNS zones to serve")
}

/// The deployments at the ports that the zone names (the suite's "Test Setup").
#[derive(Clone, Copy, Debug)]
enum Deployment {
    /// Set `repl0` on localhost, whose three members know each other by that name.
    ReplicaSet,
    /// Two mongos.
    Sharded,
    /// A load balancer, which is never asked.
    LoadBalanced,
}

/// Runs a case of the folder `replica-set`; a name server is started for it.
pub(super) fn run_replica_set(text: &str) -> Result<Vec<CaseReport>, CaseError> {
    run(text, Deployment::ReplicaSet)
}

/// Runs a case of the folder `sharded`.
pub(super) fn run_sharded(text: &str) -> Result<Vec<CaseReport>, CaseError> {
    run(text, Deployment::Sharded)
}

/// Runs a case of the folder `load-balanced`.
pub(super) fn run_load_balanced(text: &str) -> Result<Vec<CaseReport>, CaseError> {
    run(text, Deployment::LoadBalanced)
}

fn run(text: &str, deployment: Deployment) -> Result<Vec<CaseReport>, CaseError> {
    let case: Case = parse(text)?;
    let zones = env::var_os(ZONES).ok_or(CaseError::NoZones(ZONES))?;
    let server = NameServer::start(Path::new(&zones))?;
    let mut differences = Differences::default();
    match (discover(&case.uri, &server), case.error) {
        (Ok(_), true) => differences.differs("outcome", "an error", "a seed list"),
        (Ok(options), false) => {
            compare(&case, &options, &mut differences);
            compare_hosts(&case, options, deployment, &mut differences)?;
        }
        // That the name server is broken is not the error that is meant.
        (Err(SrvError::Dns(error)), true) if !error.is_absence() => {
            differences.differs("outcome", "an error about the records", error);
        }
        (Err(_), true) => {}
        (Err(error), false) => differences.differs("outcome", "a seed list", error),
    }
    Ok(vec![CaseReport::new("", differences)])
}

fn discover(uri: &str, server: &NameServer) -> Result<Options, SrvError> {
    let options = Options::parse(uri)?;
    let Some(srv) = options.srv() else { return Ok(options) };
    let question = Question::srv(&srv.service_name, &srv.hostname);
    let answer = lookup(question.clone(), server.name_servers())?;
    let records = answer.into_srv(&question)?;
    let question = Question::txt(&srv.hostname);
    let answer = lookup(question.clone(), server.name_servers());
    let txt = answer.and_then(|answer| answer.into_txt(&question));
    complete(&options, &records, txt, SEED)
}

fn compare(case: &Case, options: &Options, differences: &mut Differences) {
    let seeds = options.seeds();
    if let Some(expected) = &case.seeds {
        differences.text("seeds", &list(expected.iter()), &list(seeds));
    }
    if let Some(expected) = case.number_of_seeds {
        differences.equal("numSeeds", &expected, &(seeds.len() as i64));
    }
    for (name, expected) in case.options.iter().flatten() {
        match option(options, name) {
            Some(found) => {
                let expected = expected.as_str().map_or(expected.to_string(), str::to_owned);
                differences.text(&format!("options, {name}"), &expected, &found);
            }
            None => differences.differs(name, expected, "an option that this runner knows"),
        }
    }
    if let Some(parsed) = &case.parsed_options {
        let credential = options.credential();
        let user = credential.and_then(|credential| credential.username.as_deref());
        let password = credential.and_then(|credential| credential.password.as_ref());
        let found = [
            ("user", &parsed.user, user),
            ("password", &parsed.password, password.map(sdam_core::config::Secret::expose)),
            ("db", &parsed.db, options.database()),
        ];
        for (name, expected, found) in found {
            if let Some(expected) = expected {
                differences.text(name, expected, found.unwrap_or("unset"));
            }
        }
    }
}

/// Compares the servers that are left once all have answered.
fn compare_hosts(
    case: &Case,
    options: Options,
    deployment: Deployment,
    differences: &mut Differences,
) -> Result<(), CaseError> {
    let mut fixture = Harness::with(options);
    // Each round may find servers that answer in the next one.
    for _ in 0..MAX_ROUNDS {
        let unknown: Vec<ServerAddress> = (fixture.view().servers().iter())
            .filter(|server| server.server_type == ServerType::Unknown)
            .map(|server| server.address.clone())
            .collect();
        for address in unknown {
            if let Some(reply) = deployment.reply(&address)
                && fixture.view().server(&address).is_some()
            {
                fixture.answer(&address, CheckOutcome::Reply(&reply))?;
            }
        }
    }
    let servers = || fixture.view().servers().iter().map(|server| &server.address);
    if let Some(expected) = &case.hosts {
        differences.text("hosts", &list(expected.iter()), &list(servers()));
    }
    if let Some(expected) = case.number_of_hosts {
        differences.equal("numHosts", &expected, &(servers().count() as i64));
    }
    Ok(())
}

impl Deployment {
    /// Returns the hello reply of the server at an address, `None` if there is none.
    fn reply(self, address: &ServerAddress) -> Option<RawDocumentBuf> {
        let port = address.port()?;
        match self {
            Self::ReplicaSet if (27017..=27019).contains(&port) => Some(rawdoc! {
                "ok": 1, "helloOk": true, "isWritablePrimary": port == 27017,
                "secondary": port != 27017, "setName": "repl0", "setVersion": 1,
                "hosts": ["localhost:27017", "localhost:27018", "localhost:27019"],
                "me": format!("localhost:{port}"), "maxWireVersion": 17,
            }),
            Self::Sharded if (27017..=27018).contains(&port) => {
                Some(rawdoc! { "ok": 1, "helloOk": true, "msg": "isdbgrid", "maxWireVersion": 17 })
            }
            Self::ReplicaSet | Self::Sharded | Self::LoadBalanced => None,
        }
    }
}

/// Returns the value of an option as a text, `unset` included, or nothing if it is not known here.
fn option(options: &Options, name: &str) -> Option<String> {
    let srv = options.srv();
    Some(match name {
        "ssl" => options.tls().is_some().to_string(),
        "replicaSet" => options.replica_set().map_or("unset".into(), ToString::to_string),
        "directConnection" => options.direct_connection().to_string(),
        "loadBalanced" => options.load_balanced().to_string(),
        "authSource" => options.auth_source().unwrap_or("unset").to_owned(),
        "srvMaxHosts" => srv.map_or("unset".into(), |srv| srv.max_hosts.to_string()),
        "srvServiceName" => srv.map_or("unset".into(), |srv| srv.service_name.to_string()),
        _ => return None,
    })
}
