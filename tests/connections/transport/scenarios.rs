//! The experience of a client whose servers speak TLS, or are behind a proxy.

use std::thread;
use std::time::{Duration, Instant};

use sdam_cluster::certificates::Authority;
use sdam_conformance::mongod::{Binary, Config, Options as SetOptions, ReplicaSet, Server, Tls};
use sdam_conformance::proxy::Proxy;
use sdam_core::bson::rawdoc;
use sdam_core::config::{Options, ProxyOptions, ReadMode, ReadPreference};
use sdam_core::description::ServerType;
use sdam_core::diagnosis::Verdict;
use sdam_core::failure::{Cause, Failure, ProxyRefusal, Stage};
use sdam_core::selection::Criteria;
use sdam_core::topology::{EventKind, Topics};
use sdam_tokio::{ClientBuilder, Topology};

use super::Scenario;
use crate::{Outcome, V5_0};

/// The time limit of steps that depend on the load of the machine.
pub(super) const GENEROUS: Duration = Duration::from_secs(60);

pub(crate) const WITHOUT_A_PROXY: [Scenario; 6] = [
    ("a_server_that_requires_tls_is_known_by_its_certificate", required),
    ("a_server_may_require_a_certificate_of_the_client", client_certificate),
    ("a_server_without_tls_is_told", not_expected),
    ("a_certificate_that_expires_is_refused_from_then_on", expired),
    ("a_self_signed_certificate_is_refused", self_signed),
    ("certificates_that_are_replaced_serve_new_connections", replaced),
];

pub(crate) const THROUGH_A_PROXY: [Scenario; 4] = [
    ("a_server_is_reached_through_a_proxy", proxy),
    ("a_proxy_may_demand_a_password", proxy_with_password),
    ("tls_goes_through_a_proxy", proxy_with_tls),
    ("socks_p1_a_set_is_reached_with_the_right_password", socks_p1),
];

/// A server that speaks TLS only, with clients that have a certificate and others.
fn tls_server(
    binary: &Binary,
    authority: &Authority,
    key: &str,
) -> Result<Server, Box<dyn std::error::Error>> {
    let tls = Some(Tls::new(key, authority.file()).required());
    Ok(Server::start(binary, Config { tls, ..Config::default() })?)
}

/// Returns a client's finding about the only server at this URI: its type, or why it is not known.
pub(super) fn look(
    uri: &str,
) -> Result<Result<ServerType, (Failure, Verdict)>, Box<dyn std::error::Error>> {
    let uri = format!("{uri}&directConnection=true&serverSelectionTimeoutMS=0");
    look_by(Topology::builder(Options::parse(&uri)?))
}

fn look_by(
    client: ClientBuilder,
) -> Result<Result<ServerType, (Failure, Verdict)>, Box<dyn std::error::Error>> {
    runtime()?.block_on(async {
        let client = client.build()?;
        let (server_type, failure) = first_news(&client).await?;
        match (failure, client.select(Criteria::write()).await) {
            (None, Ok(_)) => Ok(Ok(server_type)),
            (Some(failure), Err(error)) => {
                let verdict = error.verdict().cloned().ok_or("no server is to be found")?;
                Ok(Err((failure, verdict)))
            }
            (failure, _) => Err(format!("the view and the selection differ: {failure:?}").into()),
        }
    })
}

pub(super) fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn first_news(
    client: &Topology,
) -> Result<(ServerType, Option<Failure>), Box<dyn std::error::Error>> {
    let mut views = client.watch_topology();
    tokio::time::timeout(GENEROUS, async {
        while let Some(view) = views.next().await {
            let server = view.servers().iter().next().ok_or("there is no server")?;
            if server.server_type != ServerType::Unknown || server.error.is_some() {
                return Ok((server.server_type, server.error.clone()));
            }
        }
        Err("the client was closed".into())
    })
    .await?
}

pub(super) fn known(uri: &str) -> Outcome {
    match look(uri)? {
        Ok(ServerType::Standalone) => Ok(()),
        other => Err(format!("{uri} leads to {other:?}").into()),
    }
}

pub(super) fn failure(uri: &str) -> Result<(Failure, Verdict), Box<dyn std::error::Error>> {
    look(uri)?.err().ok_or_else(|| format!("{uri} leads to a server").into())
}

