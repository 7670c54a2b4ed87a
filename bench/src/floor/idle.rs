//! The floor of a client that watches servers and does nothing else.
//!
//! It does what the protocol demands, and no more: over one socket to each server the server
//! streams its replies to hello, one in each interval of heartbeats, and over a second one the
//! round trip time is measured as often. One thread waits for all of them. Nothing of the replies
//! is kept.

use std::hint::black_box;
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bson::{RawDocument, rawdoc};
use rustix::event::{Timespec, epoll};
use sdam_bench::Failure;
use sdam_bench::idle::Idle;
use sdam_bench::raw::{exchange, hello, message, read};
use sdam_bench::watch::Watcher;
use sdam_core::wire::Flags;

use crate::start::addresses;
use crate::{Competitor, HEARTBEAT};

/// The time after discovery that is not measured: streams begin, and what discovery needed is given
/// back. What happens once in each interval since then is half an interval away from both ends of
/// what is measured.
const SETTLE: Duration = Duration::from_secs(5);

/// The length of the buffer for a reply.
const REPLY_LEN: usize = 4096;

/// Measures a competitor while so many heartbeats come from each server.
pub(crate) fn measure(competitor: Competitor, uri: &str, heartbeats: u32) -> Result<Idle, Failure> {
    let window = heartbeats * HEARTBEAT;
    let watcher = match competitor {
        Competitor::Floor => return Floor::open(uri)?.watch(heartbeats),
        Competitor::FloorTokio => return Err("this floor is one of pings".into()),
        Competitor::Sdam => Watcher::Tokio,
        Competitor::SdamBlocking => Watcher::Blocking,
        Competitor::Mongodb => Watcher::Mongodb,
        Competitor::MongodbSync => Watcher::MongodbSync,
        Competitor::Libmongoc => return Err("its program does not watch servers".into()),
    };
    let _watching = watcher.watch(uri)?;
    Idle::measure(SETTLE, window, |time| {
        std::thread::sleep(time);
        Ok(())
    })
}

/// One thread with an epoll and the sockets.
struct Floor {
    epoll: OwnedFd,
    /// Streams, then those that measure the round trip time.
    sockets: Vec<TcpStream>,
    servers: usize,
    buffer: Vec<u8>,
    /// The moment when round trip times are measured next.
    due: Instant,
    /// The replies that were streamed, and the round trip times that were measured.
    replies: [usize; 2],
}

impl Floor {
    fn open(uri: &str) -> Result<Self, Failure> {
        let addresses = addresses(uri)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (servers, due) = (addresses.len(), Instant::now() + HEARTBEAT);
        let buffer = vec![0; REPLY_LEN];
        let mut floor = Self { epoll, sockets: Vec::new(), servers, buffer, due, replies: [0; 2] };
        for address in addresses.iter().chain(&addresses) {
            let mut socket = TcpStream::connect(address)?;
            socket.set_nodelay(true)?;
            let hello = message(Flags::NONE, &hello());
            let reply = exchange(&mut socket, &hello, &mut floor.buffer)?;
            if floor.sockets.len() < servers {
                socket.write_all(&awaitable(reply)?)?;
            }
            let key = epoll::EventData::new_u64(u64::try_from(floor.sockets.len())?);
            epoll::add(&floor.epoll, &socket, key, epoll::EventFlags::IN)?;
            floor.sockets.push(socket);
        }
        Ok(floor)
    }

    /// Measures itself, and fails if it did anything but what the protocol demands.
    fn watch(mut self, heartbeats: u32) -> Result<Idle, Failure> {
        let ping = message(Flags::NONE, &hello());
        let idle = Idle::measure(SETTLE, heartbeats * HEARTBEAT, |time| {
            self.replies = [0; 2];
            self.until(Instant::now() + time, &ping)
        })?;
        let demanded = [self.servers * usize::try_from(heartbeats)?; 2];
        match self.replies == demanded {
            true => Ok(idle),
            false => {
                let [streamed, measured] = self.replies;
                let demanded = demanded[0];
                Err(format!(
                    "the floor read {streamed} streamed replies and measured {measured} round \
                     trips, and not {demanded} of both"
                )
                .into())
            }
        }
    }

    /// Reads what comes, and measures round trip times, until then.
    fn until(&mut self, end: Instant, ping: &[u8]) -> Result<(), Failure> {
        let mut events = Vec::with_capacity(64);
        while Instant::now() < end {
            let patience = self.due.min(end).saturating_duration_since(Instant::now());
            let patience = Timespec::try_from(patience)?;
            events.clear();
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&patience))?;
            for event in &events {
                let index = usize::try_from(event.data.u64())?;
                read(&mut self.sockets[index], &mut self.buffer)?;
                let measures = index >= self.servers;
                if measures {
                    black_box((self.due - HEARTBEAT).elapsed());
                }
                self.replies[usize::from(measures)] += 1;
            }
            if Instant::now() >= self.due {
                self.due += HEARTBEAT;
                let pings = &mut self.sockets[self.servers..];
                pings.iter_mut().try_for_each(|socket| socket.write_all(ping))?;
            }
        }
        Ok(())
    }
}

/// Returns the message that asks a server to stream its replies, after its first one.
fn awaitable(reply: &[u8]) -> Result<Vec<u8>, Failure> {
    let version = RawDocument::from_bytes(reply)?.get_document("topologyVersion")?;
    let awaited = rawdoc! {
        "isMaster": 1, "helloOk": true, "topologyVersion": version.to_owned(),
        "maxAwaitTimeMS": i64::try_from(HEARTBEAT.as_millis())?, "$db": "admin",
    };
    Ok(message(Flags::EXHAUST_ALLOWED, &awaited))
}
