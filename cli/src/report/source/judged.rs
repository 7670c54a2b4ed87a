//! The verdicts: what operations would have met, by the machine that did again what a trace
//! records, or, where there is none, by the states of servers alone.

use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::diagnosis::Verdict;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::Topology;

use crate::report::model::{Builder, Fault};
use crate::watch::State;

/// The faults that writes meet, and reads that take any server; `None` is a server.
pub(super) type Judged = (Option<Fault>, Option<Fault>);

/// Asks a machine why operations would find no server now.
pub(super) fn by_machine(topology: &Topology, now: Instant) -> Judged {
    let fault = |criteria: &Criteria| {
        // Gathering evidence costs more than looking.
        match topology.snapshot().select(criteria, |_| 0, 0) {
            Ok(Some(_)) => None,
            _ => topology
                .evidence(now)
                .diagnose(criteria)
                .map(|error| Fault::new(&error.verdict, Some(error.to_string()))),
        }
    };
    (fault(&Criteria::write()), fault(&any_server()))
}

fn any_server() -> Criteria {
    Criteria::read(ReadPreference::new(ReadMode::Nearest))
}

/// Judges by the states of the servers, where nothing else is known.
pub(super) fn by_states(known: &Builder, now: Instant) -> Judged {
    let has = |states: &[State]| known.states().any(|state| states.contains(&state));
    let all = |wanted: State| known.states().all(|state| state == wanted);
    let routed = [State::Standalone, State::Mongos, State::LoadBalancer];
    let writable = has(&[State::Primary]) || has(&routed);
    let readable = writable || has(&[State::Secondary]);
    let verdict = if known.states().next().is_none() || all(State::Unchecked) {
        Verdict::NotCheckedYet
    } else if known.states().all(|it| matches!(it, State::Unchecked | State::Failing)) {
        Verdict::NoServerAvailable
    } else if known
        .states()
        .all(|it| matches!(it, State::Unchecked | State::Failing | State::Ghost))
    {
        Verdict::NotInitiated
    } else {
        let since = known.without_primary().unwrap_or(now);
        Verdict::NoPrimary { since: now - since }
    };
    let write = (!writable).then(|| Fault::new(&verdict, None));
    let read = (!readable).then(|| match verdict {
        Verdict::NoPrimary { .. } => {
            let unfit = Verdict::WrongServerType { direct: None, server_type: None };
            Fault::new(&unfit, None)
        }
        verdict => Fault::new(&verdict, None),
    });
    (write, read)
}
