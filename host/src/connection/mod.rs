//! Connections of the application: established, checked out, and what is exchanged over them.

pub(crate) mod checked_out;
pub(crate) mod establish;
pub(crate) mod exchange;
pub(crate) mod timed;
