//! A client's work, from the caller down to the bytes of its streams.

use std::sync::Arc;

use bson::rawdoc;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, version};
use sdam_core::config::Options;
use sdam_core::logging::LogSettings;
use sdam_core::selection::Criteria;
use sdam_core::topology::Topics;
use sdam_core::transport::{TlsConfig, TlsMaterial, TrustAnchors};
use sdam_host::{Blueprint, SelectedServer, Settings, SocketRuntime, Topology};

use super::repeat;
use crate::in_memory::InMemory;
use crate::measured::counted;
use crate::server::{Keys, MEMBERS, PASSWORD, Server, USER};

/// A client, and what runs its tasks.
pub(super) struct Fixture {
    pub(super) client: Topology<SocketRuntime<InMemory>>,
    pub(super) reactor: InMemory,
}

impl Fixture {
    /// A client whose monitors wait for news.
    pub(super) fn new(server: Server) -> Self {
        Self::of(&settings("", false).blueprint().expect("a client"), server)
    }

    /// A client whose monitors ask from time to time.
    pub(super) fn polling(server: Server) -> Self {
        let uri =
            format!("mongodb://{}/?replicaSet=rs0&serverMonitoringMode=poll", MEMBERS.join(","));
        Self::of(&settings_of(&uri).blueprint().expect("a client"), server)
    }

    fn of(blueprint: &Blueprint, server: Server) -> Self {
        let reactor = InMemory::new(server);
        let (client, events) = blueprint.topology(reactor.clone(), Topics::NONE, None);
        drop(events);
        let fixture = Self { client, reactor };
        fixture.select();
        fixture.reactor.run();
        fixture
    }

    fn select(&self) -> SelectedServer<SocketRuntime<InMemory>> {
        self.reactor.wait(self.client.select(Criteria::write())).expect("a primary")
    }

    fn ping(&self) {
        let pinged = self.reactor.wait(self.client.run_command("admin", &rawdoc! { "ping": 1 }));
        drop(pinged.expect("a reply"));
    }

    /// Establishes a connection of its own.
    fn establish(&self, server: &SelectedServer<SocketRuntime<InMemory>>) {
        drop(self.reactor.wait(server.connect()).expect("a connection"));
        self.reactor.run();
    }
}

fn settings(user: &str, tls: bool) -> Settings {
    settings_of(&format!("mongodb://{user}{}/?replicaSet=rs0&tls={tls}", MEMBERS.join(",")))
}

fn settings_of(uri: &str) -> Settings {
    let mut settings = Settings::new(Options::parse(uri).expect("a connection string"));
    settings.seed = Some(1);
    settings.log = Some(LogSettings::default());
    settings
}

/// A client and a server that speak TLS 1.3, with a key and a signature of fixed lengths; sessions
/// are not taken up again.
fn with_tls() -> Fixture {
    let key = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
    let names = MEMBERS.map(|member| member.trim_end_matches(":27017").to_owned());
    let certificate = CertificateParams::new(names).expect("names").self_signed(&key);
    let pem = certificate.expect("a certificate").pem();
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
    let mut server = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_protocol_versions(&[&version::TLS13])
        .expect("a version")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a key of the certificate");
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    let material = TlsMaterial::default().with_anchors(TrustAnchors::Pem(pem.as_bytes()));
    let mut settings = settings("", true);
    settings.set_tls(TlsConfig::from_pem(&material).expect("an authority"));
    let server = Server { tls: Some(Arc::new(server)), ..Server::default() };
    Fixture::of(&settings.blueprint().expect("a client"), server)
}

fn with_user() -> Fixture {
    let user = format!("{USER}:{PASSWORD}@");
    let blueprint = settings(&user, false).blueprint().expect("a client");
    Fixture::of(&blueprint, Server { keys: Some(Keys::new()), ..Server::default() })
}

/// Selects the primary.
pub(super) fn selection() -> u64 {
    let (fixture, criteria) = (Fixture::new(Server::default()), Arc::new(Criteria::write()));
    repeat(1000, || {
        let selected = fixture.reactor.wait(fixture.client.select(Arc::clone(&criteria)));
        drop(selected.expect("a primary"));
    })
}

/// Checks a connection out and in.
pub(super) fn check_out_and_in() -> u64 {
    let fixture = Fixture::new(Server::default());
    let server = fixture.select();
    repeat(1000, || drop(fixture.reactor.wait(server.check_out()).expect("a connection")))
}

/// Sends `{ping: 1}` and reads the reply.
pub(super) fn ping() -> u64 {
    let fixture = Fixture::new(Server::default());
    repeat(100, || fixture.ping())
}

/// The same, counted.
pub(super) fn ping_with_metrics() -> u64 {
    let fixture = Fixture::new(Server::default());
    drop(fixture.client.metrics());
    repeat(100, || fixture.ping())
}

/// The same over TLS.
pub(super) fn ping_with_tls() -> u64 {
    let fixture = with_tls();
    repeat(100, || fixture.ping())
}

/// Reads a reply to hello that says what the last one said, and publishes its time.
pub(super) fn unchanged_heartbeat() -> u64 {
    let Fixture { client, reactor } = Fixture::new(Server::default());
    let mut times = 0;
    for round in 0..30 {
        let count = reactor.repeat_hello();
        assert_eq!(count, MEMBERS.len(), "each member is watched");
        match round {
            0..10 => reactor.run(),
            _ => {
                counted(&mut || reactor.run());
                times += count as u64;
            }
        }
    }
    drop(client);
    times
}

/// Establishes a connection: opens a stream, says hello and reads the answer.
pub(super) fn establishing() -> u64 {
    let fixture = Fixture::new(Server::default());
    let server = fixture.select();
    repeat(20, || fixture.establish(&server))
}

/// The same with a whole handshake of TLS before that.
pub(super) fn establishing_with_tls() -> u64 {
    let fixture = with_tls();
    let server = fixture.select();
    repeat(10, || fixture.establish(&server))
}

/// Establishes the first connection with a password, from which keys are derived.
pub(super) fn establishing_with_scram_sha_256() -> u64 {
    let fixture = with_user();
    let server = fixture.select();
    counted(&mut || fixture.establish(&server));
    1
}

/// Establishes another connection with that password.
pub(super) fn establishing_with_known_keys() -> u64 {
    let fixture = with_user();
    let server = fixture.select();
    repeat(20, || fixture.establish(&server))
}

/// Makes a client, finds the primary, and pings it.
pub(super) fn cold_start_to_first_ping() -> u64 {
    let blueprint = settings("", false).blueprint().expect("a client");
    repeat(5, || Fixture::of(&blueprint, Server::default()).ping())
}
