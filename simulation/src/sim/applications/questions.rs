//! Commits whose outcome is unknown: other clients ask for it again by the token, and the answers
//! are the truth, or have a reason.

use std::collections::BTreeMap;

use sdam::error::{CommitToken, Error};
use sdam::results::CommitOutcome;

use super::checks::Transactions;
use super::conversation::SessionName;
use crate::histories::{History, Outcome};
use crate::sim::checks::{Finding, ensure};

/// A commit whose outcome its client does not know.
#[derive(Clone, Debug)]
pub(super) struct Question {
    client: usize,
    /// The number of the transaction in the history.
    attempt: usize,
    /// The token as another process has it.
    token: String,
    /// True while a client asks.
    is_asked: bool,
}

/// All of them, by their transactions.
#[derive(Debug, Default)]
pub(super) struct Questions {
    all: BTreeMap<usize, Question>,
    /// True if something may stand between clients and servers.
    is_disturbed: bool,
}

impl Question {
    /// Returns the token, as it is read from its text.
    pub(super) fn token(&self) -> CommitToken {
        self.token.parse().unwrap_or_else(|error| panic!("{}: {error}", self.token))
    }

    /// Returns the name of the session.
    pub(super) fn session(&self) -> SessionName {
        let token = self.token();
        token.session().get_binary("id").map(|id| id.bytes.to_vec()).unwrap_or_default()
    }
}

impl Questions {
    /// Something may stand between clients and servers from now on.
    pub(super) const fn are_disturbed(&mut self) {
        self.is_disturbed = true;
    }

    /// Nothing stands between clients and servers any more; returns all questions there were.
    pub(super) fn at_the_end(&mut self) -> Vec<Question> {
        self.is_disturbed = false;
        self.all.values().cloned().collect()
    }

    /// A client does not know what has become of its transaction.
    pub(super) fn note(&mut self, client: usize, attempt: usize, token: &CommitToken) {
        let (token, is_asked) = (token.to_string(), false);
        self.all.entry(attempt).or_insert(Question { client, attempt, token, is_asked });
    }

    /// Returns one of another client's that is not asked at the time, by these bits.
    pub(super) fn take(&mut self, client: usize, bits: u64) -> Option<Question> {
        let mut free: Vec<_> =
            self.all.values_mut().filter(|it| it.client != client && !it.is_asked).collect();
        let count = u64::try_from(free.len()).ok().filter(|count| *count > 0)?;
        let drawn = free.swap_remove(usize::try_from(bits % count).unwrap_or_default());
        drawn.is_asked = true;
        Some(drawn.clone())
    }

    /// A client has asked, and has an answer unless it has turned away.
    ///
    /// What is committed has to be there whole at the end, and nothing of what is aborted: that is
    /// for the history to judge. Outcomes are forgotten only of a session that has had another
    /// transaction since, and stay unknown only if something has stood between.
    pub(super) fn answered(
        &mut self,
        question: &Question,
        answer: Option<&Result<CommitOutcome, Error>>,
        (history, transactions): (&mut History, &Transactions),
    ) -> Finding {
        if let Some(known) = self.all.get_mut(&question.attempt) {
            known.is_asked = false;
        }
        let token = question.token();
        match answer {
            None => {}
            Some(Ok(CommitOutcome::Committed)) => history.end(question.attempt, Outcome::Committed),
            Some(Ok(CommitOutcome::Aborted)) => history.end(question.attempt, Outcome::Aborted),
            Some(Ok(CommitOutcome::Forgotten)) => {
                let number = token.transaction_number();
                let is_superseded = transactions.has_newer(&question.session(), number);
                return ensure(is_superseded, "outcomes are forgotten after another one", || {
                    format!("that of {question:?} is, and its session has had none since")
                });
            }
            Some(Ok(CommitOutcome::Unknown(other))) => {
                ensure(*other == token, "a token stays what it is", || {
                    format!("{question:?} is answered by {other}")
                })?;
                return self.may_stay_unknown(question, answer);
            }
            Some(_) => return self.may_stay_unknown(question, answer),
        }
        Ok(())
    }

    fn may_stay_unknown(
        &self,
        question: &Question,
        answer: Option<&Result<CommitOutcome, Error>>,
    ) -> Finding {
        ensure(self.is_disturbed, "what is asked again is answered", || {
            format!("{question:?} is answered by {answer:?}, and nothing stands between")
        })
    }
}

#[cfg(test)]
mod tests {
    use sdam::results::CommitOutcome;

    use super::{Finding, History, Outcome, Questions, Transactions};
    use crate::histories::{Act, Anomaly};

    const TOKEN: &str = "c1.PwAAAAVpZAAQAAAABAABAgMEBQYHCAkKCwwNDg8SbgADAAAAAAAAABJ1AOOw\
                         xEKY_BwUEnMAVxsONVUBNlgAvHDqAw";

    /// Returns what is found if a question is answered so, with the history that it has then.
    fn answered(is_disturbed: bool, outcomes: &[CommitOutcome]) -> (Finding, History) {
        let (mut questions, mut history) = (Questions::default(), History::default());
        if is_disturbed {
            questions.are_disturbed();
        }
        let attempt = history.begin();
        history.act(attempt, Act::Append(1, 10));
        questions.note(0, attempt, &TOKEN.parse().unwrap());
        assert!(questions.take(0, 5).is_none(), "its own client does not ask");
        let mut found = Ok(());
        for outcome in outcomes {
            let question = questions.take(1, 5).unwrap();
            assert!(questions.take(2, 5).is_none(), "another one asks");
            let answer = Ok(outcome.clone());
            let judged = (&mut history, &Transactions::default());
            found = found.and(questions.answered(&question, Some(&answer), judged));
        }
        (found, history)
    }

    #[test]
    fn what_is_answered_is_part_of_the_history() {
        let (found, mut history) = answered(false, &[CommitOutcome::Committed]);
        found.unwrap();
        history.finish([(1, Vec::new())]);
        assert_eq!(history.check(), Err(Anomaly::Lost { writer: 0, key: 1, value: 10 }));
        let (found, mut history) = answered(false, &[CommitOutcome::Aborted]);
        found.unwrap();
        assert_eq!(history.count(Outcome::Aborted), 1);
        history.finish([(1, vec![10])]);
        assert_eq!(history.check(), Err(Anomaly::AbortedRead { writer: 0, key: 1, value: 10 }));
        let both = [CommitOutcome::Aborted, CommitOutcome::Committed];
        let (_, history) = answered(false, &both);
        assert_eq!(history.check(), Err(Anomaly::Contradicted { writer: 0 }));
    }

    #[test]
    fn what_is_not_answered_has_a_reason() {
        let unknown = CommitOutcome::Unknown(TOKEN.parse().unwrap());
        let check = |found: (Finding, History)| found.0.unwrap_err().check;
        let found = answered(false, std::slice::from_ref(&unknown));
        assert_eq!(check(found), "what is asked again is answered");
        answered(true, &[unknown]).0.unwrap();
        let found = answered(true, &[CommitOutcome::Forgotten]);
        assert_eq!(check(found), "outcomes are forgotten after another one");
    }
}
