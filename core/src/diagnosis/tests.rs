//! The vocabulary: names, words and advice of every kind.

use std::time::Duration;

use bson::rawdoc;

use super::{
    Advice, ChangeStreamVerdict, Disagreement, OplogBound, Pause, SelectionError, ServerEvidence,
    TransactionVerdict, Verdict,
};
use crate::config::{Options, ServerAddress};
use crate::description::{Incompatibility, Removal, RemovalReason, ServerType, TopologyType};
use crate::failure::{Cause, Failure, GssapiProblem, Stage, UnsupportedCertificate};
use crate::operation::{CommandError, OperationError};
use crate::process::Forked;
use crate::selection::Criteria;

const SOME: Duration = Duration::from_millis(4000);

fn a() -> ServerAddress {
    "a:27017".parse().unwrap()
}

fn b() -> ServerAddress {
    "b:27018".parse().unwrap()
}

/// Verdicts on options, the process, names and addresses.
fn of_clients() -> Vec<Verdict> {
    vec![
        Verdict::InvalidOptions { reason: "replicaSet is empty".to_owned() },
        Verdict::IncompatibleWireVersion {
            incompatibility: Incompatibility::ServerTooOld { address: a(), max_wire_version: 5 },
        },
        Verdict::MaxStalenessTooSmall { given: SOME, least: Duration::from_secs(90) },
        Verdict::Closed,
        Verdict::Forked(Forked::new(123, 456)),
        Verdict::ProcessPaused { paused: SOME, since: SOME },
        Verdict::ManyClients { clients: 10, connections: 30, hosts: vec![a(), b()] },
        Verdict::TimeoutOfAnotherKind {
            waited_for: "serverSelectionTimeoutMS".to_owned(),
            waited: SOME,
            set: "connectTimeoutMS".to_owned(),
            set_to: Duration::from_secs(1),
        },
        Verdict::LookupFailed { reason: None },
        Verdict::LookupSlow {
            name: "a".to_owned(),
            took: SOME,
            silent: vec!["192.0.2.53".to_owned()],
        },
        Verdict::SrvHostOutsideDomain {
            hostname: "a.shop.example".to_owned(),
            host: "db.other.example".to_owned(),
            domain: "shop.example".to_owned(),
        },
        Verdict::NamesDoNotResolve,
    ]
}

/// Verdicts on connections, TLS and logins.
fn of_connections() -> Vec<Verdict> {
    vec![
        Verdict::NotCheckedYet,
        Verdict::NoAnswerYet { stage: Some(Stage::Connect), lasts: SOME },
        Verdict::ConnectionRefused,
        Verdict::SocketUnusable,
        Verdict::Unreachable,
        Verdict::NoAnswer,
        Verdict::ServersSilent { stage: Stage::Tls, waited: SOME, atlas: true },
        Verdict::ProxyFailed,
        Verdict::ConnectionsClosed,
        Verdict::ConnectionLimit { server: a(), open: 2 },
        Verdict::IdleConnectionsCut {
            server: a(),
            times: 3,
            shortest: SOME,
            after: SOME,
            heartbeat: 2 * SOME,
        },
        Verdict::StreamingRefused { server: a(), times: 3, after: SOME },
        Verdict::NotMongo { server: a(), protocol: "HTTP".to_owned() },
        Verdict::TlsExpected { certain: false },
        Verdict::TlsNotExpected { certain: true },
        Verdict::AccessRefused { atlas: false },
        Verdict::CertificatesRefused,
        Verdict::CertificateUnsupported {
            server: a(),
            unsupported: UnsupportedCertificate::Version,
        },
        Verdict::CertificateRevoked { server: a(), reason: "revoked yesterday".to_owned() },
        Verdict::StapleInvalid { server: a(), reason: "there is no staple".to_owned() },
        Verdict::CertificatesUnavailable { reason: "client.pem is not there".to_owned() },
        Verdict::CertificateExpiresSoon { server: a(), left: SOME * 100_000 },
        Verdict::RevocationSlow {
            server: a(),
            responder: "http://192.0.2.1/".to_owned(),
            waited: SOME,
        },
        Verdict::RevocationUnknown {
            server: a(),
            responder: "http://192.0.2.1/".to_owned(),
            reason: "it answers with status 500".to_owned(),
        },
        Verdict::LoginRefused {
            server: Some(a()),
            user: Some("app".to_owned()),
            auth_source: Some("admin".to_owned()),
            mechanism: Some("SCRAM-SHA-256".to_owned()),
            reason: "Authentication failed.".to_owned(),
        },
        Verdict::MechanismUnavailable {
            server: a(),
            mechanism: Some("PLAIN".to_owned()),
            reason: "Received authentication for mechanism PLAIN which is not enabled".to_owned(),
        },
        Verdict::GssapiFailed {
            server: a(),
            problem: GssapiProblem::NoTicket,
            reason: "no ticket of ann".to_owned(),
        },
        Verdict::CredentialsUnavailable { reason: "no token".to_owned() },
    ]
}

