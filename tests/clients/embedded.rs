//! The embedded deployment behind TLS and logins.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sdam_cluster::certificates::Authority;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, MemberId, TlsIdentity, User};
use sdam_core::bson::rawdoc;
use sdam_core::config::Options;
use sdam_core::metrics::Exposition;
use sdam_tokio::Topology;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{is_whole, soon, view};

/// An authority, and a deployment of three members with its certificate and a user.
struct Fixture {
    authority: Authority,
    cluster: EmbeddedCluster,
}

fn alice(password: &str) -> User {
    User::new("alice", password).with_iterations(4096)
}

fn options() -> EmbeddedOptions {
    let election_timeout = Duration::from_millis(500);
    EmbeddedOptions::default()
        .with_users(vec![alice("secret")])
        .with_election_timeout(election_timeout)
}

impl Fixture {
    async fn with_tls() -> Self {
        let authority = Authority::new("the authority").unwrap();
        let file = authority.issue("member", &["127.0.0.1", "localhost"]).unwrap();
        let tls = Some(TlsIdentity::from_pem_file(file).unwrap());
        let start = EmbeddedCluster::start_with(options().with_tls(tls), |_, member| {
            let outside = member.address.to_string().replace("127.0.0.1", "localhost");
            member.horizons.insert("outside".to_owned(), outside.parse().unwrap());
        });
        Self { cluster: start.await.unwrap(), authority }
    }

    /// Returns the connection string of the user.
    fn uri(&self) -> String {
        let uri = self.cluster.uri().replace("mongodb://", "mongodb://alice:secret@");
        format!("{uri}&tlsCAFile={}", self.authority.file())
    }
}

fn client(uri: &str) -> Topology {
    Topology::new(Options::parse(uri).unwrap()).unwrap()
}

/// Runs a command that is only for those who have logged in.
async fn insert(client: &Topology) -> Result<(), String> {
    let insert = rawdoc! { "insert": "things", "documents": [{}] };
    let reply = soon(client.run_command("test", &insert)).await;
    reply.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn the_name_in_the_opening_of_tls_chooses_the_horizon() {
    let fixture = Fixture::with_tls().await;
    for host in ["127.0.0.1", "localhost"] {
        let client = client(&fixture.uri().replace("127.0.0.1", host));
        view(&client, is_whole).await;
        for server in client.view().servers().iter() {
            assert!(server.address.to_string().starts_with(host), "{}", server.address);
        }
        client.close().await;
    }
}

/// The metric that Prometheus alerts on before a certificate expires.
#[tokio::test]
async fn the_time_when_certificates_expire_is_a_metric_of_each_server() {
    const LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
    let fixture = Fixture::with_tls().await;
    let file = fixture.authority.issue_for(LIFETIME, "late", &["127.0.0.1"]).unwrap();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let expected = (now() + LIFETIME).as_secs();
    let tls = Some(TlsIdentity::from_pem_file(file).unwrap());
    let cluster = EmbeddedCluster::start(options().with_tls(tls)).await.unwrap();
    let ca = format!("tlsCAFile={}", fixture.authority.file());
    let unchecked = format!("{ca}&tlsDisableCertificateRevocationCheck=true");
    for tls in [&*ca, &unchecked, "tlsInsecure=true&tls=true"] {
        let client = client(&format!("{}&{tls}", cluster.uri()));
        view(&client, is_whole).await;
        let text = Exposition::new(&client.metrics()).to_string();
        client.close().await;
        let is_sample = |line: &&str| line.starts_with("sdam_server_certificate_expiry_seconds{");
        let values = text.lines().filter(is_sample).map(|line| line.rsplit(' ').next().unwrap());
        let values: Vec<f64> = values.map(|value| value.parse().unwrap()).collect();
        assert_eq!(values.len(), 3, "{tls}");
        let is_right = |value: &f64| (value - expected as f64).abs() < 3600.0;
        assert!(values.iter().all(is_right), "{values:?}, and not {expected}");
    }
    let plain = EmbeddedCluster::start(options()).await.unwrap();
    let client = client(&plain.uri());
    view(&client, is_whole).await;
    assert!(!Exposition::new(&client.metrics()).to_string().contains("certificate"));
}

#[tokio::test]
async fn a_user_without_a_password_is_refused() {
    let cluster = EmbeddedCluster::start(options()).await.unwrap();
    let refused = cluster.change_users(vec![alice("")]).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    assert!(refused.to_string().contains("password"), "{refused}");
}

#[tokio::test]
async fn a_test_commands_a_member_past_tls_and_logins() {
    let fixture = Fixture::with_tls().await;
    let primary = soon(fixture.cluster.elected()).await.unwrap();
    let fail = rawdoc! {
        "configureFailPoint": "failCommand",
        "mode": { "times": 1 },
        "data": { "failCommands": ["saslContinue"], "errorCode": 18 },
    };
    fixture.cluster.run_command(primary, fail).await.unwrap();
    let client = client(&fixture.uri());
    let refused = insert(&client).await.unwrap_err();
    assert!(refused.contains("failCommand"), "{refused}");
    insert(&client).await.expect("it was for once");
}

#[tokio::test]
async fn a_client_that_does_not_speak_tls_is_disconnected_and_a_kill_does_not_wait_for_it() {
    let fixture = Fixture::with_tls().await;
    let address = fixture.cluster.addresses()[0];
    let mut talker = TcpStream::connect(address).await.unwrap();
    talker.write_all(&[0x3a; 64]).await.unwrap();
    let mut rest = Vec::new();
    // An alert may come first.
    let _ = soon(talker.read_to_end(&mut rest)).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    // The opening may take longer.
    soon(fixture.cluster.kill(MemberId(0))).await.unwrap();
    let _ = soon(silent.read_to_end(&mut rest)).await;
}

#[test]
fn a_certificate_without_its_key_is_refused_with_what_is_needed() {
    let authority = Authority::new("the authority").unwrap();
    let certificate = std::fs::read(authority.file()).unwrap();
    for text in [&b""[..], b"nothing", &certificate] {
        let refused = TlsIdentity::from_pem(text).unwrap_err();
        assert!(refused.to_string().contains("private key"), "{refused}");
    }
    let own = authority.issue("member", &["localhost"]).unwrap();
    let key = std::fs::read_to_string(&own).unwrap();
    let key = &key[key.find("-----BEGIN PRIVATE").unwrap()..];
    let mismatch = [&certificate[..], key.as_bytes()].concat();
    let refused = TlsIdentity::from_pem(&mismatch).unwrap_err();
    assert!(refused.to_string().contains("cannot be used"), "{refused}");
    let shown = format!("{:?}", TlsIdentity::from_pem_file(own).unwrap());
    assert!(!shown.contains("key"), "{shown}");
    assert!(TlsIdentity::from_pem_file("/nowhere/at.all").is_err());
}
