//! The errors of operations that have waited for a server without success.

use std::sync::Arc;
use std::time::Duration;

use bson::{cstr, rawdoc};
use sdam_core::config::{ReadMode, ReadPreference, TagSet};
use sdam_core::diagnosis::{SelectionError, Verdict};
use sdam_core::failure::{Cause, Failure, Stage as Step};
use sdam_core::selection::{Criteria, Reason};
use sdam_core::topology::Input;

use super::fixture::{Fixture, member, ms, ok, primary, secondary, standalone};
use super::waiting::{HOSTS, POLLING, error, read};

/// The verdict on a write after each of these servers has failed like that.
fn verdict(uri: &str, failures: &[(&str, Step, Cause)]) -> Verdict {
    let mut fixture = Fixture::new(uri);
    for (link, step, cause) in failures {
        let link = fixture.link(link);
        let failure = Failure::new(*step, cause.clone(), "it failed");
        fixture.input(Input::Closed { link, failure });
    }
    error(&mut fixture, Criteria::write()).verdict
}

#[test]
fn verdicts_tell_what_the_failures_have_in_common() {
    let uri = "mongodb://a,b/?replicaSet=rs";
    let both =
        |step, cause: Cause| verdict(uri, &[("a.0", step, cause.clone()), ("b.0", step, cause)]);
    let (at, lasts) = (Some(Step::Connect), Duration::ZERO);
    assert_eq!(verdict(uri, &[]), Verdict::NoAnswerYet { stage: at, lasts });
    assert_eq!(both(Step::Resolve, Cause::NotResolved), Verdict::NamesDoNotResolve);
    assert_eq!(both(Step::Resolve, Cause::LookupFailed), Verdict::LookupFailed { reason: None });
    assert_eq!(both(Step::Connect, Cause::Refused), Verdict::ConnectionRefused);
    assert_eq!(both(Step::Connect, Cause::Timeout), Verdict::NoAnswer);
    assert_eq!(both(Step::Hello, Cause::Closed), Verdict::TlsExpected { certain: false });
    assert_eq!(both(Step::Tls, Cause::Closed), Verdict::TlsNotExpected { certain: false });
    assert_eq!(both(Step::Tls, Cause::UnknownIssuer), Verdict::CertificatesRefused);
    assert_eq!(both(Step::Tls, Cause::CertificateRevoked).name(), "certificateRevoked");
    assert_eq!(both(Step::Tls, Cause::InvalidStaple).name(), "stapleInvalid");
    for cause in [Cause::Timeout, Cause::Configuration] {
        assert_eq!(both(Step::Certificates, cause).name(), "certificatesUnavailable");
    }
    assert_eq!(both(Step::Proxy, Cause::NotResolved), Verdict::ProxyFailed);
    let with_tls = "mongodb://a/?tls=true";
    let closed = [("a.0", Step::Hello, Cause::Closed)];
    assert_eq!(verdict(with_tls, &closed), Verdict::NoServerAvailable, "it speaks TLS already");
    let mixed = [("a.0", Step::Connect, Cause::Refused), ("b.0", Step::Connect, Cause::Timeout)];
    assert_eq!(verdict(uri, &mixed), Verdict::NoServerAvailable);
    let half = &mixed[..1];
    assert_eq!(verdict(uri, half), Verdict::NoServerAvailable, "b has not refused anything");
}

/// A client of which a seed is a member of a set that lists `a` and `b` only.
fn guided(uri: &str) -> Fixture {
    let mut fixture = Fixture::new(uri);
    fixture.greet("seed.0", &primary("a", &HOSTS, 1));
    assert_eq!(fixture.summary(), "ReplicaSetNoPrimary a=Unknown b=Unknown");
    fixture
}

fn is_elsewhere(error: &SelectionError) -> bool {
    matches!(&error.verdict, Verdict::MembersElsewhere { seed, called: Some(called), members }
        if seed.host() == "seed" && called.host() == "a" && members.len() == 2)
}