/// Verdicts on sets, their members and operations.
fn of_sets() -> Vec<Verdict> {
    vec![
        Verdict::NotInitiated,
        Verdict::NotAMember { server: a(), set_name: "rs0".to_owned() },
        Verdict::SetNameDiffers { wanted: "rs1".to_owned(), found: Some("rs0".to_owned()) },
        Verdict::NotAReplicaSet { server: a(), server_type: ServerType::Mongos },
        Verdict::NoServersLeft {
            removal: Some(Removal { address: a(), removal_reason: RemovalReason::NotListed }),
        },
        Verdict::MembersElsewhere { seed: a(), called: Some(b()), members: vec![b()] },
        Verdict::MembersDisagree {
            disagreements: vec![Disagreement::new(a(), b(), "DOWN", "RSPrimary")],
        },
        Verdict::StalePrimary {
            server: a(),
            claim: "(1, 1)".to_owned(),
            newest: "(2, 1)".to_owned(),
        },
        Verdict::PrimaryRefusesWrites {
            server: a(),
            refusals: 3,
            code_name: "NotWritablePrimary".to_owned(),
        },
        Verdict::NoPrimary { since: SOME },
        Verdict::NoSecondary,
        Verdict::NoTagMatch,
        Verdict::TooStale { by: SOME },
        Verdict::PredicateRefused,
        Verdict::WrongServerType { direct: Some(a()), server_type: Some(ServerType::RsArbiter) },
        Verdict::ClocksDiffer { server: a(), by: SOME, ahead: true },
        Verdict::Overloaded { server: Some(a()), reason: "later".to_owned() },
        Verdict::OperationFailed {
            server: a(),
            command: "delete".to_owned(),
            reason: "no space is left".to_owned(),
        },
        Verdict::EstablishmentSlow {
            server: a(),
            takes: SOME,
            stage: Some(Stage::Hello),
            max_connecting: 2,
            in_use: 0,
            max_pool_size: 100,
        },
        Verdict::OplogSmall {
            server: a(),
            window: SOME,
            bound: OplogBound::Transaction,
            mebibytes: 990,
        },
        Verdict::NotPermitted { server: a(), commands: "serverStatus".to_owned() },
        Verdict::NoServerAvailable,
    ]
}

/// Verdicts on transactions.
fn of_transactions() -> Vec<Verdict> {
    let (server, limit) = (a(), Some(SOME));
    let verdicts = vec![
        TransactionVerdict::WriteConflict,
        TransactionVerdict::TransactionExpired { open: Some(SOME) },
        TransactionVerdict::TransactionLost { server: Some(a()), began_at: Some(b()) },
        TransactionVerdict::TransactionAborted { server: None },
        TransactionVerdict::TransactionFailedBefore { command: "insert on db".to_owned() },
        TransactionVerdict::TransactionSuperseded,
        TransactionVerdict::SnapshotUnavailable,
        TransactionVerdict::WriteConflicts {
            server: a(),
            aborted: 1,
            ended: 2,
            conflicts: 3,
            time: SOME,
            is_now: true,
        },
        TransactionVerdict::TransactionsIdle {
            server: a(),
            idle: 2,
            unused: SOME,
            open: SOME,
            owner: Some("10.0.0.1 (shop)".to_owned()),
            limit,
        },
        TransactionVerdict::TransactionsExpire { server: a(), expired: 1, limit },
        TransactionVerdict::TransactionsLost { server, failed: 1, commits: 2, since: SOME },
    ];
    verdicts.into_iter().map(Verdict::from).collect()
}

