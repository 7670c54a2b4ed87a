//! The current span of a task or thread, under every runtime.

use opentelemetry::Context;
use opentelemetry::trace::{FutureExt, TraceContextExt, Tracer, TracerProvider};
use sdam::bson::rawdoc;
use sdam::core::config::Options;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use tokio::task::spawn_blocking;

use crate::kept::Kept;

crate::scenarios![every_runtime_tells_spans_within_the_current_one];

/// OpenTelemetry, "Instrumenting Driver Operations": "within the current span of the host
/// application".
async fn every_runtime_tells_spans_within_the_current_one() {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
    let kept = Kept::new();
    let tracer = kept.provider.tracer("application");
    for name in ["tokio", "smol", "async-std", "blocking"] {
        let options = Options::parse(&cluster.uri()).unwrap();
        let (within, spans) = (Context::current_with_span(tracer.start(name)), kept.tracer());
        let task = within.clone();
        spawn_blocking(move || match name {
            "tokio" => tokio::runtime::Handle::current().block_on(async {
                let client = sdam::Topology::builder(options).tracer(spans).build().unwrap();
                client.run_command("app", &rawdoc! { "ping": 1 }).with_context(task).await.unwrap();
            }),
            "smol" => smol::block_on(async {
                let client = sdam::smol::Topology::builder(options).tracer(spans).build().unwrap();
                client.run_command("app", &rawdoc! { "ping": 1 }).with_context(task).await.unwrap();
            }),
            "async-std" => async_std::task::block_on(async {
                let builder = sdam::async_std::Topology::builder(options).tracer(spans);
                let client = builder.build().unwrap();
                client.run_command("app", &rawdoc! { "ping": 1 }).with_context(task).await.unwrap();
            }),
            _ => {
                let builder = sdam::blocking::Topology::builder(options).tracer(spans);
                let client = builder.build().unwrap();
                let current = task.attach();
                client.run_command("app", &rawdoc! { "ping": 1 }).unwrap();
                drop(current);
            }
        })
        .await
        .unwrap();
        within.span().end();
        assert_eq!(kept.tree(), format!("{name}\n  runCommand app\n    ping\n"));
    }
}
