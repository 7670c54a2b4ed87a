//! Rules, from evidence that tests make up.

use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;
use sdam_core::diagnosis::Verdict;
use sdam_core::failure::{Cause, Failure, Stage};
use serde_json::Value;

use super::better;
use super::evidence::{
    Asked, Certificate, ClientGroup, ClientSeen, Connections, Evidence, Greeting, Login,
    LoginError, Lookups, MemberSeen, NameServerSeen, OptionsSeen, Pause, Refusal, Resolved, Role,
    Said, ServerSeen, Stale, Way,
};
use super::finding::listed;
use super::report::Report;
use super::rules::judge;
use crate::findings::Severity;
use crate::printer::Printer;

fn address(text: &str) -> ServerAddress {
    text.parse().expect("an address")
}

fn greeting(role: Role, me: &str, members: &[&str]) -> Greeting {
    Greeting {
        role,
        set_name: role.is_member().then(|| "rs0".to_owned()),
        me: role.is_member().then(|| address(me)),
        members: members.iter().map(|it| address(it)).collect(),
        ..Greeting::default()
    }
}

/// A seed that answers.
fn answering(name: &str, greeting: Greeting) -> ServerSeen {
    let mut server = ServerSeen::new(address(name), true);
    let millisecond = Some(Duration::from_millis(1));
    let way = Way { opened: millisecond, hello: millisecond, accepted: true, ..Way::new(false) };
    server.way = Way { greeting: Some(greeting), ..way };
    server
}

/// A server that fails.
fn failing(name: &str, stage: Stage, cause: Cause) -> ServerSeen {
    let mut server = ServerSeen::new(address(name), true);
    server.way.failure = Some(Failure::new(stage, cause, "the detail"));
    server
}

fn evidence(servers: Vec<ServerSeen>) -> Evidence {
    let options = OptionsSeen {
        uri: Some("mongodb://a/".to_owned()),
        max_pool_size: 100,
        max_connecting: 2,
        ..OptionsSeen::default()
    };
    let client = ClientSeen { is_settled: true, is_writable: true, ..ClientSeen::default() };
    Evidence { options, servers, client, complete: true, ..Evidence::default() }
}

/// A set of three that is well.
pub(super) fn set() -> Evidence {
    let names = ["a:27017", "b:27017", "c:27017"];
    let roles = [Role::Primary, Role::Secondary, Role::Secondary];
    let server = |(name, role)| answering(name, greeting(role, name, &names));
    evidence(names.into_iter().zip(roles).map(server).collect())
}

/// Returns the kinds of what is found, with `!` for errors and `?` for notes.
pub(super) fn verdicts(evidence: &Evidence) -> Vec<String> {
    let mark = |severity| match severity {
        Severity::Error => "!",
        Severity::Warning => "",
        Severity::Note => "?",
    };
    let findings = judge(evidence);
    findings.iter().map(|it| format!("{}{}", it.verdict.name(), mark(it.severity))).collect()
}

#[test]
fn nothing_is_said_of_what_is_well() {
    assert_eq!(verdicts(&set()), [""; 0]);
    let standalone = answering("a:27017", greeting(Role::Standalone, "a:27017", &[]));
    assert_eq!(verdicts(&evidence(vec![standalone])), [""; 0]);
}

#[test]
fn a_member_that_is_down_is_a_warning_while_writes_find_a_primary() {
    let mut set = set();
    set.servers[2] = failing("c:27017", Stage::Connect, Cause::Refused);
    assert_eq!(verdicts(&set), ["connectionRefused"]);
    set.client.is_writable = false;
    assert_eq!(verdicts(&set), ["connectionRefused!"]);
    let seen = MemberSeen {
        address: "c:27017".to_owned(),
        state: "SECONDARY".to_owned(),
        is_up: true,
        message: None,
    };
    set.servers[0].login = Some(Login { members: vec![seen], ..Login::default() });
    let cause = judge(&set).remove(0).cause;
    assert_eq!(cause, "c:27017 refuses connections, although a:27017 sees it as SECONDARY");
}

#[test]
fn each_stage_has_its_verdict() {
    for (stage, cause, verdict) in [
        (Stage::Resolve, Cause::NotResolved, "namesDoNotResolve!"),
        (Stage::Resolve, Cause::LookupFailed, "lookupFailed!"),
        (Stage::Proxy, Cause::Refused, "proxyFailed!"),
        (Stage::Connect, Cause::Timeout, "noAnswer!"),
        (Stage::Tls, Cause::Timeout, "serversSilent!"),
        (Stage::Tls, Cause::UnknownIssuer, "certificatesRefused!"),
        (Stage::Certificates, Cause::Configuration, "certificatesUnavailable!"),
        (Stage::Tls, Cause::CertificateRevoked, "certificateRevoked!"),
        (Stage::Tls, Cause::InvalidStaple, "stapleInvalid!"),
        (Stage::Hello, Cause::Closed, "connectionLimit!"),
        (Stage::Hello, Cause::Malformed, "noServerAvailable!"),
        (Stage::Connect, Cause::Unreachable, "unreachable!"),
    ] {
        let mut evidence = evidence(vec![failing("a:27017", stage, cause)]);
        evidence.client.is_writable = false;
        assert_eq!(verdicts(&evidence), [verdict]);
    }
}

