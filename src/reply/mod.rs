//! Readers of replies that several commands share.

pub(crate) mod document;
pub(crate) mod readable;
pub(crate) mod stack;
pub(crate) mod value;
pub(crate) mod write;
