//! The environment of a test: what makes its clients, where its calls are run, and how its time
//! passes.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant as Clock;

use sdam_core::auth::{CredentialRequest, CredentialResponse, OidcToken};
use sdam_core::config::{AuthMechanism, Options};
use sdam_core::time::Instant;
use sdam_host::{Error, Runtime};
use tracing::dispatcher::with_default;

use super::alarm::Alarm;
use super::background::Background;
use super::log::Log;
use super::spans::Spans;
use super::{CallResult, News, servers};
use crate::adapter::{Adapter, Subject};
use crate::unified::play::OpenClient;

/// The environment of one test.
pub(super) trait Environment {
    /// The runtime of its clients.
    type Runtime: Runtime;

    /// Returns the time since the test began.
    fn now(&self) -> Instant;

    /// Makes a client, which reports its log and its spans if the test wants them.
    fn open(
        &self,
        options: Options,
        client: &OpenClient,
        observers: (&Log, &Spans),
    ) -> Result<Subject<Self::Runtime>, Error>;

    /// Starts a call, whose future is made where it is polled.
    fn spawn<F>(&self, call: impl FnOnce() -> F + Send + 'static) -> Background<CallResult>
    where
        F: Future<Output = CallResult> + Send + 'static;

    /// Waits until there is news, or until just after that time.
    fn wait(&self, until: Instant, look: impl FnMut(&mut Context<'_>) -> Vec<News>) -> Vec<News>;
}

/// The environment of a test with a runtime: threads and the clock of the system.
pub(super) struct RealTime<'a, A: Adapter> {
    adapter: &'a Arc<A>,
    began: Clock,
    alarm: Alarm,
}

impl<'a, A: Adapter> RealTime<'a, A> {
    pub(super) fn begin(adapter: &'a Arc<A>) -> Self {
        Self { adapter, began: Clock::now(), alarm: Alarm::start() }
    }
}

impl<A: Adapter> Environment for RealTime<'_, A> {
    type Runtime = A::Runtime;

    fn now(&self) -> Instant {
        Instant::ZERO + self.began.elapsed()
    }

    fn open(
        &self,
        options: Options,
        client: &OpenClient,
        (log, spans): (&Log, &Spans),
    ) -> Result<Subject<A::Runtime>, Error> {
        if options.credential().is_some_and(|it| it.mechanism == Some(AuthMechanism::Oidc)) {
            let token = |_: CredentialRequest| async {
                Ok::<_, Infallible>(CredentialResponse::Oidc(OidcToken::new(servers::TOKEN)))
            };
            return self.adapter.provided_client(options, token);
        }
        match (client.spans, client.log_messages.is_empty()) {
            (Some(with_commands), _) => {
                self.adapter.traced_client(options, Spans::settings(with_commands), spans.clone())
            }
            (None, true) => self.adapter.client(options),
            (None, false) => with_default(&log.collector(&client.log_messages), || {
                self.adapter.logging_client(options, Log::settings())
            }),
        }
    }

    /// The thread that polls the future makes it, as it may be blocked meanwhile.
    fn spawn<F>(&self, call: impl FnOnce() -> F + Send + 'static) -> Background<CallResult>
    where
        F: Future<Output = CallResult> + Send + 'static,
    {
        let adapter = Arc::clone(self.adapter);
        // On the heap: executors move what they are given, and threads have small stacks.
        Background::spawn(move || adapter.block_on(Box::pin(call())))
    }

    fn wait(
        &self,
        until: Instant,
        mut look: impl FnMut(&mut Context<'_>) -> Vec<News>,
    ) -> Vec<News> {
        let until = self.began + until.since_origin();
        self.adapter.block_on(poll_fn(|cx| {
            let news = look(cx);
            if !news.is_empty() || Clock::now() > until {
                return Poll::Ready(news);
            }
            self.alarm.set(until, cx.waker());
            Poll::Pending
        }))
    }
}