#[test]
fn a_unix_domain_socket_is_named_as_one() {
    for cause in [Cause::Io, Cause::Refused] {
        let mut evidence = evidence(vec![failing("/tmp/none.sock", Stage::Connect, cause)]);
        evidence.client.is_writable = false;
        assert_eq!(verdicts(&evidence), ["socketUnusable!"]);
        let said = judge(&evidence).remove(0).cause;
        let text = "no server listens on the Unix domain socket /tmp/none.sock: ";
        assert!(said.starts_with(text), "{said}");
    }
}

#[test]
fn a_server_on_the_loopback_address_of_the_other_family_is_named() {
    for (asked, other) in [("[::1]:27017", "127.0.0.1:27017"), ("127.0.0.1:5", "[::1]:5")] {
        let mut server = failing(asked, Stage::Connect, Cause::Refused);
        server.other_loopback = Some(other.parse().expect("an address"));
        let mut evidence = evidence(vec![server]);
        evidence.client.is_writable = false;
        assert_eq!(verdicts(&evidence), ["connectionRefused!"]);
        let finding = judge(&evidence).remove(0);
        assert!(finding.cause.starts_with(asked), "{}", finding.cause);
        assert!(finding.cause.contains(&format!("and {other} takes them")), "{}", finding.cause);
        assert_eq!(finding.lines, [format!("--map {asked}={other}")]);
    }
}

#[test]
fn a_mechanism_that_is_none_comes_before_the_login_that_is_refused_without_it() {
    let mut set = set();
    let fault = "ignored the value of authMechanism, which must be one of those";
    set.options.faults = vec![fault.to_owned()];
    set.options.mechanism_fault = Some(fault.to_owned());
    assert_eq!(verdicts(&set), ["invalidOptions"], "nothing was refused");
    let list = Refusal { command: "listDatabases".to_owned(), code: 13, ..Refusal::default() };
    set.servers[0].login = Some(Login { refusals: vec![list], ..Login::default() });
    assert_eq!(verdicts(&set), ["invalidOptions!", "loginRefused!"]);
    assert!(judge(&set)[0].cause.contains("authMechanism"));
}

#[test]
fn a_peer_that_answers_in_another_protocol_was_not_silent() {
    let mut server = failing("a:27017", Stage::Hello, Cause::Timeout);
    server.way.accepted = true;
    server.protocol = Some("HTTP".to_owned());
    server.way.answer_in(server.protocol.as_deref());
    let mut evidence = evidence(vec![server]);
    evidence.client.is_writable = false;
    evidence.client.topology = "Unknown".to_owned();
    let (stage, waited) = (Stage::Hello, Duration::from_millis(2666));
    evidence.client.why_not = Some(Verdict::ServersSilent { stage, waited, atlas: false });
    assert_eq!(verdicts(&evidence), ["notMongo!"]);
    let (time, elapsed) = ("now".to_owned(), Duration::ZERO);
    let report = Report { time, elapsed, findings: judge(&evidence), evidence };
    let mut printed = Vec::new();
    report.print(&mut Printer::new(&mut printed, false)).expect("memory takes everything");
    let printed = String::from_utf8(printed).expect("text");
    assert!(printed.contains("answers in HTTP"), "{printed}");
    assert!(!printed.contains("within") && !printed.contains("2.6"), "{printed}");
}

#[test]
fn one_member_of_many_that_others_do_not_reach_is_named_with_its_witness() {
    let mut set = set();
    let seen = MemberSeen {
        address: "c:27017".to_owned(),
        state: "(not reachable/healthy)".to_owned(),
        is_up: false,
        message: Some("Connection refused".to_owned()),
    };
    set.servers[0].login = Some(Login { members: vec![seen], ..Login::default() });
    let findings = judge(&set);
    assert_eq!(verdicts(&set), ["membersDisagree"]);
    let cause = "c:27017 is a secondary from here, and (not reachable/healthy) (Connection \
                 refused) for a:27017";
    assert_eq!(findings[0].cause, cause);
    let json = serde_json::to_value(&findings[0]).expect("it has the form of JSON");
    assert_eq!(json["verdict"], "membersDisagree");
    assert_eq!(json["disagreements"][0]["here"], "a secondary");
}

