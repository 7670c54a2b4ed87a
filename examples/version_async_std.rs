//! Asks a deployment for its version, under async-std.

use sdam::async_std::Topology;
use sdam::bson::rawdoc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    async_std::task::block_on(async {
        let uri = std::env::args().nth(1).unwrap_or_else(|| "mongodb://localhost".into());
        let topology = Topology::connect(uri).await?;
        let reply = topology.run_command("admin", &rawdoc! { "buildInfo": 1 }).await?;
        println!("version {}", reply.get_str("version")?);
        topology.close().await;
        Ok(())
    })
}
