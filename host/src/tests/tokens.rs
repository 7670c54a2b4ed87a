//! MONGODB-OIDC: who asks for a token, who uses one that is remembered, and logging in once more
//! (Authentication, "Reauthentication"); and what is remembered of MONGODB-AWS.

use std::future::{poll_fn, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, RawDocument, RawDocumentBuf, rawdoc};

use super::fixture::{Fixture, Task};
use super::puppet::Puppet;
use crate::error::{Error, ErrorKind};
use crate::machines::Host;
use crate::net::credentials::CredentialProvider;
use crate::operations::checked_out::CheckedOut;
use crate::sync::lock;
use sdam_core::auth::{AwsCredentials, CredentialRequest, CredentialResponse, OidcToken};
use sdam_core::config::{AllowedHosts, AuthMechanism, Options};
use sdam_core::failure::Cause;

/// A provider that counts how often it is asked.
#[derive(Default)]
struct Provider {
    asked: AtomicU32,
    /// True if it keeps its answers to itself.
    hangs: AtomicBool,
    /// The time that its last answer might have taken.
    time: super::Mutex<Option<Duration>>,
    /// True if its tokens come with refresh tokens.
    refreshes: AtomicBool,
    /// The refresh token that each question came with.
    refresh: super::Mutex<Vec<Option<String>>>,
}

/// A client whose server wants tokens.
fn discovered(options: &str) -> (Fixture, Arc<Provider>) {
    let uri = format!(
        "mongodb://a/?directConnection=true&authMechanism=MONGODB-OIDC\
         &authMechanismProperties=ENVIRONMENT:k8s{options}"
    );
    discovered_by(Options::parse(&uri).unwrap())
}

fn discovered_by(options: Options) -> (Fixture, Arc<Provider>) {
    let provider = Arc::<Provider>::default();
    let asked = Arc::clone(&provider);
    let ask = move |question: CredentialRequest| {
        let CredentialRequest::Oidc(question) = question else { panic!("another question") };
        *lock(&asked.time) = Some(question.timeout);
        let refresh = question.refresh_token.map(|token| token.expose().to_owned());
        lock(&asked.refresh).push(refresh);
        let number = asked.asked.fetch_add(1, Ordering::Relaxed);
        let provider = Arc::clone(&asked);
        async move {
            poll_fn(|_| match provider.hangs.load(Ordering::Relaxed) {
                true => Poll::Pending,
                false => Poll::Ready(()),
            })
            .await;
            let token = OidcToken::new(format!("token {number}"));
            let refreshes = provider.refreshes.load(Ordering::Relaxed);
            let refresh = refreshes.then(|| format!("refresh {number}").into());
            let token = token.with_refresh_token(refresh);
            Ok::<_, &'static str>(CredentialResponse::Oidc(token))
        }
    };
    let ask: Box<dyn CredentialProvider> = Box::new(ask);
    let puppet = Puppet { provider: Some(ask), ..Puppet::default() };
    let host = Host::new(Arc::new(options), 1, puppet);
    host.ring();
    (Fixture::begin(host), provider)
}

async fn ping(checked_out: &mut CheckedOut<Puppet>) -> Result<(), Error> {
    checked_out.command("admin", &rawdoc! { "ping": 1 }).await.map(drop)
}

/// Returns what the server has received since: the names of commands, and the tokens.
fn told(fixture: &Fixture) -> Vec<String> {
    let commands = std::mem::take(&mut *lock(&fixture.server.commands));
    let tell = |command: &bson::RawDocumentBuf| {
        let name = command.iter().next().unwrap().unwrap().0.as_str().to_owned();
        let tried = command.get_document("speculativeAuthenticate").ok();
        let token = tried.unwrap_or(command).get_binary("payload").ok().map(|payload| {
            let payload = RawDocument::from_bytes(payload.bytes).unwrap();
            payload.get_str("jwt").unwrap_or("whose").to_owned()
        });
        token.map_or(name.clone(), |token| format!("{name}: {token}"))
    };
    commands.iter().map(tell).collect()
}