/// Verdicts on change streams.
fn of_change_streams() -> Vec<Verdict> {
    let (server, read_until) = (Some(a()), Some(bson::DateTime::from_millis(1_735_689_600_000)));
    let verdicts = vec![
        ChangeStreamVerdict::HistoryLost {
            server: server.clone(),
            read_until,
            oldest: read_until,
            is_refused: false,
        },
        ChangeStreamVerdict::ResumeTokenNotFound { server: server.clone() },
        ChangeStreamVerdict::PipelineChangesId,
        ChangeStreamVerdict::ResumeTokenRefused { server: server.clone() },
        ChangeStreamVerdict::NeedsReplicaSet { server: server.clone() },
        ChangeStreamVerdict::WatchNotPermitted { server },
        ChangeStreamVerdict::ImageNotRecorded,
        ChangeStreamVerdict::EventTooLarge,
        ChangeStreamVerdict::HistoryEnds {
            server: a(),
            read_until,
            left: Some(SOME),
            window: SOME,
        },
    ];
    verdicts.into_iter().map(Verdict::from).collect()
}

fn all() -> Vec<Verdict> {
    let lists = [of_clients(), of_connections(), of_sets(), of_transactions(), of_change_streams()];
    lists.concat()
}

#[test]
fn names_are_those_in_json_and_each_is_another_one() {
    let verdicts = all();
    let mut names: Vec<&str> = verdicts.iter().map(Verdict::name).collect();
    for verdict in &verdicts {
        assert_eq!(serde_json::to_value(verdict).unwrap()["verdict"], verdict.name());
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), verdicts.len());
    let sources = [
        include_str!("verdict.rs"),
        include_str!("transaction.rs"),
        include_str!("change_stream.rs"),
    ];
    let lines = sources.iter().flat_map(|source| source.lines()).map(str::trim_start);
    let named = lines.filter(|line| line.starts_with("Self::") && line.contains("=> \""));
    assert_eq!(named.count(), names.len(), "all kinds are here");
}

#[test]
fn causes_and_advice_are_parts_of_one_sentence() {
    for verdict in all() {
        let (cause, advice) = (verdict.to_string(), verdict.advice());
        let text = advice.to_string();
        assert!(!cause.is_empty() && !text.is_empty());
        for part in [&cause, &text] {
            assert!(
                !part.ends_with('.') || matches!(verdict, Verdict::LoginRefused { .. }),
                "{part}"
            );
            assert!(!part.contains("  ") && !part.contains('\n'), "{part:?}");
        }
        assert!(!cause.contains(&text), "{cause}");
        let finding = serde_json::to_value(verdict.finding()).unwrap();
        assert_eq!((&finding["cause"], &finding["advice"]), (&cause.into(), &text.clone().into()));
        match advice.line {
            Some(line) => {
                assert!(text.contains(&line) || matches!(verdict, Verdict::SetNameDiffers { .. }));
                assert_eq!(finding["line"], line);
            }
            None => assert_eq!(finding.get("line"), None),
        }
    }
}

#[test]
fn a_line_to_copy_maps_an_address_to_the_server_that_has_answered() {
    let elsewhere = |called: Option<ServerAddress>, members: &[ServerAddress]| {
        let verdict = Verdict::MembersElsewhere { seed: a(), called, members: members.to_vec() };
        verdict.advice().line
    };
    let line = Some("--map b:27018=a:27017".to_owned());
    assert_eq!(elsewhere(Some(b()), &[b(), a()]), line);
    assert_eq!(elsewhere(None, &[b()]), line);
    assert_eq!(elsewhere(None, &[b(), a()]), None, "it may be either of them");
}

