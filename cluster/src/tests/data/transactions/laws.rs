//! The laws of transactions, under any fate: each sees one moment and its own writes, and what it
//! has written is there as a whole or not at all.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// The documents of a collection: the value of each, by its `_id`.
type Documents = BTreeMap<i32, i32>;

/// A step of an application, which has chosen a session and a document.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read,
    Set,
    Insert,
    Delete,
    /// The same without a transaction.
    SetOutside,
    InsertOutside,
    DeleteOutside,
    Commit,
    Abort,
    /// Another member becomes primary.
    Failover,
}

/// An open transaction, naively.
struct Open {
    began: Documents,
    sees: Documents,
    written: BTreeSet<i32>,
}

/// The state that there should be.
#[derive(Default)]
struct Naive {
    committed: Documents,
    open: BTreeMap<u8, Open>,
    /// The number of commits, and writes outside, that have changed anything.
    entries: usize,
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Seen(Documents),
    Done(i32),
    Failed(i32),
}

impl Naive {
    fn change(&mut self, id: i32, value: Option<i32>) {
        match value {
            Some(value) => drop(self.committed.insert(id, value)),
            None => drop(self.committed.remove(&id)),
        }
    }

    /// The value that a write would put, or the outcome without one.
    fn wanted(before: Option<i32>, step: Step, value: i32) -> Result<Option<i32>, Outcome> {
        match (step, before) {
            (Step::Insert | Step::InsertOutside, None) => Ok(Some(value)),
            (Step::Insert | Step::InsertOutside, Some(_)) => Err(Outcome::Failed(11000)),
            (_, None) => Err(Outcome::Done(0)),
            (Step::Set | Step::SetOutside, Some(_)) => Ok(Some(value)),
            (_, Some(_)) => Ok(None),
        }
    }

    fn write_outside(&mut self, step: Step, id: i32, value: i32) -> Outcome {
        let wanted = Self::wanted(self.committed.get(&id).copied(), step, value);
        match wanted {
            Err(outcome) => outcome,
            Ok(_) if self.open.values().any(|it| it.written.contains(&id)) => Outcome::Failed(50),
            Ok(value) => {
                self.change(id, value);
                self.entries += 1;
                Outcome::Done(1)
            }
        }
    }

    fn write(&mut self, session: u8, step: Step, id: i32, value: i32) -> Outcome {
        let others = self.open.iter().filter(|(other, _)| **other != session);
        let is_held = others.map(|(_, it)| it).any(|it| it.written.contains(&id));
        let Some(open) = self.open.get_mut(&session) else { return Outcome::Failed(251) };
        let is_old = self.committed.get(&id) != open.began.get(&id);
        let outcome = match Self::wanted(open.sees.get(&id).copied(), step, value) {
            Ok(_) if is_held || is_old => Outcome::Failed(112),
            Ok(value) => {
                open.written.insert(id);
                match value {
                    Some(value) => drop(open.sees.insert(id, value)),
                    None => drop(open.sees.remove(&id)),
                }
                Outcome::Done(1)
            }
            Err(outcome) => outcome,
        };
        if matches!(outcome, Outcome::Failed(_)) {
            self.open.remove(&session);
        }
        outcome
    }

    fn begin(&mut self, session: u8) {
        let began = self.committed.clone();
        self.open.insert(session, Open { sees: began.clone(), began, written: BTreeSet::new() });
    }

    fn commit(&mut self, session: u8) -> Outcome {
        let Some(open) = self.open.remove(&session) else { return Outcome::Failed(251) };
        open.written.iter().for_each(|id| self.change(*id, open.sees.get(id).copied()));
        self.entries += usize::from(!open.written.is_empty());
        Outcome::Done(0)
    }
}

/// The number of documents that there may be.
const IDS: i32 = 4;

/// A deployment, and what should be in it.
struct Pair {
    world: World,
    connection: ConnectionId,
    naive: Naive,
    /// The number of the newest transaction of each session, and how it ended.
    numbers: BTreeMap<u8, i64>,
    value: i32,
}

impl Pair {
    fn new() -> Self {
        let (mut world, connection) = client();
        must(&mut world, connection, doc! { "create": "x" });
        let numbers = (1..4).map(|it| (it, 0)).collect();
        Self { world, connection, naive: Naive::default(), numbers, value: 0 }
    }

