//! The configuration of TLS: authorities to trust, and the client's certificate and key.

use std::fmt;
use std::sync::Arc;

use rustls::client::{VerifierBuilderError, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::{ClientConfig, Error, RootCertStore};

#[cfg(feature = "ocsp")]
use super::revocation::Revocation;
use super::verifier::{Trust, Verifier};
#[cfg(feature = "ocsp")]
use crate::revocation::StatusCache;

const ENCRYPTED_KEY: &str = "ENCRYPTED PRIVATE KEY";

/// The configuration of TLS: the authorities to trust, and the client's own certificate.
///
/// Cheap to clone. Connections that share one resume the sessions of each other.
#[derive(Clone)]
pub struct TlsConfig {
    client: Arc<ClientConfig>,
    #[cfg(feature = "ocsp")]
    revocation: Option<Arc<Revocation>>,
}

/// The material of a [`TlsConfig`]: the contents of files, which the runtime has read.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct TlsMaterial<'a> {
    /// The authorities to trust.
    pub anchors: TrustAnchors<'a>,
    /// The client's certificate, those that lead from it to an authority, and its private key, all
    /// in PEM and in this order or the key first: `tlsCertificateKeyFile`.
    pub certificate_key: Option<&'a [u8]>,
    /// The password of that private key: `tlsCertificateKeyFilePassword`.
    pub password: Option<&'a str>,
    /// True if any certificate will do: `tlsAllowInvalidCertificates`.
    pub allow_invalid_certificates: bool,
    /// True if the certificate may be for another name: `tlsAllowInvalidHostnames`.
    pub allow_invalid_hostnames: bool,
    /// The lists of revoked certificates of the user, in PEM, if there are any.
    pub revocation_lists: Option<&'a [u8]>,
    /// The statuses of certificates that are known. Without them neither staples nor responders of
    /// OCSP matter: `tlsDisableCertificateRevocationCheck`.
    #[cfg(feature = "ocsp")]
    pub(super) statuses: Option<&'a Arc<dyn StatusCache>>,
    /// True if no responder of OCSP is to be asked: `tlsDisableOCSPEndpointCheck`.
    #[cfg(feature = "ocsp")]
    pub(super) disable_ocsp_endpoint_check: bool,
}

impl<'a> TlsMaterial<'a> {
    /// Replaces [`anchors`](Self::anchors).
    #[must_use]
    pub const fn with_anchors(mut self, anchors: TrustAnchors<'a>) -> Self {
        self.anchors = anchors;
        self
    }

    /// Replaces [`certificate_key`](Self::certificate_key).
    #[must_use]
    pub const fn with_certificate_key(mut self, certificate_key: Option<&'a [u8]>) -> Self {
        self.certificate_key = certificate_key;
        self
    }

    /// Replaces [`password`](Self::password).
    #[must_use]
    pub const fn with_password(mut self, password: Option<&'a str>) -> Self {
        self.password = password;
        self
    }

    /// Replaces [`allow_invalid_certificates`](Self::allow_invalid_certificates).
    #[must_use]
    pub const fn with_allow_invalid_certificates(
        mut self,
        allow_invalid_certificates: bool,
    ) -> Self {
        self.allow_invalid_certificates = allow_invalid_certificates;
        self
    }

    /// Replaces [`allow_invalid_hostnames`](Self::allow_invalid_hostnames).
    #[must_use]
    pub const fn with_allow_invalid_hostnames(mut self, allow_invalid_hostnames: bool) -> Self {
        self.allow_invalid_hostnames = allow_invalid_hostnames;
        self
    }

    /// Replaces [`revocation_lists`](Self::revocation_lists).
    #[must_use]
    pub const fn with_revocation_lists(mut self, revocation_lists: Option<&'a [u8]>) -> Self {
        self.revocation_lists = revocation_lists;
        self
    }

