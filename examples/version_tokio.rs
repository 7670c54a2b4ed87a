//! Asks a deployment for its version, under tokio.

use sdam::Topology;
use sdam::bson::rawdoc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let uri = std::env::args().nth(1).unwrap_or_else(|| "mongodb://localhost".into());
    let topology = Topology::connect(uri).await?;
    let reply = topology.run_command("admin", &rawdoc! { "buildInfo": 1 }).await?;
    println!("version {}", reply.get_str("version")?);
    topology.close().await;
    Ok(())
}