#[test]
fn a_set_without_a_primary_is_reported_unless_there_is_a_better_reason() {
    let mut set = set();
    set.servers[0] = answering("a:27017", greeting(Role::Secondary, "a:27017", &["a:27017"]));
    set.client.is_writable = false;
    set.client.why_not = Some(Verdict::NoPrimary { since: Duration::from_secs(3) });
    assert_eq!(verdicts(&set), ["noPrimary!"]);
    set.servers[1] = failing("b:27017", Stage::Connect, Cause::Refused);
    assert_eq!(verdicts(&set), ["connectionRefused!"]);
}

#[test]
fn servers_of_atlas_have_an_advice_of_their_own() {
    for name in ["shop-00-00.abcde.mongodb.net:27017", "a:27017"] {
        let cause = Cause::TlsRefused { alert: Some(80) };
        let mut server = failing(name, Stage::Tls, cause.clone());
        let detail = "the server ended TLS with the alert InternalError";
        server.way.failure = Some(Failure::new(Stage::Tls, cause, detail));
        let mut evidence = evidence(vec![server]);
        evidence.client.is_writable = false;
        assert_eq!(verdicts(&evidence), ["accessRefused!"]);
        let is_of_atlas = judge(&evidence)[0].advice.contains("IP access list");
        assert_eq!(is_of_atlas, name.contains("mongodb.net"));
    }
}

#[test]
fn clocks_may_differ_by_ten_seconds() {
    let mut set = set();
    let ahead = |set: &mut Evidence, millis| {
        let greeting = set.servers[1].way.greeting.as_mut().expect("it answers");
        greeting.ahead_millis = Some(millis);
    };
    ahead(&mut set, -10_000);
    assert_eq!(verdicts(&set), [""; 0]);
    ahead(&mut set, -10_001);
    assert_eq!(verdicts(&set), ["clocksDiffer"]);
    assert_eq!(judge(&set)[0].cause, "the clock of b:27017 is 10.0 s behind that of this machine");
}

#[test]
fn a_certificate_should_last_for_two_weeks_or_a_quarter_of_its_time() {
    for (days_in_all, days_left, is_enough) in
        [(365, 14, true), (365, 13, false), (28, 7, true), (28, 6, false), (7, 6, true)]
    {
        let mut server = answering("a:27017", greeting(Role::Standalone, "a:27017", &[]));
        server.way.tls = true;
        let certificate = Certificate { days_left, days_in_all, ..Certificate::default() };
        server.certificate = Some(certificate);
        let wanted: &[&str] = if is_enough { &[] } else { &["certificateExpiresSoon"] };
        assert_eq!(verdicts(&evidence(vec![server])), wanted, "{days_left} of {days_in_all}");
    }
}

fn idle_cut(server: &str) -> Verdict {
    Verdict::IdleConnectionsCut {
        server: address(server),
        times: 3,
        shortest: Duration::from_secs(4),
        after: Duration::from_secs(5),
        heartbeat: Duration::from_secs(10),
    }
}

#[test]
fn connections_that_last_again_show_that_a_cut_is_over() {
    let mut set = set();
    for server in ["a:27017", "b:27017"] {
        set.client.find(idle_cut(server));
    }
    assert_eq!(verdicts(&set), ["idleConnectionsCut!", "idleConnectionsCut!"]);
    set.client.has_waited(&address("a:27017"), Duration::from_millis(5250));
    assert_eq!(verdicts(&set), ["idleConnectionsCut!", "idleConnectionsCut!"]);
    set.client.has_waited(&address("a:27017"), Duration::from_millis(5251));
    assert_eq!(verdicts(&set), ["idleConnectionsCut!", "idleConnectionsCut"]);
    let findings = judge(&set);
    assert!(findings[0].cause.contains("b:27017"), "{}", findings[0].cause);
    assert!(findings[1].cause.ends_with("; that is over"), "{}", findings[1].cause);
    // It may begin again.
    set.client.find(idle_cut("a:27017"));
    assert_eq!(verdicts(&set), ["idleConnectionsCut!", "idleConnectionsCut!"]);
}

#[test]
fn connections_that_are_closed_as_soon_as_they_wait_are_reported_with_a_way_around() {
    let mut set = set();
    let (server, after) = (address("a:27017"), Duration::from_millis(20));
    set.client.find(Verdict::StreamingRefused { server, times: 3, after });
    assert_eq!(verdicts(&set), ["streamingRefused!"]);
    assert_eq!(judge(&set)[0].lines, ["serverMonitoringMode=poll"]);
}

