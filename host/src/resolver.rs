//! How an application looks up the records of a `mongodb+srv://` deployment itself.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use sdam_core::dns::{Answer, DnsError, Question};

/// A lookup in progress.
pub type LookupFuture<'a> = Pin<Box<dyn Future<Output = Result<Answer, DnsError>> + Send + 'a>>;

/// Looks up the records of a `mongodb+srv://` deployment.
///
/// Runtimes ask the name servers that the system is configured with. An application can bring its
/// own resolver, where that configuration is not in a file, say.
pub trait Resolver: fmt::Debug + Send + Sync + 'static {
    /// Looks up the records that `question` asks for.
    ///
    /// A lookup that has not ended after a minute is given up. That there are no records is
    /// [`DnsCause::NoRecords`](sdam_core::dns::DnsCause::NoRecords) or
    /// [`DnsCause::NoSuchName`](sdam_core::dns::DnsCause::NoSuchName), which for TXT records is no
    /// failure; for errors of its own it has
    /// [`DnsCause::Resolver`](sdam_core::dns::DnsCause::Resolver).
    fn lookup(&self, question: Question) -> LookupFuture<'_>;
}