/// "Drivers MUST cache the access token", for all connections of the client.
#[test]
fn a_token_that_one_connection_has_obtained_serves_the_next_one_too() {
    let (fixture, provider) = discovered("");
    let pool = fixture.pool();
    let first = fixture.run(pool.check_out()).unwrap();
    assert_eq!(told(&fixture), ["isMaster", "saslStart: token 0"]);
    let second = fixture.run(pool.check_out()).unwrap();
    assert_eq!(told(&fixture), ["isMaster: token 0", "saslStart: token 0"]);
    assert_eq!(provider.asked.load(Ordering::Relaxed), 1);
    drop((first, second));
}

/// Two connections are established at once: the second one waits, and finds what the first has
/// obtained.
#[test]
fn of_two_that_log_in_at_once_only_one_asks() {
    let (fixture, provider) = discovered("");
    provider.hangs.store(true, Ordering::Relaxed);
    let pool = fixture.pool();
    let mut both = [Task::new(pool.check_out()), Task::new(pool.check_out())];
    let is_pending = |task: &mut Task<'_, _>| task.poll().is_pending();
    assert_eq!(both.each_mut().map(is_pending), [true; 2]);
    fixture.establish();
    assert_eq!(told(&fixture), ["isMaster", "isMaster"], "neither has a token");
    provider.hangs.store(false, Ordering::Relaxed);
    fixture.establish();
    fixture.establish();
    assert_eq!(both.each_mut().map(is_pending), [false; 2]);
    assert_eq!(told(&fixture), ["saslStart: token 0", "saslStart: token 0"]);
    assert_eq!(provider.asked.load(Ordering::Relaxed), 1);
}

#[test]
fn a_connection_whose_token_has_expired_logs_in_once_more_and_sends_the_command_again() {
    let (fixture, provider) = discovered("");
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    told(&fixture);
    fixture.server.expired.store(1, Ordering::Relaxed);
    fixture.run(ping(&mut checked_out)).unwrap();
    assert_eq!(told(&fixture), ["ping", "saslStart: token 1", "ping"]);
    assert_eq!(provider.asked.load(Ordering::Relaxed), 2);
    // The token of this login is the connection's from now on.
    fixture.server.expired.store(1, Ordering::Relaxed);
    fixture.run(ping(&mut checked_out)).unwrap();
    assert_eq!(told(&fixture), ["ping", "saslStart: token 2", "ping"]);
    assert_eq!(fixture.pool().counts().in_use, 1);
    // Another connection shows the new one.
    drop(fixture.run(fixture.pool().check_out()).unwrap());
    assert_eq!(told(&fixture)[0], "isMaster: token 2");
}

/// Only MONGODB-OIDC asks for it: other clients return the error.
#[test]
fn a_client_without_tokens_is_told_that_it_has_to_log_in() {
    let fixture = Fixture::new("");
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    told(&fixture);
    fixture.server.expired.store(1, Ordering::Relaxed);
    let error = fixture.run(ping(&mut checked_out)).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Command, Some(391)));
    assert_eq!(told(&fixture), ["ping"]);
}

#[test]
fn logging_in_once_more_ends_with_the_operation_and_with_its_connection() {
    // By the deadline of the operation, which the provider receives.
    let (fixture, provider) = discovered("");
    fixture.pass(Duration::from_secs(1));
    let deadline = fixture.now() + Duration::from_secs(3);
    let mut checked_out =
        fixture.run(fixture.pool().with_deadline(Some(deadline)).check_out()).unwrap();
    fixture.server.expired.store(1, Ordering::Relaxed);
    provider.hangs.store(true, Ordering::Relaxed);
    let mut exchange = Task::new(ping(&mut checked_out));
    assert!(exchange.poll().is_pending());
    assert_eq!(*lock(&provider.time), Some(Duration::from_secs(3)));
    fixture.pass(Duration::from_secs(3));
    let Poll::Ready(Err(error)) = exchange.poll() else { panic!("none") };
    assert_eq!(error.kind(), ErrorKind::Timeout);
    drop(exchange);
    drop(checked_out);
    assert_eq!(fixture.pool().counts().total(), 0);

    // And at once, when the server hangs up meanwhile.
    let (fixture, provider) = discovered("");
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    fixture.server.expired.store(1, Ordering::Relaxed);
    fixture.server.hangs_up.store(true, Ordering::Relaxed);
    provider.hangs.store(true, Ordering::Relaxed);
    let Poll::Ready(Err(error)) = Task::new(ping(&mut checked_out)).poll() else {
        panic!("it waits for a token that cannot be used")
    };
    assert_eq!(error.failure().unwrap().cause, Cause::Closed);
}

