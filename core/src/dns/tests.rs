//! Lookups against name servers made of bytes, in virtual time.

use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;
use simple_dns::rdata::{CNAME, RData, SRV, TXT};
use simple_dns::{CLASS, Name, Packet, PacketFlag, RCODE, ResourceRecord};

use super::message::{self, DnsReply};
use super::{
    Action, DnsError, DnsRecords, ExchangeId, Input, Lookup, NameServers, Question, Transport,
};
use crate::dns::srv::SrvRecord;
use crate::machine::{Lawful, Machine};
use crate::time::Instant;

const NAME: &str = "_mongodb._tcp.a.example.com";

fn srv_question() -> Question {
    Question::srv("mongodb", "a.example.com.")
}

/// The last question, and the servers' answers.
struct Fixture {
    lookup: Lawful<Lookup>,
    now: Instant,
    asked: Option<(ExchangeId, SocketAddr, Transport, Vec<u8>)>,
    outcome: Option<Result<DnsRecords, DnsError>>,
}

impl Fixture {
    /// Asks the servers on ports 1 to `servers`.
    fn new(question: Question, servers: u16) -> Self {
        let servers = NameServers::new((1..=servers).map(|port| ([127, 0, 0, 1], port).into()));
        let lookup = Lawful::new(Lookup::new(question, servers, 1));
        let mut fixture = Self { lookup, now: Instant::ZERO, asked: None, outcome: None };
        fixture.at(0);
        fixture
    }

    fn at(&mut self, millis: u64) -> &mut Self {
        self.now = Instant::from_millis(millis);
        let mut out = Vec::new();
        self.lookup.tick(self.now.into(), &mut out);
        self.digest(out)
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        let exchange = self.asked.as_ref().unwrap().0;
        let mut out = Vec::new();
        self.lookup.handle(self.now.into(), Input::Received { exchange, bytes }, &mut out);
        self.digest(out)
    }

    fn fail(&mut self) -> &mut Self {
        let exchange = self.asked.as_ref().unwrap().0;
        let mut out = Vec::new();
        let input = Input::Failed { exchange, detail: "connection refused".into() };
        self.lookup.handle(self.now.into(), input, &mut out);
        self.digest(out)
    }

    fn digest(&mut self, actions: Vec<Action>) -> &mut Self {
        for action in actions {
            match action {
                Action::Ask { exchange, server, transport, query } => {
                    self.asked = Some((exchange, server, transport, query));
                }
                Action::Finish { outcome } => {
                    assert!(self.outcome.replace(outcome).is_none(), "a lookup ends once");
                }
            }
        }
        self
    }

