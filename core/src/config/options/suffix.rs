//! The end that names of hosts in DNS must have: `srvAllowedHostsSuffix` (Initial DNS Seedlist
//! Discovery, "srvAllowedHostsSuffix").

use std::sync::Arc;

use super::OptionsError;
use crate::config::MAX_HOST_LEN;

/// The names below which no registry gives names away, though the list does not know them or, of
/// `home.arpa`, calls them public: those that RFC 6761, RFC 6762, RFC 8375 and ICANN keep for
/// special and private use, and those that are used like them.
const PRIVATE: [&str; 10] = [
    "corp",
    "example",
    "home",
    "home.arpa",
    "internal",
    "invalid",
    "local",
    "localhost",
    "mail",
    "test",
];

/// Returns a suffix in the form in which names are compared: in lower case, without a dot at
/// either end.
pub(in crate::config) fn normal(suffix: &str) -> Arc<str> {
    suffix.trim_matches('.').to_ascii_lowercase().into()
}

/// Judges a suffix in that form.
pub(super) fn check(suffix: &str) -> Result<(), OptionsError> {
    let refused = |problem| Err(OptionsError::SrvAllowedHostsSuffix { problem });
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    if suffix.is_empty() {
        return refused("it is empty");
    } else if !suffix.is_ascii() {
        return refused("write a name in another script in its ASCII form, which begins with xn--");
    } else if suffix.len() > MAX_HOST_LEN || !suffix.split('.').all(is_part) {
        return refused("it is no domain name");
    } else if cfg!(not(feature = "public-suffixes")) {
        return Err(OptionsError::NoPublicSuffixes);
    } else if is_public(suffix) && !PRIVATE.contains(&suffix) {
        return refused("anybody can register a name below it; write a domain of your own");
    }
    Ok(())
}

/// Returns whether a name is a public suffix, below which anybody can register a name (Public
/// Suffix List, "Determining the public suffix").
#[cfg(feature = "public-suffixes")]
fn is_public(name: &str) -> bool {
    // The list knows a rule such as `*.kawasaki.jp` for the names below `kawasaki.jp` only.
    let below = format!("any.{name}");
    [name, &below].into_iter().any(|name| psl::suffix_str(name) == Some(name))
}

#[cfg(not(feature = "public-suffixes"))]
const fn is_public(_: &str) -> bool {
    true
}

#[cfg(all(test, feature = "public-suffixes"))]
mod tests {
    use super::{PRIVATE, check, is_public};

    /// The list has a rule for none of them but `home.arpa`, so that the rule for all names holds
    /// (Public Suffix List, "If no rules match, the prevailing rule is *").
    #[test]
    fn names_for_private_use_are_no_rules_of_the_list() {
        for name in PRIVATE {
            assert!(is_public(name), "{name}");
            assert_eq!(check(name), Ok(()), "{name}");
            assert!(!is_public(&format!("db.{name}")), "{name}");
            let has_rule = psl::suffix(name.as_bytes()).is_some_and(|it| it.is_known());
            assert_eq!(has_rule, name == "home.arpa", "{name}");
        }
    }

    /// Public Suffix List, prose tests 1 to 6.
    #[test]
    fn the_list_has_rules_of_every_form() {
        for public in
            ["com.ac", "b.ck", "abc.nom.br", "ck", "nosuchtld", "xn--p1ai", "xn--55qx5d.cn"]
        {
            assert!(is_public(public), "{public}");
        }
        // The parents of rules that begin with an asterisk.
        for public in ["nom.br", "kawasaki.jp"] {
            assert!(is_public(public), "{public}");
        }
        for own in ["foo.com.ac", "a.b.ck", "x.abc.nom.br", "www.ck", "foo.nosuchtld"] {
            assert!(!is_public(own), "{own}");
        }
        assert!(!is_public("example.xn--p1ai"));
        // Domains below which their owners let others have names.
        assert!(is_public("github.io"));
    }
}
