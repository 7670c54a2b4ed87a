//! Answers of name servers, and what may come of the records in them.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use sdam_core::config::{Options, ServerAddress, SrvOptions};
use sdam_core::dns::srv::{self, SrvError, SrvRecord};
use sdam_core::dns::{
    Action, DnsError, DnsRecords, ExchangeId, Input, Lookup, MAX_RECORDS, NameServers, Question,
    Transport,
};
use sdam_core::machine::{Lawful, Machine};
use sdam_core::rng::Rng;
use sdam_core::time::Instant;

/// The deployment that is looked up, and what its hosts must end in.
pub(super) const HOSTNAME: &str = "a.example.com";
const DOMAIN: &str = ".example.com";

/// The only options that TXT records may set (Initial DNS Seedlist Discovery, "Default Connection
/// String Options").
const TXT_OPTIONS: [&str; 3] = ["authSource", "replicaSet", "loadBalanced"];

/// More steps than a lookup of one server takes.
const ENDLESS: usize = 16;

static OPTIONS: LazyLock<Options> = LazyLock::new(|| {
    let uri = format!("mongodb+srv://user@{HOSTNAME}/?appName=app");
    Options::parse(&uri).expect("a connection string")
});

/// The subject of an input: the first byte, modulo its number of variants.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    SrvOverUdp = 0,
    SrvOverTcp = 1,
    TxtOverUdp = 2,
    /// Lines of host and port, as a resolver of the application's own may return them.
    Records = 3,
}

/// The first byte says what the others are: an answer over UDP or TCP, or records. The number of an
/// answer is put right, as it cannot be guessed.
///
/// # Panics
///
/// Panics if a law is broken.
pub fn dns(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let choice = usize::from(first / 4);
    match first % 4 {
        0 => judge(ask(Transport::Udp, &Question::srv("mongodb", HOSTNAME), rest, rest.len())),
        1 => {
            let question = Question::srv("mongodb", HOSTNAME);
            let whole = ask(Transport::Tcp, &question, rest, rest.len());
            let torn = ask(Transport::Tcp, &question, rest, choice + 1);
            assert_eq!(torn, whole, "law 6: in parts of {}", choice + 1);
            judge(whole);
        }
        2 => judge(ask(Transport::Udp, &Question::txt(HOSTNAME), rest, rest.len())),
        _ => {
            let text = String::from_utf8_lossy(rest);
            judge_records(&text.lines().filter_map(record).collect::<Vec<_>>(), choice % 4);
        }
    }
}

fn record(line: &str) -> Option<SrvRecord> {
    let (host, port) = line.rsplit_once(' ')?;
    Some(SrvRecord::new(host, port.parse().ok()?, Duration::from_secs(1)))
}

/// Looks up `question`, which one name server answers with these bytes and then not at all.
fn ask(
    transport: Transport,
    question: &Question,
    bytes: &[u8],
    part: usize,
) -> Result<DnsRecords, DnsError> {
    let servers = NameServers::new([([127, 0, 0, 1], 53).into()]).attempts(1);
    let (mut lookup, mut out) = (Lawful::new(Lookup::new(question.clone(), servers, 1)), vec![]);
    lookup.tick(Instant::ZERO.into(), &mut out);
    let mut asked = asked(&out).expect("there is a server to ask");
    if transport == Transport::Tcp {
        // A datagram that was cut: its question, and the bits that say so.
        let mut cut = asked.1.clone();
        cut[2] |= 0x82;
        asked = exchange(&mut lookup, asked.0, &cut).expect("it asks once more");
    }
    let (id, query) = asked;
    let at = if transport == Transport::Tcp { 2 } else { 0 };
    let mut bytes = bytes.to_vec();
    if let Some(number) = bytes.get_mut(at..at + 2) {
        number.copy_from_slice(&query[at..at + 2]);
    }
    let mut outcome = None;
    for part in bytes.chunks(part.max(1)) {
        let (input, mut out) = (Input::Received { exchange: id, bytes: part }, vec![]);
        lookup.handle(Instant::ZERO.into(), input, &mut out);
        finish(out, &mut outcome);
    }
    for _ in 0..ENDLESS {
        let Some(deadline) = lookup.deadline() else { break };
        let mut out = vec![];
        lookup.tick(deadline.into(), &mut out);
        finish(out, &mut outcome);
    }
    outcome.expect("a lookup ends")
}

