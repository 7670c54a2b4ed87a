//! A client with one server, whose connections are byte queues in memory.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};

use super::puppet::{Puppet, host, pass, take_link};
use crate::machines::Host;
use crate::machines::tasks::Link;
use crate::machines::tasks::PendingConnection;
use crate::net::socket::Socket;
use crate::net::stream::Connected;
use crate::operations::selected_server::SelectedServer;
use crate::sync::Interrupter;
use crate::sync::Mutex;
use crate::sync::lock;
use sdam_core::config::Options;
use sdam_core::failure::Failure;
use sdam_core::operation::Timeout;
use sdam_core::time::Instant;
use sdam_core::transport::{Transport, TransportConfig};
use sdam_core::wire::{Decompressor, Flags, Frames, op_code, write_op_msg};

/// The server's behaviour; shared by its connections.
#[derive(Default)]
pub(super) struct Behaviour {
    /// True if it keeps its replies to itself.
    pub(super) mute: AtomicBool,
    /// The command at which it begins to.
    pub(super) mute_from: Mutex<Option<&'static str>>,
    /// The number of bytes that a read returns and a write takes at most, 0 for all.
    pub(super) torn: AtomicU32,
    /// True if the system gives the stream up at the next read.
    pub(super) gives_up: AtomicBool,
    /// The number of reads from connections.
    pub(super) reads: AtomicU32,
    /// True if it hangs up when it has answered one message.
    pub(super) hangs_up: AtomicBool,
    /// True if it has lost its connections, which shows when they are used.
    pub(super) resets: AtomicBool,
    /// True if it answers ping, and the beginning of a login, twice.
    pub(super) chatty: AtomicBool,
    /// True if it can stream; it answers an awaitable hello when `changes` is set, once.
    pub(super) streams: AtomicBool,
    pub(super) changes: AtomicBool,
    /// The answer to commands other than hello.
    pub(super) reply: Mutex<Option<RawDocumentBuf>>,
    /// The answers to the next commands other than hello, before that one; it hangs up instead of
    /// `None`.
    pub(super) replies: Mutex<VecDeque<Option<RawDocumentBuf>>>,
    /// True if it is a mongos that has sessions.
    pub(super) has_sessions: AtomicBool,
    /// The number of commands that it refuses until their client has logged in once more.
    pub(super) expired: AtomicU32,
    /// True if it compresses its replies but for those to hello, in which it says so.
    pub(super) compresses: AtomicBool,
    /// The number of compressed commands that it has received.
    pub(super) compressed: AtomicU32,
    /// The service it is of, if it is behind a load balancer.
    pub(super) service: Mutex<Option<ObjectId>>,
    /// The commands it has received.
    pub(super) commands: Mutex<Vec<RawDocumentBuf>>,
    /// The number of connections that are open.
    pub(super) open: AtomicU32,
    /// True if connections are shut down to interrupt readers.
    pub(super) blocks: AtomicBool,
    /// The reaction of those who interrupt one.
    pub(super) when_interrupted: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// True if the process is stopped when a read has found nothing, until a reply has come and
    /// every deadline has passed.
    pub(super) stops: AtomicBool,
}

impl Behaviour {
    /// Returns whether one more command is to be refused.
    fn has_expired(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        self.expired.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn compress(&self, out: &mut Vec<u8>, start: usize) {
        if self.compresses.load(Ordering::Relaxed) {
            let snappy = sdam_core::wire::Compressor::Snappy;
            sdam_core::wire::Compression::new(snappy, -1).unwrap().compress(out, start);
        }
    }
}

/// One connection.
pub(super) struct Wire {
    server: Arc<Behaviour>,
    now: Arc<Mutex<Instant>>,
    requests: Frames,
    replies: VecDeque<u8>,
    /// The awaitable hello that is still to be answered.
    awaited: Option<i32>,
    ended: bool,
    shut: Arc<AtomicBool>,
}

impl Wire {
    pub(super) fn new(server: Arc<Behaviour>, now: Arc<Mutex<Instant>>) -> Self {
        server.open.fetch_add(1, Ordering::Relaxed);
        let (requests, replies, shut) = (Frames::new(), VecDeque::new(), Arc::default());
        Self { server, now, requests, replies, awaited: None, ended: false, shut }
    }