#[test]
fn what_the_client_finds_is_reported_once() {
    let mut set = set();
    let pause = Verdict::ProcessPaused { paused: Duration::from_secs(4), since: Duration::ZERO };
    for verdict in [pause, idle_cut("a:27017"), idle_cut("a:27017")] {
        set.client.find(verdict);
    }
    set.pauses.push(Pause {
        from: "then".to_owned(),
        to: "now".to_owned(),
        length: Duration::from_secs(4),
        ended: Duration::from_secs(9),
    });
    assert_eq!(verdicts(&set), ["idleConnectionsCut!", "processPaused"]);
    assert_eq!(judge(&set)[0].lines, ["heartbeatFrequencyMS=3000&maxIdleTimeMS=3000"]);
}

/// Replies of a primary to what it is asked over a connection.
fn asked(login: Login) -> Evidence {
    let mut set = set();
    set.servers[0].login = Some(login);
    set
}

#[test]
fn a_command_that_fails_is_reported_unless_no_user_may_run_it() {
    let refused = |refusal: Refusal| {
        let command = "delete".to_owned();
        asked(Login { refusals: vec![Refusal { command, ..refusal }], ..Login::default() })
    };
    let full = Refusal { code: 14031, text: "no space".to_owned(), ..Refusal::default() };
    assert_eq!(verdicts(&refused(full)), ["operationFailed!"]);
    let silent = Refusal { text: "not answered within 3.00 s".to_owned(), ..Refusal::default() };
    assert_eq!(verdicts(&refused(silent)), ["operationFailed!"]);
    let forbidden = Refusal { code: 13, ..Refusal::default() };
    assert_eq!(verdicts(&refused(forbidden)), [""; 0]);
    let text = "user is not allowed to do action [remove] on [sdam.doctor]".to_owned();
    let by_atlas = Refusal { code: 8000, text, ..Refusal::default() };
    assert_eq!(verdicts(&refused(by_atlas)), [""; 0]);
    let other = Refusal { code: 8000, text: "no space".to_owned(), ..Refusal::default() };
    assert_eq!(verdicts(&refused(other)), ["operationFailed!"]);
    let stepping = Refusal { code: 10107, is_about_state: true, ..Refusal::default() };
    assert_eq!(verdicts(&refused(stepping)), [""; 0], "once is no contradiction");
}

/// By `$currentOp` and others more would be known; a primary that is lost has an error of its own.
#[test]
fn a_question_that_a_server_cannot_answer_leaves_a_note() {
    let unanswered = |refusal: Refusal| {
        let command = "$currentOp".to_owned();
        asked(Login { failed: vec![Refusal { command, ..refusal }], ..Login::default() })
    };
    let text = "Executor error during getMore".to_owned();
    let full = Refusal { code: 292, text: text.clone(), ..Refusal::default() };
    let set = unanswered(full);
    assert_eq!(verdicts(&set), ["operationFailed?"]);
    let expected = Verdict::OperationFailed {
        server: "a:27017".parse().unwrap(),
        command: "$currentOp".to_owned(),
        reason: text,
    };
    assert_eq!(judge(&set)[0].verdict.known(), Some(&expected));
    let stepping = Refusal { code: 11602, is_about_state: true, ..Refusal::default() };
    assert_eq!(verdicts(&unanswered(stepping)), [""; 0]);
    let mut lost = unanswered(Refusal { is_of_network: true, ..Refusal::default() });
    lost.servers[0].lost = Some(Failure::new(Stage::Connect, Cause::Refused, "no process listens"));
    assert_eq!(verdicts(&lost), ["connectionRefused"]);
}

#[test]
fn a_login_that_fails_is_reported_in_the_words_of_the_library() {
    let failed = |kind: &str, verdict: Option<Verdict>| {
        let (kind, text) = (kind.to_owned(), "the text".to_owned());
        let error = Some(LoginError { kind, is_of_network: false, verdict, text });
        asked(Login { error, ..Login::default() })
    };
    let overloaded = Verdict::Overloaded { server: None, reason: "too much".to_owned() };
    assert_eq!(verdicts(&failed("command", Some(overloaded))), ["overloaded!"]);
    assert_eq!(verdicts(&failed("network", None)), ["operationFailed!"]);
    assert_eq!(verdicts(&failed("checkOut", None)), [""; 0], "the client knows why");
}

#[test]
fn a_server_that_is_gone_in_the_end_is_reported_instead_of_what_broke_then() {
    let refusal = Refusal { is_of_network: true, ..Refusal::default() };
    let mut set = asked(Login { refusals: vec![refusal], ..Login::default() });
    assert_eq!(verdicts(&set), ["operationFailed!"]);
    set.servers[0].lost = Some(Failure::new(Stage::Connect, Cause::Refused, "no process listens"));
    assert_eq!(verdicts(&set), ["connectionRefused"]);
}

