//! The advice about each cause, apart from the cause.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::verdict::Verdict;
use crate::config::{AuthMechanism, MIN_HEARTBEAT_FREQUENCY, ServerAddress};
use crate::description::Removal;
use crate::failure::Stage;

/// The thing to do about a cause.
///
/// Its text is what people read; it names the line to copy, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advice {
    /// The thing to do, as the part of a sentence that begins with a verb; empty where nothing is
    /// to be done.
    pub text: Cow<'static, str>,
    /// A line to copy as it is: an option of the connection string, an argument of the tool, or a
    /// command.
    pub line: Option<String>,
}

/// A verdict with its words, as JSON: the fields of the [verdict](Verdict), and its `cause` and
/// `advice` in words, with a `line` to copy where there is one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Finding<'a> {
    /// The verdict.
    #[serde(flatten)]
    pub verdict: &'a Verdict,
    /// The cause in words.
    pub cause: String,
    /// The thing to do, in words; left out where there is none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub advice: Cow<'static, str>,
    /// A line to copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
}

impl Advice {
    fn with_line(text: Cow<'static, str>, line: String) -> Self {
        Self { text, line: Some(line) }
    }
}

impl From<&'static str> for Advice {
    fn from(text: &'static str) -> Self {
        Self { text: text.into(), line: None }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Verdict {
    /// Returns what to do about it.
    pub fn advice(&self) -> Advice {
        match self {
            Self::InvalidOptions { .. } => CORRECT_OPTIONS.into(),
            Self::IncompatibleWireVersion { .. } => UPGRADE.into(),
            Self::MaxStalenessTooSmall { least, .. } => raise_limit(*least),
            Self::Closed => CREATE_ANOTHER.into(),
            Self::Forked(_) => CREATE_AFTER_FORK.into(),
            Self::ProcessPaused { .. } => KEEP_RUNNING.into(),
            Self::ManyClients { .. } => SHARE_ONE_CLIENT.into(),
            Self::TimeoutOfAnotherKind { waited_for, set_to, .. } => {
                set_option("set that one too", waited_for, set_to.as_millis() as u64)
            }
            Self::LookupFailed { .. } => CHECK_NAME_SERVERS.into(),
            Self::LookupSlow { .. } => REMOVE_NAME_SERVER.into(),
            Self::SrvHostOutsideDomain { .. } => CORRECT_RECORDS.into(),
            Self::NamesDoNotResolve => CORRECT_HOSTS.into(),
            Self::NotCheckedYet | Self::NoAnswerYet { .. } => WAIT_LONGER.into(),
            Self::Unreachable => CHECK_ROUTES.into(),
            Self::NoAnswer => CHECK_NETWORK.into(),
            Self::ServersSilent { atlas, .. } => of_atlas_or(*atlas, CHECK_FIREWALLS),
            Self::AccessRefused { atlas } => of_atlas_or(*atlas, CHECK_ACCESS),
            Self::ProxyFailed => CHECK_PROXY.into(),
            Self::ConnectionsClosed => CHECK_LOGS.into(),
            Self::ConnectionLimit { .. } => OPEN_FEWER.into(),
            Self::IdleConnectionsCut { shortest, .. } => ask_more_often(*shortest),
            Self::StreamingRefused { .. } => POLL.to_advice(),
            Self::ConnectionRefused | Self::NotMongo { .. } => CHECK_PORTS.into(),
            Self::SocketUnusable => CHECK_SOCKET.into(),
            Self::TlsExpected { .. } => ASK_FOR_TLS.to_advice(),
            Self::TlsNotExpected { .. } => ASK_FOR_NO_TLS.to_advice(),
            Self::CertificatesRefused => CHECK_CERTIFICATES.into(),
            Self::CertificateUnsupported { unsupported, .. } => unsupported.remedy().into(),
            Self::CertificateRevoked { .. } => REPLACE.into(),
            Self::StapleInvalid { .. } => STAPLE.into(),
            Self::CertificatesUnavailable { .. } => CHECK_OWN_CERTIFICATES.into(),
            Self::CertificateExpiresSoon { .. } => RENEW.into(),
            Self::RevocationSlow { .. } | Self::RevocationUnknown { .. } => OPEN_RESPONDER.into(),
            Self::LoginRefused { mechanism, .. } => check_login(mechanism.as_deref()).into(),
            Self::MechanismUnavailable { .. } => CHOOSE_MECHANISM.into(),
            Self::GssapiFailed { problem, .. } => problem.remedy().into(),
            Self::CredentialsUnavailable { .. } => CHECK_CREDENTIALS.into(),
            Self::NotInitiated => INITIATE.to_advice(),
            Self::NotAMember { server, .. } => add_member(server),
            Self::SetNameDiffers { found, .. } => correct_set(found.as_deref()),
            Self::NotAReplicaSet { .. } => LEAVE_OUT_SET.into(),
            Self::NoServersLeft { removal } => check_removed(removal.as_ref()),
            Self::MembersElsewhere { seed, called, members } => {
                lead_to_members(seed, called.as_ref(), members)
            }
            Self::MembersDisagree { .. } => CHECK_BETWEEN.into(),
            Self::StalePrimary { .. } => WAIT_FOR_STEP_DOWN.into(),
            Self::PrimaryRefusesWrites { .. } => CHECK_GATEWAY.into(),
            Self::NoPrimary { .. } => WAIT_FOR_ELECTION.into(),
            Self::NoSecondary => ALLOW_PRIMARY.to_advice(),
            Self::NoTagMatch => CORRECT_TAGS.into(),
            Self::TooStale { .. } => FIND_LAG.into(),
            Self::PredicateRefused => CORRECT_PREDICATE.into(),
            Self::WrongServerType { direct: Some(_), .. } => LEAVE_OUT_DIRECT.into(),
            Self::WrongServerType { .. } => CHECK_TYPES.into(),
            Self::ClocksDiffer { .. } => SYNCHRONISE.into(),
            Self::Overloaded { .. } => SEND_LESS.into(),
            Self::OperationFailed { .. } => SEE_OPERATIONS.to_advice(),
            Self::EstablishmentSlow { stage, max_connecting, .. } => {
                hasten(*stage, *max_connecting)
            }
            Self::OplogSmall { mebibytes, .. } => enlarge_oplog(*mebibytes),
            Self::NotPermitted { .. } => GRANT.into(),
            Self::NoServerAvailable => READ_EACH.into(),
            Self::Transaction(verdict) => verdict.advice(),
            Self::ChangeStream(verdict) => verdict.advice(),
        }
    }

    /// Returns the cause and what to do as one sentence, without a full stop.
    pub fn sentence(&self) -> String {
        match self {
            // These sentences say it already.
            Self::Forked(_) | Self::NoServerAvailable => self.to_string(),
            _ => match self.advice().text {
                advice if advice.is_empty() => self.to_string(),
                advice => format!("{self}; {advice}"),
            },
        }
    }

    /// Returns it with its words, as JSON has them.
    pub fn finding(&self) -> Finding<'_> {
        let Advice { text, line } = self.advice();
        Finding { verdict: self, cause: self.to_string(), advice: text, line }
    }
}