    fn serve(&mut self) {
        while let Some(message) = self.requests.next().unwrap() {
            let was_compressed = message.header().op_code == op_code::OP_COMPRESSED;
            let message = Decompressor::new().decompress(message).unwrap();
            let request = message.op_msg().unwrap();
            self.server.compressed.fetch_add(u32::from(was_compressed), Ordering::Relaxed);
            let name = request.body.iter().next().unwrap().unwrap().0.to_string();
            lock(&self.server.commands).push(request.body.to_owned());
            if request.flags.contains(Flags::MORE_TO_COME) || self.ended {
                continue;
            }
            if request.body.get("maxAwaitTimeMS").unwrap().is_some() {
                self.awaited = Some(message.header().request_id);
                continue;
            }
            if *lock(&self.server.mute_from) == Some(name.as_str()) {
                self.server.mute.store(true, Ordering::Relaxed);
            }
            let streams = self.server.streams.load(Ordering::Relaxed);
            let is_hello = matches!(name.as_str(), "hello" | "isMaster");
            let next = (!is_hello).then(|| lock(&self.server.replies).pop_front()).flatten();
            let next = match next {
                Some(None) => {
                    self.ended = true;
                    continue;
                }
                next => next.flatten(),
            };
            let reply = match (name.as_str(), &*lock(&self.server.reply)) {
                _ if is_hello => {
                    let mut reply = hello(streams);
                    if let Some(service) = *lock(&self.server.service) {
                        reply.append(cstr!("serviceId"), service);
                    }
                    if self.server.has_sessions.load(Ordering::Relaxed) {
                        append_sessions(&mut reply);
                    }
                    if self.server.compresses.load(Ordering::Relaxed) {
                        reply.append(cstr!("compression"), RawArrayBuf::from_iter(["snappy"]));
                    }
                    reply
                }
                _ if next.is_some() => next.unwrap_or_default(),
                (_, Some(reply)) => reply.clone(),
                ("saslStart", None) => rawdoc! { "ok": 1, "conversationId": 1, "done": true },
                (_, None) if self.server.has_expired() => {
                    rawdoc! { "ok": 0, "code": 391, "errmsg": "ReauthenticationRequired" }
                }
                (_, None) => rawdoc! { "ok": 1 },
            };
            self.ended = self.server.hangs_up.load(Ordering::Relaxed);
            let streams = request.flags.contains(Flags::EXHAUST_ALLOWED);
            let mut out = Vec::new();
            let mut answers = message.header().request_id;
            for number in (0..if streams { 3 } else { 1 }).rev() {
                let flags = if number > 0 { Flags::MORE_TO_COME } else { Flags::NONE };
                let id = 1000 + number;
                let start = out.len();
                write_op_msg(&mut out, id, answers, flags, &reply);
                if !is_hello {
                    self.server.compress(&mut out, start);
                }
                answers = id;
            }
            let is_twice = matches!(name.as_str(), "ping" | "saslStart");
            if self.server.chatty.load(Ordering::Relaxed) && is_twice {
                self.replies.extend(&out);
            }
            self.replies.extend(out);
        }
    }

    /// Answers the awaitable hello if there is news.
    fn tell_changes(&mut self) {
        if self.awaited.is_some() && self.server.changes.swap(false, Ordering::Relaxed) {
            let (answers, mut out) = (self.awaited.take().unwrap(), Vec::new());
            write_op_msg(&mut out, 1000, answers, Flags::NONE, &hello(true));
            self.replies.extend(out);
        }
    }

    fn at_most(&self, wanted: usize) -> usize {
        match self.server.torn.load(Ordering::Relaxed) {
            0 => wanted,
            most => wanted.min(most as usize),
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.server.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Socket for Wire {
    fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        buffer: &mut [u8],
        deadline: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        self.server.reads.fetch_add(1, Ordering::Relaxed);
        let mute = self.server.mute.load(Ordering::Relaxed);
        if self.server.gives_up.swap(false, Ordering::Relaxed) {
            // ETIMEDOUT, of Linux and of macOS.
            let code = if cfg!(target_os = "linux") { 110 } else { 60 };
            return Poll::Ready(Err(io::Error::from_raw_os_error(code)));
        }
        self.tell_changes();
        if self.replies.is_empty() || mute {
            if self.server.stops.swap(false, Ordering::Relaxed) {
                self.server.mute.store(false, Ordering::Relaxed);
                let mut now = lock(&self.now);
                *now = *now + Duration::from_secs(300);
            }
            return match deadline.is_some_and(|deadline| deadline <= *lock(&self.now)) {
                true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                false if self.ended || self.shut.load(Ordering::Relaxed) => Poll::Ready(Ok(0)),
                false => Poll::Pending,
            };
        }
        let count = self.at_most(buffer.len().min(self.replies.len()));
        for place in &mut buffer[..count] {
            *place = self.replies.pop_front().unwrap();
        }
        Poll::Ready(Ok(count))
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        bytes: &[u8],
        _: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        if self.server.resets.load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let count = self.at_most(bytes.len());
        self.requests.extend(&bytes[..count]);
        self.serve();
        Poll::Ready(Ok(count))
    }

    fn is_quiet(&mut self) -> bool {
        !self.ended && self.replies.is_empty()
    }

    fn interrupter(&self) -> Option<Interrupter> {
        let (shut, server) = (Arc::clone(&self.shut), Arc::clone(&self.server));
        let interrupt: Interrupter = Box::new(move || {
            shut.store(true, Ordering::Relaxed);
            lock(&server.when_interrupted).iter().for_each(|act| act());
        });
        self.server.blocks.load(Ordering::Relaxed).then_some(interrupt)
    }
}

fn hello(streams: bool) -> RawDocumentBuf {
    let mut hello = rawdoc! {
        "ok": 1,
        "isWritablePrimary": true,
        "ismaster": true,
        "minWireVersion": 0,
        "maxWireVersion": 17,
        "connectionId": 7,
    };
    if streams {
        let version = rawdoc! { "processId": ObjectId::from_bytes([7; 12]), "counter": 1_i64 };
        hello.append(cstr!("topologyVersion"), version);
    }
    hello
}

fn append_sessions(hello: &mut RawDocumentBuf) {
    hello.append(cstr!("msg"), "isdbgrid");
    hello.append(cstr!("logicalSessionTimeoutMinutes"), 30);
}

/// Notes that a task was woken.
#[derive(Default)]
pub(super) struct Alarm(AtomicBool);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A future of a test, polled only when it was woken or when a test insists.
pub(super) struct Task<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    alarm: Arc<Alarm>,
}

impl<'a, T> Task<'a, T> {
    pub(super) fn new(future: impl Future<Output = T> + 'a) -> Self {
        let alarm = Arc::new(Alarm(AtomicBool::new(true)));
        Self { future: Box::pin(future), alarm }
    }

