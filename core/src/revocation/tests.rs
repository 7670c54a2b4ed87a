//! Responses that are signed by whom they should be, and others; and the register.

use std::time::Duration;

use proptest::prelude::{any, prop, proptest};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, SerialNumber, SigningKey as _,
};
use rustls::pki_types::{CertificateDer, UnixTime};

use super::harness::{Answer, access, subject};
use super::register::MAX_CERTIFICATES;
use super::{
    CertificateId, InvalidResponse, Leaf, Outcome, Register, Status, Subject, Turn, UselessAnswer,
    Verdict,
};
use crate::http::HttpResponse;

const NOW: u64 = 1_800_000_000;
const DAY: u64 = 86_400;

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

/// An authority, and certificates of it.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) certificate: CertificateDer<'static>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    pub(crate) fn issue(
        &self,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (CertificateDer<'static>, KeyPair) {
        let mut params = CertificateParams::new(vec!["db.example".to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().der().clone(), key)
    }

    pub(crate) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    pub(crate) fn key(&self) -> &KeyPair {
        self.issuer.key()
    }

    fn server(&self) -> Subject {
        let (certificate, _) = self.issue(|params| params.custom_extensions.push(responder()));
        subject(&certificate, &self.certificate).expect("it was issued by this authority")
    }
}

/// `authorityInfoAccess` with one responder, http://127.0.0.1:1/ocsp.
pub(crate) fn responder() -> CustomExtension {
    let access = access(&["http://127.0.0.1:1/ocsp".to_owned()]);
    CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], access)
}

/// `tlsfeature` with status_request.
pub(crate) fn must_staple() -> CustomExtension {
    CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 24], vec![0x30, 3, 2, 1, 5])
}

fn answer(subject: &Subject, status: Status) -> Answer<'_> {
    Answer::new(subject, status, at(NOW - DAY), Some(at(NOW + DAY)))
}

fn revoked() -> Status {
    Status::Revoked { at: String::new(), reason: None }
}

fn signed(answer: &Answer<'_>, key: &KeyPair) -> Vec<u8> {
    answer.write(|bytes| key.sign(bytes).unwrap())
}

#[test]
fn a_certificate_says_whom_to_ask_and_whether_it_demands_a_staple() {
    let authority = Authority::new("a");
    let (plain, _) = authority.issue(|_| {});
    let leaf = Leaf::of(&plain).unwrap();
    assert!(!leaf.names_responders() && !leaf.must_staple);
    let (full, _) = authority.issue(|it| it.custom_extensions = vec![responder(), must_staple()]);
    let leaf = Leaf::of(&full).unwrap();
    assert!(leaf.names_responders() && leaf.must_staple);
    let subject = subject(&full, &authority.certificate).unwrap();
    assert_eq!(subject.responders(), ["http://127.0.0.1:1/ocsp"]);
    assert!(super::harness::subject(&full, &Authority::new("a").certificate).is_none());
    assert!(Leaf::of(&[0x30, 0]).is_none());
}

/// Numbers that the rules for certificates do not allow, and that there are.
#[test]
fn a_certificate_with_an_odd_number_is_one_to_be_asked_about() {
    let authority = Authority::new("a");
    for number in [vec![0xff; 20], vec![0x80], vec![0, 0x80], vec![1; 20]] {
        let (certificate, _) = authority.issue(|params| {
            params.custom_extensions = vec![responder()];
            params.serial_number = Some(SerialNumber::from_slice(&number));
        });
        let subject = subject(&certificate, &authority.certificate).expect("its issuer is known");
        let response = signed(&answer(&subject, revoked()), authority.key());
        let verdict = subject.judge(&response, at(NOW)).unwrap();
        assert!(matches!(verdict.status, Status::Revoked { .. }), "{number:?}");
    }
}

/// RFC 6960, section 3.2, 1. and 2.: the certificate is the one that was asked about, and the
/// signature is valid.
#[test]
fn a_response_of_the_issuer_says_good_revoked_or_unknown() {
    let authority = Authority::new("a");
    let subject = authority.server();
    for status in [Status::Good, Status::Unknown] {
        let response = signed(&answer(&subject, status.clone()), authority.key());
        let verdict = subject.judge(&response, at(NOW)).unwrap();
        assert_eq!(verdict, Verdict { status, since: at(NOW - DAY), until: at(NOW + DAY) });
    }
    let response = signed(&answer(&subject, revoked()), authority.key());
    let verdict = subject.judge(&response, at(NOW)).unwrap();
    let Status::Revoked { at, reason } = verdict.status else { panic!("{verdict:?}") };
    assert_eq!((&*at, reason), ("2027-01-14T08:00:00Z", Some("keyCompromise")));
}

