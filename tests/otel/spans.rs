//! The spans of operations and commands, as a provider of OpenTelemetry keeps them.

use opentelemetry::trace::{FutureExt, SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, Value};
use sdam::bson::{RawDocument, rawdoc};
use sdam::core::config::Options;
use sdam::core::operation::{CommandMessage, OperationOptions};
use sdam::core::spans::{SpanSettings, SpanStart};
use sdam::host::ClientSession;
use sdam::host::driver::{DriverSession, DriverTopology, ObservedOperation, Request, Target};
use sdam::{Criteria, Error, Reply, Topology};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};

use crate::kept::{Kept, attribute, text};

crate::scenarios![
    an_operation_is_within_the_current_span_and_its_command_within_it,
    spans_have_the_attributes_of_their_command,
    each_attempt_has_a_span_of_its_own,
    an_exception_is_recorded_for_the_command_and_its_operation,
    an_operation_that_finds_no_server_has_an_exception_and_no_command,
    sensitive_commands_have_no_spans,
    what_is_given_up_ends,
    commands_over_a_connection_are_within_what_they_are_told,
    the_settings_say_whether_there_are_spans_and_texts,
    closing_tells_the_servers_of_sessions_in_an_operation,
];

/// A client whose spans are kept, and its deployment.
struct Fixture {
    kept: Kept,
    client: Topology,
    _cluster: EmbeddedCluster,
}

impl Fixture {
    async fn new() -> Self {
        Self::with("", None).await
    }

    async fn with(options: &str, settings: Option<SpanSettings>) -> Self {
        let cluster = EmbeddedOptions::default();
        let cluster = EmbeddedCluster::start(cluster).await.unwrap();
        let kept = Kept::new();
        let options = Options::parse(&format!("{}{options}", cluster.uri())).unwrap();
        let builder = Topology::builder(options).tracer(kept.tracer());
        let builder = match settings {
            Some(settings) => builder.spans(settings),
            None => builder,
        };
        let client = builder.build().unwrap();
        Self { kept, client, _cluster: cluster }
    }

    async fn run(&self, command: &RawDocument) -> Result<(), Error> {
        self.client.run_command("app", command).await.map(drop)
    }

    /// Performs an operation that may be tried again, without a session.
    async fn read(&self, command: &RawDocument) -> Result<Reply, Error> {
        let message = CommandMessage::new("app", command);
        let options = OperationOptions::read();
        let target = Target::Select(Criteria::write().into());
        let mut session = ClientSession::implicit(self.client.host()).try_acquire().unwrap();
        let request = Request::new(message, &options, target).with_session(Some(&mut session));
        self.client.host().operate(request).await
    }
}

/// OpenTelemetry, "Instrumenting Driver Operations": "The span for the operation MUST be created
/// within the current span of the host application"; "Tracer Attributes".
async fn an_operation_is_within_the_current_span_and_its_command_within_it() {
    let it = Fixture::new().await;
    let tracer = it.kept.provider.tracer("application");
    let within = Context::current_with_span(tracer.start("request"));
    it.run(&rawdoc! { "ping": 1 }).with_context(within.clone()).await.unwrap();
    within.span().end();
    it.run(&rawdoc! { "ping": 1 }).await.unwrap();
    let spans = it.kept.take();
    let [first, operation, request, ..] = &*spans else { panic!("{spans:?}") };
    assert_eq!(first.parent_span_id, operation.span_context.span_id());
    assert_eq!(operation.parent_span_id, request.span_context.span_id());
    assert_eq!(request.name, "request");
    for span in [first, operation] {
        assert_eq!(span.span_kind, SpanKind::Client);
        assert_eq!(span.instrumentation_scope.name(), "sdam");
        assert_eq!(span.instrumentation_scope.version(), Some(env!("CARGO_PKG_VERSION")));
        assert_eq!(span.status, Status::Unset);
    }
    let names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["ping", "runCommand app", "request", "ping", "runCommand app"]);
}