fn required(binary: &Binary) -> Outcome {
    let authority = Authority::new("the authority")?;
    let server = tls_server(binary, &authority, &authority.issue("server", &["127.0.0.1"])?)?;
    let (port, ca) = (server.address().port().unwrap_or_default(), authority.file());
    let by_address = format!("mongodb://127.0.0.1:{port}/?tls=true");
    let by_name = format!("mongodb://localhost:{port}/?tls=true");
    known(&format!("{by_address}&tlsCAFile={ca}"))?;

    let (error, verdict) = failure(&format!("mongodb://127.0.0.1:{port}/?appName=x"))?;
    assert_eq!((error.stage, &error.cause), (Stage::Hello, &Cause::Closed));
    assert!(error.detail.contains("may expect TLS"), "{error}");
    assert_eq!(verdict, Verdict::TlsExpected { certain: false });

    let (error, verdict) = failure(&format!("{by_name}&tlsCAFile={ca}"))?;
    assert_eq!((error.stage, &error.cause), (Stage::Tls, &Cause::CertificateName));
    assert!(error.detail.contains("127.0.0.1"), "{error}");
    assert_eq!(verdict, Verdict::CertificatesRefused);
    known(&format!("{by_name}&tlsCAFile={ca}&tlsAllowInvalidHostnames=true"))?;

    let other = Authority::new("another authority")?.file();
    let (error, verdict) = failure(&format!("{by_address}&tlsCAFile={other}"))?;
    let gone = (Stage::Certificates, &Cause::Configuration);
    assert_eq!((error.stage, &error.cause), gone, "it is gone");
    assert_eq!(verdict.name(), "certificatesUnavailable");
    let other = Authority::new("another authority")?;
    let (error, _) = failure(&format!("{by_address}&tlsCAFile={}", other.file()))?;
    assert_eq!((error.stage, error.cause), (Stage::Tls, Cause::UnknownIssuer));
    known(&format!("{by_address}&tlsAllowInvalidCertificates=true"))
}

fn client_certificate(binary: &Binary) -> Outcome {
    let authority = Authority::new("the authority")?;
    let key = authority.issue("server", &["127.0.0.1"])?;
    let tls = Tls { client_certificates: true, ..Tls::new(key, authority.file()).required() };
    let server = Server::start(binary, Config { tls: Some(tls), ..Config::default() })?;
    let uri = format!("mongodb://{}/?tls=true&tlsCAFile={}", server.address(), authority.file());
    let key = authority.issue("client", &["client"])?;
    known(&format!("{uri}&tlsCertificateKeyFile={key}"))?;
    // The same from a function.
    let direct = format!("{uri}&directConnection=true&serverSelectionTimeoutMS=0");
    let client = Topology::builder(Options::parse(&direct)?);
    let client = client.certificate_key_provider(move || {
        std::fs::read_to_string(&key).map(sdam_core::config::Secret::from)
    });
    assert_eq!(look_by(client)?, Ok(ServerType::Standalone));
    // It says so by an alert, which the end of the connection may overtake.
    let (error, _) = failure(&uri)?;
    assert!(matches!(error.cause, Cause::TlsRefused { .. } | Cause::Closed), "{error:?}");
    Ok(())
}

fn expired(binary: &Binary) -> Outcome {
    let authority = Authority::new("the authority")?;
    // A server does not start with a certificate that has expired, and on a busy machine it takes
    // its time until then.
    for seconds in [5, 15, 45] {
        let lifetime = Duration::from_secs(seconds);
        let key = authority.issue_for(lifetime, "server", &["127.0.0.1"])?;
        let expiry = Instant::now() + lifetime;
        let server = match tls_server(binary, &authority, &key) {
            Err(error) if Instant::now() < expiry => return Err(error),
            Err(_) => continue,
            Ok(server) => server,
        };
        let uri = format!("mongodb://{}/?tlsCAFile={}", server.address(), authority.file());
        if look(&uri)?.is_ok() {
            return until_expired(&uri, expiry + GENEROUS);
        }
    }
    Err("no server was seen before its certificate had expired".into())
}

/// Looks at a server that was seen until its certificate is refused.
fn until_expired(uri: &str, deadline: Instant) -> Outcome {
    loop {
        match look(uri)? {
            Ok(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(100)),
            Ok(_) => return Err("the certificate never expires".into()),
            Err((error, verdict)) => {
                assert_eq!((error.stage, error.cause), (Stage::Tls, Cause::CertificateExpired));
                assert_eq!(verdict, Verdict::CertificatesRefused);
                break;
            }
        }
    }
    // URI Options: another name is all that this forgives.
    let (error, _) = failure(&format!("{uri}&tlsAllowInvalidHostnames=true"))?;
    assert_eq!((error.stage, error.cause), (Stage::Tls, Cause::CertificateExpired));
    known(&format!("{uri}&tlsAllowInvalidCertificates=true"))
}

