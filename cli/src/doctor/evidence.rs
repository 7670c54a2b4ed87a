//! The evidence: plain values that probes have gathered, and rules judge.

mod gridfs;
mod transactions;

use std::net::SocketAddr;
use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;
use sdam_core::diagnosis::Verdict;
use sdam_core::failure::{Cause, Failure, Stage};
use serde::Serialize;

pub(super) use self::gridfs::{
    BucketEnd, BucketSeen, Count, DamagedFile, FileFault, IndexFault, MAX_DESCRIBED, NotRemoved,
    Orphan,
};
pub(super) use self::transactions::{Counted, IdleTransaction, Transactions};
use crate::duration::{millis, optional_millis};
use crate::history::Oplog;

/// All that was gathered.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Evidence {
    /// The connection string.
    pub(super) options: OptionsSeen,
    /// The records in DNS, if the connection string asks for them.
    pub(super) lookups: Option<Lookups>,
    /// The servers: seeds, and what those that answered have named.
    pub(super) servers: Vec<ServerSeen>,
    /// The deployment as a client sees it.
    pub(super) client: ClientSeen,
    /// The bucket of GridFS: `--gridfs`.
    pub(super) bucket: Option<BucketSeen>,
    /// The times that this process did not run.
    pub(super) pauses: Vec<Pause>,
    /// True if all of the way was gone; false if time was over before.
    pub(super) complete: bool,
    /// The time of the change that a change stream has read last, in seconds since 1970: `--token`.
    #[serde(skip)]
    pub(super) token: Option<u64>,
    /// The time that it might take: `--for`.
    #[serde(skip)]
    pub(super) limit: Duration,
}

/// The connection string as it was understood.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OptionsSeen {
    /// The connection string without secrets; `None` if it was refused.
    pub(super) uri: Option<String>,
    /// The reason why it was refused.
    pub(super) error: Option<String>,
    /// Parts of it that have no effect.
    pub(super) faults: Vec<String>,
    /// The one of them that is about the mechanism of the login.
    pub(super) mechanism_fault: Option<String>,
    /// Parts of it that are easily overlooked.
    pub(super) notes: Vec<String>,
    /// The replica set that is asked for.
    pub(super) replica_set: Option<String>,
    /// True if only the seed counts.
    pub(super) direct: bool,
    /// True if the seed is a load balancer.
    pub(super) load_balanced: bool,
    /// True if connections use TLS.
    pub(super) tls: bool,
    /// True if the client has a certificate.
    pub(super) certificate: bool,
    /// The proxy.
    pub(super) proxy: Option<ServerAddress>,
    /// The user that logs in, and how.
    pub(super) login: Option<Identity>,
    /// The time-out that is set where another one is waited for.
    pub(super) other_timeout: Option<Verdict>,
    /// `connectTimeoutMS`: how long connecting and a check of a server may take.
    #[serde(rename = "connectTimeoutMS", serialize_with = "optional_millis")]
    pub(super) connect_timeout: Option<Duration>,
    /// `waitQueueTimeoutMS`, or `timeoutMS`: how long an operation waits for a connection.
    #[serde(rename = "waitQueueTimeoutMS", serialize_with = "optional_millis")]
    pub(super) wait_queue_timeout: Option<Duration>,
    /// `maxPoolSize`, 0 for no limit.
    pub(super) max_pool_size: u32,
    /// `maxConnecting`.
    pub(super) max_connecting: u32,
}

/// The user that logs in, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Identity {
    /// The user; absent where the mechanism finds it out.
    pub(super) user: Option<String>,
    /// `authSource`.
    pub(super) source: String,
    /// The mechanism, if the connection string names one.
    pub(super) mechanism: Option<String>,
}

