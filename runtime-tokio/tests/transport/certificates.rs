//! A folder of certificates, made when a test runs.

use std::path::PathBuf;
use std::{fs, io};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

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
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, owner);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        fs::write(self.path(owner), [certificate, key.serialize_pem()].concat())?;
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