/// The least heartbeatFrequencyMS is 500.
#[test]
fn what_is_cut_sooner_than_anybody_may_ask_has_no_line_to_copy() {
    let cut = |millis| {
        let verdict = Verdict::IdleConnectionsCut {
            server: a(),
            times: 3,
            shortest: Duration::from_millis(millis),
            after: Duration::from_millis(2 * millis),
            heartbeat: 10 * SOME,
        };
        verdict.advice().line
    };
    assert_eq!(cut(666), None);
    assert_eq!(cut(667).as_deref(), Some("heartbeatFrequencyMS=500&maxIdleTimeMS=500"));
}

#[test]
fn long_lists_of_members_are_cut() {
    let members: Vec<ServerAddress> =
        (0..7).map(|number| format!("m{number}:1").parse().unwrap()).collect();
    let verdict = Verdict::MembersElsewhere { seed: a(), called: None, members };
    assert!(verdict.to_string().contains("m4:1 and 2 more, which"), "{verdict}");
}

fn reply(stage: Stage, code: i32, labels: &[&str]) -> OperationError {
    let labels: bson::RawArrayBuf = labels.iter().copied().collect();
    let reply =
        rawdoc! { "ok": 0, "code": code, "codeName": "N", "errmsg": "m", "errorLabels": labels };
    OperationError::Reply { stage, error: CommandError::in_reply(&reply).unwrap() }
}

fn stream(stage: Stage, cause: Cause) -> OperationError {
    OperationError::Stream(Failure::new(stage, cause, "planted"))
}

#[test]
fn an_operation_that_fails_is_told_what_the_server_is_known_for() {
    let name = |evidence: &ServerEvidence, error: &OperationError| {
        evidence.judge(&a(), None, error).map(|verdict| verdict.name())
    };
    let nothing = ServerEvidence::default();
    let refusing = |refusals| ServerEvidence { refusals, ..ServerEvidence::default() };
    let refused = reply(Stage::Operate, 10107, &[]);
    assert_eq!(name(&refusing(2), &refused), None);
    assert_eq!(name(&refusing(3), &refused), Some("primaryRefusesWrites"));
    assert_eq!(name(&refusing(3), &reply(Stage::Operate, 11000, &[])), None);
    let overload = reply(Stage::Operate, 462, &["SystemOverloadedError", "RetryableError"]);
    assert_eq!(name(&nothing, &overload), Some("overloaded"));
    assert_eq!(name(&nothing, &reply(Stage::Authenticate, 18, &[])), Some("loginRefused"));
    let connected = ServerEvidence { open: 1, ..ServerEvidence::default() };
    let hung_up = stream(Stage::Hello, Cause::Closed);
    assert_eq!(name(&connected, &hung_up), Some("connectionLimit"));
    assert_eq!(name(&nothing, &hung_up), None, "there is no reason");
    assert_eq!(name(&connected, &stream(Stage::Operate, Cause::Closed)), None);
    let paused = |since| ServerEvidence {
        pause: Some(Pause::new(SOME, Duration::from_millis(since))),
        ..ServerEvidence::default()
    };
    assert_eq!(name(&paused(1000), &stream(Stage::Operate, Cause::Closed)), Some("processPaused"));
    assert_eq!(name(&paused(1001), &stream(Stage::Operate, Cause::Closed)), None);
    assert_eq!(name(&paused(0), &reply(Stage::Operate, 11000, &[])), None);
    let own = stream(Stage::Certificates, Cause::Timeout);
    assert_eq!(name(&nothing, &own), Some("certificatesUnavailable"));
    for (cause, verdict) in [
        (Cause::CertificateExpired, "certificatesRefused"),
        (Cause::CertificateRevoked, "certificateRevoked"),
        (Cause::InvalidStaple, "stapleInvalid"),
        (
            Cause::CertificateUnsupported { unsupported: UnsupportedCertificate::Version },
            "certificateUnsupported",
        ),
        (Cause::TlsRefused { alert: Some(80) }, "accessRefused"),
        (Cause::OtherProtocol { protocol: "HTTP".into() }, "notMongo"),
        (Cause::OtherProtocol { protocol: "TLS".into() }, "tlsExpected"),
        (Cause::NotTls, "tlsNotExpected"),
    ] {
        assert_eq!(name(&nothing, &stream(Stage::Tls, cause)), Some(verdict));
    }
}

