//! Values that belong to one process, and what another one makes of them that was forked from it.

use std::sync::Arc;

use sdam_host::Process;

use crate::engine::Engine;

/// A value of the process that made it, and how one waits for it: by an engine, unless the value
/// knows that.
///
/// In a process that was forked off, threads are missing that may have held its locks, and its
/// sockets are the parent's: it is not used there, and when it is dropped, it is left as it is.
#[derive(Debug)]
pub(crate) struct Own<T, E = Arc<Engine>> {
    process: Process,
    /// Present until dropped.
    value: Option<(T, E)>,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T, engine: &Arc<Engine>) -> Self {
        Self { process: Process::current(), value: Some((value, Arc::clone(engine))) }
    }
}

impl<T> Own<T, ()> {
    pub(crate) fn alone(value: T) -> Self {
        Self { process: Process::current(), value: Some((value, ())) }
    }
}

impl<T, E> Own<T, E> {
    /// Takes a value that belongs to the same process.
    pub(crate) const fn beside<U>(&self, value: U) -> Own<U, ()> {
        Own { process: self.process, value: Some((value, ())) }
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.process.is_current()
    }

    /// Returns it, and its engine, if it is this process's.
    pub(crate) fn ours(&self) -> Option<(&T, &E)> {
        self.value.as_ref().filter(|_| self.is_ours()).map(|(value, engine)| (value, engine))
    }

    /// Returns it, and its engine, if it is this process's.
    pub(crate) fn ours_mut(&mut self) -> Option<(&mut T, &E)> {
        match self.is_ours() {
            true => self.value.as_mut().map(|(value, engine)| (value, &*engine)),
            false => None,
        }
    }

    /// Hands it out if it is this process's.
    pub(crate) fn into_ours(mut self) -> Option<T> {
        match self.is_ours() {
            true => self.value.take().map(|(value, _)| value),
            false => None,
        }
    }

    /// Makes another value of it, which belongs to the same process.
    pub(crate) fn map(mut self, act: impl FnOnce(T) -> T) -> Self {
        let value = self.value.take().map(|(value, engine)| (act(value), engine));
        Self { process: self.process, value }
    }

    /// Returns it whosever it is, for what takes no lock.
    pub(crate) fn anyones(&self) -> &T {
        &self.value.as_ref().expect(PRESENT).0
    }

    /// Returns it whosever it is, for what takes no lock.
    pub(crate) fn anyones_mut(&mut self) -> &mut T {
        &mut self.value.as_mut().expect(PRESENT).0
    }
}

impl<T: Clone, E: Clone> Clone for Own<T, E> {
    fn clone(&self) -> Self {
        Self { process: self.process, value: self.value.clone() }
    }
}

const PRESENT: &str = "it is present until it is dropped";

impl<T, E> Drop for Own<T, E> {
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.value.take());
        }
    }
}
