//! Questions about the transactions of a server, and about its oplog.

use std::time::Duration;

use sdam_core::bson::{DateTime, RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use tokio::time::sleep;

use super::commands::{Asking, NoAnswer, name};
use crate::doctor::evidence::{Counted, IdleTransaction, Role, Transactions};
use crate::history::{Oplog, number};

/// The time between two looks at what is counted.
const PAUSE: Duration = Duration::from_secs(1);

/// The time that is left for all else when a second look is taken.
const REST: Duration = Duration::from_secs(4);

/// The number of open transactions that are looked at.
const MAX_OPEN: i32 = 1000;

/// The words by which servers of all versions log that a transaction was aborted for its lifetime.
const EXPIRED: &str = "running for longer than 'transactionLifetimeLimitSeconds'";

/// The time for which what a log says counts.
const RECENT: Duration = Duration::from_secs(3600);

/// The commands that write.
const WRITES: [&str; 5] = ["insert", "update", "delete", "findAndModify", "bulkWrite"];

impl Asking<'_> {
    /// Asks about the transactions of a server that has had any, beside its `serverStatus`.
    pub(super) async fn about_transactions(
        &mut self,
        role: Role,
        status: &RawDocument,
    ) -> Result<Transactions, NoAnswer> {
        let mut transactions = Transactions { counted: counted(status), ..Transactions::default() };
        let Some(first) = transactions.counted.filter(|it| it.open > 0 || it.ended() > 0) else {
            return Ok(transactions);
        };
        if role != Role::Mongos {
            let limit = rawdoc! { "getParameter": 1, "transactionLifetimeLimitSeconds": 1 };
            transactions.limit =
                self.if_permitted("getParameter", &limit).await?.as_deref().and_then(limit_in);
        }
        if first.open > 0 {
            let reply = self.if_permitted("$currentOp", &idle_transactions()).await?;
            transactions.idle = reply.as_deref().map(idle_in).unwrap_or_default();
        }
        if first.aborted > 0 {
            let reply = self.if_permitted("getLog", &rawdoc! { "getLog": "global" }).await?;
            transactions.expired = reply.as_deref().map_or(0, |it| expired_in(it, status));
        }
        if (first.aborted > 0 || first.conflicts > 0) && self.means.left() > PAUSE + REST {
            sleep(PAUSE).await;
            let again = rawdoc! { "serverStatus": 1, "repl": 0, "wiredTiger": 0, "locks": 0 };
            let reply = self.if_permitted("serverStatus", &again).await?;
            let second = reply.as_deref().and_then(counted);
            transactions.lately = second.map(|second| second.since(first));
        }
        Ok(transactions)
    }

    /// Asks how far back the oplog of a member reaches.
    pub(super) async fn about_oplog(
        &mut self,
        status: &RawDocument,
    ) -> Result<Option<Oplog>, NoAnswer> {
        if status.get("oplog").ok().flatten().is_none() {
            return Ok(None);
        }
        let stats = self.send("local", &rawdoc! { "collStats": "oplog.rs" }).await?;
        let stats = self.unless_forbidden("collStats", stats);
        Ok(stats.as_deref().and_then(|stats| Oplog::read(status, stats)))
    }
}

/// Reads what a server has counted since it was started.
fn counted(status: &RawDocument) -> Option<Counted> {
    let transactions = status.get_document("transactions").ok()?;
    let of = |field| number(transactions, field);
    let metrics = status.get_document("metrics").ok();
    let in_metrics = |section| metrics.and_then(|it| it.get_document(section).ok());
    let commands = in_metrics("commands");
    let command = |name: &str, field| {
        let command = commands.and_then(|it| it.get_document(name).ok());
        command.and_then(|it| number(it, field)).unwrap_or_default()
    };
    let conflicts = in_metrics("operation").and_then(|it| number(it, "writeConflicts"));
    let failed = WRITES.iter().map(|name| command(name, "failed"));
    Some(Counted {
        time: Duration::from_millis(number(status, "uptimeMillis").unwrap_or_default()),
        open: of("currentOpen")?,
        committed: of("totalCommitted")?,
        aborted: of("totalAborted")?,
        conflicts: conflicts.unwrap_or_default(),
        failed_writes: failed.fold(0, u64::saturating_add),
        commits: command("commitTransaction", "total"),
        failed_commits: command("commitTransaction", "failed"),
    })
}

fn limit_in(reply: &RawDocument) -> Option<Duration> {
    number(reply, "transactionLifetimeLimitSeconds").map(Duration::from_secs)
}

/// Asks for transactions that are open, and in which no command runs.
fn idle_transactions() -> RawDocumentBuf {
    let wanted = rawdoc! { "active": false, "transaction": { "$exists": true } };
    let shown = rawdoc! { "client": 1, "clientMetadata": 1, "appName": 1, "transaction": 1 };
    let mut stages = RawArrayBuf::new();
    stages.push(rawdoc! { "$currentOp": { "allUsers": true, "idleSessions": true } });
    stages.push(rawdoc! { "$match": wanted });
    stages.push(rawdoc! { "$limit": MAX_OPEN });
    stages.push(rawdoc! { "$project": shown });
    rawdoc! { "aggregate": 1, "pipeline": stages, "cursor": { "batchSize": MAX_OPEN } }
}

