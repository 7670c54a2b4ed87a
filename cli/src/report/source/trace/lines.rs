//! The lines of a trace, and what each of them says; the format is in `sdam_core::trace`.

use std::collections::BTreeMap;
use std::time::Duration;

use sdam_core::diagnosis::{ChangeStreamVerdict, TransactionVerdict, Verdict};
use sdam_core::failure::Stage;
use sdam_core::time::Instant;
use serde_json::Value;

use crate::duration::precise;
use crate::report::model::{Builder, Check, Event, Mark, WaitEnd};
use crate::report::source::words::{self, FieldChange};
use crate::watch::Tone;

/// The subject of what is about no server in particular.
pub(super) const TOPOLOGY: &str = "topology";

/// Reads line by line, and remembers what later ones need.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) builder: Builder,
    /// The line of this call that says what is known now.
    pub(super) changed: Option<usize>,
    /// The addresses of servers, by their numbers in the trace.
    addresses: BTreeMap<String, String>,
    /// The failure of each server whose last check has failed.
    failures: BTreeMap<String, String>,
    /// The reason why connections to a server cannot be established, until it is known again.
    unestablished: BTreeMap<String, String>,
}

impl Reader {
    /// Takes notice of a line of a call.
    pub(super) fn line(&mut self, at: Instant, line: usize, text: &str) {
        let moment = (at, line);
        if let Some(action) = text.strip_prefix("  > ") {
            self.action(moment, action);
        } else if let Some(input) = text.strip_prefix('+') {
            self.changed = None;
            self.input(moment, input.split_once(' ').map_or("", |(_, input)| input));
        } else if let Some(comment) = text.strip_prefix("# +")
            && let Some((_, said)) = comment.split_once(' ')
        {
            match serde_json::from_str::<Value>(said) {
                Ok(event) => self.pool_event(moment, &event),
                Err(_) => self.attempt(moment, said),
            }
        }
    }