#[test]
fn members_that_lead_nowhere_are_told_when_a_seed_has_answered_however_they_fail() {
    let failures = [
        [(Step::Resolve, Cause::NotResolved), (Step::Resolve, Cause::NotResolved)],
        [(Step::Connect, Cause::Refused), (Step::Connect, Cause::Refused)],
        [(Step::Connect, Cause::Timeout), (Step::Connect, Cause::Timeout)],
        [(Step::Connect, Cause::Refused), (Step::Resolve, Cause::NotResolved)],
        [(Step::Hello, Cause::Closed), (Step::Connect, Cause::Io)],
    ];
    for both in failures {
        let mut fixture = guided("mongodb://seed/?replicaSet=rs");
        for (link, (step, cause)) in ["a.0", "b.0"].into_iter().zip(both.clone()) {
            let link = fixture.link(link);
            let failure = Failure::new(step, cause, "it failed");
            fixture.input(Input::Closed { link, failure });
        }
        let error = error(&mut fixture, Criteria::write());
        assert!(is_elsewhere(&error), "{both:?}: {error}");
        let text = "seed:27017 answered, but its replica set lists only a:27017, b:27017, which do \
                    not lead to its members from here; reconfigure the set with addresses that do, \
                    map those addresses (as in --map a:27017=seed:27017), or connect directly to one member (directConnection=true)";
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn members_that_are_silent_count_as_elsewhere_after_a_second() {
    let mut fixture = guided("mongodb://seed/?replicaSet=rs");
    let early = error(fixture.at(999), Criteria::write());
    assert!(matches!(early.verdict, Verdict::NoAnswerYet { .. }), "{early}");
    let late = error(fixture.at(5_000), Criteria::write());
    assert!(is_elsewhere(&late), "{late}");
}

/// The address that a container gives itself may lead to anybody's server here.
#[test]
fn a_stranger_to_which_an_advertised_address_leads_is_no_reason_to_leave_out_the_set() {
    let mut other = primary("x", &["x"], 1);
    other = {
        let mut renamed = bson::RawDocumentBuf::new();
        for element in &other {
            let (key, value) = element.unwrap();
            match key.as_str() {
                "setName" => renamed.append(key, "other"),
                _ => renamed.append(key, value.to_owned()),
            }
        }
        renamed
    };
    let mut ghost = ok();
    ghost.append(cstr!("isreplicaset"), true);
    for stranger in [standalone(), other, ghost] {
        let mut fixture = Fixture::new("mongodb://seed/?replicaSet=rs&serverMonitoringMode=poll");
        fixture.greet("seed.0", &primary("a", &["a"], 1)).greet("a.0", &stranger);
        for at in [0, 5_000, 10_010] {
            let error = error(fixture.at(at), Criteria::write());
            let Verdict::MembersElsewhere { seed, .. } = &error.verdict else { panic!("{error}") };
            assert_eq!(seed.host(), "seed");
            assert!(!error.to_string().contains("leave out"), "{error}");
        }
    }
}

#[test]
fn members_that_have_answered_before_are_not_elsewhere() {
    let mut fixture = guided("mongodb://seed/?replicaSet=rs&serverMonitoringMode=poll");
    fixture.greet("a.0", &primary("a", &HOSTS, 1)).greet("b.0", &secondary("b", &HOSTS));
    fixture.at(10_000).closed("a.0").closed("a.1").closed("b.0").closed("b.1");
    let error = error(&mut fixture, Criteria::write());
    assert_eq!(error.verdict, Verdict::ConnectionRefused, "{error}");
}

/// A name that did resolve, and a seed's at that.
#[test]
fn a_resolver_that_fails_later_is_no_word_on_the_names_of_members() {
    for (cause, verdict) in [
        (Cause::LookupFailed, Verdict::LookupFailed { reason: None }),
        (Cause::NotResolved, Verdict::NamesDoNotResolve),
    ] {
        let mut fixture =
            Fixture::new("mongodb://a/?directConnection=true&serverMonitoringMode=poll");
        fixture.greet("a.0", &standalone()).at(10_000).closed("a.0");
        let link = fixture.link("a.1");
        let failure = Failure::new(Step::Resolve, cause, "no answer");
        fixture.input(Input::Closed { link, failure });
        assert_eq!(error(&mut fixture, Criteria::write()).verdict, verdict);
    }
}

/// A full server, and one that was killed a moment ago, hang up as one does that expects TLS.
#[test]
fn a_server_that_has_answered_without_tls_is_not_said_to_expect_it() {
    let mut fixture = Fixture::new("mongodb://a/?directConnection=true&serverMonitoringMode=poll");
    fixture.opened("a.0").closed("a.0");
    let first = error(&mut fixture, Criteria::write());
    assert_eq!(first.verdict, Verdict::TlsExpected { certain: false });
    assert!(first.to_string().contains("may expect TLS, or accept no more conn"), "{first}");
    fixture.at(10_000).greet("a.1", &standalone()).at(20_000).closed("a.1");
    fixture.opened("a.2").closed("a.2");
    let later = error(&mut fixture, Criteria::write());
    assert_eq!(later.verdict, Verdict::ConnectionsClosed);
    assert!(later.troubles[0].has_answered, "{later}");
    assert!(!later.to_string().contains("may expect"), "{later}");
    assert!(later.to_string().contains("may be ending, or accept no more conn"), "{later}");
}

/// "Why not" includes that nothing has come yet, and how far it is.
#[test]
fn checks_in_progress_are_told_with_their_stage_and_age() {
    let mut fixture = Fixture::new("mongodb://a,b/?replicaSet=rs");
    for (name, step) in [("a.0", Step::Tls), ("b.0", Step::Resolve)] {
        let link = fixture.link(name);
        fixture.input(Input::Reached { link, stage: step });
    }
    let early = error(fixture.at(5_000), Criteria::write());
    assert_eq!(early.verdict, Verdict::NoAnswerYet { stage: None, lasts: ms(5_000) });
    let checks: Vec<_> = early.checks.iter().map(|check| (check.stage, check.lasts)).collect();
    assert_eq!(checks, [(Step::Tls, ms(5_000)), (Step::Resolve, ms(5_000))]);
    let text = "no server has answered yet; checks have been in progress for 5.0 s; \
                allow more time: serverSelectionTimeoutMS should be longer than connectTimeoutMS. \
                The topology is ReplicaSetNoPrimary; a:27017 is being checked, for 5.0 s so far (stage: TLS), \
                b:27017 is being checked, for 5.0 s so far (stage: resolving).";
    assert!(early.to_string().ends_with(text), "{early}");
    let late = error(fixture.at(10_000), Criteria::write());
    assert_eq!(late.verdict, Verdict::NoAnswer);
    let failures = late.troubles.iter().map(|it| (it.failure.stage, &*it.failure.detail));
    assert_eq!(
        failures.collect::<Vec<_>>(),
        [
            (Step::Tls, "no answer to the TLS handshake within 10s"),
            (Step::Resolve, "the name was not resolved within 10s"),
        ]
    );
}

/// A connection that is accepted and never answered is not one that is never opened.
#[test]
fn silent_servers_are_told_from_those_that_cannot_be_reached_before_and_after_the_time_out() {
    let uri = "mongodb://a,b/?replicaSet=rs&serverMonitoringMode=poll";
    for (stage, words) in [(Step::Tls, "the TLS handshake"), (Step::Hello, "hello")] {
        let mut fixture = Fixture::new(uri);
        for name in ["a.0", "b.0"] {
            match stage {
                Step::Hello => _ = fixture.opened(name),
                _ => {
                    let link = fixture.link(name);
                    fixture.input(Input::Reached { link, stage });
                }
            }
        }
        let early = error(fixture.at(900), Criteria::write());
        assert!(matches!(early.verdict, Verdict::NoAnswerYet { .. }), "{early}");
        for (at, waited) in [(5_000, 5_000), (10_000, 10_000)] {
            let silent = error(fixture.at(at), Criteria::write());
            let waited = ms(waited);
            assert_eq!(silent.verdict, Verdict::ServersSilent { stage, waited, atlas: false });
            let text = format!("none has answered {words} within");
            assert!(silent.to_string().contains(&text), "{silent}");
        }
    }
    let mut unreachable = Fixture::new(uri);
    unreachable.at(10_000);
    assert_eq!(error(&mut unreachable, Criteria::write()).verdict, Verdict::NoAnswer);
    let mut atlas = Fixture::new("mongodb://a.abc.mongodb.net/?replicaSet=rs");
    atlas.opened("a.abc.mongodb.net.0");
    let verdict = error(atlas.at(2_000), Criteria::write()).verdict;
    assert!(verdict.advice().to_string().contains("IP access list"), "{verdict}");
}

#[test]
fn verdict_set_name_differs_by_removal_and_with_a_direct_connection() {
    for uri in
        ["mongodb://a/?replicaSet=wanted", "mongodb://a/?replicaSet=wanted&directConnection=true"]
    {
        let mut fixture = Fixture::new(uri);
        fixture.greet("a.0", &primary("a", &["a"], 1));
        let error = error(&mut fixture, Criteria::write());
        assert!(error.to_string().contains("\"wanted\" as asked for; correct"), "{error}");
        let Verdict::SetNameDiffers { wanted, found } = error.verdict else {
            panic!("another verdict")
        };
        assert_eq!(wanted, "wanted");
        assert!(found.is_none_or(|found| found == "rs"));
    }
}

#[test]
fn verdict_no_primary_says_for_how_long() {
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &primary("a", &HOSTS, 1)).greet("b.0", &secondary("b", &HOSTS));
    fixture.at(10_000).reply("a.0", &secondary("a", &HOSTS)).at(14_000);
    let error = error(&mut fixture, Criteria::write());
    assert_eq!(error.verdict, Verdict::NoPrimary { since: ms(4000) });
    assert!(error.to_string().contains("has had no primary for 4.0 s"), "{error}");
}

#[test]
fn verdict_not_initiated_no_tag_match_too_stale_predicate_and_no_secondary() {
    let mut ghost = ok();
    ghost.append(cstr!("isreplicaset"), true);
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs");
    fixture.greet("a.0", &ghost);
    assert_eq!(error(&mut fixture, Criteria::write()).verdict, Verdict::NotInitiated);

    let date = |reply: &mut bson::RawDocumentBuf, seconds: i64| {
        let date = bson::DateTime::from_millis(seconds * 1000);
        reply.append(cstr!("lastWrite"), rawdoc! { "lastWriteDate": date });
    };
    let (mut first, mut second) = (primary("a", &HOSTS, 1), secondary("b", &HOSTS));
    date(&mut first, 1000);
    date(&mut second, 800);
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &first).greet("b.0", &second);
    let preference = || ReadPreference::new(ReadMode::Secondary);
    let east = TagSet::from([("dc".to_owned(), "east".to_owned())]);
    let tagged = Criteria::read(preference().with_tag_sets(vec![east]).unwrap());
    assert_eq!(error(&mut fixture, tagged).verdict, Verdict::NoTagMatch);
    let fresh = preference().with_max_staleness(Duration::from_secs(120)).unwrap();
    let by = Duration::from_secs(200 + 10 - 120);
    assert_eq!(error(&mut fixture, Criteria::read(fresh)).verdict, Verdict::TooStale { by });
    let refused = Criteria::read(preference()).with_predicate(|_| false);
    assert_eq!(error(&mut fixture, refused).verdict, Verdict::PredicateRefused);

    let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs");
    fixture.greet("a.0", &primary("a", &["a"], 1));
    assert_eq!(error(&mut fixture, read(ReadMode::Secondary)).verdict, Verdict::NoSecondary);
}

