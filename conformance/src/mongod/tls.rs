//! TLS of a server.

/// The clients that may connect, and how they prove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// With TLS or without; servers use it among themselves.
    #[default]
    Prefer,
    /// With TLS only, so that the harness itself can ask nothing and send no commands; a replica
    /// set cannot be started so.
    Require,
}

/// The certificates of a server, and what it demands of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The clients that may connect.
    pub mode: TlsMode,
    /// The path of the file with the server's certificate and its key.
    pub certificate_key_file: String,
    /// The path of the authorities' certificates.
    pub ca_file: String,
    /// True if clients with TLS must have a certificate, too.
    pub client_certificates: bool,
}

impl Tls {
    /// Describes a server that speaks TLS with the clients that want to, with a certificate or
    /// without.
    pub fn new(certificate_key_file: impl Into<String>, ca_file: impl Into<String>) -> Self {
        Self {
            mode: TlsMode::Prefer,
            certificate_key_file: certificate_key_file.into(),
            ca_file: ca_file.into(),
            client_certificates: false,
        }
    }

    /// Describes the same server, but for clients with TLS only.
    #[must_use]
    pub fn required(self) -> Self {
        Self { mode: TlsMode::Require, ..self }
    }

    /// Returns the arguments for the command line.
    pub(super) fn arguments(&self) -> Vec<&str> {
        let mode = match self.mode {
            TlsMode::Prefer => "preferTLS",
            TlsMode::Require => "requireTLS",
        };
        let mut arguments = vec!["--tlsMode", mode, "--tlsCAFile", &self.ca_file];
        arguments.extend(["--tlsCertificateKeyFile", &self.certificate_key_file]);
        if !self.client_certificates {
            arguments.push("--tlsAllowConnectionsWithoutCertificates");
        }
        arguments
    }
}
