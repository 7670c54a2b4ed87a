//! The matches and targets of rules, and that any text is a rule or an error.

use proptest::prelude::*;

use super::{AddressMap, AddressMapError, AddressRule, MAX_RULE_LEN, MAX_RULES, captured};
use crate::config::{AddressError, ServerAddress};

fn rule(text: &str) -> AddressRule {
    text.parse().unwrap()
}

fn error(text: &str) -> AddressMapError {
    text.parse::<AddressRule>().unwrap_err()
}

/// Returns what is dialled for `advertised`.
fn dialled(rules: &[&str], advertised: &str) -> String {
    let map = AddressMap::new(rules.iter().map(|text| rule(text))).unwrap();
    map.resolve(&advertised.parse().unwrap()).to_string()
}

#[test]
fn without_rules_the_advertised_address_is_dialled() {
    assert_eq!(dialled(&[], "db1.internal:5"), "db1.internal:5");
    assert!(AddressMap::default().rules().is_empty());
}

#[test]
fn the_first_rule_that_matches_counts_and_its_target_is_not_mapped_again() {
    let rules = ["a:1=b:2", "b:2=c:3", "a=d"];
    assert_eq!(dialled(&rules, "a:1"), "b:2");
    assert_eq!(dialled(&rules, "b:2"), "c:3");
    assert_eq!(dialled(&rules, "a:9"), "d:9");
}

#[test]
fn a_host_alone_or_a_star_is_any_port_and_a_target_without_one_keeps_it() {
    for from in ["db", "DB", "db:*"] {
        assert_eq!(dialled(&[&format!("{from}=LocalHost")], "Db:7"), "localhost:7");
    }
    assert_eq!(dialled(&["db:7=localhost:8"], "db:7"), "localhost:8");
    assert_eq!(dialled(&["db:7=localhost:8"], "db:9"), "db:9");
}

#[test]
fn a_star_matches_any_run_of_characters_and_may_be_used_again() {
    assert_eq!(dialled(&["*=127.0.0.1:1"], "a.b.c"), "127.0.0.1:1");
    assert_eq!(dialled(&["*.internal=*.example"], "a.b.internal:5"), "a.b.example:5");
    assert_eq!(dialled(&["*.internal=*.example"], "internal:5"), "internal:5");
    assert_eq!(dialled(&["db*=*x"], "db:5"), "x:5");
    assert_eq!(dialled(&["[fe80::*]:5=[::*]:6"], "[FE80::7]:5"), "[::7]:6");
    // Prefix and suffix may not overlap.
    assert_eq!(dialled(&["aba*aba=x"], "ababa:5"), "ababa:5");
    // The first of two stars takes as little as it can.
    assert_eq!(dialled(&["*-*=*"], "a-b-c:5"), "a:5");
    assert_eq!(dialled(&["x*-*-*.y=*"], "xa-b-c-d.y:5"), "a:5");
    assert_eq!(dialled(&["x*-*-*.y=*"], "xa-b.y:5"), "xa-b.y:5");
}

#[test]
fn a_target_that_would_be_no_host_name_is_no_match() {
    assert_eq!(dialled(&["db*=*:1", "db=other:2"], "db:5"), "other:2");
    let long = "x".repeat(250);
    assert_eq!(dialled(&["*=*.example.com"], &long), format!("{long}:27017"));
}

#[test]
fn sockets_are_targets_but_are_never_mapped() {
    assert_eq!(dialled(&["db=/run/Tunnel.sock"], "db:5"), "/run/Tunnel.sock");
    assert_eq!(dialled(&["*=db:1"], "/run/mongodb.sock"), "/run/mongodb.sock");
}

