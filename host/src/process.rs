//! Values that belong to the process that made them, and not to those that are forked off.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

#[cfg(test)]
use crate::tests::forks::number;
use sdam_core::process::Forked;

/// A process, identified by its number.
///
/// It is asked for several times in every operation, and the C library asks the kernel each time:
/// so a thread remembers the number, until the process has been forked off from another one. A
/// process that is made by a system call of its own, and not by `fork` of the C library, takes
/// itself for its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// Returns this process.
    pub fn current() -> Self {
        Self(number())
    }

    /// Returns whether this is still the same process, not one that was forked off.
    pub fn is_current(self) -> bool {
        self == Self::current()
    }

    /// Refuses to go on in a process that was forked off.
    ///
    /// # Errors
    ///
    /// Fails with the numbers of both.
    pub fn check(self) -> Result<(), Forked> {
        match Self::current() {
            current if current == self => Ok(()),
            current => Err(Forked::new(self.0, current.0)),
        }
    }
}

#[cfg(not(test))]
use here::number;

pub(crate) mod here {
    use std::cell::RefCell;

    struct Here {
        /// Detects whether the process was forked off since the last check.
        guard: forkguard::Guard,
        number: u32,
    }

    thread_local! {
        static HERE: RefCell<Here> = RefCell::new(Here {
            guard: forkguard::new(),
            number: std::process::id(),
        });
    }

    /// Returns the number of this process, mostly without asking the kernel.
    pub(crate) fn number() -> u32 {
        HERE.with_borrow_mut(|here| {
            if here.guard.detected_fork() {
                here.number = std::process::id();
            }
            here.number
        })
    }
}

/// A value of the process that made it. Dropped in one that was forked off, it is left as it is:
/// threads are missing there that may have held its locks, and deregistering its sockets from the
/// system would deregister them for the parent.
#[derive(Debug)]
pub(crate) struct Own<T> {
    process: Process,
    /// Present until dropped.
    value: Option<T>,
}

impl<T> Own<T> {
    pub(crate) const fn new(value: T, process: Process) -> Self {
        Self { process, value: Some(value) }
    }

    /// Returns it, unless it is another process's.
    pub(crate) fn ours(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.process.is_current())
    }
}

impl<T> Own<T> {
    /// As [`ours`](Self::ours), to be changed.
    pub(crate) fn ours_mut(&mut self) -> Option<&mut T> {
        let process = self.process;
        self.value.as_mut().filter(|_| process.is_current())
    }
}

/// In a process that was forked off, a task of the parent's executor never goes on.
impl<F: Future> Future for Own<Pin<Box<F>>> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if !self.process.is_current() {
            return Poll::Pending;
        }
        let task = self.value.as_mut().expect("it is present until it is dropped");
        task.as_mut().poll(cx)
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is present until it is dropped")
    }
}

impl<T: Clone> Clone for Own<T> {
    fn clone(&self) -> Self {
        Self { process: self.process, value: self.value.clone() }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.process.is_current() {
            std::mem::forget(self.value.take());
        }
    }
}
