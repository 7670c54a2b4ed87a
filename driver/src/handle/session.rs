//! Sessions, as handles of operations share them.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, Timestamp};
use sdam_core::operation::Timeout;
use sdam_core::session::{SessionError, SessionOptions};
use sdam_host::Runtime;

use crate::error::{ArgumentError, Error};

/// A session: operations that are run with it one after the other, and the times that they have
/// seen (Driver Sessions).
///
/// [`Client::start_session`](crate::Client::start_session) starts one; handles that were made
/// [with it](crate::Collection::with_session) run their operations in it, and so do the cursors
/// that these open. One operation uses it at a time; another one that comes meanwhile waits until
/// that has ended, within `serverSelectionTimeoutMS`, and then fails with
/// [`ArgumentError::SessionInUse`]; if its `timeoutMS` is over before, with
/// [`Error::SessionTimeout`]. Clones are the same session.
///
/// Unless its options say otherwise, it is causally consistent: its reads see what it has written,
/// and what it has read before. Writes that are not acknowledged cannot be run with it.
///
/// It ends when [`end`](Self::end) is called, or when the last clone, handle and cursor of it is
/// dropped; both wait for nothing.
pub struct ClientSession<R: Runtime> {
    shared: Arc<Shared<R>>,
}

/// The time for which an operation lets those go first that have waited for its session longer:
/// enough for a task that was woken.
const COURTESY: Duration = Duration::from_millis(1);

struct Shared<R: Runtime> {
    id: Option<RawDocumentBuf>,
    options: SessionOptions,
    slot: Mutex<Slot<R>>,
}

struct Slot<R: Runtime> {
    /// The session; `None` while an operation uses it.
    session: Option<sdam_host::ClientSession<R>>,
    /// True if it ends as soon as it comes back.
    is_ending: bool,
    /// Those who wait for it, in the order in which they came.
    waiting: BTreeMap<u64, Waker>,
    /// True from when it came back while others waited until one of those has taken it.
    is_owed: bool,
    last: u64,
}

/// The wait of an operation for its turn.
struct Turn<'a, R: Runtime> {
    home: &'a ClientSession<R>,
    /// Its number, once it waits.
    number: Option<u64>,
}

/// A session that an operation uses; dropping it gives it back.
pub(crate) struct Lent<'a, R: Runtime> {
    /// Present until dropped.
    session: Option<sdam_host::ClientSession<R>>,
    home: &'a ClientSession<R>,
}

impl<R: Runtime> ClientSession<R> {
    pub(crate) fn start(
        client: &sdam_host::Client<R>,
        options: SessionOptions,
    ) -> Result<Self, SessionError> {
        Ok(Self::of(client.start_session(options)?))
    }

    /// Has operations share a session.
    pub(crate) fn of(session: sdam_host::ClientSession<R>) -> Self {
        let id = session.id().map(ToOwned::to_owned);
        let options = session.options().clone();
        let (waiting, last) = (BTreeMap::new(), 0);
        let slot = Slot { session: Some(session), is_ending: false, waiting, is_owed: false, last };
        Self { shared: Arc::new(Shared { id, options, slot: Mutex::new(slot) }) }
    }

    /// Returns whether this is its last handle.
    pub(crate) fn is_last(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    /// Takes the session for an operation, which waits for the one that uses it, and lets those go
    /// first that have waited longer: a session is for
    /// one after another, but "Drivers MUST NOT attempt to detect simultaneous use" (Driver
    /// Sessions, "ClientSession").
    pub(crate) async fn lend(
        &self,
        client: &sdam_host::Client<R>,
        timeout: Timeout,
    ) -> Result<Lent<'_, R>, Error> {
        let mut begun = None;
        if self.slot().is_owed {
            begun = Some(client.now());
            self.give_way(client).await;
        }
        if let Some(lent) = self.try_lend() {
            return Ok(lent);
        }
        let begun = begun.unwrap_or_else(|| client.now());
        // An operation that comes to no end, such as a future that is kept and not polled, holds
        // up no other for ever.
        let most = begun + client.host().options().server_selection_timeout();
        let deadline = timeout.deadline().filter(|deadline| *deadline <= most);
        let until = deadline.unwrap_or(most);
        let mut turn = Turn { home: self, number: None };
        let mut late = pin!(client.sleep_until(until));
        std::future::poll_fn(|cx| match turn.poll(cx) {
            Poll::Ready(lent) => Poll::Ready(Ok(lent)),
            Poll::Pending => late.as_mut().poll(cx).map(|()| {
                let now = client.now();
                // The wait ends with the client, too.
                Err(match deadline.is_some_and(|deadline| deadline <= now) {
                    true => Error::SessionTimeout { waited: now - begun },
                    false => ArgumentError::SessionInUse.into(),
                })
            }),
        })
        .await
    }