/// The records of a deployment in DNS.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Lookups {
    /// The deployment.
    pub(super) hostname: String,
    /// The name whose SRV records are asked for.
    pub(super) question: String,
    /// The answers of each name server, asked directly.
    pub(super) name_servers: Vec<NameServerSeen>,
    /// The answer of all of them, asked in turn, as applications do.
    pub(super) system: Option<Asked>,
    /// True if the system's resolver answers questions for addresses.
    pub(super) addresses_resolve: Option<bool>,
    /// The hosts that were found.
    pub(super) seeds: Vec<ServerAddress>,
    /// The reason why the records cannot be used.
    pub(super) refused: Option<Verdict>,
}

/// The answers of one name server.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NameServerSeen {
    /// The name server.
    pub(super) address: SocketAddr,
    /// True if applications ask it; false if only the command line names it.
    pub(super) is_configured: bool,
    /// The hosts.
    pub(super) srv: Asked,
    /// The default options.
    pub(super) txt: Asked,
}

/// The outcome of a question.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Asked {
    /// The time that it took.
    #[serde(rename = "tookMS", serialize_with = "millis")]
    pub(super) took: Duration,
    /// The result.
    #[serde(flatten)]
    pub(super) said: Said,
}

/// The result of a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "camelCase")]
pub(super) enum Said {
    /// Records.
    Answered {
        /// As text.
        records: Vec<String>,
    },
    /// There are none.
    Absent {
        /// In words.
        detail: String,
    },
    /// Nothing came in time.
    Silent,
    /// Another error.
    Failed {
        /// In words.
        detail: String,
    },
}

/// A server, and what came of each step towards it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServerSeen {
    /// The address by which it is known.
    pub(super) address: ServerAddress,
    /// The address that is dialled instead, if there is one.
    pub(super) dialled: Option<ServerAddress>,
    /// True if the connection string or DNS names it.
    pub(super) is_seed: bool,
    /// The servers that name it as a member.
    pub(super) named_by: Vec<ServerAddress>,
    /// The lookup of its name, if it has one.
    pub(super) resolved: Option<Resolved>,
    /// The connections to each of its addresses, without a proxy.
    pub(super) routes: Vec<Route>,
    /// The loopback address of the other family at the same port, if the one that is asked for
    /// refuses connections and that one takes them.
    pub(super) other_loopback: Option<SocketAddr>,
    /// The way that the options ask for, up to the reply to hello.
    pub(super) way: Way,
    /// The other way, with TLS instead of without or the reverse, if the first one failed so that
    /// it matters.
    pub(super) other_way: Option<Way>,
    /// The protocol in which it answers a line of text, if that is another one than MongoDB's.
    pub(super) protocol: Option<String>,
    /// The outcomes of further connections while the first one was open.
    pub(super) more: Vec<Way>,
    /// The certificate, if the server has one.
    pub(super) certificate: Option<Certificate>,
    /// Its type, as a client had it at the end.
    pub(super) server_type: Option<ServerType>,
    /// The reason why a client did not reach it at the end, if it answered at first.
    pub(super) lost: Option<Failure>,
    /// The login, as applications do it.
    pub(super) login: Option<Login>,
    /// True if time was over before the login had ended, or a command after it.
    pub(super) is_login_cut: bool,
}

/// The lookup of a host's addresses.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resolved {
    /// The addresses; none if it failed.
    pub(super) addresses: Vec<SocketAddr>,
    /// The time that it took.
    #[serde(rename = "tookMS", serialize_with = "millis")]
    pub(super) took: Duration,
    /// True if nothing had come when the time was over.
    pub(super) is_silent: bool,
}

/// A connection to one address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Route {
    /// The address.
    pub(super) address: SocketAddr,
    /// The reason why it was not accepted; `None` if it was.
    pub(super) failure: Option<Failure>,
    /// The time that it took.
    #[serde(rename = "tookMS", serialize_with = "millis")]
    pub(super) took: Duration,
}

