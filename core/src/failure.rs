//! The reason why a stream or a check failed: plain data that can be compared, printed and stored.

use std::fmt;
use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::text::beginning;

/// The end of a detail that was too long.
const CUT: &str = " …";

/// The maximum length of the [`detail`](Failure::detail) of a failure, in bytes. It may quote what
/// a server sent, and is kept with the server and in events.
pub const MAX_DETAIL_LEN: usize = 2048;

/// The reason why a server could not be reached, or why it is not what it says.
///
/// Two failures of the same cause compare equal, so that a server which stays down is not news at
/// every heartbeat; `detail` therefore never holds times or counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Failure {
    /// The stage that the attempt had reached.
    pub stage: Stage,
    /// The cause.
    #[serde(flatten)]
    pub cause: Cause,
    /// One clause for a person, which names the particulars.
    pub detail: Arc<str>,
}

/// The stage that an attempt to reach a server had come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Stage {
    /// The certificates that TLS needs were being read, of the client and of those it trusts, or a
    /// provider was asked for the client's.
    Certificates,
    /// The host name was being resolved.
    Resolve,
    /// The byte stream was being opened.
    Connect,
    /// The proxy was being reached, or was opening the byte stream.
    Proxy,
    /// TLS was being negotiated, or broke later.
    Tls,
    /// Responders of OCSP were being asked whether the server's certificate was revoked.
    Revocation,
    /// The stream was open, and hello was being exchanged.
    Hello,
    /// Others than the server were being asked for what the login needs: a ticket of Kerberos,
    /// temporary credentials, or a token.
    Credentials,
    /// The connection was being authenticated.
    Authenticate,
    /// The connection was established, and in use by the application.
    Operate,
}

impl Stage {
    /// Returns the name, as in JSON: a label for metrics, which stays as it is.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Certificates => "certificates",
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Proxy => "proxy",
            Self::Tls => "tls",
            Self::Revocation => "revocation",
            Self::Hello => "hello",
            Self::Credentials => "credentials",
            Self::Authenticate => "authenticate",
            Self::Operate => "operate",
        }
    }

    /// Returns the stage in a word, for messages.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Certificates => "reading certificates",
            Self::Resolve => "resolving",
            Self::Connect => "connecting",
            Self::Proxy => "proxy",
            Self::Tls => "TLS",
            Self::Revocation => "revocation",
            Self::Hello => "hello",
            Self::Credentials => "credentials",
            Self::Authenticate => "authentication",
            Self::Operate => "operating",
        }
    }

    /// Returns the clause that says what had not happened in it when time was up.
    pub(crate) const fn unfinished(self) -> &'static str {
        match self {
            Self::Certificates => "the certificates that TLS needs could not be read",
            Self::Resolve => "the name was not resolved",
            Self::Connect => "no connection",
            Self::Proxy => "the proxy opened no connection",
            Self::Tls => "no answer to the TLS handshake",
            Self::Revocation => "no responder said whether the certificate was revoked",
            Self::Hello => "no reply to hello",
            Self::Credentials => "the credentials of the login could not be had",
            Self::Authenticate => "no reply to the login",
            Self::Operate => "no reply",
        }
    }

    /// Returns whether the client waits in it for others than the server and what is on the way to
    /// it, so that what fails there says nothing of either.
    pub const fn is_elsewhere(self) -> bool {
        matches!(self, Self::Certificates | Self::Revocation | Self::Credentials)
    }
}

