//! Hand-made histories, one for each anomaly.

use super::{Act, Anomaly, CycleKind, Dependency, History, Outcome};

const COMMITTED: Outcome = Outcome::Committed;

fn append(key: i64, value: i64) -> Act {
    Act::Append(key, value)
}

fn read<const N: usize>(key: i64, list: [i64; N]) -> Act {
    Act::Read(key, list.to_vec())
}

/// A history of transactions, with its lists at the end.
fn history(transactions: &[(Outcome, &[Act])], last: &[(i64, &[i64])]) -> History {
    let mut history = History::default();
    for (outcome, acts) in transactions {
        let number = history.begin();
        acts.iter().for_each(|act| history.act(number, act.clone()));
        history.end(number, *outcome);
    }
    history.finish(last.iter().map(|(key, list)| (*key, list.to_vec())));
    history
}

fn cycle(history: &History) -> (CycleKind, Vec<(usize, Dependency)>) {
    match history.check() {
        Err(Anomaly::Cycle { kind, steps }) => (kind, steps),
        other => panic!("{other:?}"),
    }
}

#[test]
fn transactions_one_after_the_other_are_in_order() {
    let history = history(
        &[
            (COMMITTED, &[read(1, []), append(1, 10), read(1, [10]), append(2, 20)]),
            (Outcome::Aborted, &[read(1, [10]), append(1, 11)]),
            (COMMITTED, &[append(1, 12), append(1, 13), read(2, [20])]),
            (Outcome::Unknown, &[append(1, 14), append(2, 24)]),
            (Outcome::Unknown, &[append(1, 15), append(2, 25)]),
            (COMMITTED, &[read(1, [10, 12, 13, 15]), read(2, [20, 25])]),
        ],
        &[(1, &[10, 12, 13, 15]), (2, &[20, 25])],
    );
    assert_eq!(history.check(), Ok(()));
    let counts = [COMMITTED, Outcome::Aborted, Outcome::Unknown].map(|it| history.count(it));
    assert_eq!(counts, [3, 1, 2]);
}

#[test]
fn an_outcome_that_is_told_in_two_ways_is_found() {
    for (first, then) in [(COMMITTED, Outcome::Aborted), (Outcome::Aborted, COMMITTED)] {
        let mut history = history(&[(first, &[read(1, [])]), (first, &[append(1, 10)])], &[]);
        [first, Outcome::Unknown].into_iter().for_each(|same| history.end(1, same));
        history.end(0, then);
        assert_eq!(history.count(first), 2, "what is known stays so");
        assert!(!matches!(history.check(), Err(Anomaly::Contradicted { .. })), "it has only read");
        history.end(1, then);
        assert_eq!(history.check(), Err(Anomaly::Contradicted { writer: 1 }));
    }
}

#[test]
fn write_skew_is_allowed() {
    let skew: [&[Act]; 2] = [&[read(1, []), append(2, 20)], &[read(2, []), append(1, 10)]];
    let history = history(&skew.map(|acts| (COMMITTED, acts)), &[(1, &[10]), (2, &[20])]);
    assert_eq!(history.check(), Ok(()));
}

#[test]
fn g0_transactions_that_write_over_each_other_are_found() {
    let dirty: [&[Act]; 2] = [&[append(1, 10), append(2, 20)], &[append(1, 11), append(2, 21)]];
    let history = history(&dirty.map(|acts| (COMMITTED, acts)), &[(1, &[10, 11]), (2, &[21, 20])]);
    let steps = vec![(0, Dependency::Writes(1)), (1, Dependency::Writes(2))];
    assert_eq!(cycle(&history), (CycleKind::Writes, steps));
    let said = history.check().unwrap_err().to_string();
    assert_eq!(said, "G0: 0 -(ww of 1)-> 1 -(ww of 2)-> 0");
}