/// A connection up to the reply to hello.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Way {
    /// True if TLS was spoken.
    pub(super) tls: bool,
    /// The reply.
    pub(super) greeting: Option<Greeting>,
    /// The reason why there is none.
    pub(super) failure: Option<Failure>,
    /// True if a stream was open, even if nothing came over it.
    pub(super) accepted: bool,
    /// True if it was given up so soon that this says nothing of the server.
    pub(super) is_cut: bool,
    /// The time of looking up its name, or that of the proxy.
    #[serde(rename = "resolvedMS", serialize_with = "optional_millis")]
    pub(super) resolved: Option<Duration>,
    /// The time until the stream was open, filters included.
    #[serde(rename = "openedMS", serialize_with = "optional_millis")]
    pub(super) opened: Option<Duration>,
    /// The time that it took, whatever came of it.
    #[serde(rename = "tookMS", serialize_with = "millis")]
    pub(super) took: Duration,
    /// The time from hello to its reply.
    #[serde(rename = "helloMS", serialize_with = "optional_millis")]
    pub(super) hello: Option<Duration>,
}

/// The reply to hello, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Greeting {
    /// The role.
    pub(super) role: Role,
    /// The name of the replica set.
    pub(super) set_name: Option<String>,
    /// The version of the set's configuration.
    pub(super) set_version: Option<i64>,
    /// The election that made it primary, in hexadecimal digits.
    pub(super) election: Option<String>,
    /// The address by which its set knows it.
    pub(super) me: Option<ServerAddress>,
    /// The primary, in its opinion.
    pub(super) primary: Option<ServerAddress>,
    /// The members, in its opinion: hosts, passives and arbiters.
    pub(super) members: Vec<ServerAddress>,
    /// The milliseconds by which its clock is ahead of the one here; negative if it is behind.
    pub(super) ahead_millis: Option<i64>,
    /// The newest version of the protocol that it speaks.
    pub(super) max_wire_version: Option<i32>,
}

/// The role of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Role {
    /// No member of a set.
    #[default]
    Standalone,
    /// A router.
    Mongos,
    /// A primary.
    Primary,
    /// A secondary.
    Secondary,
    /// An arbiter.
    Arbiter,
    /// A member that is hidden, starting or recovering.
    Other,
    /// A server that could be a member of a set, and is of none.
    Ghost,
}

impl Role {
    /// Returns whether it belongs to a replica set.
    pub(super) const fn is_member(self) -> bool {
        matches!(self, Self::Primary | Self::Secondary | Self::Arbiter | Self::Other)
    }

    /// Returns the word for it.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Standalone => "a standalone",
            Self::Mongos => "a mongos",
            Self::Primary => "a primary",
            Self::Secondary => "a secondary",
            Self::Arbiter => "an arbiter",
            Self::Other => "a member that is hidden, starting or recovering",
            Self::Ghost => "a member of no set yet",
        }
    }
}

/// A certificate, and how TLS came about.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Certificate {
    /// The owner.
    pub(super) subject: String,
    /// The authority that has issued it.
    pub(super) issuer: String,
    /// The names that it is for.
    pub(super) names: Vec<String>,
    /// The days that are left, rounded down; negative if it has expired.
    pub(super) days_left: i64,
    /// The days from its beginning to its end.
    pub(super) days_in_all: i64,
    /// The number of certificates that the server sent.
    pub(super) chain_length: usize,
    /// The version of TLS.
    pub(super) version: Option<String>,
    /// True if the server sent a response of that responder with it.
    pub(super) is_stapled: bool,
    /// The responder that says whether it was revoked, if it names one and drivers ask it.
    pub(super) responder: Option<Responder>,
}

/// A responder of OCSP.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Responder {
    /// The URL.
    pub(super) url: String,
    /// The reason why it cannot be reached, `None` if it can.
    pub(super) failure: Option<String>,
    /// True if nothing came from it, so that a client has to wait.
    pub(super) is_silent: bool,
    /// True if it was asked about the certificate, and had the time to answer.
    #[serde(skip)]
    pub(super) is_asked: bool,
    /// The status of the certificate, if it has said it.
    pub(super) status: Option<String>,
    /// The time that asking it took, or connecting to it where it was not asked.
    #[serde(rename = "tookMS", serialize_with = "millis")]
    pub(super) took: Duration,
}

