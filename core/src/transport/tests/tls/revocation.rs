//! Servers whose certificates were revoked, or that do not say whether they were.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{
    CertificateRevocationListParams, CustomExtension, KeyIdMethod, KeyPair, RevokedCertParams,
    SerialNumber, SigningKey as _, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};

use super::fixture::{Line, VERSIONS};
use crate::failure::{Cause, Failure};
use crate::revocation::harness::{Answer, subject};
use crate::revocation::tests::{Authority, must_staple, responder};
use crate::revocation::{CertificateId, Register, Status, StatusCache, Verdict};
use crate::transport::{TlsConfig, TlsConfigError, TlsMaterial, TransportConfig, TrustAnchors};

/// A register behind a lock.
#[derive(Debug, Default)]
struct Statuses(Mutex<Register>);

impl StatusCache for Statuses {
    fn status(&self, id: &CertificateId, now: UnixTime) -> Option<Status> {
        self.0.lock().unwrap().status(id, now).cloned()
    }

    fn learn(&self, id: &CertificateId, verdict: Verdict, now: UnixTime) {
        self.0.lock().unwrap().learn(id, verdict, now);
    }
}

/// An authority, a server with a certificate of it, and what clients know.
struct Scene {
    authority: Authority,
    certificate: CertificateDer<'static>,
    key: KeyPair,
    statuses: Arc<dyn StatusCache>,
}

impl Scene {
    fn new(extensions: &[CustomExtension]) -> Self {
        let authority = Authority::new("a");
        let (certificate, key) = authority.issue(|params| {
            params.custom_extensions = extensions.to_vec();
            params.serial_number = Some(SerialNumber::from(77_u64));
        });
        Self { authority, certificate, key, statuses: Arc::new(Statuses::default()) }
    }

    /// A response about the certificate of this server, which is valid for an hour.
    fn response(&self, status: Status) -> Vec<u8> {
        let subject = subject(&self.certificate, &self.authority.certificate).unwrap();
        let shifted = |by: i64| {
            let seconds = UnixTime::now().as_secs().checked_add_signed(by).unwrap();
            UnixTime::since_unix_epoch(Duration::from_secs(seconds))
        };
        let (this_update, next_update) = (shifted(-60), Some(shifted(3600)));
        let delegate = None;
        Answer::new(&subject, status, this_update, next_update)
            .with_delegate(delegate)
            .write(|bytes| self.authority.key().sign(bytes).unwrap())
    }

