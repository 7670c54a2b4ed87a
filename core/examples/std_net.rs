//! Discovers a deployment and follows its failovers with `sdam-core` and `std::net` alone.
//!
//! One loop owns the machine. Each stream has a thread that reads it, and a channel leads from the
//! threads to the loop. `cargo run -p sdam-core --example std_net -- mongodb://localhost`
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "loops do I/O")]

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant as Clock};
use std::{error::Error, sync::Arc, thread};

use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::TopologyDescription;
use sdam_core::failure::{Failure, Stage};
use sdam_core::id::LinkId;
use sdam_core::machine::Machine;
use sdam_core::time::{Instant, Time};
use sdam_core::topology::{Action, Input, Topology};

/// The number of messages that may wait for the loop; a thread that has one more waits itself.
const QUEUE: usize = 64;

type Sender = SyncSender<(LinkId, News)>;
type View = Arc<TopologyDescription>;

/// The report of a stream's thread.
enum News {
    Opened(Stream),
    Received(Vec<u8>),
    Closed(Failure),
}

/// A stream that is closed when it is dropped, although its thread has a handle of its own.
struct Stream(TcpStream);

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// The streams that the machine has asked for; `None` while one is being opened.
struct Streams(BTreeMap<LinkId, Option<Stream>>);

impl Streams {
    /// Performs actions in order, without blocking, and returns the view if there is a new one.
    fn perform(&mut self, actions: &mut Vec<Action>, sender: &Sender) -> Option<View> {
        let mut view = None;
        for action in actions.drain(..) {
            match action {
                Action::Open { link, address } => {
                    self.0.insert(link, None);
                    let sender = sender.clone();
                    thread::spawn(move || match read(link, &address, &sender) {
                        Err(failure) => sender.send((link, News::Closed(failure))),
                        Ok(()) => Ok(()),
                    });
                }
                // A hello fits into the socket's buffer. A stream that does not take it is closed,
                // and its thread reports that.
                Action::Send { link, bytes } => {
                    let Some(stream) = self.0.get_mut(&link) else { continue };
                    if stream.as_mut().is_some_and(|open| open.0.write_all(&bytes).is_err()) {
                        *stream = None;
                    }
                }
                Action::Close { link } => drop(self.0.remove(&link)),
                Action::Publish { snapshot } => view = Some(Arc::clone(snapshot.description())),
                // For pools, operations, subscribers, and mongodb+srv://, which is refused here.
                Action::Join { .. } | Action::Leave { .. } | Action::Pool { .. } => {}
                Action::Wake { .. } | Action::Emit { .. } | Action::Resolve { .. } => {}
            }
        }
        view
    }
}

/// Opens a stream and reads it to its end. If opening takes too long, the machine gives it up.
fn read(link: LinkId, address: &ServerAddress, sender: &Sender) -> Result<(), Failure> {
    let failed = |stage| move |error: io::Error| Failure::from_io(stage, &error);
    let to = (address.host(), address.port().unwrap_or_default());
    let mut stream = TcpStream::connect(to).map_err(failed(Stage::Connect))?;
    let handle = stream.set_nodelay(true).and_then(|()| stream.try_clone());
    let mut news = News::Opened(Stream(handle.map_err(failed(Stage::Connect))?));
    let mut buffer = vec![0; 16 * 1024];
    // The receiver is gone once the loop has ended.
    while sender.send((link, news)).is_ok() {
        let length = match stream.read(&mut buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            other => other,
        };
        news = News::Received(buffer[..length.map_err(failed(Stage::Hello))?].to_vec());
    }
    Ok(())
}

/// Writes a line for each change of a deployment, until `out` fails.
pub(crate) fn follow(uri: &str, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let options = Options::parse(uri)?;
    if options.tls().is_some() || options.proxy().is_some() || options.srv().is_some() {
        return Err("this example takes mongodb:// only, without TLS and without a proxy".into());
    }
    let (mut streams, mut actions) = (Streams(BTreeMap::new()), Vec::new());
    let (sender, inbox) = sync_channel(QUEUE);
    let (clock, mut last) = (Clock::now(), String::new());
    let now = || Instant::ZERO + clock.elapsed();
    // All randomness of a machine comes from its seed.
    let mut topology = Topology::new(Arc::new(options), RandomState::new().hash_one(clock));
    loop {
        let wait = topology.deadline().map_or(Duration::MAX, |deadline| deadline - now());
        let first = inbox.recv_timeout(wait).ok();
        // Only `tick` lets a deadline pass, so that news which came in time is never late.
        for (link, news) in first.into_iter().chain(inbox.try_iter().take(QUEUE)) {
            let time = Time::before(topology.deadline(), now());
            match news {
                News::Opened(stream) => {
                    // A link that is closed meanwhile has no place, and this drops its stream.
                    streams.0.entry(link).and_modify(|place| *place = Some(stream));
                    topology.handle(time, Input::Opened { link }, &mut actions);
                }
                News::Received(bytes) => {
                    topology.handle(time, Input::Received { link, bytes: &bytes }, &mut actions);
                }
                News::Closed(failure) => {
                    streams.0.remove(&link);
                    topology.handle(time, Input::Closed { link, failure }, &mut actions);
                }
            }
        }
        topology.tick(now().into(), &mut actions);
        let Some(view) = streams.perform(&mut actions, &sender) else { continue };
        let mut line = view.topology_type.to_string();
        for server in view.servers().iter() {
            line += &format!(" {}={}", server.address, server.server_type);
        }
        if line != last {
            writeln!(out, "{line}")?;
            last = line;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let uri = std::env::args().nth(1).ok_or("usage: std_net CONNECTION_STRING")?;
    follow(&uri, &mut io::stdout())
}
