//! Seeds of traces: the beginnings of the recordings of real servers, traces that are written by
//! hand, and what happens to a client. And what the servers of those recordings said.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use bson::{Bson, Document, RawDocumentBuf};
use sdam_core::trace::Seal;
use serde_json::Value;

use super::super::MAX_TRACE_LEN;
use super::{Seed, structured};

const RECORDINGS: [&str; 5] =
    ["4.2-kill", "4.4-freeze", "5.0-reconfig", "6.0-step-down", "6.0-discovery"];

/// The number of seeds of the target `topology` that are recorded.
const WORLDS: usize = 8;

pub(in crate::fuzz) fn traces() -> Vec<Seed> {
    let mut seeds = by_hand();
    for name in RECORDINGS {
        let Some(text) = recording(name) else { continue };
        let whole: Vec<&str> = text.lines().filter_map(unsealed).collect();
        seeds.push(Seed::new(name, beginning(&whole)));
        let is_input = |line: &&str| !line.starts_with("  > ") && !line.starts_with('#');
        let inputs: Vec<&str> = whole.iter().copied().filter(is_input).collect();
        seeds.push(Seed::new(format!("{name}-inputs"), beginning(&inputs)));
    }
    let worlds = structured::topology().into_iter().take(WORLDS);
    seeds.extend(worlds.map(|Seed { name, bytes }| Seed::new(format!("world-{name}"), bytes)));
    seeds
}

/// Returns real replies to hello, from each recording the first of every kind of server.
pub(super) fn recorded_replies() -> Vec<(String, RawDocumentBuf)> {
    let mut replies = Vec::new();
    for name in RECORDINGS {
        let text = recording(name).unwrap_or_default();
        let received = text.lines().filter_map(unsealed).filter(|line| line.contains(" received "));
        let mut kinds = BTreeSet::new();
        for reply in received.flat_map(messages) {
            let is = |field| reply.get_bool(field).unwrap_or_default();
            let kind = match (is("isWritablePrimary") || is("ismaster"), is("secondary")) {
                (true, _) => "primary",
                (false, true) => "secondary",
                (false, false) => "other",
            };
            let reply = RawDocumentBuf::try_from(&reply).ok().filter(|_| kinds.insert(kind));
            replies.extend(reply.map(|reply| (format!("{name}-{kind}"), reply)));
        }
    }
    replies
}

/// The documents on a line that says what was received.
fn messages(line: &str) -> Vec<Document> {
    let json = line.find(" [").and_then(|at| serde_json::from_str::<Value>(&line[at..]).ok());
    let messages = json.as_ref().and_then(Value::as_array).into_iter().flatten();
    let documents =
        messages.filter_map(|message| match Bson::try_from(message.get("msg")?.clone()).ok()? {
            Bson::Document(document) => Some(document),
            _ => None,
        });
    documents.collect()
}

/// Returns a trace of real servers; where the program runs elsewhere, there is none, and there are
/// fewer inputs to begin with.
fn recording(name: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/transcripts");
    fs::read_to_string(folder.join(format!("{name}.trace"))).ok()
}

/// Takes the checksum off a line, and `sealed` off the first.
fn unsealed(line: &str) -> Option<&str> {
    line.strip_suffix(" sealed").or_else(|| Some(line.rsplit_once(" ~")?.0))
}

/// Cuts a trace at the end of a call.
fn beginning(lines: &[&str]) -> String {
    let (mut text, mut end) = (String::new(), 0);
    for line in lines {
        if line.starts_with('+') {
            end = text.len();
        }
        if text.len() + line.len() >= MAX_TRACE_LEN {
            text.truncate(end);
            break;
        }
        text.extend([line, "\n"]);
    }
    text
}

/// Calls of a topology with one server; what is indented by six spaces belongs to the line above.
const CALLS: &str = r#"+0.000000000 tick
+0.000000001 opened s0.0
+0.500000000@+0.600000000 wait w1
       {"until":"+9.000000000","predicate":true,"deprioritized":["a:1"]}
  ? yes no panic
+1.000000000 wait w2 {"read":{"mode":"nearest","tagSets":[{"x":"y"},{}],
      "maxStaleness":{"secs":90,"nanos":1}}}
+1.000000000 received s0.0 [7]
+1.000000000 received s0.0 [{"id":1,"to":1,
      "msg":{"ok":1.0,"isWritablePrimary":true,"maxWireVersion":21}},"AAAA"]
  ? no
+1.000000000 request-check
+1.000000000 append-metadata {"name":"n","version":"1","platform":"p"}
+1.000000000 operation-failed s0 {"generation":0,"maxWireVersion":21,"reply":
      {"stage":"operate","code":91,"codeName":"n","message":"m","labels":["l"],
      "topologyVersion":{"processId":"000000000000000000000000","counter":1}}}
+1.000000000 operation-failed s0 {"generation":0,"service":"000000000000000000000000",
      "maxWireVersion":21,"stream":{"stage":"operate","cause":"closed","detail":""}}
+1.000000000 operation-failed s0 {"generation":0,"maxWireVersion":21,"invalid":null}
+1.000000000 closed s0.0 {"stage":"hello","cause":"timeout","detail":"x"}
+99.000000000 tick
+99.000000000 abandon w1
# a comment
+18446744073.709551614 shutdown
"#;

/// The further fields of a client whose servers are in DNS.
const BESIDES: &str = r#"{"seeds":["a.x.example.com:1"],"rescanInterval":{"secs":60,"nanos":0},
      "singleThreaded":true,"serverApi":{"strict":true},"opensWithQuery":true,
      "addressMap":["*.x=y"],"heartbeatFrequency":{"secs":1,"nanos":1}}"#;

/// The input.
const LOOKUPS: &str = r#"+61.000000000 tick
+61.000000000 resolved {"records":[{"host":"b.x.example.com","port":1,
      "ttl":{"secs":60,"nanos":0}}]}
+62.000000000 resolved {"error":{"name":"n","txt":false,"reason":"r"}}
"#;

fn by_hand() -> Vec<Seed> {
    let hosts: Vec<String> = (0..400).map(|number| format!("h{number}")).collect();
    let many = format!("mongodb://{}/?replicaSet=r", hosts.join(","));
    let sockets = "mongodb://%2Ftmp%2Fa%C3%BC~.sock,%2F%20.sock";
    let balanced = "mongodb://a:1/?loadBalanced=true";
    let calls = of("mongodb://a:1", "", CALLS);
    let (first, rest) = calls.split_once('\n').expect("a first line");
    let texts = [
        ("sealed", format!("{first} sealed\n{}", Seal::new().seal(rest))),
        ("tail", format!("{first} tail\n{rest}")),
        ("calls", calls),
        ("lookups", of("mongodb+srv://c.x.example.com", BESIDES, LOOKUPS)),
        ("sockets", of(sockets, "", CALLS)),
        ("many-hosts", of(&many, "", CALLS)),
        ("balanced", of(balanced, "", CALLS)),
        ("comments", of("mongodb://a:1", "", "# x\n\n  # y\n+1.000000000 tick\n#\n#")),
        ("header-only", of("mongodb://a", "", "")),
        ("nothing", String::new()),
    ];
    texts.into_iter().map(|(name, text)| Seed::new(name, text)).collect()
}

fn of(uri: &str, besides: &str, calls: &str) -> String {
    let mut text = format!("sdam-trace 1\nsdam 0\nmachine topology\noptions {uri}\n");
    if !besides.is_empty() {
        text.extend(["besides ", besides, "\n"]);
    }
    (text + "seed 1\n" + calls).replace("\n      ", "")
}
