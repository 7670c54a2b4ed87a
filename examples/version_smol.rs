//! Asks a deployment for its version, under smol.

use sdam::bson::rawdoc;
use sdam::smol::Topology;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    smol::block_on(async {
        let uri = std::env::args().nth(1).unwrap_or_else(|| "mongodb://localhost".into());
        let topology = Topology::connect(uri).await?;
        let reply = topology.run_command("admin", &rawdoc! { "buildInfo": 1 }).await?;
        println!("version {}", reply.get_str("version")?);
        topology.close().await;
        Ok(())
    })
}
