//! Operations that a method of a handle has begun to describe: they have a method for each option,
//! and are performed when they are awaited, or [run](Action::run) by a thread.
//!
//! ```no_run
//! # use sdam::{Collection, bson::doc};
//! # async fn example(books: Collection) -> sdam::Result<()> {
//! let old = books.find(doc! { "year": { "$lt": 1900 } });
//! let mut found = old.sort(doc! { "year": 1 }).limit(10).await?;
//! while let Some(book) = found.try_next().await? {
//!     println!("{book}");
//! }
//! # Ok(())
//! # }
//! ```

pub use crate::command::action::{Action, PerformsActions};
pub use crate::command::views::{Changes, Each, First, Many, Names, One, Reply, View};
pub use crate::handle::awaiting::{ActionFuture, Async};
pub use crate::handle::outcome::Perform;
pub use crate::handle::recover_commit::RecoverCommit;
pub use crate::handle::shutdown::Shutdown;
pub use crate::handle::start_session::StartSession;
pub use sdam_host::{EndTransaction, StartTransaction, TransactionFuture};
