//! Certificates that are made when a test runs, so that none is in the repository or expires there.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
};
use tempfile::TempDir;

/// The reason why there is no certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// It cannot be made, for instance as a name is none.
    #[error("cannot make a certificate: {0}")]
    Make(rcgen::Error),
    /// It cannot be written into the folder of the authority.
    #[error("cannot write a certificate: {0}")]
    Write(io::Error),
}

impl From<io::Error> for CertificateError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

impl From<rcgen::Error> for CertificateError {
    fn from(error: rcgen::Error) -> Self {
        Self::Make(error)
    }
}

/// A certificate by which a client logs in, with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientCertificate {
    /// The path of the file with the certificate and its key.
    pub file: String,
    /// The subject, written as servers write it (RFC 2253): the name of the user.
    pub subject: String,
}

/// An authority, and a folder for what it issues; dropping it removes the folder.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes an authority of this name.
    ///
    /// # Errors
    ///
    /// Says what was refused; so do all methods that return a result.
    pub fn new(name: &str) -> Result<Self, CertificateError> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let (key, folder) = (KeyPair::generate()?, TempDir::new()?);
        fs::write(folder.path().join("ca.pem"), params.self_signed(&key)?.pem())?;
        Ok(Self { folder, issuer: Issuer::new(params, key) })
    }

    /// Returns the path of the authority's own certificate.
    pub fn file(&self) -> String {
        self.path("ca").to_string_lossy().into_owned()
    }

    /// Issues a certificate for host names and IP addresses, and returns the path of the file with
    /// it and its key.
    ///
    /// # Errors
    ///
    /// See [`new`](Self::new).
    pub fn issue(&self, owner: &str, names: &[&str]) -> Result<String, CertificateError> {
        self.sign(owner, &params(owner, names)?)
    }

    /// Issues a certificate that is valid for so long from now on.
    ///
    /// # Errors
    ///
    /// See [`new`](Self::new).
    pub fn issue_for(
        &self,
        lifetime: Duration,
        owner: &str,
        names: &[&str],
    ) -> Result<String, CertificateError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut params = params(owner, names)?;
        params.not_after = date_time_ymd(1970, 1, 1) + (now + lifetime);
        self.sign(owner, &params)
    }

    /// Issues a certificate by which `owner` logs in.
    ///
    /// # Errors
    ///
    /// See [`new`](Self::new).
    pub fn issue_client(&self, owner: &str) -> Result<ClientCertificate, CertificateError> {
        let mut params = CertificateParams::default();
        let parts = [
            (DnType::OrganizationName, "sdam"),
            (DnType::OrganizationalUnitName, "clients"),
            (DnType::CommonName, owner),
        ];
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind, value);
        }
        let subject = format!("CN={owner},OU=clients,O=sdam");
        Ok(ClientCertificate { file: self.sign(owner, &params)?, subject })
    }

    /// Makes a self-signed certificate, and returns the same as [`issue`](Self::issue).
    ///
    /// # Errors
    ///
    /// See [`new`](Self::new).
    pub fn self_signed(&self, owner: &str, names: &[&str]) -> Result<String, CertificateError> {
        let key = KeyPair::generate()?;
        self.write(owner, &params(owner, names)?.self_signed(&key)?, &key)
    }

    /// Replaces the authority's own certificate by that of another one, at once.
    ///
    /// # Errors
    ///
    /// See [`new`](Self::new).
    pub fn become_like(&self, other: &Self) -> Result<(), CertificateError> {
        fs::copy(other.file(), self.path("new"))?;
        Ok(fs::rename(self.path("new"), self.path("ca"))?)
    }

    fn sign(&self, owner: &str, params: &CertificateParams) -> Result<String, CertificateError> {
        let key = KeyPair::generate()?;
        self.write(owner, &params.signed_by(&key, &self.issuer)?, &key)
    }

    fn write(
        &self,
        owner: &str,
        certificate: &Certificate,
        key: &KeyPair,
    ) -> Result<String, CertificateError> {
        fs::write(self.path(owner), [certificate.pem(), key.serialize_pem()].concat())?;
        Ok(self.path(owner).to_string_lossy().into_owned())
    }

    fn path(&self, owner: &str) -> PathBuf {
        self.folder.path().join(format!("{owner}.pem"))
    }
}

fn params(owner: &str, names: &[&str]) -> Result<CertificateParams, rcgen::Error> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, owner);
    Ok(params)
}
