//! A load balancer, which no monitor ever asks: whether it leads to a server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sdam_core::bson::rawdoc;
use sdam_core::description::TopologyType;
use sdam_tokio::Topology;
use tokio::task::JoinHandle;

/// The time after which it is asked again, if it does not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// The questions to a load balancer, if there is one, until it has answered once.
#[derive(Debug)]
pub(super) struct Balancer {
    /// The reason why it has not answered.
    trouble: Arc<Mutex<Option<String>>>,
    asking: Option<JoinHandle<()>>,
}

impl Balancer {
    /// Begins to ask, if the client has a load balancer.
    pub(super) fn ask(client: &Topology) -> Self {
        let trouble = Arc::<Mutex<Option<String>>>::default();
        let asking = (client.view().topology_type == TopologyType::LoadBalanced).then(|| {
            note(&trouble, Some("it has not answered".to_owned()));
            tokio::spawn(until_answered(client.clone(), Arc::clone(&trouble)))
        });
        Self { trouble, asking }
    }

    /// Asks no more, and returns why there was no answer, if there was none; to be called before
    /// the client is closed, which ends questions too.
    pub(super) fn trouble(&self) -> Option<String> {
        self.asking.as_ref().inspect(|asking| asking.abort());
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.asking.as_ref().inspect(|asking| asking.abort());
    }
}

async fn until_answered(client: Topology, trouble: Arc<Mutex<Option<String>>>) {
    loop {
        let answered = client.run_command("admin", &rawdoc! { "ping": 1 }).await;
        let is_over = answered.is_ok();
        note(&trouble, answered.err().map(|error| error.to_string()));
        if is_over {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn note(trouble: &Mutex<Option<String>>, reason: Option<String>) {
    *trouble.lock().unwrap_or_else(PoisonError::into_inner) = reason;
}
