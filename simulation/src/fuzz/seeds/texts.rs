//! Seeds of texts and of small binary protocols: connection strings, DNS, SCRAM, SOCKS5.

use super::super::dns::{HOSTNAME, Kind};
use super::Seed;

pub(in crate::fuzz) fn uri() -> Vec<Seed> {
    let texts = [
        ("hosts", "mongodb://A.example,10.0.0.1:1,[FE80::1]:2,[::1]"),
        ("sockets", "mongodb://%2Ftmp%2FM%20%C3%BC.sock,x.sock,rel%2fy.sock/db"),
        ("user-info", "mongodb://%40l%3Ace%2F:p%25@h/%64b?authSource=so%26urce"),
        ("user-info-unescaped", "mongodb://u:pass/word@h:27017/?appName=x"),
        ("srv", "mongodb+srv://u:p@A.example.com/db?srvMaxHosts=2&srvServiceName=s&tls=false"),
        ("srv-with-port", "mongodb+srv://a.example.com:1"),
        ("topology", "mongodb://a,b/?replicaSet=my%20s%26t&directConnection=false"),
        ("direct", "mongodb://a/?directConnection=true&serverMonitoringMode=poll"),
        ("load-balanced", "mongodb://a/?loadBalanced=true&replicaSet=x"),
        (
            "times",
            "mongodb://a/?heartbeatFrequencyMS=600&localThresholdMS=0&connectTimeoutMS=0\
             &serverSelectionTimeoutMS=0&socketTimeoutMS=7&timeoutMS=1&maxIdleTimeMS=9",
        ),
        ("pools", "mongodb://a/?maxPoolSize=7&minPoolSize=3&maxConnecting=5&waitQueueTimeoutMS=8"),
        (
            "reads-and-writes",
            "mongodb://a/?readPreference=nearest&readPreferenceTags=dc:n%26y,rack:1\
             &readPreferenceTags=&maxStalenessSeconds=90&readConcernLevel=majority&w=my%20mode\
             &journal=true&wTimeoutMS=9223372036854775807&retryReads=false",
        ),
        (
            "tls",
            "mongodb://a/?tls=true&tlsCAFile=/etc/c%C3%A4.pem&tlsCertificateKeyFile=a%26b\
             &tlsInsecure=true&tlsAllowInvalidHostnames=true",
        ),
        (
            "proxy",
            "mongodb://a/?proxyHost=::1&proxyPort=1081&proxyUsername=u%40&proxyPassword=p%26",
        ),
        (
            "mechanism",
            "mongodb://u:p@a/?authMechanism=MONGODB-AWS\
             &authMechanismProperties=AWS_SESSION_TOKEN:t%3A,X:y",
        ),
        ("x509", "mongodb://a/?authMechanism=MONGODB-X509&tls=true"),
        ("oidc", "mongodb://a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s"),
        ("compressors", "mongodb://a/?compressors=zstd,snappy,zlib,lz4&zlibCompressionLevel=10"),
        ("repeated", "mongodb://a/?w=1&w=2&appname=x&appName=y"),
        ("unknown", "mongodb://a/?what=ever&appName=&=x&&tls=maybe"),
        ("malformed", "mongodb://a/?appName"),
        ("escape-cut", "mongodb://a/?appName=%e"),
        ("escape-not-utf-8", "mongodb://%ff"),
        ("no-host", "mongodb://u:p@,/"),
        ("port-too-large", "mongodb://a:65536"),
        ("other-scheme", "http://a"),
        ("at-signs", "mongodb://u:p@q@h/d@b?x@y=z"),
    ];
    texts.iter().map(|(name, text)| Seed::new(*name, *text)).collect()
}

pub(in crate::fuzz) fn socks5() -> Vec<Seed> {
    let opened = [5, 0, 0, 1, 10, 0, 0, 1, 0x69, 0x89];
    // The first byte: whether there is a password, and in which parts.
    let of = |name: &str, first: u8, parts: &[&[u8]]| {
        Seed::new(name, [&[first][..], &parts.concat()].concat())
    };
    vec![
        of("opened", 0, &[&[5, 0], &opened, b"hello"]),
        of("opened-with-password", 5, &[&[5, 2, 1, 0], &opened, b"hello"]),
        of("opened-by-name", 3, &[&[5, 0, 5, 0, 0, 3, 3], b"abc", &[0, 1], b"!"]),
        of("opened-by-name-without-letters", 3, &[&[5, 0, 5, 0, 0, 3, 0, 0, 1]]),
        of("opened-by-ipv6", 3, &[&[5, 0, 5, 0, 0, 4], &[0; 18], b"!"]),
        of("not-yet", 0, &[&[5, 0, 5, 0, 0, 1, 10]]),
        of("unknown-type-of-address", 0, &[&[5, 0, 5, 0, 0, 2]]),
        of("no-acceptable-method", 1, &[&[5, 0xff]]),
        of("password-not-offered", 0, &[&[5, 2]]),
        of("password-refused", 1, &[&[5, 2, 1, 1]]),
        of("refused", 0, &[&[5, 0, 5, 5]]),
        of("http", 0, &[b"HTTP/1.1 400 Bad Request"]),
        of("socks4", 0, &[&[4, 0]]),
        of("nothing", 9, &[]),
    ]
}

