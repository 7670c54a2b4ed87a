//! Operations from selection to outcome, the connections that they check out, and what is exchanged
//! over these.

pub(crate) mod checked_out;
pub(crate) mod convenient;
pub(crate) mod establish;
pub(crate) mod exchange;
pub(crate) mod observed;
pub(crate) mod operation;
pub(crate) mod outcome;
pub(crate) mod pinned;
pub(crate) mod request;
pub(crate) mod selected_server;
pub(crate) mod session;
mod standing;
pub(crate) mod timed;
pub(crate) mod transaction;
