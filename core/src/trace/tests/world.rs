//! A world that does things to a recorded topology, as a test wants them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, RawDocumentBuf, Timestamp, rawdoc};

use crate::config::{Options, ReadMode, ReadPreference};
use crate::description::TopologyVersion;
use crate::dns::srv::SrvRecord;
use crate::dns::{DnsCause, DnsError, Question};
use crate::failure::{Cause, Failure, Stage};
use crate::harness::VirtualTopology;
use crate::id::{Generation, LinkId, ServerId, WaiterId};
use crate::machine::Lawful;
use crate::operation::{CommandError, OperationError, OperationFailure};
use crate::selection::Criteria;
use crate::topology::{Input, Topology};
use crate::trace::{Header, Journal, Recorder};
use crate::wire::Flags;

pub(super) const URI: &str = "mongodb://a.example,b.example:27018/?replicaSet=rs0";

/// Something that happens; numbers choose among what there is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Sleep(u16),
    Opened(u8),
    /// A reply, in two parts, with so many milliseconds between them.
    Reply(u8, u8, u16),
    Garbage(u8, u8),
    Closed(u8),
    Wait(u8),
    Abandon(u8),
    Failed(u8, u8),
    RequestCheck,
    Append(u8),
    Resolved(u8),
}

/// A recorded topology, and the far ends of its links.
pub(super) struct World {
    pub(super) topology: VirtualTopology<Recorder<Lawful<Topology>>>,
    pub(super) text: Arc<Mutex<String>>,
    waiters: u64,
}

impl World {
    pub(super) fn new(uri: &str) -> Self {
        Self::with(Options::parse(uri).unwrap())
    }

    pub(super) fn with(options: Options) -> Self {
        Self::recorded(options, Journal::default())
    }

    /// A world each of whose calls is written in so many bytes.
    pub(super) fn bounded(options: Options, limit: usize) -> Self {
        Self::recorded(options, Journal::of_calls_up_to(limit))
    }

    fn recorded(options: Options, journal: Journal) -> Self {
        let (options, text) = (Arc::new(options), Arc::<Mutex<String>>::default());
        let sink = Arc::clone(&text);
        let mut recorder = Recorder::off(Lawful::new(Topology::new(Arc::clone(&options), 7)));
        let (first, rest) = Header::new(&options, 7).lines(false);
        text.lock().unwrap().push_str(&(first + &rest));
        recorder.resume(journal, move |lines| sink.lock().unwrap().push_str(lines));
        let mut world = Self { topology: VirtualTopology::new(recorder), text, waiters: 0 };
        world.sleep(0);
        world
    }

    pub(super) fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    pub(super) fn sleep(&mut self, millis: u64) {
        self.topology.pass(self.topology.now() + Duration::from_millis(millis));
        self.topology.take_actions();
    }

    pub(super) fn input(&mut self, input: Input<'_>) {
        self.topology.input(input);
        self.topology.take_actions();
    }

    fn link(&self, choice: u8) -> Option<LinkId> {
        let links: Vec<_> = self.topology.connected().map(|(link, _)| link).collect();
        (!links.is_empty()).then(|| links[usize::from(choice) % links.len()])
    }

    /// A server says this, in parts of so many bytes.
    pub(super) fn say(&mut self, choice: u8, reply: &RawDocumentBuf, length: usize) {
        self.say_parts(choice, reply, length, 0);
    }

    /// The same, but for the last part.
    pub(super) fn say_partly(&mut self, choice: u8, reply: &RawDocumentBuf, length: usize) {
        self.say_parts(choice, reply, length, 1);
    }

    fn say_parts(&mut self, choice: u8, reply: &RawDocumentBuf, length: usize, missing: usize) {
        let Some(link) = self.link(choice) else { return };
        let bytes = self.topology.answer(link, reply, Flags::NONE);
        let parts = bytes.chunks(length);
        let count = parts.len() - missing;
        parts.take(count).for_each(|bytes| self.input(Input::Received { link, bytes }));
    }

    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Sleep(millis) => self.sleep(u64::from(millis)),
            Event::Opened(choice) => {
                if let Some(link) = self.link(choice) {
                    self.input(Input::Opened { link });
                }
            }
            Event::Reply(choice, kind, pause) => {
                let Some(link) = self.link(choice) else { return };
                let flags = if kind & 8 == 0 { Flags::NONE } else { Flags::MORE_TO_COME };
                let bytes = self.topology.answer(link, &reply(kind), flags);
                let split = usize::from(kind) % bytes.len();
                self.input(Input::Received { link, bytes: &bytes[..split] });
                self.sleep(u64::from(pause));
                self.input(Input::Received { link, bytes: &bytes[split..] });
            }
            Event::Garbage(choice, length) => {
                let Some(link) = self.link(choice) else { return };
                self.input(Input::Received { link, bytes: &vec![length; usize::from(length)] });
            }
            Event::Closed(choice) => {
                let Some(link) = self.link(choice) else { return };
                let failure =
                    Failure::new(Stage::Connect, Cause::Refused, "Connection \"refused\"");
                self.input(Input::Closed { link, failure });
            }
            Event::Wait(kind) => {
                self.waiters += 1;
                let deadline =
                    (kind & 4 != 0).then(|| self.topology.now() + Duration::from_millis(700));
                let criteria = Arc::new(criteria(kind));
                self.input(Input::Wait { waiter: WaiterId(self.waiters), criteria, deadline });
            }
            Event::Abandon(choice) => {
                self.input(Input::Abandon { waiter: WaiterId(u64::from(choice)) });
            }
            Event::Failed(choice, kind) => {
                let server = ServerId(u64::from(choice % 4));
                self.input(Input::OperationFailed { server, failure: failure(kind) });
            }
            Event::RequestCheck => self.input(Input::RequestCheck),
            Event::Resolved(kind) => self.input(Input::Resolved { records: records(kind) }),
            Event::Append(kind) => {
                let name = format!("lib{kind}");
                let info =
                    crate::config::metadata::DriverInfo::new(&name, Some("1"), None).unwrap();
                self.input(Input::AppendMetadata { info });
            }
        }
    }
}

