//! Transactions: conflicts, those that are left open, those that expire or are lost, and the oplog
//! that members and change streams go on with. What the user may not ask, or a server does not
//! answer, is named.

use std::time::Duration;

use sdam_core::diagnosis::{OplogBound, TRANSACTION_LIFETIME, TransactionVerdict, Verdict};

use super::login::unanswered;
use crate::doctor::evidence::{Counted, Evidence, Login, ServerSeen, Transactions};
use crate::doctor::finding::{Finding, listed};
use crate::findings::Severity;
use crate::history::reach;

/// The number of transactions that must have ended before a part of them means anything, just now
/// and since the server was started.
const FEW: u64 = 5;
const MANY: u64 = 100;

/// The number of conflicts in a second outside of transactions from which they are a storm: one
/// write that waits for a transaction tries again a hundred times.
const CONFLICTS_PER_SECOND: f64 = 200.0;

/// The part of its lifetime for which a transaction may do nothing: ten seconds of a minute.
const PART: u32 = 6;

/// The time after an election for which commits that have failed may have failed because of it.
const AFTERMATH: Duration = Duration::from_secs(3600);

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

pub(super) fn judge(evidence: &Evidence, findings: &mut Vec<Finding>) {
    let asked = || evidence.servers.iter().filter_map(|it| Some((it, it.login.as_ref()?)));
    for (server, login) in asked() {
        let transactions = &login.transactions;
        let found = [
            conflicts(server, transactions),
            idle(server, transactions),
            expired(server, transactions),
            lost(server, login),
        ];
        findings.extend(found.into_iter().flatten().map(Finding::warning));
    }
    let oplogs = asked().filter_map(|(server, login)| Some((server, login.oplog?)));
    // That of one member is that of the others, more or less.
    let shortest = oplogs.filter(|(_, oplog)| oplog.is_full()).min_by_key(|(_, it)| it.window);
    if let Some((server, oplog)) = shortest {
        let limits = asked().filter_map(|(_, login)| login.transactions.limit);
        let lifetime = limits.max().unwrap_or(TRANSACTION_LIFETIME);
        let bounds =
            [(lifetime, OplogBound::Transaction), (HOUR, OplogBound::Hour), (DAY, OplogBound::Day)];
        let bound = bounds.into_iter().find(|(least, _)| oplog.window < *least);
        findings.extend(bound.map(|(_, bound)| {
            let (server, mebibytes) = (server.address.clone(), oplog.max_size >> 20);
            Finding::warning(Verdict::OplogSmall { server, window: oplog.window, bound, mebibytes })
        }));
    }
    findings.extend(evidence.token.and_then(|token| reaches(token, evidence)));
    // A user who is refused altogether is another matter.
    if findings.iter().all(|it| it.severity != Severity::Error) {
        let refusing = asked().find(|(_, login)| !login.not_permitted.is_empty());
        findings.extend(refusing.map(|(server, login)| {
            let (server, commands) = (server.address.clone(), listed(&login.not_permitted));
            Finding::note(Verdict::NotPermitted { server, commands })
        }));
        findings.extend(asked().find_map(|(server, _)| unanswered(server)));
    }
}

/// Finds whether the oplogs still reach back to a change, and for how long.
fn reaches(token: u64, evidence: &Evidence) -> Option<Finding> {
    let asked = |it: &'_ ServerSeen| it.login.as_ref()?.oplog;
    let oplogs = evidence.servers.iter().filter_map(|it| Some((&it.address, asked(it)?)));
    let (severity, verdict) = reach(token, oplogs)?;
    Some(Finding { severity, ..Finding::error(verdict) })
}

