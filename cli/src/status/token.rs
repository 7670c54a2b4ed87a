//! A resume token of a change stream, and for how long the members still know its place.

use clap::builder::styling::{AnsiColor, Style};
use sdam_core::bson::rawdoc;
use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;
use sdam_core::diagnosis::Verdict;
use sdam_host::Error;
use sdam_tokio::{SelectedServer, Topology};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::findings::Severity;
use crate::history::{Oplog, reach};
use crate::shutdown::Shutdown;
use crate::text::of_server;

/// The time for which a token is still of use.
#[derive(Debug)]
pub(super) enum Reach {
    /// As the oplogs say.
    Known(Severity, Verdict),
    /// No member has said how far its oplog reaches back, for this reason.
    Unknown(String),
}

impl Reach {
    /// Asks each member that keeps data; those that answer in time count.
    pub(super) async fn ask(client: &Topology, token: u64, shutdown: &mut Shutdown) -> Self {
        let mut asking = JoinSet::new();
        for member in client.members() {
            let server_type = member.description().server_type;
            if matches!(server_type, ServerType::RsPrimary | ServerType::RsSecondary) {
                let address = member.address().clone();
                asking.spawn(async move { (address, oplog_of(&member).await) });
            }
        }
        let mut why_not = match asking.is_empty() {
            true => "no member of a replica set has answered",
            false => "no member has answered in time",
        }
        .to_owned();
        let mut oplogs: Vec<(ServerAddress, Oplog)> = Vec::new();
        let answered = async {
            while let Some(answer) = asking.join_next().await {
                let (address, answer) = answer.expect("it does not panic");
                match answer {
                    Ok(Some(oplog)) => oplogs.push((address, oplog)),
                    Ok(None) => why_not = format!("{address} says nothing of its oplog"),
                    Err(error) => {
                        let error = error.to_string();
                        why_not = format!("{address}: {}", of_server(&error, &address));
                    }
                }
            }
        };
        // Those that have answered until then count.
        let _ = shutdown.or(answered).await;
        let known = reach(token, oplogs.iter().map(|(address, oplog)| (address, *oplog)));
        known.map_or(Self::Unknown(why_not), |(severity, verdict)| Self::Known(severity, verdict))
    }

    /// Returns 0 if the token is not about to be lost, 1 if it is, 2 if it is lost, and 3 if that
    /// is not known.
    pub(super) const fn exit_code(&self) -> u8 {
        match self {
            Self::Known(Severity::Note, _) => 0,
            Self::Known(Severity::Warning, _) => 1,
            Self::Known(Severity::Error, _) => super::NEITHER,
            Self::Unknown(_) => super::NOTHING_TO_SAY,
        }
    }

    /// Returns what became of the token in one word, and how that looks.
    pub(super) const fn word(&self) -> (&'static str, Style) {
        match self {
            Self::Known(Severity::Note, _) => ("kept", AnsiColor::Green.on_default()),
            Self::Known(Severity::Warning, _) => ("ending", AnsiColor::Yellow.on_default().bold()),
            Self::Known(Severity::Error, _) => ("lost", AnsiColor::Red.on_default().bold()),
            Self::Unknown(_) => ("unknown", AnsiColor::Yellow.on_default()),
        }
    }

    /// Returns the reason in words.
    pub(super) fn cause(&self) -> String {
        match self {
            Self::Known(_, verdict) => verdict.to_string(),
            Self::Unknown(why) => why.clone(),
        }
    }

    /// Returns what something is to be done about.
    pub(super) fn trouble(&self) -> Option<&Verdict> {
        match self {
            Self::Known(Severity::Error | Severity::Warning, verdict) => Some(verdict),
            Self::Known(Severity::Note, _) | Self::Unknown(_) => None,
        }
    }

    pub(super) fn json(&self) -> Value {
        let (state, _) = self.word();
        match self {
            Self::Known(_, verdict) => {
                let finding = serde_json::to_value(verdict.finding());
                let mut fields = finding.expect("it has the form of JSON");
                fields["state"] = state.into();
                fields
            }
            Self::Unknown(why) => json!({ "state": state, "cause": why }),
        }
    }
}

/// Asks a member how far its oplog reaches back.
async fn oplog_of(member: &SelectedServer) -> Result<Option<Oplog>, Error> {
    let mut connection = member.check_out().await?;
    let status = rawdoc! { "serverStatus": 1, "oplog": 1, "metrics": 0, "wiredTiger": 0 };
    let status = connection.command("admin", &status).await?;
    let stats = connection.command("local", &rawdoc! { "collStats": "oplog.rs" }).await?;
    Ok(Oplog::read(&status, &stats))
}
