//! Tokens: who waits for a provider that is asked for one at a time, and logging in once more.

use std::future::{Future, pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use bson::rawdoc;
use shuttle::thread::{self, spawn};

use super::super::fixture::{Behaviour, Fixture};
use super::super::puppet::{Puppet, pass};
use super::clients::client_of;
use super::{block_on, explore, give_up};
use crate::machines::Host;
use crate::machines::tasks::Link;
use crate::net::credentials::CredentialProvider;
use crate::operations::checked_out::CheckedOut;
use crate::sync::lock;
use sdam_core::auth::{CredentialRequest, CredentialResponse, OidcToken};
use sdam_core::failure::{self, Cause, Failure};
use sdam_core::pool::Counts;

/// A provider that may not be asked by two at once.
#[derive(Default)]
struct Provider {
    busy: AtomicBool,
    asked: AtomicU32,
    /// True if it never answers.
    hangs: AtomicBool,
}

/// A question in progress.
struct Asking(Arc<Provider>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Relaxed);
    }
}

impl Provider {
    fn ask(
        self: &Arc<Self>,
        question: &CredentialRequest,
    ) -> impl Future<Output = Result<CredentialResponse, &'static str>> + use<> {
        assert!(matches!(question, CredentialRequest::Oidc(_)));
        let provider = Arc::clone(self);
        let asking = Asking(Arc::clone(self));
        assert!(!self.busy.swap(true, Ordering::Relaxed), "two are asked for at once");
        async move {
            let _asking = asking;
            let number = provider.asked.fetch_add(1, Ordering::Relaxed);
            if provider.hangs.load(Ordering::Relaxed) {
                pending::<()>().await;
            }
            // It takes a while.
            let mut looked = false;
            poll_fn(|cx| match std::mem::replace(&mut looked, true) {
                true => Poll::Ready(()),
                false => {
                    cx.waker().wake_by_ref();
                    thread::yield_now();
                    Poll::Pending
                }
            })
            .await;
            Ok(CredentialResponse::Oidc(OidcToken::new(format!("token {number}"))))
        }
    }
}

/// A client whose server wants tokens, once it has found it.
fn discovered(
    options: &str,
    server: &Arc<Behaviour>,
    provider: &Arc<Provider>,
) -> (Arc<Host<Puppet>>, Link<Puppet>) {
    let provider = Arc::clone(provider);
    let ask = move |question: CredentialRequest| provider.ask(&question);
    let ask: Box<dyn CredentialProvider> = Box::new(ask);
    let puppet = Puppet { provider: Some(ask), ..Puppet::default() };
    let options =
        format!("&authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s{options}");
    let Fixture { host, link, .. } = Fixture::begin(client_of(puppet, &options, server));
    (host, link)
}

/// Closes a client; nothing is left of it.
fn end(host: &Host<Puppet>, server: &Behaviour) {
    host.close();
    lock(&host.runtime().links).clear();
    block_on(host.ended());
    assert_eq!(server.open.load(Ordering::Relaxed), 0);
}

/// Several connections are established at once, and a caller that waits for one may leave, or the
/// client be closed.
fn log_in_at_once(closes: bool) {
    let (server, provider) = (Arc::<Behaviour>::default(), Arc::<Provider>::default());
    let (host, link) = discovered("&maxConnecting=3", &server, &provider);
    let pool = host.members()[0].clone();
    let users = [false, false, true].map(|impatient| {
        let pool = pool.clone();
        spawn(move || match impatient {
            true => {
                give_up(pool.check_out());
                true
            }
            false => block_on(pool.check_out()).is_ok(),
        })
    });
    if closes {
        host.close();
    }
    let served = users.map(|user| user.join().unwrap());
    drop(link);
    end(&host, &server);
    let asked = provider.asked.load(Ordering::Relaxed);
    match closes {
        // "Drivers MUST ensure that only one call [...] can happen at a time", and remember it.
        false => assert_eq!((served, asked), ([true; 3], 1)),
        true => assert!(asked <= 3, "asked {asked} times"),
    }
    assert_eq!(pool.counts(), Counts::default());
}

#[test]
fn of_all_who_log_in_at_once_one_asks_for_the_token_and_nobody_is_forgotten() {
    for closes in [false, true] {
        explore(200, move || log_in_at_once(closes));
    }
}

fn ping(checked_out: &mut CheckedOut<Puppet>) -> bool {
    block_on(checked_out.command("admin", &rawdoc! { "ping": 1 })).is_ok()
}

/// One waits for a provider that hangs, another for the turn to ask it, when their connections are
/// interrupted.
#[test]
fn whoever_waits_for_a_token_is_told_that_its_connection_is_interrupted() {
    explore(300, || {
        let (server, provider) = (Arc::<Behaviour>::default(), Arc::<Provider>::default());
        let (host, link) = discovered("", &server, &provider);
        let pool = host.members()[0].clone();
        let in_use = [(); 2].map(|()| block_on(pool.check_out()).unwrap());
        server.expired.store(2, Ordering::Relaxed);
        provider.hangs.store(true, Ordering::Relaxed);
        // In the middle of the next check, so that the pool is cleared.
        pass(&host, Duration::from_secs(10));
        let users = in_use.map(|mut checked_out| spawn(move || ping(&mut checked_out)));
        link.closed(Failure::new(failure::Stage::Hello, Cause::Timeout, "no reply"));
        assert_eq!(users.map(|user| user.join().unwrap()), [false; 2]);
        end(&host, &server);
        assert_eq!(pool.counts(), Counts::default());
    });
}