/// Finds that many transactions are aborted while writes fail, or that many writes outside of
/// transactions are tried again: just now, or, if nothing runs just now, since the beginning.
fn conflicts(server: &ServerSeen, transactions: &Transactions) -> Option<Verdict> {
    let (counts, is_now) = match (transactions.lately, transactions.counted) {
        (Some(lately), _) if lately.ended() > 0 || lately.conflicts > 0 => (lately, true),
        (_, counted) => (counted?, false),
    };
    let enough = if is_now { FEW } else { MANY };
    let Counted { aborted, conflicts, time, .. } = counts;
    let ended = counts.ended();
    // An application that aborts of its own accord has no writes that fail.
    let is_of_transactions = ended >= enough
        && aborted.saturating_mul(4) >= ended
        && counts.failed_writes.saturating_mul(2) >= aborted;
    let is_of_writes = is_now && conflicts as f64 > CONFLICTS_PER_SECOND * time.as_secs_f64();
    (is_of_transactions || is_of_writes).then(|| {
        let server = server.address.clone();
        TransactionVerdict::WriteConflicts { server, aborted, ended, conflicts, time, is_now }
            .into()
    })
}

/// Finds transactions in which nothing happens, and which hold up others.
fn idle(server: &ServerSeen, transactions: &Transactions) -> Option<Verdict> {
    let least = transactions.limit.unwrap_or(TRANSACTION_LIFETIME) / PART;
    let mut idle: Vec<_> = transactions.idle.iter().filter(|it| it.unused >= least).collect();
    idle.sort_by_key(|it| std::cmp::Reverse(it.unused));
    let longest = idle.first()?;
    let verdict = TransactionVerdict::TransactionsIdle {
        server: server.address.clone(),
        idle: idle.len() as u64,
        unused: longest.unused,
        open: longest.open,
        owner: Some(longest.owner.clone()),
        limit: transactions.limit,
    };
    Some(verdict.into())
}

/// Finds that the server has aborted transactions for their lifetime.
fn expired(server: &ServerSeen, transactions: &Transactions) -> Option<Verdict> {
    let Transactions { expired, limit, .. } = *transactions;
    (expired > 0).then(|| {
        let server = server.address.clone();
        TransactionVerdict::TransactionsExpire { server, expired, limit }.into()
    })
}

