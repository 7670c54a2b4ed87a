//! Nothing that is secret gets into a trace.

use std::sync::Arc;

use super::world::{Event, URI, World};
use crate::failure::{Cause, Failure, Stage};
use crate::id::{LinkId, ServerId, WaiterId};
use crate::selection::Criteria;
use crate::time::Instant;
use crate::topology::Input;
use crate::trace::{Replay, Trace};

#[test]
fn no_secret_that_is_planted_is_in_a_trace_and_it_replays_all_the_same() {
    let uri = "mongodb://PLANTED-USER:PLANTED-PASSWORD@a.example,b.example:27018/\
               ?replicaSet=rs0&tls=true&tlsCertificateKeyFile=%2FPLANTED-FILE\
               &tlsCertificateKeyFilePassword=PLANTED-KEY&proxyHost=PLANTED-PROXY&\
               proxyUsername=PLANTED-PROXY-USER&proxyPassword=PLANTED-PROXY-PASSWORD\
               &appName=PLANTED-APP\
               &authMechanismProperties=SERVICE_NAME:PLANTED-PROPERTY&authMechanism=GSSAPI\
               &readPreference=nearest&readPreferenceTags=x:PLANTED-TAG";
    let mut world = World::new(uri);
    for choice in 0..20 {
        world.happen(Event::Opened(choice));
        // Whole, and in two parts: signatures are in both.
        world.happen(Event::Reply(choice, choice, u16::from(choice % 2)));
        world.happen(Event::Failed(choice % 2, choice));
        world.happen(Event::Failed(choice % 2, choice));
        world.happen(Event::Wait(4 + choice));
        world.sleep(900);
    }
    let text = world.text();
    let planted = text.lines().find(|line| {
        let line = line.to_ascii_uppercase();
        // The same, in base64.
        ["PLANTED", "UEXBTLRFR", "QU5URU", "TEFOVEVE"].iter().any(|word| line.contains(word))
    });
    assert_eq!(planted, None);
    let told =
        ["operation-failed", "(message 1)", "(message 2)", "\"hash\":", "> wake w", "> pool"];
    for word in told {
        assert!(text.contains(word), "{word} is missing in:\n{text}");
    }
    let trace = Trace::parse(&text).unwrap();
    assert_eq!(Replay::new(&trace).unwrap().finish(), Ok(()));
}

#[test]
fn a_file_of_certificates_that_cannot_be_read_is_not_named() {
    let mut world = World::new(URI);
    let (criteria, deadline) = (Arc::new(Criteria::write()), Some(Instant::from_millis(3000)));
    world.input(Input::Wait { waiter: WaiterId(1), criteria, deadline });
    for server in [0, 1] {
        let link = LinkId { server: ServerId(server), number: 0 };
        let detail = format!("cannot read the tlsCAFile /PLANTED/{server}.pem: no such file");
        let failure = Failure::new(Stage::Certificates, Cause::Configuration, detail);
        world.input(Input::Closed { link, failure });
    }
    world.sleep(4000);
    let text = world.text();
    assert!(!text.contains("PLANTED"), "{text}");
    let told = [
        r#"closed s0.0 {"stage":"certificates","cause":"configuration","detail":"(message 1)"}"#,
        r#""verdict":"certificatesUnavailable""#,
        r#""detail":"(message 2)"}"#,
        "> pool s1 clear",
        "> wake w1 {",
    ];
    for word in told {
        assert!(text.contains(word), "{word} is missing in:\n{text}");
    }
    assert_eq!(Replay::new(&Trace::parse(&text).unwrap()).unwrap().finish(), Ok(()));
}
