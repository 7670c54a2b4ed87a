//! Histories of transactions that append to lists and read them, and the anomalies that a history
//! shows, found as Elle finds them: lists say in which order their values were written, so that
//! dependencies between transactions are known, and cycles among them are what isolation forbids.
//!
//! The names of anomalies are Adya's. Snapshot isolation, which transactions of MongoDB have,
//! forbids all that are found here, and allows write skew, which is not looked for.
//!
//! ```
//! use sdam_simulation::histories::{Act, Anomaly, History, Outcome};
//!
//! let mut history = History::default();
//! let lost = history.begin();
//! history.act(lost, Act::Append(1, 10));
//! history.end(lost, Outcome::Committed);
//! history.finish([(1, Vec::new())]);
//! assert_eq!(history.check(), Err(Anomaly::Lost { writer: 0, key: 1, value: 10 }));
//! ```

mod graph;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use graph::Graph;

/// The name of a list.
pub type Key = i64;

/// A value, which is appended to one list once.
pub type Value = i64;

/// The fate of a transaction, as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it lasts.
    Committed,
    /// Nothing of it is there.
    Aborted,
    /// All of it is there, or nothing.
    Unknown,
}

/// Something that a transaction has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A value is appended to a list.
    Append(Key, Value),
    /// A list is read whole.
    Read(Key, Vec<Value>),
}

#[derive(Clone, Debug)]
struct Transaction {
    outcome: Outcome,
    /// True if it was said to be committed, and to be aborted.
    is_contradicted: bool,
    acts: Vec<Act>,
}

/// The transactions of all clients, and what there is at the end.
#[derive(Clone, Debug, Default)]
pub struct History {
    transactions: Vec<Transaction>,
    last: BTreeMap<Key, Vec<Value>>,
}

/// The kind of a cycle of dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CycleKind {
    /// Transactions have written over each other: G0.
    Writes,
    /// Transactions have seen each other: G1c.
    Information,
    /// A transaction has seen one part of another and not the other, as in read skew and lost
    /// updates: G-single.
    Single,
}

/// The reason why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependency {
    /// The second one has appended behind the first one: ww.
    Writes(Key),
    /// The second one has read what the first one has appended: wr.
    Reads(Key),
    /// The second one has appended what the first one has not read: rw.
    Misses(Key),
}

/// Something that isolation forbids. Transactions are named by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Anomaly {
    /// A transaction that has appended something was said to be committed, and to be aborted; of
    /// one that has only read, servers know no outcome.
    Contradicted {
        /// The transaction.
        writer: usize,
    },
    /// A transaction reads a list otherwise than it has read and written it before.
    Internal {
        /// The transaction.
        reader: usize,
        /// The list.
        key: Key,
    },
    /// A value is in a list that nothing has appended to it, or twice.
    Unwritten {
        /// The list.
        key: Key,
        /// The value.
        value: Value,
    },
    /// A list was read, or is at the end, in two versions of which none continues the other.
    Incompatible {
        /// The list.
        key: Key,
        /// The longer version.
        longer: Vec<Value>,
        /// The other one.
        other: Vec<Value>,
    },
    /// Something of a transaction is seen that was aborted: G1a.
    AbortedRead {
        /// The aborted one.
        writer: usize,
        /// The list.
        key: Key,
        /// The value.
        value: Value,
    },
    /// A transaction reads what another one has appended to a list before it has appended more:
    /// G1b.
    IntermediateRead {
        /// The one that reads.
        reader: usize,
        /// The one that appends.
        writer: usize,
        /// The list.
        key: Key,
    },
    /// At the end, a value of a transaction is not there that was committed.
    Lost {
        /// The transaction.
        writer: usize,
        /// The list.
        key: Key,
        /// The value.
        value: Value,
    },
    /// At the end, a value of a transaction is not there, and another one is.
    Torn {
        /// The transaction.
        writer: usize,
        /// The list of the value that is not there.
        key: Key,
        /// The value.
        value: Value,
    },
    /// Each transaction comes before the next one, and the last one before the first.
    Cycle {
        /// The kind.
        kind: CycleKind,
        /// The transactions, each with the reason why it comes before the next one.
        steps: Vec<(usize, Dependency)>,
    },
}

impl History {
    /// Begins a transaction, and returns its number. What becomes of it is unknown so far.
    pub fn begin(&mut self) -> usize {
        let (outcome, acts) = (Outcome::Unknown, Vec::new());
        self.transactions.push(Transaction { outcome, is_contradicted: false, acts });
        self.transactions.len() - 1
    }

    /// Notes what a transaction does: an append before it is tried, a read once it is done.
    ///
    /// # Panics
    ///
    /// Panics if there is no transaction of this number.
    pub fn act(&mut self, transaction: usize, act: Act) {
        self.transactions[transaction].acts.push(act);
    }

