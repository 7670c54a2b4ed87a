//! Members that read and do not answer.

use std::future::{pending as pending_for_ever, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use bson::rawdoc;
use sdam_core::bson;
use sdam_core::wire::Flags;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use super::{Input, SECOND, ServerVersion, World, awaitable, body};
use crate::server::socket::while_awake;

#[test]
fn a_frozen_member_answers_nobody_until_it_is_thawed() {
    let mut world = World::settled(ServerVersion::V6_0);
    let member = world.secondary();
    let seen = world.hello(member);
    let [awaiting, old] = [world.connect(member), world.connect(member)];
    world.request(awaiting, Flags::NONE, &awaitable(&seen, SECOND));
    world.handle(Input::Freeze { member });
    let new = world.connect(member);
    let ping = rawdoc! { "ping": 1, "$db": "admin" };
    for connection in [old, new, new] {
        world.request(connection, Flags::NONE, &ping);
    }
    world.advance(60 * SECOND);
    let counts = [awaiting, old, new].map(|it| world.replies(it).len());
    assert_eq!(counts, [0, 0, 0]);
    assert!(world.primary().is_some(), "elections do not notice");

    world.handle(Input::Thaw { member });
    let counts = [awaiting, old, new].map(|it| world.replies(it).len());
    assert_eq!(counts, [1, 1, 2]);
}

#[test]
fn what_happened_meanwhile_is_told_by_a_stream_when_its_member_thaws() {
    let mut world = World::settled(ServerVersion::V6_0);
    let member = world.primary().unwrap();
    let seen = world.hello(member);
    let stream = world.connect(member);
    world.request(stream, Flags::EXHAUST_ALLOWED, &awaitable(&seen, 600 * SECOND));
    world.handle(Input::Freeze { member });
    world.handle(Input::StepDown { member });
    assert!(world.replies(stream).is_empty());
    world.handle(Input::Thaw { member });
    let replies = world.replies(stream);
    assert_eq!(replies.len(), 1);
    assert!(!body(&replies[0].1).get_bool("isWritablePrimary").unwrap());
}

#[test]
fn a_blocked_command_of_a_frozen_member_is_answered_no_earlier_than_the_block_ends() {
    let mut world = World::settled(ServerVersion::V6_0);
    let member = world.secondary();
    let connection = world.connect(member);
    let data = rawdoc! { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 5000 };
    let configure = rawdoc! {
        "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data, "$db": "admin",
    };
    world.ask(connection, &configure);
    let begin = world.now;
    world.request(connection, Flags::NONE, &rawdoc! { "ping": 1, "$db": "admin" });
    world.handle(Input::Freeze { member });
    world.advance(SECOND);
    world.handle(Input::Thaw { member });
    assert!(world.replies(connection).is_empty());
    world.advance(10 * SECOND);
    assert_eq!(world.replies(connection)[0].0, begin + 5 * SECOND);
}

/// However long the member is frozen, the time that the opening may take begins when it goes on.
#[tokio::test(start_paused = true)]
async fn what_is_held_while_a_member_is_frozen_goes_on_afterwards() {
    let (frozen, held) = (watch::Sender::new(true), watch::Sender::new(false));
    let steps = AtomicUsize::new(0);
    let opening = poll_fn(|_| {
        steps.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(())
    });
    let opened = while_awake(frozen.subscribe(), opening);
    let thaw = async {
        sleep(600 * SECOND).await;
        assert_eq!(steps.load(Ordering::Relaxed), 0, "not even its beginning is looked at");
        frozen.send_replace(false);
    };
    assert_eq!(tokio::join!(opened, thaw).0, Some(()));

    let (done, pending) = oneshot::channel();
    let opened = while_awake(held.subscribe(), pending);
    let hold = async {
        for held_now in [true, false] {
            sleep(9 * SECOND).await;
            held.send_replace(held_now);
        }
        sleep(9 * SECOND).await;
        done.send(()).unwrap();
    };
    assert_eq!(tokio::join!(opened, hold).0, Some(Ok(())));
    let silent = while_awake(held.subscribe(), pending_for_ever::<()>());
    assert_eq!(silent.await, None, "one that is awake does not wait for ever");
}

#[cfg(feature = "certificates")]
mod tls {
    //! On real sockets.

    use std::sync::Arc;
    use std::time::Duration;

    use tokio::net::TcpStream;
    use tokio::time::timeout;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

    use crate::certificates::Authority;
    use crate::{EmbeddedCluster, EmbeddedOptions, MemberId, TlsIdentity};

    const DEADLINE: Duration = Duration::from_secs(30);

    fn connector(authority: &Authority) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority.file()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config).into()
    }

    #[tokio::test]
    async fn a_frozen_member_does_not_even_open_tls_until_it_is_thawed() {
        let authority = Authority::new("the authority").unwrap();
        let file = authority.issue("member", &["127.0.0.1"]).unwrap();
        let tls = Some(TlsIdentity::from_pem_file(file).unwrap());
        let options = EmbeddedOptions { tls, ..EmbeddedOptions::default() };
        let cluster = EmbeddedCluster::start(options).await.unwrap();
        let connector = connector(&authority);
        let open = |index: usize| {
            let (connector, address) = (connector.clone(), cluster.addresses()[index]);
            async move {
                let stream = TcpStream::connect(address).await?;
                let name = ServerName::try_from("127.0.0.1").unwrap();
                connector.connect(name, stream).await
            }
        };
        cluster.freeze(MemberId(0)).await.unwrap();
        let mut opening = Box::pin(open(0));
        assert!(timeout(DEADLINE / 100, &mut opening).await.is_err());
        timeout(DEADLINE, open(1)).await.unwrap().expect("the others open it");
        cluster.thaw(MemberId(0)).await.unwrap();
        timeout(DEADLINE, opening).await.unwrap().expect("it goes on");
    }
}