#[test]
fn the_text_is_one_paragraph_that_names_the_likely_cause_first() {
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &secondary("a", &HOSTS)).closed("b.0").at(8000);
    assert_eq!(
        error(&mut fixture, Criteria::write()).to_string(),
        "no server was found for a write: the replica set has had no primary for 8.0 s; wait for the \
         election; if it takes long, check that a majority of the members runs. The topology is ReplicaSetNoPrimary; a:27017 is RSSecondary, of a type that the operation \
         cannot use, b:27017 is Unknown, connection refused (1 check failed, for 8.0 s, the next \
         one in 2.0 s)."
    );
}

#[test]
fn troubles_count_failures_since_the_last_success() {
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs");
    fixture.at(1000).closed("a.0").at(11_000).closed("a.1").at(12_000);
    let trouble = error(&mut fixture, Criteria::write()).troubles.remove(0);
    assert_eq!((trouble.attempts, trouble.since), (2, ms(11_000)));
    assert_eq!(trouble.next, Some(ms(9000)));
    assert_eq!(trouble.failure.stage, Step::Connect);
}

#[test]
fn explanations_give_every_server_its_reason() {
    let hosts = ["a", "b", "c", "d"];
    let mut arbiter = member("d", &hosts);
    arbiter.append(cstr!("arbiterOnly"), true);
    let mut fixture = Fixture::new("mongodb://a,b,c,d,e/?replicaSet=rs&serverMonitoringMode=poll");
    for (host, reply) in [("d", arbiter), ("b", secondary("b", &hosts))] {
        fixture.greet(&format!("{host}.0"), &reply);
    }
    fixture.opened("c.0").opened("a.0").at(40).reply("c.0", &secondary("c", &hosts));
    fixture.reply("a.0", &primary("a", &["a", "b", "c", "d", "e"], 1));
    let snapshot = Arc::clone(fixture.topology.machine.get().snapshot());
    let reasons = |criteria: &Criteria| -> Vec<Reason> {
        snapshot.explain(criteria).servers.into_iter().map(|server| server.reason).collect()
    };
    let far = Reason::OutsideWindow { by: ms(25) };
    use Reason::{Deprioritized, InWindow, NotPreferred, Predicate, Unknown, WrongType};
    assert_eq!(
        reasons(&read(ReadMode::Secondary)),
        [WrongType, InWindow, far.clone(), WrongType, Unknown]
    );
    assert_eq!(
        reasons(&read(ReadMode::SecondaryPreferred)),
        [NotPreferred, InWindow, far, WrongType, Unknown]
    );
    let avoiding = read(ReadMode::Secondary).deprioritize(["b:27017".parse().unwrap()]);
    assert_eq!(reasons(&avoiding), [WrongType, Deprioritized, InWindow, WrongType, Unknown]);
    let choosy = read(ReadMode::Nearest).with_predicate(|server| server.address.host() == "c");
    assert_eq!(reasons(&choosy), [Predicate, Predicate, InWindow, WrongType, Unknown]);
}