#[test]
fn a_login_is_told_who_it_was_and_where_and_never_the_password() {
    let uri = "mongodb://app:secret@a/?authSource=users&authMechanism=SCRAM-SHA-256";
    let options = Options::parse(uri).unwrap();
    let refused = reply(Stage::Authenticate, 18, &[]);
    let verdict = ServerEvidence::default().judge(&a(), options.credential(), &refused).unwrap();
    let text = verdict.sentence();
    assert!(text.contains("(user \"app\", authSource users, SCRAM-SHA-256): m"), "{text}");
    assert!(!text.contains("secret") && !format!("{verdict:?}").contains("secret"));
    let options = Options::parse("mongodb://a/?authMechanism=MONGODB-AWS").unwrap();
    let judge = |stage, options: &Options| {
        let silence = stream(stage, Cause::Timeout);
        let verdict = ServerEvidence::default().judge(&a(), options.credential(), &silence);
        verdict.map(|verdict| verdict.sentence())
    };
    let elsewhere = judge(Stage::Credentials, &options).unwrap();
    assert!(elsewhere.contains("check the source of the credentials"), "{elsewhere}");
    assert_eq!(judge(Stage::Authenticate, &options), None, "that is the server's silence");
    // A library of Kerberos that gives no answer waits for one.
    let kerberos = Options::parse("mongodb://ann%40HERE@a/?authMechanism=GSSAPI").unwrap();
    let elsewhere = judge(Stage::Credentials, &kerberos).unwrap();
    assert!(elsewhere.contains("names a server of that realm"), "{elsewhere}");
}

/// More connections at a time would not mend what waits for others than the server.
#[test]
fn the_advice_about_slow_connections_is_about_what_they_wait_for() {
    let advice = |stage| {
        let (server, in_use, max_pool_size) = (a(), 0, 100);
        let slow = Verdict::EstablishmentSlow {
            server,
            takes: SOME,
            stage: Some(stage),
            max_connecting: 2,
            in_use,
            max_pool_size,
        };
        slow.advice().to_string()
    };
    for (stage, wanted) in [
        (Stage::Tls, "maxConnecting=4"),
        (Stage::Certificates, "provider of certificates"),
        (Stage::Revocation, "reach a responder"),
        (Stage::Credentials, "source of the credentials"),
    ] {
        assert!(advice(stage).contains(wanted), "{}", advice(stage));
    }
}

#[test]
fn the_advice_about_a_refused_login_is_about_what_the_server_was_shown() {
    let uris = [
        ("ann:p@a/?authMechanism=SCRAM-SHA-1", "check the password, authSource"),
        ("ann:p@a/?authMechanism=PLAIN&authSource=$external", "check the password, authSource"),
        ("a/?authMechanism=MONGODB-X509&tls=true", "tlsCertificateKeyFile"),
        ("ann%40HERE@a/?authMechanism=GSSAPI", "let the principal be a user of $external"),
        ("a/?authMechanism=MONGODB-AWS", "ARN"),
        ("a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:test", "audience"),
    ];
    for (uri, wanted) in uris {
        let options = Options::parse(&format!("mongodb://{uri}")).unwrap();
        let refused = reply(Stage::Authenticate, 18, &[]);
        let verdict = ServerEvidence::default().judge(&a(), options.credential(), &refused);
        let advice = verdict.unwrap().advice().to_string();
        assert!(advice.contains(wanted), "{uri}: {advice}");
    }
}