    /// Gives the statuses of certificates that are known. Without them neither staples nor
    /// responders of OCSP matter: `tlsDisableCertificateRevocationCheck`.
    #[cfg(feature = "ocsp")]
    #[must_use]
    pub const fn with_statuses(mut self, statuses: Option<&'a Arc<dyn StatusCache>>) -> Self {
        self.statuses = statuses;
        self
    }

    /// Says whether no responder of OCSP is to be asked: `tlsDisableOCSPEndpointCheck`.
    #[cfg(feature = "ocsp")]
    #[must_use]
    pub const fn with_disable_ocsp_endpoint_check(
        mut self,
        disable_ocsp_endpoint_check: bool,
    ) -> Self {
        self.disable_ocsp_endpoint_check = disable_ocsp_endpoint_check;
        self
    }
}

/// Authorities to trust.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum TrustAnchors<'a> {
    /// Certificates in PEM: `tlsCAFile`.
    Pem(&'a [u8]),
    /// Certificates in DER, as the system's store has them.
    Der(&'a [CertificateDer<'static>]),
}

impl Default for TrustAnchors<'_> {
    fn default() -> Self {
        Self::Der(&[])
    }
}

/// The reason why TLS cannot be configured like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// The authorities are not in PEM.
    #[error("the authorities are not certificates in PEM: {0}")]
    AnchorsPem(String),
    /// There is no authority, or none of a form that could issue a certificate.
    #[error(
        "there is no authority to trust; name a file of certificates in PEM, or install the \
         system's"
    )]
    NoAnchors,
    /// The lists of revoked certificates are not in PEM, or cannot be read.
    #[error("there is no list of revoked certificates in PEM (BEGIN X509 CRL) to be read: {0}")]
    RevocationLists(String),
    /// The client's certificate or key is not in PEM.
    #[error("the client's certificate and key are not in PEM: {0}")]
    CertificateKeyPem(String),
    /// The client's certificate is missing.
    #[error("the client's certificate is missing; its file must have a BEGIN CERTIFICATE")]
    NoCertificate,
    /// The client's private key is missing.
    #[error(
        "the client's private key is missing; its file must have a key in PKCS#8, PKCS#1 or SEC1"
    )]
    NoPrivateKey,
    /// The private key is encrypted, and there is no password.
    #[error("the client's private key is encrypted, and there is no password")]
    PasswordNeeded,
    /// The private key cannot be decrypted with this password.
    #[error(
        "the client's private key cannot be decrypted with this password: {0} (allowed is PKCS#8 \
         with PBES2)"
    )]
    Decryption(String),
    /// The private key is encrypted in the way of old versions of OpenSSL.
    #[error(
        "the client's private key has the header Proc-Type: 4,ENCRYPTED, which is too weak; \
         convert it with: openssl pkcs8 -topk8 -v2 aes-256-cbc"
    )]
    LegacyEncryption,
    /// This build cannot decrypt private keys.
    #[error("the client's private key is encrypted; that needs the feature tls-encrypted-keys")]
    EncryptionUnsupported,
    /// The key is not that of the certificate.
    #[error("the client's private key is not that of its certificate")]
    KeyMismatch,
    /// The certificate or the key is of a kind that TLS cannot use.
    #[error("the client's certificate or key cannot be used: {0}")]
    Unusable(String),
}

