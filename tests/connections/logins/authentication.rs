//! Those who may enter do.

use sdam_cluster::certificates::Authority;
use sdam_conformance::mongod::{Binary, Config, Server, Tls, User};
use sdam_core::bson::doc;
use sdam_core::config::{AuthMechanism, Options, ServerApiVersion};
use sdam_core::failure::Stage;
use sdam_core::operation::OperationError;
use sdam_core::selection::Criteria;
use sdam_core::topology::EventKind;
use sdam_tokio::Topology;

use super::fixture::{client, connection, guarded_server, login_error, number, ping, play, run};
use super::fixture::{run_on, status, uri};
use super::recorder::Recorder;
use super::{Outcome, Scenario, V4_2, V4_4, V5_0};

pub(crate) const SCENARIOS: [Scenario; 5] = [
    ("every_user_logs_in_by_every_mechanism_of_theirs", V4_2, scram),
    ("passwords_are_prepared_before_they_are_hashed", V4_2, prepared),
    ("the_first_step_goes_with_hello", V4_2, speculative),
    ("a_certificate_says_who_the_client_is", V4_2, x509),
    ("a_required_api_version_is_declared_everywhere", V5_0, api_version),
];

/// The users of AUTH-P1: their names are their passwords.
fn users() -> [User; 3] {
    [
        User::new("sha1", "sha1").with_mechanisms(&["SCRAM-SHA-1"]),
        User::new("sha256", "sha256").with_mechanisms(&["SCRAM-SHA-256"]),
        User::new("both", "both").with_mechanisms(&["SCRAM-SHA-1", "SCRAM-SHA-256"]),
    ]
}

async fn statistics(client: Topology) -> Outcome {
    run(&client, doc! { "dbStats": 1 }).await?;
    client.close().await;
    Ok(())
}

/// AUTH-P1: each user, with each mechanism it has named and with none named, by a connection string
/// and by options; with none named, SCRAM-SHA-256 is preferred.
fn scram(binary: &Binary) -> Outcome {
    // Only SCRAM-SHA-256 prepares a password, so that this user shows which one was chosen.
    let telling = User::new("telling", "IX").with_mechanisms(&["SCRAM-SHA-1", "SCRAM-SHA-256"]);
    let server = guarded_server(binary, Config::default(), &[&users()[..], &[telling]].concat())?;
    let mechanisms = [AuthMechanism::ScramSha1, AuthMechanism::ScramSha256];
    play(async {
        for user in users() {
            let name = &user.name;
            let login = format!("{name}:{name}@");
            let own = mechanisms.iter().filter(|it| user.mechanisms.contains(&it.name().into()));
            for mechanism in std::iter::once(None).chain(own.map(Some)) {
                let by_options = Options::builder()
                    .seeds([server.address()])
                    .direct_connection(true)
                    .username(name)
                    .password(name.as_str());
                let (by_uri, by_options) = match mechanism {
                    None => (uri(&server, &login, ""), by_options),
                    Some(it) => (
                        uri(&server, &login, &format!("authMechanism={}", it.name())),
                        by_options.auth_mechanism(*it),
                    ),
                };
                statistics(client(&by_uri)?).await?;
                statistics(Topology::new(by_options.build()?)?).await?;
            }
        }
        let login = "telling:I%C2%ADX@";
        statistics(client(&uri(&server, login, ""))?).await?;
        let refused = client(&uri(&server, login, "authMechanism=SCRAM-SHA-1"))?;
        login_error(&refused).await.map(drop)
    })
}

/// AUTH-P3: SASLprep (RFC 4013).
fn prepared(binary: &Binary) -> Outcome {
    let of = |name, password| User::new(name, password).with_mechanisms(&["SCRAM-SHA-256"]);
    let users = [of("IX", "IX"), of("\u{2168}", "\u{2163}")];
    let server = guarded_server(binary, Config::default(), &users)?;
    let logins =
        ["IX:IX@", "IX:I%C2%ADX@", "%E2%85%A8:IV@", "%E2%85%A8:I%C2%ADV@", "%E2%85%A8:%E2%85%A3@"];
    play(async {
        for login in logins {
            for options in ["", "authMechanism=SCRAM-SHA-256"] {
                statistics(client(&uri(&server, login, options))?).await?;
            }
        }
        let (name, password) = ("\u{2168}", "I\u{ad}V");
        let options = Options::builder().uri(&uri(&server, "", ""))?;
        let options = options.username(name).password(password).build()?;
        statistics(Topology::new(options)?).await
    })
}