fn exchange(
    lookup: &mut Lawful<Lookup>,
    exchange: ExchangeId,
    bytes: &[u8],
) -> Option<(ExchangeId, Vec<u8>)> {
    let mut out = vec![];
    lookup.handle(Instant::ZERO.into(), Input::Received { exchange, bytes }, &mut out);
    asked(&out)
}

fn asked(actions: &[Action]) -> Option<(ExchangeId, Vec<u8>)> {
    actions.iter().find_map(|action| match action {
        Action::Ask { exchange, query, .. } => Some((*exchange, query.clone())),
        _ => None,
    })
}

fn finish(actions: Vec<Action>, outcome: &mut Option<Result<DnsRecords, DnsError>>) {
    for action in actions {
        if let Action::Finish { outcome: result } = action {
            assert!(outcome.replace(result).is_none(), "a lookup ends once");
        }
    }
}

fn judge(outcome: Result<DnsRecords, DnsError>) {
    match outcome {
        Ok(DnsRecords::Srv(records)) => {
            assert!((1..=MAX_RECORDS).contains(&records.len()));
            for record in &records {
                let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                assert!(record.host.chars().all(allowed), "{record:?}");
                assert!(record.ttl.as_secs() <= i32::MAX as u64);
            }
            judge_records(&records, 2);
        }
        Ok(DnsRecords::Txt(texts)) => {
            assert!((1..=MAX_RECORDS).contains(&texts.len()));
            judge_texts(texts);
        }
        Ok(other) => panic!("{other:?} was not asked for"),
        Err(error) => assert!(error.to_string().contains(HOSTNAME), "{error}"),
    }
}

/// Initial DNS Seedlist Discovery, "Querying DNS", written naively.
fn judge_records(records: &[SrvRecord], max_hosts: usize) {
    let inside = |record: &SrvRecord| {
        let host = record.host.strip_suffix('.').unwrap_or(&record.host).to_ascii_lowercase();
        host.ends_with(DOMAIN) && host.len() > DOMAIN.len()
    };
    let options = SrvOptions::new(HOSTNAME).with_max_hosts(max_hosts);
    match srv::seeds(&options, records, &mut Rng::new(1)) {
        Ok(seeds) => {
            assert!(!seeds.is_empty() && seeds.len() <= records.len());
            assert!(max_hosts == 0 || seeds.len() <= max_hosts, "srvMaxHosts");
            assert!(records.iter().all(inside), "one host from outside is too many");
            for (index, seed) in seeds.iter().enumerate() {
                assert!(!seeds[..index].contains(seed), "each once");
                assert!(records.iter().any(|record| is_of(seed, record)), "{seed} was made up");
            }
        }
        Err(error) => {
            assert!(error.to_string().contains(HOSTNAME), "{error}");
            let outside = matches!(error, SrvError::OutsideDomain { .. });
            assert!(!outside || !records.iter().all(inside), "{error}");
            let unusable = |it: &SrvRecord| it.port == 0 || it.host.len() > 200 || !is_plain(it);
            let excused = records.is_empty() || records.len() > MAX_RECORDS;
            let reason = outside || excused || records.iter().any(unusable);
            assert!(reason, "{error}: {records:?}");
        }
    }
}

/// Returns whether the name of the host is surely valid.
fn is_plain(record: &SrvRecord) -> bool {
    record.host.split('.').all(|part| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

fn is_of(seed: &ServerAddress, record: &SrvRecord) -> bool {
    let host = record.host.strip_suffix('.').unwrap_or(&record.host);
    seed.host() == host.to_ascii_lowercase() && seed.port() == Some(record.port)
}

/// "Default Connection String Options".
fn judge_texts(texts: Vec<String>) {
    let count = texts.len();
    let records = [SrvRecord::new(Arc::from("h.example.com"), 27017, Duration::from_secs(60))];
    let Ok(options) = srv::complete(&OPTIONS, &records, Ok(texts), 1) else { return };
    assert_eq!(count, 1, "only one record is allowed");
    let (before, after) = (OPTIONS.to_uri(), options.to_uri());
    for option in query(&after) {
        let name = option.split('=').next().unwrap_or_default();
        let allowed = TXT_OPTIONS.contains(&name) || query(&before).any(|known| known == option);
        // What the scheme mongodb+srv implied is written out where the hosts are.
        assert!(allowed || option == "tls=true", "{option} was set: {after}");
    }
}

fn query(uri: &str) -> impl Iterator<Item = &str> {
    uri.split_once('?').map_or("", |(_, query)| query).split('&').filter(|text| !text.is_empty())
}
