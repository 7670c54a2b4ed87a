//! Questions and answers as bytes.

use std::time::Duration;

use simple_dns::rdata::{OPT, RData};
use simple_dns::{
    CLASS, Label, Name, OPCODE, Packet, PacketFlag, QCLASS, QTYPE, RCODE, ResourceRecord, TYPE,
};

use super::{DnsRecords, MAX_RECORDS, NameError, Question, RecordType, ServerFailure};
use crate::dns::srv::SrvRecord;

/// The length of the header of every message.
const HEADER_LEN: usize = 12;

/// The longest answer over UDP that a query allows: what passes through all networks in one piece
/// (RFC 6891, section 6.2.5; DNS Flag Day 2020).
pub(super) const MAX_DATAGRAM_LEN: u16 = 1232;

/// The type of the record of EDNS (RFC 6891, section 6.1.1).
const OPT_TYPE: [u8; 2] = 41_u16.to_be_bytes();

/// The shortest record, with the root as its name.
const MIN_RECORD_LEN: usize = 11;

/// The longest name and the longest of its parts, as text.
const MAX_NAME_LEN: usize = 253;
const MAX_PART_LEN: usize = 63;

/// The number of aliases (CNAME) that a name server may follow in its answer.
const MAX_ALIASES: usize = 8;

/// The longest time to live (RFC 2181, section 8: the first bit is no part of it).
const MAX_TTL: u32 = i32::MAX as u32;

/// The meaning of a message for the lookup.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DnsReply {
    /// Records.
    Records(DnsRecords),
    /// The name does not exist.
    NoSuchName,
    /// The name has no such records.
    NoRecords,
    /// The message did not fit; it is to be had over TCP.
    Truncated,
    /// It answers something else: an earlier question, or nothing that was asked.
    Foreign,
    /// The server does not understand the query, as those do that know nothing of EDNS.
    NotUnderstood(&'static str),
    /// The server cannot help.
    Failed(ServerFailure),
}

/// Writes a question for a recursive name server, with or without EDNS.
pub(super) fn query(question: &Question, id: u16, edns: bool) -> Result<Vec<u8>, NameError> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let (name, record_type) = (name(&question.name)?, type_of(question));
    let class = QCLASS::CLASS(CLASS::IN);
    packet.questions.push(simple_dns::Question::new(name, record_type.into(), class, false));
    if edns {
        let udp_packet_size = MAX_DATAGRAM_LEN;
        *packet.opt_mut() = Some(OPT { opt_codes: Vec::new(), udp_packet_size, version: 0 });
    }
    let bytes = packet.build_bytes_vec();
    Ok(bytes.expect("a checked name can be written to memory"))
}

fn type_of(question: &Question) -> TYPE {
    match question.record_type {
        RecordType::Srv => TYPE::SRV,
        RecordType::Txt => TYPE::TXT,
    }
}

fn name(text: &str) -> Result<Name<'_>, NameError> {
    if text.len() > MAX_NAME_LEN {
        return Err(NameError::TooLong(text.len()));
    }
    let parts = text.split('.').map(|part| match part.len() {
        0 => Err(NameError::EmptyPart),
        length if length > MAX_PART_LEN => Err(NameError::LongPart(length)),
        _ => Ok(Label::new_unchecked(part.as_bytes())),
    });
    Ok(Name::new_with_labels(&parts.collect::<Result<Vec<_>, _>>()?))
}

/// Reads what came from a name server that was asked `question` under `id`.
pub(super) fn read(bytes: &[u8], question: &Question, id: u16) -> DnsReply {
    let Some(header) = bytes.get(..HEADER_LEN) else {
        return malformed("it is shorter than a header");
    };
    let is_response = header[2] & 0x80 != 0;
    if [header[0], header[1]] != id.to_be_bytes() || !is_response {
        return DnsReply::Foreign;
    }
    // A message that was cut need not be whole, so that nothing more is read of it.
    if header[2] & 0x02 != 0 {
        return DnsReply::Truncated;
    }
    let counts = header[4..].chunks_exact(2);
    let records: usize =
        counts.map(|count| usize::from(u16::from_be_bytes([count[0], count[1]]))).sum();
    // The decoder makes room for as many as the header promises.
    if records.saturating_sub(1) * MIN_RECORD_LEN > bytes.len() {
        return malformed("it promises more records than it can hold");
    }
    if records > MAX_RECORDS {
        return malformed("it has more than 1000 records");
    }
    // The decoder looks for the upper bits elsewhere.
    let code = u16::from(upper_code(bytes).unwrap_or(0)) << 4 | u16::from(header[3] & 0x0f);
    match Packet::parse(bytes) {
        Ok(packet) => interpret(&packet, code.into(), question),
        Err(_) => malformed("it is no DNS message"),
    }
}

/// Returns the upper eight bits of the response code, if there is a record of EDNS that has them
/// (RFC 6891, section 6.1.3).
fn upper_code(message: &[u8]) -> Option<u8> {
    let (header, mut rest) = message.split_at_checked(HEADER_LEN)?;
    let [questions, answers, authorities, others] =
        [4, 6, 8, 10].map(|at| u16::from_be_bytes([header[at], header[at + 1]]));
    for _ in 0..questions {
        rest = after_name(rest)?.get(4..)?;
    }
    for _ in 0..u32::from(answers) + u32::from(authorities) + u32::from(others) {
        // Type, class, time to live, and the length of the data.
        let (fixed, data) = after_name(rest)?.split_first_chunk::<10>()?;
        if fixed[..2] == OPT_TYPE {
            return Some(fixed[4]);
        }
        rest = data.get(u16::from_be_bytes([fixed[8], fixed[9]]).into()..)?;
    }
    None
}