/// A connection of the pool, and what was asked over it.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Login {
    /// The reason why there is none.
    pub(super) error: Option<LoginError>,
    /// The time that establishing took, the stages of the network only.
    #[serde(rename = "establishedMS", serialize_with = "optional_millis")]
    pub(super) established: Option<Duration>,
    /// The errors of commands, and those that were not answered.
    pub(super) refusals: Vec<Refusal>,
    /// The members as this one sees them: `replSetGetStatus`.
    pub(super) members: Vec<MemberSeen>,
    /// The connections that it has and could have: `serverStatus`.
    pub(super) connections: Option<Connections>,
    /// The clients that monitor it: `$currentOp`.
    pub(super) clients: Vec<ClientGroup>,
    /// The commands that the user may not run, by which more would be known.
    pub(super) not_permitted: Vec<&'static str>,
    /// The errors of others by which more would be known, and which the server does know.
    pub(super) failed: Vec<Refusal>,
    /// The time since it was elected primary, if there was another one before.
    #[serde(rename = "electedMS", serialize_with = "optional_millis")]
    pub(super) elected: Option<Duration>,
    /// Its transactions, if it has any.
    pub(super) transactions: Transactions,
    /// Its oplog, if it is a member of a set.
    pub(super) oplog: Option<Oplog>,
    /// The number of writes that were tried, none of which matches anything.
    pub(super) writes: u32,
    /// The number of those that were refused for want of a primary, by a server that said right
    /// after that that it still is one.
    pub(super) contradictions: u32,
    /// The time that they took.
    #[serde(rename = "writesMS", serialize_with = "millis")]
    pub(super) writes_took: Duration,
}

/// The reason why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LoginError {
    /// The kind, as the library names it.
    pub(super) kind: String,
    /// True if it was the connection that failed.
    pub(super) is_of_network: bool,
    /// The likely cause, if the library knows one.
    pub(super) verdict: Option<Verdict>,
    /// The words of the server or the library.
    pub(super) text: String,
}

/// A command that was answered with an error, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Refusal {
    /// The command.
    pub(super) command: String,
    /// The number of the error, 0 if the server gave none.
    pub(super) code: i32,
    /// The name of the error.
    pub(super) name: String,
    /// The labels that the server gave it.
    pub(super) labels: Vec<String>,
    /// True if it is about the state of a member of a set, which changes.
    pub(super) is_about_state: bool,
    /// True if it was the connection that failed.
    pub(super) is_of_network: bool,
    /// The likely cause, if the library knows one.
    pub(super) verdict: Option<Verdict>,
    /// The text.
    pub(super) text: String,
}

/// The code of an error by which a server refuses what a user may not do.
const UNAUTHORIZED: i32 = 13;

/// The codes of errors by which a server does not know a command, does not support it, or does not
/// know a stage of an aggregation.
const UNKNOWN: [i32; 3] = [59, 115, 40324];

/// The code of all errors of Atlas's own proxy, by which shared tiers refuse the same.
const ATLAS: i32 = 8000;

impl Refusal {
    /// Returns whether the user may not do that.
    pub(super) fn is_unauthorised(&self) -> bool {
        match self.code {
            UNAUTHORIZED => true,
            ATLAS => self.text.contains("not allowed to do action"),
            _ => false,
        }
    }

    /// Returns whether the server does not know the command, or a stage of it.
    pub(super) fn is_unknown(&self) -> bool {
        UNKNOWN.contains(&self.code)
    }
}

/// A member, as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MemberSeen {
    /// The address.
    pub(super) address: String,
    /// The state.
    pub(super) state: String,
    /// True if it answers.
    pub(super) is_up: bool,
    /// The error of its last heartbeat, if that failed.
    pub(super) message: Option<String>,
}

/// The connections of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Connections {
    /// Those that are open.
    pub(super) current: i64,
    /// Those that it would take besides.
    pub(super) available: i64,
}

