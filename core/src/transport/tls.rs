//! TLS as a byte filter: the only place that names rustls's connection.

use std::borrow::Cow;
use std::io::{BufRead, Write};
use std::sync::Arc;

use rustls::pki_types::{ServerName, UnixTime};
use rustls::{CertificateError, ClientConnection, Error, PeerIncompatible};

#[cfg(feature = "ocsp")]
use super::revocation::{Refusal, Revocation};
use super::{TAKES_ALL, TlsConfig, unsupported};
use crate::config::ServerAddress;
use crate::failure::{Cause, Failure, Stage, UnsupportedCertificate};
#[cfg(feature = "ocsp")]
use crate::revocation::Subject;
use crate::text::beginning;

/// The number of names of a wrong certificate that are listed.
const MAX_LISTED_NAMES: usize = 8;

/// The maximum length of one of them in a text, in bytes.
const MAX_NAME_LEN: usize = 100;

/// The maximum length of rustls's words in a text, in bytes.
const MAX_ERROR_LEN: usize = 300;

/// With one of these every TLS record begins (RFC 8446, section 5.1, and RFC 6520).
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 20..=24;

/// The client's side of one TLS connection.
#[derive(Debug)]
pub(super) struct Tls {
    connection: Box<ClientConnection>,
    /// The name that the server's certificate must be for.
    name: ServerName<'static>,
    #[cfg(feature = "ocsp")]
    revocation: Option<Arc<Revocation>>,
    /// The first byte that the server sent.
    first: Option<u8>,
}