/// The cause of a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Cause {
    /// The host name has no address.
    NotResolved,
    /// The host name could not be looked up, as the resolver gives no answer; it may have an
    /// address.
    LookupFailed,
    /// The peer refused the connection.
    Refused,
    /// This machine, or a router, knows no route to the peer.
    Unreachable,
    /// Nothing came within the time allowed.
    Timeout,
    /// The peer closed the stream.
    Closed,
    /// Another error of reading or writing.
    Io,
    /// The peer sent what is no valid message or reply.
    Malformed,
    /// The peer answers in another protocol than MongoDB's.
    OtherProtocol {
        /// The protocol, such as HTTP, or TLS where none was expected.
        protocol: Arc<str>,
    },
    /// The peer answered the command with an error.
    Command {
        /// The error's number, or 0 if the peer gave none.
        code: i32,
        /// The error's name, or empty if the peer gave none.
        name: Arc<str>,
    },
    /// The peer does not prove who it is, or demands what the client must not do, while the
    /// connection is authenticated.
    Authentication,
    /// The connection cannot be authenticated by GSSAPI, for lack of a ticket for example.
    GssapiFailed {
        /// The kind of the problem.
        problem: GssapiProblem,
    },
    /// The check was abandoned, because the server was removed, the client closed, or another
    /// connection to the server failed.
    Canceled,
    /// The connection was in use when its server's monitor found that the server does not answer.
    Interrupted,
    /// The server claims to be primary, but (electionId, setVersion) says that it was succeeded.
    StalePrimary,
    /// Another server was found to be the primary.
    NewerPrimary,
    /// The server's replica set is not the one that was asked for.
    WrongSetName,
    /// The proxy answered, and opens no stream to the server.
    ProxyRefused {
        /// Its reason.
        refusal: ProxyRefusal,
    },
    /// The configuration of connections cannot be used, such as a file of certificates.
    Configuration,
    /// The peer does not answer in TLS.
    NotTls,
    /// The peer refused the TLS handshake, or has no version or method in common with the client.
    TlsRefused {
        /// The alert by which the peer has ended it, if it has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        alert: Option<u8>,
    },
    /// The server's certificate has expired, or is not valid yet.
    CertificateExpired,
    /// No authority that the client trusts has issued the server's certificate.
    UnknownIssuer,
    /// The server's certificate is for other names; the detail lists them.
    CertificateName,
    /// The server's certificate, or that of an issuer, is of a kind that is not supported.
    CertificateUnsupported {
        /// The kind.
        unsupported: UnsupportedCertificate,
    },
    /// The server's certificate, or that of an issuer, was revoked.
    CertificateRevoked,
    /// The server has sent no staple of OCSP though its certificate demands one, or one that is not
    /// valid.
    InvalidStaple,
    /// The server's certificate is refused for another reason.
    CertificateInvalid,
}

impl Cause {
    /// Returns the name, as in JSON: a label for metrics, which stays as it is.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotResolved => "notResolved",
            Self::LookupFailed => "lookupFailed",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Io => "io",
            Self::Malformed => "malformed",
            Self::OtherProtocol { .. } => "otherProtocol",
            Self::Command { .. } => "command",
            Self::Authentication => "authentication",
            Self::GssapiFailed { .. } => "gssapiFailed",
            Self::Canceled => "canceled",
            Self::Interrupted => "interrupted",
            Self::StalePrimary => "stalePrimary",
            Self::NewerPrimary => "newerPrimary",
            Self::WrongSetName => "wrongSetName",
            Self::ProxyRefused { .. } => "proxyRefused",
            Self::Configuration => "configuration",
            Self::NotTls => "notTls",
            Self::TlsRefused { .. } => "tlsRefused",
            Self::CertificateExpired => "certificateExpired",
            Self::UnknownIssuer => "unknownIssuer",
            Self::CertificateName => "certificateName",
            Self::CertificateUnsupported { .. } => "certificateUnsupported",
            Self::CertificateRevoked => "certificateRevoked",
            Self::InvalidStaple => "invalidStaple",
            Self::CertificateInvalid => "certificateInvalid",
        }
    }
}

/// The reason why a certificate cannot be used, whatever it proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum UnsupportedCertificate {
    /// It is not of version 3.
    Version,
    /// It has a critical extension that is unknown here.
    CriticalExtension,
    /// Its key is one of RSA that is too short or too long.
    RsaLength,
    /// Its key is of a kind that is unknown here.
    PublicKey,
    /// It is signed with an algorithm that is unknown here, or that is too weak.
    Signature,
    /// It is that of an authority.
    Authority,
    /// It is not for servers.
    Purpose,
    /// An issuer was not allowed to issue it.
    Issuer,
    /// The way from it to a trusted authority is too long, or among too many certificates.
    Chain,
    /// It has too many names for the name constraints of its issuers.
    Names,
    /// It is not encoded as it must be.
    Encoding,
}

