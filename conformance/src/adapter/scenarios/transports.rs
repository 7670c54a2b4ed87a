//! TLS, SOCKS5 and Unix domain sockets.

use std::net::SocketAddr;
use std::time::Duration;

use sdam_core::diagnosis::Verdict;
use sdam_core::failure::{Cause, ProxyRefusal, Stage as At};
use sdam_core::selection::Criteria;
use sdam_host::ErrorKind;

use super::Test;
use crate::adapter::fixture::{Deployment, Fixture, Outcome, direct, ensure, world};
use crate::adapter::fronts::{TlsFront, UnixFront};
use crate::adapter::parts::Part;
use crate::adapter::silent::Silent;
use crate::adapter::{Adapter, Feature};
use crate::forwarder::{Forwarder, Traffic};
use crate::proxy::Proxy;
use crate::responder::{Keys, Kind, Responder, RevokingAuthority, Signer};
use sdam_cluster::certificates::Authority;

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        Test::new("tls::the_right_authority_is_believed", right_authority).of(Feature::Tls),
        Test::new("tls::another_authority_is_refused", wrong_authority).of(Feature::Tls),
        Test::new("tls::another_name_is_refused", wrong_name).of(Feature::Tls),
        Test::new("tls::a_handshake_without_an_answer_is_told", unanswered).of(Feature::Tls),
        Test::new("tls::a_slow_drip_is_read_to_its_end", drip).of(Feature::Tls),
        Test::new("tls::a_revoked_certificate_is_refused", revoked).of(Feature::Tls),
        Test::new("tls::a_responder_is_asked_once_for_all", asked_once).of(Feature::Tls),
        Test::new("tls::a_responder_that_is_silent_is_done_without", silent).of(Feature::Tls),
        Test::new("proxy::a_server_is_reached_through_socks5", proxy).with(Part::Microsocks),
        Test::new("proxy::a_wrong_password_is_told", wrong_password).with(Part::Microsocks),
        Test::new("proxy::a_proxy_that_is_not_there_is_told", no_proxy),
        Test::new("unix::a_server_is_reached_over_a_unix_socket", unix).of(Feature::UnixSockets),
        Test::new("unix::a_socket_that_is_not_there_is_told", no_socket).of(Feature::UnixSockets),
    ]
}

/// A server behind TLS with a certificate for this name, and who issued it.
fn behind_tls(name: &str) -> Outcome<(Deployment, TlsFront, Authority)> {
    let (deployment, authority) = (Deployment::start(1)?, Authority::new("the authority")?);
    let file = authority.issue("server", &[name])?;
    let front = TlsFront::start(deployment.0.addresses()[0], &file)?;
    Ok((deployment, front, authority))
}

fn with_tls(address: impl std::fmt::Display, authority: &Authority) -> String {
    format!("{}&tls=true&tlsCAFile={}", direct(address), authority.file())
}

fn right_authority<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (_deployment, front, authority) = behind_tls("127.0.0.1")?;
    let client = fixture.client(&with_tls(front.address(), &authority))?;
    fixture.known(&client)?;
    fixture.ping(&client)?;
    fixture.block_on(client.close());
    Ok(())
}

fn wrong_authority<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (_deployment, front, _) = behind_tls("127.0.0.1")?;
    let other = Authority::new("another authority")?;
    let uri = with_tls(front.address(), &other);
    let client = fixture.client(&format!("{uri}&serverSelectionTimeoutMS=1000"))?;
    let failure = fixture.failure(&client)?;
    ensure!((failure.stage, &failure.cause) == (At::Tls, &Cause::UnknownIssuer), "{failure:?}");
    let selected = fixture.block_on(client.select(Criteria::write()));
    let verdict = selected.err().map(|error| error.verdict().cloned());
    ensure!(verdict == Some(Some(Verdict::CertificatesRefused)), "{verdict:?}");
    let connected = fixture.block_on(client.members()[0].connect()).err();
    let kind = connected.map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::Tls), "{kind:?}");
    Ok(())
}

fn wrong_name<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (_deployment, front, authority) = behind_tls("elsewhere.example")?;
    let client = fixture.client(&with_tls(front.address(), &authority))?;
    let failure = fixture.failure(&client)?;
    ensure!((failure.stage, &failure.cause) == (At::Tls, &Cause::CertificateName), "{failure:?}");
    let plain = "is not for 127.0.0.1 but for elsewhere.example";
    ensure!(failure.detail.ends_with(plain), "{failure:?}");
    Ok(())
}

/// The connection is there, so that it is neither the network nor a black hole.
fn unanswered<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (silent, authority) = (Silent::start()?, Authority::new("the authority")?);
    let uri = with_tls(silent.address(), &authority);
    let client = fixture.client(&format!("{uri}&connectTimeoutMS=3000"))?;
    let failure = fixture.failure(&client)?;
    ensure!((failure.stage, &failure.cause) == (At::Tls, &Cause::Timeout), "{failure:?}");
    Ok(())
}