/// A client that asks a person for tokens.
fn asking_a_person() -> (Fixture, Arc<Provider>) {
    let uri = "mongodb://a/?directConnection=true&heartbeatFrequencyMS=10000000";
    let options = Options::builder().uri(uri).unwrap().auth_mechanism(AuthMechanism::Oidc);
    let options = options.oidc_human_callback(AllowedHosts::new(["a"])).build().unwrap();
    discovered_by(options)
}

/// The server's reply to a step of a login.
#[expect(clippy::unnecessary_wraps, reason = "the fixture's replies may be the end of a stream")]
fn sasl(done: bool, payload: RawDocumentBuf) -> Option<RawDocumentBuf> {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: payload.into_bytes() };
    Some(rawdoc! { "ok": 1, "conversationId": 1, "done": done, "payload": payload })
}

/// Two connections log in once more, and both questions were made with the same refresh token: the
/// second is asked when the first has used that up.
#[test]
fn a_refresh_token_that_another_connection_has_used_up_is_not_shown_again() {
    let (fixture, provider) = asking_a_person();
    provider.refreshes.store(true, Ordering::Relaxed);
    let described = sasl(false, rawdoc! { "issuer": "https://idp" });
    lock(&fixture.server.replies).extend([described, sasl(true, RawDocumentBuf::new())]);
    let pool = fixture.pool();
    let mut first = fixture.run(pool.check_out()).unwrap();
    let mut second = fixture.run(pool.check_out()).unwrap();
    provider.hangs.store(true, Ordering::Relaxed);
    let expired = || Some(rawdoc! { "ok": 0, "code": 391 });
    lock(&fixture.server.replies).extend([expired(), expired()]);
    let mut both = [Task::new(ping(&mut first)), Task::new(ping(&mut second))];
    assert!(both.each_mut().map(|task| task.poll().is_pending()).into_iter().all(|it| it));
    provider.hangs.store(false, Ordering::Relaxed);
    let refused = || Some(rawdoc! { "ok": 0, "code": 18 });
    lock(&fixture.server.replies).extend([refused(), refused()]);
    let [first, second] = &mut both;
    assert!(matches!(first.poll(), Poll::Ready(Err(_))), "its token and the provider are refused");
    assert!(matches!(second.poll(), Poll::Ready(Ok(()))));
    assert_eq!(*lock(&provider.refresh), [None, Some("refresh 0".to_owned()), None]);
}

/// "OIDC Human Callback": "The timeout duration MUST be 5 minutes. [...] the callback is not subject
/// to CSOT"; nor is it to connectTimeoutMS.
#[test]
fn a_person_has_five_minutes_whatever_other_limits_there_are() {
    const ALMOST: Duration = Duration::from_secs(299);
    let (fixture, provider) = asking_a_person();
    provider.hangs.store(true, Ordering::Relaxed);
    *lock(&fixture.server.reply) = sasl(false, rawdoc! { "issuer": "https://idp" });
    let pool = fixture.pool();
    let mut login = Task::new(pool.check_out());
    assert!(login.poll().is_pending());
    fixture.establish();
    assert_eq!(*lock(&provider.time), Some(Duration::from_secs(300)));
    fixture.pass(ALMOST);
    assert!(login.poll().is_pending());
    *lock(&fixture.server.reply) = sasl(true, RawDocumentBuf::new());
    provider.hangs.store(false, Ordering::Relaxed);
    fixture.establish();
    let Poll::Ready(Ok(first)) = login.poll() else { panic!("no connection") };
    drop((login, first));

    // Logging in once more, although the operation has less time; what comes of it is remembered.
    let deadline = fixture.now() + Duration::from_secs(3);
    *lock(&fixture.server.reply) = None;
    let mut checked_out = fixture.run(pool.with_deadline(Some(deadline)).check_out()).unwrap();
    let expired = Some(rawdoc! { "ok": 0, "code": 391 });
    let described = sasl(false, rawdoc! { "issuer": "https://idp" });
    let accepted = sasl(true, RawDocumentBuf::new());
    lock(&fixture.server.replies).extend([expired, described, accepted]);
    provider.hangs.store(true, Ordering::Relaxed);
    let mut exchange = Task::new(ping(&mut checked_out));
    assert!(exchange.poll().is_pending());
    fixture.pass(ALMOST);
    assert!(exchange.poll().is_pending());
    provider.hangs.store(false, Ordering::Relaxed);
    // The command that was refused is sent again, and its server has the time that was left when the
    // person was asked.
    *lock(&fixture.server.mute_from) = Some("ping");
    assert!(exchange.poll().is_pending());
    fixture.pass(Duration::from_secs(2));
    assert!(exchange.poll().is_pending());
    fixture.pass(Duration::from_secs(2));
    let Poll::Ready(Err(error)) = exchange.poll() else { panic!("there is no limit any more") };
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(told(&fixture).last().map(|it| &**it), Some("ping"));
    assert_eq!(provider.asked.load(Ordering::Relaxed), 2);
}