impl UnsupportedCertificate {
    /// Returns the name, as in JSON: a label for metrics, which stays as it is.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::CriticalExtension => "criticalExtension",
            Self::RsaLength => "rsaLength",
            Self::PublicKey => "publicKey",
            Self::Signature => "signature",
            Self::Authority => "authority",
            Self::Purpose => "purpose",
            Self::Issuer => "issuer",
            Self::Chain => "chain",
            Self::Names => "names",
            Self::Encoding => "encoding",
        }
    }

    /// Returns what is wrong, as a clause.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Version => "it is of an older version of X.509 than version 3",
            Self::CriticalExtension => "it has a critical extension that is unknown here",
            Self::RsaLength => "keys of RSA must have from 2048 to 8192 bits",
            Self::PublicKey => {
                "its key is of a kind that is unknown here; known are RSA, ECDSA over P-256 and \
                 P-384, and Ed25519"
            }
            Self::Signature => {
                "it is signed with an algorithm that is not supported, as SHA-1 is not"
            }
            Self::Authority => {
                "it is that of an authority (CA:TRUE), which is not taken for that of a server"
            }
            Self::Purpose => "it is not for servers: its extended key usage lacks serverAuth",
            Self::Issuer => "an authority on the way to it was not allowed to issue it",
            Self::Chain => {
                "the way from it to a trusted authority is longer, or among more certificates, \
                 than is tried"
            }
            Self::Names => {
                "it has more names than are compared with the name constraints of its issuers"
            }
            Self::Encoding => "it is not encoded as X.509 demands",
        }
    }

    /// Returns what to do, as the part of a sentence that begins with a verb.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Version => {
                "issue it as version 3, with its names as subjectAltName (openssl x509 -req \
                 -extfile)"
            }
            Self::CriticalExtension => {
                "issue it without that extension, or without marking that critical"
            }
            Self::RsaLength => "issue it for a key of 2048 bits or more, or for one of ECDSA",
            Self::PublicKey => "issue it for a key of one of those kinds",
            Self::Signature => "have it signed with SHA-256, SHA-384 or SHA-512",
            Self::Authority => {
                "issue a certificate for the server (CA:FALSE), and leave that of the authority in \
                 tlsCAFile"
            }
            Self::Purpose => "issue it with the extended key usage serverAuth",
            Self::Issuer => {
                "check the basic and name constraints of the authorities between it and tlsCAFile"
            }
            Self::Chain => {
                "let the server send its certificate and those of its issuers only, each once and \
                 six issuers at most"
            }
            Self::Names => {
                "issue certificates with fewer names, or an authority with fewer name constraints"
            }
            Self::Encoding => "issue it by other means",
        }
    }
}

/// The kind of problem for which there is no security context of GSSAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum GssapiProblem {
    /// There is no ticket of the user.
    NoTicket,
    /// The ticket of the user has expired.
    TicketExpired,
    /// The password is not that of the user.
    PasswordRefused,
    /// The password of the user has expired.
    PasswordExpired,
    /// The realm does not know the user.
    UnknownUser,
    /// The realm lets the user obtain no tickets, at present or any more.
    UserLocked,
    /// The realm does not know the service.
    UnknownService,
    /// No server of Kerberos of the realm is known, or none answers.
    RealmUnreachable,
    /// The clocks of this machine and of the server of Kerberos differ by too much.
    ClocksDiffer,
    /// The server does not prove that it is the service, or a message of it is not valid.
    ServerUnproven,
    /// Another problem.
    Other,
}