/// Advice whose line is always the same.
struct WithLine {
    text: &'static str,
    line: &'static str,
}

impl WithLine {
    fn to_advice(&self) -> Advice {
        Advice::with_line(self.text.into(), self.line.to_owned())
    }
}

const CORRECT_OPTIONS: &str = "correct the connection string";
const UPGRADE: &str = "use a server and a client that have a version in common";
const CREATE_ANOTHER: &str =
    "create another client (one ends with the runtime that it was made in, too)";
const CREATE_AFTER_FORK: &str = "create the client after the fork";
const KEEP_RUNNING: &str = "look for what stopped the process: a suspended machine or container, a \
    limit on its CPU time, or work that blocks the runtime's threads";
const SHARE_ONE_CLIENT: &str = "create one client and share it: clones are cheap, and all use the \
    same connections";
const CHECK_NAME_SERVERS: &str =
    "check the name servers, as /etc/resolv.conf lists them, and the network";
const REMOVE_NAME_SERVER: &str = "repair the slow name server, or remove it from /etc/resolv.conf";
const CORRECT_RECORDS: &str = "correct the SRV records, or the host in the connection string";
const CORRECT_HOSTS: &str = "check the hosts in the connection string";
const WAIT_LONGER: &str =
    "allow more time: serverSelectionTimeoutMS should be longer than connectTimeoutMS";
const CHECK_PORTS: &str = "check the ports, and that the servers run";
const CHECK_SOCKET: &str = "check the path, which a connection string writes with %2F for each \
    slash, that the server runs and makes its socket there, and that this user may write to it";