/// A thread that a socket blocks would not hear of the answer: it is not made to read.
#[test]
fn on_a_socket_that_blocks_nobody_reads_while_a_token_is_awaited() {
    let (fixture, provider) = discovered("");
    fixture.server.blocks.store(true, Ordering::Relaxed);
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    fixture.server.expired.store(1, Ordering::Relaxed);
    provider.hangs.store(true, Ordering::Relaxed);
    let mut exchange = Task::new(ping(&mut checked_out));
    assert!(exchange.poll().is_pending());
    let reads = fixture.server.reads.load(Ordering::Relaxed);
    assert!(exchange.poll().is_pending());
    assert_eq!(fixture.server.reads.load(Ordering::Relaxed), reads);
}

/// "If AWS authentication fails for any reason, the cache MUST be cleared", for instance because
/// time is up.
#[test]
fn credentials_of_aws_that_were_used_in_vain_are_asked_for_again() {
    let asked = Arc::<AtomicU32>::default();
    let counted = Arc::clone(&asked);
    let ask = move |_: CredentialRequest| {
        counted.fetch_add(1, Ordering::Relaxed);
        let (expires, now) = (Some(DateTime::from_millis(3_600_000)), DateTime::from_millis(0));
        let credentials = AwsCredentials::new("AKID", "key").with_expires(expires);
        ready(Ok::<_, &'static str>(CredentialResponse::Aws { credentials, now }))
    };
    let (provider, time_of_day) = (Some(Box::new(ask) as Box<_>), Some(DateTime::from_millis(0)));
    let puppet = Puppet { provider, time_of_day, ..Puppet::default() };
    let uri = "mongodb://a/?directConnection=true&authMechanism=MONGODB-AWS";
    let host = Host::new(Arc::new(Options::parse(uri).unwrap()), 1, puppet);
    host.ring();
    let fixture = Fixture::begin(host);
    // base64 of the nonce that connections are given, and what the server adds.
    let binary = |bytes| Binary { subtype: BinarySubtype::Generic, bytes };
    let challenge = rawdoc! { "s": binary("BwcH".repeat(16).into()), "h": "sts.amazonaws.com" };
    let payload = binary(challenge.into_bytes());
    let challenge = rawdoc! { "ok": 1, "conversationId": 1, "done": false, "payload": payload };
    let pool = fixture.pool();
    let login = |mute_from: &'static str| {
        *lock(&fixture.server.reply) = Some(challenge.clone());
        *lock(&fixture.server.mute_from) = Some(mute_from);
        let mut login = Task::new(pool.check_out());
        assert!(login.poll().is_pending());
        fixture.establish();
        *lock(&fixture.server.mute_from) = None;
        fixture.server.mute.store(false, Ordering::Relaxed);
        login
    };
    let mut first = login("saslStart");
    *lock(&fixture.server.reply) = Some(rawdoc! { "ok": 1, "conversationId": 1, "done": true });
    fixture.establish();
    let Poll::Ready(Ok(_loan)) = first.poll() else { panic!("no connection") };
    let second = login("saslContinue");
    assert_eq!(asked.load(Ordering::Relaxed), 1, "they are remembered");
    fixture.give_up();
    let third = login("saslContinue");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    drop((second, third));
}
