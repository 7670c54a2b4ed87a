//! The trace that servers of 9.0 and later are given with each command (OpenTelemetry, "Propagating
//! Trace Context to the Server").

use opentelemetry_sdk::trace::SpanData;
use sdam::bson::{RawDocument, rawdoc};
use sdam::core::config::Options;
use sdam::core::spans::SpanSettings;
use sdam::{Error, Topology};
use sdam_cluster::{Deployment, EmbeddedCluster, EmbeddedOptions, ServerVersion};

use crate::kept::Kept;
use crate::relay::Relay;

crate::scenarios![
    a_server_of_9_0_is_given_the_span_of_each_command,
    an_older_server_is_given_none,
    the_setting_says_whether_there_are_any,
    a_span_without_a_valid_name_is_not_named,
];

/// A client whose spans are kept, and what its server receives.
struct Fixture {
    kept: Kept,
    client: Topology,
    relay: Relay,
    _cluster: EmbeddedCluster,
}

impl Fixture {
    async fn new(version: ServerVersion, settings: SpanSettings) -> Self {
        Self::with(Kept::new(), version, settings).await
    }

    async fn with(kept: Kept, version: ServerVersion, settings: SpanSettings) -> Self {
        let cluster =
            EmbeddedOptions::default().with_deployment(Deployment::Standalone).with_members(1);
        let cluster = EmbeddedCluster::start(cluster.with_version(version)).await.unwrap();
        let relay = Relay::start(cluster.addresses()[0]).await;
        let uri = format!("mongodb://{}/?directConnection=true", relay.address);
        let builder = Topology::builder(Options::parse(&uri).unwrap());
        let client = builder.tracer(kept.tracer()).spans(settings).build().unwrap();
        Self { kept, client, relay, _cluster: cluster }
    }

    async fn run(&self, command: &RawDocument) -> Result<(), Error> {
        self.client.run_command("app", command).await.map(drop)
    }

    /// Returns the traces that the commands of a name have named.
    fn traces(&self, command: &str) -> Vec<Option<String>> {
        self.relay.passed(command).into_iter().map(|(trace, _)| trace).collect()
    }
}

/// "`traceparent` is the [W3C traceparent] value of the command span": each command has its own, and
/// what has no span names none.
async fn a_server_of_9_0_is_given_the_span_of_each_command() {
    let it = Fixture::new(ServerVersion::V9_0, SpanSettings::enabled()).await;
    it.run(&rawdoc! { "ping": 1 }).await.unwrap();
    let fail = rawdoc! {
        "configureFailPoint": "failCommand", "mode": { "times": 1 },
        "data": { "failCommands": ["ping"], "errorCode": 91 },
    };
    it.client.run_command("admin", &fail).await.unwrap();
    it.run(&rawdoc! { "ping": 1 }).await.unwrap_err();
    let commands = it.kept.take().into_iter().filter(|span| span.name == "ping");
    let name = |span: SpanData| {
        let (trace, id) = (span.span_context.trace_id(), span.span_context.span_id());
        Some(format!("00-{trace}-{id}-01"))
    };
    let expected: Vec<_> = commands.map(name).collect();
    assert_eq!(expected.len(), 2);
    assert_eq!(it.traces("ping"), expected);
    let hellos = [it.traces("hello"), it.traces("isMaster")].concat();
    assert!(!hellos.is_empty() && hellos.iter().all(Option::is_none), "{hellos:?}");
}

/// "Drivers MUST NOT" send it to servers whose `maxWireVersion` is below 29: they refuse the command.
async fn an_older_server_is_given_none() {
    let it = Fixture::new(ServerVersion::V8_2, SpanSettings::enabled()).await;
    it.run(&rawdoc! { "ping": 1 }).await.unwrap();
    assert_eq!(it.traces("ping"), [None]);
}

async fn the_setting_says_whether_there_are_any() {
    let settings = SpanSettings::enabled().with_trace_contexts(false);
    let it = Fixture::new(ServerVersion::V9_0, settings).await;
    it.run(&rawdoc! { "ping": 1 }).await.unwrap();
    assert_eq!((it.traces("ping"), it.kept.take().len()), (vec![None], 2));
}

/// A tracer without a provider makes spans that are nothing.
async fn a_span_without_a_valid_name_is_not_named() {
    let kept = Kept::new();
    kept.provider.shutdown().unwrap();
    let it = Fixture::with(kept, ServerVersion::V9_0, SpanSettings::enabled()).await;
    it.run(&rawdoc! { "ping": 1 }).await.unwrap();
    assert_eq!(it.traces("ping"), [None]);
}
