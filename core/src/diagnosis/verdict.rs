//! The likely cause of what goes wrong: the kinds that there are, with what is particular to each.

use std::time::Duration;

use serde::Serialize;

use super::change_stream::ChangeStreamVerdict;
use super::failure::of_reaching;
use super::transaction::TransactionVerdict;
use crate::config::ServerAddress;
use crate::description::{Incompatibility, Removal, ServerType, millis};
use crate::failure::{Failure, GssapiProblem, Stage, UnsupportedCertificate};
use crate::process::Forked;
use crate::selection::Refusal;
use crate::text::seconds;

/// The number of members that a text names.
const MAX_NAMED: usize = 5;

/// The time from which on a lookup in DNS counts as slow.
pub const SLOW_LOOKUP: Duration = Duration::from_secs(2);

/// The likely cause of what goes wrong.
///
/// Its text is one sentence that says what is wrong; what to do is its
/// [advice](Self::advice). Serialised, its kind is under `verdict`, with the particulars beside it;
/// durations are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "verdict", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Verdict {
    /// The connection string is malformed, or its options do not go together.
    #[error("{reason}")]
    InvalidOptions {
        /// The option that is refused, and the reason.
        reason: String,
    },
    /// The client and a server share no version of the wire protocol.
    #[error("{}", incompatibility.to_string().trim_end_matches('.'))]
    IncompatibleWireVersion {
        /// The server, and the versions of both.
        incompatibility: Incompatibility,
    },
    /// The maximum of staleness is too small for this deployment.
    #[error("{}", Refusal::MaxStaleness { given: *given, least: *least })]
    MaxStalenessTooSmall {
        /// The value that was asked for.
        #[serde(rename = "givenMS", serialize_with = "millis")]
        given: Duration,
        /// The least that is allowed.
        #[serde(rename = "leastMS", serialize_with = "millis")]
        least: Duration,
    },

    /// The client was closed.
    #[error("the client was closed")]
    Closed,
    /// The client is another process's.
    #[error("{0}")]
    Forked(Forked),
    /// The process, or the thread that keeps its time, did not run for a while, and what failed
    /// right after that says nothing of the servers.
    #[error(
        "this process did not run for at least {} until {} ago, and failures right after that say \
         nothing of the servers",
        seconds(*paused),
        seconds(*since)
    )]
    ProcessPaused {
        /// For how long, at least: by how much the clock was late.
        #[serde(rename = "pausedMS", serialize_with = "millis")]
        paused: Duration,
        /// For how long it has been running again.
        #[serde(rename = "sinceMS", serialize_with = "millis")]
        since: Duration,
    },
    /// One process has many clients for the same deployment.
    #[error(
        "this process has {clients} clients for {}, with {connections} connections in all",
        named(hosts)
    )]
    ManyClients {
        /// The number of clients that are not closed.
        clients: usize,
        /// The number of connections that they have open.
        connections: usize,
        /// The hosts that each of them was created with.
        hosts: Vec<ServerAddress>,
    },
    /// A time-out is set, and another one was waited for.
    #[error(
        "operations wait for {waited_for} ({}, the default), while {set} ({}) limits only {}",
        seconds(*waited),
        seconds(*set_to),
        limited(set)
    )]
    TimeoutOfAnotherKind {
        /// The option whose time was over.
        waited_for: String,
        /// Its value.
        #[serde(rename = "waitedMS", serialize_with = "millis")]
        waited: Duration,
        /// The option that is set.
        set: String,
        /// Its value.
        #[serde(rename = "setToMS", serialize_with = "millis")]
        set_to: Duration,
    },

    /// Name servers give no answer, or not the records that are needed.
    #[error(
        "{}",
        reason.as_deref().unwrap_or("no host name can be looked up: the name servers do not answer")
    )]
    LookupFailed {
        /// The answer of a name server, if it is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A lookup took so long that connections wait for it.
    #[error(
        "the lookup of {name} took {}{}",
        seconds(*took),
        unanswered(silent)
    )]
    LookupSlow {
        /// The name that was looked up.
        name: String,
        /// The time that it took.
        #[serde(rename = "tookMS", serialize_with = "millis")]
        took: Duration,
        /// The name servers that did not answer, if they are known.
        silent: Vec<String>,
    },
    /// An SRV record names a host outside the deployment's domain, where anybody may have put it.
    #[error("an SRV record of {hostname} names the host {host:?}, which does not end in .{domain}")]
    SrvHostOutsideDomain {
        /// The deployment.
        hostname: String,
        /// The host.
        host: String,
        /// The required end of its name.
        domain: String,
    },
    /// No name of a server resolves.
    #[error("no host name of a server has an address")]
    NamesDoNotResolve,

    /// No check has begun yet.
    #[error("no server has been checked yet")]
    NotCheckedYet,
    /// The first checks are in progress.
    #[error(
        "no server has answered yet; checks have been in progress for {}{}",
        seconds(*lasts),
        stage.map(|stage| format!(" (stage: {})", stage.words())).unwrap_or_default()
    )]
    NoAnswerYet {
        /// The stage that all have reached, if it is the same.
        stage: Option<Stage>,
        /// For how long the oldest one has been in progress.
        #[serde(rename = "lastsMS", serialize_with = "millis")]
        lasts: Duration,
    },
    /// Every server refused the connection.
    #[error("every server refused the connection")]
    ConnectionRefused,
    /// No server listens at the paths of Unix domain sockets, or this user may not use them.
    #[error("no server listens on the Unix domain socket")]
    SocketUnusable,
    /// There is no route to the servers.
    #[error("there is no route from this machine to the servers")]
    Unreachable,
    /// Connections to servers are not even opened.
    #[error("no server answers")]
    NoAnswer,
    /// Servers accept connections, and answer nothing.
    #[error(
        "servers accept connections, but none has answered {} within {}",
        first_message(*stage),
        seconds(*waited)
    )]
    ServersSilent {
        /// The stage at which nothing comes back: TLS or hello.
        stage: Stage,
        /// The time that was waited for an answer.
        #[serde(rename = "waitedMS", serialize_with = "millis")]
        waited: Duration,
        /// True if the servers are MongoDB Atlas', by their names.
        atlas: bool,
    },
    /// The proxy cannot be reached, or leads to no server.
    #[error("the proxy cannot be reached, or does not reach a server")]
    ProxyFailed,
    /// Servers close the connection at the first message, and have answered without TLS before.
    #[error(
        "servers close the connection at the first message, and have answered before; they may be \
         shutting down, or accept no more connections"
    )]
    ConnectionsClosed,
    /// A server closes new connections while others to it are open.
    #[error(
        "{server} closes new connections at once while {} to it {} open; it may have reached its \
         limit of connections",
        count(*open, "connection"),
        if *open == 1 { "is" } else { "are" }
    )]
    ConnectionLimit {
        /// The server.
        server: ServerAddress,
        /// The number of connections to it that are open.
        open: usize,
    },
    /// Something closes connections that are idle for a certain time.
    #[error(
        "the last {times} connections to {server} that waited for news were closed after {}, which \
         is less than heartbeatFrequencyMS ({}): something cuts idle connections",
        seconds(*after),
        seconds(*heartbeat)
    )]
    IdleConnectionsCut {
        /// The server.
        server: ServerAddress,
        /// The number of times in a row.
        times: u32,
        /// The time after which they are closed, at least.
        #[serde(rename = "shortestMS", serialize_with = "millis")]
        shortest: Duration,
        /// The time after which they are closed, at most.
        #[serde(rename = "afterMS", serialize_with = "millis")]
        after: Duration,
        /// heartbeatFrequencyMS.
        #[serde(rename = "heartbeatMS", serialize_with = "millis")]
        heartbeat: Duration,
    },
    /// Something closes connections as soon as they wait for news.
    #[error(
        "the last {times} connections to {server} were closed as soon as they waited for news: \
         something in between does not take the streaming protocol"
    )]
    StreamingRefused {
        /// The server.
        server: ServerAddress,
        /// The number of times in a row.
        times: u32,
        /// The time after which they are closed, at most.
        #[serde(rename = "afterMS", serialize_with = "millis")]
        after: Duration,
    },
    /// Something else than MongoDB answers.
    #[error("{server} answers in {protocol}, so it is not a MongoDB port")]
    NotMongo {
        /// The server.
        server: ServerAddress,
        /// The protocol that it speaks, such as HTTP.
        protocol: String,
    },

    /// Servers expect TLS.
    #[error(
        "{}",
        match certain {
            true => "servers expect TLS, and the connection string asks for none",
            false => "servers close the connection at the first message; they may expect TLS or \
                accept no more connections",
        }
    )]
    TlsExpected {
        /// True if one of them has answered in TLS; else it is a guess.
        certain: bool,
    },
    /// Servers do not answer in TLS.
    #[error(
        "{}",
        match certain {
            true => "servers answer without TLS, and the connection string asks for it",
            false => "servers do not answer in TLS; they may not support it",
        }
    )]
    TlsNotExpected {
        /// True if one of them has answered without TLS; else it is a guess.
        certain: bool,
    },
    /// Servers end TLS without a word of what is wrong, as proxies do in front of servers that the
    /// client has no access to.
    #[error("servers accept connections and end TLS at once with a general alert")]
    AccessRefused {
        /// True if the servers are MongoDB Atlas', by their names.
        atlas: bool,
    },
    /// No server has a certificate that is acceptable.
    #[error("no server has a certificate that is trusted")]
    CertificatesRefused,
    /// The certificate of a server, or that of an issuer, is of a kind that is not supported.
    #[error(
        "the certificate of {server}, or that of an issuer, cannot be used: {}",
        unsupported.words()
    )]
    CertificateUnsupported {
        /// The server.
        server: ServerAddress,
        /// The kind.
        unsupported: UnsupportedCertificate,
    },
    /// The certificate of a server, or that of an issuer, was revoked.
    #[error("{server}: {reason}")]
    CertificateRevoked {
        /// The server.
        server: ServerAddress,
        /// The source that says so, and since when.
        reason: String,
    },
    /// The certificate of a server demands a staple of OCSP, which the server does not send, or the
    /// staple is not valid.
    #[error("{server}: {reason}")]
    StapleInvalid {
        /// The server.
        server: ServerAddress,
        /// The fault of the staple, or that there is none.
        reason: String,
    },
    /// The certificates that TLS needs cannot be read: from files, from the system's store, or from
    /// a provider.
    #[error("the certificates that TLS needs are not there: {reason}")]
    CertificatesUnavailable {
        /// The file or the provider, and what is wrong with it.
        reason: String,
    },
    /// The certificate of a server is about to expire.
    #[error("the certificate of {server} expires in {} days", left.as_secs() / 86_400)]
    CertificateExpiresSoon {
        /// The server.
        server: ServerAddress,
        /// The time that is left.
        #[serde(rename = "leftMS", serialize_with = "millis")]
        left: Duration,
    },
    /// The OCSP responder does not answer, or is slow: other drivers ask it at each connection.
    #[error(
        "{responder}, which the certificate of {server} names for revocations, gave no answer \
         within {}; drivers that ask it are slow to connect",
        seconds(*waited)
    )]
    RevocationSlow {
        /// The server.
        server: ServerAddress,
        /// The address of the OCSP responder.
        responder: String,
        /// The time that was waited for it.
        #[serde(rename = "waitedMS", serialize_with = "millis")]
        waited: Duration,
    },
    /// The OCSP responder does not say whether the certificate of a server was revoked.
    #[error(
        "{responder}, which the certificate of {server} names for revocations, does not say \
         whether it was revoked, so that drivers connect without knowing: {reason}"
    )]
    RevocationUnknown {
        /// The server.
        server: ServerAddress,
        /// The address of the OCSP responder.
        responder: String,
        /// The error of reaching it, or what is wrong with its answer.
        reason: String,
    },

    /// The server refuses the login of the application.
    #[error(
        "{} refused the login{}: {reason}",
        named_or_not(server.as_ref()),
        login(user.as_deref(), auth_source.as_deref(), mechanism.as_deref())
    )]
    LoginRefused {
        /// The server.
        server: Option<ServerAddress>,
        /// The user, if there is a name.
        user: Option<String>,
        /// The database of the user.
        auth_source: Option<String>,
        /// The mechanism.
        mechanism: Option<String>,
        /// The words of the server.
        reason: String,
    },
    /// The server does not offer the mechanism of authentication that it was asked for.
    #[error(
        "{server} does not offer {}: {reason}",
        mechanism.as_deref().unwrap_or("the mechanism of the login")
    )]
    MechanismUnavailable {
        /// The server.
        server: ServerAddress,
        /// The mechanism.
        mechanism: Option<String>,
        /// The words of the server.
        reason: String,
    },
    /// The application cannot log in by GSSAPI.
    #[error("no login at {server} by GSSAPI: {reason}")]
    GssapiFailed {
        /// The server.
        server: ServerAddress,
        /// The kind of the problem.
        problem: GssapiProblem,
        /// The words of the library.
        reason: String,
    },
    /// The source of the credentials did not provide them.
    #[error("could not obtain credentials: {reason}")]
    CredentialsUnavailable {
        /// The source, and what it said.
        reason: String,
    },

    /// The server is a member of no replica set, or not yet.
    #[error("the server is not a member of a replica set yet")]
    NotInitiated,
    /// The server is a member of no replica set, while others have been initiated.
    #[error(
        "{server} is in no replica set, while others form {set_name:?}: it was removed from that, \
         or not added yet"
    )]
    NotAMember {
        /// The server.
        server: ServerAddress,
        /// The replica set of the others.
        set_name: String,
    },
    /// The servers are in another replica set than was asked for.
    #[error("{}", differs(wanted, found.as_deref()))]
    SetNameDiffers {
        /// The name that was asked for.
        wanted: String,
        /// The name that a server gave.
        found: Option<String>,
    },
    /// A replica set is expected, and the server is something else: a standalone or a mongos.
    #[error("{server} is a {server_type}, but a replica set is expected")]
    NotAReplicaSet {
        /// The server.
        server: ServerAddress,
        /// Its type.
        server_type: ServerType,
    },
    /// Every server has left the topology, and the seeds, if they have joined again, have not been
    /// checked yet.
    #[error(
        "no server is left{}",
        removal.as_ref().map(|removal| format!(": {removal}")).unwrap_or_default()
    )]
    NoServersLeft {
        /// The server that was removed last, and the reason.
        removal: Option<Removal>,
    },
    /// A server answered, but its replica set lists other addresses only, and none of them leads to
    /// a member from here.
    #[error(
        "{seed} answered, but its replica set lists only {}, which do not lead to its members from \
         here",
        named(members)
    )]
    MembersElsewhere {
        /// The server that answered.
        seed: ServerAddress,
        /// The address by which its set knows it.
        called: Option<ServerAddress>,
        /// All addresses that the set lists.
        members: Vec<ServerAddress>,
    },
    /// Members see each other otherwise than they are seen from here.
    #[error("{}", disagreeing(disagreements))]
    MembersDisagree {
        /// Each with whom it is about.
        disagreements: Vec<Disagreement>,
    },
    /// A server claims to be primary, and another one was elected since.
    #[error("{server} claims to be primary ({claim}), but a newer primary was elected ({newest})")]
    StalePrimary {
        /// The server.
        server: ServerAddress,
        /// Its election.
        claim: String,
        /// The newest election that is known.
        newest: String,
    },
    /// A server says that it is primary, and refuses writes because it is not.
    #[error(
        "{server} says in each reply to hello that it is primary, and refused the last {refusals} \
         writes with {code_name}: the server contradicts itself"
    )]
    PrimaryRefusesWrites {
        /// The server.
        server: ServerAddress,
        /// The number of operations that it has refused since it was not seen in another role.
        refusals: u32,
        /// The name of the error.
        code_name: String,
    },
    /// The members that answer have no primary.
    #[error("the replica set has had no primary for {}", seconds(*since))]
    NoPrimary {
        /// For how long.
        #[serde(rename = "sinceMS", serialize_with = "millis")]
        since: Duration,
    },
    /// No secondary is available.
    #[error("no secondary is available")]
    NoSecondary,
    /// No available server has the tags asked for.
    #[error("no available server has the tags of the read preference")]
    NoTagMatch,
    /// Every secondary is too stale.
    #[error("every secondary is too stale, the freshest by {}", seconds(*by))]
    TooStale {
        /// By how much the freshest of them is.
        #[serde(rename = "byMS", serialize_with = "millis")]
        by: Duration,
    },
    /// The application's own condition refuses every suitable server.
    #[error("the application's predicate refuses every suitable server")]
    PredicateRefused,
    /// Servers are available, but none of a type that would do.
    #[error("{}", wrong_type(direct.as_ref(), *server_type))]
    WrongServerType {
        /// The server of a direct connection, if it is one: it is always selected, and refuses the
        /// operation.
        #[serde(skip_serializing_if = "Option::is_none")]
        direct: Option<ServerAddress>,
        /// Its type.
        #[serde(skip_serializing_if = "Option::is_none")]
        server_type: Option<ServerType>,
    },
    /// The clock of a server differs from this machine's.
    #[error(
        "the clock of {server} is {} {} that of this machine",
        seconds(*by),
        if *ahead { "ahead of" } else { "behind" }
    )]
    ClocksDiffer {
        /// The server.
        server: ServerAddress,
        /// By how much.
        #[serde(rename = "byMS", serialize_with = "millis")]
        by: Duration,
        /// True if the server's shows a later time.
        ahead: bool,
    },

    /// A server sheds load.
    #[error("{} sheds load: {reason}", named_or_not(server.as_ref()))]
    Overloaded {
        /// The server.
        server: Option<ServerAddress>,
        /// Its words, with the labels of the error.
        reason: String,
    },
    /// A server says hello, and does not do what it is asked for.
    #[error("{server} answers hello, but does not do what it is asked for: {command}: {reason}")]
    OperationFailed {
        /// The server.
        server: ServerAddress,
        /// The command.
        command: String,
        /// Its words, or for how long it gave no answer.
        reason: String,
    },
    /// Establishing a connection takes so long that operations do not get one in time, though the
    /// pool is not full.
    #[error(
        "connections to {server} take {} to establish{}, and only {max_connecting} are established \
         at a time, while {in_use}{} are in use",
        seconds(*takes),
        stage.map(|stage| format!(" (mostly {})", stage.words())).unwrap_or_default(),
        if *max_pool_size == 0 { String::new() } else { format!(" of {max_pool_size}") }
    )]
    EstablishmentSlow {
        /// The server.
        server: ServerAddress,
        /// The time that one connection takes, as far as it is known.
        #[serde(rename = "takesMS", serialize_with = "millis")]
        takes: Duration,
        /// The stage that takes most of it.
        stage: Option<Stage>,
        /// maxConnecting: the number that are established at a time.
        max_connecting: u32,
        /// The number of connections in use.
        in_use: u32,
        /// maxPoolSize, 0 for no limit.
        max_pool_size: u32,
    },
    /// The oplog of a server is full, and reaches back for a short time only.
    #[error(
        "the oplog of {server} is full and reaches back for {} only, which is less than {}",
        seconds(*window),
        bound.words()
    )]
    OplogSmall {
        /// The server.
        server: ServerAddress,
        /// The time from its first entry to its last.
        #[serde(rename = "windowMS", serialize_with = "millis")]
        window: Duration,
        /// The time that it should reach back for.
        bound: OplogBound,
        /// Its size, in mebibytes.
        mebibytes: u64,
    },
    /// The user may not ask what a tool has to know.
    #[error("the user may not run {commands} at {server}: what those say is not known")]
    NotPermitted {
        /// The server.
        server: ServerAddress,
        /// The commands.
        commands: String,
    },
    /// No server answers as it should, each for its own reason.
    #[error("no server is available")]
    NoServerAvailable,
    /// A transaction fails, or many do.
    #[error("{0}")]
    #[serde(untagged)]
    Transaction(TransactionVerdict),
    /// A change stream cannot go on, or soon cannot.
    #[error("{0}")]
    #[serde(untagged)]
    ChangeStream(ChangeStreamVerdict),
}

