//! A storm: load, faults meanwhile, and the calm after it.

use std::time::{Duration, Instant};

use sdam_conformance::forwarder::{Forwarder, Traffic};
use sdam_core::bson::rawdoc;
use sdam_core::config::address_map::{AddressMap, AddressRule};
use sdam_core::config::{Options, ServerAddress};
use sdam_core::pool::Counts;
use sdam_tokio::{SelectedServer, Topology};

use crate::Outcome;
use crate::load::{DEADLINE, Load};
use crate::residue::Residue;
use crate::support::{is_whole, soon, view};

/// The time that the client may take to use a primary, from the fault on: an election, the time
/// until a silent server is given up, and a queue behind writes that a new primary cannot commit
/// while the other secondary still waits for the old one.
const RECOVERY_LIMIT: Duration = Duration::from_secs(60);

/// Puts a client under load while faults happen, and looks at what is left of it; returns how many
/// more sockets than before were open the moment that it was closed, those of far ends included
/// that are in this process.
pub(crate) async fn storm(
    options: Options,
    faults: impl AsyncFnOnce(&Topology) -> Outcome,
) -> Result<usize, Box<dyn std::error::Error>> {
    let before = Residue::now();
    let client = Topology::new(options)?;
    view(&client, is_whole).await;
    let load = Load::start(&client);
    faults(&client).await?;
    let at_most = Residue::now();
    let tally = load.end().await?;
    eprintln!("{tally}");
    if tally.succeeded == 0 || tally.cancelled == 0 || tally.failed.is_empty() {
        return Err("that was no storm".into());
    }
    view(&client, is_whole).await;
    let members = client.members();
    soon(at_rest(&members)).await;
    client.close().await;
    let closed = Residue::now();
    for member in &members {
        assert_eq!(member.counts(), Counts::default(), "{}", member.address());
    }
    drop((client, members));
    before.is_all_there_is().await?;
    let after = Residue::now();
    eprintln!("before {before:?}, in the storm {at_most:?}, closed {closed:?}, after {after:?}");
    Ok(closed.sockets.saturating_sub(before.sockets))
}

async fn until_an_operation_fails(client: &Topology) {
    let ping = rawdoc! { "ping": 1 };
    while client.with_timeout(DEADLINE).run_command("admin", &ping).await.is_ok() {}
}

/// Waits until no connection is in use, awaited or being made.
pub(crate) async fn at_rest(members: &[SelectedServer]) {
    let rests = |member: &SelectedServer| {
        let Counts { pending, in_use, waiting, .. } = member.counts();
        (pending, in_use, waiting, member.operation_count()) == (0, 0, 0, 0)
    };
    while !members.iter().all(rests) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the client runs a command on a primary that is accepted; returns how long it took.
///
/// # Errors
///
/// Fails if that takes too long.
pub(crate) async fn primary(
    client: &Topology,
    accepted: impl Fn(&str) -> bool,
) -> Result<Duration, Box<dyn std::error::Error>> {
    let start = Instant::now();
    loop {
        let reply =
            client.with_timeout(DEADLINE).run_command("admin", &rawdoc! { "hello": 1 }).await;
        match reply {
            Ok(reply) if reply.get_str("me").is_ok_and(&accepted) => return Ok(start.elapsed()),
            other if start.elapsed() > RECOVERY_LIMIT => {
                let me = other.map(|reply| reply.get_str("me").unwrap_or_default().to_owned());
                return Err(format!("no primary is found; the last answer was {me:?}").into());
            }
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// The network between a client and the servers of a deployment.
pub(crate) struct Network {
    forwarders: Vec<(ServerAddress, Forwarder)>,
}

impl Network {
    pub(crate) fn to(servers: &[ServerAddress]) -> Result<Self, Box<dyn std::error::Error>> {
        let forwarders = servers.iter().map(|server| {
            let forwarder = Forwarder::start(vec![server.to_string().parse()?])?;
            Ok((server.clone(), forwarder))
        });
        let forwarders = forwarders.collect::<Result<_, Box<dyn std::error::Error>>>()?;
        Ok(Self { forwarders })
    }

    /// Returns options with which a client uses this network.
    pub(crate) fn options(&self, uri: &str) -> Result<Options, Box<dyn std::error::Error>> {
        let rules = self.forwarders.iter().map(|(server, forwarder)| {
            Ok(format!("{server}={}", forwarder.address()).parse::<AddressRule>()?)
        });
        let rules = rules.collect::<Result<Vec<_>, Box<dyn std::error::Error>>>()?;
        Ok(Options::builder().uri(uri)?.address_map(AddressMap::new(rules)?).build()?)
    }

    /// Disturbs the way to the primary until the client notices, and then repairs it; returns how
    /// long the client takes after that to find a primary: on a busy machine the members may have
    /// elected another one meanwhile.
    pub(crate) async fn cut(
        &self,
        client: &Topology,
        traffic: Traffic,
    ) -> Result<Duration, Box<dyn std::error::Error>> {
        let description = client.view();
        let primary = &description.primary().ok_or("there is a primary")?.address;
        let cut = self.forwarders.iter().find(|(server, _)| server == primary);
        let (_, forwarder) = cut.ok_or("the primary is behind a forwarder")?;
        forwarder.set(traffic);
        match traffic {
            // The server goes on to stream its heartbeats, so that only operations notice.
            Traffic::DropToServer => soon(until_an_operation_fails(client)).await,
            _ => view(client, |view| view.primary().is_none_or(|it| it.address != *primary)).await,
        }
        forwarder.set(Traffic::Pass);
        // The peers of connections that were cut do not know what they have missed.
        forwarder.reset_all();
        self::primary(client, |_| true).await
    }
}
