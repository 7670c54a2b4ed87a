//! Looks up SRV and TXT records: asks name servers.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time;

use sdam_core::dns::{
    Answer, DnsCause, DnsError, NameServers, Question, Transport, any_address_for,
};
use sdam_core::time::Instant;
use sdam_host::system::{lookup_seed, name_servers};
use sdam_host::{NameServerSocket, Resolver, ask_name_servers};
use socket2::{SockAddr, Socket, Type};

use crate::connect::open;
use crate::engine::{Engine, Interest, Registration};
use crate::helper::{Helper, Lane};

/// Who is asked for SRV and TXT records.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// The name servers that `/etc/resolv.conf` names at the time.
    System,
    NameServers(NameServers),
    Application(Arc<dyn Resolver>),
}

/// Asks for records, as a task of `engine`.
pub(crate) async fn lookup(
    engine: &Arc<Engine>,
    helper: &Helper,
    question: Question,
    source: Source,
) -> Result<Answer, DnsError> {
    let asked = question.clone();
    let failed = |error: io::Error| {
        DnsError::new(asked.clone(), DnsCause::Resolver(error.to_string().into()))
    };
    let servers = match source {
        Source::NameServers(servers) => servers,
        Source::System => {
            let asked = question.clone();
            helper.call(Lane::Records, move || name_servers(&asked)).await.map_err(failed)??
        }
        Source::Application(resolver) => {
            let work = async move { resolver.lookup(question).await };
            return helper.run(Lane::Records, work).await.map_err(failed)?;
        }
    };
    let (seed, epoch) = (lookup_seed(&question)?, time::Instant::now());
    let now = || Instant::ZERO + epoch.elapsed();
    let sleep = |at: Instant| engine.sleep_until(epoch.checked_add(at.since_origin()));
    ask_name_servers::<DnsSocket, _>(question, servers, seed, now, sleep).await
}

struct DnsSocket {
    socket: Arc<Socket>,
    registration: Registration,
}

impl DnsSocket {
    /// Does something as soon as it can be done.
    async fn wait_for<T>(
        &self,
        interest: Interest,
        mut work: impl FnMut(&Socket) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match work(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.registration.ready(interest).await?;
                }
                done => return done,
            }
        }
    }
}

impl NameServerSocket for DnsSocket {
    async fn open(server: SocketAddr, transport: Transport, query: &[u8]) -> io::Result<Self> {
        let engine = Engine::current().ok_or_else(|| io::Error::other("this is no task"))?;
        let socket = match transport {
            Transport::Tcp => open(&engine, SockAddr::from(server)).await?,
            Transport::Udp => {
                let local = SockAddr::from(any_address_for(server));
                let socket = Socket::new(local.domain(), Type::DGRAM, None)?;
                socket.set_nonblocking(true)?;
                socket.bind(&local)?;
                socket.connect(&SockAddr::from(server))?;
                Arc::new(socket)
            }
        };
        let registration = Registration::new(&engine, &socket)?;
        let (this, mut rest) = (Self { socket, registration }, query);
        while !rest.is_empty() {
            let write = |mut socket: &Socket| socket.write(rest);
            let written = this.wait_for(Interest::WRITABLE, write).await?;
            rest = &rest[written..];
        }
        Ok(this)
    }

    async fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait_for(Interest::READABLE, |mut socket| socket.read(buffer)).await
    }
}