    fn input(&mut self, moment: (Instant, usize), input: &str) {
        let (word, rest) = input.split_once(' ').unwrap_or((input, ""));
        let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "wait" => {
                if let Some(waiter) = waiter(name) {
                    self.builder.waits(moment, waiter);
                }
            }
            "abandon" => {
                if let Some(waiter) = waiter(name) {
                    self.builder.waited(moment.0, waiter, WaitEnd::Abandoned);
                }
            }
            "operation-failed" => {
                let failure: Value = serde_json::from_str(value).unwrap_or_default();
                let address = self.address(name);
                let text = of_operation(&failure, &address);
                match is_of_connection(&failure) {
                    true => self.not_established(moment, &address, &text),
                    false => self.operation_failed(moment, address, text),
                }
            }
            _ => {}
        }
    }

    fn action(&mut self, moment: (Instant, usize), action: &str) {
        let (word, rest) = action.split_once(' ').unwrap_or((action, ""));
        let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "join" => _ = self.addresses.insert(name.to_owned(), value.to_owned()),
            "leave" => {
                let address = self.address(name);
                self.failures.remove(&address);
                self.builder.left(moment.0, &address);
            }
            "publish" => self.published(moment, rest),
            "pool" => self.pool(moment, name, value),
            "wake" => {
                let end = match serde_json::from_str::<Value>(value) {
                    Ok(error) => WaitEnd::Failed(of_selection(&error)),
                    Err(_) => WaitEnd::Found,
                };
                let Some(waiter) = waiter(name) else { return };
                if let WaitEnd::Failed(error) = &end {
                    let text = format!("an operation found no server: {error}");
                    self.builder.add(Event::new(moment, Tone::Bad, TOPOLOGY, text));
                }
                self.builder.waited(moment.0, waiter, end);
            }
            "emit" => {
                if let Ok(event) = serde_json::from_str::<Value>(rest) {
                    self.event(moment, &event);
                }
            }
            _ => {}
        }
    }

    /// Reads what is known now: `TYPE | ADDRESS TYPE rtt AVERAGE/LEAST ns …`.
    fn published(&mut self, moment: (Instant, usize), view: &str) {
        self.changed = Some(moment.1);
        let mut parts = view.split(" | ");
        let topology = parts.next().unwrap_or_default();
        let mut primary = None;
        for part in parts {
            let mut words = part.split(' ');
            let (Some(address), Some(kind)) = (words.next(), words.next()) else { continue };
            self.builder.state(moment, address, words::state(kind));
            if kind == "RSPrimary" {
                primary = Some(address);
            }
            let average = words.find(|word| *word == "rtt").and_then(|_| words.next());
            let average = average.and_then(|it| it.split('/').next()?.parse().ok());
            if let Some(average) = average {
                self.builder.round_trip(moment.0, address, Duration::from_nanos(average));
            }
        }
        if topology.starts_with("ReplicaSet") {
            self.builder.primary(moment, primary);
        }
    }

    fn event(&mut self, moment: (Instant, usize), event: &Value) {
        let text = |name: &str| event[name].as_str().unwrap_or_default();
        let address = text("address");
        if let Some(id) = event["serverId"].as_u64() {
            // A trace that begins in the middle says it nowhere else.
            self.addresses.entry(format!("s{id}")).or_insert_with(|| address.to_owned());
        }
        match text("event") {
            "serverHeartbeatSucceeded" => self.checked(moment, event, None),
            "serverHeartbeatFailed" if event["failure"]["cause"] == "canceled" => {}
            "serverHeartbeatFailed" => {
                let detail = event["failure"]["detail"].as_str().unwrap_or("no reason is given");
                self.checked(moment, event, Some(detail));
            }
            "serverDescriptionChanged" => {
                let changes = FieldChange::all(event);
                if FieldChange::of(&changes, "type").is_some_and(|kind| kind != "Unknown") {
                    self.unestablished.remove(address);
                }
                if let Some(error) = FieldChange::of(&changes, "error").filter(|it| !it.is_empty())
                {
                    self.builder.failing(moment, address, &words::error(error, address));
                }
                let failed = self.failures.get(address).map(String::as_str);
                if let Some((tone, text)) = words::server(&changes, address, failed) {
                    self.builder.add(Event::new(moment, tone, address, text));
                }
            }
            "topologyDescriptionChanged" => {
                if let Some((tone, text)) = words::topology(&FieldChange::all(event)) {
                    self.builder.add(Event::new(moment, tone, TOPOLOGY, text));
                }
            }
            "serverClosed" => {
                let text = "left, and is monitored no more".to_owned();
                self.builder.add(Event::new(moment, Tone::Neutral, address, text));
            }
            "srvHostRefused" | "srvRescanFailed" => {
                let text = text("error").to_owned();
                self.builder.add(Event::new(moment, Tone::Bad, TOPOLOGY, text));
            }
            _ => {}
        }
    }

    /// Takes notice of the end of a check.
    fn checked(&mut self, moment: (Instant, usize), event: &Value, failure: Option<&str>) {
        let (at, line) = moment;
        let address = event["address"].as_str().unwrap_or_default();
        let took = event["durationMS"].as_f64();
        let awaited = event["awaited"] == true;
        let shown = failure.map(|failure| words::error(failure, address).into_owned());
        match failure {
            None => _ = self.failures.remove(address),
            Some(failure) => {
                self.builder.failing(moment, address, &words::error(failure, address));
                let before = self.failures.insert(address.to_owned(), failure.to_owned());
                // That it goes on is no news.
                if before.as_deref() != Some(failure) {
                    let took = precise(millis(took.unwrap_or_default()));
                    let failure = words::error(failure, address);
                    let text = format!("check failed after {took}: {failure}");
                    self.builder.add(Event::new(moment, Tone::Bad, address, text));
                }
            }
        }
        self.builder.check(address, Check { at, line, took, awaited, failure: shown });
    }

    /// Reads the command to a pool: `ready`, or `clear …` and the cause.
    fn pool(&mut self, (at, line): (Instant, usize), name: &str, command: &str) {
        let Some(clear) = command.strip_prefix("clear ") else { return };
        let cause = clear.split_once(" {").map_or("", |(_, cause)| cause);
        let cause: Value = serde_json::from_str(&format!("{{{cause}")).unwrap_or_default();
        let subject = self.address(name);
        let detail = cause["detail"].as_str().unwrap_or("no reason is given");
        let detail = words::error(detail, &subject);
        let interrupting = match clear.contains(", interrupting") {
            true => ", and its connections in use interrupted",
            false => "",
        };
        let text = format!("pool cleared{interrupting}: {detail}");
        self.builder.cleared(Mark { at, line, subject, text });
    }

    /// Reads a comment about a pool; an action has said that it was cleared.
    fn pool_event(&mut self, moment: (Instant, usize), event: &Value) {
        if event["event"] == "connectionCheckOutFailed" {
            let address = event["address"].as_str().unwrap_or_default().to_owned();
            let reason = event["reason"].as_str().unwrap_or("no reason is given");
            // An input of the machine has said what it is.
            let known = self.unestablished.get(&address).filter(|_| reason == "connectionError");
            let reason = known.map_or(reason, String::as_str);
            let text = format!("no connection: {reason}");
            self.operation_failed(moment, address, text);
        }
    }

    /// Reads a comment on an attempt that has failed, `NAME at SERVER has failed: …`: one of a
    /// transaction says nothing of the server, so that no input of the machine has it.
    fn attempt(&mut self, moment: (Instant, usize), said: &str) {
        let Some((attempt, failure)) = said.split_once(" has failed: ") else { return };
        let code = failure.strip_prefix("operate, code ").and_then(|it| it.split(';').next());
        let Some(code) = code.and_then(|code| code.parse().ok()) else { return };
        let (command, server) = attempt.split_once(" at ").unwrap_or((attempt, TOPOLOGY));
        let address = server.parse().ok();
        let of_stream = ChangeStreamVerdict::of_code(code, command, address.as_ref());
        let of_transaction = TransactionVerdict::of_code(code).map(|verdict| match verdict {
            // What it stood for, no trace says.
            TransactionVerdict::TransactionAborted { .. } if self.builder.has_changed_primary() => {
                TransactionVerdict::TransactionLost { server: address, began_at: None }
            }
            TransactionVerdict::TransactionAborted { .. } => {
                TransactionVerdict::TransactionAborted { server: address }
            }
            verdict => verdict,
        });
        let verdict = of_transaction.map(Verdict::from).or_else(|| of_stream.map(Verdict::from));
        let Some(verdict) = verdict else { return };
        let cause = verdict.sentence();
        let text = format!("{command}, {}: {cause}", words::code(code.into()));
        self.operation_failed(moment, server.to_owned(), text);
    }

    /// A connection for operations could not be established, and those that wait for it fail.
    fn not_established(&mut self, moment: (Instant, usize), address: &str, reason: &str) {
        let before = self.unestablished.insert(address.to_owned(), reason.to_owned());
        // That it goes on is no news.
        if before.as_deref() != Some(reason) {
            let text = format!("no connection can be established: {reason}");
            self.builder.add(Event::new(moment, Tone::Bad, address, text));
        }
    }

    fn operation_failed(&mut self, moment: (Instant, usize), subject: String, text: String) {
        let (at, line) = moment;
        let failed = format!("an operation failed: {text}");
        self.builder.add(Event::new(moment, Tone::Bad, &subject, failed));
        self.builder.error(Mark { at, line, subject, text });
    }

    /// Returns the address of a server that a trace calls by its number.
    fn address(&self, name: &str) -> String {
        self.addresses.get(name).cloned().unwrap_or_else(|| name.to_owned())
    }
}

