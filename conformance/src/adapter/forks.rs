//! The fate of a client in a process that is forked off, and then in its own.

use std::collections::BTreeMap;
use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::process;
use std::task::{Context, Poll, Waker};

use fork::{Fork, fork, waitpid};
use sdam_core::config::{Options, ServerAddress};
use sdam_core::selection::Criteria;
use sdam_core::topology::EventKind;
use sdam_host::{CheckedOut, Events, Exhaust, Runtime, SelectedServer, Topology};

use super::Adapter;
use super::fixture::{Outcome, ensure, ping};

/// The possessions of a process when another one is forked off from it.
struct Inherited<'a, R: Runtime> {
    client: Topology<R>,
    server: SelectedServer<R>,
    in_use: CheckedOut<R>,
    /// The replies to a command that was sent over another connection.
    replies: Exhaust<'a, R>,
    events: Events,
}

/// Uses a client, forks a process off that tries to, and uses it again.
pub(super) fn fork_off<A: Adapter>(adapter: &A, uri: &str) -> Outcome {
    let (client, events) = adapter.client(Options::parse(uri)?)?;
    let server = adapter.block_on(client.select(Criteria::write()))?;
    let mut in_use = adapter.block_on(server.check_out())?;
    adapter.block_on(in_use.command("admin", &ping()))?;
    adapter.block_on(client.run_command("admin", &ping()))?;
    let (parent, id) = (process::id(), in_use.connection_id());
    let mut other = adapter.block_on(server.check_out())?;
    let replies = adapter.block_on(other.command_exhaust("admin", &ping()))?;
    let mut inherited = Inherited { client, server, in_use, replies, events };
    match fork().map_err(|error| format!("{error:?}"))? {
        Fork::Child => {
            let refused = is_refused(inherited, parent);
            if let Err(error) = &refused {
                eprintln!("error: in the process that was forked off: {error}");
            }
            process::exit(i32::from(refused.is_err()))
        }
        Fork::Parent(child) => {
            let status = waitpid(child).map_err(|error| format!("{error:?}"))?;
            ensure!(status == 0, "the process that was forked off has failed: {status}");
        }
    }
    // All connections are as they were, and so are the monitors.
    adapter.block_on(inherited.in_use.command("admin", &ping()))?;
    adapter.block_on(inherited.replies.next()).ok_or("there is no reply")??;
    ensure!(adapter.block_on(inherited.replies.next()).is_none(), "there is another reply");
    drop(inherited.in_use);
    let in_use = adapter.block_on(inherited.server.check_out())?;
    ensure!(in_use.connection_id() == id, "it is another connection");
    drop(in_use);
    adapter.block_on(inherited.client.run_command("admin", &ping()))?;
    checks_go_on(adapter, &mut inherited.events, 3)?;
    adapter.block_on(inherited.client.close());
    Ok(())
}

/// Waits until each of so many servers has been checked three times from now on.
fn checks_go_on<A: Adapter>(adapter: &A, events: &mut Events, servers: usize) -> Outcome {
    while events.try_next().is_some() {}
    let mut counts = BTreeMap::<ServerAddress, u32>::new();
    while counts.len() < servers || counts.values().any(|count| *count < 3) {
        let event = adapter.block_on(events.next()).ok_or("the client was closed")?;
        match event.kind {
            EventKind::ServerHeartbeatSucceeded { address, .. } => {
                *counts.entry(address).or_default() += 1;
            }
            EventKind::ServerHeartbeatFailed { failure, .. } => {
                return Err(format!("a check has failed: {failure}").into());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Tries everything in the process that was forked off.
fn is_refused<R: Runtime>(inherited: Inherited<'_, R>, parent: u32) -> Outcome {
    let Inherited { client, server, mut in_use, mut replies, mut events } = inherited;
    let here = process::id();
    let told = format!(
        "the client was created in process {parent} and cannot be used in process {here}; create \
         another one"
    );
    let tells = |what: &str, error: Option<&dyn Error>| -> Outcome {
        let text = error.ok_or_else(|| format!("{what} succeeds"))?.to_string();
        ensure!(text.contains(&told), "{what} says {text}");
        Ok(())
    };
    let selected = at_once("select", client.select(Criteria::write()))?;
    tells("select", selected.err().as_ref().map(|error| error as _))?;
    let replied = at_once("run_command", client.run_command("admin", &ping()))?;
    tells("run_command", replied.err().as_ref().map(|error| error as _))?;
    let checked_out = at_once("check_out", server.check_out())?;
    tells("check_out", checked_out.err().as_ref().map(|error| error as _))?;
    let connected = at_once("connect", server.connect())?;
    tells("connect", connected.err().as_ref().map(|error| error as _))?;
    let replied = at_once("command", in_use.command("admin", &ping()))?;
    tells("command", replied.err().as_ref().map(|error| error as _))?;
    let reply = at_once("a reply", replies.next())?.ok_or("there is no reply")?;
    tells("a reply", reply.err().as_ref().map(|error| error as _))?;
    ensure!(at_once("a reply", replies.next())?.is_none(), "an error is not the last reply");
    ensure!(at_once("events", events.next())?.is_none(), "there are events");
    ensure!(at_once("subscribe", client.subscribe().next())?.is_none(), "there are events");
    ensure!(at_once("watch", client.watch_topology().next())?.is_none(), "there are views");
    client.request_check();
    ensure!(client.members().len() == client.view().servers().len(), "what is known is known");
    at_once("close", client.close())?;
    drop((in_use, replies, server, events, client.clone()));
    drop(client);
    Ok(())
}

/// Polls a future once, which must be enough: nothing would wake it.
fn at_once<T>(what: &str, future: impl Future<Output = T>) -> Outcome<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => Err(format!("{what} waits").into()),
    }
}