/// OpenTelemetry, "Operation Span Attributes", "Command Span Attributes".
async fn spans_have_the_attributes_of_their_command() {
    let it = Fixture::new().await;
    let reply = it.read(&rawdoc! { "count": "users" }).await.unwrap();
    let [command, operation] = &*it.kept.take() else { panic!("two spans") };
    assert_eq!((&*operation.name, &*command.name), ("count app.users", "count"));
    let server = reply.server();
    for (span, name, expected) in [
        (operation, "db.system.name", "mongodb"),
        (operation, "db.namespace", "app"),
        (operation, "db.collection.name", "users"),
        (operation, "db.operation.name", "count"),
        (operation, "db.operation.summary", "count app.users"),
        (command, "db.system.name", "mongodb"),
        (command, "db.namespace", "app"),
        (command, "db.collection.name", "users"),
        (command, "db.command.name", "count"),
        (command, "db.query.summary", "count app.users"),
        (command, "network.transport", "tcp"),
        (command, "server.address", server.host()),
    ] {
        assert_eq!(text(span, name).as_deref(), Some(expected), "{name}");
    }
    let port = attribute(command, "server.port");
    assert_eq!(port, Some(&Value::I64(server.port().unwrap().into())));
    let driver_id = attribute(command, "db.mongodb.driver_connection_id");
    assert!(matches!(driver_id, Some(Value::I64(1..))), "{driver_id:?}");
    assert_eq!(text(command, "db.mongodb.lsid").map(|id| id.len()), Some(36));
    assert_eq!(attribute(command, "db.query.text"), None);
    assert_eq!(attribute(command, "db.response.status_code"), None);
    assert_eq!(attribute(operation, "db.command.name"), None);
}

/// Has the next commands of that name fail.
async fn fail(it: &Fixture, times: i32, data: sdam::bson::RawDocumentBuf) {
    let point =
        rawdoc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
    it.client.run_command("admin", &point).await.unwrap();
    it.kept.take();
}

/// OpenTelemetry, "Instrumenting Server Commands": "the driver MUST create a separate span for each
/// retry; all the retries MUST be nested to the same operation span."
async fn each_attempt_has_a_span_of_its_own() {
    let it = Fixture::new().await;
    fail(&it, 1, rawdoc! { "failCommands": ["count"], "closeConnection": true }).await;
    it.read(&rawdoc! { "count": "users" }).await.unwrap();
    let expected = "count app.users\n  count failed with an exception\n  count\n";
    assert_eq!(it.kept.tree(), expected);
}

/// OpenTelemetry, "Exceptions"; prose tests 5 and 6: "`error.type` on the operation span is the
/// exception class name for a server error", and that of the command its code.
async fn an_exception_is_recorded_for_the_command_and_its_operation() {
    let it = Fixture::new().await;
    fail(&it, 1, rawdoc! { "failCommands": ["ping"], "errorCode": 26 }).await;
    let error = it.run(&rawdoc! { "ping": 1 }).await.unwrap_err();
    let [command, operation] = &*it.kept.take() else { panic!("two spans") };
    assert_eq!(text(command, "db.response.status_code").as_deref(), Some("26"));
    assert_eq!(text(command, "exception.type").as_deref(), Some("sdam::Error"));
    let message = text(command, "exception.message").unwrap();
    assert!(error.to_string().contains(&message), "{error}: {message}");
    assert_eq!(command.status, Status::error(message.clone()));
    let [event] = &*command.events.events else { panic!("one event") };
    assert_eq!(event.name, "exception");
    assert!(event.attributes.iter().any(|it| it.value.as_str() == message), "{event:?}");
    let stacktrace = text(command, "exception.stacktrace").unwrap_or_default();
    assert!(stacktrace.contains("sdam_host"), "{stacktrace}");
    assert!(event.attributes.iter().any(|it| it.value.as_str() == stacktrace), "{event:?}");
    assert_eq!(text(command, "error.type").as_deref(), Some("26"));
    assert_eq!(operation.status, Status::error(error.to_string()));
    for name in ["exception.type", "error.type"] {
        assert_eq!(text(operation, name).as_deref(), Some("sdam::Error"), "{name}");
    }
    assert_eq!(operation.events.events.len(), 1);
    fail(&it, 1, rawdoc! { "failCommands": ["ping"], "closeConnection": true }).await;
    it.run(&rawdoc! { "ping": 1 }).await.unwrap_err();
    for span in it.kept.take() {
        assert_eq!(text(&span, "error.type"), text(&span, "exception.type"), "{span:?}");
    }
}

