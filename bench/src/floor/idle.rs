//! A client that watches servers and does nothing else: its memory, and its CPU time.
//!
//! The floor has two sockets for each server, as the protocol demands: over one the server streams
//! its replies to hello, and over the other one the round trip time is measured as often. It keeps
//! nothing of the replies.

use std::any::Any;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use rustix::event::epoll;
use sdam_bench::Failure;
use sdam_bench::load::cpu_time;
use sdam_core::config::Options;
use sdam_core::description::{ServerType, TopologyDescription};
use sdam_core::wire::{Flags, HEADER_LEN, write_op_msg};

use crate::Competitor;
use crate::start::hello;

/// The time after discovery that is not measured: streams begin, and what discovery needed is given
/// back.
const SETTLE: Duration = Duration::from_secs(3);

/// The time that discovery may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The value of heartbeatFrequencyMS.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Returns private memory in KiB, and CPU time in milliseconds a minute.
pub(crate) fn usage(competitor: Competitor, uri: &str, seconds: u64) -> Result<Vec<f64>, Failure> {
    let time = Duration::from_secs(seconds);
    let _watching: Box<dyn Any> = match competitor {
        Competitor::Floor => return Floor::open(uri)?.watch(time),
        Competitor::Sdam => {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?;
            let client = {
                let _entered = runtime.enter();
                sdam_tokio::Client::new(Options::parse(uri)?)?
            };
            wait(|| is_whole(&client.view()))?;
            Box::new((client, runtime))
        }
        Competitor::SdamBlocking => {
            let client = sdam_blocking::Client::new(Options::parse(uri)?)?;
            wait(|| is_whole(&client.view()))?;
            Box::new(client)
        }
        Competitor::Mongodb => {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?;
            let client = runtime.block_on(mongodb::Client::with_uri_str(uri))?;
            let database = client.database("admin");
            runtime.block_on(async {
                database.run_command(mongodb::bson::doc! { "ping": 1 }).await
            })?;
            thread::sleep(SETTLE);
            Box::new((client, runtime))
        }
        Competitor::MongodbSync => {
            let client = mongodb::sync::Client::with_uri_str(uri)?;
            client.database("admin").run_command(mongodb::bson::doc! { "ping": 1 }).run()?;
            thread::sleep(SETTLE);
            Box::new(client)
        }
    };
    thread::sleep(SETTLE);
    let before = cpu_time();
    thread::sleep(time);
    figures(cpu_time() - before, time)
}

fn is_whole(view: &TopologyDescription) -> bool {
    view.servers().iter().all(|server| server.server_type == ServerType::Mongos)
}

fn wait(done: impl Fn() -> bool) -> Result<(), Failure> {
    let begun = Instant::now();
    while !done() {
        if begun.elapsed() > LIMIT {
            return Err("the servers were not all found in a minute".into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Reads the private memory of this process from Linux.
fn figures(cpu: Duration, time: Duration) -> Result<Vec<f64>, Failure> {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup")?;
    let kib = |name: &str| -> Result<f64, Failure> {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.ok_or_else(|| format!("smaps_rollup says nothing of {name}"))?.parse()?)
    };
    let private = kib("Private_Clean:")? + kib("Private_Dirty:")?;
    Ok(vec![private, cpu.as_secs_f64() * 1e3 * 60.0 / time.as_secs_f64()])
}

/// One thread with an epoll and the sockets.
struct Floor {
    epoll: std::os::fd::OwnedFd,
    /// Streams, then those that measure the round trip time.
    sockets: Vec<TcpStream>,
    servers: usize,
    buffer: Vec<u8>,
}

impl Floor {
    fn open(uri: &str) -> Result<Self, Failure> {
        let hosts = crate::start::address(uri)?;
        let addresses: Vec<&str> = hosts.split(',').collect();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut floor =
            Self { epoll, sockets: Vec::new(), servers: addresses.len(), buffer: vec![0; 1 << 16] };
        for address in addresses.iter().chain(&addresses) {
            let mut socket = TcpStream::connect(address)?;
            socket.set_nodelay(true)?;
            let streams = floor.sockets.len() < floor.servers;
            socket.write_all(&message(&hello()))?;
            let reply = read(&mut socket, &mut floor.buffer)?;
            if streams {
                let version = RawDocument::from_bytes(reply)?.get_document("topologyVersion")?;
                let awaited = rawdoc! {
                    "isMaster": 1, "helloOk": true, "topologyVersion": version.to_owned(),
                    "maxAwaitTimeMS": i64::try_from(HEARTBEAT.as_millis())?, "$db": "admin",
                };
                let mut bytes = Vec::new();
                write_op_msg(&mut bytes, 2, 0, Flags::EXHAUST_ALLOWED, &awaited);
                socket.write_all(&bytes)?;
            }
            let key = epoll::EventData::new_u64(u64::try_from(floor.sockets.len())?);
            epoll::add(&floor.epoll, &socket, key, epoll::EventFlags::IN)?;
            floor.sockets.push(socket);
        }
        Ok(floor)
    }

    fn watch(mut self, time: Duration) -> Result<Vec<f64>, Failure> {
        let ping = message(&hello());
        self.until(Instant::now() + SETTLE, &ping)?;
        let before = cpu_time();
        self.until(Instant::now() + time, &ping)?;
        figures(cpu_time() - before, time)
    }

    /// Reads what comes, and asks for round trip times, until then.
    fn until(&mut self, end: Instant, ping: &[u8]) -> Result<(), Failure> {
        let mut next = Instant::now() + HEARTBEAT;
        let mut events = Vec::with_capacity(64);
        while Instant::now() < end {
            let patience = next.min(end).saturating_duration_since(Instant::now());
            let patience = rustix::event::Timespec::try_from(patience)?;
            events.clear();
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&patience))?;
            for event in &events {
                let index = usize::try_from(event.data.u64())?;
                read(&mut self.sockets[index], &mut self.buffer)?;
            }
            if Instant::now() >= next {
                next += HEARTBEAT;
                let pings = &mut self.sockets[self.servers..];
                pings.iter_mut().try_for_each(|socket| socket.write_all(ping))?;
            }
        }
        Ok(())
    }
}

/// Reads a whole reply, and returns its document.
fn read<'a>(socket: &mut TcpStream, buffer: &'a mut [u8]) -> Result<&'a [u8], Failure> {
    let mut filled = 0;
    loop {
        filled += match socket.read(&mut buffer[filled..])? {
            0 => return Err("a server has hung up".into()),
            count => count,
        };
        let length = buffer.first_chunk().map(|length| i32::from_le_bytes(*length));
        if filled >= HEADER_LEN && filled >= usize::try_from(length.unwrap_or(0))? {
            // After the header come the flags and the kind of the section.
            return Ok(&buffer[HEADER_LEN + 5..filled]);
        }
    }
}

fn message(command: &RawDocumentBuf) -> Vec<u8> {
    let mut message = Vec::new();
    write_op_msg(&mut message, 1, 0, Flags::NONE, command);
    message
}