const CHECK_NETWORK: &str = "check the network, and that the servers run";
const CHECK_FIREWALLS: &str = "check firewalls and lists of allowed addresses between here and the \
    servers, and that the servers are not stopped";
const CHECK_ATLAS: &str = "check that the IP access list of the Atlas project has the address of \
    this machine, and that the cluster is not paused";
const CHECK_ACCESS: &str = "check the list of allowed addresses of the servers or of the proxy in \
    front of them, and the server name that is asked for";
const CHECK_PROXY: &str = "check proxyHost and its rules";
const CHECK_LOGS: &str = "check the logs of the servers, and their limits of connections";
const OPEN_FEWER: &str = "open fewer connections (maxPoolSize, fewer clients), or raise the limit \
    of the server (net.maxIncomingConnections)";
const CHECK_ROUTES: &str = "check the network of this machine: its routes, its VPN, or the network \
    of its container";
const ASK_FOR_TLS: WithLine =
    WithLine { text: "add tls=true to the connection string", line: "tls=true" };
const ASK_FOR_NO_TLS: WithLine =
    WithLine { text: "set tls=false, or check the ports", line: "tls=false" };
const POLL: WithLine = WithLine {
    text: "let monitors poll (serverMonitoringMode=poll), or replace what is in between",
    line: "serverMonitoringMode=poll",
};
const CHECK_CERTIFICATES: &str = "check tlsCAFile and the certificates";
const REPLACE: &str = "give the server a certificate that was not revoked, with a key of its own: \
    that of the revoked one may be known to others";
const STAPLE: &str = "let the server reach the responder that its certificate names \
    (ocspEnabled), so that it staples its answer, or issue the certificate without tlsfeature";
const CHECK_OWN_CERTIFICATES: &str = "check the files that the TLS options name, the system's \
    store, or the application's provider of certificates";
const RENEW: &str = "renew the certificate";
const OPEN_RESPONDER: &str = "let this machine reach a responder that answers, or have the servers \
    staple its answers";
const CHECK_LOGIN: &str = "check the password, authSource and authMechanism";
const CHECK_SUBJECT: &str = "name a certificate of the client that the server trusts \
    (tlsCertificateKeyFile), and let its subject be a user of $external";
const CHECK_PRINCIPAL: &str = "let the principal be a user of $external, as the server writes it";
const CHECK_ROLE: &str = "let the ARN of the role or of the user be a user of $external";
const CHECK_CLAIMS: &str = "check that the server has the issuer, the audience and the claims of \
    the token in its oidcIdentityProviders";
const CHOOSE_MECHANISM: &str = "set another authMechanism, or let the server offer this one \
    (its parameter authenticationMechanisms)";
const CHECK_CREDENTIALS: &str = "check the source of the credentials, and whether it can be \
    reached from this machine";
const INITIATE: WithLine =
    WithLine { text: "initiate the set: rs.initiate() in mongosh", line: "rs.initiate()" };
const LEAVE_OUT_SET: &str = "leave out replicaSet, or name members of the replica set";
const CHECK_SEEDS: &str = "check the seeds and the replicaSet option";
const CHECK_BETWEEN: &str = "check the network between the members, and their bindIp";
const WAIT_FOR_STEP_DOWN: &str =
    "check the network between that server and the others; it steps down when it learns of them";
const CHECK_GATEWAY: &str = "restart that server, or whatever answers in its place";
const WAIT_FOR_ELECTION: &str =
    "wait for the election; if it takes long, check that a majority of the members runs";
const ALLOW_PRIMARY: WithLine = WithLine {
    text: "check the members, or allow the primary (readPreference=secondaryPreferred)",
    line: "readPreference=secondaryPreferred",
};
const CORRECT_TAGS: &str = "correct readPreferenceTags, or the tags of the members";
const FIND_LAG: &str = "find the reason for the lag, or raise maxStalenessSeconds";
const CORRECT_PREDICATE: &str = "correct the predicate";
const CHECK_TYPES: &str = "check which members hold data, and the read preference";
const LEAVE_OUT_DIRECT: &str = "leave out directConnection to reach other members";
const SYNCHRONISE: &str = "synchronise both clocks (NTP)";
const SEND_LESS: &str = "send less, or try again later and more slowly";
const SEE_OPERATIONS: WithLine = WithLine {
    text: "see in the log of the server, and in db.currentOp(), what it refuses or waits for: a \
        lock (fsync), a disk that is full",
    line: "db.currentOp()",
};
const PREPARE_CONNECTIONS: &str =
    "raise minPoolSize or maxConnecting, not maxPoolSize, or find out why connecting is slow";