/// RFC 6960, section 4.2.1: a `ResponderID` is a name or the SHA-1 hash of a key; section 4.1.1: a
/// `CertID` has the hashes of an algorithm that the responder chooses, too.
#[test]
fn responders_may_name_themselves_and_certificates_in_two_ways() {
    let authority = Authority::new("a");
    let server = authority.server();
    let (delegate, key) = authority.issue(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::OcspSigning];
    });
    let judge = |answer: &Answer<'_>, key| server.judge(&signed(answer, key), at(NOW));
    for status in [Status::Good, revoked()] {
        let plain = || answer(&server, status.clone());
        for form in [plain().with_key(), plain().with_sha_256(), plain().with_key().with_sha_256()]
        {
            let verdict = judge(&form, authority.key()).unwrap();
            assert_eq!(verdict.status == Status::Good, status == Status::Good);
            let delegated = form.with_delegate(Some(&delegate));
            assert!(judge(&delegated, &key).is_ok());
            assert_eq!(judge(&delegated, authority.key()).unwrap_err(), InvalidResponse::Signature);
        }
    }
    let other = authority.server();
    let refused = judge(&answer(&other, Status::Good).with_sha_256(), authority.key());
    assert_eq!(refused.unwrap_err(), InvalidResponse::OtherCertificate);
}

#[test]
fn a_response_about_another_certificate_says_nothing() {
    let authority = Authority::new("a");
    let (one, another) = (authority.server(), authority.server());
    let response = signed(&answer(&one, Status::Good), authority.key());
    assert_eq!(another.judge(&response, at(NOW)), Err(InvalidResponse::OtherCertificate));
}

/// RFC 6960, section 4.2.2.2: the signer is the issuer, or has id-kp-OCSPSigning from it.
#[test]
fn only_the_issuer_and_its_delegates_may_sign() {
    let authority = Authority::new("a");
    let subject = authority.server();
    let stranger = KeyPair::generate().unwrap();
    let response = signed(&answer(&subject, Status::Good), &stranger);
    assert_eq!(subject.judge(&response, at(NOW)), Err(InvalidResponse::Signature));

    let with_usage = |authority: &Authority, usage: ExtendedKeyUsagePurpose| {
        authority.issue(|params| {
            params.extended_key_usages = vec![usage];
            params.distinguished_name.push(DnType::CommonName, "the responder");
        })
    };
    let by = |(certificate, key): &(CertificateDer<'static>, KeyPair)| {
        let answer = Answer { delegate: Some(certificate), ..answer(&subject, Status::Good) };
        subject.judge(&signed(&answer, key), at(NOW)).map(|verdict| verdict.status)
    };
    let delegate = with_usage(&authority, ExtendedKeyUsagePurpose::OcspSigning);
    assert_eq!(by(&delegate), Ok(Status::Good));
    let impostor = with_usage(&authority, ExtendedKeyUsagePurpose::ServerAuth);
    let refused = by(&impostor).unwrap_err();
    assert!(matches!(refused, InvalidResponse::Delegate(_)), "{refused}");
    let without = authority.issue(|_| {});
    assert!(matches!(by(&without), Err(InvalidResponse::Delegate(_))));
    let of_another = with_usage(&Authority::new("a"), ExtendedKeyUsagePurpose::OcspSigning);
    assert!(matches!(by(&of_another), Err(InvalidResponse::Delegate(_))));
}

/// "thisUpdate ⩽ t < nextUpdate" (OCSP Support, "Suggested OCSP Caching Behavior").
#[test]
fn a_response_is_valid_from_this_update_up_to_and_excluding_next_update() {
    let authority = Authority::new("a");
    let subject = authority.server();
    let response = signed(&answer(&subject, Status::Good), authority.key());
    let at_time = |seconds| subject.judge(&response, at(seconds)).map(drop);
    assert!(matches!(at_time(NOW - DAY - 1), Err(InvalidResponse::Early(_))));
    assert_eq!(at_time(NOW - DAY), Ok(()));
    assert_eq!(at_time(NOW + DAY - 1), Ok(()));
    assert!(matches!(at_time(NOW + DAY), Err(InvalidResponse::Late(_))));
    let endless = Answer { next_update: None, ..answer(&subject, Status::Good) };
    let endless = signed(&endless, authority.key());
    let at_time = |seconds| subject.judge(&endless, at(seconds)).map(|verdict| verdict.until);
    let began = NOW - DAY;
    assert_eq!(at_time(began + 300), Ok(at(began + 310)), "for those that are opened together");
    assert!(matches!(at_time(began + 301), Err(InvalidResponse::Late(_))), "it was kept");
}

