//! Servers whose certificates were revoked: a real server that staples or not, and a real responder.

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use sdam_conformance::mongod::{Binary, Config, Server, Tls};
use sdam_conformance::responder::{Keys, Kind, Responder, RevokingAuthority, Signer};
use sdam_core::bson::rawdoc;
use sdam_core::config::Options;
use sdam_core::failure::{Cause, Stage};
use sdam_core::pool::PoolEvent;
use sdam_core::topology::EventKind;
use sdam_tokio::Topology;

use super::Scenario;
use super::scenarios::{GENEROUS, failure, known, look, runtime};
use crate::Outcome;

/// Scenarios for servers that ask their responder themselves.
pub(super) const OF_STAPLES: [Scenario; 4] = [
    ("ocsp_p2_staples_rsa_authority", |it| staples(it, Keys::Rsa, Signer::Authority)),
    ("ocsp_p2_staples_rsa_delegate", |it| staples(it, Keys::Rsa, Signer::Delegate)),
    ("ocsp_p2_staples_ecdsa_authority", |it| staples(it, Keys::Ecdsa, Signer::Authority)),
    ("ocsp_p2_staples_ecdsa_delegate", |it| staples(it, Keys::Ecdsa, Signer::Delegate)),
];

/// Scenarios for servers that do not.
pub(super) const WITHOUT_STAPLES: [Scenario; 7] = [
    ("ocsp_p2_no_staple_rsa_authority", |it| no_staple(it, Keys::Rsa, Signer::Authority)),
    ("ocsp_p2_no_staple_rsa_delegate", |it| no_staple(it, Keys::Rsa, Signer::Delegate)),
    ("ocsp_p2_no_staple_ecdsa_authority", |it| no_staple(it, Keys::Ecdsa, Signer::Authority)),
    ("ocsp_p2_no_staple_ecdsa_delegate", |it| no_staple(it, Keys::Ecdsa, Signer::Delegate)),
    ("ocsp_p2_no_responder", no_responder),
    ("ocsp_a_responder_that_is_silent_is_what_connections_wait_for", silent_responder),
    ("ocsp_p3_a_responder_is_asked_once", p3),
];

/// Returns the servers that staple: those that scripts/fetch-mongod has of other versions never ask a
/// responder, nor do servers before 4.4 (OCSP Support, "Required Server Versions").
pub(super) fn stapling_binaries() -> Vec<Binary> {
    let staples = |binary: &Binary| ["4.4.2", "6.0.5"].contains(&&*binary.version().to_string());
    Binary::all().into_iter().flatten().filter(staples).collect()
}

const STAPLES: Kind = Kind { is_revoked: false, must_staple: false, is_silent: false };
const SILENT: Kind = Kind { is_silent: true, ..STAPLES };

/// A server, and the connection string by which its authority is trusted.
struct Scene {
    server: Server,
    uri: String,
}

impl Scene {
    fn new(
        binary: &Binary,
        authority: &RevokingAuthority,
        responder: SocketAddr,
        kind: Kind,
    ) -> Outcome<Self> {
        let config = authority.server(kind, responder)?;
        let tls = config.tls.map(Tls::required);
        let server = Server::start(binary, Config { tls, ..config })?;
        let uri =
            format!("mongodb://{}/?tls=true&tlsCAFile={}", server.address(), authority.file());
        Ok(Self { server, uri })
    }

    fn accepted(&self) -> Outcome {
        known(&self.uri)?;
        self.accepted_without_checks()
    }

    fn refused(&self, cause: &Cause) -> Outcome {
        let (error, verdict) = failure(&self.uri)?;
        assert_eq!((error.stage, &error.cause), (Stage::Tls, cause), "{error}");
        let expected = match cause {
            Cause::CertificateRevoked => "certificateRevoked",
            _ => "stapleInvalid",
        };
        assert_eq!(verdict.name(), expected, "{verdict}");
        self.accepted_without_checks()
    }

    /// The options that turn OCSP off let a client connect to any server.
    fn accepted_without_checks(&self) -> Outcome {
        for option in ["tlsInsecure=true", "tlsAllowInvalidCertificates=true"] {
            known(&format!("mongodb://{}/?tls=true&{option}", self.server.address()))?;
        }
        Ok(())
    }