/// Servers give the same number where a user has no credentials of the mechanism.
#[test]
fn a_mechanism_that_the_server_does_not_offer_is_named() {
    let options = Options::parse("mongodb://ann:p@a/?authMechanism=SCRAM-SHA-1").unwrap();
    let judge = |code, message: &str| {
        let OperationError::Reply { stage, error } = reply(Stage::Authenticate, code, &[]) else {
            unreachable!("it is a reply")
        };
        let error = CommandError { message: message.to_owned(), ..error };
        let refused = OperationError::Reply { stage, error };
        ServerEvidence::default().judge(&a(), options.credential(), &refused).unwrap()
    };
    let other = "Received authentication for mechanism SCRAM-SHA-1 which is unknown or not enabled";
    let early = "Unsupported mechanism 'SCRAM-SHA-1' on authentication database 'admin'";
    for (code, message) in [(2, early), (2, other), (334, other)] {
        let unavailable = judge(code, message);
        assert_eq!(unavailable.name(), "mechanismUnavailable");
        assert!(unavailable.sentence().contains("set another authMechanism"), "{unavailable}");
    }
    let of_user = "Unable to use SCRAM-SHA-1 based authentication for user without any SCRAM-SHA-1 \
                   credentials registered";
    assert_eq!(judge(334, of_user).name(), "loginRefused");
    assert_eq!(judge(18, other).name(), "loginRefused");
}

#[test]
fn each_problem_of_gssapi_has_advice_of_its_own() {
    use GssapiProblem as Problem;
    let problems = [
        Problem::NoTicket,
        Problem::TicketExpired,
        Problem::PasswordRefused,
        Problem::PasswordExpired,
        Problem::UserLocked,
        Problem::UnknownUser,
        Problem::UnknownService,
        Problem::RealmUnreachable,
        Problem::ClocksDiffer,
        Problem::ServerUnproven,
        Problem::Other,
    ];
    let mut advised = Vec::new();
    for problem in problems {
        let failed = stream(Stage::Authenticate, Cause::GssapiFailed { problem });
        let verdict = ServerEvidence::default().judge(&a(), None, &failed).unwrap();
        assert_eq!(verdict.name(), "gssapiFailed");
        let Advice { text, line } = verdict.advice();
        assert_eq!((&*text, line), (problem.remedy(), None));
        assert!(!advised.contains(&text), "{text}");
        advised.push(text);
        let json = serde_json::to_value(problem).unwrap();
        assert_eq!(json.as_str(), Some(problem.name()));
    }
}

fn limited(uri: &str, millis: u64) -> SelectionError {
    let error = SelectionError::forked(Forked::new(1, 2), &Criteria::write(), TopologyType::Single);
    let error = SelectionError { verdict: Verdict::NoAnswer, waited: SOME, ..error };
    error.limited(Duration::from_millis(millis), &Options::parse(uri).unwrap())
}

#[test]
fn the_option_that_was_waited_for_is_named_and_another_one_that_was_set() {
    let plain = limited("mongodb://a", 29_999);
    assert_eq!((plain.limited_by, &*plain.also), (Some("serverSelectionTimeoutMS"), &[][..]));
    assert!(
        plain.to_string().contains("within 4.0 s (serverSelectionTimeoutMS): no server answers")
    );
    assert_eq!(limited("mongodb://a", 29_000).limited_by, None, "the call's own");
    assert_eq!(limited("mongodb://a/?timeoutMS=5000", 5_000).limited_by, Some("timeoutMS"));
    for (option, limits) in [
        ("connectTimeoutMS", "each attempt to connect"),
        ("socketTimeoutMS", "the wait for each reply"),
        ("waitQueueTimeoutMS", "the wait for a connection of a pool"),
    ] {
        let uri = format!("mongodb://a/?{option}=1000");
        let error = limited(&uri, 30_000);
        let text = format!(
            " Also: operations wait for serverSelectionTimeoutMS (30.0 s, the default), while \
             {option} (1.0 s) limits only {limits}; set that one too \
             (serverSelectionTimeoutMS=1000)."
        );
        assert!(error.to_string().ends_with(&text), "{error}");
        let both = limited(&(uri + "&serverSelectionTimeoutMS=2000"), 2_000);
        assert_eq!(both.also, [], "it was set on purpose");
    }
}