    pub(super) fn was_woken(&self) -> bool {
        self.alarm.0.load(Ordering::Relaxed)
    }

    /// Returns whether a waker of the task is still kept.
    pub(super) fn is_known(&self) -> bool {
        Arc::strong_count(&self.alarm) > 1
    }

    pub(super) fn poll(&mut self) -> Poll<T> {
        self.alarm.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&self.alarm));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

/// Connects to the server.
pub(super) async fn connect(
    server: Arc<Behaviour>,
    now: Arc<Mutex<Instant>>,
) -> Result<Connected<Wire>, Failure> {
    let address = "a".parse().unwrap();
    let mut wire = Vec::new();
    let config = TransportConfig::default();
    let transport = Transport::start(&config, &address, &address, &mut wire)?;
    Ok(Connected { socket: Wire::new(server, now), transport, wire })
}

/// A client that has discovered a standalone.
pub(super) struct Fixture {
    pub(super) host: Arc<Host<Puppet>>,
    pub(super) server: Arc<Behaviour>,
    /// The monitor's connection.
    pub(super) link: Link<Puppet>,
    establishing: Mutex<Vec<Task<'static, ()>>>,
}

impl Fixture {
    pub(super) fn new(options: &str) -> Self {
        let host = host(&format!("mongodb://a/?directConnection=true{options}"), false);
        host.ring();
        Self::begin(host)
    }

    /// The same of another runtime.
    pub(super) fn of(runtime: Puppet) -> Self {
        let options = Options::parse("mongodb://a/?directConnection=true").unwrap();
        let host = Host::new(Arc::new(options), 1, runtime);
        host.ring();
        Self::begin(host)
    }

    /// The same in the single-threaded mode, where an operation has waited for the check.
    pub(super) fn single_threaded(options: &str) -> Self {
        let uri = format!("mongodb://a/?directConnection=true{options}");
        let options = Options::builder().uri(&uri).unwrap().single_threaded(true).build().unwrap();
        let host = Host::new(Arc::new(options), 1, Puppet::default());
        host.ring();
        let criteria = Arc::new(sdam_core::selection::Criteria::write());
        let asked = Arc::clone(&host);
        let mut selection = Task::new(asked.select(&criteria, None));
        assert!(selection.poll().is_pending());
        let fixture = Self::begin(host);
        assert!(selection.poll().is_ready(), "the check was waited for");
        drop(selection);
        fixture
    }

    /// A client that has discovered a mongos.
    pub(super) fn mongos() -> Self {
        let host = host("mongodb://a", false);
        host.ring();
        let fixture = Self::listen(host);
        let mut reply = hello(false);
        reply.append(cstr!("msg"), "isdbgrid");
        fixture.link.received(&Self::reply_with(&fixture.link, &reply));
        fixture
    }

    /// A client that has discovered a mongos with sessions.
    pub(super) fn with_sessions(options: &str) -> Self {
        let host = host(&format!("mongodb://a/?{options}"), false);
        host.ring();
        let fixture = Self::listen(host);
        fixture.server.has_sessions.store(true, Ordering::Relaxed);
        let mut reply = hello(false);
        append_sessions(&mut reply);
        fixture.link.received(&Self::reply_with(&fixture.link, &reply));
        fixture
    }