impl GssapiProblem {
    /// Returns the name, as in JSON: a label for metrics, which stays as it is.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoTicket => "noTicket",
            Self::TicketExpired => "ticketExpired",
            Self::PasswordRefused => "passwordRefused",
            Self::PasswordExpired => "passwordExpired",
            Self::UnknownUser => "unknownUser",
            Self::UserLocked => "userLocked",
            Self::UnknownService => "unknownService",
            Self::RealmUnreachable => "realmUnreachable",
            Self::ClocksDiffer => "clocksDiffer",
            Self::ServerUnproven => "serverUnproven",
            Self::Other => "other",
        }
    }

    /// Returns what to do, as the part of a sentence that begins with a verb.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::NoTicket => {
                "obtain a ticket of that user (kinit), or let KRB5CCNAME name the cache that has it"
            }
            Self::TicketExpired => "obtain a new ticket (kinit), or renew it (kinit -R)",
            Self::PasswordRefused => "check the password",
            Self::PasswordExpired => "set a new password of that user (kpasswd)",
            Self::UserLocked => "have an administrator of the realm unlock that user, or renew it",
            Self::UnknownUser => {
                "check the user name, which has its realm in it (user%40REALM in a connection \
                 string)"
            }
            Self::UnknownService => {
                "add the principal of the service to the realm, or correct SERVICE_NAME, \
                 SERVICE_HOST, SERVICE_REALM or CANONICALIZE_HOST_NAME of authMechanismProperties"
            }
            Self::RealmUnreachable => {
                "check the realm in the user name and in SERVICE_REALM, and whether krb5.conf or \
                 DNS names a server of that realm which this machine can reach"
            }
            Self::ClocksDiffer => "synchronise the clocks of both (NTP)",
            Self::ServerUnproven => {
                "check that the keytab of the server has the present key of the service"
            }
            Self::Other => {
                "check krb5.conf; the variable KRB5_TRACE=/dev/stderr shows what the library does"
            }
        }
    }
}

/// The reason why a SOCKS5 proxy opens no stream (RFC 1928, section 6, and RFC 1929).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum ProxyRefusal {
    /// It accepts none of the ways to authenticate that were offered.
    NoAcceptableMethod,
    /// It does not accept the user name and password.
    Credentials,
    /// It gives no reason (1).
    GeneralFailure,
    /// Its rules forbid the connection (2).
    NotAllowed,
    /// It has no way to the server's network (3).
    NetworkUnreachable,
    /// It has no way to the server, or cannot resolve its name (4).
    HostUnreachable,
    /// The server refused the proxy's connection (5).
    ConnectionRefused,
    /// The way to the server is too long (6).
    TtlExpired,
    /// It opens no streams (7).
    CommandNotSupported,
    /// It knows no addresses of this kind (8).
    AddressTypeNotSupported,
    /// It gives a reason that RFC 1928 does not know.
    Unassigned(u8),
}

impl ProxyRefusal {
    /// Returns the name, as in JSON and without the code of an unassigned one: a label for metrics,
    /// which stays as it is.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoAcceptableMethod => "noAcceptableMethod",
            Self::Credentials => "credentials",
            Self::GeneralFailure => "generalFailure",
            Self::NotAllowed => "notAllowed",
            Self::NetworkUnreachable => "networkUnreachable",
            Self::HostUnreachable => "hostUnreachable",
            Self::ConnectionRefused => "connectionRefused",
            Self::TtlExpired => "ttlExpired",
            Self::CommandNotSupported => "commandNotSupported",
            Self::AddressTypeNotSupported => "addressTypeNotSupported",
            Self::Unassigned(_) => "unassigned",
        }
    }
}

impl fmt::Display for ProxyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAcceptableMethod => "no acceptable authentication method",
            Self::Credentials => "user name or password not accepted",
            Self::GeneralFailure => "general failure",
            Self::NotAllowed => "connection not allowed by the rules",
            Self::NetworkUnreachable => "network unreachable",
            Self::HostUnreachable => "host unreachable",
            Self::ConnectionRefused => "connection refused",
            Self::TtlExpired => "time to live expired",
            Self::CommandNotSupported => "command not supported",
            Self::AddressTypeNotSupported => "address type not supported",
            Self::Unassigned(code) => return write!(f, "unassigned reply code {code}"),
        })
    }
}

impl Failure {
    /// Describes a failure in words of the caller's choice, of which what is longer than
    /// [`MAX_DETAIL_LEN`] is left out.
    pub fn new(stage: Stage, cause: Cause, detail: impl Into<Arc<str>>) -> Self {
        let mut detail = detail.into();
        if detail.len() > MAX_DETAIL_LEN {
            let kept = beginning(&detail, MAX_DETAIL_LEN - CUT.len());
            detail = [kept, CUT].concat().into();
        }
        Self { stage, cause, detail }
    }