#[test]
fn a_server_that_answers_later_than_clients_wait_is_behind_no_firewall() {
    let mut server = answering("a:27017", greeting(Role::Primary, "a:27017", &["a:27017"]));
    server.way.took = Duration::from_millis(2100);
    server.server_type = Some(ServerType::Unknown);
    server.lost = Some(Failure::new(Stage::Hello, Cause::Timeout, "no reply to hello"));
    let mut evidence = evidence(vec![server]);
    evidence.client.is_writable = false;
    evidence.options.connect_timeout = Some(Duration::from_secs(1));
    evidence.options.other_timeout = Some(Verdict::TimeoutOfAnotherKind {
        waited_for: "serverSelectionTimeoutMS".to_owned(),
        waited: Duration::from_secs(30),
        set: "connectTimeoutMS".to_owned(),
        set_to: Duration::from_secs(1),
    });
    assert_eq!(verdicts(&evidence), ["serversSilent!"]);
    let finding = judge(&evidence).remove(0);
    assert_eq!(
        finding.cause,
        "a:27017 answers after 2.10 s, which is longer than connectTimeoutMS (1.00 s) allows"
    );
    assert_eq!(finding.lines, ["connectTimeoutMS=5000"]);
    // One that is given up after longer than it takes to answer has become silent.
    evidence.options.connect_timeout = Some(Duration::from_secs(10));
    let finding = judge(&evidence).remove(0);
    assert!(finding.cause.contains("nothing answers hello"), "{}", finding.cause);
}

#[test]
fn a_lookup_is_not_reported_twice() {
    let mut server = answering("a:27017", greeting(Role::Standalone, "a:27017", &[]));
    let slow = |millis| Some(Duration::from_millis(millis));
    (server.way.resolved, server.way.opened) = (slow(5000), slow(5010));
    server.resolved = Some(Resolved {
        addresses: vec!["127.0.0.1:27017".parse().expect("an address")],
        took: Duration::from_secs(5),
        is_silent: false,
    });
    let mut evidence = evidence(vec![server]);
    evidence.options.wait_queue_timeout = slow(2000);
    assert_eq!(verdicts(&evidence), ["lookupSlow"]);
    // Below the time from which it is slow by itself, it is the slowest part of connecting.
    let server = &mut evidence.servers[0];
    (server.way.resolved, server.way.opened) = (slow(1400), slow(1410));
    server.resolved.as_mut().expect("a name").took = Duration::from_millis(1400);
    assert_eq!(verdicts(&evidence), ["establishmentSlow!"]);
    assert!(judge(&evidence)[0].cause.contains("resolving"), "{}", judge(&evidence)[0].cause);
}

#[test]
fn servers_that_do_not_belong_to_a_set_that_works_are_a_warning() {
    for role in [Role::Standalone, Role::Secondary] {
        let mut set = set();
        let mut stray = answering("d:27017", greeting(role, "d:27017", &[]));
        let name = role.is_member().then(|| "other".to_owned());
        stray.way.greeting.as_mut().expect("it answers").set_name = name;
        set.servers.push(stray);
        set.options.replica_set = Some("rs0".to_owned());
        let wanted = if role.is_member() { "setNameDiffers" } else { "notAReplicaSet" };
        assert_eq!(verdicts(&set), [wanted]);
        set.client.is_writable = false;
        assert_eq!(verdicts(&set), [format!("{wanted}!")]);
    }
}

#[test]
fn a_member_that_does_not_find_itself_in_its_set_is_not_to_be_added() {
    let mut set = set();
    set.servers[2] = answering("c:27017", greeting(Role::Ghost, "c:27017", &[]));
    set.servers[2].named_by = vec![address("a:27017")];
    assert_eq!(verdicts(&set), ["notAMember"]);
    let finding = judge(&set).remove(0);
    assert!(finding.cause.contains("a:27017 lists c:27017 as a member"), "{}", finding.cause);
    assert!(finding.advice.contains("c resolves to an address of its own"), "{}", finding.advice);
    assert_eq!(finding.lines, [""; 0]);
}

#[test]
fn a_name_of_a_certificate_is_mapped_only_if_it_is_that_of_one_host() {
    let lines = |names: &[&str]| {
        let mut server = failing("a:27017", Stage::Tls, Cause::CertificateName);
        server.dialled = Some(address("10.0.0.1:27018"));
        let names = names.iter().map(|it| (*it).to_owned()).collect();
        server.certificate = Some(Certificate { names, ..Certificate::default() });
        let mut evidence = evidence(vec![server]);
        evidence.client.is_writable = false;
        judge(&evidence).remove(0).lines
    };
    let one = lines(&["*.db.example", "URI(spiffe://db)", "10.0.0.9", "a.db.example"]);
    assert_eq!(one, ["--map a.db.example=10.0.0.1:27018"]);
    assert_eq!(lines(&["*.db.example"]), [""; 0]);
}