/// Server Selection, "Filtering suitable servers by tags": of those that match the first tag set
/// that any matches.
#[test]
fn an_explanation_says_which_servers_are_suitable_and_whose_tags_are_others() {
    let tagged = |mut reply: bson::RawDocumentBuf, dc: &str| {
        reply.append(cstr!("tags"), rawdoc! { "dc": dc });
        reply
    };
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &tagged(primary("a", &HOSTS, 1), "west"));
    fixture.greet("b.0", &tagged(secondary("b", &HOSTS), "east"));
    let snapshot = Arc::clone(fixture.topology.machine.get().snapshot());
    let sets = ["north", "east"].map(|dc| TagSet::from([("dc".to_owned(), dc.to_owned())]));
    let nearest = ReadPreference::new(ReadMode::Nearest).with_tag_sets(sets.to_vec()).unwrap();
    let servers = snapshot.explain(&Criteria::read(nearest)).servers;
    let reasons: Vec<_> = servers.iter().map(|server| server.reason.clone()).collect();
    assert_eq!(reasons, [Reason::NoTagMatch, Reason::InWindow]);
    let suitable: Vec<_> = servers.iter().map(|server| server.reason.is_suitable()).collect();
    assert_eq!(suitable, [false, true]);
    assert!(Reason::OutsideWindow { by: ms(1) }.is_suitable(), "but for how far away it is");
}

