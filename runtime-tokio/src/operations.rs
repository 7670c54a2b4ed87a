//! What applications do with a deployment: select a server, check out a connection, run a command.

use std::sync::Arc;

use sdam_core::bson::RawDocument;
use sdam_core::host::{self, Reply, RunCommandError};
use sdam_core::selection::{Criteria, ReadMode, ReadPreference, SelectionError};
use sdam_core::time::Instant;

use crate::client::Client;
use crate::runtime::Tokio;

/// A server that was selected.
pub type Server = host::Selected<Tokio>;

/// A connection on loan.
pub type CheckedOut = host::CheckedOut<Tokio>;

/// The replies to one command, as they come.
pub type Exhaust<'a> = host::Exhaust<'a, Tokio>;

impl Client {
    /// Selects a server for an operation, waiting for one for serverSelectionTimeoutMS at most.
    ///
    /// Cancelling the wait is safe at any point. A time-out of zero selects from what is known
    /// already.
    ///
    /// # Errors
    ///
    /// Fails if no server is suitable in time, and at once if waiting cannot help; the error says
    /// why, for every server.
    ///
    /// ```no_run
    /// # use sdam_core::bson::rawdoc;
    /// # use sdam_core::selection::Criteria;
    /// # async fn example(client: sdam_tokio::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let primary = client.select(Criteria::write()).await?;
    /// println!("writes go to {}", primary.server().address());
    /// let mut connection = primary.check_out().await?;
    /// connection.command("admin", &rawdoc! { "ping": 1 }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn select(
        &self,
        criteria: impl Into<Arc<Criteria>>,
    ) -> Result<Server, Box<SelectionError>> {
        let (criteria, deadline) = (criteria.into(), self.operation_deadline());
        let selected = self.host().select(&criteria, self.selection_deadline(deadline)).await?;
        Ok(selected.by(deadline))
    }

    /// Runs a command on a database of a server that takes writes: selects the server, checks out a
    /// connection, sends the command with what it needs besides, and returns the reply.
    ///
    /// # Errors
    ///
    /// Fails if no server is suitable, if no connection is to be had, if the exchange fails, and if
    /// the server replies with an error, each in time; the error says where the time went. The
    /// command is never sent twice.
    ///
    /// ```no_run
    /// # use sdam_core::bson::rawdoc;
    /// # async fn example(client: sdam_tokio::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let reply = client.run_command("admin", &rawdoc! { "buildInfo": 1 }).await?;
    /// println!("version {}", reply.get_str("version")?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_command(
        &self,
        database: &str,
        command: &RawDocument,
    ) -> Result<Reply, Box<RunCommandError>> {
        // "RunCommand MUST assume all commands are read operations", with mode primary.
        let criteria = Criteria::read(ReadPreference::new(ReadMode::Primary));
        self.run_command_on(criteria, database, command).await
    }

    /// As [`run_command`](Self::run_command), on a server of the caller's choice, which is told the
    /// read preference where it needs to know.
    ///
    /// # Errors
    ///
    /// Fails as [`run_command`](Self::run_command) does.
    pub async fn run_command_on(
        &self,
        criteria: impl Into<Arc<Criteria>>,
        database: &str,
        command: &RawDocument,
    ) -> Result<Reply, Box<RunCommandError>> {
        let (criteria, deadline) = (criteria.into(), self.operation_deadline());
        let selection_deadline = self.selection_deadline(deadline);
        let host = self.host();
        host.run_command(database, command, &criteria, selection_deadline, deadline).await
    }

    /// Returns every member of the deployment, those included that are never selected, as arbiters:
    /// [`Selected::connect`](host::Selected::connect) leads to that very one.
    pub fn members(&self) -> Vec<Server> {
        let deadline = self.operation_deadline();
        self.host().members().into_iter().map(|member| member.by(deadline)).collect()
    }

    /// "The computed server selection timeout is the minimum of serverSelectionTimeoutMS and the
    /// remaining timeoutMS".
    fn selection_deadline(&self, deadline: Option<Instant>) -> Instant {
        let most = self.now() + self.host().options().server_selection_timeout();
        deadline.map_or(most, |deadline| deadline.min(most))
    }
}