#[test]
fn a_forwarder_that_closes_everything_may_have_nothing_behind_it() {
    let mut evidence = evidence(vec![failing("a:27017", Stage::Hello, Cause::Closed)]);
    evidence.client.is_writable = false;
    let finding = judge(&evidence).remove(0);
    assert!(finding.cause.contains("or a forwarder behind which nothing"), "{}", finding.cause);
    assert!(finding.advice.starts_with("check that a server runs"), "{}", finding.advice);
    assert!(finding.advice.contains("net.maxIncomingConnections"), "{}", finding.advice);
}

#[test]
fn only_one_process_has_too_many_clients() {
    let monitors = |process| {
        let (host, name) = ("10.0.0.1".to_owned(), "shop".to_owned());
        let clients = vec![ClientGroup { host, name, process, monitors: 22 }];
        asked(Login { clients, ..Login::default() })
    };
    assert_eq!(verdicts(&monitors(None)), [""; 0], "these may be so many processes");
    assert_eq!(verdicts(&monitors(Some(4711))), ["manyClients"]);
}

#[test]
fn what_was_given_up_too_soon_says_nothing() {
    let mut silent = evidence(vec![failing("a:27017", Stage::Hello, Cause::Timeout)]);
    silent.client.is_writable = false;
    silent.complete = false;
    assert_eq!(verdicts(&silent), ["serversSilent!"]);
    silent.servers[0].way.is_cut = true;
    assert_eq!(verdicts(&silent), ["notCheckedYet!"]);
    let mut closed = evidence(vec![failing("a:27017", Stage::Hello, Cause::Closed)]);
    closed.servers[0].other_way = Some(Way { is_cut: true, ..Way::new(true) });
    assert!(closed.servers[0].is_cut(), "it may have answered with TLS");
}

#[test]
fn a_second_look_counts_unless_it_was_cut_short() {
    let (first, second) = (set().servers, vec![set().servers.remove(0)]);
    assert_eq!(better(first.clone(), second.clone()).len(), 1);
    let mut cut = second;
    cut[0].is_login_cut = true;
    assert_eq!(better(first, cut).len(), 3);
}

#[test]
fn a_name_server_is_silent_after_two_seconds() {
    for (millis, wanted) in [(1999, "notCheckedYet!"), (2000, "lookupFailed!")] {
        let asked = Asked { took: Duration::from_millis(millis), said: Said::Silent };
        let address = "192.0.2.53:53".parse().expect("an address");
        let (srv, txt) = (asked.clone(), asked);
        let name_servers = vec![NameServerSeen { address, is_configured: true, srv, txt }];
        let mut evidence = evidence(Vec::new());
        let lookups = Lookups { name_servers, ..Lookups::default() };
        evidence.complete = !lookups.is_cut();
        evidence.lookups = Some(lookups);
        assert_eq!(verdicts(&evidence), [wanted]);
    }
}

#[test]
fn a_name_server_that_answers_at_last_has_not_failed() {
    let silent = Asked { took: Duration::from_secs(3), said: Said::Silent };
    let address = "192.0.2.53:53".parse().expect("an address");
    let (srv, txt) = (silent.clone(), silent);
    let name_servers = vec![NameServerSeen { address, is_configured: true, srv, txt }];
    for (millis, wanted) in [(1500, &[][..]), (2500, &["lookupSlow"])] {
        let (took, said) = (Duration::from_millis(millis), Said::Answered { records: Vec::new() });
        let system = Some(Asked { took, said });
        let name_servers = name_servers.clone();
        let lookups = Lookups { name_servers, system, ..Lookups::default() };
        let mut set = set();
        set.complete = !lookups.is_cut();
        set.lookups = Some(lookups);
        assert_eq!(verdicts(&set), wanted);
    }
}

#[test]
fn more_time_is_advised_than_there_was() {
    let mut set = set();
    set.complete = false;
    for (seconds, line) in [(10, "--for 60s"), (60, "--for 120s")] {
        set.limit = Duration::from_secs(seconds);
        assert_eq!(judge(&set)[0].lines, [line]);
    }
}

#[test]
fn a_stale_primary_that_has_noticed_is_a_warning() {
    let mut set = set();
    let detail = "a newer one was elected".to_owned();
    set.client.stale = vec![Stale { address: address("b:27017"), detail }];
    set.servers[1].server_type = Some(ServerType::Unknown);
    assert_eq!(verdicts(&set), ["stalePrimary!"]);
    set.servers[1].server_type = Some(ServerType::RsSecondary);
    assert_eq!(verdicts(&set), ["stalePrimary"]);
    assert!(judge(&set)[0].cause.ends_with("; that is over"));
}

/// Makes a server primary by an election.
fn elect(server: &mut ServerSeen, election: u32) {
    let greeting = server.way.greeting.as_mut().expect("it answers");
    greeting.role = Role::Primary;
    greeting.election = Some(format!("7fffffff{election:016x}"));
}

