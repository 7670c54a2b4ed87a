//! Readers of replies that several commands share.

pub(crate) mod document;
pub(crate) mod readable;
pub(crate) mod write;
