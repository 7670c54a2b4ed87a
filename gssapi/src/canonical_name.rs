//! The canonical names of hosts (Authentication, "Hostname Canonicalization").

use dns_lookup::{AddrInfoHints, SockType, getaddrinfo, lookup_addr};
use sdam_core::auth::Canonicalization;

/// Has getaddrinfo say the name that aliases lead to (`AI_CANONNAME`), which is 2 wherever there is
/// a library of GSSAPI.
const CANONICAL_NAME: i32 = 2;

/// Looks a host up, and the name of its first address, too, if that is asked for.
pub(crate) fn of(host: &str, canonicalization: Canonicalization) -> Option<String> {
    let hints = AddrInfoHints {
        flags: CANONICAL_NAME,
        socktype: SockType::Stream.into(),
        ..AddrInfoHints::default()
    };
    let first = getaddrinfo(Some(host), None, Some(hints)).ok()?.next()?.ok()?;
    let name = match canonicalization {
        Canonicalization::Forward => first.canonname?,
        // "do a reverse DNS lookup for address", or none of its names is used.
        _ => lookup_addr(&first.sockaddr.ip()).ok()?,
    };
    Some(name.to_lowercase()).filter(|name| !name.is_empty())
}