    /// Takes a step, and returns what should come of it, and what does.
    fn step(&mut self, step: Step, session: u8, id: i32) -> (Outcome, Outcome) {
        self.value += 1;
        let (value, is_open) = (self.value, self.naive.open.contains_key(&session));
        let delete = doc! { "delete": "x", "deletes": [{ "q": { "_id": id }, "limit": 1 }] };
        let insert = doc! { "insert": "x", "documents": [{ "_id": id, "a": value }] };
        let command = match step {
            Step::Read => find(),
            Step::Set | Step::SetOutside => set(id, value),
            Step::Insert | Step::InsertOutside => insert,
            Step::Delete | Step::DeleteOutside => delete,
            Step::Commit => commit(),
            Step::Abort => abort(),
            Step::Failover => {
                self.step_down();
                return (Outcome::Done(0), Outcome::Done(0));
            }
        };
        if matches!(step, Step::SetOutside | Step::InsertOutside | Step::DeleteOutside) {
            let expected = self.naive.write_outside(step, id, value);
            return (expected, self.limited(command));
        }
        if !is_open && matches!(step, Step::Commit | Step::Abort) {
            return (Outcome::Done(0), Outcome::Done(0));
        }
        if !is_open {
            *self.numbers.get_mut(&session).unwrap() += 1;
            self.naive.begin(session);
        }
        let number = self.numbers[&session];
        let command = match is_open {
            true => within(command, session, number),
            false => first(command, session, number),
        };
        let expected = match step {
            Step::Read => Outcome::Seen(self.naive.open[&session].sees.clone()),
            Step::Commit => self.naive.commit(session),
            Step::Abort => {
                self.naive.open.remove(&session);
                Outcome::Done(0)
            }
            _ => self.naive.write(session, step, id, value),
        };
        let reply = ask(&mut self.world, self.connection, command);
        (expected, outcome(&reply))
    }

    /// Runs a write outside of transactions, which may have to wait for one.
    fn limited(&mut self, mut command: Document) -> Outcome {
        command.insert("maxTimeMS", 1);
        let command = super::super::raw(command);
        self.world.request(self.connection, sdam_core::wire::Flags::NONE, &command);
        self.world.advance(std::time::Duration::from_millis(1));
        outcome(&answer(&mut self.world, self.connection))
    }

    /// Every open transaction is lost.
    fn step_down(&mut self) {
        let old = self.world.primary().unwrap();
        self.world.handle(Input::StepDown { member: old });
        self.world.advance(SECOND);
        self.connection = self.world.connect(self.world.primary().unwrap());
        self.naive.open.clear();
    }
}

fn documents(found: &[Document]) -> Documents {
    let value = |it: &Document, name: &str| it.get_i32(name).unwrap();
    found.iter().map(|it| (value(it, "_id"), value(it, "a"))).collect()
}

fn outcome(reply: &Document) -> Outcome {
    if reply.contains_key("cursor") {
        return Outcome::Seen(documents(&batch(reply)));
    }
    let errors = reply.get_array("writeErrors").into_iter().flatten();
    let code = errors.filter_map(|it| it.as_document()).map(code).next();
    match code.unwrap_or_else(|| super::super::code(reply)) {
        0 => Outcome::Done(reply.get_i32("n").unwrap_or(0)),
        code => Outcome::Failed(code),
    }
}

fn steps() -> impl Strategy<Value = Vec<(Step, u8, i32)>> {
    let step = prop_oneof![
        2 => Just(Step::Read),
        3 => Just(Step::Set),
        3 => Just(Step::Insert),
        2 => Just(Step::Delete),
        1 => Just(Step::SetOutside),
        2 => Just(Step::InsertOutside),
        1 => Just(Step::DeleteOutside),
        3 => Just(Step::Commit),
        1 => Just(Step::Abort),
        1 => Just(Step::Failover),
    ];
    prop::collection::vec((step, 1..4_u8, 0..IDS), 0..60)
}

proptest! {
    #[test]
    fn transactions_are_isolated_and_whole(steps in steps()) {
        let mut pair = Pair::new();
        for (step, session, id) in steps {
            let (expected, found) = pair.step(step, session, id);
            prop_assert_eq!(expected, found, "{:?} of {} by {}", step, id, session);
            let seen = documents(&all(&mut pair.world, pair.connection));
            prop_assert_eq!(&seen, &pair.naive.committed);
            let primary = pair.world.primary().unwrap();
            let log = pair.world.model.get().log(primary);
            // The first one has created the collection, and each primary has begun with one.
            let begun = usize::try_from(pair.world.model.get().term()).unwrap();
            prop_assert_eq!(log.len(), pair.naive.entries + 1 + begun);
        }
        for member in (0..3).map(MemberId) {
            let connection = pair.world.connect(member);
            let seen = documents(&all(&mut pair.world, connection));
            prop_assert_eq!(&seen, &pair.naive.committed);
        }
    }
}