    /// Notes what has become of a transaction. If that is noted again, it has to be the same,
    /// unless one of both is unknown.
    ///
    /// # Panics
    ///
    /// Panics if there is no transaction of this number.
    pub fn end(&mut self, transaction: usize, outcome: Outcome) {
        let transaction = &mut self.transactions[transaction];
        match (transaction.outcome, outcome) {
            (_, Outcome::Unknown) => {}
            (Outcome::Unknown, _) => transaction.outcome = outcome,
            (known, _) => transaction.is_contradicted |= known != outcome,
        }
    }

    /// Notes the lists that there are at the end, when nothing is under way any more.
    pub fn finish(&mut self, lists: impl IntoIterator<Item = (Key, Vec<Value>)>) {
        self.last = lists.into_iter().collect();
    }

    /// Counts the transactions that have come to this.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.transactions.iter().filter(|it| it.outcome == outcome).count()
    }

    /// Judges the history.
    ///
    /// # Errors
    ///
    /// Returns the first anomaly, with the cycle if it is one.
    pub fn check(&self) -> Result<(), Anomaly> {
        let is_contradicted =
            |it: &Transaction| it.is_contradicted && it.appends().next().is_some();
        if let Some(writer) = self.transactions.iter().position(is_contradicted) {
            return Err(Anomaly::Contradicted { writer });
        }
        let writers = self.writers();
        self.transactions.iter().enumerate().try_for_each(|(reader, it)| it.check(reader))?;
        let visible = self.visible();
        let orders = self.orders(&visible)?;
        self.check_values(&writers, &orders)?;
        self.check_end(&visible)?;
        self.graph(&writers, &visible, &orders)?.check()
    }

    fn writers(&self) -> BTreeMap<(Key, Value), usize> {
        let all = self.transactions.iter().enumerate();
        let all = all.flat_map(|(number, it)| it.appends().map(move |what| (what, number)));
        all.collect()
    }

    /// Returns which transactions are seen to have been committed: also those whose clients do not
    /// know, if something of them was read or lasts.
    fn visible(&self) -> Vec<bool> {
        let committed = self.transactions.iter().filter(|it| it.outcome == Outcome::Committed);
        let read = committed.flat_map(|it| it.reads().map(|(key, list)| (key, list.as_slice())));
        let last = self.last.iter().map(|(key, list)| (*key, list.as_slice()));
        let seen: BTreeSet<(Key, Value)> = read
            .chain(last)
            .flat_map(|(key, list)| list.iter().map(move |it| (key, *it)))
            .collect();
        let is_visible = |it: &Transaction| match it.outcome {
            Outcome::Committed => true,
            Outcome::Aborted => false,
            Outcome::Unknown => it.appends().any(|what| seen.contains(&what)),
        };
        self.transactions.iter().map(is_visible).collect()
    }

    /// Returns the longest version of each list, which all others must begin.
    fn orders(&self, visible: &[bool]) -> Result<BTreeMap<Key, Vec<Value>>, Anomaly> {
        let readers = self.transactions.iter().zip(visible).filter(|(_, visible)| **visible);
        let read = readers.flat_map(|(it, _)| it.reads());
        let versions: Vec<(Key, &Vec<Value>)> =
            read.chain(self.last.iter().map(|(key, list)| (*key, list))).collect();
        let mut orders: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
        for (key, list) in &versions {
            let longest = orders.entry(*key).or_default();
            if longest.len() < list.len() {
                longest.clone_from(list);
            }
        }
        for (key, list) in versions {
            let longer = &orders[&key];
            if !longer.starts_with(list) {
                let (longer, other) = (longer.clone(), list.clone());
                return Err(Anomaly::Incompatible { key, longer, other });
            }
        }
        Ok(orders)
    }

    /// Checks that each value was appended once, by a transaction that was not aborted.
    fn check_values(
        &self,
        writers: &BTreeMap<(Key, Value), usize>,
        orders: &BTreeMap<Key, Vec<Value>>,
    ) -> Result<(), Anomaly> {
        for (&key, order) in orders {
            for (at, &value) in order.iter().enumerate() {
                let writer = writers.get(&(key, value)).copied();
                let Some(writer) = writer.filter(|_| !order[..at].contains(&value)) else {
                    return Err(Anomaly::Unwritten { key, value });
                };
                if self.transactions[writer].outcome == Outcome::Aborted {
                    return Err(Anomaly::AbortedRead { writer, key, value });
                }
            }
        }
        Ok(())
    }

    /// Checks that transactions which are visible are there whole at the end, as far as the end is
    /// known.
    fn check_end(&self, visible: &[bool]) -> Result<(), Anomaly> {
        if self.last.is_empty() {
            return Ok(());
        }
        let is_there = |(key, value): (Key, Value)| {
            self.last.get(&key).is_some_and(|list| list.contains(&value))
        };
        for (writer, it) in self.transactions.iter().enumerate().filter(|(at, _)| visible[*at]) {
            if let Some((key, value)) = it.appends().find(|what| !is_there(*what)) {
                return Err(match it.outcome {
                    Outcome::Committed => Anomaly::Lost { writer, key, value },
                    _ => Anomaly::Torn { writer, key, value },
                });
            }
        }
        Ok(())
    }

    /// Returns which transactions come before which.
    fn graph(
        &self,
        writers: &BTreeMap<(Key, Value), usize>,
        visible: &[bool],
        orders: &BTreeMap<Key, Vec<Value>>,
    ) -> Result<Graph, Anomaly> {
        let mut graph = Graph::default();
        for (&key, order) in orders {
            let order = order.iter().map(|value| writers[&(key, *value)]);
            let order: Vec<usize> = order.collect();
            for pair in order.windows(2) {
                graph.add(pair[0], Dependency::Writes(key), pair[1]);
            }
            for (reader, it) in self.transactions.iter().enumerate().filter(|(at, _)| visible[*at])
            {
                for length in it.lengths_of_others(key) {
                    let (last, next) =
                        (length.checked_sub(1).map(|at| order[at]), order.get(length));
                    if let Some((writer, _)) = last.zip(next).filter(|(last, next)| last == *next) {
                        return Err(Anomaly::IntermediateRead { reader, writer, key });
                    }
                    last.into_iter().for_each(|it| graph.add(it, Dependency::Reads(key), reader));
                    next.into_iter().for_each(|it| graph.add(reader, Dependency::Misses(key), *it));
                }
            }
        }
        Ok(graph)
    }
}

