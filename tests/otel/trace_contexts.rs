//! The trace that servers of 9.0 and later are given with each command (OpenTelemetry, "Propagating
//! Trace Context to the Server").

use opentelemetry_sdk::trace::SpanData;
use sdam::bson::{RawDocument, rawdoc};
use sdam::core::config::Options;
use sdam::core::spans::SpanSettings;
use sdam::{Error, Topology};
use sdam_cluster::{Deployment, EmbeddedCluster, EmbeddedOptions, ServerVersion};
use sdam_core::wire::{Decompressor, Flags, Frames, op_code, write_op_msg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::kept::Kept;
use crate::relay::{Relay, trace_of};

crate::scenarios![
    a_server_of_9_0_is_given_the_span_of_each_command,
    an_older_server_is_given_none,
    the_setting_says_whether_there_are_any,
    a_span_without_a_valid_name_is_not_named,
    a_compressed_command_names_its_trace_too,
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

/// Returns what the spans of a command are called in a `traceparent`.
fn named(kept: &Kept, command: &str) -> Vec<Option<String>> {
    let name = |span: SpanData| {
        let (trace, id) = (span.span_context.trace_id(), span.span_context.span_id());
        Some(format!("00-{trace}-{id}-01"))
    };
    kept.take().into_iter().filter(|span| span.name == *command).map(name).collect()
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
    let expected = named(&it.kept, "ping");
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

/// A message is compressed with all of its sections; the embedded deployment compresses none.
async fn a_compressed_command_names_its_trace_too() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, mut traces) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(decompress(stream, seen.clone()));
        }
    });
    let kept = Kept::new();
    let uri = format!("mongodb://{address}/?directConnection=true&compressors=zlib");
    let builder = Topology::builder(Options::parse(&uri).unwrap()).tracer(kept.tracer());
    let client = builder.spans(SpanSettings::enabled()).build().unwrap();
    client.run_command("app", &rawdoc! { "ping": 1 }).await.unwrap();
    let trace = traces.recv().await.unwrap();
    assert_eq!([trace].to_vec(), named(&kept, "ping"));
}

/// Answers as a server of 9.0 that compresses, and reports the trace of each compressed command.
async fn decompress(mut stream: TcpStream, traces: UnboundedSender<Option<String>>) {
    let (mut frames, mut buffer) = (Frames::new(), vec![0; 4096]);
    let mut decompressor = Decompressor::new();
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        frames.extend(&buffer[..count]);
        while let Ok(Some(message)) = frames.next() {
            let id = message.header().request_id;
            if message.header().op_code == op_code::OP_COMPRESSED {
                let plain = decompressor.decompress(message).unwrap();
                traces.send(trace_of(&plain.op_msg().unwrap())).unwrap();
            }
            let reply = rawdoc! {
                "isWritablePrimary": true, "helloOk": true, "maxWireVersion": 29,
                "compression": ["zlib"], "ok": 1,
            };
            let mut bytes = Vec::new();
            write_op_msg(&mut bytes, 1, id, Flags::NONE, &reply);
            if stream.write_all(&bytes).await.is_err() {
                return;
            }
        }
    }
}