fn self_signed(binary: &Binary) -> Outcome {
    let authority = Authority::new("the authority")?;
    let key = authority.self_signed("server", &["127.0.0.1"])?;
    let server = tls_server(binary, &authority, &key)?;
    let uri = format!("mongodb://{}/?tlsCAFile={}", server.address(), authority.file());
    let (error, verdict) = failure(&uri)?;
    assert_eq!((error.stage, error.cause), (Stage::Tls, Cause::UnknownIssuer));
    assert_eq!(verdict, Verdict::CertificatesRefused);
    known(&format!("{uri}&tlsAllowInvalidCertificates=true"))
}

fn not_expected(binary: &Binary) -> Outcome {
    let server = Server::start(binary, Config::default())?;
    let uri = format!("mongodb://{}/?tlsAllowInvalidCertificates=true", server.address());
    let (error, verdict) = failure(&uri)?;
    assert_eq!((error.stage, &error.cause), (Stage::Tls, &Cause::Closed), "{error}");
    assert!(error.detail.contains("may not speak TLS"), "{error}");
    assert_eq!(verdict, Verdict::TlsNotExpected { certain: false });
    Ok(())
}

fn replaced(binary: &Binary) -> Outcome {
    let (authority, other) = (Authority::new("the authority")?, Authority::new("another one")?);
    let server = tls_server(binary, &authority, &authority.issue("server", &["127.0.0.1"])?)?;
    let uri = format!(
        "mongodb://{}/?tlsCAFile={}&heartbeatFrequencyMS=500",
        server.address(),
        other.file()
    );
    let options = Options::parse(&uri)?;
    runtime()?.block_on(async {
        let client = Topology::new(options)?;
        let (_, error) = first_news(&client).await?;
        assert_eq!(error.map(|error| error.cause), Some(Cause::UnknownIssuer));
        other.become_like(&authority)?;
        let primary = client.select(Criteria::write()).await?;
        assert_eq!(primary.description().server_type, ServerType::Standalone);
        Ok(())
    })
}

fn proxy(binary: &Binary) -> Outcome {
    let server = Server::start(binary, Config::default())?;
    let port = server.address().port().unwrap_or_default();
    let proxy = Proxy::start(None)?;
    let through = format!("proxyHost=127.0.0.1&proxyPort={}", proxy.port());
    known(&format!("mongodb://127.0.0.1:{port}/?{through}"))?;
    known(&format!("mongodb://localhost:{port}/?{through}"))?;
    assert!(proxy.log().contains("connected to localhost"), "{}", proxy.log());

    let (error, verdict) = failure(&format!("mongodb://127.0.0.1:1/?{through}"))?;
    let refusal = ProxyRefusal::ConnectionRefused;
    assert_eq!((error.stage, error.cause), (Stage::Proxy, Cause::ProxyRefused { refusal }));
    assert_eq!(verdict, Verdict::ProxyFailed);
    let nobody = "proxyHost=127.0.0.1&proxyPort=1";
    let (error, _) = failure(&format!("mongodb://127.0.0.1:{port}/?{nobody}"))?;
    assert_eq!((error.stage, error.cause), (Stage::Proxy, Cause::Refused));
    Ok(())
}

fn proxy_with_password(binary: &Binary) -> Outcome {
    let server = Server::start(binary, Config::default())?;
    let proxy = Proxy::start(Some(("user", "secret")))?;
    let uri =
        format!("mongodb://{}/?proxyHost=127.0.0.1&proxyPort={}", server.address(), proxy.port());
    known(&format!("{uri}&proxyUsername=user&proxyPassword=secret"))?;
    let (error, _) = failure(&format!("{uri}&proxyUsername=user&proxyPassword=wrong"))?;
    let refusal = ProxyRefusal::Credentials;
    assert_eq!((error.stage, error.cause), (Stage::Proxy, Cause::ProxyRefused { refusal }));
    let (error, _) = failure(&uri)?;
    let refusal = ProxyRefusal::NoAcceptableMethod;
    assert_eq!((error.stage, error.cause), (Stage::Proxy, Cause::ProxyRefused { refusal }));
    Ok(())
}

fn proxy_with_tls(binary: &Binary) -> Outcome {
    let authority = Authority::new("the authority")?;
    let server = tls_server(binary, &authority, &authority.issue("server", &["localhost"])?)?;
    let proxy = Proxy::start(Some(("user", "secret")))?;
    known(&format!(
        "mongodb://localhost:{}/?tlsCAFile={}&proxyHost=127.0.0.1&proxyPort={}\
         &proxyUsername=user&proxyPassword=secret",
        server.address().port().unwrap_or_default(),
        authority.file(),
        proxy.port(),
    ))
}

