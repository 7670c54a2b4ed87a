//! Spans as the environment says: those of an application of its own, which exports to a collector
//! whatever there is.

use std::process::Command;

use opentelemetry::global;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{ScopeSpans, Span};
use opentelemetry_sdk::trace::SdkTracerProvider;
use sdam::Topology;
use sdam::bson::rawdoc;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use tokio::task::spawn_blocking;

use crate::collector::{Collector, HttpOnLoopback};

crate::scenarios![the_environment_enables_spans, the_environment_asks_for_the_text_of_commands,];

/// The variables with the addresses of the collector and the deployment, for the application.
const COLLECTOR: &str = "SDAM_TEST_COLLECTOR";
const DEPLOYMENT: &str = "SDAM_TEST_DEPLOYMENT";

const ENABLED: &str = "OTEL_RUST_INSTRUMENTATION_MONGODB_ENABLED";
const LENGTH: &str = "OTEL_RUST_INSTRUMENTATION_MONGODB_QUERY_TEXT_MAX_LENGTH";

/// Returns whether this process is the application.
pub(crate) fn is_application() -> bool {
    std::env::var_os(COLLECTOR).is_some()
}

/// Runs one operation, in a program that says nothing of spans to the client.
pub(crate) fn run_application() {
    let variable = |name| std::env::var(name).unwrap();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(HttpOnLoopback)
        .with_endpoint(format!("http://{}/v1/traces", variable(COLLECTOR)))
        .build()
        .unwrap();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter).build();
    crate::block_on(async {
        let client = Topology::connect(&*variable(DEPLOYMENT)).await.unwrap();
        // After the client was created.
        global::set_tracer_provider(provider.clone());
        client.run_command("app", &rawdoc! { "ping": 1 }).await.unwrap();
    });
    provider.shutdown().unwrap();
}

/// Has an application with these variables run one operation, and returns what it exports.
async fn exported(collector: &Collector, variables: &[(&str, &str)]) -> Vec<ScopeSpans> {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env_remove(ENABLED).env_remove(LENGTH).envs(variables.iter().copied());
    command.env(COLLECTOR, collector.address.to_string()).env(DEPLOYMENT, cluster.uri());
    let output = spawn_blocking(move || command.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
    collector.take()
}

/// Returns the text of an attribute.
fn text(span: &Span, name: &str) -> Option<String> {
    let attribute = span.attributes.iter().find(|it| it.key == name)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        other => panic!("{name}: {other:?}"),
    }
}

/// OpenTelemetry Tests, "Test 1: Tracing Enable/Disable via Environment Variable"; and what a
/// collector receives of the spans.
async fn the_environment_enables_spans() {
    let collector = Collector::start();
    assert_eq!(exported(&collector, &[]).await, []);
    assert_eq!(exported(&collector, &[(ENABLED, "false")]).await, []);
    let scopes = exported(&collector, &[(ENABLED, "true")]).await;
    let spans: Vec<_> = scopes.iter().flat_map(|scope| &scope.spans).collect();
    let [command, operation] = &*spans else { panic!("{spans:?}") };
    assert_eq!((&*command.name, &*operation.name), ("ping", "runCommand app"));
    assert_eq!(command.parent_span_id, operation.span_id);
    assert_eq!(command.trace_id, operation.trace_id);
    for scope in &scopes {
        assert_eq!(scope.scope.as_ref().unwrap().name, "sdam");
    }
    for span in [command, operation] {
        assert_eq!(span.kind, i32::from(SpanKind::Client as u8));
        assert_eq!(text(span, "db.system.name").as_deref(), Some("mongodb"));
    }
    let port = command.attributes.iter().find(|it| it.key == "server.port").unwrap();
    let port = port.value.as_ref().unwrap().value.as_ref().unwrap();
    assert!(matches!(port, Value::IntValue(1..)), "{port:?}");
}

/// OpenTelemetry Tests, "Test 2: Command Payload Emission via Environment Variable".
async fn the_environment_asks_for_the_text_of_commands() {
    let collector = Collector::start();
    for (length, expected) in [(Some("1024"), Some(r#"{"ping": 1}"#)), (None, None)] {
        let length = length.map(|length| (LENGTH, length));
        let variables: Vec<_> = [(ENABLED, "true")].into_iter().chain(length).collect();
        let scopes = exported(&collector, &variables).await;
        let command = scopes.iter().flat_map(|scope| &scope.spans).find(|it| it.name == "ping");
        assert_eq!(text(command.unwrap(), "db.query.text").as_deref(), expected);
    }
}