const READ_EACH: &str = "see the error of each server";
const GRANT: &str = "name a user that has the role clusterMonitor, which changes nothing";

/// The least size that servers resize an oplog to, in mebibytes.
const MIN_OPLOG: u64 = 990;

fn set_option(text: &'static str, option: &str, value: u64) -> Advice {
    let line = format!("{option}={value}");
    Advice::with_line(format!("{text} ({line})").into(), line)
}

/// Nothing is idle for longer than heartbeatFrequencyMS, of which there is a least value; numbers
/// that people would choose are multiples of that.
fn ask_more_often(after: Duration) -> Advice {
    let least = MIN_HEARTBEAT_FREQUENCY.as_millis();
    let millis = after.as_millis() * 3 / 4 / least * least;
    let text = "raise the idle time-out of what is in between";
    if millis == 0 {
        return text.into();
    }
    let line = format!("heartbeatFrequencyMS={millis}&maxIdleTimeMS={millis}");
    Advice::with_line(format!("{text}, or stay below it ({line})").into(), line)
}

/// Returns what the server may object to, by what it was shown.
fn check_login(mechanism: Option<&str>) -> &'static str {
    match mechanism.and_then(AuthMechanism::from_name) {
        Some(AuthMechanism::X509) => CHECK_SUBJECT,
        Some(AuthMechanism::Gssapi) => CHECK_PRINCIPAL,
        Some(AuthMechanism::Aws) => CHECK_ROLE,
        Some(AuthMechanism::Oidc) => CHECK_CLAIMS,
        _ => CHECK_LOGIN,
    }
}

fn check_removed(removal: Option<&Removal>) -> Advice {
    removal.map_or(CHECK_SEEDS, |it| it.removal_reason.remedy()).into()
}

fn raise_limit(least: Duration) -> Advice {
    set_option("raise the limit", "maxStalenessSeconds", least.as_secs())
}

fn of_atlas_or(atlas: bool, other: &'static str) -> Advice {
    if atlas { CHECK_ATLAS.into() } else { other.into() }
}

/// More connections at a time do not mend what waits for others than the server.
fn hasten(stage: Option<Stage>, max_connecting: u32) -> Advice {
    match stage {
        Some(Stage::Certificates) => CHECK_OWN_CERTIFICATES.into(),
        Some(Stage::Revocation) => OPEN_RESPONDER.into(),
        Some(Stage::Credentials) => CHECK_CREDENTIALS.into(),
        _ => {
            let twice = u64::from(max_connecting.saturating_mul(2));
            set_option(PREPARE_CONNECTIONS, "maxConnecting", twice)
        }
    }
}

fn enlarge_oplog(mebibytes: u64) -> Advice {
    let size = mebibytes.saturating_mul(2).max(MIN_OPLOG);
    let line = format!("db.adminCommand({{ replSetResizeOplog: 1, size: Double({size}) }})");
    let text = format!("let it be larger, on each member ({line}), or set oplogMinRetentionHours");
    Advice::with_line(text.into(), line)
}

fn add_member(server: &ServerAddress) -> Advice {
    let line = format!("rs.add({:?})", server.to_string());
    let text = format!(
        "add it in mongosh at the primary ({line}), or leave it out of the connection string"
    );
    Advice::with_line(text.into(), line)
}

fn correct_set(found: Option<&str>) -> Advice {
    let text = "correct replicaSet or the hosts in the connection string";
    let is_plain =
        |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    match found.filter(|name| is_plain(name)) {
        Some(found) => Advice::with_line(text.into(), format!("replicaSet={found}")),
        None => text.into(),
    }
}

/// The server that answered is one of its members: by the name that it calls itself, or else by the
/// only one that there is.
fn lead_to_members(
    seed: &ServerAddress,
    called: Option<&ServerAddress>,
    members: &[ServerAddress],
) -> Advice {
    let called = called.or(match members {
        [only] => Some(only),
        _ => None,
    });
    let line = called.map(|called| format!("--map {called}={seed}"));
    let hint = line.as_ref().map(|line| format!(" (as in {line})")).unwrap_or_default();
    let text = format!(
        "reconfigure the set with addresses that do, map those addresses{hint}, or connect \
         directly to one member (directConnection=true)"
    );
    Advice { text: text.into(), line }
}
