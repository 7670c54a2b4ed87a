//! Runs a command, and prints the reply.
//!
//! ```sh
//! cargo run --example run_command -- mongodb://localhost buildInfo admin
//! ```
//!
//! The command and its database may be left out, and so may the connection string: then a
//! deployment inside this process is asked.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use sdam::bson::{Bson, RawBsonRef, RawDocument, RawDocumentBuf, doc};
use sdam::{Reply, Topology};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};

/// The time that all of it may take: to find a server, to connect to it, and to hear its reply.
const LIMIT: Duration = Duration::from_secs(15);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(reply) => {
            println!("{}", shown((&*reply).into(), MAX_DEPTH));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<Reply, Box<dyn Error>> {
    let embedded = EmbeddedCluster::start(EmbeddedOptions::default()).await?;
    let mut arguments = std::env::args().skip(1);
    let uri = arguments.next().unwrap_or_else(|| embedded.uri());
    let name = arguments.next().unwrap_or_else(|| "buildInfo".to_owned());
    let database = arguments.next().unwrap_or_else(|| "admin".to_owned());

    let topology = Topology::connect(uri).await?.with_timeout(LIMIT);
    let command = RawDocumentBuf::try_from(&doc! { name: 1 })?;
    Ok(topology.run_command(&database, &command).await?)
}

/// The maximum depth of nesting that is printed.
const MAX_DEPTH: usize = 20;

/// Prints a value in the memory it was read into.
///
/// To make a `Document` of a reply would be recursion as deep as the server likes, which exhausts
/// the stack; this goes only so deep.
fn shown(value: RawBsonRef<'_>, depth: usize) -> String {
    match value {
        RawBsonRef::Document(_) | RawBsonRef::Array(_) if depth == 0 => "...".to_owned(),
        RawBsonRef::Document(document) => format!("{{ {} }}", fields(document, depth).join(", ")),
        RawBsonRef::Array(array) => {
            let values = array.into_iter().map_while(Result::ok);
            let values: Vec<String> = values.map(|value| shown(value, depth - 1)).collect();
            format!("[{}]", values.join(", "))
        }
        // It has a document within.
        RawBsonRef::JavaScriptCodeWithScope(code) => format!("{:?}", code.code),
        plain => Bson::try_from(plain).map_or_else(|error| error.to_string(), |it| it.to_string()),
    }
}

fn fields(document: &RawDocument, depth: usize) -> Vec<String> {
    let fields = document.into_iter().map_while(Result::ok);
    fields.map(|(name, value)| format!("\"{name}\": {}", shown(value, depth - 1))).collect()
}
