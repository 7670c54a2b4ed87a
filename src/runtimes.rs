//! The names that applications have for each runtime with futures.

/// Writes the names of the types of a runtime.
#[cfg(any(feature = "tokio", feature = "smol", feature = "async-std"))]
macro_rules! names {
    ($runtime:ty, $reactor:ty) => {
        /// A client: it discovers a deployment, keeps watch over it until its last clone is
        /// dropped, and makes [databases](Database) and [collections](Collection).
        pub type Client = crate::handle::Client<$runtime>;

        /// Creates clients that differ from what
        /// [`Client::connect`](crate::handle::Client::connect) creates.
        pub type ClientBuilder = sdam_host::ClientBuilder<$reactor, Client>;

        /// A database: it makes collections, lists and creates them, and runs commands.
        pub type Database = crate::handle::Database<$runtime>;

        /// A collection, whose documents the application reads and writes as a type of its own.
        pub type Collection<T = bson::Document> = crate::handle::Collection<$runtime, T>;

        /// The documents that an operation has found, read batch by batch.
        pub type Cursor<T = bson::Document> = crate::handle::Cursor<$runtime, T>;

        /// The changes of a collection, a database or a deployment, as they happen.
        pub type ChangeStream<T = crate::results::ChangeStreamEvent> =
            crate::handle::ChangeStream<$runtime, T>;

        /// A bucket of GridFS: it stores files of any length as chunks.
        pub type GridFsBucket = crate::handle::gridfs::GridFsBucket<$runtime>;

        /// The reading of a file of GridFS.
        pub type GridFsDownloadStream = crate::handle::gridfs::GridFsDownloadStream<$runtime>;

        /// The writing of a file of GridFS.
        pub type GridFsUploadStream = crate::handle::gridfs::GridFsUploadStream<$runtime>;

        /// A file of GridFS whose document a transaction stores.
        pub type GridFsPreparedFile = crate::handle::gridfs::GridFsPreparedFile<$runtime>;

        /// A session of the application's.
        pub type ClientSession = sdam_host::ClientSession<$runtime>;

        /// The deployment below a client: it selects servers, checks out connections, runs
        /// commands, and shows what happens.
        pub type Topology = sdam_host::Topology<$runtime>;

        /// The monitors that clients share which are [made with
        /// it](sdam_host::ClientBuilder::registry).
        pub type Registry = sdam_host::Registry<$reactor>;

        /// A server that was selected, or that the application has named.
        pub type SelectedServer = sdam_host::SelectedServer<$runtime>;

        /// A connection in use, until it is dropped.
        pub type CheckedOut = sdam_host::CheckedOut<$runtime>;

        /// The replies to one command, as they come.
        pub type Exhaust<'a> = sdam_host::Exhaust<'a, $runtime>;
    };
}

/// Starts to create a client whose tasks run on an executor of the application's.
#[cfg(any(feature = "smol", feature = "async-std"))]
pub fn builder_on<E: sdam_async_std::Executor>(
    options: sdam_core::config::Options,
    executor: E,
) -> sdam_host::ClientBuilder<
    sdam_async_std::AsyncIoReactor<E>,
    crate::handle::Client<sdam_async_std::AsyncIo<E>>,
> {
    sdam_host::ClientBuilder::with_setup(options, sdam_async_std::Setup::on(executor))
}

/// The names for tokio, which are those at the root, too, and what is tokio's own.
#[cfg(feature = "tokio")]
pub mod tokio {
    pub use sdam_tokio::{ByteStream, Dialer, Dialing, Setup, Tokio, TokioReactor, resolver};

    /// The runtime that is the parameter of what is for every runtime.
    pub type Runtime = Tokio;

    names!(Tokio, TokioReactor);
}

/// The names for smol, and what is smol's own.
///
/// ```no_run
/// use sdam::smol::{Client, Collection};
///
/// # fn example() -> sdam::Result<()> {
/// smol::block_on(async {
///     let client = Client::connect("mongodb://localhost").await?;
///     let books: Collection = client.database("library").collection("books");
///     books.insert_one(sdam::doc! { "title": "Emma" }).await?;
///     client.close().await;
///     Ok(())
/// })
/// # }
/// ```
///
/// In `Cargo.toml`, the feature `smol` of sdam is on, and `smol = "2"` stands beside it.
#[cfg(feature = "smol")]
pub mod smol {
    pub use super::builder_on;
    pub use sdam_async_std::smol::{
        ByteStream, Dialer, Dialing, Executor, Runtime, Setup, Smol, Task,
    };

    names!(Runtime, sdam_async_std::AsyncIoReactor<Smol>);
}

/// The names for async-std, and what is async-std's own.
#[cfg(feature = "async-std")]
pub mod async_std {
    pub use super::builder_on;
    pub use sdam_async_std::async_std::{
        AsyncStd, ByteStream, Dialer, Dialing, Executor, Runtime, Setup, Task,
    };

    names!(Runtime, sdam_async_std::AsyncIoReactor<AsyncStd>);
}