    /// Answers the last query.
    fn reply(&mut self, edit: impl FnOnce(&mut Packet<'_>)) -> &mut Self {
        let reply = self.compose(edit);
        self.bytes(&reply)
    }

    fn compose(&self, edit: impl FnOnce(&mut Packet<'_>)) -> Vec<u8> {
        let (_, _, transport, query) = self.asked.as_ref().unwrap();
        let skip = if *transport == Transport::Tcp { 2 } else { 0 };
        let mut packet = Packet::parse(&query[skip..]).unwrap().into_reply();
        edit(&mut packet);
        let mut bytes = packet.build_bytes_vec_compressed().unwrap();
        if *transport == Transport::Tcp {
            bytes.splice(..0, u16::try_from(bytes.len()).unwrap().to_be_bytes());
        }
        bytes
    }

    /// Returns how long an answer over UDP the last query allows, if it has EDNS.
    fn udp_size(&self) -> Option<u16> {
        let (_, _, transport, query) = self.asked.as_ref().unwrap();
        let skip = if *transport == Transport::Tcp { 2 } else { 0 };
        let packet = Packet::parse(&query[skip..]).unwrap();
        packet.opt().map(|opt| {
            assert_eq!((opt.version, opt.opt_codes.len()), (0, 0));
            opt.udp_packet_size
        })
    }

    /// Composes the reply of a server that does not understand the last query, written by hand: the
    /// encoder puts the upper bits of the code where no resolver looks for them.
    fn refusal(&self, code: RCODE, repeats: bool) -> Vec<u8> {
        let (_, _, transport, query) = self.asked.as_ref().unwrap();
        let skip = if *transport == Transport::Tcp { 2 } else { 0 };
        let query = &query[skip..];
        let name_len = NAME.len() + 2;
        let (code, mut refusal) = (code as u16, query[..12].to_vec());
        refusal[2] |= 0x80;
        refusal[3] |= (code & 0x0f) as u8;
        refusal[4..12].fill(0);
        if repeats {
            refusal[5] = 1;
            refusal.extend(&query[12..12 + name_len + 4]);
        }
        if code > 15 {
            refusal[11] = 1;
            refusal.extend([0, 0, 41, 4, 208, (code >> 4) as u8, 0, 0, 0, 0, 0]);
        }
        if skip > 0 {
            refusal.splice(..0, u16::try_from(refusal.len()).unwrap().to_be_bytes());
        }
        refusal
    }

    /// Returns whom was asked last, and how.
    fn asked(&self) -> (u16, Transport) {
        let (_, server, transport, _) = self.asked.as_ref().unwrap();
        (server.port(), *transport)
    }

    fn hosts(&self) -> Vec<String> {
        match self.outcome.as_ref().unwrap() {
            Ok(DnsRecords::Srv(records)) => {
                records.iter().map(|record| format!("{}:{}", record.host, record.port)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn error(&self) -> String {
        self.outcome.as_ref().unwrap().as_ref().unwrap_err().to_string()
    }
}

fn srv(name: &str, target: &str, port: u16, ttl: u32) -> ResourceRecord<'static> {
    let target = Name::new(target).unwrap().into_owned();
    let srv = SRV { priority: 0, weight: 0, port, target };
    record(name, ttl, RData::SRV(srv))
}

fn record(name: &str, ttl: u32, data: RData<'static>) -> ResourceRecord<'static> {
    ResourceRecord::new(Name::new(name).unwrap().into_owned(), CLASS::IN, ttl, data)
}

fn alias(name: &str, target: &str) -> ResourceRecord<'static> {
    record(name, 60, RData::CNAME(CNAME(Name::new(target).unwrap().into_owned())))
}

fn text(strings: &[&'static str]) -> ResourceRecord<'static> {
    let add = |txt: TXT<'static>, string| txt.with_string(string).unwrap();
    record("a.example.com", 60, RData::TXT(strings.iter().copied().fold(TXT::new(), add)))
}

/// Initial DNS Seedlist Discovery, "Querying DNS".
#[test]
fn the_question_is_for_the_service_over_tcp() {
    let fixture = Fixture::new(srv_question(), 1);
    let (_, _, transport, query) = fixture.asked.as_ref().unwrap();
    let packet = Packet::parse(query).unwrap();
    assert_eq!(packet.questions[0].qname.to_string(), NAME);
    assert!(packet.has_flags(PacketFlag::RECURSION_DESIRED));
    assert_eq!((packet.questions.len(), *transport), (1, Transport::Udp));
}

#[test]
fn srv_records_are_read_with_their_time_to_live() {
    let mut fixture = Fixture::new(srv_question(), 1);
    fixture.reply(|packet| {
        packet.answers.push(srv(NAME, "B.example.com", 27018, 300));
        packet.answers.push(srv("_MONGODB._tcp.A.example.com", "c.example.com", 27019, u32::MAX));
        packet.answers.push(srv("_mongodb._tcp.other.example.com", "d.example.com", 1, 1));
    });
    let expected = [("B.example.com", 27018, 300), ("c.example.com", 27019, 0)];
    let expected =
        expected.map(|(host, port, ttl)| SrvRecord::new(host, port, Duration::from_secs(ttl)));
    assert_eq!(fixture.outcome, Some(Ok(DnsRecords::Srv(expected.to_vec()))));
    assert_eq!(fixture.lookup.deadline(), None);
}

/// "Default Connection String Options": several strings of a record are one.
#[test]
fn the_strings_of_a_txt_record_are_joined_and_the_records_kept_apart() {
    let mut fixture = Fixture::new(Question::txt("a.example.com"), 1);
    fixture.reply(|packet| {
        packet.answers.push(text(&["replicaS", "et=rep", "l0"]));
        packet.answers.push(text(&["authSource=x"]));
    });
    let expected = ["replicaSet=repl0", "authSource=x"].map(str::to_owned).to_vec();
    assert_eq!(fixture.outcome, Some(Ok(DnsRecords::Txt(expected))));
}

#[test]
fn an_alias_is_followed_within_the_answer() {
    let mut fixture = Fixture::new(srv_question(), 1);
    fixture.reply(|packet| {
        packet.answers.push(srv("two.example.com", "db.example.com", 1, 60));
        packet.answers.push(alias(NAME, "one.example.com"));
        packet.answers.push(alias("one.example.com", "two.example.com"));
    });
    assert_eq!(fixture.hosts(), ["db.example.com:1"]);
}

#[test]
fn a_circle_of_aliases_is_an_error() {
    let mut fixture = Fixture::new(srv_question(), 1);
    let circle = |packet: &mut Packet<'_>| {
        packet.answers.push(alias(NAME, "one.example.com"));
        packet.answers.push(alias("one.example.com", NAME));
    };
    fixture.reply(circle).reply(circle);
    assert!(
        fixture.error().ends_with("it has more aliases than are followed"),
        "{}",
        fixture.error()
    );
}

#[test]
fn an_absent_name_and_an_absent_record_are_final() {
    let mut fixture = Fixture::new(srv_question(), 3);
    fixture.reply(|packet| *packet.rcode_mut() = RCODE::NameError);
    let expected = format!(
        "cannot look up the SRV records of {NAME}: name server 127.0.0.1:1 says that there is no \
         such name (NXDOMAIN)"
    );
    assert_eq!(fixture.error(), expected);
    let mut fixture = Fixture::new(srv_question(), 3);
    fixture.reply(|packet| packet.answers.push(text(&["of another type"])));
    assert!(fixture.error().ends_with("127.0.0.1:1 says that there are no such records"));
    assert!(fixture.outcome.unwrap().unwrap_err().is_absence());
}

#[test]
fn servers_that_fail_are_asked_in_turn_and_all_twice() {
    let mut fixture = Fixture::new(srv_question(), 2);
    fixture.reply(|packet| *packet.rcode_mut() = RCODE::ServerFailure);
    assert_eq!(fixture.asked(), (2, Transport::Udp));
    fixture.fail();
    assert_eq!(fixture.asked(), (1, Transport::Udp));
    fixture.at(4999);
    assert_eq!(fixture.asked(), (1, Transport::Udp));
    fixture.at(5000);
    assert_eq!(fixture.asked(), (2, Transport::Udp));
    fixture.reply(|packet| *packet.rcode_mut() = RCODE::Refused);
    let expected = format!(
        "cannot look up the SRV records of {NAME}: name server 127.0.0.1:1 over UDP: no answer \
         within 5000 ms; name server 127.0.0.1:2 over UDP: it answered with REFUSED"
    );
    assert_eq!(fixture.error(), expected);
}

#[test]
fn silence_of_all_servers_is_a_timeout() {
    let mut fixture = Fixture::new(srv_question(), 2);
    for round in 1..=4 {
        fixture.at(5000 * round);
    }
    let error = fixture.outcome.unwrap().unwrap_err();
    assert!(error.is_timeout() && !error.is_absence(), "{error}");
}

#[test]
fn without_a_name_server_there_is_nobody_to_ask() {
    let fixture = Fixture::new(srv_question(), 0);
    assert!(fixture.error().ends_with("no name server is configured"));
}

#[test]
fn a_truncated_answer_is_asked_for_over_tcp() {
    let mut fixture = Fixture::new(srv_question(), 2);
    let mut cut = fixture.compose(|packet| {
        packet.set_flags(PacketFlag::TRUNCATION);
        packet.answers.push(srv(NAME, "db.example.com", 1, 60));
    });
    cut.truncate(cut.len() - 5);
    fixture.bytes(&cut);
    assert_eq!(fixture.asked(), (1, Transport::Tcp));
    let whole = fixture.compose(|packet| {
        for port in 1..=200 {
            packet.answers.push(srv(NAME, "db.example.com", port, 60));
        }
    });
    for byte in &whole {
        assert_eq!(fixture.outcome, None);
        fixture.bytes(std::slice::from_ref(byte));
    }
    assert_eq!(fixture.hosts().len(), 200);
}

/// RFC 6891, section 6.2.3: the requestor says how long a datagram it can receive.
#[test]
fn a_query_allows_answers_of_1232_bytes_over_udp() {
    for question in [srv_question(), Question::txt("a.example.com")] {
        let mut fixture = Fixture::new(question, 1);
        assert_eq!(fixture.udp_size(), Some(1232));
        fixture.reply(|packet| packet.set_flags(PacketFlag::TRUNCATION));
        assert_eq!((fixture.asked(), fixture.udp_size()), ((1, Transport::Tcp), Some(1232)));
    }
    // Sixteen hosts, which 512 bytes do not hold.
    let mut fixture = Fixture::new(srv_question(), 1);
    let hosts: Vec<_> = (0..16).map(|n| format!("shard-00-{n:02}.abcde.mongodb.net")).collect();
    let answer = fixture.compose(|packet| {
        packet.answers.extend(hosts.iter().map(|host| srv(NAME, host, 27017, 60)));
    });
    assert!((513..=1232).contains(&answer.len()), "{}", answer.len());
    assert_eq!(fixture.bytes(&answer).hosts().len(), 16);
}

/// RFC 6891, section 7: "Responders that choose not to implement the protocol extensions …
/// respond with a return code of FORMERR", and section 6.1.3 for BADVERS.
#[test]
fn a_server_that_knows_nothing_of_edns_is_asked_without_at_once() {
    for code in [RCODE::FormatError, RCODE::NotImplemented, RCODE::BADVERS] {
        for repeats in [true, false] {
            let mut fixture = Fixture::new(srv_question(), 2);
            let refusal = fixture.refusal(code, repeats);
            fixture.bytes(&refusal);
            assert_eq!(
                (fixture.asked(), fixture.udp_size()),
                ((1, Transport::Udp), None),
                "{code:?}"
            );
            // Its longer answers are to be had over TCP, also without.
            fixture.reply(|packet| packet.set_flags(PacketFlag::TRUNCATION));
            assert_eq!((fixture.asked(), fixture.udp_size()), ((1, Transport::Tcp), None));
            fixture.reply(|packet| packet.answers.push(srv(NAME, "db.example.com", 1, 60)));
            assert_eq!(fixture.hosts(), ["db.example.com:1"]);
        }
    }
    // Over TCP alike.
    let mut fixture = Fixture::new(srv_question(), 2);
    fixture.reply(|packet| packet.set_flags(PacketFlag::TRUNCATION));
    let refusal = fixture.refusal(RCODE::FormatError, true);
    fixture.bytes(&refusal);
    assert_eq!((fixture.asked(), fixture.udp_size()), ((1, Transport::Tcp), None));
    // Without EDNS it is not that: the next server's turn.
    let refusal = fixture.refusal(RCODE::FormatError, true);
    fixture.bytes(&refusal);
    assert_eq!((fixture.asked(), fixture.udp_size()), ((2, Transport::Udp), Some(1232)));
}

#[test]
fn a_server_that_gave_no_answer_is_asked_without_edns_in_its_next_turn() {
    let mut fixture = Fixture::new(srv_question(), 2);
    fixture.at(5000);
    assert_eq!((fixture.asked(), fixture.udp_size()), ((2, Transport::Udp), Some(1232)));
    fixture.reply(|packet| *packet.rcode_mut() = RCODE::ServerFailure);
    assert_eq!((fixture.asked(), fixture.udp_size()), ((1, Transport::Udp), None));
    fixture.fail();
    assert_eq!((fixture.asked(), fixture.udp_size()), ((2, Transport::Udp), None));
    let refusal = fixture.refusal(RCODE::NotImplemented, true);
    fixture.bytes(&refusal);
    assert!(fixture.error().contains("1 over UDP: connection refused"), "{}", fixture.error());
    assert!(
        fixture.error().ends_with("2 over UDP: it answered with NOTIMP"),
        "{}",
        fixture.error()
    );
}

#[test]
fn a_broken_tcp_answer_is_the_next_servers_turn() {
    let truncate = |packet: &mut Packet<'_>| packet.set_flags(PacketFlag::TRUNCATION);
    let mut fixture = Fixture::new(srv_question(), 2);
    fixture.reply(truncate).reply(truncate);
    assert_eq!(fixture.asked(), (2, Transport::Udp));
    fixture.reply(truncate).fail();
    assert_eq!(fixture.asked(), (1, Transport::Udp));
    fixture.reply(truncate);
    fixture.bytes(&[0, 12]).bytes(&[0xff; 12]);
    assert_eq!(fixture.asked(), (2, Transport::Udp));
}

#[test]
fn datagrams_that_answer_something_else_are_passed_over() {
    let mut fixture = Fixture::new(srv_question(), 1);
    fixture.reply(|packet| packet.set_id(packet.id().wrapping_add(1)));
    fixture.reply(|packet| packet.questions[0].qname = Name::new("evil.example.com").unwrap());
    fixture.reply(|packet| packet.questions.clear());
    let echo = fixture.asked.as_ref().unwrap().3.clone();
    fixture.bytes(&echo);
    assert_eq!(fixture.outcome, None);
    fixture.reply(|packet| packet.answers.push(srv(NAME, "db.example.com", 1, 60)));
    assert_eq!(fixture.hosts(), ["db.example.com:1"]);
}

#[test]
fn what_belongs_to_an_earlier_exchange_is_ignored() {
    let mut fixture = Fixture::new(srv_question(), 2);
    let (first, ..) = fixture.asked.clone().unwrap();
    let answer = fixture.compose(|packet| packet.answers.push(srv(NAME, "db.example.com", 1, 60)));
    fixture.at(5000);
    let (mut out, now) = (Vec::new(), fixture.now);
    fixture.lookup.handle(
        now.into(),
        Input::Received { exchange: first, bytes: &answer },
        &mut out,
    );
    let late = Input::Failed { exchange: first, detail: "late".into() };
    fixture.lookup.handle(now.into(), late, &mut out);
    assert_eq!(out, []);
}

#[test]
fn hosts_with_odd_characters_and_promises_of_many_records_are_malformed() {
    let question = srv_question();
    let mut fixture = Fixture::new(question.clone(), 1);
    let odd = |packet: &mut Packet<'_>| {
        packet.answers.push(srv(NAME, "evil\\.example.com", 1, 60));
    };
    fixture.reply(odd).reply(odd);
    assert!(fixture.error().contains("a host has characters that no host name may contain"));
    let mut bytes = message::query(&question, 7, false).unwrap();
    (bytes[2], bytes[6]) = (bytes[2] | 0x80, 0xff);
    let DnsReply::Failed(failure) = message::read(&bytes, &question, 7) else { panic!("it reads") };
    assert!(failure.to_string().contains("more records than it can hold"));
}

#[test]
fn names_that_dns_cannot_have_are_not_asked_for() {
    for (name, reason) in [
        ("a..b", "a part of it is empty"),
        (&"x".repeat(64), "a part of it has 64 bytes"),
        (&["x"; 130].join("."), "it has 259 bytes"),
        ("", "a part of it is empty"),
    ] {
        let fixture = Fixture::new(Question::txt(name), 1);
        assert!(fixture.error().contains(reason), "{}", fixture.error());
        assert!(fixture.asked.is_none());
    }
}

#[test]
fn resolv_conf_names_servers_and_patience() {
    let text =
        b"search x\nnameserver 10.0.0.1\nnameserver fe80::1%3\noptions timeout:2 attempts:9\n";
    let (servers, left_out) = NameServers::from_resolv_conf(text);
    assert_eq!(left_out, []);
    let addresses: Vec<String> = servers.addresses().iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.0.0.1:53", "[fe80::1%3]:53"]);
    let expected = NameServers::new(servers.addresses().to_vec());
    assert_eq!(servers, expected.timeout(Duration::from_secs(2)).attempts(5));
    for without in ["", "nameserver nonsense", "nameserver 127.0.0.1:53"] {
        let (own, _) = NameServers::from_resolv_conf(without.as_bytes());
        assert!(!own.addresses().is_empty());
        assert!(own.addresses().iter().all(|address| address.ip().is_loopback()));
    }
}

/// resolv.conf(5): the system's resolver leaves out what it does not understand, and so does this.
#[test]
fn what_is_odd_in_resolv_conf_is_left_out() {
    for (odd, reason) in [
        ("options nonsense", "an option that is unknown"),
        ("options ndots", "an option that is unknown"),
        ("options timeout:soon", "an option with a value that it cannot have"),
        ("nameserver 127.0.0.1:53", "an address that is none"),
        ("nameserver", "a value is missing"),
        ("nameserver a b", "an address that is none"),
        ("nameserver 10.0.0.2 10.0.0.3", "more than one value"),
        ("domain", "a value is missing"),
        ("whatever x", "a keyword that is unknown"),
        ("nameserver fe80::1%eth0", "an interface by its name; write its number"),
    ] {
        let text = format!("# odd\n{odd}\nnameserver 10.0.0.1\noptions attempts:3\n");
        let (servers, left_out) = NameServers::from_resolv_conf(text.as_bytes());
        let last = servers.addresses().last().map(ToString::to_string);
        assert_eq!(last.as_deref(), Some("10.0.0.1:53"), "{odd}");
        assert_eq!(servers, NameServers::new(servers.addresses().to_vec()).attempts(3));
        let left_out: Vec<_> = left_out.iter().map(ToString::to_string).collect();
        assert_eq!(left_out, [format!("line 2 ({odd:?}): {reason}, which is left out")]);
    }
    let (servers, left_out) =
        NameServers::from_resolv_conf(b"nameserver 10.0.0.1\nsearch \xff\n; \xff\n");
    assert_eq!((servers.addresses().len(), left_out.len()), (1, 1));
    assert!(left_out[0].to_string().contains("line 2"), "{left_out:?}");
}

proptest! {
    #[test]
    fn any_bytes_are_a_reply_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        message::read(&bytes, &srv_question(), 7);
    }

    #[test]
    fn a_damaged_answer_is_a_reply_or_an_error(
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        length in any::<proptest::sample::Index>(),
    ) {
        let mut fixture = Fixture::new(srv_question(), 1);
        let mut bytes = fixture.compose(|packet| {
            packet.answers.push(alias(NAME, "one.example.com"));
            packet.answers.push(srv("one.example.com", "db.example.com", 1, 60));
            packet.answers.push(text(&["a", "b"]));
        });
        for (place, value) in damage {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        bytes.truncate(length.index(bytes.len()) + 1);
        fixture.bytes(&bytes);
    }

    #[test]
    fn a_stream_split_anywhere_is_the_same_stream(
        sizes in proptest::collection::vec(1..9_usize, 1..60),
    ) {
        let mut fixture = Fixture::new(srv_question(), 1);
        fixture.reply(|packet| packet.set_flags(PacketFlag::TRUNCATION));
        let bytes = fixture.compose(|packet| {
            packet.answers.push(srv(NAME, "db.example.com", 1, 60));
        });
        let mut rest = &bytes[..];
        for size in sizes.into_iter().cycle() {
            let (now, later) = rest.split_at(size.min(rest.len()));
            fixture.bytes(now);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(fixture.hosts(), ["db.example.com:1"]);
    }
}
