//! MONGODB-OIDC with a person, against a server that names identity providers and takes tokens as
//! the test says: the prose tests of Authentication, "Human Authentication Flow".

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fake_server::{FakeServer, error, first_key, payload, sasl, soon};
use sdam_core::auth::{CredentialRequest, CredentialResponse, OidcRequest, OidcToken};
use sdam_core::bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};
use sdam_core::config::{AllowedHosts, AuthMechanism, Options, OptionsBuilder};
use sdam_host::Error;
use sdam_tokio::Topology;

/// A server that knows identity providers and is shown tokens, and how it behaves.
#[derive(Default)]
struct Gate {
    /// The names of principals of more than one provider, if there is more than one.
    principals: Vec<&'static str>,
    /// True if the provider's description has no id of a client.
    is_for_machines: bool,
    /// The tokens that it does not take.
    refused: Mutex<Vec<String>>,
    /// Codes with which it answers the next commands of a name; 0 closes the connection.
    failing: Mutex<Vec<(&'static str, i32)>>,
}

impl Gate {
    async fn serve(self: &Arc<Self>) -> FakeServer {
        let gate = Arc::clone(self);
        FakeServer::start(Arc::new(move |_, command: &RawDocument| gate.answer(command))).await
    }

    fn answer(&self, command: &RawDocument) -> Option<RawDocumentBuf> {
        let name = first_key(command);
        // What goes with hello is no command.
        if command.get("$db").is_ok_and(|database| database.is_some()) {
            let mut failing = self.failing.lock().unwrap();
            if let Some(index) = failing.iter().position(|(known, _)| *known == name) {
                let code = failing.remove(index).1;
                return (code != 0).then(|| error(code));
            }
        }
        if !["saslStart", "saslContinue"].contains(&&*name) {
            return Some(rawdoc! { "ok": 1 });
        }
        let shown = RawDocument::from_bytes(payload(command)).unwrap();
        Some(match shown.get_str("jwt") {
            Ok(token) if self.refused.lock().unwrap().iter().any(|it| it == token) => error(18),
            Ok(_) => sasl(true, b""),
            Err(_) => self.describe(shown.get_str("n").ok()),
        })
    }

    /// Describes the provider of a principal, or the only one.
    fn describe(&self, principal: Option<&str>) -> RawDocumentBuf {
        let name = match principal {
            None if !self.principals.is_empty() => return error(18),
            None => "only",
            Some(name) => name,
        };
        let mut idp = rawdoc! { "issuer": format!("https://{name}") };
        if !self.is_for_machines {
            idp.append(cstr!("clientId"), "client");
        }
        sasl(false, idp.as_bytes())
    }

    fn refuse(&self, token: &str) {
        self.refused.lock().unwrap().push(token.into());
    }