/// The signatures that only a server which knows the password can make, worked out once.
const FIRST: &str = "r={nonce}server,s=c2FsdCBvZiAxNiBieXRlcw==,i=4096";
const SHA_1: &str = "v=N4/7ugpJVotcZWXscNvcG5QRG38=";
const SHA_256: &str = "v=wNvEQGymx4w2Mn6Bp1qv3UDCPmJ5yh3/RBX+RsTdvUM=";

pub(in crate::fuzz) fn scram() -> Vec<Seed> {
    // The first byte: `4` and `5` try the first step with hello, `2` and `3` do not; even ones are
    // SHA-1, odd ones SHA-256.
    let of = |name: &str, first: char, lines: &[&str]| {
        Seed::new(name, format!("{first}{}", lines.join("\n")))
    };
    let (first, sha_1, sha_256) = (format!(".{FIRST}"), format!("!{SHA_1}"), format!("!{SHA_256}"));
    let go_on = format!(".{SHA_256}");
    vec![
        of("honest-sha-1", '2', &[&first, &sha_1]),
        of("honest-sha-256", '3', &[&first, &sha_256]),
        of("honest-with-hello", '5', &[&first, &sha_256]),
        of("honest-one-more-exchange", '3', &[&first, &go_on, "!"]),
        of("one-more-without-end", '3', &[&first, &go_on, ".", "."]),
        of("other-signature", '3', &[&first, &sha_1]),
        of("no-signature", '3', &[&first, "!"]),
        of("signature-not-base64", '3', &[&first, "!v=?"]),
        of("signature-cut", '3', &[&first, "!v=wNvEQGymx4w2"]),
        of("error", '3', &[&first, "!e=invalid-proof"]),
        of("done-at-once", '3', &["!"]),
        of("done-with-first", '3', &[&format!("!{FIRST}")]),
        of("nonce-not-continued", '3', &[".r=x,s=AAAA,i=4096"]),
        of("nonce-without-addition", '3', &[".r={nonce},s=AAAA,i=4096"]),
        of("few-iterations", '3', &[".r={nonce}x,s=AAAA,i=4095"]),
        of("many-iterations", '3', &[".r={nonce}x,s=AAAA,i=99999999999999999999"]),
        of("salt-not-base64", '3', &[".r={nonce}x,s=?,i=4096"]),
        of("salt-empty", '3', &[".r={nonce}x,s=,i=4096", "!v="]),
        of("extension", '3', &[".m=x,r={nonce}x,s=AAAA,i=4096"]),
        of("refused", '3', &["xAuthentication failed."]),
        of("refused-after-proof", '2', &[&first, "xAuthentication failed."]),
        of("wrong-type", '3', &["?"]),
        of("silent", '3', &[]),
    ]
}

