//! `getParameter` and `setParameter`, for the few parameters that change what a member does.

use std::time::Duration;

use bson::raw::{CStr, cstr};
use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;

use crate::model::rate_limit::RateLimit;
use crate::options::ServerVersion;
use crate::wire::{CommandError, integer};

const ENABLED: &CStr = cstr!("ingressConnectionEstablishmentRateLimiterEnabled");
const RATE: &CStr = cstr!("ingressConnectionEstablishmentRatePerSec");
const BURST: &CStr = cstr!("ingressConnectionEstablishmentBurstCapacitySecs");
const QUEUE: &CStr = cstr!("ingressConnectionEstablishmentMaxQueueDepth");

/// Answers a `getParameter` for some parameters by name, or for `"*"`; a member of a replica set
/// has a version that its data is compatible with, and a lifetime of transactions if there are any;
/// all have mechanisms for logins.
pub(super) fn read(
    limit: &RateLimit,
    command: &RawDocument,
    (compatibility, lifetime): (Option<ServerVersion>, Option<Duration>),
    mechanisms: &[&str],
) -> Result<RawDocumentBuf, CommandError> {
    let mut known = rawdoc! { "enableTestCommands": true, "requireApiVersion": false };
    let mechanisms: RawArrayBuf = mechanisms.iter().copied().collect();
    known.append(cstr!("authenticationMechanisms"), mechanisms);
    if let Some((major, minor)) = compatibility.map(ServerVersion::number) {
        let version = rawdoc! { "version": format!("{major}.{minor}") };
        known.append(cstr!("featureCompatibilityVersion"), version);
    }
    if let Some(lifetime) = lifetime {
        let seconds = i32::try_from(lifetime.as_secs()).unwrap_or(i32::MAX);
        known.append(cstr!("transactionLifetimeLimitSeconds"), seconds);
    }
    known.append(ENABLED, limit.enabled);
    known.append(RATE, limit.rate_per_sec);
    known.append(BURST, limit.burst_capacity_secs);
    known.append(QUEUE, limit.max_queue_depth);
    let all = command.get_str("getParameter").is_ok_and(|it| it == "*");
    let mut reply = RawDocumentBuf::new();
    for (name, value) in known.iter().flatten() {
        if all || command.get(name.as_str()).is_ok_and(|asked| asked.is_some()) {
            reply.append(name, bson::RawBson::from(value));
        }
    }
    if reply.iter().next().is_none() {
        return Err(CommandError::coded(72, "no option found to get"));
    }
    reply.append(cstr!("ok"), 1.0);
    Ok(reply)
}

/// Obeys a `setParameter`: all of it, or nothing of what follows a mistake.
pub(super) fn write(limit: &mut RateLimit, command: &RawDocument) -> Result<(), CommandError> {
    let mut wanted = *limit;
    for field in command.iter().skip(1).flatten() {
        let (name, value) = field;
        let wrong = || {
            let names = [ENABLED, RATE, BURST, QUEUE].map(CStr::as_str).join(", ");
            let reason = format!("{name}: {value:?} cannot be set; what can is {names}");
            CommandError::coded(72, reason)
        };
        if name == ENABLED {
            wanted.enabled = value.as_bool().ok_or_else(wrong)?;
        } else if name == RATE {
            wanted.rate_per_sec = positive(value).ok_or_else(wrong)?;
        } else if name == BURST {
            wanted.burst_capacity_secs = positive(value).ok_or_else(wrong)?;
        } else if name == QUEUE {
            wanted.max_queue_depth = integer(value).filter(|it| *it >= 0).ok_or_else(wrong)?;
        } else if !is_argument_of_every_command(name.as_str()) {
            return Err(wrong());
        }
    }
    *limit = wanted;
    Ok(())
}

fn positive(value: RawBsonRef<'_>) -> Option<f64> {
    let number = match value {
        RawBsonRef::Double(number) => number,
        other => f64::from(i32::try_from(integer(other)?).ok()?),
    };
    (number.is_finite() && number > 0.0).then_some(number)
}

fn is_argument_of_every_command(name: &str) -> bool {
    name.starts_with('$') || ["lsid", "comment", "maxTimeMS", "apiVersion"].contains(&name)
}