/// The time that an oplog should reach back for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum OplogBound {
    /// The lifetime of a transaction.
    Transaction,
    /// An hour.
    Hour,
    /// A day.
    Day,
}

impl OplogBound {
    const fn words(self) -> &'static str {
        match self {
            Self::Transaction => {
                "a transaction may last: members that fall behind for a moment cannot catch up, \
                 and change streams cannot resume"
            }
            Self::Hour => {
                "an hour: a member, or a change stream, that is away for longer cannot go on where \
                 it was"
            }
            Self::Day => {
                "a day: a member that is away overnight has to copy everything, and a change \
                 stream cannot resume"
            }
        }
    }
}

/// The word of one member on another one, beside what is seen from here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Disagreement {
    /// The member that was asked.
    pub observer: ServerAddress,
    /// The member that it is about.
    pub member: ServerAddress,
    /// Its state in the words of the observer, such as `(not reachable/healthy)`.
    pub seen: String,
    /// Its state from here, such as `RSPrimary`.
    pub here: String,
}

impl Disagreement {
    /// Says how `observer` sees `member`, and how it is seen from here.
    pub fn new(
        observer: ServerAddress,
        member: ServerAddress,
        seen: impl Into<String>,
        here: impl Into<String>,
    ) -> Self {
        Self { observer, member, seen: seen.into(), here: here.into() }
    }
}

