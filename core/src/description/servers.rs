//! The servers of a topology: a sorted sequence whose versions share what they have in common.

use std::iter::FusedIterator;
use std::ops::Index;
use std::slice;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::server::ServerDescription;
use crate::config::ServerAddress;

/// The number of servers that a chunk holds: near the square root of the most there may be.
const CHUNK_LEN: usize = 32;

/// Servers in the order of their addresses.
///
/// They are kept in chunks, so that replacing one of a thousand copies some sixty
/// pointers, not a thousand pointers.
#[derive(Clone, Debug, Default)]
pub struct Servers {
    /// All chunks but the last are full.
    chunks: Vec<Arc<Vec<Arc<ServerDescription>>>>,
}

impl Servers {
    /// Returns how many there are.
    pub fn len(&self) -> usize {
        match self.chunks.split_last() {
            Some((last, full)) => full.len() * CHUNK_LEN + last.len(),
            None => 0,
        }
    }

    /// Returns whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns the server at a position, `None` behind the last.
    pub fn get(&self, index: usize) -> Option<&Arc<ServerDescription>> {
        self.chunks.get(index / CHUNK_LEN)?.get(index % CHUNK_LEN)
    }

    /// Iterates over the servers in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ServerDescription>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// Returns the position of the server with that address, or else where it would belong.
    pub fn position(&self, address: &ServerAddress) -> Result<usize, usize> {
        let chunk = self
            .chunks
            .partition_point(|chunk| chunk.last().is_some_and(|last| last.address < *address));
        let Some(servers) = self.chunks.get(chunk) else { return Err(self.len()) };
        let found = servers.binary_search_by(|server| server.address.cmp(address));
        found.map(|at| chunk * CHUNK_LEN + at).map_err(|at| chunk * CHUNK_LEN + at)
    }

    /// Returns whether nothing differs that events tell about; what both share is not looked at.
    pub(super) fn same_as(&self, other: &Self) -> bool {
        let same_chunk = |(a, b): (&Arc<Vec<_>>, &Arc<Vec<_>>)| Arc::ptr_eq(a, b) || same(a, b);
        self.chunks.len() == other.chunks.len()
            && self.chunks.iter().zip(&other.chunks).all(same_chunk)
    }

    /// Replaces the server at a position, and returns the old one.
    pub(crate) fn replace(
        &mut self,
        index: usize,
        server: Arc<ServerDescription>,
    ) -> Arc<ServerDescription> {
        let chunk = Arc::make_mut(&mut self.chunks[index / CHUNK_LEN]);
        std::mem::replace(&mut chunk[index % CHUNK_LEN], server)
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
        self.chunks = servers.chunks(CHUNK_LEN).map(|chunk| Arc::new(chunk.to_vec())).collect();
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
    chunks: slice::Iter<'a, Arc<Vec<Arc<ServerDescription>>>>,
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
            self.chunk = self.chunks.next()?.iter();
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
    use crate::description::ServerDescription;
    use crate::id::ServerId;

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
}
