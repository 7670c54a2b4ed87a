//! Documents of applications: their reading as types, and the stack that deep ones need. It is for
//! authors of operations.

mod error;
mod read;
mod stack;
mod value;

pub use error::DeserializeError;
pub use read::read_as;
pub use stack::{SHALLOW, with_more_stack, with_stack_for};
pub use value::{TooDeep, check_levels, check_levels_of, number, to_bson, too_deep, whole};