impl Verdict {
    /// Returns the likely cause for which a server cannot be reached, as far as one failure shows
    /// it; `waited` is the time after which an attempt without an answer was given up.
    pub fn of_failure(server: &ServerAddress, failure: &Failure, waited: Duration) -> Option<Self> {
        of_reaching(server, failure, waited)
    }

    /// Returns the name, as in JSON: a label for metrics, which stays as it is.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::InvalidOptions { .. } => "invalidOptions",
            Self::IncompatibleWireVersion { .. } => "incompatibleWireVersion",
            Self::MaxStalenessTooSmall { .. } => "maxStalenessTooSmall",
            Self::Closed => "closed",
            Self::Forked(_) => "forked",
            Self::ProcessPaused { .. } => "processPaused",
            Self::ManyClients { .. } => "manyClients",
            Self::TimeoutOfAnotherKind { .. } => "timeoutOfAnotherKind",
            Self::LookupFailed { .. } => "lookupFailed",
            Self::LookupSlow { .. } => "lookupSlow",
            Self::SrvHostOutsideDomain { .. } => "srvHostOutsideDomain",
            Self::NamesDoNotResolve => "namesDoNotResolve",
            Self::NotCheckedYet => "notCheckedYet",
            Self::NoAnswerYet { .. } => "noAnswerYet",
            Self::ConnectionRefused => "connectionRefused",
            Self::SocketUnusable => "socketUnusable",
            Self::Unreachable => "unreachable",
            Self::NoAnswer => "noAnswer",
            Self::ServersSilent { .. } => "serversSilent",
            Self::ProxyFailed => "proxyFailed",
            Self::ConnectionsClosed => "connectionsClosed",
            Self::ConnectionLimit { .. } => "connectionLimit",
            Self::IdleConnectionsCut { .. } => "idleConnectionsCut",
            Self::StreamingRefused { .. } => "streamingRefused",
            Self::NotMongo { .. } => "notMongo",
            Self::TlsExpected { .. } => "tlsExpected",
            Self::TlsNotExpected { .. } => "tlsNotExpected",
            Self::AccessRefused { .. } => "accessRefused",
            Self::CertificatesRefused => "certificatesRefused",
            Self::CertificateUnsupported { .. } => "certificateUnsupported",
            Self::CertificateRevoked { .. } => "certificateRevoked",
            Self::StapleInvalid { .. } => "stapleInvalid",
            Self::CertificatesUnavailable { .. } => "certificatesUnavailable",
            Self::CertificateExpiresSoon { .. } => "certificateExpiresSoon",
            Self::RevocationSlow { .. } => "revocationSlow",
            Self::RevocationUnknown { .. } => "revocationUnknown",
            Self::LoginRefused { .. } => "loginRefused",
            Self::MechanismUnavailable { .. } => "mechanismUnavailable",
            Self::GssapiFailed { .. } => "gssapiFailed",
            Self::CredentialsUnavailable { .. } => "credentialsUnavailable",
            Self::NotInitiated => "notInitiated",
            Self::NotAMember { .. } => "notAMember",
            Self::SetNameDiffers { .. } => "setNameDiffers",
            Self::NotAReplicaSet { .. } => "notAReplicaSet",
            Self::NoServersLeft { .. } => "noServersLeft",
            Self::MembersElsewhere { .. } => "membersElsewhere",
            Self::MembersDisagree { .. } => "membersDisagree",
            Self::StalePrimary { .. } => "stalePrimary",
            Self::PrimaryRefusesWrites { .. } => "primaryRefusesWrites",
            Self::NoPrimary { .. } => "noPrimary",
            Self::NoSecondary => "noSecondary",
            Self::NoTagMatch => "noTagMatch",
            Self::TooStale { .. } => "tooStale",
            Self::PredicateRefused => "predicateRefused",
            Self::WrongServerType { .. } => "wrongServerType",
            Self::ClocksDiffer { .. } => "clocksDiffer",
            Self::Overloaded { .. } => "overloaded",
            Self::OperationFailed { .. } => "operationFailed",
            Self::EstablishmentSlow { .. } => "establishmentSlow",
            Self::OplogSmall { .. } => "oplogSmall",
            Self::NotPermitted { .. } => "notPermitted",
            Self::NoServerAvailable => "noServerAvailable",
            Self::Transaction(verdict) => verdict.name(),
            Self::ChangeStream(verdict) => verdict.name(),
        }
    }
}