impl TlsConfig {
    /// Makes a configuration from the contents of files.
    ///
    /// If any certificate is accepted, its name does not matter either, and no authority is needed.
    ///
    /// # Errors
    ///
    /// Fails if the files do not contain what they should.
    pub fn from_pem(material: &TlsMaterial<'_>) -> Result<Self, TlsConfigError> {
        let provider = Arc::new(ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsConfigError::Unusable(error.to_string()))?;
        let (trust, anchors) = match material.allow_invalid_certificates {
            true => (Trust::Anything, Arc::new(RootCertStore::empty())),
            false => {
                let anchors = Arc::new(anchors(material.anchors)?);
                let strict = verifier(&anchors, &provider, lists(material)?, false)?;
                match material.allow_invalid_hostnames {
                    true => (Trust::AnyName(strict), anchors),
                    false => (Trust::Strict(strict), anchors),
                }
            }
        };
        #[cfg(feature = "ocsp")]
        let revocation = revocation(material, &anchors, &provider)?;
        let verifier = Verifier {
            trust,
            algorithms,
            anchors,
            #[cfg(feature = "ocsp")]
            revocation: revocation.clone(),
        };
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        let client = match material.certificate_key {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let (certificates, key) = client_certificate(pem, material.password)?;
                builder.with_client_auth_cert(certificates, key).map_err(|error| match error {
                    Error::InconsistentKeys(_) => TlsConfigError::KeyMismatch,
                    error => TlsConfigError::Unusable(error.to_string()),
                })?
            }
        };
        Ok(Self {
            client: Arc::new(client),
            #[cfg(feature = "ocsp")]
            revocation,
        })
    }

    pub(super) const fn client(&self) -> &Arc<ClientConfig> {
        &self.client
    }

    #[cfg(feature = "ocsp")]
    pub(super) const fn revocation(&self) -> Option<&Arc<Revocation>> {
        self.revocation.as_ref()
    }
}

/// The application's own configuration; its verifier, certificate and clock hold, and revocation is
/// its business.
impl From<Arc<ClientConfig>> for TlsConfig {
    fn from(client: Arc<ClientConfig>) -> Self {
        Self {
            client,
            #[cfg(feature = "ocsp")]
            revocation: None,
        }
    }
}

/// Clones of one are equal, and nothing else: connections share what they know of sessions.
impl PartialEq for TlsConfig {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.client, &other.client)
    }
}

impl Eq for TlsConfig {}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig").finish_non_exhaustive()
    }
}

impl fmt::Debug for TlsMaterial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsMaterial").finish_non_exhaustive()
    }
}

/// Those of a bundle that are no authorities are passed over, as every system has some.
fn anchors(anchors: TrustAnchors<'_>) -> Result<RootCertStore, TlsConfigError> {
    let mut store = RootCertStore::empty();
    match anchors {
        TrustAnchors::Der(certificates) => {
            store.add_parsable_certificates(certificates.iter().cloned());
        }
        TrustAnchors::Pem(pem) => {
            let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
            let certificates =
                certificates.map_err(|error| TlsConfigError::AnchorsPem(error.to_string()))?;
            store.add_parsable_certificates(certificates);
        }
    }
    Ok(store)
}

type Lists = Vec<CertificateRevocationListDer<'static>>;

/// Reads the lists of revoked certificates, if there are any.
fn lists(material: &TlsMaterial<'_>) -> Result<Lists, TlsConfigError> {
    let Some(pem) = material.revocation_lists else { return Ok(Lists::new()) };
    let lists = CertificateRevocationListDer::pem_slice_iter(pem).collect::<Result<Lists, _>>();
    let unusable = |why: &str| TlsConfigError::RevocationLists(why.to_owned());
    let lists = lists.map_err(|error| unusable(&error.to_string()))?;
    if lists.is_empty() {
        return Err(unusable("it has none"));
    }
    // The library heeds the first list of an issuer and a scope, and no other one.
    let mut seen = Vec::new();
    for list in &lists {
        let list = webpki::BorrowedCertRevocationList::from_der(list);
        let list =
            webpki::CertRevocationList::from(list.map_err(|error| unusable(&error.to_string()))?);
        let of = (list.issuer().to_vec(), list.issuing_distribution_point().map(<[u8]>::to_vec));
        if seen.contains(&of) {
            return Err(unusable("it has two lists of one authority"));
        }
        seen.push(of);
    }
    Ok(lists)
}