fn waiter(name: &str) -> Option<u64> {
    name.strip_prefix('w')?.parse().ok()
}

fn millis(millis: f64) -> Duration {
    Duration::try_from_secs_f64(millis / 1e3).unwrap_or_default()
}

/// Says why an operation has found no server.
fn of_selection(error: &Value) -> String {
    error["verdict"].as_str().unwrap_or("no reason is given").to_owned()
}

/// Returns whether an operation has got no connection, and was not begun.
fn is_of_connection(failure: &Value) -> bool {
    let stage = failure["stream"]["stage"].as_str().or(failure["reply"]["stage"].as_str());
    stage.is_some_and(|stage| stage != Stage::Operate.name())
}

/// Says what an operation has met; what a server has said in words is in no trace.
fn of_operation(failure: &Value, address: &str) -> String {
    if let Some(detail) = failure["stream"]["detail"].as_str() {
        return words::error(detail, address).into_owned();
    }
    let reply = &failure["reply"];
    match words::command_error(&reply["codeName"], &reply["code"]) {
        Some(error) => error,
        None if reply.is_object() => "an error of the server".to_owned(),
        None => "the reply makes no sense".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use sdam_core::time::Instant;

    use super::Reader;
    use crate::report::model::Origin;

    /// Reads lines, and returns what is said of them.
    fn events(lines: &[&str]) -> Vec<String> {
        let mut reader = Reader::default();
        for (line, text) in (1..).zip(lines) {
            reader.line(Instant::from_millis(line), line as usize, text);
        }
        let report = reader.builder.finish(Origin::default(), Instant::from_millis(9), |_| "");
        report.events.into_iter().map(|event| event.text).collect()
    }

    #[test]
    fn the_errors_of_transactions_are_explained() {
        let attempt = |code: i32| {
            let line = format!(
                "# +1.500000000 update at a:1 has failed: operate, code {code}; that is the end"
            );
            events(&[&line]).concat()
        };
        for (code, words) in [
            (112, "another operation has written to a document"),
            (225, "has begun a newer transaction"),
            (246, "a collection was changed"),
            (251, "a:1 has aborted the transaction"),
            (290, "the transaction was open for too long"),
        ] {
            let text = attempt(code);
            let begins = format!("an operation failed: update, the server's error {code}: ");
            assert!(text.starts_with(&begins) && text.contains(words), "{text}");
        }
        assert_eq!(attempt(11000), "", "it says enough itself");
        assert_eq!(events(&["# +1.5 update has failed: no server; that is the end"]), [""; 0]);
    }

    #[test]
    fn the_errors_of_change_streams_are_explained() {
        for (command, code, words) in [
            ("aggregate", 286, "a:1 no longer has the changes that come next"),
            ("aggregate", 260, "a:1 does not take the resume token"),
            ("aggregate", 280, "a:1 does not find the change that was read last"),
            ("getMore", 280, "keep _id in the pipeline"),
            ("aggregate", 40573, "a:1 is a standalone"),
        ] {
            let line = format!("# +1.5 {command} at a:1 has failed: operate, code {code}; that is");
            let text = events(&[&line]).concat();
            let begins = format!("an operation failed: {command}, the server's error {code}: ");
            assert!(text.starts_with(&begins) && text.contains(words), "{text}");
        }
        assert_eq!(
            events(&["# +1.5 aggregate at a:1 has failed: operate, code 13; that is"]),
            [""; 0]
        );
    }

    #[test]
    fn a_transaction_that_is_not_known_after_a_failover_was_lost() {
        let lines = [
            "  > publish ReplicaSetWithPrimary | a:1 RSPrimary | b:1 RSSecondary",
            "  > publish ReplicaSetWithPrimary | a:1 RSSecondary | b:1 RSPrimary",
            "# +1.5 insert at b:1 has failed: operate, code 251; that is the end",
        ];
        let said = events(&lines).concat();
        assert!(said.contains("b:1 does not know the transaction"), "{said}");
        assert!(said.contains("run the transaction again as a whole"), "{said}");
    }
}