pub(in crate::fuzz) fn dns() -> Vec<Seed> {
    let srv = |name: &str, kind: Kind, answers: &[Vec<u8>]| {
        let name_asked = format!("_mongodb._tcp.{HOSTNAME}");
        Seed::new(name, answer(kind, &name_asked, 33, 0x8180, answers))
    };
    let to = |target: &str, port: u16| record(SRV_NAME, 33, 60, &srv_data(target, port));
    let txt = |text: &[&str]| {
        let data: Vec<u8> = text.iter().flat_map(|part| string(part)).collect();
        record(HOSTNAME, 16, 60, &data)
    };
    let texts = |name: &str, answers: &[Vec<u8>]| {
        Seed::new(name, answer(Kind::TxtOverUdp, HOSTNAME, 16, 0x8180, answers))
    };
    let lines = |name: &str, text: &str| {
        Seed::new(name, [&[Kind::Records as u8 + 8][..], text.as_bytes()].concat())
    };
    let status = |name: &str, flags: u16| {
        Seed::new(name, answer(Kind::SrvOverUdp, SRV_NAME, 33, flags, &[]))
    };
    // What servers with EDNS add, and what those without it answer.
    let edns = |name: &str, flags: u16, upper_code: u8, answers: &[Vec<u8>]| {
        let mut message = answer(Kind::SrvOverUdp, SRV_NAME, 33, flags, answers);
        message[12] = 1;
        message.extend([0, 0, 41, 4, 208, upper_code, 0, 0, 0, 0, 0]);
        Seed::new(name, message)
    };
    let alias = record(SRV_NAME, 5, 60, &labels("c.example.com"));
    let of_alias = record("c.example.com", 33, 60, &srv_data("b.example.com", 1));
    let circle = record(SRV_NAME, 5, 60, &labels(SRV_NAME));
    vec![
        srv("srv", Kind::SrvOverUdp, &[to("b.example.com", 27017), to("C.Example.com", 1)]),
        srv("srv-over-tcp", Kind::SrvOverTcp, &[to("b.example.com", 27017)]),
        srv("srv-outside", Kind::SrvOverUdp, &[to("b.example.org", 27017)]),
        srv("srv-suffix-only", Kind::SrvOverUdp, &[to("bexample.com", 27017)]),
        srv("srv-domain-itself", Kind::SrvOverUdp, &[to("example.com", 27017)]),
        srv("srv-root", Kind::SrvOverUdp, &[to("", 27017)]),
        srv("srv-port-zero", Kind::SrvOverUdp, &[to("b.example.com", 0)]),
        srv("srv-odd-host", Kind::SrvOverUdp, &[to("b/c.example.com", 1)]),
        srv(
            "srv-ttl-negative",
            Kind::SrvOverUdp,
            &[record(SRV_NAME, 33, u32::MAX, &srv_data("b.example.com", 1))],
        ),
        srv("alias", Kind::SrvOverUdp, &[alias, of_alias]),
        srv("alias-circle", Kind::SrvOverUdp, &[circle]),
        status("no-records", 0x8180),
        status("no-such-name", 0x8183),
        status("refused", 0x8185),
        status("cut", 0x8380),
        status("a-query", 0x0100),
        status("format-error", 0x8181),
        status("not-implemented", 0x8184),
        edns("edns", 0x8180, 0, &[to("b.example.com", 27017)]),
        edns("edns-bad-version", 0x8180, 1, &[]),
        texts("txt", &[txt(&["authSource=thisDB&", "replicaSet=rs"])]),
        texts("txt-twice", &[txt(&["authSource=a"]), txt(&["replicaSet=b"])]),
        texts("txt-other-option", &[txt(&["tls=false"])]),
        texts("txt-load-balanced", &[txt(&["loadBalanced=true"])]),
        texts("txt-empty", &[txt(&[""])]),
        lines("records", "b.example.com 27017\nC.example.com. 1\nb.example.com 27017"),
        lines("records-outside", "b.example.com 1\nb.example.com.evil.org 1"),
        lines("records-odd", "b c.example.com 1\n.example.com 1\n..example.com 0"),
        lines("records-none", ""),
        Seed::new("short", [0, 1, 2, 3]),
    ]
}

const SRV_NAME: &str = "_mongodb._tcp.a.example.com";

/// An answer to a question; over TCP its length precedes it.
fn answer(kind: Kind, name: &str, record_type: u16, flags: u16, answers: &[Vec<u8>]) -> Vec<u8> {
    let count = u16::try_from(answers.len()).expect("a few records");
    let mut message: Vec<u8> = vec![0, 0];
    for field in [flags, 1, count, 0, 0] {
        message.extend(field.to_be_bytes());
    }
    message.extend(labels(name));
    message.extend(record_type.to_be_bytes());
    message.extend([0, 1]);
    message.extend(answers.concat());
    let length = u16::try_from(message.len()).expect("a short message").to_be_bytes();
    // The first byte: what it is, and for TCP in parts of six.
    match kind {
        Kind::SrvOverTcp => [&[kind as u8 + 4 * 5][..], &length, &message].concat(),
        kind => [&[kind as u8][..], &message].concat(),
    }
}

fn record(name: &str, record_type: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).expect("short data");
    let mut record = labels(name);
    record.extend(record_type.to_be_bytes());
    record.extend([0, 1]);
    record.extend(ttl.to_be_bytes());
    record.extend(length.to_be_bytes());
    record.extend_from_slice(data);
    record
}

fn srv_data(target: &str, port: u16) -> Vec<u8> {
    let mut data = vec![0, 1, 0, 2];
    data.extend(port.to_be_bytes());
    data.extend(labels(target));
    data
}

fn labels(name: &str) -> Vec<u8> {
    let parts = name.split('.').filter(|part| !part.is_empty());
    parts.flat_map(string).chain([0]).collect()
}

fn string(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).expect("a short text");
    [&[length][..], text.as_bytes()].concat()
}