#[test]
fn a_primary_by_another_name_is_no_second_one() {
    let mut set = set();
    elect(&mut set.servers[0], 1);
    let mut alias = set.servers[0].clone();
    alias.address = address("localhost:27017");
    set.servers.insert(0, alias);
    assert_eq!(verdicts(&set), [""; 0]);
    elect(&mut set.servers[1], 3);
    assert_eq!(verdicts(&set), [""; 0], "it was elected again meanwhile");
    elect(&mut set.servers[2], 2);
    assert_eq!(verdicts(&set), ["stalePrimary!"]);
    let cause = judge(&set).remove(0).cause;
    assert!(cause.starts_with("b:27017 claims"), "{cause}");
    assert!(cause.contains("election 3 of a:27017"), "{cause}");
}

#[test]
fn two_primaries_of_different_sets_are_not_compared() {
    let mut set = set();
    elect(&mut set.servers[0], 2);
    elect(&mut set.servers[1], 1);
    set.servers[1].way.greeting.as_mut().expect("it answers").set_name = Some("rs1".to_owned());
    assert!(!verdicts(&set).iter().any(|it| it.contains("stalePrimary")));
}

#[test]
fn a_member_for_which_there_was_no_time_is_not_elsewhere() {
    let member = answering("localhost:27017", greeting(Role::Primary, "a:27017", &["a:27017"]));
    let named = |cut| {
        let mut named = failing("a:27017", Stage::Connect, Cause::Timeout);
        (named.is_seed, named.way.is_cut) = (false, cut);
        named
    };
    let mut evidence = evidence(vec![member, named(false)]);
    assert_eq!(verdicts(&evidence), ["membersElsewhere"]);
    evidence.servers[1] = named(true);
    evidence.complete = false;
    assert_eq!(verdicts(&evidence), ["notCheckedYet!"]);
}

#[test]
fn a_member_with_two_names_is_one_of_those_that_answer() {
    let mut set = set();
    set.servers[0] = answering("a:27017", greeting(Role::Secondary, "a:27017", &["a:27017"]));
    set.client.is_writable = false;
    set.client.why_not = Some(Verdict::NoPrimary { since: Duration::from_secs(3) });
    let mut alias = set.servers[0].clone();
    alias.address = address("localhost:27017");
    set.servers.push(alias);
    let cause = judge(&set).remove(0).cause;
    assert!(cause.contains("3 of its 3 members answer"), "{cause}");
}

#[test]
fn a_time_without_a_primary_is_reported_when_it_is_over() {
    let mut set = set();
    set.client.without_primary = Duration::from_millis(900);
    assert_eq!(verdicts(&set), [""; 0], "one steps down, and another is elected");
    set.client.without_primary = Duration::from_secs(2);
    assert_eq!(verdicts(&set), ["noPrimary"]);
}