    /// Lets the tasks that wait for the session take it, unless they are not polled.
    async fn give_way(&self, client: &sdam_host::Client<R>) {
        let mut pause = pin!(client.sleep_until(client.now() + COURTESY));
        std::future::poll_fn(|cx| match self.slot().is_owed {
            true => pause.as_mut().poll(cx),
            false => Poll::Ready(()),
        })
        .await;
        self.slot().is_owed = false;
    }

    /// Takes the session unless an operation uses it.
    pub(crate) fn try_lend(&self) -> Option<Lent<'_, R>> {
        let session = self.slot().session.take()?;
        Some(Lent { session: Some(session), home: self })
    }

    fn slot(&self) -> MutexGuard<'_, Slot<R>> {
        self.shared.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the session unless an operation uses it.
    fn look<T>(
        &self,
        look: impl FnOnce(&mut sdam_host::ClientSession<R>) -> T,
    ) -> Result<T, Error> {
        let mut slot = self.slot();
        Ok(look(slot.session.as_mut().ok_or(ArgumentError::SessionInUse)?))
    }
}

impl<R: Runtime> ClientSession<R> {
    /// Returns the session's name, `{ id: <UUID> }`, that commands carry as `lsid`; `None` if it
    /// was started in a process that has been forked off from that of its client.
    pub fn id(&self) -> Option<&RawDocument> {
        self.shared.id.as_deref()
    }

    /// Returns what the session was started with.
    pub fn options(&self) -> &SessionOptions {
        &self.shared.options
    }

    /// Returns the latest cluster time that the session has received or was given.
    ///
    /// # Errors
    ///
    /// Fails if an operation uses the session.
    pub fn cluster_time(&self) -> Result<Option<RawDocumentBuf>, Error> {
        self.look(|session| session.cluster_time().map(ToOwned::to_owned))
    }

    /// Has the session see at least what another has seen: its [`cluster_time`](Self::cluster_time)
    /// (Driver Sessions, "advanceClusterTime").
    ///
    /// # Errors
    ///
    /// Fails if it is no `$clusterTime` as a server gave it out, and if an operation uses the
    /// session.
    pub fn advance_cluster_time(&self, time: &RawDocument) -> Result<(), Error> {
        let advanced = self.look(|session| session.advance_cluster_time(time))?;
        advanced.map_err(|error| ArgumentError::ClusterTime(error).into())
    }

    /// Returns the time of the last operation, as its server has reported it.
    ///
    /// # Errors
    ///
    /// Fails if an operation uses the session.
    pub fn operation_time(&self) -> Result<Option<Timestamp>, Error> {
        self.look(|session| session.operation_time())
    }

    /// Has reads of the session see at least what was done at this time, the
    /// [`operation_time`](Self::operation_time) of another session.
    ///
    /// # Errors
    ///
    /// Fails if an operation uses the session.
    pub fn advance_operation_time(&self, time: Timestamp) -> Result<(), Error> {
        self.look(|session| session.advance_operation_time(time))
    }

    /// Returns the time of the snapshot that reads see, once it is known.
    ///
    /// # Errors
    ///
    /// Fails if an operation uses the session.
    pub fn snapshot_time(&self) -> Result<Option<Timestamp>, Error> {
        self.look(|session| session.snapshot_time())
    }

    /// Returns whether a network error came upon a command of the session, so that the servers'
    /// session is not used again when this one has ended.
    ///
    /// # Errors
    ///
    /// Fails if an operation uses the session.
    pub fn is_dirty(&self) -> Result<bool, Error> {
        self.look(|session| session.is_dirty())
    }

    /// Returns whether the session is one of this client's: operations of others refuse it.
    ///
    /// # Errors
    ///
    /// Fails if an operation uses the session.
    pub fn belongs_to(&self, client: &sdam_host::Client<R>) -> Result<bool, Error> {
        self.look(|session| session.belongs_to(client))
    }

    /// Ends the session, at the latest when the operation has ended that uses it; operations with
    /// it fail from then on. Another call does nothing.
    pub fn end(&self) {
        let mut slot = self.slot();
        slot.is_ending = true;
        if let Some(session) = &mut slot.session {
            session.end();
        }
    }
}

impl<R: Runtime> Drop for Lent<'_, R> {
    fn drop(&mut self) {
        let Some(mut session) = self.session.take() else { return };
        let mut slot = self.home.slot();
        if slot.is_ending {
            session.end();
        }
        slot.session = Some(session);
        // Wake all: the first may not be polled.
        let waiting = std::mem::take(&mut slot.waiting);
        slot.is_owed = !waiting.is_empty();
        drop(slot);
        waiting.into_values().for_each(Waker::wake);
    }
}

