//! Sockets: opened to the addresses of servers, and looked up in DNS; providers of credentials.

pub(crate) mod credentials;
pub(crate) mod dial;
pub(crate) mod dns;
#[cfg(any(feature = "aws", feature = "ocsp", feature = "oidc-environments"))]
pub(crate) mod http;
pub(crate) mod reactor;
#[cfg(feature = "ocsp")]
pub(crate) mod revocation;
pub(crate) mod socket;
pub(crate) mod stream;
pub(crate) mod streams;