/// Makes a verifier that refuses what is on the lists; with `covered`, it accepts only certificates
/// that a list covers which is not out of date.
fn verifier(
    anchors: &Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
    lists: Lists,
    covered: bool,
) -> Result<Arc<WebPkiServerVerifier>, TlsConfigError> {
    let builder =
        WebPkiServerVerifier::builder_with_provider(Arc::clone(anchors), Arc::clone(provider));
    let builder = match covered {
        true => builder.only_check_end_entity_revocation().enforce_revocation_expiration(),
        false => builder.allow_unknown_revocation_status(),
    };
    builder.with_crls(lists).build().map_err(|error| match error {
        VerifierBuilderError::NoRootAnchors => TlsConfigError::NoAnchors,
        VerifierBuilderError::InvalidCrl(error) => {
            TlsConfigError::RevocationLists(format!("{error:?}"))
        }
        error => TlsConfigError::AnchorsPem(error.to_string()),
    })
}

/// Returns the means to find out about revocation, if that matters.
#[cfg(feature = "ocsp")]
fn revocation(
    material: &TlsMaterial<'_>,
    anchors: &Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<Revocation>>, TlsConfigError> {
    // "If a connection string specifies `tlsAllowInvalidCertificates=true`, then the driver MUST
    // disable OCSP."
    let Some(statuses) = material.statuses.filter(|_| !material.allow_invalid_certificates) else {
        return Ok(None);
    };
    let lists = match lists(material)? {
        lists if lists.is_empty() => None,
        lists => Some(verifier(anchors, provider, lists, true)?),
    };
    Ok(Some(Arc::new(Revocation {
        statuses: Arc::clone(statuses),
        ask_responders: !material.disable_ocsp_endpoint_check,
        lists,
        anchors: Arc::clone(anchors),
        algorithms: provider.signature_verification_algorithms,
    })))
}

type ClientCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn client_certificate(
    pem: &[u8],
    password: Option<&str>,
) -> Result<ClientCertificate, TlsConfigError> {
    if contains(pem, "Proc-Type: 4,ENCRYPTED") {
        return Err(TlsConfigError::LegacyEncryption);
    }
    let malformed = |error: pem::Error| TlsConfigError::CertificateKeyPem(error.to_string());
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(malformed)?;
    if certificates.is_empty() {
        return Err(TlsConfigError::NoCertificate);
    }
    let key = match encrypted_key(pem) {
        Some(encrypted) => decrypt(encrypted, password.ok_or(TlsConfigError::PasswordNeeded)?)?,
        None => PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
            pem::Error::NoItemsFound => TlsConfigError::NoPrivateKey,
            error => malformed(error),
        })?,
    };
    Ok((certificates, key))
}

fn contains(pem: &[u8], text: &str) -> bool {
    pem.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Returns the section with the encrypted key, if there is one.
fn encrypted_key(pem: &[u8]) -> Option<&str> {
    let begin = format!("-----BEGIN {ENCRYPTED_KEY}-----");
    let end = format!("-----END {ENCRYPTED_KEY}-----");
    let start = pem.windows(begin.len()).position(|window| window == begin.as_bytes())?;
    let length = pem[start..].windows(end.len()).position(|window| window == end.as_bytes())?;
    str::from_utf8(&pem[start..start + length + end.len()]).ok()
}

#[cfg(feature = "tls-encrypted-keys")]
fn decrypt(pem: &str, password: &str) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
    use pkcs8::EncryptedPrivateKeyInfoRef;
    use pkcs8::der::SecretDocument;
    use rustls::pki_types::PrivatePkcs8KeyDer;

    let (_, document) = SecretDocument::from_pem(pem)
        .map_err(|error| TlsConfigError::CertificateKeyPem(error.to_string()))?;
    let failed = |error: pkcs8::Error| TlsConfigError::Decryption(error.to_string());
    let encrypted = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes()).map_err(failed)?;
    let key = encrypted.decrypt(password).map_err(failed)?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

#[cfg(not(feature = "tls-encrypted-keys"))]
fn decrypt(_pem: &str, _password: &str) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
    Err(TlsConfigError::EncryptionUnsupported)
}
