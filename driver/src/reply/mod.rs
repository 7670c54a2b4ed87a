//! Readers of replies that several commands share.

pub(crate) mod write;
