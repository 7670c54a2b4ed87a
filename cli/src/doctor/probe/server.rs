//! All steps towards one server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_tokio::Topology;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::talk::Talk;
use super::{Means, certificate, client, revocation, way};
use crate::doctor::evidence::{Resolved, Role, Route, ServerSeen, Way};
use crate::stream::resolve;

/// The number of servers that are looked at; real replica sets have at most 50 members.
const MAX_SERVERS: usize = 100;

/// The number of a name's addresses that are connected to.
const MAX_ROUTES: usize = 4;

/// The time of a lookup from which there is no more of it than needed.
const SLOW: Duration = Duration::from_secs(2);

/// The number of connections beside the first one: enough to see a limit, and few enough to be
/// none.
const MORE: usize = 2;

/// The address of a server that has answered, and those that it names as members.
type Named = (ServerAddress, Vec<ServerAddress>);

/// Looks at the seeds, and at all that those which answer name as members. Sends all servers to
/// `progress` whenever one more is done; the others count as given up.
pub(in crate::doctor) async fn all(
    means: &Means,
    client: &Topology,
    progress: impl Fn(&[ServerSeen]),
) -> Vec<ServerSeen> {
    // This end keeps it open.
    let (greeted, mut greetings) = mpsc::unbounded_channel();
    let begin = |address: ServerAddress, is_seed| {
        let (means, client, greeted) = (means.of_one_server(), client.clone(), greeted.clone());
        async move {
            let mut server = ServerSeen::new(address, is_seed);
            look_at(&means, &client, &mut server, &greeted).await;
            server
        }
    };
    let (mut seen, mut under_way) = (Vec::<ServerSeen>::new(), JoinSet::new());
    for seed in means.options().seeds().iter().take(MAX_SERVERS) {
        seen.push(not_done(seed, true));
        under_way.spawn(begin(seed.clone(), true));
    }
    let follows = !means.options().direct_connection() && !means.options().load_balanced();
    loop {
        tokio::select! {
            // A task that has ended has sent its members before.
            biased;
            Some((by, members)) = greetings.recv() => {
                for member in members.into_iter().filter(|_| follows) {
                    if let Some(known) = seen.iter_mut().find(|it| it.address == member) {
                        note(&mut known.named_by, &by);
                    } else if seen.len() < MAX_SERVERS {
                        let mut new = not_done(&member, false);
                        new.named_by.push(by.clone());
                        seen.push(new);
                        under_way.spawn(begin(member, false));
                    }
                }
            }
            done = under_way.join_next() => {
                let Some(done) = done else { break };
                let Ok(mut server) = done else { continue };
                if let Some(known) = seen.iter_mut().find(|it| it.address == server.address) {
                    server.named_by = std::mem::take(&mut known.named_by);
                    *known = server;
                }
                seen.sort_by(|a, b| (!a.is_seed, &a.address).cmp(&(!b.is_seed, &b.address)));
                progress(&seen);
            }
        }
    }
    seen
}

/// Describes a server that is looked at, in case that nothing comes of it in time.
fn not_done(address: &ServerAddress, is_seed: bool) -> ServerSeen {
    let mut server = ServerSeen::new(address.clone(), is_seed);
    server.way.is_cut = true;
    server
}

fn note(list: &mut Vec<ServerAddress>, address: &ServerAddress) {
    if !list.contains(address) {
        list.push(address.clone());
    }
}

/// Goes every way to a server, and logs in; meanwhile each of its addresses is connected to.
async fn look_at(
    means: &Means,
    client: &Topology,
    server: &mut ServerSeen,
    greeted: &mpsc::UnboundedSender<Named>,
) {
    let target = means.options().address_map().resolve(&server.address);
    server.dialled = (target != server.address).then(|| target.clone());
    let has_proxy = means.options().proxy().is_some();
    let routes = async {
        match has_proxy {
            true => (None, Vec::new()),
            false => routes(means, &target).await,
        }
    };
    let rest = async {
        examine(means, server, greeted).await;
        client::log_in(client, means, server).await;
    };
    let (routes, ()) = tokio::join!(routes, rest);
    (server.resolved, server.routes) = routes;
    let is_refused =
        |failure: &Failure| failure.stage == Stage::Connect && failure.cause == Cause::Refused;
    if !has_proxy && server.way.failure.as_ref().is_some_and(is_refused) {
        server.other_loopback = other_loopback(means, &target).await;
    }
}

