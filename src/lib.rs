//! A MongoDB client library: it reads and writes documents, under tokio, smol, async-std, or with
//! threads. It discovers the servers of a deployment, monitors them, selects one for each
//! operation, and pools connections to them.
#![cfg_attr(feature = "tokio", doc = "\n")]
#![cfg_attr(feature = "tokio", doc = include_str!("front_page.md"))]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "tokio")]
#[doc(inline)]
pub use runtimes::tokio::{
    ChangeStream, CheckedOut, Client, ClientBuilder, ClientSession, Collection, Cursor, Database,
    Exhaust, GridFsBucket, GridFsDownloadStream, GridFsPreparedFile, GridFsUploadStream, Registry,
    SelectedServer, Topology,
};

#[doc(inline)]
pub use crate::operation::{IndexModel, SearchIndexModel};
#[doc(inline)]
pub use sdam_core::config::{Options, ReadMode, ReadPreference, ServerAddress};
#[doc(inline)]
pub use sdam_core::description::{
    ServerDescription, ServerType, Servers, TopologyDescription, TopologyType,
};
#[doc(inline)]
pub use sdam_core::selection::Criteria;
#[doc(inline)]
pub use sdam_core::topology::{Event, EventKind, Topics};
#[doc(inline)]
pub use sdam_host::{Error, ErrorKind, Events, Recording, Reply, Result, Views};

pub use namespace::Namespace;
pub use sdam_core::bson;
#[doc(no_inline)]
pub use sdam_core::bson::{
    Binary, Bson, DateTime, Decimal128, Document, RawArrayBuf, RawBson, RawDocument,
    RawDocumentBuf, Regex, Timestamp, Uuid, doc, oid, oid::ObjectId, rawdoc,
};

pub mod action;
#[cfg(feature = "blocking")]
pub mod blocking;
mod change_stream;
pub mod checkpoint;
mod collation;
mod command;
mod cursor;
pub mod error;
mod files;
pub mod generic;
pub mod gridfs;
mod handle;
#[cfg(feature = "metrics")]
pub mod metrics;
mod namespace;
mod reply;
pub mod results;
mod runtimes;
mod specifications;
mod value;

#[cfg(feature = "async-std")]
pub use runtimes::async_std;
#[cfg(feature = "smol")]
pub use runtimes::smol;
#[cfg(feature = "tokio")]
pub use runtimes::tokio;

pub mod operation;
pub mod options;

pub use sdam_core as core;
#[doc = include_str!("../docs/write-your-own-runtime.md")]
pub use sdam_host as host;
#[cfg(feature = "otel")]
pub use sdam_host::otel;

/// The README and the guide, whose examples are tests; their links are for the repository.
#[cfg(all(doctest, feature = "tokio"))]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/connect.md")]
    struct Connect;
    #[doc = include_str!("../docs/run.md")]
    struct Run;
    #[doc = include_str!("../docs/collections.md")]
    struct Collections;
    #[doc = include_str!("../docs/transactions.md")]
    #[cfg(feature = "blocking")]
    struct Transactions;
    #[doc = include_str!("../docs/change-streams.md")]
    struct ChangeStreams;
    #[doc = include_str!("../docs/gridfs.md")]
    struct Files;
    #[doc = include_str!("../docs/coming-from.md")]
    struct ComingFrom;
    #[doc = include_str!("../docs/watch.md")]
    struct Watch;
    #[doc = include_str!("../docs/log.md")]
    struct Log;
    #[doc = include_str!("../docs/record.md")]
    struct Record;
    #[doc = include_str!("../docs/diagnose.md")]
    struct Diagnose;
    #[doc = include_str!("../docs/last-night.md")]
    struct LastNight;
    #[doc = include_str!("../docs/proxy.md")]
    struct Proxy;
    #[doc = include_str!("../docs/core.md")]
    struct Core;
    #[doc = include_str!("../docs/runtimes.md")]
    struct Runtimes;
}
