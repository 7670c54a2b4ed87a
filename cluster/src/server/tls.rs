//! TLS in front of an embedded deployment: the certificate that its members show.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};

/// The number of bytes that a file with a certificate and its key may have.
pub const MAX_PEM_LEN: u64 = 1 << 20;

/// The certificate of the members, and its key.
///
/// All members show the same one, and speak nothing but TLS; clients show none.
#[derive(Clone)]
pub struct TlsIdentity(Arc<ServerConfig>);

/// The reason why a certificate or a key does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsIdentityError {
    /// The file cannot be read.
    #[error("cannot read the certificate and its key: {0}")]
    Read(io::Error),
    /// There is no certificate, or no key.
    #[error("{0}; a certificate and its private key, not encrypted, are needed in PEM")]
    Pem(pem::Error),
    /// The key does not belong to the certificate, or is of a kind that is not known.
    #[error("the certificate and the key cannot be used: {0}")]
    Mismatch(tokio_rustls::rustls::Error),
}

impl From<tokio_rustls::rustls::Error> for TlsIdentityError {
    fn from(error: tokio_rustls::rustls::Error) -> Self {
        Self::Mismatch(error)
    }
}

impl From<pem::Error> for TlsIdentityError {
    fn from(error: pem::Error) -> Self {
        Self::Pem(error)
    }
}

impl From<io::Error> for TlsIdentityError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl TlsIdentity {
    /// Takes a PEM text with the certificates, that of the members first, and the private key.
    ///
    /// # Errors
    ///
    /// Says what is missing, or why it does not serve.
    pub fn from_pem(text: &[u8]) -> Result<Self, TlsIdentityError> {
        let certificates = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>()?;
        if certificates.is_empty() {
            return Err(pem::Error::NoItemsFound.into());
        }
        let key = PrivateKeyDer::from_pem_slice(text)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates, key)?;
        Ok(Self(Arc::new(config)))
    }

    /// Takes a file with such a text, as `mongod --tlsCertificateKeyFile` does.
    ///
    /// # Errors
    ///
    /// As [`from_pem`](Self::from_pem), and if the file cannot be read or has more than
    /// [`MAX_PEM_LEN`] bytes.
    pub fn from_pem_file(path: impl AsRef<Path>) -> Result<Self, TlsIdentityError> {
        let mut text = Vec::new();
        File::open(path)?.take(MAX_PEM_LEN + 1).read_to_end(&mut text)?;
        if text.len() as u64 > MAX_PEM_LEN {
            let reason = format!("more than {MAX_PEM_LEN} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason).into());
        }
        Self::from_pem(&text)
    }

    /// Returns what opens TLS on a stream of a client, as the members do.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0))
    }
}

/// Does not print the key.
impl fmt::Debug for TlsIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TlsIdentity(…)")
    }
}

/// One is equal to its clones.
impl PartialEq for TlsIdentity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TlsIdentity {}