/// Server Selection, "Topology type: ReplicaSetWithPrimary": tags decide among secondaries only,
/// and among mongos nothing does.
#[test]
fn tags_keep_nobody_from_the_primary_or_from_a_mongos() {
    let nowhere = || TagSet::from([("dc".to_owned(), "nowhere".to_owned())]);
    let criteria =
        |mode| Criteria::read(ReadPreference::new(mode).with_tag_sets(vec![nowhere()]).unwrap());
    let reasons = |fixture: &Fixture, mode| -> Vec<Reason> {
        let explanation = fixture.topology.machine.get().snapshot().explain(&criteria(mode));
        explanation.servers.into_iter().map(|server| server.reason).collect()
    };
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &primary("a", &HOSTS, 1)).greet("b.0", &secondary("b", &HOSTS));
    let [of_primary, _] = &reasons(&fixture, ReadMode::PrimaryPreferred)[..] else { panic!("two") };
    assert_eq!(*of_primary, Reason::InWindow);
    let mut fixture = Fixture::new("mongodb://a,b");
    fixture.greet("a.0", &super::fixture::mongos());
    assert_eq!(reasons(&fixture, ReadMode::Secondary)[0], Reason::InWindow);
}

/// A member that answers, if not as it should, is where its address leads.
#[test]
fn one_member_that_is_where_it_should_be_is_enough_for_the_others_not_to_be_elsewhere() {
    let hosts = ["a", "b", "c"];
    for (step, cause) in [(Step::Tls, Cause::UnknownIssuer), (Step::Proxy, Cause::Refused)] {
        let mut fixture = Fixture::new("mongodb://seed/?replicaSet=rs");
        fixture.greet("seed.0", &primary("a", &hosts, 1)).closed("a.0").closed("b.0");
        let link = fixture.link("c.0");
        fixture.input(Input::Closed { link, failure: Failure::new(step, cause, "it failed") });
        let error = error(&mut fixture, Criteria::write());
        assert!(!matches!(error.verdict, Verdict::MembersElsewhere { .. }), "{error}");
    }
}

#[test]
fn members_are_elsewhere_where_one_refuses_and_another_is_silent() {
    let mut fixture = guided("mongodb://seed/?replicaSet=rs&serverMonitoringMode=poll");
    fixture.closed("a.0");
    let error = error(fixture.at(5_000), Criteria::write());
    assert!(is_elsewhere(&error), "{error}");
}

#[test]
fn a_server_of_another_set_is_no_guide_to_the_members() {
    let mut fixture = Fixture::new("mongodb://a,b/?replicaSet=wanted");
    fixture.greet("a.0", &primary("x", &["x"], 1)).closed("b.0");
    assert_eq!(error(&mut fixture, Criteria::write()).verdict, Verdict::ConnectionRefused);
}

#[test]
fn of_members_that_lead_from_one_to_the_next_the_first_is_the_guide() {
    let mut fixture = Fixture::new("mongodb://seed/?replicaSet=rs");
    fixture.greet("seed.0", &primary("a", &["a"], 1)).greet("a.0", &primary("c", &["c"], 1));
    let error = error(fixture.closed("c.0"), Criteria::write());
    let Verdict::MembersElsewhere { seed, .. } = &error.verdict else { panic!("{error}") };
    assert_eq!(seed.host(), "seed");
}