impl From<Refusal> for Verdict {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Incompatible(incompatibility) => {
                Self::IncompatibleWireVersion { incompatibility }
            }
            Refusal::MaxStaleness { given, least } => Self::MaxStalenessTooSmall { given, least },
        }
    }
}

fn differs(wanted: &str, found: Option<&str>) -> String {
    let place = match found {
        Some(found) => format!("in replica set {found:?}, not in {wanted:?}"),
        None => format!("not in replica set {wanted:?}"),
    };
    format!("the servers are {place} as asked for")
}

/// Lists the first few addresses, and says how many there are beyond them.
fn named(addresses: &[ServerAddress]) -> String {
    let first: Vec<String> = addresses.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let rest = match addresses.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    first.join(", ") + &rest
}

pub(super) fn named_or_not(server: Option<&ServerAddress>) -> String {
    server.map_or_else(|| "the server".to_owned(), ToString::to_string)
}

fn wrong_type(direct: Option<&ServerAddress>, server_type: Option<ServerType>) -> String {
    match (direct, server_type) {
        (Some(server), Some(server_type)) => {
            format!("{server} is of type {server_type}, which does not take the operation")
        }
        _ => "servers are available, but none has the type that the operation needs".to_owned(),
    }
}

/// Returns what a time-out limits.
fn limited(option: &str) -> &'static str {
    match option {
        "connectTimeoutMS" => "each attempt to connect",
        "socketTimeoutMS" => "the wait for each reply",
        "waitQueueTimeoutMS" => "the wait for a connection of a pool",
        _ => "something else",
    }
}

