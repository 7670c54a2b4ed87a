//! The authority that has issued all certificates; made once, as keys take long.

use std::sync::OnceLock;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, SigningKey as _,
};
use sdam_core::revocation::harness::{Answer, access, subject};
use sdam_core::revocation::{Status, Subject};
use sdam_core::rustls::pki_types::{CertificateDer, UnixTime};

/// The number of certificates that there are.
pub(super) const CERTIFICATES: usize = 3;

/// The number of responders that the certificates name: one more each.
pub(super) const fn responders(certificate: usize) -> usize {
    certificate + 1
}

/// The one who signs a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signer {
    Authority,
    /// One with the right to.
    Delegate,
    /// One with a certificate of the authority's, and without the right to.
    Impostor,
    /// Somebody else, in the name of the authority.
    Stranger,
}

/// An authority, and what it has issued.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    stranger: KeyPair,
    delegate: (CertificateDer<'static>, KeyPair),
    impostor: (CertificateDer<'static>, KeyPair),
    subjects: Vec<Subject>,
}

impl Authority {
    pub(super) fn shared() -> &'static Self {
        static SHARED: OnceLock<Authority> = OnceLock::new();
        SHARED.get_or_init(Self::new)
    }

    fn new() -> Self {
        let key = || KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "the authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = key();
        let authority = params.self_signed(&own).expect("a certificate").der().clone();
        let issuer = Issuer::new(params, own);
        let issue = |change: &dyn Fn(&mut CertificateParams)| {
            let mut params = CertificateParams::new(["db.example".to_owned()]).expect("a name");
            change(&mut params);
            let key = key();
            let certificate = params.signed_by(&key, &issuer).expect("a certificate");
            (certificate.der().clone(), key)
        };
        let with_usage = |name: &str, usage: ExtendedKeyUsagePurpose| {
            issue(&|params| {
                params.distinguished_name.push(DnType::CommonName, name);
                params.extended_key_usages = vec![usage.clone()];
            })
        };
        let subjects = (0..CERTIFICATES).map(|index| {
            let addresses = (0..responders(index)).map(|it| format!("http://{it}.{index}.example"));
            let addresses: Vec<_> = addresses.collect();
            let oid = [1, 3, 6, 1, 5, 5, 7, 1, 1];
            let access = CustomExtension::from_oid_content(&oid, access(&addresses));
            let (certificate, _) = issue(&|params| params.custom_extensions = vec![access.clone()]);
            subject(&certificate, &authority).expect("it is the authority's")
        });
        let subjects: Vec<_> = subjects.collect();
        let delegate = with_usage("the delegate", ExtendedKeyUsagePurpose::OcspSigning);
        let impostor = with_usage("an impostor", ExtendedKeyUsagePurpose::ServerAuth);
        Self { issuer, stranger: key(), delegate, impostor, subjects }
    }

    pub(super) fn subject(&self, certificate: usize) -> &Subject {
        &self.subjects[certificate]
    }

    /// Signs a response about a certificate.
    pub(super) fn sign(
        &self,
        certificate: usize,
        status: Status,
        validity: (UnixTime, Option<UnixTime>),
        signer: Signer,
    ) -> Vec<u8> {
        let (delegate, key) = match signer {
            Signer::Authority => (None, self.issuer.key()),
            Signer::Stranger => (None, &self.stranger),
            Signer::Delegate => (Some(&self.delegate.0), &self.delegate.1),
            Signer::Impostor => (Some(&self.impostor.0), &self.impostor.1),
        };
        let subject = self.subject(certificate);
        let (this_update, next_update) = validity;
        Answer::new(subject, status, this_update, next_update)
            .with_delegate(delegate)
            .write(|bytes| key.sign(bytes).expect("a signature"))
    }
}

/// Returns a time that is so much later.
pub(super) fn later(time: UnixTime, by: Duration) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(time.as_secs()) + by)
}
