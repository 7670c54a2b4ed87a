//! The reason why options are refused.

use std::time::Duration;

use super::MAX_SEEDS;
use crate::config::metadata::MetadataError;
use crate::config::uri::UriError;
use crate::config::{CredentialError, MAX_HOST_LEN, ReadPreferenceError};

/// The reason why options are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The connection string is malformed.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// The client metadata is not allowed.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The user name, password, mechanism and its properties do not go together.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The read preference is not allowed.
    #[error(transparent)]
    ReadPreference(#[from] ReadPreferenceError),
    /// There is no seed.
    #[error("there is no seed; at least one server address is needed")]
    NoSeeds,
    /// There are more than [`MAX_SEEDS`] different seeds.
    #[error("there are {0} seeds; at most {MAX_SEEDS} are allowed")]
    TooManySeeds(usize),
    /// The name of the replica set is empty.
    #[error("replicaSet is empty; it must have at least one character, or be left out")]
    EmptyReplicaSet,
    /// The heartbeat frequency is below [`MIN_HEARTBEAT_FREQUENCY`].
    ///
    /// [`MIN_HEARTBEAT_FREQUENCY`]: super::MIN_HEARTBEAT_FREQUENCY
    #[error("heartbeatFrequencyMS is {} ms; at least 500 ms are needed", .0.as_millis())]
    HeartbeatFrequency(Duration),
    /// A direct connection goes to one server.
    #[error("directConnection=true needs exactly one seed, but there are {0}")]
    DirectConnectionWithSeeds(usize),
    /// A name in DNS may stand for several servers.
    #[error("directConnection=true cannot be combined with mongodb+srv://")]
    DirectConnectionWithSrv,
    /// A load balancer has one address.
    #[error("loadBalanced=true needs exactly one seed, but there are {0}")]
    LoadBalancedWithSeeds(usize),
    /// A load balancer hides the servers behind it.
    #[error("loadBalanced=true cannot be combined with directConnection=true")]
    LoadBalancedWithDirectConnection,
    /// A load balancer is no replica set.
    #[error("loadBalanced=true cannot be combined with replicaSet")]
    LoadBalancedWithReplicaSet,
    /// Two options that exclude each other, whatever their values.
    #[error("{option} and {with} cannot be combined; leave out one of them")]
    Conflict {
        /// The one.
        option: &'static str,
        /// The other.
        with: &'static str,
    },
    /// `tls` and `ssl` are the same, and contradict each other.
    #[error("tls and ssl are the same option, and all their values must be equal")]
    TlsContradiction,
    /// An option that means nothing without another.
    #[error("{option} needs {other}")]
    Needs {
        /// The option.
        option: &'static str,
        /// The one that it needs.
        other: &'static str,
    },
    /// A proxy without a name, or with one that is too long.
    #[error("proxyHost is {0} bytes long; from 1 to {MAX_HOST_LEN} are allowed")]
    ProxyHost(usize),
    /// A proxy at port 0.
    #[error("proxyPort is 0; it must be from 1 to 65535")]
    ProxyPort,
    /// A user name or password that SOCKS5 cannot carry.
    #[error("{option} is {length} bytes long; from 1 to 255 are allowed")]
    ProxyLogin {
        /// The option.
        option: &'static str,
        /// Its length in bytes.
        length: usize,
    },
    /// A time of TCP keepalive that systems do not take.
    #[error("{option} is {time:?}; it must be a whole number of seconds from 1 to 32767")]
    Keepalive {
        /// The name of the option.
        option: &'static str,
        /// Its value.
        time: Duration,
    },
    /// A number of probes that systems do not take.
    #[error("the number of probes of TCP keepalive is {0}; it must be from 1 to 127")]
    KeepaliveProbes(u32),
    /// A `TCP_USER_TIMEOUT` that breaks connections that are well, or that systems do not take.
    #[error("the user timeout of TCP is {0:?}; it must be from 1 s to 2147483 s, or be left out")]
    UserTimeout(Duration),
    /// A pool that would keep more connections than it may have.
    #[error("minPoolSize is {min}; at most maxPoolSize, which is {max}, is allowed")]
    MinPoolSize {
        /// `minPoolSize`.
        min: u32,
        /// `maxPoolSize`.
        max: u32,
    },
    /// A pool that could never connect.
    #[error("maxConnecting is 0; at least 1 is needed")]
    MaxConnecting,
    /// An operation that could never wait.
    #[error("waitQueueTimeoutMS is 0; it must be positive, or be left out")]
    WaitQueueTimeout,
    /// A maximum that no server could keep to.
    #[error("maxScramIterations is {0}; at least 4096 are needed")]
    MaxScramIterations(u32),
    /// A level that zlib does not have.
    #[error("zlibCompressionLevel is {0}; it must be from -1 to 9")]
    ZlibCompressionLevel(i32),
    /// A name that no service has.
    #[error("srvServiceName must be 1 to 62 letters, digits and single hyphens between them")]
    SrvServiceName,
    /// A suffix that says nothing of whose the hosts are.
    #[error("srvAllowedHostsSuffix cannot be used: {problem}")]
    SrvAllowedHostsSuffix {
        /// The problem, and what to write.
        problem: &'static str,
    },
    /// This build cannot judge suffixes.
    #[error(
        "srvAllowedHostsSuffix needs the feature `public-suffixes`, which this library was built \
         without"
    )]
    NoPublicSuffixes,
    /// The hosts in DNS are to be judged, and no function does.
    #[error(
        "these options are of a client whose hosts in DNS a function judges; give this client such \
         a function, too, or build the options once more"
    )]
    NoHostValidator,
    /// Seeds were given, or a TXT record, where nothing is looked up in DNS.
    #[error("there is nothing to look up in DNS; only mongodb+srv:// is resolved")]
    NotSrv,
    /// An option that no TXT record may set.
    #[error("the TXT record sets {option}; it may set authSource, replicaSet and loadBalanced")]
    TxtOption {
        /// The option as written, shortened.
        option: String,
    },
    /// A TXT record that is not a list of options.
    #[error("the TXT record is malformed: {0}")]
    Txt(UriError),
}