/// Returns what follows a name, which may end in a reference to another.
fn after_name(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let (&length, rest) = bytes.split_first()?;
        match length {
            0 => return Some(rest),
            0xc0.. => return rest.get(1..),
            _ => bytes = rest.get(length.into()..)?,
        }
    }
}

const fn malformed(detail: &'static str) -> DnsReply {
    DnsReply::Failed(ServerFailure::Malformed(detail))
}

fn interpret(packet: &Packet<'_>, code: RCODE, question: &Question) -> DnsReply {
    let Ok(wanted) = name(&question.name) else { return DnsReply::Foreign };
    let asked = packet.questions.iter().any(|asked| {
        same(&asked.qname, &wanted)
            && asked.qtype == QTYPE::TYPE(type_of(question))
            && asked.qclass == QCLASS::CLASS(CLASS::IN)
    });
    // A server that could not even read the question repeats none.
    let empty = packet.questions.is_empty();
    if !asked && (!empty || matches!(code, RCODE::NoError | RCODE::NameError)) {
        return DnsReply::Foreign;
    }
    if packet.opcode() != OPCODE::StandardQuery || packet.questions.len() > 1 {
        return malformed("it answers more than one question, or not a question");
    }
    match code {
        RCODE::NoError => answer(&packet.answers, wanted, question.record_type),
        RCODE::NameError => DnsReply::NoSuchName,
        RCODE::FormatError | RCODE::NotImplemented | RCODE::BADVERS => {
            DnsReply::NotUnderstood(code_name(code))
        }
        code => DnsReply::Failed(ServerFailure::Refused(code_name(code))),
    }
}

const fn code_name(code: RCODE) -> &'static str {
    match code {
        RCODE::FormatError => "FORMERR",
        RCODE::ServerFailure => "SERVFAIL",
        RCODE::NotImplemented => "NOTIMP",
        RCODE::Refused => "REFUSED",
        RCODE::BADVERS => "BADVERS",
        _ => "an error that no lookup should meet",
    }
}

/// DNS names are case-insensitive.
fn same(a: &Name<'_>, b: &Name<'_>) -> bool {
    a.as_bytes().count() == b.as_bytes().count()
        && a.as_bytes().zip(b.as_bytes()).all(|(a, b)| a.eq_ignore_ascii_case(b))
}

/// Collects the records of the name that was asked for, or of what the server says it is an alias
/// of; others are passed over.
fn answer<'a>(
    records: &'a [ResourceRecord<'a>],
    mut name: Name<'a>,
    record_type: RecordType,
) -> DnsReply {
    let of_class = || records.iter().filter(|record| record.class == CLASS::IN);
    for _ in 0..=MAX_ALIASES {
        let own = of_class().filter(|record| same(&record.name, &name));
        let found = match record_type {
            RecordType::Srv => srv_records(own).map(DnsRecords::Srv),
            RecordType::Txt => txt_records(own).map(DnsRecords::Txt),
        };
        match found {
            Ok(DnsRecords::Srv(records)) if records.is_empty() => {}
            Ok(DnsRecords::Txt(records)) if records.is_empty() => {}
            Ok(answer) => return DnsReply::Records(answer),
            Err(detail) => return malformed(detail),
        }
        let alias = of_class().find_map(|record| match &record.rdata {
            RData::CNAME(target) if same(&record.name, &name) => Some(target.0.clone()),
            _ => None,
        });
        match alias {
            Some(target) => name = target,
            None => return DnsReply::NoRecords,
        }
    }
    malformed("it has more aliases than are followed")
}

fn srv_records<'a>(
    records: impl Iterator<Item = &'a ResourceRecord<'a>>,
) -> Result<Vec<SrvRecord>, &'static str> {
    let mut found = Vec::new();
    for record in records {
        if let RData::SRV(srv) = &record.rdata {
            let (host, port) = (host(&srv.target)?, srv.port);
            found.push(SrvRecord::new(host, port, ttl(record)));
        }
    }
    Ok(found)
}

/// The decoder shows a dot or an odd byte inside a part in some way of its own: those are refused.
fn host(name: &Name<'_>) -> Result<String, &'static str> {
    let mut text = String::new();
    for part in name.as_bytes() {
        let part = std::str::from_utf8(part).ok().filter(|part| {
            part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        });
        text.push_str(if text.is_empty() { "" } else { "." });
        text.push_str(part.ok_or("a host has characters that no host name may contain")?);
    }
    Ok(text)
}

fn ttl(record: &ResourceRecord<'_>) -> Duration {
    let seconds = if record.ttl > MAX_TTL { 0 } else { record.ttl };
    Duration::from_secs(seconds.into())
}

fn txt_records<'a>(
    records: impl Iterator<Item = &'a ResourceRecord<'a>>,
) -> Result<Vec<String>, &'static str> {
    let mut found = Vec::new();
    for record in records {
        if let RData::TXT(txt) = &record.rdata {
            let text = String::try_from(txt.clone());
            found.push(text.map_err(|_| "a text is not UTF-8")?);
        }
    }
    Ok(found)
}
