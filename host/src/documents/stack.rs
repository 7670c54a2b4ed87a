//! Room on the stack for what recurses once a level of a document.

/// The number of levels that need no look at the stack: that of almost all documents.
pub const SHALLOW: usize = 16;

/// The stack that a level has where it is read on the stack of the thread, in bytes. A
/// [`Document`](bson::Document) takes about 10 KiB in a build that is not optimised.
const LEVEL: usize = 32 << 10;

/// The same on a stack of its own, which takes memory only as far as it is used.
const OWN_LEVEL: usize = 128 << 10;

/// Calls a function that recurses [`SHALLOW`] levels, and goes on within a further call of this
/// function: on another stack, if that of this thread may be too short.
pub fn with_more_stack<T>(call: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(SHALLOW * LEVEL, SHALLOW * OWN_LEVEL, call)
}

/// Calls a function that recurses so many levels: on another stack, if that of this thread may be
/// too short.
pub fn with_stack_for<T>(levels: usize, call: impl FnOnce() -> T) -> T {
    match levels <= SHALLOW {
        true => call(),
        false => stacker::maybe_grow(levels * LEVEL, levels * OWN_LEVEL, call),
    }
}