/// AUTH-P5: how many commands a login takes beside hello; servers before 4.4 do not know that a
/// first step may come with hello, nor that the last, empty one can be left out.
fn speculative(binary: &Binary) -> Outcome {
    let server = guarded_server(binary, Config::default(), &users())?;
    let knows = binary.version() >= V4_4;
    let expected = [
        ("sha256:sha256@", "", if knows { [0, 1] } else { [1, 2] }),
        ("both:both@", "authMechanism=SCRAM-SHA-256", if knows { [0, 1] } else { [1, 2] }),
        ("sha1:sha1@", "authMechanism=SCRAM-SHA-1", if knows { [0, 1] } else { [1, 2] }),
        // What was tried with hello is of no use: it is SCRAM-SHA-256 until the server says more.
        ("sha1:sha1@", "", if knows { [1, 1] } else { [1, 2] }),
    ];
    play(async {
        let mut root = connection(&uri(&server, "root:root@", "")).await?;
        for (login, options, expected) in expected {
            let before = status(&mut root).await?;
            let _loan = connection(&uri(&server, login, options)).await?;
            let after = status(&mut root).await?;
            let taken = ["saslStart", "saslContinue"].map(|command| {
                let path = ["metrics", "commands", command, "total"];
                number(&after, &path) - number(&before, &path)
            });
            assert_eq!(taken, expected, "{login} {options}");
        }
        Ok(())
    })
}

/// A server that speaks TLS with everyone, and demands that users prove who they are.
pub(crate) fn tls_server(
    binary: &Binary,
    authority: &Authority,
    users: &[User],
    compressors: &[&str],
) -> Outcome<Server> {
    let tls = Tls::new(authority.issue("server", &["127.0.0.1"])?, authority.file()).required();
    let compressors = compressors.iter().map(|it| (*it).to_owned()).collect();
    guarded_server(binary, Config { tls: Some(tls), compressors, ..Config::default() }, users)
}

/// Authentication, "MONGODB-X509": with a user name or without, and not as anybody else.
fn x509(binary: &Binary) -> Outcome {
    let authority = Authority::new("the authority")?;
    let certificate = authority.issue_client("ada")?;
    let stranger = authority.issue_client("eve")?;
    let user = User::with_certificate(certificate.subject.as_str());
    let server = tls_server(binary, &authority, &[user], &[])?;
    let options = |file: &str| {
        let tls = format!("tls=true&tlsCAFile={}", authority.file());
        format!("{tls}&authMechanism=MONGODB-X509&tlsCertificateKeyFile={file}")
    };
    let login = format!("{}@", certificate.subject.replace('=', "%3D").replace(',', "%2C"));
    play(async {
        let options_of_root = format!("tls=true&tlsCAFile={}", authority.file());
        let mut root = connection(&uri(&server, "root:root@", &options_of_root)).await?;
        let path = ["metrics", "commands", "authenticate", "total"];
        let before = number(&status(&mut root).await?, &path);
        statistics(client(&uri(&server, "", &options(&certificate.file)))?).await?;
        statistics(client(&uri(&server, &login, &options(&certificate.file)))?).await?;
        // Since 4.4 hello is all it takes.
        let expected = if binary.version() >= V4_4 { 0 } else { 2 };
        assert_eq!(number(&status(&mut root).await?, &path) - before, expected);
        // UserNotFound, as the server knows no such user, and AuthenticationFailed, as the name is
        // not that of the certificate.
        for (login, expected) in [("", 11), (login.as_str(), 18)] {
            let stranger = client(&uri(&server, login, &options(&stranger.file)))?;
            let error = login_error(&stranger).await?;
            assert_eq!(code(&error), Some(expected), "{error}");
        }
        Ok(())
    })
}

/// Returns the number of the error by which a server refused a login.
pub(crate) fn code(error: &OperationError) -> Option<i32> {
    match error {
        OperationError::Reply { stage: Stage::Authenticate, error } => error.code,
        _ => None,
    }
}

/// API-P1: monitors, logins and commands all declare the version.
fn api_version(binary: &Binary) -> Outcome {
    let server = guarded_server(binary, Config::default(), &users())?;
    play(async {
        let recorder = Recorder::default();
        let uri = uri(&server, "both:both@", "heartbeatFrequencyMS=500");
        let options = Options::builder().uri(&uri)?.server_api(ServerApiVersion::V1.into());
        let builder = Topology::builder(options.build()?).dialer(recorder.clone());
        let (client, mut events) = builder.build_with_events()?;
        run(&client, doc! { "setParameter": 1, "requireApiVersion": true }).await?;
        // What follows opens connections of every kind: monitors, round trips, logins.
        let mut checked_out = client.select(Criteria::write()).await?.connect().await?;
        run_on(&mut checked_out, doc! { "dbStats": 1 }).await?;
        ping(&client).await?;
        while recorder.count("hello") < 6 {
            let event = events.next().await.ok_or("the client was closed")?;
            if let EventKind::ServerHeartbeatFailed { failure, .. } = event.kind {
                return Err(failure.into());
            }
        }
        for message in recorder.messages() {
            let body = message.op_msg()?.body;
            assert_eq!(body.get_str("apiVersion")?, "1", "{body:?}");
        }
        assert!(recorder.count("saslContinue") >= 2, "two logins");

        // Without one, not even hello is answered.
        let silent = super::fixture::client(&format!("{uri}&serverSelectionTimeoutMS=2000"))?;
        let error = ping(&silent).await.expect_err("a version is required");
        assert!(error.to_string().contains("apiVersion"), "{error}");
        Ok(())
    })
}