impl Tls {
    /// Prepares the first message, which [`flush`](Self::flush) writes.
    pub(super) fn new(config: &TlsConfig, address: &ServerAddress) -> Result<Self, Failure> {
        let host = match address {
            ServerAddress::Tcp { host, .. } => host,
            ServerAddress::Unix { .. } => "localhost",
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            let detail = format!("no certificate can be for {host:?}: it is no valid host name");
            Failure::new(Stage::Tls, Cause::CertificateName, detail)
        })?;
        let mut connection = ClientConnection::new(Arc::clone(config.client()), name.clone())
            .map_err(|error| Failure::new(Stage::Tls, Cause::Configuration, error.to_string()))?;
        // Its caller limits what is sent, and every call writes all of it.
        connection.set_buffer_limit(None);
        Ok(Self {
            connection: Box::new(connection),
            name,
            #[cfg(feature = "ocsp")]
            revocation: config.revocation().cloned(),
            first: None,
        })
    }

    /// Returns the certificate that is left to be asked about; that of a session that goes on is
    /// the one that it began with.
    #[cfg(feature = "ocsp")]
    pub(super) fn unchecked(&self, now: UnixTime) -> Result<Option<Subject>, Failure> {
        match (&self.revocation, self.connection.peer_certificates()) {
            (Some(revocation), Some(chain)) => revocation.unchecked(chain, &self.name, now),
            _ => Ok(None),
        }
    }

    /// Returns when the server's certificate expires; that of a session that goes on is the one
    /// that it began with.
    #[cfg(feature = "ocsp")]
    pub(super) fn certificate_expiry(&self) -> Option<u64> {
        crate::revocation::expiry(self.connection.peer_certificates()?.first()?)
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.connection.is_handshaking()
    }

    pub(super) fn receive(
        &mut self,
        mut wire: &[u8],
        plain: &mut impl Write,
        reply: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        self.first = self.first.or(wire.first().copied());
        // rustls takes a part at a time, as its buffers are bounded.
        while !wire.is_empty() {
            let outcome = match self.connection.read_tls(&mut wire) {
                // After the end of TLS it takes nothing any more.
                Ok(0) => return Err(ended()),
                Ok(_) => self.connection.process_new_packets(),
                Err(error) => Err(Error::General(error.to_string())),
            };
            self.drain(plain);
            // After a failure, too: an alert reports it to the peer.
            self.flush(reply);
            match outcome {
                Ok(state) if state.peer_has_closed() => return Err(ended()),
                Ok(_) => {}
                Err(error) => return Err(self.failure(error)),
            }
        }
        Ok(())
    }

    pub(super) fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        self.connection.writer().write_all(plain).expect("its buffer is unlimited");
        self.flush(wire);
    }

    /// Writes all that is to be sent.
    pub(super) fn flush(&mut self, wire: &mut Vec<u8>) {
        while self.connection.wants_write() {
            self.connection.write_tls(wire).expect("a Vec takes everything");
        }
    }

    fn drain(&mut self, plain: &mut impl Write) {
        let mut reader = self.connection.reader();
        // An error says that nothing more is there, or that TLS ended, which `receive` sees itself.
        while let Ok(chunk) = reader.fill_buf()
            && !chunk.is_empty()
        {
            plain.write_all(chunk).expect(TAKES_ALL);
            let length = chunk.len();
            reader.consume(length);
        }
    }

    fn failure(&self, error: Error) -> Failure {
        let (cause, detail) = match error {
            Error::InvalidCertificate(error) => self.refused_certificate(&error),
            Error::InvalidMessage(_)
                if self.first.is_some_and(|byte| !RECORD_TYPES.contains(&byte)) =>
            {
                (Cause::NotTls, "the server's answer is not TLS; it may not expect TLS".into())
            }
            Error::AlertReceived(alert) => {
                let detail = format!("the server ended TLS with the alert {alert:?}");
                (Cause::TlsRefused { alert: Some(alert.into()) }, detail)
            }
            Error::PeerIncompatible(reason) => {
                let detail = format!("the server's TLS is too different: {}", difference(&reason));
                (Cause::TlsRefused { alert: None }, detail)
            }
            error => {
                let error = error.to_string();
                (Cause::Malformed, format!("TLS failed: {}", beginning(&error, MAX_ERROR_LEN)))
            }
        };
        Failure::new(Stage::Tls, cause, detail)
    }

    /// Says what is wrong with the server's certificate.
    fn refused_certificate(&self, error: &CertificateError) -> (Cause, String) {
        match error {
            CertificateError::Expired => {
                let detail = "the server's certificate has expired, or ends before it begins";
                (Cause::CertificateExpired, detail.into())
            }
            CertificateError::ExpiredContext { not_after, .. } => {
                let detail = format!("the server's certificate expired at {}", date(*not_after));
                (Cause::CertificateExpired, detail)
            }
            CertificateError::NotValidYet => {
                (Cause::CertificateExpired, "the server's certificate is not valid yet".into())
            }
            CertificateError::NotValidYetContext { not_before, .. } => {
                let since = date(*not_before);
                let detail = format!("the server's certificate is not valid before {since}");
                (Cause::CertificateExpired, detail)
            }
            CertificateError::UnknownIssuer => {
                let detail = "no trusted authority has issued the server's certificate";
                (Cause::UnknownIssuer, detail.into())
            }
            CertificateError::BadSignature => {
                let detail = "a signature is wrong: the trusted authority of that name is not the \
                              one that issued the server's certificate";
                (Cause::UnknownIssuer, detail.into())
            }
            CertificateError::NotValidForName => self.wrong_name(&[]),
            CertificateError::NotValidForNameContext { presented, .. } => {
                self.wrong_name(presented)
            }
            CertificateError::Revoked => {
                let detail = "the server's certificate, or that of an issuer, is on the list of \
                              revoked certificates";
                (Cause::CertificateRevoked, detail.into())
            }
            other => match (staple_refusal(other), unsupported::of(other)) {
                (Some(refusal), _) => refusal,
                (None, Some(unsupported)) => unsupported_certificate(unsupported, other),
                (None, None) => {
                    let other = match (unsupported::of_application(other), other) {
                        (Some(words), _) => words.to_owned(),
                        // Its own words, not those of the library around them.
                        (None, CertificateError::Other(other)) => other.to_string(),
                        (None, other) => other.to_string(),
                    };
                    let other = beginning(&other, MAX_ERROR_LEN);
                    let detail = format!("the server's certificate is not acceptable: {other}");
                    (Cause::CertificateInvalid, detail)
                }
            },
        }
    }

    fn wrong_name(&self, presented: &[String]) -> (Cause, String) {
        let name = self.name.to_str();
        let mut names: Vec<&str> =
            presented.iter().map(|name| beginning(plain(name), MAX_NAME_LEN)).collect();
        if names.len() > MAX_LISTED_NAMES {
            names.truncate(MAX_LISTED_NAMES);
            names.push("others");
        }
        let found = match names.as_slice() {
            [] => "no name at all".to_owned(),
            names => names.join(", "),
        };
        let detail = format!("the server's certificate is not for {name} but for {found}");
        (Cause::CertificateName, detail)
    }
}

