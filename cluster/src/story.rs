//! The story that the embedded deployment can tell for as long as somebody watches.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::server::EmbeddedCluster;

/// How long the deployment rests between two events of
/// [`EmbeddedCluster::fail_over_for_ever`].
pub const PAUSE: Duration = Duration::from_secs(5);

impl EmbeddedCluster {
    /// Kills the primary, lets the others elect a new one, starts the killed member again, and
    /// begins anew, with a [`PAUSE`] before each kill and each start.
    ///
    /// With three members and an election timeout of 2 s, the first election after the initial one
    /// comes within 8 s, and then there is one about every 12 s.
    ///
    /// # Errors
    ///
    /// Ends only if a killed member cannot listen at its address again, and says why.
    pub async fn fail_over_for_ever(&self) -> io::Result<Infallible> {
        loop {
            let primary = self.elected().await?;
            sleep(PAUSE).await;
            self.kill(primary).await?;
            // One member or two have no majority without the killed one, and elect nobody.
            if let Ok(elected) = timeout(PAUSE, self.elected()).await {
                elected?;
            }
            sleep(PAUSE).await;
            self.restart(primary).await?;
        }
    }
}