impl<'a, R: Runtime> Turn<'a, R> {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Lent<'a, R>> {
        let (home, waker) = (self.home, cx.waker().clone());
        let mut slot = home.slot();
        if let Some(session) = slot.session.take() {
            slot.is_owed = false;
            drop(slot);
            return Poll::Ready(Lent { session: Some(session), home });
        }
        let number = *self.number.get_or_insert_with(|| {
            slot.last += 1;
            slot.last
        });
        let earlier = slot.waiting.insert(number, waker);
        drop(slot);
        drop(earlier);
        Poll::Pending
    }
}

impl<R: Runtime> Drop for Turn<'_, R> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.home.slot().waiting.remove(&number);
            drop(waker);
        }
    }
}

impl<R: Runtime> Deref for Lent<'_, R> {
    type Target = sdam_host::ClientSession<R>;

    fn deref(&self) -> &Self::Target {
        self.session.as_ref().expect("it is there until it is given back")
    }
}

impl<R: Runtime> DerefMut for Lent<'_, R> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.session.as_mut().expect("it is there until it is given back")
    }
}

impl<R: Runtime> Clone for ClientSession<R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// Two are equal if they are the same session.
impl<R: Runtime> PartialEq for ClientSession<R> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<R: Runtime> Eq for ClientSession<R> {}

impl<R: Runtime> std::fmt::Debug for ClientSession<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientSession").field("id", &self.shared.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use bson::Timestamp;
    use sdam_blocking::Blocking;
    use sdam_core::config::Options;
    use sdam_core::session::SessionOptions;

    use super::ClientSession;

    /// A client that does nothing by itself, and is asked for nothing that needs a server.
    fn client() -> sdam_host::Client<Blocking> {
        let options = Options::builder().uri("mongodb://a/").unwrap().single_threaded(true);
        sdam_blocking::Client::new(options.build().unwrap()).unwrap().host_client()
    }

    fn start(client: &sdam_host::Client<Blocking>) -> ClientSession<Blocking> {
        ClientSession::start(client, SessionOptions::default()).unwrap()
    }

    /// Driver Sessions, "endSession": the operation that uses the session goes on with it; the
    /// servers' session is not used by another one before, and is afterwards.
    #[test]
    fn a_session_that_is_ended_while_an_operation_uses_it_ends_with_that() {
        let client = client();
        let own = start(&client);
        let id = own.id().unwrap().to_owned();
        let lent = own.try_lend().unwrap();
        own.end();
        assert_eq!(lent.id(), Some(&*id), "the operation has it");
        assert_ne!(start(&client).id(), Some(&*id), "it is in use");
        drop(lent);
        assert_eq!(own.try_lend().unwrap().id(), None, "it has ended");
        assert_eq!(start(&client).id(), Some(&*id), "it was given back");
    }

    /// Driver Sessions, "endSession": "A driver MUST allow multiple calls"; the servers' session is
    /// given back once.
    #[test]
    fn a_session_that_is_ended_twice_is_given_back_once() {
        let client = client();
        let own = start(&client);
        let id = own.id().unwrap().to_owned();
        own.end();
        own.end();
        let next = start(&client);
        assert_eq!(next.id(), Some(&*id));
        drop(own);
        assert_ne!(start(&client).id(), Some(&*id), "the next one has it");
        assert_eq!(next.try_lend().unwrap().id(), Some(&*id));
    }

    /// Driver Sessions: what a session was started with, and what it was advanced to.
    #[test]
    fn a_session_says_what_it_is() {
        let (client, other) = (client(), client());
        let options = SessionOptions::default().with_causal_consistency(Some(false));
        let own = ClientSession::start(&client, options.clone()).unwrap();
        assert_eq!(
            (own.options(), start(&client).options().clone()),
            (&options, SessionOptions::default())
        );
        assert!(own.belongs_to(&client).unwrap() && !own.belongs_to(&other).unwrap());
        assert!(!own.is_dirty().unwrap());
        assert!(own == own.clone() && own != start(&client));
        let time = Timestamp { time: 7, increment: 1 };
        assert_eq!(own.operation_time().unwrap(), None);
        own.advance_operation_time(time).unwrap();
        assert_eq!(own.operation_time().unwrap(), Some(time));
        assert_eq!((own.snapshot_time().unwrap(), own.cluster_time().unwrap()), (None, None));
    }

    #[test]
    fn a_session_is_the_last_of_its_clones_alone() {
        let own = start(&client());
        assert!(own.is_last());
        let clone = own.clone();
        assert!(!own.is_last());
        drop(clone);
        assert!(own.is_last());
    }
}
