//! The arguments of a `hello`, and what it waits for.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawBsonRef, RawDocument};
use sdam_core::bson;

use super::{CommandError, Request, integer};
use crate::options::ServerVersion;

/// A `hello` or legacy hello; an exhaust stream answers the same one again and again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hello {
    /// The client said `isMaster`, so the reply says `ismaster`.
    pub(crate) legacy: bool,
    /// The client asked whether `hello` is known.
    pub(crate) hello_ok: bool,
    pub(crate) wait: Option<Wait>,
    /// The client says that there is a load balancer between.
    pub(crate) load_balanced: bool,
}

/// The client's topology version, and how long to wait for a newer one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) process_id: ObjectId,
    pub(crate) counter: i64,
    pub(crate) max: Duration,
}

impl Hello {
    /// Reads the arguments; those that `version` does not know are ignored, as it does.
    pub(crate) fn parse(
        request: &Request<'_>,
        version: ServerVersion,
    ) -> Result<Self, CommandError> {
        let asked = request.body.get_bool("helloOk").unwrap_or(false);
        Ok(Self {
            legacy: request.command != "hello",
            hello_ok: asked && version.has_hello_ok(),
            wait: match version.has_awaitable_hello() {
                true => Wait::parse(request.body)?,
                false => None,
            },
            load_balanced: request.body.get_bool("loadBalanced").unwrap_or(false),
        })
    }

    /// Returns the name of the command, as fail points know it.
    pub(crate) const fn command(&self) -> &'static str {
        match self.legacy {
            true => "isMaster",
            false => "hello",
        }
    }
}

impl Wait {
    fn parse(body: &RawDocument) -> Result<Option<Self>, CommandError> {
        let field = |name| body.get(name).ok().flatten();
        match (field("topologyVersion"), field("maxAwaitTimeMS")) {
            (None, None) => Ok(None),
            (Some(version), Some(max)) => {
                let (process_id, counter) = topology_version(version)?;
                let max = integer(max).and_then(|millis| u64::try_from(millis).ok()).ok_or(
                    CommandError::numbered(31373, "maxAwaitTimeMS must be a non-negative integer"),
                )?;
                Ok(Some(Self { process_id, counter, max: Duration::from_millis(max) }))
            }
            (Some(_), None) => Err(CommandError::numbered(
                31368,
                "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'",
            )),
            (None, Some(_)) => Err(CommandError::numbered(
                31368,
                "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'",
            )),
        }
    }
}

fn topology_version(value: RawBsonRef<'_>) -> Result<(ObjectId, i64), CommandError> {
    let fields = value.as_document().and_then(|version| {
        let process_id = version.get_object_id("processId").ok()?;
        Some((process_id, version.get_i64("counter").ok()?))
    });
    match fields {
        Some((_, counter)) if counter < 0 => {
            Err(CommandError::numbered(31372, "topologyVersion must have a non-negative counter"))
        }
        Some(fields) => Ok(fields),
        None => Err(CommandError::coded(
            14,
            "topologyVersion must be {processId: <ObjectId>, counter: <long>}",
        )),
    }
}