#[test]
fn a_member_that_is_in_no_set_is_not_to_be_initiated_beside_one() {
    let mut set = set();
    set.servers[2] = answering("c:27017", greeting(Role::Ghost, "c:27017", &[]));
    assert_eq!(verdicts(&set), ["notAMember"]);
    assert_eq!(judge(&set)[0].lines, [r#"rs.add("c:27017")"#]);
}

#[test]
fn reads_that_find_no_server_are_reported_though_writes_find_one() {
    let mut set = set();
    set.client.why_not_read = Some(Verdict::NoTagMatch);
    assert_eq!(verdicts(&set), ["noTagMatch!"]);
}

#[test]
fn another_time_out_is_named_only_where_servers_do_not_answer() {
    let mut evidence = evidence(vec![failing("a:27017", Stage::Connect, Cause::Timeout)]);
    evidence.client.is_writable = false;
    evidence.options.other_timeout = Some(Verdict::TimeoutOfAnotherKind {
        waited_for: "serverSelectionTimeoutMS".to_owned(),
        waited: Duration::from_secs(30),
        set: "connectTimeoutMS".to_owned(),
        set_to: Duration::from_secs(1),
    });
    assert_eq!(verdicts(&evidence), ["noAnswer!", "timeoutOfAnotherKind"]);
    evidence.servers = set().servers;
    assert_eq!(verdicts(&evidence), [""; 0]);
}

#[test]
fn a_limit_of_connections_shows_before_it_is_reached() {
    let mut set = set();
    let login = |current, available| {
        let connections = Some(Connections { current, available });
        Some(Login { connections, ..Login::default() })
    };
    set.servers[0].login = login(100, 6);
    assert_eq!(verdicts(&set), [""; 0]);
    set.servers[0].login = login(100, 5);
    assert_eq!(verdicts(&set), ["connectionLimit"]);
}

#[test]
fn what_is_ignored_of_a_connection_string_is_reported_last() {
    let mut evidence = evidence(vec![failing("a:27017", Stage::Connect, Cause::Refused)]);
    evidence.client.is_writable = false;
    evidence.options.faults.push("ignored foo, which is unknown".to_owned());
    assert_eq!(verdicts(&evidence), ["connectionRefused!", "invalidOptions"]);
}

#[test]
fn nothing_is_well_before_everything_is_known() {
    let mut set = set();
    set.complete = false;
    assert_eq!(verdicts(&set), ["notCheckedYet!"]);
    set.servers[2] = failing("c:27017", Stage::Connect, Cause::Refused);
    assert_eq!(verdicts(&set), ["connectionRefused", "notCheckedYet"]);
}

#[test]
fn what_only_the_client_knows_is_reported_in_its_words() {
    let mut set = set();
    set.client.is_writable = false;
    set.client.why_not = Some(Verdict::NoTagMatch);
    assert_eq!(verdicts(&set), ["noTagMatch!"]);
    assert_eq!(judge(&set)[0].cause, Verdict::NoTagMatch.to_string());
    assert_eq!(judge(&set)[0].advice, Verdict::NoTagMatch.advice().text);
}

#[test]
fn of_several_servers_each_is_reported_at_once() {
    let down = |name| failing(name, Stage::Connect, Cause::Refused);
    let mut evidence = evidence(vec![down("a:27017"), down("b:27017")]);
    evidence.client.is_writable = false;
    let causes: Vec<String> = judge(&evidence).into_iter().map(|it| it.cause).collect();
    assert_eq!(causes, ["each of a:27017 and b:27017 refuses connections"]);
}

#[test]
fn several_names_are_listed_as_people_do() {
    assert_eq!(listed(&["a"]), "a");
    assert_eq!(listed(&["a", "b"]), "a and b");
    assert_eq!(listed(&["a", "b", "c"]), "a, b and c");
    assert_eq!(listed(&["a", "b", "c", "d", "e", "f"]), "a, b, c, d and 2 more");
}

#[test]
fn every_field_is_documented() {
    let documented = include_str!("../../DOCTOR.md");
    let mut evidence = evidence(vec![failing("a:27017", Stage::Connect, Cause::Refused)]);
    evidence.client.is_writable = false;
    let report = Report {
        time: "2026-05-09T03:00:00.000Z".to_owned(),
        elapsed: Duration::from_secs(1),
        findings: judge(&evidence),
        evidence,
    };
    let mut out = Vec::new();
    report.print_json(&mut Printer::new(&mut out, false)).expect("writing to memory");
    let object: Value = serde_json::from_slice(&out).expect("an object");
    let fields = [&object, &object["findings"][0], &object["evidence"]];
    for name in fields.into_iter().flat_map(|it| it.as_object().expect("an object").keys()) {
        assert!(documented.contains(&format!("`{name}`")), "{name} is not documented");
    }
}

/// A user who may not ask everything is no reason for an alarm.
#[test]
fn a_note_is_printed_and_leaves_a_deployment_healthy() {
    let mut set = set();
    let not_permitted = vec!["serverStatus", "$currentOp"];
    set.servers[0].login = Some(Login { not_permitted, ..Login::default() });
    assert_eq!(verdicts(&set), ["notPermitted?"]);
    let report = Report {
        time: String::new(),
        elapsed: Duration::from_secs(1),
        findings: judge(&set),
        evidence: set,
    };
    assert!(report.is_healthy());
    let printed = |print: &dyn Fn(&mut Printer<'_>) -> std::io::Result<()>| {
        let mut out = Vec::new();
        print(&mut Printer::new(&mut out, false)).expect("writing to memory");
        String::from_utf8(out).expect("text")
    };
    let text = printed(&|out| report.print(out));
    let expected = "\
Nothing is wrong, as far as can be seen in 1.00 s.
The user may not run serverStatus and $currentOp at a:27017: what those say is not known.
  Name a user that has the role clusterMonitor, which changes nothing.
";
    assert!(text.starts_with(expected), "{text}");
    let json = printed(&|out| report.print_json(out));
    let object: Value = serde_json::from_str(&json).expect("an object");
    assert_eq!((&object["healthy"], &object["verdict"]), (&Value::Bool(true), &Value::Null));
}

#[test]
fn the_cause_comes_first_and_the_evidence_last() {
    let mut evidence = evidence(vec![failing("a:27017", Stage::Connect, Cause::Refused)]);
    evidence.client.is_writable = false;
    let report = Report {
        time: String::new(),
        elapsed: Duration::ZERO,
        findings: judge(&evidence),
        evidence,
    };
    let mut out = Vec::new();
    report.print(&mut Printer::new(&mut out, false)).expect("writing to memory");
    let text = String::from_utf8(out).expect("text");
    let expected = "\
a:27017 refuses connections.
  Check the ports, and that the servers run.

options
  mongodb://a/
hello
  a:27017: without TLS: the detail (stage: connecting)
";
    assert_eq!(text, expected);
}
