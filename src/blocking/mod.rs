//! Databases, collections and cursors for threads: each operation has its thread wait.
//!
//! The same as [the others](crate), over [`sdam_blocking`].

/// Writes methods that wait for those of the same names which return futures; a cursor is one for
/// threads.
macro_rules! waiting {
    (
        $handle:ident {
            $(fn $name:ident $(<$of:ident: $bound:ident $(+ $further:ident)*>)?(
                $($argument:ident: $type:ty)?
            ) -> $output:ty;)*
        }
        $(cursors {
            $(fn $opening:ident $(<$of_cursor:ident: $bound_of_cursor:ident>)?(
                $operation:ident: $operation_type:ty
            ) -> $document:ty;)*
        })?
    ) => {
        $(
            #[doc = concat!(
                "As [`", stringify!($handle), "::", stringify!($name), "`](crate::",
                stringify!($handle), "::", stringify!($name), ").",
            )]
            ///
            /// # Errors
            ///
            /// Fails as that does.
            pub fn $name $(<$of: $bound $(+ $further)*>)?(
                &self,
                $($argument: $type)?
            ) -> Result<$output, $crate::error::Error> {
                self.shared.wait(self.futures().$name($($argument)?))
            }
        )*
        $($(
            #[doc = concat!(
                "As [`", stringify!($handle), "::", stringify!($opening), "`](crate::",
                stringify!($handle), "::", stringify!($opening), ").",
            )]
            ///
            /// # Errors
            ///
            /// Fails as that does.
            pub fn $opening $(<$of_cursor: $bound_of_cursor>)?(
                &self,
                $operation: $operation_type,
            ) -> Result<$crate::blocking::Cursor<$document>, $crate::error::Error> {
                let cursor = self.shared.wait(self.futures().$opening($operation))?;
                Ok($crate::blocking::Cursor::new(cursor, &self.shared))
            }
        )*)?
    };
}

mod client;
mod collection;
mod cursor;
mod database;

pub use client::Client;
pub use collection::Collection;
pub use cursor::Cursor;
pub use database::Database;
pub use sdam_blocking::{
    Blocking, BlockingReactor, ByteStream, CheckedOut, ClientBuilder, Dialer, Events, Exhaust,
    Registry, SelectedServer, Source, Subscription, Topology, Views, block_on,
};

/// A session, as [`ClientSession`](crate::driver::ClientSession) is: nothing of it waits.
pub type ClientSession = crate::driver::ClientSession<sdam_blocking::Blocking>;
