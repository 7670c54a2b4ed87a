//! The servers of a topology: a sorted sequence whose versions share what they have in common.

use std::iter::FusedIterator;
use std::ops::Index;
use std::slice;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::incompatibility::Incompatibility;
use super::server::{ServerDescription, ServerType};
use super::summary::Summary;
use crate::config::ServerAddress;

/// The number of servers that a chunk holds: near the square root of the most there may be.
const CHUNK_LEN: usize = 32;

/// Servers in the order of their addresses.
///
/// They are kept in chunks, so that replacing one of a thousand copies some sixty
/// pointers, not a thousand pointers. Each chunk has a summary, so that what is asked about all
/// servers is answered without a look at any but those of one chunk.
#[derive(Clone, Debug, Default)]
pub struct Servers {
    /// All chunks but the last are full.
    chunks: Vec<Arc<Chunk>>,
}

#[derive(Clone, Debug)]
struct Chunk {
    servers: Vec<Arc<ServerDescription>>,
    summary: Summary,
}

impl Chunk {
    fn new(servers: &[Arc<ServerDescription>]) -> Self {
        Self { servers: servers.to_vec(), summary: summarise(servers) }
    }

    /// Replaces a server, and returns the old one.
    fn replace(&mut self, at: usize, server: Arc<ServerDescription>) -> Arc<ServerDescription> {
        let old = std::mem::replace(&mut self.servers[at], server);
        // Most replies say what the last one said.
        if Summary::of(&old) != Summary::of(&self.servers[at]) {
            self.summary = summarise(&self.servers);
        }
        old
    }
}

fn summarise(servers: &[Arc<ServerDescription>]) -> Summary {
    servers.iter().fold(Summary::default(), |summary, it| summary.and(Summary::of(it)))
}

impl Servers {
    /// Returns how many there are.
    pub fn len(&self) -> usize {
        match self.chunks.split_last() {
            Some((last, full)) => full.len() * CHUNK_LEN + last.servers.len(),
            None => 0,
        }
    }

    /// Returns whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns the server at a position, `None` behind the last.
    pub fn get(&self, index: usize) -> Option<&Arc<ServerDescription>> {
        self.chunks.get(index / CHUNK_LEN)?.servers.get(index % CHUNK_LEN)
    }

    /// Iterates over the servers in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ServerDescription>> {
        self.chunks.iter().flat_map(|chunk| chunk.servers.iter())
    }

    /// Returns the position of the server with that address, or else where it would belong.
    pub fn position(&self, address: &ServerAddress) -> Result<usize, usize> {
        let is_before =
            |chunk: &Arc<Chunk>| chunk.servers.last().is_some_and(|last| last.address < *address);
        let chunk = self.chunks.partition_point(is_before);
        let Some(found) = self.chunks.get(chunk) else { return Err(self.len()) };
        let found = found.servers.binary_search_by(|server| server.address.cmp(address));
        found.map(|at| chunk * CHUNK_LEN + at).map_err(|at| chunk * CHUNK_LEN + at)
    }

    /// Returns whether nothing differs that events report; what both share is not looked at.
    pub(super) fn same_as(&self, other: &Self) -> bool {
        let same_chunk =
            |(a, b): (&Arc<Chunk>, &Arc<Chunk>)| Arc::ptr_eq(a, b) || same(&a.servers, &b.servers);
        self.chunks.len() == other.chunks.len()
            && self.chunks.iter().zip(&other.chunks).all(same_chunk)
    }

    /// Returns whether there is a server of one of these types.
    pub(crate) fn has_any(&self, types: &[ServerType]) -> bool {
        self.chunks.iter().any(|chunk| types.iter().any(|it| chunk.summary.has(*it)))
    }

    /// Returns whether there is a data-bearing server.
    pub(crate) fn has_data_bearing(&self) -> bool {
        self.chunks.iter().any(|chunk| chunk.summary.has_data_bearing())
    }

    /// Returns the position of the first server of a type.
    pub(crate) fn first_of(&self, server_type: ServerType) -> Option<usize> {
        let chunk = self.chunks.iter().position(|chunk| chunk.summary.has(server_type))?;
        let mut servers = self.chunks[chunk].servers.iter();
        let at = servers.position(|server| server.server_type == server_type)?;
        Some(chunk * CHUNK_LEN + at)
    }

    /// Returns why the first server is of no use to this client that speaks other versions of the
    /// wire protocol.
    pub(super) fn incompatibility(&self) -> Option<Incompatibility> {
        let chunk = self.chunks.iter().find(|chunk| chunk.summary.is_incompatible)?;
        chunk.servers.iter().find_map(|server| Incompatibility::of(server))
    }

    /// Returns the time that sessions live unused: the smallest value among data-bearing servers,
    /// and `None` if one of them gave none.
    pub(super) fn session_timeout(&self) -> Option<i64> {
        let summaries = self.chunks.iter().map(|chunk| chunk.summary);
        summaries.fold(Summary::default(), Summary::and).session_timeout()
    }

    /// Replaces the server at a position, and returns the old one.
    pub(crate) fn replace(
        &mut self,
        index: usize,
        server: Arc<ServerDescription>,
    ) -> Arc<ServerDescription> {
        Arc::make_mut(&mut self.chunks[index / CHUNK_LEN]).replace(index % CHUNK_LEN, server)
    }

    /// Adds servers whose addresses are new, in whatever order, and once each.
    pub(super) fn insert(&mut self, mut servers: Vec<Arc<ServerDescription>>) {
        if servers.is_empty() {
            return;
        }
        servers.extend(self.iter().cloned());
        // What was there is in order already, which a stable sort makes use of.
        servers.sort_by(|a, b| a.address.cmp(&b.address));
        self.rebuild(&servers);
    }

    /// Removes the servers that are not to be kept, and returns them in order.
    pub(crate) fn retain(
        &mut self,
        keep: impl Fn(&ServerDescription) -> bool,
    ) -> Vec<Arc<ServerDescription>> {
        let (kept, removed): (Vec<_>, Vec<_>) = self.iter().cloned().partition(|it| keep(it));
        if !removed.is_empty() {
            self.rebuild(&kept);
        }
        removed
    }

    /// Joining and leaving are rare, and may cost as much as there are servers: once, however many
    /// join or leave.
    fn rebuild(&mut self, servers: &[Arc<ServerDescription>]) {
        self.chunks = servers.chunks(CHUNK_LEN).map(|chunk| Arc::new(Chunk::new(chunk))).collect();
    }
}

