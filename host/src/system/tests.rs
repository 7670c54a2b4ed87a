//! The requests to the operating system, and the lines in the application's log.

use std::sync::Mutex;

use sdam_core::config::Options;
use sdam_core::dns::{LeftOut, NameServers, Question};

use crate::system::log_lines::{log_lines, log_lines_with};
use crate::system::{
    client_seed, environment, log_left_out, log_warnings, lookup_seed, name_servers, nonce,
    servers_of,
};

fn told(uri: &str) -> Vec<String> {
    let options = Options::parse(uri).expect("options");
    log_lines(|| log_warnings(&options))
}

#[test]
fn what_a_connection_string_contains_in_vain_is_told() {
    assert_eq!(told("mongodb://a/?tls=true"), [""; 0]);
    let lines = told("mongodb://a/?fooBar=1");
    assert_eq!(lines, ["options: ignored option \"fooBar\", which is unknown"]);
}

#[test]
fn servers_that_need_not_prove_who_they_are_are_told() {
    let any = "any certificate of a server is accepted";
    let of_others = "certificates of servers may be for other names";
    for (option, wanted) in [
        ("tlsInsecure", any),
        ("tlsAllowInvalidCertificates", any),
        ("tlsAllowInvalidHostnames", of_others),
    ] {
        let lines = told(&format!("mongodb://a/?{option}=true"));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(wanted) && lines[0].contains("tlsInsecure"), "{lines:?}");
        assert_eq!(told(&format!("mongodb://a/?{option}=false")), [""; 0]);
        assert_eq!(told(&format!("mongodb://a/?tls=false&{option}=true")), [""; 0]);
    }
}

#[test]
fn an_option_that_accepts_revoked_certificates_is_told() {
    let option = "tlsDisableCertificateRevocationCheck";
    let lines = told(&format!("mongodb://a/?{option}=true"));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains(option) && lines[0].contains("revoked"), "{lines:?}");
    assert_eq!(told(&format!("mongodb://a/?{option}=false")), [""; 0]);
    let lines = told("mongodb://a/?tlsDisableOCSPEndpointCheck=true");
    let is_of_no_effect = cfg!(not(feature = "ocsp"));
    assert_eq!(lines.len(), usize::from(is_of_no_effect), "{lines:?}");
}

#[test]
fn random_bytes_differ() {
    let question = Question::txt("a.example");
    assert_ne!(client_seed().expect("a seed"), client_seed().expect("a seed"));
    assert_ne!(lookup_seed(&question).expect("a seed"), lookup_seed(&question).expect("a seed"));
    assert_ne!(nonce().expect("bytes"), nonce().expect("bytes"));
}

#[test]
fn what_is_odd_in_resolv_conf_is_told_once() {
    let text = b"nameserver 127.0.0.1:53\nnameserver 10.0.0.1\n";
    let read = || {
        let servers = servers_of(text);
        assert_eq!(servers.addresses(), [([10, 0, 0, 1], 53).into()]);
    };
    let expected = "/etc/resolv.conf, line 1 (\"nameserver 127.0.0.1:53\"): an address that is \
                    none, which is left out";
    assert_eq!(log_lines(read), [expected]);
    assert_eq!(log_lines(read), [""; 0]);
}

#[test]
fn this_machine_names_its_name_servers_or_says_that_its_file_does_not() {
    match name_servers(&Question::txt("a.example")) {
        Ok(servers) => assert!(servers.addresses().iter().all(|address| address.port() == 53)),
        Err(error) => assert!(error.to_string().contains("/etc/resolv.conf"), "{error}"),
    }
    assert_eq!(environment(), environment());
}

/// The log of an application may look up names itself, as a line is written.
#[test]
fn no_lock_is_held_while_it_is_logged_that_lines_are_left_out() {
    static LOGGED: Mutex<Vec<LeftOut>> = Mutex::new(Vec::new());
    let (_, left_out) = NameServers::from_resolv_conf(b"nameserver 10.0.0.1\nwhatever x\n");
    let is_free = || assert!(LOGGED.try_lock().is_ok(), "a lookup would wait for ever");
    let lines = log_lines_with(is_free, || log_left_out(&LOGGED, &left_out));
    assert!(matches!(&lines[..], [line] if line.contains("whatever")), "{lines:?}");
    let lines = log_lines_with(is_free, || log_left_out(&LOGGED, &left_out));
    assert!(lines.is_empty(), "they are no news");
}