    /// Waits until the server staples: a client that asks no responder comes to this end then.
    fn stapled(&self, cause: Option<&Cause>) -> Outcome {
        let uri = format!("{}&tlsDisableOCSPEndpointCheck=true", self.uri);
        let deadline = Instant::now() + GENEROUS;
        loop {
            let found = look(&uri)?.err().map(|(failure, _)| failure.cause);
            match found.as_ref() == cause {
                true => return self.accepted_without_checks(),
                false if Instant::now() > deadline => {
                    return Err(format!("the server does not staple: {found:?}").into());
                }
                false => thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

/// OCSP-P2, "staples, valid" and "staples, revoked".
fn staples(binary: &Binary, keys: Keys, signer: Signer) -> Outcome {
    let authority = RevokingAuthority::new(keys)?;
    let responder = Responder::start(&authority, signer)?;
    let start = |kind| Scene::new(binary, &authority, responder.address(), kind);
    // That it demands a staple shows that the server sends one, once it has it.
    start(Kind { must_staple: true, ..STAPLES })?.stapled(None)?;
    start(Kind { is_revoked: true, ..STAPLES })?.stapled(Some(&Cause::CertificateRevoked))
}

/// OCSP-P2, "no staple, valid" and "no staple, revoked", and that with a certificate that demands a
/// staple.
fn no_staple(binary: &Binary, keys: Keys, signer: Signer) -> Outcome {
    let authority = RevokingAuthority::new(keys)?;
    let responder = Responder::start(&authority, signer)?;
    let start = |kind| Scene::new(binary, &authority, responder.address(), kind);
    start(SILENT)?.accepted()?;
    start(Kind { is_revoked: true, ..SILENT })?.refused(&Cause::CertificateRevoked)?;
    assert_eq!(responder.asked(), 2, "about each certificate once");
    start(Kind { is_revoked: true, must_staple: true, ..SILENT })?.refused(&Cause::InvalidStaple)
}

/// OCSP-P2, the columns without a responder: "soft fail", but for a certificate that demands a
/// staple.
fn no_responder(binary: &Binary) -> Outcome {
    for keys in [Keys::Rsa, Keys::Ecdsa] {
        let authority = RevokingAuthority::new(keys)?;
        let closed = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let start = |kind| Scene::new(binary, &authority, closed, kind);
        start(SILENT)?.accepted()?;
        start(Kind { must_staple: true, ..SILENT })?.refused(&Cause::InvalidStaple)?;
    }
    Ok(())
}

/// The wait is neither of TLS nor of the server.
fn silent_responder(binary: &Binary) -> Outcome {
    let authority = RevokingAuthority::new(Keys::Ecdsa)?;
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let scene = Scene::new(binary, &authority, silent.local_addr()?, SILENT)?;
    let uri = format!("{}&directConnection=true&connectTimeoutMS=4000", scene.uri);
    runtime()?.block_on(async {
        let (client, mut events) = Topology::with_events(Options::parse(&uri)?)?;
        client.run_command("admin", &rawdoc! { "ping": 1 }).await?;
        while let Some(event) = events.next().await {
            if let EventKind::Pool { event: PoolEvent::ConnectionReady { stages, .. }, .. } =
                event.kind
            {
                let longest = stages.iter().max_by_key(|(_, took)| *took);
                assert_eq!(longest.map(|(stage, _)| *stage), Some(Stage::Revocation), "{stages:?}");
                return Ok(());
            }
        }
        Err("no connection is ready".into())
    })
}

/// OCSP-P3: "without a staple the responder is asked, once", however many connections there are.
fn p3(binary: &Binary) -> Outcome {
    let authority = RevokingAuthority::new(Keys::Ecdsa)?;
    let responder = Responder::start(&authority, Signer::Delegate)?;
    let scene = Scene::new(binary, &authority, responder.address(), SILENT)?;
    for option in ["tlsDisableOCSPEndpointCheck", "tlsDisableCertificateRevocationCheck"] {
        known(&format!("{}&{option}=true", scene.uri))?;
    }
    assert_eq!(responder.asked(), 0, "as the options say");
    let look = || {
        let uri = scene.uri.clone();
        thread::spawn(move || known(&uri).map_err(|error| error.to_string()))
    };
    let looks: Vec<_> = (0..8).map(|_| look()).collect();
    for look in looks {
        look.join().map_err(|_| "a thread panicked")??;
    }
    assert_eq!(responder.asked(), 1);
    Ok(())
}
