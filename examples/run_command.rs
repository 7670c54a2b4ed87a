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

use sdam::bson::{Document, RawDocumentBuf, doc};
use sdam::options::Options;
use sdam::tokio::Client;
use sdam_conformance::cluster::{EmbeddedCluster, EmbeddedOptions};

/// How long all of it may take: to find a server, to connect to it, and to hear its reply.
const LIMIT: Duration = Duration::from_secs(15);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(reply) => {
            println!("{reply}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<Document, Box<dyn Error>> {
    let embedded = EmbeddedCluster::start(EmbeddedOptions::default()).await?;
    let mut arguments = std::env::args().skip(1);
    let uri = arguments.next().unwrap_or_else(|| embedded.uri());
    let name = arguments.next().unwrap_or_else(|| "buildInfo".to_owned());
    let database = arguments.next().unwrap_or_else(|| "admin".to_owned());

    let client = Client::connect(Options::parse(&uri)?).await?.within(LIMIT);
    let command = RawDocumentBuf::try_from(&doc! { name: 1 })?;
    let reply = client.run_command(&database, &command).await?;
    Ok(Document::try_from(&*reply)?)
}
