//! The Rust driver's events of the deployment that SDAM_URI names, until standard input ends.
//!
//! Prints SDAM events, as serde has them, as lines of JSON for `sdam check-log`, or, with the
//! argument `messages`, the messages of the driver's own log. The client is used meanwhile.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::event::EventHandler;
use mongodb::event::sdam::{SdamEvent, TopologyDescription};
use mongodb::options::ClientOptions;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// As the other drivers are set here.
const HEARTBEAT_FREQUENCY: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let millis = |time: Duration| u64::try_from(time.as_millis());
    let (frequency, timeout) = (millis(HEARTBEAT_FREQUENCY)?, millis(CONNECT_TIMEOUT)?);
    println!("{}", json!({ "heartbeatFrequencyMS": frequency, "connectTimeoutMS": timeout }));
    let mut options = ClientOptions::parse(std::env::var("SDAM_URI")?).await?;
    options.heartbeat_freq = Some(HEARTBEAT_FREQUENCY);
    options.connect_timeout = Some(CONNECT_TIMEOUT);
    options.server_selection_timeout = Some(Duration::from_secs(2));
    if std::env::args().nth(1).as_deref() == Some("messages") {
        options.tracing_max_document_length_bytes = Some(100_000);
        let filter = Targets::new().with_target("mongodb::topology", tracing::Level::DEBUG);
        tracing_subscriber::registry().with(fmt::layer().json()).with(filter).init();
    } else {
        options.sdam_event_handler = Some(EventHandler::callback(print));
    }
    let client = Client::with_options(options)?;
    let things = client.database("app").collection::<Document>("things");
    let mut end = tokio::spawn(async { tokio::io::stdin().read_to_end(&mut Vec::new()).await });
    loop {
        let used = async {
            things.insert_one(doc! { "at": 1 }).await?;
            things.find_one(doc! {}).await
        };
        if let Err(error) = used.await {
            eprintln!("{error}");
        }
        tokio::select! {
            _ = &mut end => break,
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
    }
    client.shutdown().await;
    Ok(())
}

/// Prints an event: serde leaves out which one it is.
fn print(event: SdamEvent) {
    let name = match &event {
        SdamEvent::ServerDescriptionChanged(_) => "serverDescriptionChanged",
        SdamEvent::ServerOpening(_) => "serverOpening",
        SdamEvent::ServerClosed(_) => "serverClosed",
        SdamEvent::TopologyDescriptionChanged(_) => "topologyDescriptionChanged",
        SdamEvent::TopologyOpening(_) => "topologyOpening",
        SdamEvent::TopologyClosed(_) => "topologyClosed",
        SdamEvent::ServerHeartbeatStarted(_) => "serverHeartbeatStarted",
        SdamEvent::ServerHeartbeatSucceeded(_) => "serverHeartbeatSucceeded",
        SdamEvent::ServerHeartbeatFailed(_) => "serverHeartbeatFailed",
        _ => return,
    };
    let time = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let told = match &event {
        // As serde has it, this cannot be JSON: servers are a map by addresses, which are objects.
        SdamEvent::TopologyDescriptionChanged(event) => json!({
            "topologyId": event.topology_id,
            "previousDescription": described(&event.previous_description),
            "newDescription": described(&event.new_description),
        }),
        other => serde_json::to_value(other).expect("JSON"),
    };
    let mut line = json!({ "time": time, "event": name });
    if let (Some(line), Value::Object(told)) = (line.as_object_mut(), told) {
        line.extend(told);
    }
    println!("{line}");
}

/// Shows a topology; its servers are as serde has them.
fn described(topology: &TopologyDescription) -> Value {
    let servers: Vec<Value> =
        topology.servers().into_values().map(|server| json!(server)).collect();
    json!({
        "type": topology.topology_type(),
        "setName": topology.set_name(),
        "maxSetVersion": topology.max_set_version(),
        "maxElectionId": topology.max_election_id(),
        "servers": servers,
    })
}
