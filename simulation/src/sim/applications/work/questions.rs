//! The question what became of a transaction of another client's, whose commit has come to no known
//! end.

use super::super::questions::Question;
use super::within::Patience;
use super::{Application, Terms};

impl Application {
    /// Asks for all outcomes once more, when nothing goes wrong any more.
    pub(in crate::sim::applications) async fn ask_for_all(self) {
        let all = self.state().questions.at_the_end();
        for question in all {
            ask_for(&self, &question, Patience::Endless).await;
        }
        self.state().task_ends();
    }
}

/// Asks for an outcome that another client does not know, if there is one.
pub(super) async fn ask(application: &mut Application) {
    let bits = application.random.bits();
    let question = application.state().questions.take(application.number, bits);
    let Some(question) = question else { return };
    let patience = match application.random.below(10) {
        0..8 => Patience::Endless,
        8 => Patience::Time(application.random.millis(0, 400)),
        _ => Patience::Polls(1 + application.random.below(30)),
    };
    ask_for(application, &question, patience).await;
}

async fn ask_for(application: &Application, question: &Question, patience: Patience) {
    let number = application.begin(Terms::default());
    let session = (application.number, question.session());
    application.state().conversations.ends_transactions(session, number);
    let asking = application.client.recover_commit(question.token());
    let answer = patience.with(&application.time, asking).await;
    application.ended(number, answer.as_ref().and_then(|it| it.as_ref().err()));
    let mut state = application.state();
    let state = &mut *state;
    let judged = (&mut state.history, &state.checks.transactions);
    let finding = state.questions.answered(question, answer.as_ref(), judged);
    state.judge(application.number, finding);
    state.operations.end(application.number);
}