/// Recognises what the verifier has against a staple, or against its absence.
fn staple_refusal(error: &CertificateError) -> Option<(Cause, String)> {
    #[cfg(feature = "ocsp")]
    return Refusal::of(error);
    #[cfg(not(feature = "ocsp"))]
    {
        let _ = error;
        None
    }
}

/// Says in words which kind of certificate is not supported.
fn unsupported_certificate(
    unsupported: UnsupportedCertificate,
    error: &CertificateError,
) -> (Cause, String) {
    let words = match error {
        CertificateError::Other(other) if unsupported == UnsupportedCertificate::RsaLength => {
            format!("{other}, and {}", unsupported.words())
        }
        _ => unsupported.words().to_owned(),
    };
    let detail = format!("the server's certificate, or that of an issuer, cannot be used: {words}");
    (Cause::CertificateUnsupported { unsupported }, detail)
}

fn ended() -> Failure {
    Failure::new(Stage::Hello, Cause::Closed, "the server closed the connection")
}

/// Says in words what a server has not in common with the client; what is rare, as the library
/// calls it.
fn difference(reason: &PeerIncompatible) -> Cow<'static, str> {
    match reason {
        PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled => {
            "it takes neither TLS 1.2 nor TLS 1.3".into()
        }
        PeerIncompatible::NoCipherSuitesInCommon => "no cipher suite is in common".into(),
        PeerIncompatible::NoKxGroupsInCommon => "no group of key exchange is in common".into(),
        PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon
        | PeerIncompatible::NoSignatureSchemesInCommon => {
            "no algorithm of signatures is in common".into()
        }
        other => format!("{other:?}").into(),
    }
}

/// Takes a name out of what rustls writes around it: `DnsName("a.example")`,
/// `IpAddress(127.0.0.1)`.
fn plain(presented: &str) -> &str {
    let inner = ["DnsName(", "IpAddress("].iter().find_map(|kind| presented.strip_prefix(kind));
    let inner = inner.and_then(|inner| inner.strip_suffix(')'));
    inner.map_or(presented, |inner| inner.trim_matches('"'))
}

/// Writes a time in UTC.
fn date(time: UnixTime) -> String {
    let millis = i64::try_from(time.as_secs()).ok().and_then(|secs| secs.checked_mul(1000));
    let date = millis.map(bson::DateTime::from_millis);
    date.and_then(|date| date.try_to_rfc3339_string().ok())
        .unwrap_or_else(|| format!("second {} of the Unix time", time.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn names_of_certificates_are_written_as_people_write_them() {
        assert_eq!(plain("DnsName(\"db.example\")"), "db.example");
        assert_eq!(plain("IpAddress(127.0.0.1)"), "127.0.0.1");
        assert_eq!(plain("DirectoryName"), "DirectoryName");
        assert_eq!(plain("IpAddress"), "IpAddress");
    }
}