    fn material<'a>(&'a self, anchors: &'a [CertificateDer<'static>]) -> TlsMaterial<'a> {
        TlsMaterial::default()
            .with_anchors(TrustAnchors::Der(anchors))
            .with_statuses(Some(&self.statuses))
    }

    /// Connects, and returns whether the responder is to be asked.
    fn connect(
        &self,
        version: &'static SupportedProtocolVersion,
        staple: &[u8],
        change: fn(TlsMaterial<'_>) -> TlsMaterial<'_>,
    ) -> Result<bool, Failure> {
        self.connect_with(version, staple, None, change)
    }

    fn connect_with(
        &self,
        version: &'static SupportedProtocolVersion,
        staple: &[u8],
        lists: Option<&str>,
        change: fn(TlsMaterial<'_>) -> TlsMaterial<'_>,
    ) -> Result<bool, Failure> {
        let anchors = [self.authority.certificate.clone()];
        let lists = lists.map(str::as_bytes);
        let material = self.material(&anchors).with_revocation_lists(lists);
        let tls = TlsConfig::from_pem(&change(material)).unwrap();
        let config = TransportConfig::default().with_tls(tls);
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert_with_ocsp(vec![self.certificate.clone()], key, staple.to_vec())
            .unwrap();
        let server = ServerConnection::new(Arc::new(server)).unwrap();
        let mut line = Line::open(&config, "db.example", server, 100);
        line.echo(b"hello")?;
        Ok(line.transport.unchecked(UnixTime::now())?.is_some())
    }

    fn cause(&self, staple: &[u8]) -> [Result<bool, Cause>; 2] {
        VERSIONS.map(|it| self.connect(it, staple, |it| it).map_err(|failure| failure.cause))
    }
}

fn revoked() -> Status {
    Status::Revoked { at: String::new(), reason: None }
}

/// OCSP-P2, "staples, valid", and "Suggested OCSP Behavior", 3.
#[test]
fn a_server_that_staples_a_good_status_is_accepted_and_no_responder_asked() {
    let scene = Scene::new(&[responder()]);
    assert_eq!(scene.cause(&scene.response(Status::Good)), [Ok(false), Ok(false)]);
    assert_eq!(scene.cause(&[]), [Ok(false), Ok(false)], "it is in the cache now");
}

/// OCSP-P2, "staples, revoked".
#[test]
fn a_server_that_staples_a_revocation_of_its_own_is_refused() {
    for version in VERSIONS {
        let scene = Scene::new(&[responder()]);
        let response = scene.response(revoked());
        let failure = scene.connect(version, &response, |it| it).unwrap_err();
        assert_eq!(failure.cause, Cause::CertificateRevoked);
        assert!(failure.detail.contains("revoked at 20"), "{failure}");
        assert!(failure.detail.contains("(keyCompromise), as OCSP says"), "{failure}");
        assert!(!failure.may_be_overload() && !failure.is_network_error());
        let again = scene.connect(version, &[], |it| it).unwrap_err();
        assert_eq!(again.cause, Cause::CertificateRevoked, "from the cache");
    }
}

/// A revocation that a staple has said counts without one, and without a responder ("Suggested OCSP
/// Behavior", 4.).
#[test]
fn a_revocation_is_remembered_of_a_certificate_that_names_no_responder() {
    let scene = Scene::new(&[]);
    let refused = Err(Cause::CertificateRevoked);
    assert_eq!(scene.cause(&scene.response(revoked())), [refused.clone(), refused.clone()]);
    assert_eq!(scene.cause(&[]), [refused.clone(), refused]);
}

/// "Suggested OCSP Behavior", 2.: one "that does not cover the certificate it presents or is
/// invalid".
#[test]
fn a_staple_that_is_not_valid_ends_the_handshake() {
    let scene = Scene::new(&[responder()]);
    let another = Scene::new(&[responder()]).response(Status::Good);
    for staple in [&another[..], b"0", &[0x30, 3, 0x0a, 1, 3]] {
        assert_eq!(scene.cause(staple), [Err(Cause::InvalidStaple), Err(Cause::InvalidStaple)]);
    }
}

/// A status that decides nothing: "If any unvalidated certificates in the chain remain".
#[test]
fn after_a_staple_of_an_unknown_status_the_responder_is_asked() {
    let scene = Scene::new(&[responder()]);
    assert_eq!(scene.cause(&scene.response(Status::Unknown)), [Ok(true), Ok(true)]);
}

/// OCSP-P2, "must-staple cert but no staple", and "Suggested OCSP Behavior", 1.
#[test]
fn a_certificate_that_demands_a_staple_is_refused_without_one() {
    let scene = Scene::new(&[responder(), must_staple()]);
    assert_eq!(scene.cause(&[]), [Err(Cause::InvalidStaple), Err(Cause::InvalidStaple)]);
    let failure = scene.connect(VERSIONS[1], &[], |it| it).unwrap_err();
    assert!(failure.detail.contains("must-staple"), "{failure}");
    assert_eq!(scene.cause(&scene.response(Status::Good)), [Ok(false), Ok(false)]);
}

/// "Suggested OCSP Behavior", 7.
#[test]
fn without_a_staple_the_responders_are_to_be_asked_unless_that_is_turned_off() {
    assert_eq!(Scene::new(&[]).cause(&[]), [Ok(false), Ok(false)], "it names none");
    for version in VERSIONS {
        let scene = Scene::new(&[responder()]);
        assert_eq!(scene.connect(version, &[], |it| it), Ok(true));
        assert_eq!(scene.connect(version, &[], without_responders), Ok(false));
        let refused = scene.connect(version, &scene.response(revoked()), without_responders);
        assert_eq!(refused.unwrap_err().cause, Cause::CertificateRevoked, "staples count");
    }
}

fn without_responders(material: TlsMaterial<'_>) -> TlsMaterial<'_> {
    material.with_disable_ocsp_endpoint_check(true)
}

/// "How OCSP interacts with existing configuration options", 1. and 3., and
/// tlsDisableCertificateRevocationCheck.
#[test]
fn where_revocation_does_not_matter_no_staple_and_no_responder_does() {
    let scene = Scene::new(&[responder(), must_staple()]);
    let revoked = scene.response(revoked());
    for version in VERSIONS {
        for staple in [&[][..], &revoked, b"0"] {
            assert_eq!(scene.connect(version, staple, anything), Ok(false));
            assert_eq!(scene.connect(version, staple, unchecked), Ok(false));
        }
    }
}

fn anything(material: TlsMaterial<'_>) -> TlsMaterial<'_> {
    material.with_allow_invalid_certificates(true)
}

fn unchecked(material: TlsMaterial<'_>) -> TlsMaterial<'_> {
    material.with_statuses(None)
}

/// Returns a list of revoked certificates with this number on it, or with none.
fn list(authority: &Authority, serial: Option<u64>, next_year: i32) -> String {
    let revoked = serial.map(|serial| RevokedCertParams {
        serial_number: SerialNumber::from(serial),
        revocation_time: date_time_ymd(2020, 1, 1),
        reason_code: None,
        invalidity_date: None,
    });
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(next_year, 1, 1),
        crl_number: SerialNumber::from(1_u64),
        issuing_distribution_point: None,
        revoked_certs: revoked.into_iter().collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(authority.issuer()).unwrap().pem().unwrap()
}

/// "Suggested OCSP Behavior", 5.: the user's own lists, after the cache and before responders.
#[test]
fn the_lists_of_the_user_refuse_what_is_on_them_and_vouch_for_what_is_not() {
    let scene = Scene::new(&[responder()]);
    let with = |pem: &str| scene.connect_with(VERSIONS[1], &[], Some(pem), |it| it);
    let failure = with(&list(&scene.authority, Some(77), 2999)).unwrap_err();
    assert_eq!(failure.cause, Cause::CertificateRevoked);
    assert!(failure.detail.contains("on the list of revoked certificates"), "{failure}");
    assert_eq!(with(&list(&scene.authority, Some(78), 2999)), Ok(false));
    assert_eq!(with(&list(&scene.authority, None, 2021)), Ok(true), "out of date");
    assert_eq!(with(&list(&Authority::new("b"), None, 2999)), Ok(true), "another authority's");
    let late = with(&list(&scene.authority, Some(77), 2021)).unwrap_err();
    assert_eq!(late.cause, Cause::CertificateRevoked, "what was revoked stays so");
}

#[test]
fn two_lists_of_one_authority_are_refused() {
    let authority = Authority::new("a");
    let lists = [list(&authority, Some(77), 2999), list(&authority, None, 2999)].concat();
    let anchors = [authority.certificate.clone()];
    let material = TlsMaterial::default()
        .with_anchors(TrustAnchors::Der(&anchors))
        .with_revocation_lists(Some(lists.as_bytes()));
    let error = TlsConfig::from_pem(&material).unwrap_err();
    assert!(error.to_string().contains("two lists of one authority"), "{error}");
}

#[test]
fn a_file_without_a_list_says_so() {
    for (pem, wanted) in [("", "it has none"), ("-----BEGIN X509 CRL-----\n", "PEM")] {
        let anchors = [Authority::new("a").certificate];
        let material = TlsMaterial::default()
            .with_anchors(TrustAnchors::Der(&anchors))
            .with_revocation_lists(Some(pem.as_bytes()));
        let error = TlsConfig::from_pem(&material).unwrap_err();
        assert!(matches!(error, TlsConfigError::RevocationLists(_)), "{error}");
        assert!(error.to_string().contains(wanted), "{error}");
    }
}