fn drip<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (_deployment, front, authority) = behind_tls("127.0.0.1")?;
    let forwarder = {
        let _entered = world().enter();
        Forwarder::start(vec![front.address()])?
    };
    forwarder.set(Traffic::Slow { bytes: 7, pause: Duration::ZERO });
    let uri = with_tls(forwarder.address(), &authority);
    let client = fixture.client(&format!("{uri}&connectTimeoutMS=60000"))?;
    fixture.ping(&client)
}

/// A server behind TLS whose certificate names a responder, and a connection string for it.
fn behind_responder(
    authority: &RevokingAuthority,
    responder: SocketAddr,
    is_revoked: bool,
) -> Outcome<(Deployment, TlsFront, String)> {
    let deployment = Deployment::start(1)?;
    let kind = Kind { is_revoked, ..Kind::default() };
    let file = authority.issue_server(kind, responder)?;
    let front = TlsFront::start(deployment.0.addresses()[0], &file)?;
    let uri = format!("{}&tls=true&tlsCAFile={}", direct(front.address()), authority.file());
    Ok((deployment, front, uri))
}

fn revoked<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let authority = RevokingAuthority::new(Keys::Ecdsa)?;
    let responder = Responder::start(&authority, Signer::Authority)?;
    let (_deployment, _front, uri) = behind_responder(&authority, responder.address(), true)?;
    let client = fixture.client(&uri)?;
    let failure = fixture.failure(&client)?;
    ensure!((failure.stage, &failure.cause) == (At::Tls, &Cause::CertificateRevoked), "{failure}");
    let connected = fixture.block_on(client.members()[0].connect()).err();
    let kind = connected.map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::Tls), "{kind:?}");
    Ok(())
}

/// Monitors and pools of several clients.
fn asked_once<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let authority = RevokingAuthority::new(Keys::Ecdsa)?;
    let responder = Responder::start(&authority, Signer::Delegate)?;
    let (_deployment, _front, uri) = behind_responder(&authority, responder.address(), false)?;
    for _ in 0..3 {
        let client = fixture.client(&uri)?;
        fixture.known(&client)?;
        fixture.ping(&client)?;
        fixture.block_on(client.close());
    }
    ensure!(responder.asked() == 1, "asked {} times", responder.asked());
    Ok(())
}

/// "The driver SHOULD continue the connection", and has time left to.
fn silent<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (authority, silent) = (RevokingAuthority::new(Keys::Ecdsa)?, Silent::start()?);
    let (_deployment, _front, uri) = behind_responder(&authority, silent.address(), true)?;
    let client = fixture.client(&format!("{uri}&connectTimeoutMS=4000"))?;
    fixture.known(&client)?;
    fixture.ping(&client)
}

fn through(proxy_port: u16, server: impl std::fmt::Display, more: &str) -> String {
    format!("{}&proxyHost=127.0.0.1&proxyPort={proxy_port}{more}", direct(server))
}

fn proxy<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let Deployment(cluster) = Deployment::start(1)?;
    let proxy = Proxy::start(Some(("me", "secret")))?;
    let login = "&proxyUsername=me&proxyPassword=secret";
    let client = fixture.client(&through(proxy.port(), cluster.addresses()[0], login))?;
    fixture.known(&client)?;
    fixture.ping(&client)?;
    ensure!(!proxy.log().is_empty(), "the proxy has seen no connection");
    Ok(())
}

fn wrong_password<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let proxy = Proxy::start(Some(("me", "secret")))?;
    let login = "&proxyUsername=me&proxyPassword=other";
    let client = fixture.client(&through(proxy.port(), "127.0.0.1:1", login))?;
    let failure = fixture.failure(&client)?;
    let refused = Cause::ProxyRefused { refusal: ProxyRefusal::Credentials };
    ensure!((failure.stage, &failure.cause) == (At::Proxy, &refused), "{failure:?}");
    Ok(())
}

fn no_proxy<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let client = fixture.client(&through(1, "127.0.0.1:2", ""))?;
    let failure = fixture.failure(&client)?;
    ensure!((failure.stage, &failure.cause) == (At::Proxy, &Cause::Refused), "{failure:?}");
    Ok(())
}

fn unix<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let Deployment(cluster) = Deployment::start(1)?;
    let front = UnixFront::start(cluster.addresses()[0])?;
    let path = front.path().to_string_lossy().replace('/', "%2F");
    let client = fixture.client(&direct(path))?;
    fixture.known(&client)?;
    fixture.ping(&client)?;
    fixture.block_on(client.close());
    Ok(())
}

fn no_socket<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let client = fixture.client(&direct("%2Fno%2Fsuch.sock"))?;
    let failure = fixture.failure(&client)?;
    let told = failure.stage == At::Connect && failure.detail.contains("/no/such.sock");
    ensure!(told, "{failure:?}");
    Ok(())
}
