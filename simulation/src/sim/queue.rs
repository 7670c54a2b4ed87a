//! The queue of coming events, in the order of time, and at one instant in the order of planning.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use sdam_core::time::Instant;

/// Events that are still to come.
#[derive(Debug)]
pub(super) struct Queue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    planned: u64,
}

#[derive(Debug)]
struct Entry<E> {
    key: (Instant, u64),
    event: E,
}

impl<E> Queue<E> {
    pub(super) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), planned: 0 }
    }

    pub(super) fn plan(&mut self, at: Instant, event: E) {
        self.planned += 1;
        self.heap.push(Reverse(Entry { key: (at, self.planned), event }));
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.key.0)
    }

    pub(super) fn pop(&mut self) -> Option<E> {
        self.heap.pop().map(|Reverse(entry)| entry.event)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

#[cfg(test)]
mod tests {
    use super::{Instant, Queue};

    #[test]
    fn what_is_planned_for_one_instant_happens_in_the_order_of_planning() {
        let mut queue = Queue::new();
        queue.plan(Instant::from_millis(2), 'c');
        queue.plan(Instant::from_millis(1), 'a');
        queue.plan(Instant::from_millis(1), 'b');
        assert_eq!(queue.next_at(), Some(Instant::from_millis(1)));
        let order: String = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, "abc");
    }
}
