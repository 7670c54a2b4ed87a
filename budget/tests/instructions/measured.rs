//! The two functions by whose names callgrind knows what to count.

use std::sync::atomic::{AtomicBool, Ordering};

/// The pattern of both names, as passed to callgrind: entering or leaving one of them toggles the
/// counting.
pub(crate) const TOGGLE: &str = "instructions::measured::counted*";

/// True within what is counted.
static COUNTS: AtomicBool = AtomicBool::new(false);

/// Has callgrind count what `work` does.
#[inline(never)]
pub(crate) fn counted(work: &mut dyn FnMut()) {
    COUNTS.store(true, Ordering::Relaxed);
    work();
    COUNTS.store(false, Ordering::Relaxed);
}

/// Does what callgrind leaves out within that: a server's part.
pub(crate) fn apart<T>(work: impl FnOnce() -> T) -> T {
    if !COUNTS.load(Ordering::Relaxed) {
        return work();
    }
    let (mut work, mut done) = (Some(work), None);
    counted_not(&mut || done = work.take().map(|work| work()));
    done.expect("it was called")
}

#[inline(never)]
fn counted_not(work: &mut dyn FnMut()) {
    COUNTS.store(false, Ordering::Relaxed);
    work();
    COUNTS.store(true, Ordering::Relaxed);
}
