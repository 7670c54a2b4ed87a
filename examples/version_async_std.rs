//! Asks a deployment for its version, under async-std.

use sdam::async_std::{AsyncStd, Client};
use sdam::bson::rawdoc;
use sdam::config::Options;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    async_std::task::block_on(async {
        let uri = std::env::args().nth(1).unwrap_or_else(|| "mongodb://localhost".into());
        let client = Client::connect(Options::parse(&uri)?, AsyncStd).await?;
        let reply = client.run_command("admin", &rawdoc! { "buildInfo": 1 }).await?;
        println!("version {}", reply.get_str("version")?);
        client.close().await;
        Ok(())
    })
}
