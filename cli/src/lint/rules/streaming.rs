//! Rules for hello that waits, and for streams of replies to it.

use std::time::Duration;

use super::versions::version_of;
use super::{MONITORING, OP_MSG};
use crate::lint::evidence::{
    Answer, End, Evidence, Exchange, Judged, Objection, Topic, broken, is_ok, not_tried,
};
use crate::lint::rule::{ERROR, NOTE, Rule, WARNING};

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        name: "await-waits",
        text: "an awaitable hello is not answered before maxAwaitTimeMS while topologyVersion \
               stays as it is",
        source: (MONITORING, "Awaitable hello or legacy hello Protocol"),
        breaks: "monitors ask again at once, and keep the server, the network and themselves busy",
        judge: await_waits,
        ..ERROR
    },
    Rule {
        name: "await-ends",
        text: "an awaitable hello is answered after maxAwaitTimeMS, within connectTimeoutMS",
        source: (MONITORING, "Socket timeout"),
        breaks: "monitors give up, close the connection and take the server for dead",
        judge: await_ends,
        ..ERROR
    },
    Rule {
        name: "await-other-process",
        text: "an awaitable hello with the processId of another process is answered at once",
        source: (MONITORING, "Awaitable hello or legacy hello Protocol"),
        breaks: "after a restart of the server, drivers learn of it after 10 s only",
        judge: |evidence| at_once(evidence, Topic::AwaitOther),
        ..ERROR
    },
    Rule {
        name: "await-older-counter",
        text: "an awaitable hello with a counter lower than the server's is answered at once",
        source: (MONITORING, "Awaitable hello or legacy hello Protocol"),
        breaks: "what changes between two hellos is known 10 s later only",
        judge: |evidence| at_once(evidence, Topic::AwaitOlder),
        ..ERROR
    },
    Rule {
        name: "await-arguments",
        text: "hello with topologyVersion but without maxAwaitTimeMS is an error, and the other \
               way round",
        source: (MONITORING, "Awaitable hello or legacy hello Protocol"),
        breaks: "a mistake in a driver goes unnoticed until it meets another server",
        judge: await_arguments,
        ..WARNING
    },
    Rule {
        name: "await-blocks",
        text: "while a hello waits, other connections are answered",
        source: (MONITORING, "Measuring RTT"),
        breaks: "the round trip seems to take 10 s, and operations wait behind monitors",
        judge: await_blocks,
        ..ERROR
    },
    Rule {
        name: "stream",
        text: "the reply to a hello with exhaustAllowed has the flag moreToCome",
        source: (MONITORING, "Streaming hello or legacy hello"),
        breaks: "drivers ask for each reply, which costs half a round trip",
        judge: streams,
        ..NOTE
    },
    Rule {
        name: "stream-continues",
        text: "a reply with moreToCome is followed by another one, within maxAwaitTimeMS and \
               connectTimeoutMS",
        source: (MONITORING, "Awaitable hello or legacy hello Protocol"),
        breaks: "monitors wait for what does not come, and take the server for dead",
        judge: stream_continues,
        ..ERROR
    },
    Rule {
        name: "stream-waits",
        text: "between two replies of a stream maxAwaitTimeMS elapses, or counter grows",
        source: (MONITORING, "Awaitable hello or legacy hello Protocol"),
        breaks: "monitors are flooded with replies that say nothing new",
        judge: stream_waits,
        ..ERROR
    },
    Rule {
        name: "stream-chain",
        text: "responseTo of a further reply in a stream is the requestID of the reply before it",
        source: (OP_MSG, "moreToCome On Responses"),
        breaks: "drivers close the connection, as the reply seems to belong to something else",
        judge: stream_chain,
        ..ERROR
    },
];

/// The difference by which clocks and rounding may make a wait too short.
const SLACK: Duration = Duration::from_millis(50);

/// Returns the exchange of a server that lets hello wait.
fn waiting(evidence: &Evidence, topic: Topic) -> Result<&Exchange, Objection> {
    evidence.since(9, "MongoDB 4.4")?;
    evidence.exchange(topic)
}

/// Returns the counter that a request knows.
fn known_counter(exchange: &Exchange) -> Option<i64> {
    version_of(&exchange.request).map(|(_, counter)| counter)
}

/// Returns the counter of an answer.
fn counter_of(answer: &Answer) -> Option<i64> {
    let (_, counter) = version_of(answer.document.as_ref().ok()?)?;
    Some(counter)
}

/// Returns whether an answer came too early, although it has nothing new.
fn is_early(exchange: &Exchange, since: Duration, known: Option<i64>, answer: &Answer) -> bool {
    let is_news = match (known, counter_of(answer)) {
        (Some(known), Some(counter)) => counter > known,
        _ => false,
    };
    let is_refused = answer.document.as_ref().is_ok_and(|reply| !is_ok(reply));
    let waited = answer.came.saturating_sub(since);
    !is_news && !is_refused && waited + SLACK < exchange.max_await()
}

