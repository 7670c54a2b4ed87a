//! What belongs to one process, and what another one makes of it that was forked from it.

use std::process;

/// What belongs to the process that made it.
///
/// In a process that was forked off, threads are missing that may have held its locks, and its
/// sockets are the parent's: it is not used there, and when it is dropped, it is left as it is.
#[derive(Debug)]
pub(crate) struct Own<T> {
    process: u32,
    /// Present until dropped.
    value: Option<T>,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: process::id(), value: Some(value) }
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.process == process::id()
    }

    /// Returns it if it is this process's.
    pub(crate) fn ours(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_ours())
    }

    /// Returns it if it is this process's.
    pub(crate) fn ours_mut(&mut self) -> Option<&mut T> {
        match self.is_ours() {
            true => self.value.as_mut(),
            false => None,
        }
    }

    /// Hands it out if it is this process's.
    pub(crate) fn into_ours(mut self) -> Option<T> {
        match self.is_ours() {
            true => self.value.take(),
            false => None,
        }
    }

    /// Returns it whosever it is, for what takes no lock.
    pub(crate) fn anyones(&self) -> &T {
        self.value.as_ref().expect(PRESENT)
    }

    /// Returns it whosever it is, for what takes no lock.
    pub(crate) fn anyones_mut(&mut self) -> &mut T {
        self.value.as_mut().expect(PRESENT)
    }
}

impl<T: Clone> Clone for Own<T> {
    fn clone(&self) -> Self {
        Self { process: self.process, value: self.value.clone() }
    }
}

const PRESENT: &str = "it is present until it is dropped";

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.value.take());
        }
    }
}