impl Transaction {
    fn appends(&self) -> impl Iterator<Item = (Key, Value)> {
        self.acts.iter().filter_map(|act| match act {
            Act::Append(key, value) => Some((*key, *value)),
            Act::Read(..) => None,
        })
    }

    fn reads(&self) -> impl Iterator<Item = (Key, &Vec<Value>)> {
        self.acts.iter().filter_map(|act| match act {
            Act::Read(key, list) => Some((*key, list)),
            Act::Append(..) => None,
        })
    }

    /// Returns how many values of others each read of a list has brought.
    fn lengths_of_others(&self, key: Key) -> impl Iterator<Item = usize> {
        let is_own = move |value: &Value| self.appends().any(|it| it == (key, *value));
        let reads = self.reads().filter(move |(read, _)| *read == key);
        reads.map(move |(_, list)| list.iter().take_while(|value| !is_own(value)).count())
    }

    /// Checks that it sees what it has seen before, with what it has appended since.
    fn check(&self, reader: usize) -> Result<(), Anomaly> {
        if self.outcome != Outcome::Committed {
            return Ok(());
        }
        let mut known: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
        let mut own: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
        for act in &self.acts {
            match act {
                Act::Append(key, value) => {
                    own.entry(*key).or_default().push(*value);
                    known.get_mut(key).into_iter().for_each(|list| list.push(*value));
                }
                Act::Read(key, list) => {
                    let own = own.get(key).map_or(&[][..], Vec::as_slice);
                    let is_known = known.get(key).is_none_or(|known| known == list);
                    if !is_known || !list.ends_with(own) {
                        return Err(Anomaly::Internal { reader, key: *key });
                    }
                    known.insert(*key, list.clone());
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Writes(key) => write!(f, "ww of {key}"),
            Self::Reads(key) => write!(f, "wr of {key}"),
            Self::Misses(key) => write!(f, "rw of {key}"),
        }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contradicted { writer } => {
                write!(f, "transaction {writer} was committed, and was aborted, as clients know it")
            }
            Self::Internal { reader, key } => {
                write!(f, "transaction {reader} contradicts itself in its reads of list {key}")
            }
            Self::Unwritten { key, value } => {
                write!(f, "list {key} has {value}, which nothing has appended, or twice")
            }
            Self::Incompatible { key, longer, other } => {
                write!(f, "list {key} is {longer:?} and {other:?}")
            }
            Self::AbortedRead { writer, key, value } => {
                write!(f, "list {key} has {value} of transaction {writer}, which was aborted (G1a)")
            }
            Self::IntermediateRead { reader, writer, key } => write!(
                f,
                "transaction {reader} reads a part of what transaction {writer} appends to list \
                 {key} (G1b)"
            ),
            Self::Lost { writer, key, value } => {
                write!(
                    f,
                    "list {key} has lost {value} of transaction {writer}, which was committed"
                )
            }
            Self::Torn { writer, key, value } => {
                write!(
                    f,
                    "list {key} has not {value} of transaction {writer}, and others have more"
                )
            }
            Self::Cycle { kind, steps } => {
                let name = match kind {
                    CycleKind::Writes => "G0",
                    CycleKind::Information => "G1c",
                    CycleKind::Single => "G-single",
                };
                write!(f, "{name}:")?;
                for (transaction, dependency) in steps {
                    write!(f, " {transaction} -({dependency})->")?;
                }
                let first = steps.first().map(|(transaction, _)| *transaction);
                write!(f, " {}", first.unwrap_or_default())
            }
        }
    }
}
