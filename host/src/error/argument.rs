//! Arguments and options that are refused before anything is sent.

use sdam_core::session::{ClusterTimeError, OriginMismatch, SessionError, TransactionError};

/// The advice where two operations of a transaction would run at once.
pub(crate) const TRANSACTION_IN_USE: &str = "another operation of the transaction is running in \
    the session: await it before the next one begins";

/// An argument or an option that is refused before anything is sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgumentError {
    /// A call that the state of the session's transaction does not allow.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// A list of documents to insert that is empty (CRUD, `insertMany`).
    #[error("there are no documents to insert")]
    NoDocuments,
    /// A list of writes that is empty (CRUD, `bulkWrite`).
    #[error("there are no writes in the bulk")]
    NoWrites,
    /// A list of indexes that is empty.
    #[error("there are no indexes to create")]
    NoIndexes,
    /// An update whose first field is no operator, or that has none (CRUD, "Update vs. Replace
    /// Validation").
    #[error("an update must begin with an operator, such as $set")]
    UpdateWithoutOperator,
    /// A replacement whose first field is an operator.
    #[error("a replacement must not begin with an operator, as {0}")]
    ReplacementWithOperator(String),
    /// The index `*`, which stands for all of them (Index Management, `dropIndex`).
    #[error("`*` would drop every index; use drop_indexes for that")]
    DropEveryIndex,
    /// An option that is not sent with unacknowledged writes to servers of this age, which would
    /// leave it out unnoticed.
    #[error("{0} needs an acknowledged write with this server")]
    Unacknowledged(&'static str),
    /// An option that servers of this age do not know.
    #[error("{option} needs MongoDB {since}")]
    ServerTooOld {
        /// The option's name.
        option: &'static str,
        /// The version that brought it.
        since: &'static str,
    },
    /// Results of each write without acknowledgment (Bulk Write).
    #[error("Cannot request unacknowledged write concern and verbose results")]
    VerboseUnacknowledged,
    /// Order without acknowledgment (Bulk Write).
    #[error("Cannot request unacknowledged write concern and ordered writes")]
    OrderedUnacknowledged,
    /// A write concern of `w: 0` and `journal: true` (Read and Write Concern, "Inconsistent
    /// WriteConcern").
    #[error("a write concern of w: 0 asks for no acknowledgment, and journal: true for one")]
    JournaledUnacknowledged,
    /// A write that does not fit into a message.
    #[error("the write at index {index} has {length} bytes, of which {limit} fit into a message")]
    TooLong {
        /// The write's index.
        index: usize,
        /// Its length in bytes.
        length: usize,
        /// The length that fits.
        limit: usize,
    },
    /// A command without acknowledgment that the server would refuse for its length, and not say.
    #[error("the command has {length} bytes; the server takes at most {limit}")]
    CommandTooLong {
        /// Its length in bytes.
        length: usize,
        /// The length that the server takes.
        limit: usize,
    },
    /// A session that another operation uses, and has not given back in time.
    #[error("the session is in use by another operation")]
    SessionInUse,
    /// A session that another operation of its transaction uses.
    #[error("{}", TRANSACTION_IN_USE)]
    TransactionInUse,
    /// The token of a change stream that is saved in a transaction which a failover may undo after
    /// it was committed, and the stream has gone on.
    #[error(
        "the token of a change stream was to be saved in a transaction whose commit need not wait \
         for a majority, so that a failover could undo both after the stream has gone on; start \
         the transaction with the write concern majority"
    )]
    CheckpointConcern,
    /// The token of a change stream that is saved in a session without a transaction: the event
    /// counts as dealt with from then on, whatever becomes of the work.
    #[error(
        "the token of a change stream was to be saved together with the work on its event, and the \
         session has no transaction in progress; start one, and do the work in it, too"
    )]
    CheckpointOutside,
    /// The token of a commit that is asked for by a client of another user, or of another replica
    /// set.
    #[error(transparent)]
    CommitToken(#[from] OriginMismatch),
    /// An event of a change stream without the `_id` that a server gives it, as when a pipeline
    /// leaves it out (Change Streams, "resumeAfter").
    #[error(
        "Cannot provide resume functionality when the resume token is missing: the pipeline of a \
         change stream must leave _id as it is"
    )]
    NoResumeToken,
    /// A time that is no `$clusterTime` as a server gave it out.
    #[error(transparent)]
    ClusterTime(#[from] ClusterTimeError),
    /// Options that no session can have.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Times of a cursor that do not go together.
    #[error(transparent)]
    Timing(#[from] TimingError),
    /// A limit of a cursor whose server sends all of its batches without being asked.
    #[error(
        "a cursor of the type exhaust cannot have a limit; read as many documents as are needed"
    )]
    ExhaustWithLimit,
    /// A cursor that is asked for the document it has moved to, and is at none: before the first,
    /// at the end, or where another batch is awaited.
    #[error("the cursor is at no document; its method `advance` moves it to the next")]
    NoCurrentDocument,
    /// A name of a collection or a database that is empty or has NUL in it.
    #[error("invalid collection or database name {0:?}")]
    Name(String),
    /// A text that is no namespace: it has no dot, or a name in it is empty or has NUL in it.
    #[error(
        "{0:?} is no namespace, which is the name of a database, a dot, and that of a collection"
    )]
    Namespace(String),
    /// An argument that an operation cannot do without, where it is read from a document.
    #[error("the argument {0} is missing")]
    MissingArgument(&'static str),
    /// An argument that there is not, where an operation is read from a document.
    #[error("unknown argument {name:?}; {}", known_names(.known))]
    UnknownArgument {
        /// Its name.
        name: String,
        /// The names of the arguments that there are, besides those that it cannot do without.
        known: Vec<&'static str>,
    },
    /// An argument of another type, where an operation is read from a document.
    #[error("the argument {name} must be {expected}")]
    WrongType {
        /// The argument's name.
        name: String,
        /// The value that it must be.
        expected: &'static str,
    },
}

fn known_names(known: &[&str]) -> String {
    match known {
        [] => "there are none".to_owned(),
        known => format!("known are {}", known.join(", ")),
    }
}

/// The reason why the times of a cursor do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimingError {
    /// There is a mode, but no `timeoutMS`.
    #[error("timeoutMode says what timeoutMS limits, but there is no timeoutMS")]
    WithoutTimeout,
    /// A tailable cursor is to end.
    #[error("the lifetime of a tailable cursor cannot be limited; its timeoutMode is iteration")]
    TailableLifetime,
    /// A pipeline that writes is to be iterated.
    #[error("an aggregation with $out or $merge cannot have the timeoutMode iteration")]
    WritingIteration,
    /// The server would wait longer than the client.
    #[error("maxAwaitTimeMS must be less than timeoutMS")]
    AwaitTooLong,
}
