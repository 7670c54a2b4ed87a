//! Logins that are refused: the error says why, and shows no password.

use std::time::Duration;

use sdam_cluster::certificates::Authority;
use sdam_conformance::mongod::{Binary, Config, User};
use sdam_core::bson::doc;
use sdam_core::config::Options;
use sdam_core::description::ServerType;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::operation::OperationError;
use sdam_core::pool::PoolEvent;
use sdam_core::selection::Criteria;
use sdam_core::topology::EventKind;
use sdam_tokio::Topology;

use super::authentication::{code, tls_server};
use super::fixture::{client, guarded_server, login_error, open_server, ping, play, run, uri};
use super::{Outcome, Scenario, V4_2, V5_0};

pub(crate) const SCENARIOS: [Scenario; 6] = [
    ("whoever_is_refused_is_told_the_same", V4_2, refused),
    ("a_refused_client_recovers", V4_2, recovers),
    ("a_refused_password_is_tried_once_a_check", V4_2, no_storm),
    ("a_refused_password_is_shown_nowhere", V4_2, kept_secret),
    ("what_works_with_no_server_is_refused_by_name", V4_2, impossible),
    ("plain_goes_over_tls", V4_2, plain),
];

fn users() -> [User; 2] {
    [
        User::new("sha1", "sha1").with_mechanisms(&["SCRAM-SHA-1"]),
        User::new("sha256", "sha256").with_mechanisms(&["SCRAM-SHA-256"]),
    ]
}

/// AUTH-P2: a mechanism that the user does not have, an unknown user and a wrong password are all
/// errors of authentication, not of the network or of hello.
fn refused(binary: &Binary) -> Outcome {
    let server = guarded_server(binary, Config::default(), &users())?;
    let logins = [
        ("sha1:sha1@", "authMechanism=SCRAM-SHA-256"),
        ("sha256:sha256@", "authMechanism=SCRAM-SHA-1"),
        ("nobody:nobody@", ""),
        ("nobody:nobody@", "authMechanism=SCRAM-SHA-1"),
        ("nobody:nobody@", "authMechanism=SCRAM-SHA-256"),
        ("sha1:wrong@", ""),
        ("sha256:wrong@", ""),
        ("sha256:wrong@", "authMechanism=SCRAM-SHA-256"),
        // The user is not in that database.
        ("sha256:sha256@", "authSource=test"),
    ];
    play(async {
        for (login, options) in logins {
            let error = login_error(&client(&uri(&server, login, options))?).await?;
            assert_eq!(code(&error), Some(18), "{login} {options}: {error}");
            assert!(error.labels().is_empty(), "{login} {options}: {error:?}");
        }
        Ok(())
    })
}

/// SDAM, "Authentication errors": the server is marked Unknown and the pool cleared, of the client
/// that was refused only; the next check makes both usable again.
fn recovers(binary: &Binary) -> Outcome {
    let server = guarded_server(binary, Config::default(), &users())?;
    play(async {
        let options = Options::parse(&uri(&server, "sha256:new@", "heartbeatFrequencyMS=500"))?;
        let (refused, mut events) = Topology::with_events(options)?;
        let other = client(&uri(&server, "sha256:sha256@", ""))?;
        ping(&other).await?;
        login_error(&refused).await?;

        let (mut unknown, mut cleared) = (false, false);
        loop {
            match events.next().await.ok_or("the client was closed")?.kind {
                EventKind::ServerDescriptionChanged { new, .. }
                    if new.server_type == ServerType::Unknown =>
                {
                    let failure = new.error.clone().ok_or("there is no reason")?;
                    assert_eq!((failure.stage, number(&failure)), (Stage::Authenticate, 18));
                    unknown = true;
                }
                EventKind::Pool {
                    event: PoolEvent::PoolCleared { cause, interrupt_in_use_connections, .. },
                    ..
                } => {
                    assert_eq!((cause.stage, number(&cause)), (Stage::Authenticate, 18));
                    assert!(!interrupt_in_use_connections);
                    cleared = true;
                }
                EventKind::Pool { event: PoolEvent::PoolReady, .. } if cleared => break,
                _ => {}
            }
        }
        assert!(unknown);
        // The other client has noticed nothing.
        let view = other.view();
        assert_eq!(view.servers()[0].server_type, ServerType::Standalone);
        assert_eq!(view.servers()[0].error, None);
        ping(&other).await?;

        let root = client(&uri(&server, "root:root@", ""))?;
        run(&root, doc! { "updateUser": "sha256", "pwd": "new" }).await?;
        ping(&refused).await?;
        login_error(&client(&uri(&server, "sha256:sha256@", ""))?).await.map(drop)
    })
}

