//! A folder of certificates, made when a test runs.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
};
use tempfile::TempDir;

/// The path of the file that was written.
type Written = Result<String, Box<dyn std::error::Error>>;

/// An authority, and a folder for what it issues.
pub(crate) struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let (key, folder) = (KeyPair::generate()?, TempDir::new()?);
        fs::write(folder.path().join("ca.pem"), params.self_signed(&key)?.pem())?;
        Ok(Self { folder, issuer: Issuer::new(params, key) })
    }

    /// Returns the path of the authority's own certificate.
    pub(crate) fn file(&self) -> String {
        self.path("ca").to_string_lossy().into_owned()
    }

    /// Issues a certificate, and returns the path of the file with it and its key.
    pub(crate) fn issue(
        &self,
        owner: &str,
        names: &[&str],
    ) -> Result<String, Box<dyn std::error::Error>> {
        self.sign(owner, &params(owner, names)?)
    }

    /// Issues a certificate that is valid for so long from now on.
    pub(crate) fn issue_for(
        &self,
        lifetime: Duration,
        owner: &str,
        names: &[&str],
    ) -> Result<String, Box<dyn std::error::Error>> {
        let end = SystemTime::now().duration_since(UNIX_EPOCH)? + lifetime;
        let mut params = params(owner, names)?;
        params.not_after = date_time_ymd(1970, 1, 1) + end;
        self.sign(owner, &params)
    }

    /// Makes a certificate that nobody but its owner has signed, and returns the same.
    pub(crate) fn self_signed(
        &self,
        owner: &str,
        names: &[&str],
    ) -> Result<String, Box<dyn std::error::Error>> {
        let key = KeyPair::generate()?;
        self.write(owner, &params(owner, names)?.self_signed(&key)?, &key)
    }

    fn sign(&self, owner: &str, params: &CertificateParams) -> Written {
        let key = KeyPair::generate()?;
        self.write(owner, &params.signed_by(&key, &self.issuer)?, &key)
    }

    fn write(&self, owner: &str, certificate: &Certificate, key: &KeyPair) -> Written {
        fs::write(self.path(owner), [certificate.pem(), key.serialize_pem()].concat())?;
        Ok(self.path(owner).to_string_lossy().into_owned())
    }

    /// Replaces the authority's own certificate by that of another one, at once.
    pub(crate) fn become_like(&self, other: &Self) -> io::Result<()> {
        fs::copy(other.file(), self.path("new"))?;
        fs::rename(self.path("new"), self.path("ca"))
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