fn unanswered(silent: &[String]) -> String {
    match silent {
        [] => String::new(),
        [one] => format!(", as name server {one} did not answer"),
        several => format!(", as name servers {} did not answer", several.join(", ")),
    }
}

const fn first_message(stage: Stage) -> &'static str {
    match stage {
        Stage::Tls => "the TLS handshake",
        Stage::Certificates
        | Stage::Resolve
        | Stage::Connect
        | Stage::Proxy
        | Stage::Revocation
        | Stage::Hello
        | Stage::Credentials
        | Stage::Authenticate
        | Stage::Operate => "hello",
    }
}

fn login(user: Option<&str>, auth_source: Option<&str>, mechanism: Option<&str>) -> String {
    let parts = [
        user.map(|user| format!("user {user:?}")),
        auth_source.map(|source| format!("authSource {source}")),
        mechanism.map(str::to_owned),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!(" ({})", parts.join(", ")),
    }
}

fn disagreeing(disagreements: &[Disagreement]) -> String {
    let Some(Disagreement { observer, member, seen, here }) = disagreements.first() else {
        return "members see each other otherwise than they are seen from here".to_owned();
    };
    let rest = match disagreements.len() {
        1 => String::new(),
        count => format!(", and {} more disagree", count - 1),
    };
    format!("{member} is {here} from here, and {seen} for {observer}{rest}")
}

fn count(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}