/// Clients that say the same of themselves, and come from the same host and process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClientGroup {
    /// The host.
    pub(super) host: String,
    /// The name that they give themselves.
    pub(super) name: String,
    /// The process, if it is one of this machine.
    pub(super) process: Option<i32>,
    /// Their number: each has one monitoring connection that awaits changes.
    pub(super) monitors: u64,
}

/// The deployment as a client sees it that watches.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClientSeen {
    /// The reason why there is none.
    pub(super) error: Option<String>,
    /// True if each server has answered or failed.
    pub(super) is_settled: bool,
    /// The type of the topology.
    pub(super) topology: String,
    /// True if a write finds a server.
    pub(super) is_writable: bool,
    /// The likely cause for which it finds none, as the library has it.
    pub(super) why_not: Option<Verdict>,
    /// The likely cause for which a read finds none, with the read preference that is asked for.
    pub(super) why_not_read: Option<Verdict>,
    /// Servers that claimed to be primary after another one was elected.
    pub(super) stale: Vec<Stale>,
    /// The longest time without a primary in between.
    #[serde(rename = "withoutPrimaryMS", serialize_with = "millis")]
    pub(super) without_primary: Duration,
    /// The findings of the client itself.
    pub(super) diagnosed: Vec<Diagnosed>,
    /// The number of checks of servers that succeeded.
    pub(super) checks: u64,
    /// The time that was watched.
    #[serde(rename = "watchedMS", serialize_with = "millis")]
    pub(super) watched: Duration,
}

/// A finding of the client itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Diagnosed {
    /// The likely cause of what goes wrong.
    #[serde(flatten)]
    pub(super) verdict: Verdict,
    /// True if it was refuted later.
    pub(super) is_over: bool,
}

/// A server that claimed to be primary after another one was elected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stale {
    /// The server.
    pub(super) address: ServerAddress,
    /// The words of the library.
    pub(super) detail: String,
}

/// A time that this process did not run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pause {
    /// Its begin by the wall clock.
    pub(super) from: String,
    /// Its end by the wall clock.
    pub(super) to: String,
    /// Its length.
    #[serde(rename = "lengthMS", serialize_with = "millis")]
    pub(super) length: Duration,
    /// Its end, since the beginning.
    #[serde(rename = "endedMS", serialize_with = "millis")]
    pub(super) ended: Duration,
}

impl Evidence {
    /// Returns whether a write finds a server, even if a login there has just failed.
    pub(super) fn is_writable(&self) -> bool {
        let takes_writes = |server: &ServerSeen| {
            let role = server.greeting().map(|greeting| greeting.role);
            let is_of_topology = server.server_type.is_some();
            let is_lost = server.lost.as_ref().is_some_and(Failure::is_network_error);
            is_of_topology
                && !is_lost
                && matches!(role, Some(Role::Primary | Role::Mongos | Role::Standalone))
        };
        self.client.is_writable || self.servers.iter().any(takes_writes)
    }
}

impl ClientSeen {
    /// Notes a finding of the client, once for each server that it may be about.
    pub(super) fn find(&mut self, verdict: Verdict) {
        let is_same = |it: &&mut Diagnosed| {
            let (known, new) = (cut(&it.verdict), cut(&verdict));
            it.verdict.name() == verdict.name() && known.map(|it| it.0) == new.map(|it| it.0)
        };
        match self.diagnosed.iter_mut().find(is_same) {
            // What was over has begun again.
            Some(known) if known.is_over => *known = Diagnosed { verdict, is_over: false },
            Some(_) => {}
            None => self.diagnosed.push(Diagnosed { verdict, is_over: false }),
        }
    }

    /// News has come from a server over a connection that had waited for so long: nothing cuts such
    /// connections any more.
    pub(super) fn has_waited(&mut self, server: &ServerAddress, lasted: Duration) {
        for known in &mut self.diagnosed {
            let outlasts = |(cut, after): (&ServerAddress, Duration)| {
                cut == server && lasted > after + TOLERANCE
            };
            known.is_over |= cut(&known.verdict).is_some_and(outlasts);
        }
    }
}

