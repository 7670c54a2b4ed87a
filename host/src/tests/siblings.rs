//! Clients for the same hosts, which one process may have too many of.

use std::sync::Arc;

use super::puppet::{Puppet, host};
use crate::client::siblings;
use crate::machines::Host;

/// Makes clients until there is a warning; returns them.
fn until_warned(uri: &str) -> Vec<Arc<Host<Puppet>>> {
    let mut clients = Vec::new();
    // Other tests may be taking note of a client at the same time, and then nothing is said.
    while clients.len() < 1000 {
        clients.push(host(uri, false));
        if siblings::note(clients.last().unwrap()).is_some() {
            return clients;
        }
    }
    panic!("no warning");
}

/// There is one warning as long as any of them is left; those that are gone do not count.
#[test]
fn the_tenth_client_for_the_same_hosts_is_warned_of_once() {
    let uri = "mongodb://siblings.example";
    for _ in 0..2 {
        for _ in 0..20 {
            let alone = host(uri, false);
            assert!(siblings::note(&alone).is_none(), "the others are gone");
        }
        let clients = until_warned(uri);
        assert!(clients.len() >= 10, "{}", clients.len());
        let others: Vec<_> = (0..20).map(|_| host(uri, false)).collect();
        assert!(others.iter().all(|it| siblings::note(it).is_none()), "it was said");
    }
}