/// Returns the loopback address of the other family at the same port, if `target` is one and that
/// takes connections.
async fn other_loopback(means: &Means, target: &ServerAddress) -> Option<SocketAddr> {
    let other: IpAddr = match target.host().parse().ok()? {
        IpAddr::V4(address) if address.is_loopback() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        _ => return None,
    };
    let other = SocketAddr::new(other, target.port()?);
    route(other, means.step()).await.failure.is_none().then_some(other)
}

/// Goes every way to a server, up to its reply to hello, and sends which members that names.
async fn examine(means: &Means, server: &mut ServerSeen, greeted: &mpsc::UnboundedSender<Named>) {
    let (way, talk) = way::go(means, &server.address, false).await;
    server.way = way;
    let subject = talk.as_ref().map_or(Ok(None), Talk::unchecked);
    let (responder, failure) = revocation::of(subject, means.left()).await;
    if failure.is_some() {
        // Drivers stop before hello.
        server.way = Way { failure, greeting: None, hello: None, ..server.way.clone() };
    }
    if let Some(greeting) = server.greeting() {
        let members = greeting.members.iter().chain(&greeting.me).cloned().collect();
        // The receiver outlives this task.
        let _ = greeted.send((server.address.clone(), members));
    }
    let failure = server.way.failure.clone();
    let is_silent = |failure: &Failure| {
        failure.cause == Cause::Timeout && matches!(failure.stage, Stage::Tls | Stage::Hello)
    };
    if failure.as_ref().is_some_and(is_silent) {
        server.protocol = way::text_protocol(means, &server.address).await;
        server.way.answer_in(server.protocol.as_deref());
    }
    if server.protocol.is_none() && failure.as_ref().is_some_and(may_be_the_wrong_way) {
        server.other_way = Some(way::go(means, &server.address, true).await.0);
    }
    let speaks_tls = |way: &Way| way.tls && way.accepted;
    if speaks_tls(&server.way) || server.other_way.as_ref().is_some_and(speaks_tls) {
        server.certificate = certificate::of(means, &server.address, responder).await;
    }
    let is_slow = server.way.resolved.is_some_and(|took| took >= SLOW);
    let is_arbiter = server.greeting().is_some_and(|greeting| greeting.role == Role::Arbiter);
    if failure.as_ref().is_some_and(|failure| failure.cause == Cause::Closed)
        || (failure.is_none() && !is_arbiter && !is_slow)
    {
        let mut more = JoinSet::new();
        for _ in 0..MORE {
            let (means, address) = (means.clone(), server.address.clone());
            more.spawn(async move { way::go(&means, &address, false).await });
        }
        // Each stays open until the last one has answered.
        let ended = more.join_all().await;
        server.more = ended.into_iter().map(|(way, _)| way).collect();
    }
    drop(talk);
}

/// Returns whether the server may expect TLS where there is none, or the reverse.
fn may_be_the_wrong_way(failure: &Failure) -> bool {
    let is_answer = matches!(
        failure.cause,
        Cause::Closed
            | Cause::Malformed
            | Cause::OtherProtocol { .. }
            | Cause::NotTls
            | Cause::TlsRefused { .. }
            | Cause::Timeout
    );
    is_answer && matches!(failure.stage, Stage::Tls | Stage::Hello)
}

/// Resolves the name, and connects to each address that it has.
async fn routes(means: &Means, target: &ServerAddress) -> (Option<Resolved>, Vec<Route>) {
    let Some(port) = target.port() else { return (None, Vec::new()) };
    let begun = Instant::now();
    let (resolved, addresses) = match target.host().parse::<IpAddr>() {
        Ok(address) => (None, vec![SocketAddr::new(address, port)]),
        Err(_) => {
            let found = timeout(means.step(), resolve(target.host().to_owned(), port)).await;
            let is_silent = found.is_err();
            let addresses = found.ok().and_then(Result::ok).unwrap_or_default();
            let took = begun.elapsed();
            (Some(Resolved { addresses: addresses.clone(), took, is_silent }), addresses)
        }
    };
    let mut under_way = JoinSet::new();
    for address in addresses.into_iter().take(MAX_ROUTES) {
        under_way.spawn(route(address, means.step()));
    }
    let mut routes = under_way.join_all().await;
    routes.sort_by_key(|route| route.address);
    (resolved, routes)
}

async fn route(address: SocketAddr, limit: Duration) -> Route {
    let begun = Instant::now();
    let failure = match timeout(limit, TcpStream::connect(address)).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(Failure::from_io(Stage::Connect, &error)),
        Err(_) => {
            let detail = format!("no connection within {} ms", limit.as_millis());
            Some(Failure::new(Stage::Connect, Cause::Timeout, detail))
        }
    };
    Route { address, failure, took: begun.elapsed() }
}