/// The difference between two times that count as the same.
const TOLERANCE: Duration = Duration::from_millis(250);

/// Returns the server, and after how long at most, if connections to it are cut while they wait.
pub(super) const fn cut(verdict: &Verdict) -> Option<(&ServerAddress, Duration)> {
    match verdict {
        Verdict::IdleConnectionsCut { server, after, .. }
        | Verdict::StreamingRefused { server, after, .. } => Some((server, *after)),
        _ => None,
    }
}

impl Lookups {
    /// Returns how long it took until the name servers, asked in turn, knew the records; `None` if
    /// they did not.
    pub(super) fn in_turn(&self) -> Option<Duration> {
        let answered = |it: &&Asked| matches!(it.said, Said::Answered { .. });
        self.system.as_ref().filter(answered).map(|it| it.took)
    }

    /// Returns whether time was over before a name server could be called silent.
    pub(super) fn is_cut(&self) -> bool {
        let is_known = self.in_turn().is_some();
        !is_known && self.name_servers.iter().any(|it| it.is_configured && it.srv.is_cut())
    }
}

impl Asked {
    /// Returns whether the question was given up so soon that this says nothing.
    pub(super) fn is_cut(&self) -> bool {
        self.said == Said::Silent && !is_conclusive(Stage::Connect, self.took)
    }
}

/// The time after which silence says something of a server.
const ENOUGH: Duration = Duration::from_secs(2);

/// The time after which silence says something of the system's resolver: it has asked the second
/// name server by then.
const ENOUGH_TO_RESOLVE: Duration = Duration::from_millis(5500);

/// Returns whether silence says something that was heard for so long, at this stage, or only that
/// there was too little time.
pub(super) fn is_conclusive(stage: Stage, heard: Duration) -> bool {
    match stage {
        Stage::Resolve => heard >= ENOUGH_TO_RESOLVE,
        _ => heard >= ENOUGH,
    }
}

impl ServerSeen {
    /// Describes a server of which nothing is known yet.
    pub(super) fn new(address: ServerAddress, is_seed: bool) -> Self {
        let way = Way::new(false);
        Self {
            address,
            dialled: None,
            is_seed,
            named_by: Vec::new(),
            resolved: None,
            routes: Vec::new(),
            other_loopback: None,
            way,
            other_way: None,
            protocol: None,
            more: Vec::new(),
            certificate: None,
            server_type: None,
            lost: None,
            login: None,
            is_login_cut: false,
        }
    }

    /// Returns whether time was over before enough was known of it.
    pub(super) fn is_cut(&self) -> bool {
        self.is_way_cut() || self.is_login_cut
    }

    /// Returns whether time was over before it was known why it does not answer; one that has not
    /// answered in time is silent, whatever the other way would have been.
    pub(super) fn is_way_cut(&self) -> bool {
        let is_silent = self.way.failure.as_ref().is_some_and(|it| it.cause == Cause::Timeout);
        self.way.is_cut || (!is_silent && self.other_way.as_ref().is_some_and(|way| way.is_cut))
    }

    /// Returns the reply to hello by the way that the options ask for.
    pub(super) const fn greeting(&self) -> Option<&Greeting> {
        self.way.greeting.as_ref()
    }
}

impl Way {
    /// Notes that the peer, which was silent, answers in that protocol when it is asked in it.
    pub(super) fn answer_in(&mut self, protocol: Option<&str>) {
        if let (Some(protocol), Some(failure)) = (protocol, &mut self.failure) {
            let detail = format!("it answers in {protocol}, and nothing else");
            let cause = Cause::OtherProtocol { protocol: protocol.into() };
            *failure = Failure::new(failure.stage, cause, detail);
        }
    }

    /// Describes a way that nothing has come of yet.
    pub(super) const fn new(tls: bool) -> Self {
        Self {
            tls,
            greeting: None,
            failure: None,
            accepted: false,
            is_cut: false,
            resolved: None,
            opened: None,
            took: Duration::ZERO,
            hello: None,
        }
    }
}