#[test]
fn what_is_no_successful_basic_response_is_refused() {
    let subject = Authority::new("a").server();
    let judged = |bytes: &[u8]| subject.judge(bytes, at(NOW)).unwrap_err();
    assert_eq!(judged(&[0x30, 3, 0x0a, 1, 3]), InvalidResponse::Refused("tryLater"));
    assert_eq!(judged(&[0x30, 3, 0x0a, 1, 0]), InvalidResponse::Malformed);
    assert_eq!(judged(b""), InvalidResponse::Malformed);
    let other = [0x30, 13, 0x0a, 1, 0, 0xa0, 8, 0x30, 6, 6, 1, 0x2a, 4, 1, 0];
    assert_eq!(judged(&other), InvalidResponse::Type("1.2".into()));
    let wrong = HttpResponse::new(503, "");
    assert_eq!(subject.read(&wrong, at(NOW)), Err(UselessAnswer::Status(503)));
}

proptest! {
    /// A bit that is flipped anywhere makes a response say nothing, or what it said before.
    #[test]
    fn no_flipped_bit_changes_what_a_response_says(place in any::<prop::sample::Index>(), bit in 0..8) {
        let authority = Authority::new("a");
        let subject = authority.server();
        let mut response = signed(&answer(&subject, revoked()), authority.key());
        let index = place.index(response.len());
        response[index] ^= 1_u8 << bit;
        if let Ok(verdict) = subject.judge(&response, at(NOW)) {
            assert!(matches!(verdict.status, Status::Revoked { .. }));
        }
    }

    #[test]
    fn no_bytes_make_a_response_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        thread_local!(static SUBJECT: Subject = Authority::new("a").server());
        assert!(SUBJECT.with(|subject| subject.judge(&bytes, at(NOW))).is_err());
        assert!(Leaf::of(&bytes).is_none());
    }
}

fn verdict(status: Status, until: u64) -> Verdict {
    Verdict { status, since: at(NOW), until: at(until) }
}

/// Begins an inquiry, for which another connection waits.
fn asking(register: &mut Register, id: &CertificateId, now: u64) -> u64 {
    let Turn::Ask(inquiry) = register.turn(id, at(now), None) else { panic!("none asks") };
    assert_eq!(register.turn(id, at(now), None), Turn::Wait(inquiry));
    inquiry
}

fn is_asked(register: &mut Register, id: &CertificateId, now: u64, waited: Option<u64>) -> bool {
    matches!(register.turn(id, at(now), waited), Turn::Ask(_))
}

#[test]
fn one_at_a_time_asks_about_a_certificate_and_the_others_learn_what_came_of_it() {
    let id = Authority::new("a").server().id();
    let mut register = Register::default();
    let first = asking(&mut register, &id, NOW);
    assert!(register.give_up(&id, first));
    let second = asking(&mut register, &id, NOW);
    assert_ne!(first, second, "in its place");
    register.end(&id, second, Outcome::Answered(verdict(Status::Good, NOW + 5)), at(NOW));
    assert_eq!(register.turn(&id, at(NOW + 4), None), Turn::Known(Status::Good));
    assert!(is_asked(&mut register, &id, NOW + 5, None), "excluding nextUpdate");
}

/// A client that is not driven any more holds no other one up for long.
#[test]
fn an_inquiry_of_which_nothing_is_heard_is_given_up() {
    let id = Authority::new("a").server().id();
    let mut register = Register::default();
    let stuck = asking(&mut register, &id, NOW);
    assert_eq!(register.turn(&id, at(NOW + 7), None), Turn::Wait(stuck));
    let next = asking(&mut register, &id, NOW + 8);
    assert!(!register.give_up(&id, stuck));
    register.end(&id, stuck, Outcome::Unanswered, at(NOW + 9));
    assert_eq!(register.turn(&id, at(NOW + 9), None), Turn::Wait(next), "that is its own end");
    register.end(&id, stuck, Outcome::Answered(verdict(revoked(), NOW + 90)), at(NOW + 9));
    assert_eq!(register.turn(&id, at(NOW + 9), None), Turn::Known(revoked()), "late, and true");
}