#[test]
fn g1a_something_of_an_aborted_transaction_is_found() {
    let aborted = (Outcome::Aborted, &[append(1, 10)][..]);
    let found = Err(Anomaly::AbortedRead { writer: 0, key: 1, value: 10 });
    let read = history(&[aborted, (COMMITTED, &[read(1, [10])])], &[]);
    assert_eq!(read.check(), found);
    assert_eq!(history(&[aborted], &[(1, &[10])]).check(), found, "a dirty write");
}

#[test]
fn g1b_an_intermediate_read_is_found() {
    let history = history(
        &[(COMMITTED, &[append(1, 10), append(1, 11)]), (COMMITTED, &[read(1, [10])])],
        &[(1, &[10, 11])],
    );
    let found = Anomaly::IntermediateRead { reader: 1, writer: 0, key: 1 };
    assert_eq!(history.check(), Err(found));
}

#[test]
fn g1c_transactions_that_see_each_other_are_found() {
    let both: [&[Act]; 2] = [&[append(1, 10), read(2, [20])], &[append(2, 20), read(1, [10])]];
    let history = history(&both.map(|acts| (COMMITTED, acts)), &[(1, &[10]), (2, &[20])]);
    let steps = vec![(0, Dependency::Reads(1)), (1, Dependency::Reads(2))];
    assert_eq!(cycle(&history), (CycleKind::Information, steps));
}

#[test]
fn g_single_read_skew_is_found() {
    let history = history(
        &[(COMMITTED, &[append(1, 10), append(2, 20)]), (COMMITTED, &[read(1, []), read(2, [20])])],
        &[(1, &[10]), (2, &[20])],
    );
    let steps = vec![(1, Dependency::Misses(1)), (0, Dependency::Reads(2))];
    assert_eq!(cycle(&history), (CycleKind::Single, steps));
}

#[test]
fn g_single_a_lost_update_is_found() {
    let both: [&[Act]; 2] = [&[read(1, []), append(1, 10)], &[read(1, []), append(1, 11)]];
    let history = history(&both.map(|acts| (COMMITTED, acts)), &[(1, &[10, 11])]);
    assert_eq!(cycle(&history).0, CycleKind::Single);
}

#[test]
fn what_was_committed_and_is_not_there_is_found() {
    let both = [append(1, 10), append(2, 20)];
    let lost = history(&[(COMMITTED, &both)], &[(1, &[10])]);
    assert_eq!(lost.check(), Err(Anomaly::Lost { writer: 0, key: 2, value: 20 }));
    let torn = history(&[(Outcome::Unknown, &both)], &[(1, &[10])]);
    assert_eq!(torn.check(), Err(Anomaly::Torn { writer: 0, key: 2, value: 20 }));
    let none = history(&[(Outcome::Unknown, &both)], &[(1, &[]), (2, &[])]);
    assert_eq!(none.check(), Ok(()));
}

#[test]
fn lists_that_contradict_each_other_are_found() {
    let writes = (COMMITTED, &[append(1, 10), append(1, 11)][..]);
    let forked = history(&[writes, (COMMITTED, &[read(1, [11])])], &[(1, &[10, 11])]);
    let (longer, other) = (vec![10, 11], vec![11]);
    assert_eq!(forked.check(), Err(Anomaly::Incompatible { key: 1, longer, other }));
    for last in [[10, 11, 12], [10, 11, 10]] {
        let value = last[2];
        let found = Err(Anomaly::Unwritten { key: 1, value });
        assert_eq!(history(&[writes], &[(1, &last)]).check(), found);
    }
}

#[test]
fn a_transaction_that_contradicts_itself_is_found() {
    let internal: [&[Act]; 3] = [
        &[append(1, 10), read(1, [])],
        &[read(1, []), read(1, [11]), append(1, 10)],
        &[read(1, []), append(1, 10), read(1, [11, 10])],
    ];
    for acts in internal {
        let history = history(&[(COMMITTED, acts), (COMMITTED, &[append(1, 11)])], &[]);
        assert_eq!(history.check(), Err(Anomaly::Internal { reader: 0, key: 1 }));
    }
}
