//! A store of documents: what members keep, as values without sockets, clocks or locks.
//!
//! A [`Writer`] changes a [`Store`] and notes each [`Change`], which can be made elsewhere and
//! taken back. Filters, updates, projections and stages know the operators that the official
//! suites use, and the plain ones of applications; one that is not known is an error that names it,
//! never ignored.
//!
//! What no suite asks of members that only the embedded deployment can be, mongos and versions from
//! 7.0 on, is left to real servers: `$jsonSchema`, `$lookup`, `$unionWith`, `$facet`, `$unwind`,
//! `$sample`, regular expressions, time series, clustered collections, the positional operator,
//! projections of some elements of an array, `$bit`, and where `$push` adds.

mod administration;
mod catalog;
mod changes;
mod collection;
mod compare;
mod cursor;
mod definition;
mod error;
mod expression;
mod filter;
mod log;
mod names;
mod path;
mod pipeline;
mod projection;
mod redact;
mod session;
mod sort;
mod transaction;
mod transactions;
mod update;
mod view;
mod writer;

pub(crate) use catalog::{Change, Store};
pub(crate) use changes::{ChangeStream, Past, Scope, StreamOptions, check_watchable};
pub(crate) use collection::{Collection, Index, PRE_AND_POST_IMAGES, PRE_IMAGES};
pub(crate) use compare::{Collation, Key, whole};
pub(crate) use cursor::{Cursor, Owner, Tail};
pub(crate) use error::StoreError;
pub(crate) use expression::{Context, is_true};
pub(crate) use filter::{Filter, type_name};
pub(crate) use log::{Data, Entry, Position};
pub(crate) use names::{check_namespace, check_writable, is_database};
pub(crate) use path::{MAX_LEVELS, MAX_PARTS, is_too_long, values};
pub(crate) use pipeline::{Documents, parse as parse_stages, through};
pub(crate) use projection::Projection;
pub(crate) use session::Session;
pub(crate) use sort::Sort;
pub(crate) use transaction::{LastUse, Transaction};
#[cfg(test)]
pub(crate) use transactions::MAX_OPEN;
pub(crate) use transactions::{LIFETIME, Routed, State, Transactions};
pub(crate) use update::Update;
pub(crate) use view::Source;
pub(crate) use writer::{Limits, UpdateStatement, Writer};