/// OpenTelemetry, "Exceptions": "If the driver operation fails with an exception, drivers MUST
/// record an exception to the current operation span."
async fn an_operation_that_finds_no_server_has_an_exception_and_no_command() {
    let it = Fixture::with("&serverSelectionTimeoutMS=1", None).await;
    let command = rawdoc! { "ping": 1 };
    let nowhere = Criteria::write().with_predicate(|_| false);
    let error = it.client.run_command_on(nowhere, "app", &command).await.unwrap_err();
    let [operation] = &*it.kept.take() else { panic!("one span") };
    assert_eq!(operation.name, "runCommand app");
    assert_eq!(text(operation, "exception.message"), Some(error.to_string()));
    assert_eq!(operation.status, Status::error(error.to_string()));
}

/// OpenTelemetry, "Security Implication", and Command Logging and Monitoring, "Security".
async fn sensitive_commands_have_no_spans() {
    let it = Fixture::with("", Some(SpanSettings::enabled().with_query_text_max_length(99))).await;
    let create = rawdoc! { "createUser": "alice", "pwd": "hunter2", "roles": [] };
    let _ = it.run(&create).await;
    let spans = it.kept.take();
    let [operation] = &*spans else { panic!("{spans:?}") };
    assert_eq!(operation.name, "runCommand app");
    assert!(!format!("{spans:?}").contains("hunter2"), "{spans:?}");
}

/// An operation that no task waits for any more has ended, and so has its command.
async fn what_is_given_up_ends() {
    let it = Fixture::new().await;
    let blocked =
        rawdoc! { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 60_000 };
    fail(&it, 1, blocked).await;
    let ping = rawdoc! { "ping": 1 };
    let mut events = it.client.subscribe_to(sdam::Topics::COMMANDS);
    tokio::select! {
        result = it.run(&ping) => panic!("{result:?}"),
        // It is on its way.
        _ = events.next() => {}
    }
    let expected = "runCommand app failed with an exception\n  ping failed with an exception\n";
    assert_eq!(it.kept.tree(), expected);
}

/// Commands and requests get the operation that they are a part of.
async fn commands_over_a_connection_are_within_what_they_are_told() {
    let it = Fixture::new().await;
    let selected = it.client.select(Criteria::write()).await.unwrap();
    let mut connection = selected.check_out().await.unwrap();
    let ping = rawdoc! { "ping": 1 };
    connection.command("app", &ping).await.unwrap();
    let start = || SpanStart::of_operation("rename", "app", Some("users"));
    let mut operation = ObservedOperation::begin(it.client.host(), None, || "rename".into(), start);
    connection.set_operation_span(operation.span());
    connection.command("app", &ping).await.unwrap();
    let (message, options) = (CommandMessage::new("app", &ping), OperationOptions::command());
    let request = Request::new(message, &options, Target::Connection(&mut connection));
    it.client.host().operate(request.with_operation(Some(&mut operation))).await.unwrap();
    operation.end(&Ok(()));
    assert_eq!(it.kept.tree(), "ping\nrename app.users\n  ping\n  ping\n");
}

/// OpenTelemetry, "`MongoClient` Options for configuring OpenTelemetry on the client level"; "MUST
/// NOT add this attribute by default".
async fn the_settings_say_whether_there_are_spans_and_texts() {
    let ping = rawdoc! { "ping": 1 };
    let it = Fixture::with("", Some(SpanSettings::default())).await;
    it.run(&ping).await.unwrap();
    assert_eq!(it.kept.tree(), "");
    let settings = SpanSettings::enabled().with_query_text_max_length(6);
    let it = Fixture::with("", Some(settings)).await;
    it.run(&ping).await.unwrap();
    let [command, _] = &*it.kept.take() else { panic!("two spans") };
    assert_eq!(text(command, "db.query.text").as_deref(), Some("{\"ping..."));
}

/// "MUST create a span for every server command sent to the server as a result of a public API
/// call".
async fn closing_tells_the_servers_of_sessions_in_an_operation() {
    let it = Fixture::new().await;
    it.read(&rawdoc! { "count": "users" }).await.unwrap();
    it.kept.take();
    it.client.close().await;
    assert_eq!(it.kept.tree(), "endSessions admin\n  endSessions\n");
}
