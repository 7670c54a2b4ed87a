//! Fuzz targets: what must hold of every input.
//!
//! A target is a function of bytes that panics if a law is broken. `fuzz/` hands each of them to
//! libFuzzer; `cargo test` runs them over the committed inputs in `corpora/`, which are [seeds]
//! made of ideas in code, and inputs that once found something.
//!
//! [seeds]: Target::seeds

mod chunks;
mod compressed;
mod dns;
mod documents;
mod frames;
mod hello;
mod operations;
mod pool;
mod relay;
mod scram;
mod seeds;
mod selection;
mod socks5;
mod topology;
mod traces;
mod uri;

pub use chunks::chunks;
pub use compressed::compressed;
pub use dns::dns;
pub use documents::documents;
pub use frames::frames;
pub use hello::hello;
pub use operations::operations;
pub use pool::pool;
pub use relay::relay;
pub use scram::scram;
pub use seeds::{Seed, from_suites};
pub use selection::selection;
pub use socks5::socks5;
pub use topology::topology;
pub use traces::traces;
pub use uri::uri;

/// The maximum length of an input of most targets, in bytes. Short inputs are tried quickly, and
/// what is longer has its own tests.
pub const MAX_INPUT_LEN: usize = 4096;

/// The same of traces, in which one reply of a server may take a kilobyte.
const MAX_TRACE_LEN: usize = 8192;

/// Something that takes bytes from outside, and the laws that it obeys.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Target {
    /// Its name, which is that of its binary in `fuzz/` and of its folder in `corpora/`.
    pub name: &'static str,
    /// The property that it protects.
    pub protects: &'static str,
    /// The maximum length of an input, in bytes; of longer ones nothing is looked at.
    pub max_len: usize,
    /// Tries one input; panics if a law is broken.
    pub body: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Seed>,
}

impl Target {
    /// Tries one input, unless it is too long.
    ///
    /// # Panics
    ///
    /// Panics if the input breaks a law.
    pub fn run(&self, bytes: &[u8]) {
        if bytes.len() <= self.max_len {
            (self.body)(bytes);
        }
    }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "frames",
        protects: "the read buffer and the messages: however bytes are split, the same messages \
                   and errors come out; what was read is written to the same bytes",
        max_len: MAX_INPUT_LEN,
        body: frames,
        seeds: seeds::frames,
    },
    Target {
        name: "hello",
        protects: "replies to hello: an error that names a field, or a description of bounded \
                   size; monitors and connections agree; a reply read again is the same, and so is \
                   one whose texts are no UTF-8",
        max_len: MAX_INPUT_LEN,
        body: hello,
        seeds: seeds::hello,
    },
    Target {
        name: "documents",
        protects: "documents of replies as types: what bson reads, or an error with its place; no \
                   document is too deep, and what keeps its bytes reads all; what is inserted is \
                   written or refused",
        max_len: MAX_INPUT_LEN,
        body: documents,
        seeds: seeds::documents,
    },
    Target {
        name: "relay",
        protects: "proxies in front of each member: however bytes are split, the same ones pass; \
                   each whole message is heard, with its length, and no name of a member's own",
        max_len: MAX_INPUT_LEN,
        body: relay,
        seeds: seeds::relay,
    },
    Target {
        name: "compressed",
        protects: "OP_COMPRESSED: what is compressed comes back; no message claims more memory \
                   than it may; an error leaves nothing behind",
        max_len: MAX_INPUT_LEN,
        body: compressed,
        seeds: seeds::compressed,
    },
    Target {
        name: "uri",
        protects: "connection strings: what parses prints and parses to the same; no password is \
                   shown",
        max_len: MAX_INPUT_LEN,
        body: uri,
        seeds: seeds::uri,
    },
    Target {
        name: "dns",
        protects: "answers of name servers: laws of machines, limits, however a stream is split; \
                   no host from outside the domain, no option that TXT may not set",
        max_len: MAX_INPUT_LEN,
        body: dns,
        seeds: seeds::dns,
    },
    Target {
        name: "scram",
        protects: "SCRAM: no server is believed that does not know the password",
        max_len: MAX_INPUT_LEN,
        body: scram,
        seeds: seeds::scram,
    },
    Target {
        name: "socks5",
        protects: "proxies: the stream opens exactly where RFC 1928 says, however bytes are split, \
                   and nothing more is said than it should",
        max_len: MAX_INPUT_LEN,
        body: socks5,
        seeds: seeds::socks5,
    },
    Target {
        name: "topology",
        protects: "the topology: laws of machines and the checks of simulations, with hostile \
                   servers and at any time",
        max_len: MAX_INPUT_LEN,
        body: topology,
        seeds: seeds::topology,
    },
    Target {
        name: "pool",
        protects: "pools: a naive model of what a pool may do, and nothing is lost",
        max_len: MAX_INPUT_LEN,
        body: pool,
        seeds: seeds::pool,
    },
    Target {
        name: "operations",
        protects: "operations: laws of machines, and a naive model of when they are sent again, \
                   where, with which number, and by when they end; a message that was cut hides \
                   neither code nor labels",
        max_len: MAX_INPUT_LEN,
        body: operations,
        seeds: seeds::operations,
    },
    Target {
        name: "chunks",
        protects: "files of GridFS whose documents and chunks lie: the bytes that were stored, or \
                   an error that names the file and the chunk; nothing is asked for that is not \
                   needed",
        max_len: MAX_INPUT_LEN,
        body: chunks,
        seeds: seeds::chunks,
    },
    Target {
        name: "selection",
        protects: "server selection: the rules of the specification, written naively",
        max_len: MAX_INPUT_LEN,
        body: selection,
        seeds: seeds::selection,
    },
    Target {
        name: "traces",
        protects: "traces: an error names a line; what is read is replayed and written again; no \
                   byte of a sealed trace changes unnoticed; what is recorded is replayed exactly",
        max_len: MAX_TRACE_LEN,
        body: traces,
        seeds: seeds::traces,
    },
];
