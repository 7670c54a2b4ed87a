//! The hosts that may learn what a person proves to an identity provider (Authentication,
//! "ALLOWED_HOSTS").

use std::net::IpAddr;

use super::ServerAddress;

/// The hosts that are allowed if the application names none.
const DEFAULT: [&str; 8] = [
    "*.mongodb.net",
    "*.mongodb-qa.net",
    "*.mongodb-dev.net",
    "*.mongodbgov.net",
    "localhost",
    "127.0.0.1",
    "::1",
    "*.mongo.com",
];

/// The hosts to which a client may show a token that a person has obtained.
///
/// Each is a name or an address, without a port, or `*.` and a domain, for the names below that.
/// The default is what MongoDB hosts itself, and this machine.
///
/// ```
/// use sdam_core::config::AllowedHosts;
///
/// let hosts = AllowedHosts::new(["db.example", "*.prod.example"]);
/// assert!(hosts.allows(&"a.b.prod.example:27017".parse()?));
/// assert!(!hosts.allows(&"prod.example:27017".parse()?));
/// assert!(AllowedHosts::default().allows(&"localhost:27018".parse()?));
/// # Ok::<(), sdam_core::config::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedHosts(Vec<String>);

impl AllowedHosts {
    /// Allows these hosts, and no others.
    pub fn new<T: Into<String>>(hosts: impl IntoIterator<Item = T>) -> Self {
        Self(hosts.into_iter().map(Into::into).collect())
    }

    /// Returns whether a server is one of them, whatever its port.
    pub fn allows(&self, server: &ServerAddress) -> bool {
        let host = server.host();
        let address = host.parse::<IpAddr>().ok();
        self.0.iter().any(|allowed| match allowed.strip_prefix('*') {
            Some(domain) => domain.starts_with('.') && address.is_none() && is_below(host, domain),
            None => match address {
                Some(address) => allowed.parse() == Ok(address),
                None => allowed.eq_ignore_ascii_case(host),
            },
        })
    }
}

impl Default for AllowedHosts {
    fn default() -> Self {
        Self::new(DEFAULT)
    }
}

/// Returns whether a name ends with a domain, which begins with a dot, and has more in front of it.
fn is_below(name: &str, domain: &str) -> bool {
    let end = name.len().checked_sub(domain.len()).filter(|end| *end > 0);
    end.and_then(|end| name.get(end..)).is_some_and(|end| end.eq_ignore_ascii_case(domain))
}

#[cfg(test)]
mod tests {
    use super::AllowedHosts;

    fn allowed<'a>(hosts: &AllowedHosts, tried: &[&'a str]) -> Vec<&'a str> {
        let allows = |host: &&&str| hosts.allows(&host.parse().unwrap());
        tried.iter().filter(allows).copied().collect()
    }

    /// "`ALLOWED_HOSTS` is a security feature and MUST default to"
    #[test]
    fn by_default_what_mongodb_hosts_and_this_machine_are_allowed() {
        let good = [
            "a.mongodb.net",
            "a.b.mongodb-qa.net:1",
            "a.mongodb-dev.net",
            "a.mongodbgov.net",
            "A.MONGO.com",
            "localhost:27018",
            "127.0.0.1",
            "[::1]:1",
            "[0:0::1]",
        ];
        assert_eq!(allowed(&AllowedHosts::default(), &good), good);
        let bad = [
            "mongodb.net",
            "amongodb.net",
            "a.mongodb.net.example",
            "a.mongodb.com",
            "localhost.example",
            "127.0.0.2",
            "[::2]",
            "/tmp/localhost.sock",
            "db.example",
        ];
        assert!(allowed(&AllowedHosts::default(), &bad).is_empty());
    }

    /// "The hostnames may include a leading "*." wildcard, which allows for matching (potentially
    /// nested) subdomains."
    #[test]
    fn only_a_star_and_a_dot_at_the_beginning_stand_for_others() {
        let hosts = AllowedHosts::new(["*.b", "*c", "a.*", "*", "D", "10.0.0.1", "*.0.0.2"]);
        let tried = ["a.b", "a.a.b", "b", "c", "a.c", "a.a", "d", "10.0.0.1", "10.0.0.2"];
        assert_eq!(allowed(&hosts, &tried), ["a.b", "a.a.b", "d", "10.0.0.1"]);
        // OIDC-H1.6: a list that is empty
        assert!(allowed(&AllowedHosts::new([""; 0]), &["localhost", "a"]).is_empty());
    }
}