/// Credentials for a proxy, and whether one that demands a login takes them.
type Login = Option<(&'static str, &'static str)>;

const RIGHT: Login = Some(("username", "p4ssw0rd"));
const WRONG: Login = Some(("nonexistentuser", "badauth"));

/// SOCKS-P1: through a proxy that demands a login, and one that does not, to a member and to the
/// whole set, with TLS and without; by the URI and by options.
fn socks_p1(binary: &Binary) -> Outcome {
    if binary.version() < V5_0 {
        return Ok(());
    }
    for with_tls in [false, true] {
        let authority = Authority::new("the authority")?;
        let mut options = SetOptions::calm();
        if with_tls {
            let member = authority.issue("member", &["127.0.0.1", "localhost"])?;
            options.tls = Some(Tls::new(member, authority.file()));
        }
        let set = ReplicaSet::start(binary, 3, &options)?;
        let seeds: Vec<String> = set.seed_list().iter().map(ToString::to_string).collect();
        let port = set.seed_list()[0].port().unwrap_or_default();
        let tls = if with_tls {
            format!("&tls=true&tlsCAFile={}", authority.file())
        } else {
            String::new()
        };
        let member = format!("mongodb://localhost:{port}/?directConnection=true{tls}");
        let whole = format!("mongodb://{}/?replicaSet=rs{tls}", seeds.join(","));
        let (demands, open) = (Proxy::start(RIGHT)?, Proxy::start(None)?);
        let cases = [
            (&demands, None, false),
            (&demands, WRONG, false),
            (&demands, RIGHT, true),
            (&open, None, true),
            (&open, WRONG, true),
        ];
        for (proxy, login, expected) in cases {
            for uri in [&member, &whole] {
                for through in [by_uri(uri, proxy, login)?, by_options(uri, proxy, login)?] {
                    let found = greets(through)?;
                    let proxy = if std::ptr::eq(proxy, &demands) { "demanding" } else { "open" };
                    assert_eq!(found, expected, "{uri} with {login:?} through the {proxy} proxy");
                }
            }
        }
    }
    Ok(())
}

fn by_uri(uri: &str, proxy: &Proxy, login: Login) -> Outcome<Options> {
    let mut uri = format!("{uri}&proxyHost=localhost&proxyPort={}", proxy.port());
    if let Some((username, password)) = login {
        uri += &format!("&proxyUsername={username}&proxyPassword={password}");
    }
    Ok(Options::parse(&uri)?)
}

fn by_options(uri: &str, proxy: &Proxy, login: Login) -> Outcome<Options> {
    let mut options = ProxyOptions::new("localhost").with_port(proxy.port());
    if let Some((username, password)) = login {
        options = options.with_login(username, password);
    }
    Ok(Options::builder().uri(uri)?.proxy(options).build()?)
}

/// SOCKS-P2: "command events name the MongoDB host, not the proxy".
fn names_the_server(event: &EventKind, client: &Topology) -> Outcome {
    let EventKind::Command { address, .. } = event else {
        return Err(format!("{event:?} is no event of a command").into());
    };
    let proxy = client.options().proxy().ok_or("there is a proxy")?.address();
    assert!(client.view().server(address).is_some(), "{address} is none of the servers");
    assert_ne!(*address, proxy, "the proxy is no server");
    Ok(())
}

/// Returns whether a hello is answered; it is not once every server is known to be out of reach.
fn greets(options: Options) -> Outcome<bool> {
    runtime()?.block_on(async {
        let client = Topology::new(options)?;
        let mut views = client.watch_topology();
        let reached = tokio::time::timeout(GENEROUS, async {
            while let Some(view) = views.next().await {
                let servers = view.servers();
                if servers.iter().any(|server| server.server_type != ServerType::Unknown) {
                    return true;
                }
                if servers.iter().all(|server| server.error.is_some()) {
                    return false;
                }
            }
            false
        });
        let reached = reached.await?;
        if reached {
            let mut events = client.subscribe_to(Topics::COMMANDS);
            let nearest = Criteria::read(ReadPreference::new(ReadMode::Nearest));
            let hello = rawdoc! { "hello": 1 };
            client.with_timeout(GENEROUS).run_command_on(nearest, "admin", &hello).await?;
            let event = tokio::time::timeout(GENEROUS, events.next()).await?;
            names_the_server(&event.ok_or("a command has begun")?.kind, &client)?;
        }
        Ok(reached)
    })
}