    /// Describes a connection that was not established before the time of `option` was up.
    pub fn not_established(stage: Stage, option: &'static str) -> Self {
        let what = match stage.is_elsewhere() {
            true => stage.unfinished(),
            false => "the connection was not established",
        };
        Self::new(stage, Cause::Timeout, format!("{what} within {option}"))
    }

    /// Says that the same went wrong at another stage.
    #[must_use]
    pub fn at(mut self, stage: Stage) -> Self {
        self.stage = stage;
        self
    }

    /// Translates an error of the operating system.
    pub fn from_io(stage: Stage, error: &io::Error) -> Self {
        let cause = match error.kind() {
            io::ErrorKind::ConnectionRefused => Cause::Refused,
            io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown => Cause::Unreachable,
            io::ErrorKind::TimedOut => Cause::Timeout,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Cause::Closed,
            _ => Cause::Io,
        };
        let detail = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the server closed the connection".into(),
            _ => error.to_string(),
        };
        Self::new(stage, cause, detail)
    }

    /// Returns whether the server may have shed load by this: a network error or time-out while
    /// connecting, in the TLS handshake or during hello ("Backpressure labels").
    ///
    /// What the resolver or a proxy says is none, nor is a certificate that is not as it should be.
    pub const fn may_be_overload(&self) -> bool {
        match self.stage {
            Stage::Connect | Stage::Hello => self.is_network_error(),
            Stage::Tls => matches!(self.cause, Cause::Timeout | Cause::Closed | Cause::Io),
            Stage::Certificates
            | Stage::Resolve
            | Stage::Proxy
            | Stage::Revocation
            | Stage::Credentials
            | Stage::Authenticate
            | Stage::Operate => false,
        }
    }

    /// Returns whether this is a network error or a network time-out, in the words of the Server
    /// Monitoring specification; a refusal by a proxy is one (SOCKS5 Support, "Connection
    /// Establishment"). What the client asks of others than the server is none.
    pub const fn is_network_error(&self) -> bool {
        if self.stage.is_elsewhere() {
            return false;
        }
        match self.cause {
            Cause::NotResolved
            | Cause::LookupFailed
            | Cause::Refused
            | Cause::Unreachable
            | Cause::Timeout
            | Cause::Closed
            | Cause::Io
            | Cause::ProxyRefused { .. } => true,
            Cause::Malformed => matches!(self.stage, Stage::Proxy),
            Cause::Configuration
            | Cause::NotTls
            | Cause::OtherProtocol { .. }
            | Cause::TlsRefused { .. }
            | Cause::CertificateExpired
            | Cause::UnknownIssuer
            | Cause::CertificateName
            | Cause::CertificateUnsupported { .. }
            | Cause::CertificateRevoked
            | Cause::InvalidStaple
            | Cause::CertificateInvalid
            | Cause::Command { .. }
            | Cause::Authentication
            | Cause::GssapiFailed { .. }
            | Cause::Canceled
            | Cause::Interrupted
            | Cause::StalePrimary
            | Cause::NewerPrimary
            | Cause::WrongSetName => false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Command { code, name } if !name.is_empty() => {
                write!(f, "{} ({name}, code {code})", self.detail)
            }
            Cause::Command { code, .. } if *code != 0 => write!(f, "{} (code {code})", self.detail),
            _ => f.write_str(&self.detail),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::{Cause, Failure, ProxyRefusal, Stage, UnsupportedCertificate};

    /// All the others follow, as the tidy test sees to it.
    #[test]
    fn labels_are_the_names_in_json() {
        let refusal = ProxyRefusal::TtlExpired;
        let failure = Failure::new(Stage::Tls, Cause::ProxyRefused { refusal }, "");
        let json = serde_json::to_value(&failure).unwrap();
        assert_eq!(json["stage"], failure.stage.name());
        assert_eq!(json["cause"], failure.cause.name());
        assert_eq!(json["refusal"], refusal.name());
        let unsupported = UnsupportedCertificate::CriticalExtension;
        let cause = Cause::CertificateUnsupported { unsupported };
        let json = serde_json::to_value(&cause).unwrap();
        assert_eq!(json["cause"], cause.name());
        assert_eq!(json["unsupported"], unsupported.name());
    }
}
