//! Asks a deployment for its version, without a runtime.

use sdam::blocking::Topology;
use sdam::bson::rawdoc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let uri = std::env::args().nth(1).unwrap_or_else(|| "mongodb://localhost".into());
    let topology = Topology::connect(uri)?;
    let reply = topology.run_command("admin", &rawdoc! { "buildInfo": 1 })?;
    println!("version {}", reply.get_str("version")?);
    topology.close(std::time::Duration::from_secs(1));
    Ok(())
}
