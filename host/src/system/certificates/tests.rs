//! Files that are missing, wrong or replaced, and stores that cannot be read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls_native_certs::{CertificateResult, Error, ErrorKind};
use sdam_core::config::TlsOptions;
use tempfile::TempDir;

use super::store::{INTERVAL, INTERVAL_AFTER_ERRORS, Store};
use super::{CertificateKeyProvider, Certificates, Source};
use crate::ClientError;
use crate::system::log_lines::log_lines;

/// A folder of files, and an authority.
struct Folder {
    folder: TempDir,
    authority: rcgen::Certificate,
    key: KeyPair,
}

impl Folder {
    fn new() -> Self {
        let mut params = CertificateParams::new(["client".to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = params.self_signed(&key).expect("a certificate");
        Self { folder: tempfile::tempdir().expect("a folder"), authority, key }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, contents: &str) -> String {
        let path = self.path(name);
        fs::write(&path, contents).expect("a file");
        path.display().to_string()
    }

    /// Writes the certificate and its key.
    fn write_certificate_key(&self) -> String {
        self.write("client.pem", &(self.authority.pem() + &self.key.serialize_pem()))
    }
}

fn with_ca(path: &str) -> TlsOptions {
    TlsOptions::default().with_ca_file(Some(path.to_owned()))
}

fn error(options: &TlsOptions) -> String {
    Certificates::of_files(options.clone()).load().expect_err("nothing to trust").detail.to_string()
}

#[test]
fn a_ca_file_that_is_no_good_is_named_with_what_it_contains() {
    let folder = Folder::new();
    let key = folder.key.serialize_pem();
    let truncated = folder.authority.pem().replace("-----END CERTIFICATE-----", "");
    let garbage = "-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n";
    let cases = [
        ("empty", "", "the file is empty"),
        ("text", "no certificate\n", "the file has 15 bytes, and nothing in PEM"),
        ("DER", "0 and so on", "the file is in DER, not in PEM; openssl converts it"),
        ("key", &key, "the file contains PRIVATE KEY"),
        ("truncated", &truncated, "the file contains CERTIFICATE"),
        ("garbage", garbage, "the file contains CERTIFICATE"),
    ];
    for (name, contents, found) in cases {
        let path = folder.write(name, contents);
        let error = error(&with_ca(&path));
        assert!(error.contains(&format!("the tlsCAFile {path} ")), "{error}");
        assert!(error.contains(found), "{error}");
    }
    let missing = folder.path("missing").display().to_string();
    let text = error(&with_ca(&missing));
    assert!(text.starts_with(&format!("cannot read the tlsCAFile {missing}: ")), "{text}");
    let text = error(&with_ca(&folder.folder.path().display().to_string()));
    assert!(text.ends_with("it is no regular file"), "{text}");
}

#[test]
fn a_certificate_key_file_that_is_no_good_is_named_with_what_it_contains() {
    let folder = Folder::new();
    let (certificate, key) = (folder.authority.pem(), folder.key.serialize_pem());
    let other = certificate.clone() + &KeyPair::generate().expect("a key").serialize_pem();
    let cases = [
        ("empty", "", "the file is empty"),
        ("certificate", &certificate, "private key is missing"),
        ("key", &key, "certificate is missing"),
        ("other", &other, "not that of its certificate"),
    ];
    let ca = folder.write("ca.pem", &certificate);
    for (name, contents, found) in cases {
        let path = folder.write(name, contents);
        let options = with_ca(&ca).with_certificate_key_file(Some(path.clone()));
        let error = error(&options);
        assert!(error.contains(&format!("the tlsCertificateKeyFile {path} ")), "{error}");
        assert!(error.contains(found), "{error}");
        // The contents of the key must not show.
        let secret = key.lines().nth(1).expect("a line of the key");
        assert!(!error.contains(secret), "{error}");
    }
}

#[test]
fn the_key_is_forgotten_once_a_configuration_was_made_of_it() {
    let folder = Folder::new();
    let ca = folder.write("ca.pem", &folder.authority.pem());
    let path = folder.write_certificate_key();
    let options = with_ca(&ca).with_certificate_key_file(Some(path));
    let certificates = Certificates::of_files(options);
    let first = certificates.load().expect("good files");
    let Source::Files(files) = &certificates.0 else { panic!("files were named") };
    let last = files.last.lock().expect("no thread panicked");
    let good = last.good.as_ref().expect("it was loaded");
    assert_eq!(size_of_val(&good.digest), 32, "a digest is all that is kept of the files");
    drop(last);
    // Unchanged files make no second configuration, so that sessions can be resumed.
    let second = certificates.load().expect("good files");
    assert_eq!(first, second);
    folder.write("ca.pem", &Folder::new().authority.pem());
    let third = certificates.load().expect("good files");
    assert_ne!(second, third);
}

#[test]
fn files_that_go_bad_leave_the_last_good_ones_and_one_line_in_the_log() {
    let folder = Folder::new();
    let path = folder.write("ca.pem", &folder.authority.pem());
    let certificates = Certificates::of_files(with_ca(&path));
    certificates.load().expect("a good file");
    folder.write("ca.pem", "");
    let lines = log_lines(|| {
        certificates.load().expect("the earlier file");
        certificates.load().expect("the earlier file");
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("TLS goes on with the earlier certificates"), "{lines:?}");
    assert!(lines[0].contains(&path) && lines[0].contains("the file is empty"), "{lines:?}");
}

/// A provider takes the place of the file: it is asked for each connection, its failures leave the
/// last certificate in use, and nothing that it gives is shown.
#[test]
fn a_provider_gives_the_certificate_and_its_key() {
    let folder = Folder::new();
    let ca = with_ca(&folder.write("ca.pem", &folder.authority.pem()));
    let given = Arc::new(Mutex::new(Err("the vault is sealed".to_owned())));
    let answer = Arc::clone(&given);
    let provider = CertificateKeyProvider::new(move || answer.lock().unwrap().clone());
    let choose =
        |options: &TlsOptions| Certificates::choose(Some(options), None, Some(provider.clone()));
    let certificates = choose(&ca).unwrap().unwrap();
    let failed = certificates.load().unwrap_err().to_string();
    assert!(
        failed.contains("the provider of certificates failed: the vault is sealed"),
        "{failed}"
    );
    *given.lock().unwrap() = Ok("PLANTED-SECRET".into());
    let failed = certificates.load().unwrap_err().to_string();
    assert!(failed.contains("it has 14 bytes, and nothing in PEM"), "{failed}");
    assert!(!failed.contains("PLANTED"), "{failed}");
    let pem = folder.authority.pem() + &folder.key.serialize_pem();
    *given.lock().unwrap() = Ok(pem.as_str().into());
    let first = certificates.load().unwrap();
    assert_eq!(certificates.load().unwrap(), first, "the same certificate, and its sessions");
    *given.lock().unwrap() = Err("the vault is sealed".to_owned());
    assert_eq!(certificates.load().unwrap(), first);
    let renewed = Folder::new();
    let pem = renewed.authority.pem() + &renewed.key.serialize_pem();
    *given.lock().unwrap() = Ok(pem.as_str().into());
    assert_ne!(certificates.load().unwrap(), first);

    let file = ca.with_certificate_key_file(Some(folder.write_certificate_key()));
    assert!(matches!(choose(&file), Err(ClientError::CertificateKeyTwice)));
    let without = Certificates::choose(None, None, Some(provider.clone()));
    assert!(matches!(without, Err(ClientError::TlsNotAskedFor)));
}

/// A store that gives what the test says, and counts how often it was read.
struct Puppet {
    result: Arc<Mutex<(Vec<Vec<u8>>, usize)>>,
    reads: Arc<AtomicUsize>,
}

impl Puppet {
    fn new(certificates: &[&rcgen::Certificate], errors: usize) -> (Self, Certificates) {
        let puppet = Self { result: Arc::default(), reads: Arc::default() };
        puppet.set(certificates, errors);
        let (result, reads) = (Arc::clone(&puppet.result), Arc::clone(&puppet.reads));
        let store = Store::of(move || {
            reads.fetch_add(1, Ordering::Relaxed);
            let (certificates, errors) = &*result.lock().expect("no thread panicked");
            let mut out = CertificateResult::default();
            out.certs = certificates.iter().map(|der| der.clone().into()).collect();
            out.errors = (0..*errors).map(unreadable).collect();
            out
        });
        (puppet, Certificates::of(TlsOptions::default(), None, store))
    }

    fn set(&self, certificates: &[&rcgen::Certificate], errors: usize) {
        let certificates = certificates.iter().map(|it| it.der().to_vec()).collect();
        *self.result.lock().expect("no thread panicked") = (certificates, errors);
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }
}

fn unreadable(number: usize) -> Error {
    let inner = io::Error::from(io::ErrorKind::PermissionDenied);
    let path = Path::new("/etc/ssl").join(format!("{number}.pem"));
    Error { context: "failed to open file", kind: ErrorKind::Io { inner, path } }
}

#[test]
fn a_store_that_cannot_be_read_is_an_error_that_says_why_and_is_read_again() {
    let (puppet, certificates) = Puppet::new(&[], 5);
    let start = Instant::now();
    let error = certificates.load_at(start).expect_err("nothing to trust").detail.to_string();
    assert!(error.contains("system's store"), "{error}");
    assert!(error.contains("permission denied at '/etc/ssl/0.pem'"), "{error}");
    assert!(error.contains("and 2 more") && error.contains("tlsCAFile"), "{error}");
    puppet.set(&[], 0);
    let error = certificates.load_at(start).expect_err("nothing to trust").detail.to_string();
    assert!(error.contains("it has none"), "{error}");
    // Now it can be read.
    puppet.set(&[&Folder::new().authority], 0);
    certificates.load_at(start).expect("a store");
    assert_eq!(puppet.reads(), 3);
}

#[test]
fn what_could_not_be_read_of_a_store_is_told_once() {
    let authority = Folder::new().authority;
    let (puppet, certificates) = Puppet::new(&[&authority], 1);
    let start = Instant::now();
    let lines = log_lines(|| {
        certificates.load_at(start).expect("a store");
        certificates.load_at(start + INTERVAL_AFTER_ERRORS).expect("a store");
    });
    assert_eq!(puppet.reads(), 2);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("/etc/ssl/0.pem"), "{lines:?}");
}

#[test]
fn a_store_is_read_again_after_an_hour_and_sooner_after_errors() {
    let (first, second) = (Folder::new().authority, Folder::new().authority);
    let (puppet, certificates) = Puppet::new(&[&first], 0);
    let (start, moment) = (Instant::now(), Duration::from_millis(1));
    let load = |at: Instant| certificates.load_at(at).expect("a store");
    let config = load(start);
    assert_eq!(load(start + INTERVAL - moment), config);
    assert_eq!(puppet.reads(), 1);
    assert_eq!(load(start + INTERVAL), config, "the same certificates, the same configuration");
    puppet.set(&[&first, &second], 1);
    let late = start + INTERVAL * 2;
    assert_ne!(load(late), config);
    assert_eq!(puppet.reads(), 3);
    load(late + INTERVAL_AFTER_ERRORS - moment);
    assert_eq!(puppet.reads(), 3);
    load(late + INTERVAL_AFTER_ERRORS);
    assert_eq!(puppet.reads(), 4);
    // One that has gone leaves what was read of it before.
    puppet.set(&[], 1);
    let lines = log_lines(|| drop(load(late + INTERVAL * 3)));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("TLS goes on with the earlier certificates"), "{lines:?}");
}

#[test]
fn no_store_is_read_where_a_file_or_nothing_is_trusted() {
    let folder = Folder::new();
    let path = folder.write("ca.pem", &folder.authority.pem());
    let lax = TlsOptions::default().with_allow_invalid_certificates(true);
    for options in [with_ca(&path), lax] {
        let store = Store::of(|| panic!("no test needs it"));
        Certificates::of(options, None, store).load().expect("a configuration");
    }
}