fn idle_in(reply: &RawDocument) -> Vec<IdleTransaction> {
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let items = batch.ok().into_iter().flatten().filter_map(|item| item.ok()?.as_document());
    let open = items.filter_map(|item| {
        let transaction = item.get_document("transaction").ok()?;
        let micros = |field| number(transaction, field).map(Duration::from_micros);
        Some(IdleTransaction {
            owner: owner(item),
            open: micros("timeOpenMicros")?,
            unused: micros("timeInactiveMicros")?,
        })
    });
    open.collect()
}

/// Says of whom a transaction is: where the client is, and what it says of itself.
fn owner(item: &RawDocument) -> String {
    let text = |field| item.get_str(field).ok();
    let client = text("client").or_else(|| text("client_s")).unwrap_or("an unknown client");
    let said = item.get_document("clientMetadata").ok().map(name).filter(|it| !it.is_empty());
    match said.as_deref().or_else(|| text("appName").filter(|it| !it.is_empty())) {
        Some(said) => format!("{client}, {said}"),
        None => client.to_owned(),
    }
}

/// Counts the lines of a log which say that a transaction was aborted for its lifetime, unless that
/// was long ago; of lines that are no JSON, the time is not read.
fn expired_in(reply: &RawDocument, status: &RawDocument) -> u64 {
    let now = status.get_datetime("localTime").ok();
    let is_recent = |line: &str| {
        let line: Option<serde_json::Value> = serde_json::from_str(line).ok();
        let date = line.as_ref().and_then(|it| it["t"]["$date"].as_str());
        let date = date.and_then(|it| DateTime::parse_rfc3339_str(it).ok());
        match (now, date) {
            (Some(now), Some(date)) => {
                let ago = now.timestamp_millis().saturating_sub(date.timestamp_millis());
                u128::try_from(ago).is_ok_and(|ago| ago <= RECENT.as_millis())
            }
            _ => true,
        }
    };
    let lines = reply.get_array("log").ok().into_iter().flatten();
    let lines = lines.filter_map(|line| line.ok()?.as_str());
    lines.filter(|line| line.contains(EXPIRED) && is_recent(line)).count() as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sdam_core::bson::{DateTime, rawdoc};

    use super::{counted, expired_in, idle_in};

    /// As 6.0.27 writes it.
    #[test]
    fn what_a_server_counts_is_read() {
        let status = rawdoc! {
            "uptimeMillis": 21_521_i64,
            "transactions": {
                "currentOpen": 1_i64, "totalAborted": 2_i64, "totalCommitted": 3_i64,
                "totalStarted": 6_i64,
            },
            "metrics": {
                "operation": { "writeConflicts": 148_i64 },
                "commands": {
                    "commitTransaction": { "failed": 2_i64, "total": 5_i64 },
                    "update": { "failed": 1_i64, "total": 2_i64 },
                    "insert": { "failed": 3_i64, "total": 4_i64 },
                },
            },
        };
        let counts = counted(&status).unwrap();
        assert_eq!((counts.open, counts.ended(), counts.conflicts), (1, 5, 148));
        assert_eq!((counts.failed_writes, counts.commits, counts.failed_commits), (4, 5, 2));
        assert_eq!(counts.time, Duration::from_millis(21_521));
        assert_eq!(counts.since(counts).ended(), 0);
        assert_eq!(counted(&rawdoc! { "ok": 1 }), None);
    }

    #[test]
    fn open_transactions_are_their_clients() {
        let transaction = rawdoc! { "timeOpenMicros": 3_000_000_i64, "timeInactiveMicros": 1_000 };
        let metadata = rawdoc! { "application": { "name": "shop" }, "driver": { "name": "d" } };
        let items = [
            rawdoc! {
                "client": "10.0.0.1:5", "clientMetadata": metadata,
                "transaction": transaction.clone(),
            },
            rawdoc! { "client": "10.0.0.2:5", "appName": "a", "transaction": transaction.clone() },
            rawdoc! { "transaction": transaction },
            rawdoc! { "transaction": { "timeOpenMicros": "long" } },
        ];
        let reply =
            rawdoc! { "cursor": { "firstBatch": sdam_core::bson::RawArrayBuf::from_iter(items) } };
        let idle = idle_in(&reply);
        let owners: Vec<&str> = idle.iter().map(|it| it.owner.as_str()).collect();
        assert_eq!(owners, ["10.0.0.1:5, shop, d ", "10.0.0.2:5, a", "an unknown client"]);
        assert_eq!((idle[0].open, idle[0].unused.as_millis()), (Duration::from_secs(3), 1));
    }

    #[test]
    fn what_a_log_says_of_long_ago_does_not_count() {
        let line = |date: &str| {
            let words = "Aborting transaction because it has been running for longer than \
                         'transactionLifetimeLimitSeconds'";
            format!(r#"{{"t":{{"$date":"{date}"}},"id":20707,"msg":"{words}"}}"#)
        };
        let now = DateTime::parse_rfc3339_str("2026-11-28T23:44:07.363+00:00").unwrap();
        let status = rawdoc! { "localTime": now };
        let log = [
            line("2026-11-28T22:43:00.000+00:00"),
            line("2026-11-28T23:43:00.000+00:00"),
            "2020-01-01 I Aborting transaction with txnNumber 1 because it has been running for \
             longer than 'transactionLifetimeLimitSeconds'"
                .to_owned(),
            "{}".to_owned(),
        ];
        let log = sdam_core::bson::RawArrayBuf::from_iter(log);
        assert_eq!(expired_in(&rawdoc! { "log": log }, &status), 2);
        assert_eq!(expired_in(&rawdoc! {}, &status), 0);
    }
}