fn after(millis: Duration) -> String {
    format!("a reply after {} ms", millis.as_millis())
}

fn await_waits(evidence: &Evidence) -> Judged {
    let exchange = waiting(evidence, Topic::AwaitUnchanged)?;
    evidence.success(Topic::AwaitUnchanged)?;
    let answer = &exchange.answers[0];
    match is_early(exchange, exchange.sent, known_counter(exchange), answer) {
        true => broken(
            format!("no reply for {} ms", exchange.max_await().as_millis()),
            format!("{}, with the same counter", after(answer.came - exchange.sent)),
        ),
        false => Ok(()),
    }
}

fn await_ends(evidence: &Evidence) -> Judged {
    let exchange = waiting(evidence, Topic::AwaitUnchanged)?;
    match (&exchange.end, exchange.answers.first()) {
        (Some(end @ (End::Silent(_) | End::Closed(_))), None) => {
            let expected = format!(
                "a reply after {} ms, within {} ms more",
                exchange.max_await().as_millis(),
                evidence.timeout.as_millis()
            );
            broken(expected, end.words())
        }
        _ => evidence.must_succeed(Topic::AwaitUnchanged).map(|_| ()),
    }
}

/// Expects an answer before half of the time that a hello may wait has passed.
fn at_once(evidence: &Evidence, topic: Topic) -> Judged {
    let exchange = waiting(evidence, topic)?;
    evidence.must_succeed(topic)?;
    let took = exchange.answers[0].came - exchange.sent;
    match took > exchange.max_await() / 2 {
        true => broken(format!("a reply to {} at once", topic.words()), after(took)),
        false => Ok(()),
    }
}

fn await_arguments(evidence: &Evidence) -> Judged {
    for topic in [Topic::AwaitWithoutTime, Topic::AwaitWithoutVersion] {
        waiting(evidence, topic)?;
        if is_ok(evidence.reply(topic)?) {
            return broken(format!("an error after {}", topic.words()), "it succeeds");
        }
    }
    Ok(())
}

fn await_blocks(evidence: &Evidence) -> Judged {
    let waiting = waiting(evidence, Topic::AwaitUnchanged)?;
    let beside = evidence.exchange(Topic::Beside)?;
    let (Some(_), Some(answer)) = (waiting.answers.first(), beside.answers.first()) else {
        return not_tried("one of both was not answered");
    };
    let took = answer.came.saturating_sub(beside.sent);
    match evidence.is_blocked() {
        true => broken("a reply while the other hello waits", after(took)),
        false => Ok(()),
    }
}

/// Returns the exchange of a stream whose first reply says `ok`.
fn stream(evidence: &Evidence) -> Result<&Exchange, Objection> {
    let exchange = waiting(evidence, Topic::Stream)?;
    evidence.success(Topic::Stream)?;
    Ok(exchange)
}

const fn has_more(answer: &Answer) -> bool {
    answer.flags & 2 != 0
}

fn streams(evidence: &Evidence) -> Judged {
    match has_more(&stream(evidence)?.answers[0]) {
        true => Ok(()),
        false => broken("moreToCome in the first reply", "it is not there"),
    }
}

fn stream_continues(evidence: &Evidence) -> Judged {
    let exchange = waiting(evidence, Topic::Stream)?;
    match (exchange.answers.last(), &exchange.end) {
        (None, Some(end)) => broken("a reply to a streaming hello", end.words()),
        (Some(last), Some(end)) if has_more(last) => {
            broken("another reply, as moreToCome says", end.words())
        }
        (Some(last), _) if !has_more(last) && exchange.answers.len() == 1 => {
            not_tried("it does not stream")
        }
        _ => Ok(()),
    }
}

fn stream_waits(evidence: &Evidence) -> Judged {
    let exchange = stream(evidence)?;
    let mut since = (exchange.sent, known_counter(exchange));
    for answer in &exchange.answers {
        if is_early(exchange, since.0, since.1, answer) {
            return broken(
                format!("no reply for {} ms", exchange.max_await().as_millis()),
                format!("{}, with the same counter", after(answer.came.saturating_sub(since.0))),
            );
        }
        // A reply that is read late is followed by one that seems early.
        let due = since.0 + exchange.max_await();
        since = (answer.came.min(due), counter_of(answer));
    }
    Ok(())
}

fn stream_chain(evidence: &Evidence) -> Judged {
    let exchange = stream(evidence)?;
    if exchange.answers.len() < 2 {
        return not_tried("it does not stream");
    }
    for pair in exchange.answers.windows(2) {
        if pair[1].response_to != pair[0].request_id {
            return broken(
                format!("responseTo {}, the reply before it", pair[0].request_id),
                format!("responseTo {}", pair[1].response_to),
            );
        }
    }
    Ok(())
}