/// A pool that is to have connections does not repeat a failed login again and again, which may
/// lock a user out: it tries only when a check has made its server usable, and not with more than
/// maxConnecting.
fn no_storm(binary: &Binary) -> Outcome {
    const CHECKS: u32 = 4;
    let server = guarded_server(binary, Config::default(), &users())?;
    play(async {
        let options = "minPoolSize=10&maxConnecting=3&heartbeatFrequencyMS=500";
        let options = Options::parse(&uri(&server, "sha256:wrong@", options))?;
        let (_client, mut events) = Topology::with_events(options)?;
        let (mut checks, mut ready, mut created) = (0, 0, 0);
        while ready < CHECKS {
            let event = events.next().await.ok_or("the client was closed")?;
            match event.kind {
                EventKind::ServerHeartbeatSucceeded { .. } => checks += 1,
                EventKind::Pool { event: PoolEvent::PoolReady, .. } => ready += 1,
                EventKind::Pool { event: PoolEvent::ConnectionCreated { .. }, .. } => created += 1,
                EventKind::Pool { event: PoolEvent::ConnectionReady { .. }, .. } => {
                    return Err("the password is right".into());
                }
                _ => {}
            }
            assert!(ready <= checks, "usable {ready} times after {checks} checks");
            assert!(created <= 3 * ready, "{created} attempts after {ready} checks");
        }
        assert!(created >= CHECKS - 1);
        Ok(())
    })
}

fn number(failure: &Failure) -> i32 {
    match failure.cause {
        Cause::Command { code, .. } => code,
        _ => 0,
    }
}

/// Authentication: no event, error or form of showing has the password, or what proves it.
fn kept_secret(binary: &Binary) -> Outcome {
    let server = guarded_server(binary, Config::default(), &users())?;
    let password = "sw0rdf1sh";
    play(async {
        for mechanism in ["", "authMechanism=SCRAM-SHA-1", "authMechanism=SCRAM-SHA-256"] {
            let login = format!("sha256:{password}@");
            let options = Options::parse(&uri(&server, &login, mechanism))?;
            let mut told = format!("{options:?} {}", options.to_uri());
            let (client, mut events) = Topology::with_events(options)?;
            let error = ping(&client).await.expect_err("the password is wrong");
            told += &format!("{error} {error:?} {client:?} {:?}", client.view());
            if let Err(error) = client.with_timeout(Duration::ZERO).select(Criteria::write()).await
            {
                told += &format!("{error} {error:?}");
            }
            client.close().await;
            let mut failed = 0;
            while let Some(event) = events.next().await {
                told += &format!("{event:?}");
                failed += u32::from(matches!(
                    event.kind,
                    EventKind::Pool { event: PoolEvent::ConnectionCheckOutFailed { .. }, .. }
                ));
            }
            assert_eq!(failed, 1);
            assert!(told.contains("sha256"), "the user is named");
            assert!(!told.contains(password), "{told}");
        }
        Ok(())
    })
}

/// The login that the client refuses itself: PLAIN without TLS.
fn impossible(binary: &Binary) -> Outcome {
    let server = open_server(binary)?;
    let cases = [("ada:secret@", "PLAIN", "use TLS (tls=true)")];
    play(async {
        for (login, mechanism, advice) in cases {
            let options = format!("authMechanism={mechanism}");
            let client = client(&uri(&server, login, &options))?;
            match login_error(&client).await? {
                OperationError::Stream(failure) => {
                    assert_eq!(failure.stage, Stage::Authenticate, "{failure}");
                    assert_eq!(failure.cause, Cause::Configuration, "{failure}");
                    assert!(failure.detail.contains(advice), "{failure}");
                }
                other => return Err(other.into()),
            }
        }
        Ok(())
    })
}

/// PLAIN over TLS is sent. That a server without LDAP refuses it shows that it was.
fn plain(binary: &Binary) -> Outcome {
    let authority = Authority::new("the authority")?;
    let server = tls_server(binary, &authority, &users(), &[])?;
    play(async {
        let options = format!("authMechanism=PLAIN&tls=true&tlsCAFile={}", authority.file());
        let error = login_error(&client(&uri(&server, "sha256:sha256@", &options))?).await?;
        // BadValue before 5.0, MechanismUnavailable since.
        let expected = if binary.version() >= V5_0 { 334 } else { 2 };
        assert_eq!(code(&error), Some(expected), "{error}");
        let again = client(&uri(&server, "sha256:sha256@", &options))?;
        let refused = ping(&again).await.err().ok_or("the client is let in")?;
        let refused = refused.downcast::<sdam_host::Error>()?;
        let verdict = refused.verdict().ok_or("there is no verdict")?;
        assert_eq!(verdict.name(), "mechanismUnavailable", "{verdict}");
        Ok(())
    })
}