/// Returns the result of a rescan: hosts, some of them outside the domain, or an error.
fn records(kind: u8) -> Result<Vec<SrvRecord>, DnsError> {
    if kind.is_multiple_of(5) {
        let question = Question::srv("mongodb", "x.example.com");
        return Err(DnsError::new(question, DnsCause::NoNameServer));
    }
    let record = |number| {
        let host = format!("h{number}.example.{}", if number == 9 { "org" } else { "com" });
        SrvRecord::new(host, 27017, Duration::from_secs(1))
    };
    Ok((kind % 7..kind % 11).map(record).collect())
}

/// A reply to hello: of a primary, a secondary, another member, or an error.
pub(super) fn reply(kind: u8) -> RawDocumentBuf {
    if kind.is_multiple_of(7) {
        return rawdoc! { "ok": 0.0, "errmsg": "not \"now\"", "code": 11600_i32 };
    }
    if kind > 200 {
        return rawdoc! { "ok": 1, "msg": "isdbgrid", "maxWireVersion": 17 };
    }
    let members = ["a.example:27017", "b.example:27018", "c.example:27017"];
    let hosts =
        bson::RawArrayBuf::from_iter(members.iter().take(1 + usize::from(kind % 3)).copied());
    let version = rawdoc! { "processId": ObjectId::from_bytes([kind % 2; 12]), "counter": 3_i64 };
    let signature = bson::Binary {
        subtype: bson::spec::BinarySubtype::Generic,
        bytes: b"SIGNATURE-PLANTED-20".to_vec(),
    };
    let time = rawdoc! {
        "clusterTime": Timestamp { time: 5, increment: 1 },
        "signature": { "hash": signature, "keyId": 7_i64 },
    };
    rawdoc! {
        "ok": 1.0, "helloOk": true, "isWritablePrimary": kind % 3 == 1, "secondary": kind % 3 == 2,
        "setName": "rs0", "setVersion": i64::from(kind % 4), "hosts": hosts, "minWireVersion": 0,
        "maxWireVersion": 17, "topologyVersion": version,
        "lastWrite": { "lastWriteDate": DateTime::from_millis(1_700_000_000_123) },
        "tags": { "dc": "e\u{301}\u{2028}~ast" }, "$clusterTime": time, "nothing": bson::RawBson::Null,
        "third": 1.0 / 3.0, "infinite": f64::INFINITY,
    }
}

pub(super) fn criteria(kind: u8) -> Criteria {
    match kind % 7 {
        0 => Criteria::write(),
        1 => Criteria::read(ReadPreference::new(ReadMode::Nearest))
            .with_predicate(move |server| server.address.port() == Some(27018)),
        2 => Criteria::write().with_predicate(|_| std::panic::resume_unwind(Box::new("planted"))),
        3 => Criteria::write().deprioritize(["a.example".parse().unwrap()]),
        4 => Criteria::read_since(ReadPreference::new(ReadMode::Nearest), 18),
        5 => Criteria::write().at("a.example:27018".parse().unwrap()),
        _ => {
            let tags = [("dc".to_owned(), "west".to_owned())].into();
            let preference = ReadPreference::new(ReadMode::Secondary).with_tag_sets(vec![tags]);
            let most = Duration::from_micros(90_000_001);
            Criteria::read(preference.unwrap().with_max_staleness(most).unwrap())
        }
    }
}

pub(super) fn failure(kind: u8) -> OperationFailure {
    let error = match kind % 5 {
        0 => OperationError::Stream(Failure::new(Stage::Operate, Cause::Closed, "gone")),
        1 => OperationError::Stream(Failure::new(
            Stage::Authenticate,
            Cause::Authentication,
            format!("the token PLANTED-TOKEN{kind} is refused"),
        )),
        kind => {
            let error = CommandError {
                code: (kind != 3).then_some(10107),
                code_name: "NotWritablePrimary".to_owned(),
                message: format!("not master: PLANTED-DOCUMENT{kind}"),
                labels: vec!["RetryableWriteError".to_owned()],
                topology_version: (kind == 4).then(|| TopologyVersion {
                    process_id: ObjectId::from_bytes([1; 12]),
                    counter: 9,
                }),
            };
            OperationError::Reply { stage: Stage::Operate, error }
        }
    };
    OperationFailure {
        generation: Generation::new(u32::from(kind) / 100),
        service: (kind % 2 == 1).then(|| ObjectId::from_bytes([7; 12])),
        max_wire_version: i32::from(kind % 18),
        error,
    }
}