/// Finds that commits have failed at a primary that was elected not long ago: 251,
/// NoSuchTransaction, of what began before that.
fn lost(server: &ServerSeen, login: &Login) -> Option<Verdict> {
    let since = login.elected.filter(|since| *since < AFTERMATH)?;
    let Transactions { lately, counted, .. } = login.transactions;
    // What was counted for longer may be of another term.
    let counts = [lately, counted.filter(|it| it.time <= AFTERMATH)];
    let counts = counts.into_iter().flatten().find(|it| it.failed_commits > 0)?;
    let Counted { failed_commits: failed, commits, .. } = counts;
    Some({
        let server = server.address.clone();
        TransactionVerdict::TransactionsLost { server, failed, commits, since }.into()
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::doctor::evidence::{Counted, Evidence, IdleTransaction, Login, Transactions};
    use crate::doctor::rules::judge;
    use crate::doctor::tests::{set, verdicts};
    use crate::findings::Severity;
    use crate::history::Oplog;

    fn with(login: Login) -> Evidence {
        let mut set = set();
        set.servers[0].login = Some(login);
        set
    }

    fn of(transactions: Transactions) -> Evidence {
        with(Login { transactions, ..Login::default() })
    }

    /// The counts of a second: commits, aborts, writes that have failed.
    fn second((committed, aborted, failed_writes): (u64, u64, u64)) -> Counted {
        let time = Duration::from_secs(1);
        Counted { time, committed, aborted, failed_writes, ..Counted::default() }
    }

    #[test]
    fn conflicts_are_aborts_beside_writes_that_fail() {
        let lately = |counts| {
            let (counted, lately) = (Some(second((1000, 1000, 1000))), Some(second(counts)));
            verdicts(&of(Transactions { counted, lately, ..Transactions::default() }))
        };
        assert_eq!(lately((15, 5, 5)), ["writeConflicts"]);
        assert_eq!(lately((16, 5, 5)), [""; 0], "that is less than a quarter");
        assert_eq!(lately((0, 4, 4)), [""; 0], "these are few");
        assert_eq!(lately((0, 10, 4)), [""; 0], "the application aborts them itself");
        assert_eq!(lately((0, 0, 0)), ["writeConflicts"], "nothing runs now: since it was started");
    }

    #[test]
    fn what_was_counted_since_the_beginning_takes_more() {
        let since = |counts| {
            let counted = Some(second(counts));
            of(Transactions { counted, ..Transactions::default() })
        };
        assert_eq!(verdicts(&since((74, 25, 25))), [""; 0]);
        let storm = since((75, 25, 25));
        assert_eq!(verdicts(&storm), ["writeConflicts"]);
        let expected = "at a:27017, 25 of 100 transactions were aborted since it was started 1.0 s \
                        ago, and 0 writes outside of transactions tried again: they write to the \
                        same documents";
        assert_eq!(judge(&storm)[0].cause, expected);
    }

    #[test]
    fn writes_outside_of_transactions_conflict_too() {
        let tried_again = |conflicts| {
            let lately = Some(Counted { conflicts, ..second((0, 0, 0)) });
            verdicts(&of(Transactions { lately, ..Transactions::default() }))
        };
        assert_eq!(tried_again(200), [""; 0], "one write waits for a transaction");
        assert_eq!(tried_again(201), ["writeConflicts"]);
    }

    fn idle(limit: Option<u64>, unused: &[u64]) -> Evidence {
        let one = |unused: &u64| IdleTransaction {
            owner: format!("10.0.0.{unused}:5, shop"),
            open: Duration::from_secs(unused + 1),
            unused: Duration::from_secs(*unused),
        };
        let idle = unused.iter().map(one).collect();
        of(Transactions { idle, limit: limit.map(Duration::from_secs), ..Transactions::default() })
    }

    #[test]
    fn a_transaction_is_left_alone_after_a_sixth_of_its_lifetime() {
        assert_eq!(verdicts(&idle(None, &[9])), [""; 0]);
        assert_eq!(verdicts(&idle(None, &[10])), ["transactionsIdle"]);
        assert_eq!(verdicts(&idle(Some(30), &[4])), [""; 0]);
        let left = idle(Some(30), &[1, 6, 5]);
        let expected = "a:27017 has 2 transactions open in which nothing happens, one for 6.0 s \
                        (of \
                        10.0.0.6:5, shop): what they have written is locked until they end, \
                        at most \
                        30.0 s after their beginning";
        assert_eq!(judge(&left)[0].cause, expected);
    }

    #[test]
    fn transactions_that_were_open_for_too_long_are_counted() {
        let limit = Some(Duration::from_secs(60));
        let evidence = of(Transactions { expired: 1, limit, ..Transactions::default() });
        let expected = "a:27017 has aborted 1 transaction in the last hour for being open for \
                        longer \
                        than transactionLifetimeLimitSeconds (60.0 s)";
        assert_eq!(judge(&evidence)[0].cause, expected);
    }

    #[test]
    fn commits_that_fail_after_an_election_were_of_the_primary_before() {
        let elected = |seconds, failed_commits| {
            let counted = Some(Counted { failed_commits, commits: 9, ..Counted::default() });
            let transactions = Transactions { counted, ..Transactions::default() };
            let elected = Some(Duration::from_secs(seconds));
            with(Login { elected, transactions, ..Login::default() })
        };
        assert_eq!(verdicts(&elected(3600, 1)), [""; 0], "that was long ago");
        assert_eq!(verdicts(&elected(60, 0)), [""; 0]);
        let lost = elected(60, 2);
        assert_eq!(verdicts(&lost), ["transactionsLost"]);
        let expected = "2 of 9 commits have failed at a:27017, which was elected primary 60.0 s \
                        ago: \
                        it knows no transaction that began before that";
        assert_eq!(judge(&lost)[0].cause, expected);
    }

    fn oplog(seconds: u64, size: u64, limit: Option<u64>) -> Evidence {
        let window = Duration::from_secs(seconds);
        let oplog = Oplog { window, last: 1_000_000, size, max_size: 990 << 20 };
        let limit = limit.map(Duration::from_secs);
        let transactions = Transactions { limit, ..Transactions::default() };
        with(Login { oplog: Some(oplog), transactions, ..Login::default() })
    }

    #[test]
    fn an_oplog_is_small_by_the_time_that_it_reaches_back_once_it_is_full() {
        let full = 990 << 20;
        let said = |seconds, limit| {
            let findings = judge(&oplog(seconds, full, limit));
            findings.into_iter().next().map(|it| it.cause).unwrap_or_default()
        };
        assert!(said(59, None).contains("less than a transaction may last"));
        assert!(said(60, None).contains("less than an hour"));
        assert!(said(299, Some(300)).contains("less than a transaction may last"));
        assert!(said(3600, None).contains("less than a day"));
        assert_eq!(said(86_400, None), "");
        assert_eq!(verdicts(&oplog(1, full / 2, None)), [""; 0], "it grows");
        let line = &judge(&oplog(1, full, None))[0].lines[0];
        assert_eq!(line, "db.adminCommand({ replSetResizeOplog: 1, size: Double(1980) })");
    }

    #[test]
    fn a_token_is_lost_when_the_oplog_does_not_reach_back_to_it() {
        let full = 990 << 20;
        let said = |token, size| {
            let mut set = oplog(100_000, size, None);
            set.token = Some(token);
            let findings = judge(&set);
            let finding = findings.iter().find(|it| it.verdict.name() == "historyEnds").unwrap();
            (finding.severity, finding.cause.clone())
        };
        let reach = "the oplog of a:27017 reaches back for 100000.0 s";
        for (token, size, severity, rest) in [
            (899_000, full, Severity::Error, ", which is not as far as the token"),
            (899_000, full / 2, Severity::Error, ", which is not as far as the token"),
            (903_600, full, Severity::Warning, ": the token is lost in 3600.0 s at today's rate"),
            (999_000, full, Severity::Note, ": the token is lost in 99000.0 s at today's rate"),
            (
                903_600,
                full / 2,
                Severity::Note,
                " and is not full: the token is not about to be lost",
            ),
        ] {
            assert_eq!(said(token, size), (severity, format!("{reach}{rest}")));
        }
    }

    /// A member that was made an hour ago loses nothing yet, and one that is behind reaches back to
    /// changes which others are about to lose.
    #[test]
    fn of_several_oplogs_the_first_to_lose_a_token_is_named() {
        let full = 990 << 20;
        let oldest = |token, (window, size), last| {
            let mut set = oplog(7200, full, None);
            let mut other = oplog(window, size, None);
            let login = other.servers[0].login.take();
            set.servers[1].login = login.map(|login| {
                let oplog = login.oplog.map(|oplog| Oplog { last, ..oplog });
                Login { oplog, ..login }
            });
            set.token = Some(token);
            let findings = judge(&set);
            let finding = findings.iter().find(|it| it.verdict.name() == "historyEnds").unwrap();
            finding.cause.clone()
        };
        let text = oldest(998_200, (3600, full / 2), 1_000_000);
        assert!(text.contains("a:27017") && text.contains("lost in 5400.0 s"), "{text}");
        let text = oldest(992_700, (7000, full), 993_000);
        assert!(text.contains("a:27017") && text.contains("not as far"), "{text}");
    }

    #[test]
    fn of_several_oplogs_the_shortest_is_named() {
        let mut set = oplog(7200, 990 << 20, None);
        let mut other = oplog(60, 990 << 20, None);
        set.servers[1].login = other.servers[0].login.take();
        let findings = judge(&set);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].cause.starts_with("the oplog of b:27017 is full"), "{findings:?}");
    }
}