fn same(a: &[Arc<ServerDescription>], b: &[Arc<ServerDescription>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b) || a.same_as(b))
}

impl<'a> IntoIterator for &'a Servers {
    type Item = &'a ServerDescription;
    type IntoIter = ServersIter<'a>;

    fn into_iter(self) -> ServersIter<'a> {
        ServersIter { chunks: self.chunks.iter(), chunk: [].iter(), left: self.len() }
    }
}

/// An iterator over servers, in the order of their addresses.
#[derive(Clone, Debug)]
pub struct ServersIter<'a> {
    chunks: slice::Iter<'a, Arc<Chunk>>,
    chunk: slice::Iter<'a, Arc<ServerDescription>>,
    left: usize,
}

impl<'a> Iterator for ServersIter<'a> {
    type Item = &'a ServerDescription;

    fn next(&mut self) -> Option<&'a ServerDescription> {
        loop {
            if let Some(server) = self.chunk.next() {
                self.left -= 1;
                return Some(server);
            }
            self.chunk = self.chunks.next()?.servers.iter();
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for ServersIter<'_> {}

impl FusedIterator for ServersIter<'_> {}

impl Index<usize> for Servers {
    type Output = Arc<ServerDescription>;

    fn index(&self, index: usize) -> &Arc<ServerDescription> {
        self.get(index).unwrap_or_else(|| panic!("server {index} of {}", self.len()))
    }
}

impl Serialize for Servers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{CHUNK_LEN, Servers};
    use crate::config::ServerAddress;
    use crate::description::{Incompatibility, ServerDescription, ServerType};
    use crate::id::ServerId;
    use crate::rng::Rng;

    fn address(number: u64) -> ServerAddress {
        format!("h{number:04}").parse().unwrap()
    }

    /// So many servers, of which one in three joins with the first.
    fn servers(count: u64) -> Servers {
        let mut servers = Servers::default();
        // In an order that is neither that of the addresses nor its reverse.
        let numbers: Vec<u64> = (0..count).map(|n| n * 7 % count).collect();
        for rest in 0..3 {
            let joining = numbers.iter().filter(|number| *number % 3 == rest);
            let unknown =
                |number: &u64| ServerDescription::unknown(ServerId(*number), address(*number));
            servers.insert(joining.map(|number| Arc::new(unknown(number))).collect());
        }
        servers
    }

    #[test]
    fn servers_stay_sorted_across_chunks() {
        for count in [0, 1, 64, 65, 129, 200] {
            let mut servers = servers(count);
            assert_eq!(servers.len() as u64, count);
            let ids: Vec<u64> = servers.iter().map(|server| server.id.0).collect();
            assert_eq!(ids, (0..count).collect::<Vec<_>>());
            for number in 0..count {
                assert_eq!(servers.position(&address(number)), Ok(number as usize));
            }
            assert_eq!(servers.position(&address(9999)), Err(count as usize));
            let mut iter = (&servers).into_iter();
            assert_eq!(
                iter.by_ref().take(70).map(|server| server.id.0).max(),
                ids.iter().copied().take(70).max()
            );
            assert_eq!(iter.len(), ids.len().saturating_sub(70));
            assert!(iter.map(|server| server.id.0).eq(ids.into_iter().skip(70)));
            let removed = servers.retain(|server| server.id.0 % 2 == 1);
            assert!(removed.iter().map(|server| server.id.0).eq((0..count).step_by(2)));
            assert!(servers.iter().map(|server| server.id.0).eq((1..count).step_by(2)));
            assert!(servers.retain(|_| true).is_empty());
            servers.retain(|_| false);
            assert!(servers.is_empty());
        }
    }

    #[test]
    fn versions_share_all_chunks_but_the_one_that_differs() {
        let old = servers(200);
        let mut new = old.clone();
        let replaced = ServerDescription::unknown(ServerId(777), address(70));
        new.replace(70, Arc::new(replaced));
        assert_eq!((old[70].id.0, new[70].id.0), (70, 777));
        for (chunk, (a, b)) in old.chunks.iter().zip(&new.chunks).enumerate() {
            assert_eq!(Arc::ptr_eq(a, b), chunk != 70 / CHUNK_LEN);
        }
    }

    /// Draws a number below `count`.
    fn below(rng: &mut Rng, count: u64) -> u64 {
        rng.next_u64() % count
    }

    /// A server with random values in most fields of a summary, but rarely in those that decide
    /// alone.
    fn drawn(rng: &mut Rng, id: u64) -> ServerDescription {
        const TYPES: [ServerType; 9] = [
            ServerType::Unknown,
            ServerType::Standalone,
            ServerType::Mongos,
            ServerType::RsPrimary,
            ServerType::RsSecondary,
            ServerType::RsArbiter,
            ServerType::RsOther,
            ServerType::RsGhost,
            ServerType::LoadBalancer,
        ];
        let rare = |rng: &mut Rng| below(rng, 40) == 0;
        let server_type = match rare(rng) {
            true => TYPES[below(rng, 9) as usize],
            false => [ServerType::Unknown, ServerType::RsArbiter][below(rng, 2) as usize],
        };
        ServerDescription {
            server_type,
            min_wire_version: if rare(rng) { 99 } else { 0 },
            max_wire_version: if rare(rng) { 2 } else { 99 },
            logical_session_timeout_minutes: (!rare(rng)).then(|| 20 + below(rng, 10) as i64),
            ..ServerDescription::unknown(ServerId(id), address(id))
        }
    }

    /// Compares the answers of summaries with those of a look at all servers.
    fn assert_summarised(servers: &Servers) {
        let of_type = |server_type| move |it: &ServerDescription| it.server_type == server_type;
        let data_bearing = || servers.into_iter().filter(|it| it.server_type.is_data_bearing());
        assert_eq!(servers.incompatibility(), servers.into_iter().find_map(Incompatibility::of));
        assert_eq!(
            servers.session_timeout(),
            data_bearing().map(|it| it.logical_session_timeout_minutes).min().flatten()
        );
        assert_eq!(servers.has_data_bearing(), data_bearing().next().is_some());
        for server_type in [ServerType::RsPrimary, ServerType::Mongos, ServerType::LoadBalancer] {
            let first = servers.into_iter().position(of_type(server_type));
            assert_eq!(servers.first_of(server_type), first);
            assert_eq!(servers.has_any(&[server_type]), first.is_some());
        }
    }

    #[test]
    fn a_summary_is_that_of_all_servers_whatever_joins_leaves_and_is_replaced() {
        for seed in 0..40 {
            let (mut rng, mut next, mut servers) = (Rng::new(seed), 0, Servers::default());
            let most = 2 + below(&mut rng, 150);
            for _ in 0..300 {
                match (servers.len() as u64, below(&mut rng, 20)) {
                    (count, 0) if count < most => {
                        let joining = next..next + 1 + below(&mut rng, most - count);
                        next = joining.end;
                        servers.insert(joining.map(|id| Arc::new(drawn(&mut rng, id))).collect());
                    }
                    (_, 1) => {
                        let (divisor, rest) = (1 + below(&mut rng, 5), below(&mut rng, 5));
                        servers.retain(|server| server.id.0 % divisor != rest);
                    }
                    (0, _) => {}
                    (count, _) => {
                        let index = below(&mut rng, count) as usize;
                        let new = drawn(&mut rng, servers[index].id.0);
                        servers.replace(index, Arc::new(new));
                    }
                }
                assert_summarised(&servers);
            }
        }
    }
}