    /// Has the next command of a name fail.
    fn fail(&self, name: &'static str, code: i32) {
        self.failing.lock().unwrap().push((name, code));
    }
}

/// The questions that a person was asked.
type Asked = Arc<Mutex<Vec<OidcRequest>>>;

fn options(server: &FakeServer) -> OptionsBuilder {
    let uri = format!("mongodb://{}/?retryReads=false", server.address);
    Options::builder().uri(&uri).unwrap().auth_mechanism(AuthMechanism::Oidc)
}

/// A client whose person gives these tokens, and then "token-N" with "refresh-N" for the Nth time.
fn client_by(
    options: OptionsBuilder,
    hosts: AllowedHosts,
    tokens: impl Into<VecDeque<OidcToken>>,
) -> (Topology, Asked) {
    let (asked, tokens) = (Asked::default(), Mutex::new(tokens.into()));
    let noted = Arc::clone(&asked);
    let options = options.oidc_human_callback(hosts).build().unwrap();
    let client = Topology::builder(options).credential_provider(move |question| {
        let CredentialRequest::Oidc(question) = question else { panic!("no question for a token") };
        let mut noted = noted.lock().unwrap();
        noted.push(question);
        let (number, given) = (noted.len(), tokens.lock().unwrap().pop_front());
        let token = given.unwrap_or_else(|| {
            let refresh = Some(format!("refresh-{number}").into());
            OidcToken::new(format!("token-{number}")).with_refresh_token(refresh)
        });
        async { Ok::<_, Infallible>(CredentialResponse::Oidc(token)) }
    });
    (client.build().unwrap(), asked)
}

fn client(server: &FakeServer) -> (Topology, Asked) {
    client_by(options(server), AllowedHosts::default(), [])
}

async fn find(client: &Topology) -> Result<(), Error> {
    soon(client.run_command("test", &rawdoc! { "find": "things" })).await.map(drop)
}

fn calls(asked: &Asked) -> usize {
    asked.lock().unwrap().len()
}

fn refresh_tokens(asked: &Asked) -> Vec<Option<String>> {
    let shown = |question: &OidcRequest| {
        question.refresh_token.as_ref().map(|token| token.expose().to_owned())
    };
    asked.lock().unwrap().iter().map(shown).collect()
}

#[tokio::test]
async fn a_person_logs_in_with_and_without_a_name() {
    // OIDC-H1.1 to OIDC-H1.5, OIDC-H1.8, OIDC-H2.1
    for (principals, username, issuer) in [
        (vec![], None, Some("https://only")),
        (vec![], Some("user_1"), Some("https://user_1")),
        (vec!["user_1", "user_2"], Some("user_1"), Some("https://user_1")),
        (vec!["user_1", "user_2"], Some("user_2"), Some("https://user_2")),
        (vec!["user_1", "user_2"], None, None),
    ] {
        for is_for_machines in [false, true] {
            let principals = principals.clone();
            let gate = Arc::new(Gate { principals, is_for_machines, ..Gate::default() });
            let server = gate.serve().await;
            let named = match username {
                Some(name) => options(&server).username(name),
                None => options(&server),
            };
            let (client, asked) = client_by(named, AllowedHosts::default(), []);
            assert_eq!(find(&client).await.is_ok(), issuer.is_some(), "{username:?}");
            let asked = asked.lock().unwrap();
            assert_eq!(asked.len(), usize::from(issuer.is_some()));
            for question in asked.iter() {
                let idp_info = question.idp_info.as_ref().unwrap();
                assert_eq!(Some(&*idp_info.issuer), issuer);
                assert_eq!(idp_info.client_id.is_none(), is_for_machines);
                assert_eq!((question.version, question.username.as_deref()), (1, username));
                assert_eq!(question.timeout, Duration::from_secs(300));
            }
        }
    }
}

#[tokio::test]
async fn a_host_that_is_not_allowed_is_refused_and_the_person_is_not_asked() {
    // OIDC-H1.6; OIDC-H1.7 is among the tests of credentials in core.
    let server = Arc::<Gate>::default().serve().await;
    let uri = format!("mongodb://{}/?ignored=example.com", server.address);
    for hosts in [AllowedHosts::new([""; 0]), AllowedHosts::new(["example.com"])] {
        let options = Options::builder().uri(&uri).unwrap().auth_mechanism(AuthMechanism::Oidc);
        let (client, asked) = client_by(options, hosts, []);
        let error = find(&client).await.unwrap_err().to_string();
        let wanted = format!("{} is not among the allowed hosts", server.address);
        assert!(error.contains(&wanted), "{error}");
        assert_eq!((calls(&asked), server.count("saslStart")), (0, 0));
    }
}

#[tokio::test]
async fn an_answer_without_a_token_fails_the_command() {
    // OIDC-H2.2
    let server = Arc::<Gate>::default().serve().await;
    let (client, _) = client_by(options(&server), AllowedHosts::default(), [OidcToken::new("")]);
    let error = find(&client).await.unwrap_err().to_string();
    assert!(error.contains("gave an empty one"), "{error}");
}

#[tokio::test]
async fn a_refresh_token_is_shown_to_the_person_when_the_token_has_expired() {
    // OIDC-H2.3, OIDC-H4.1: over the same connection, and without hello
    let gate = Arc::<Gate>::default();
    let server = gate.serve().await;
    let (client, asked) = client(&server);
    find(&client).await.unwrap();
    assert_eq!(calls(&asked), 1);
    gate.fail("find", 391);
    find(&client).await.unwrap();
    assert_eq!(refresh_tokens(&asked), [None, Some("refresh-1".into())]);
    let commands = server.commands.lock().unwrap().clone();
    let login = ["saslStart", "saslContinue", "find"];
    assert_eq!(commands, [&login[..], &["find", "saslStart", "find"]].concat());
}

#[tokio::test]
async fn a_remembered_token_goes_with_hello() {
    // OIDC-H3.1
    let gate = Arc::<Gate>::default();
    let server = gate.serve().await;
    let (client, asked) = client(&server);
    gate.fail("find", 0);
    find(&client).await.unwrap_err();
    gate.fail("saslStart", 18);
    find(&client).await.unwrap();
    assert_eq!(calls(&asked), 1);
}

#[tokio::test]
async fn without_a_remembered_token_nothing_goes_with_hello() {
    // OIDC-H3.2
    let gate = Arc::<Gate>::default();
    let server = gate.serve().await;
    let (client, asked) = client(&server);
    gate.fail("saslStart", 18);
    let error = find(&client).await.unwrap_err().to_string();
    assert!(error.contains("18"), "{error}");
    assert_eq!(calls(&asked), 0);
}

#[tokio::test]
async fn a_login_once_more_succeeds_without_a_refresh_token_and_after_a_bad_one() {
    // OIDC-H4.2, OIDC-H4.3
    for (refresh, count) in [(None, 2), (Some("bad".into()), 1)] {
        let gate = Arc::<Gate>::default();
        let server = gate.serve().await;
        let first = OidcToken::new("token-1").with_refresh_token(refresh.clone());
        let (client, asked) = client_by(options(&server), AllowedHosts::default(), [first]);
        find(&client).await.unwrap();
        gate.fail("find", 391);
        find(&client).await.unwrap();
        let shown = refresh.map(|token| token.expose().to_owned());
        assert_eq!(refresh_tokens(&asked), [None, shown]);
        assert_eq!(server.count("saslContinue"), count, "without one, there are two steps again");
    }
}

#[tokio::test]
async fn a_login_once_more_fails_when_each_way_was_gone() {
    // OIDC-H4.4
    let gate = Arc::<Gate>::default();
    let server = gate.serve().await;
    let (client, asked) = client(&server);
    find(&client).await.unwrap();
    assert_eq!(calls(&asked), 1);
    gate.refuse("token-2");
    gate.refuse("token-3");
    gate.fail("find", 391);
    let error = find(&client).await.unwrap_err().to_string();
    assert!(error.contains("18") && !error.contains("token-"), "{error}");
    assert_eq!(refresh_tokens(&asked), [None, Some("refresh-1".into()), None]);
    // The connection is gone, and the person helps once more: the last token was refused, too.
    find(&client).await.unwrap();
}