#[test]
fn what_is_wrong_with_a_rule_is_named() {
    assert_eq!(error("db1"), AddressMapError::NoEquals("db1".into()));
    let from = |from: &str, source| AddressMapError::From { from: from.into(), source };
    let to = |to: &str, source| AddressMapError::To { to: to.into(), source };
    assert_eq!(error("=a"), from("", AddressError::Empty));
    assert_eq!(error("a:x=b"), from("a:x", AddressError::Port("x".into())));
    assert_eq!(error("a:1:*=b"), from("a:1:*", AddressError::Colons("a:1:*".into())));
    assert_eq!(error("/a.sock=b"), AddressMapError::FromPath("/a.sock".into()));
    assert_eq!(error("a="), to("", AddressError::Empty));
    assert_eq!(error("a=b:0"), to("b:0", AddressError::Port("0".into())));
    assert_eq!(error("a=b,c=d"), to("b,c=d", AddressError::Character(',')));
    assert_eq!(error("a=b c"), to("b c", AddressError::Character(' ')));
    assert_eq!(error("a=*"), AddressMapError::Star("*".into()));
    assert_eq!(error("*=*.*"), AddressMapError::Star("*.*".into()));
    assert_eq!(error("*=/run/*.sock"), AddressMapError::Star("/run/*.sock".into()));
    assert_eq!(
        error("db1:x=a").to_string(),
        "\"db1:x\" cannot be mapped: the port \"x\" is not a number from 1 to 65535; \
         write HOST or HOST:PORT, * for any"
    );
}

#[test]
fn rules_are_limited_in_number_and_length() {
    let rules = |count| AddressMap::new((0..count).map(|_| rule("a=b")));
    assert_eq!(rules(MAX_RULES).unwrap().rules().len(), MAX_RULES);
    assert_eq!(rules(MAX_RULES + 1), Err(AddressMapError::TooManyRules));
    let longest = format!("[{0}]:65535=[{0}]:65535", "x".repeat(255));
    assert_eq!(longest.len(), MAX_RULE_LEN);
    assert!(longest.parse::<AddressRule>().is_ok());
    assert_eq!(error(&(longest + "5")), AddressMapError::TooLong(MAX_RULE_LEN + 1));
}

/// Says whether the pattern matches, by trying everything; only for short texts.
fn matches_slowly(pattern: &[char], host: &[char]) -> bool {
    match pattern.split_first() {
        None => host.is_empty(),
        Some(('*', rest)) => (0..=host.len()).any(|taken| matches_slowly(rest, &host[taken..])),
        Some((c, rest)) => host.first() == Some(c) && matches_slowly(rest, &host[1..]),
    }
}

proptest! {
    #[test]
    fn any_text_is_a_rule_that_can_be_written_and_read_again_or_an_error(
        text in prop_oneof![
            ".{0,40}",
            "[ab*.:=/\\[\\]0-9]{0,20}",
            "[a*.]{1,9}(:[0-9*]{1,3})?=[a*.]{1,9}(:[0-9]{1,3})?",
        ],
    ) {
        match text.parse::<AddressRule>() {
            Ok(rule) => prop_assert_eq!(rule.to_string().parse::<AddressRule>(), Ok(rule)),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn whatever_is_dialled_is_an_address(
        from in "[ab*.]{1,8}(:[1-9*])?", to in "[ab*.]{1,8}(:[1-9])?", host in "[ab.]{1,9}:[1-9]",
    ) {
        if let Ok(rule) = format!("{from}={to}").parse::<AddressRule>() {
            let dialled = AddressMap::new([rule]).unwrap().resolve(&host.parse().unwrap());
            prop_assert_eq!(dialled.to_string().parse::<ServerAddress>(), Ok(dialled));
        }
    }

    #[test]
    fn a_pattern_matches_what_trying_everything_finds(
        pattern in "[ab*]{0,8}", host in "[ab]{0,10}",
    ) {
        let slow: (Vec<char>, Vec<char>) = (pattern.chars().collect(), host.chars().collect());
        prop_assert_eq!(captured(&pattern, &host).is_some(), matches_slowly(&slow.0, &slow.1));
    }
}

/// A pattern that takes a matcher that tries everything longer than the universe has existed.
#[test]
fn matching_never_explodes() {
    let (pattern, host) = ("a*".repeat(127) + "b", "a".repeat(255));
    for _ in 0..1000 {
        assert_eq!(captured(&pattern, &host), None);
    }
}