    /// Answers the next check of a mongos with sessions, if it has begun, over whichever link.
    pub(super) fn check_again(&self) {
        let new = lock(&self.host.runtime().links).pop();
        let link = new.as_ref().unwrap_or(&self.link);
        if new.is_some() {
            link.opened();
        }
        let mut reply = hello(false);
        append_sessions(&mut reply);
        let mut cx = Context::from_waker(Waker::noop());
        if let Poll::Ready(Some(bytes)) = link.poll_outgoing(&mut cx) {
            link.received(&Self::reply_to(&bytes, &reply));
        }
    }

    pub(super) fn begin(host: Arc<Host<Puppet>>) -> Self {
        let fixture = Self::listen(host);
        fixture.heartbeat();
        fixture
    }

    fn listen(host: Arc<Host<Puppet>>) -> Self {
        let link = take_link(&host);
        let fixture = Self { host, server: Arc::default(), link, establishing: Mutex::default() };
        fixture.link.opened();
        fixture
    }

    /// Answers the hello of the monitor.
    pub(super) fn heartbeat(&self) {
        Self::answer(&self.link);
    }

    /// Answers the hello of a monitor over this link.
    pub(super) fn answer(link: &Link<Puppet>) {
        link.received(&Self::reply_to_hello(link));
    }

    /// Takes the hello of a monitor, and returns what answers it.
    pub(super) fn reply_to_hello(link: &Link<Puppet>) -> Vec<u8> {
        Self::reply_with(link, &hello(false))
    }

    /// Takes the hello of a monitor, and returns what answers it like this.
    pub(super) fn reply_with(link: &Link<Puppet>, hello: &RawDocument) -> Vec<u8> {
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(bytes)) = link.poll_outgoing(&mut cx) else { panic!("no hello") };
        Self::reply_to(&bytes, hello)
    }

    /// Answers the hello in these bytes like this.
    fn reply_to(bytes: &[u8], hello: &RawDocument) -> Vec<u8> {
        let mut frames = Frames::new();
        frames.extend(bytes);
        let request = frames.next().unwrap().unwrap().header().request_id;
        let mut reply = Vec::new();
        write_op_msg(&mut reply, 1, request, Flags::NONE, hello);
        reply
    }

    /// Lets time pass, and rings whenever the host has asked for it.
    pub(super) fn pass(&self, time: Duration) {
        pass(&self.host, time);
    }

    pub(super) fn now(&self) -> Instant {
        *lock(&self.host.runtime().now)
    }

    /// The one server and its pool.
    pub(super) fn pool(&self) -> SelectedServer<Puppet> {
        self.host.members()[0].clone()
    }

    /// Lets the tasks that establish connections go on; returns whether any was there.
    pub(super) fn establish(&self) -> bool {
        let pending: Vec<PendingConnection<Puppet>> =
            std::mem::take(&mut *lock(&self.host.runtime().pending));
        let mut tasks = std::mem::take(&mut *lock(&self.establishing));
        tasks.extend(pending.into_iter().map(|pending| {
            let (server, now) = (Arc::clone(&self.server), Arc::clone(&self.host.runtime().now));
            Task::new(pending.run(connect(server, now), || Ok([7; 24])))
        }));
        let any = !tasks.is_empty();
        tasks.retain_mut(|task| task.poll().is_pending());
        lock(&self.establishing).extend(tasks);
        any
    }

    /// As `establish`, for those alone that were woken.
    pub(super) fn establish_woken(&self) {
        let mut tasks = std::mem::take(&mut *lock(&self.establishing));
        tasks.retain_mut(|task| !task.was_woken() || task.poll().is_pending());
        lock(&self.establishing).extend(tasks);
    }

    /// Drops the tasks that establish connections, as a runtime that ends does.
    pub(super) fn give_up(&self) {
        // Not while they are locked: the pool may ask for the next one at once.
        let pending = std::mem::take(&mut *lock(&self.host.runtime().pending));
        let tasks = std::mem::take(&mut *lock(&self.establishing));
        drop((pending, tasks));
    }

    /// Runs a task, and those that establish connections, to its end.
    pub(super) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut task = Task::new(future);
        for _ in 0..10_000 {
            if let Poll::Ready(result) = task.poll() {
                return result;
            }
            self.establish();
        }
        panic!("the task does not end");
    }

    /// Runs `ping`.
    pub(super) async fn ping(&self, deadline: Option<Instant>) -> Result<(), String> {
        let criteria = Arc::new(sdam_core::selection::Criteria::write());
        let ping: &RawDocument = &rawdoc! { "ping": 1 };
        let timeout = deadline.map_or(Timeout::Unset, Timeout::At);
        let reply = self.host.run_command("admin", ping, criteria, timeout).await;
        reply.map(drop).map_err(|error| error.to_string())
    }
}