/// A responder that is down holds up one connection a minute.
#[test]
fn after_an_inquiry_without_an_answer_the_next_is_a_minute_later() {
    let id = Authority::new("a").server().id();
    let mut register = Register::default();
    let inquiry = asking(&mut register, &id, NOW);
    register.end(&id, inquiry, Outcome::Unanswered, at(NOW));
    assert_eq!(register.turn(&id, at(NOW + 59), None), Turn::Unanswered);
    let inquiry = asking(&mut register, &id, NOW + 60);
    register.end(&id, inquiry, Outcome::Unanswered, at(NOW + 60));
    assert!(is_asked(&mut register, &id, NOW, None), "the clock was set back");
}

/// "An unknown certificate status SHOULD NOT be considered conclusive, and the corresponding OCSP
/// response SHOULD NOT be cached."
#[test]
fn an_unknown_status_is_not_kept_and_is_heard_every_ten_seconds() {
    let id = Authority::new("a").server().id();
    let mut register = Register::default();
    let inquiry = asking(&mut register, &id, NOW);
    let unknown = Outcome::Answered(verdict(Status::Unknown, NOW + 90));
    register.end(&id, inquiry, unknown, at(NOW));
    assert_eq!(register.status(&id, at(NOW)), None);
    assert_eq!(register.turn(&id, at(NOW + 9), None), Turn::Unanswered);
    assert!(is_asked(&mut register, &id, NOW + 10, None));
    let mut register = Register::default();
    assert!(!register.learn(&id, verdict(Status::Unknown, NOW + 90), at(NOW)));
    assert_eq!(register.status(&id, at(NOW)), None);
}

/// "If a driver would accept a stapled OCSP response and that response has a later `nextUpdate` than
/// the response already in the cache, drivers SHOULD replace the older entry in the cache with the
/// fresher response."
#[test]
fn the_fresher_response_is_kept_and_a_revocation_counts_at_once() {
    let id = Authority::new("a").server().id();
    let mut register = Register::default();
    let good = |until| verdict(Status::Good, until);
    register.learn(&id, good(NOW + 5), at(NOW));
    register.learn(&id, good(NOW + 3), at(NOW));
    assert_eq!(register.status(&id, at(NOW + 4)), Some(&Status::Good));
    register.learn(&id, good(NOW + 9), at(NOW));
    assert_eq!(register.status(&id, at(NOW + 8)), Some(&Status::Good));
    register.learn(&id, verdict(revoked(), NOW + 7), at(NOW));
    assert_eq!(register.status(&id, at(NOW + 6)), Some(&revoked()));
    register.learn(&id, good(NOW + 20), at(NOW));
    assert_eq!(register.status(&id, at(NOW + 6)), Some(&revoked()), "it is not younger");
    register.learn(&id, Verdict { since: at(NOW + 1), ..good(NOW + 7) }, at(NOW + 1));
    assert_eq!(register.status(&id, at(NOW + 6)), Some(&Status::Good), "a hold that has ended");
}

#[test]
fn a_register_that_is_full_forgets_what_is_out_of_date_first() {
    let (authority, mut register) = (Authority::new("a"), Register::default());
    let ids: Vec<_> = (0..MAX_CERTIFICATES + 1).map(|_| authority.server().id()).collect();
    let until = |index: usize| NOW + 100 + u64::try_from(index).unwrap();
    for (index, id) in ids.iter().take(MAX_CERTIFICATES).enumerate() {
        register.learn(id, verdict(Status::Good, until(index)), at(NOW));
    }
    let last = &ids[MAX_CERTIFICATES];
    register.learn(last, verdict(Status::Good, NOW + 5), at(NOW));
    assert_eq!(register.status(&ids[0], at(NOW)), None, "what would have been first");
    assert_eq!(register.status(&ids[1], at(NOW)), Some(&Status::Good));
    register.learn(&ids[0], verdict(Status::Good, NOW + 50), at(NOW + 5));
    assert_eq!(register.status(&ids[1], at(NOW + 5)), Some(&Status::Good), "there was room");
    assert_eq!(register.status(&ids[0], at(NOW + 5)), Some(&Status::Good));
}
