//! Initial DNS Seedlist Discovery: what a string says without DNS, and with DNS' answer.

use super::refusal;
use crate::config::uri::UriError;
use crate::config::{Options, OptionsError, ServerAddress, SrvOptions, Warning};

fn parse(rest: &str) -> Result<Options, OptionsError> {
    Options::parse(&format!("mongodb+srv://{rest}"))
}

fn addresses(texts: &[&str]) -> Vec<ServerAddress> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn resolve(rest: &str, seeds: &[&str], txt: &str) -> Result<Options, OptionsError> {
    parse(rest).unwrap().resolved(addresses(seeds), txt)
}

/// "Validation Before Querying DNS", "srvServiceName", "srvMaxHosts".
#[test]
fn the_string_names_what_to_look_up_and_has_no_seeds() {
    let options = parse("u:p@DB.Example.com/?srvServiceName=cust-1&srvMaxHosts=3").unwrap();
    let mut srv = SrvOptions::new("db.example.com");
    assert_eq!((&*srv.service_name, srv.max_hosts), ("mongodb", 0));
    srv.service_name = "cust-1".into();
    srv.max_hosts = 3;
    assert_eq!(options.srv(), Some(&srv));
    assert_eq!(options.seeds(), []);
    assert!(options.tls().is_some());
    assert!(parse("h/?tls=false").unwrap().tls().is_none());
    assert!(parse("h/?ssl=false").unwrap().tls().is_none());
    assert_eq!(Options::parse("mongodb://h").unwrap().srv(), None);
}

/// "Validation Before Querying DNS".
#[test]
fn the_name_is_one_and_has_no_port() {
    for rest in ["a,b", "a:1", "a:", "[::1]", "::1", "10.0.0.1", "%2Ftmp%2Fx.sock"] {
        let refused = refusal(&format!("mongodb+srv://{rest}"));
        assert!(matches!(refused, UriError::Srv(_)), "{rest}: {refused}");
    }
    for address in ["[::1]", "10.0.0.1", "10.0.0.1:27017"] {
        let refused = refusal(&format!("mongodb+srv://u:p@{address}/")).to_string();
        assert!(refused.contains("this is an IP address"), "{address}: {refused}");
        assert!(refused.ends_with("mongodb://"), "{address}: {refused}");
    }
    assert_eq!(refusal("mongodb+srv://"), UriError::NoHost);
    assert!(matches!(refusal("mongodb+srv://a b"), UriError::Host { .. }));
}

/// "URI Validation"; URI Options, "directConnection URI option with multiple seeds or SRV URI".
#[test]
fn options_of_dns_go_with_it_alone_and_with_no_other_deployment() {
    for option in ["srvMaxHosts", "srvServiceName", "srvAllowedHostsSuffix"] {
        for value in ["2", "name", ""] {
            let refused = refusal(&format!("mongodb://a/?{option}={value}"));
            assert_eq!(refused, UriError::NeedsSrv { option });
        }
    }
    let conflict = |with| Err(OptionsError::Conflict { option: "srvMaxHosts", with });
    assert_eq!(parse("a/?srvMaxHosts=2&replicaSet=rs"), conflict("replicaSet"));
    assert_eq!(parse("a/?srvMaxHosts=2&loadBalanced=true"), conflict("loadBalanced=true"));
    assert_eq!(parse("a/?directConnection=true"), Err(OptionsError::DirectConnectionWithSrv));
    assert!(parse("a/?directConnection=false&srvMaxHosts=0&replicaSet=rs").is_ok());
    for name in ["-a", "a-", "a--b", "1", "a_b", &"x".repeat(63)] {
        let options = parse(&format!("a/?srvServiceName={name}")).unwrap();
        assert_eq!(options.srv(), Some(&SrvOptions::new("a")));
        assert!(matches!(options.warnings(), [Warning::InvalidValue { .. }]), "{name}");
        let srv = SrvOptions { service_name: name.into(), ..SrvOptions::new("a") };
        assert_eq!(Options::builder().srv(srv).build(), Err(OptionsError::SrvServiceName));
    }
}

/// "srvAllowedHostsSuffix", steps 1 to 6.
#[cfg(feature = "public-suffixes")]
#[test]
fn a_suffix_is_normalised_and_is_a_domain_of_ones_own() {
    let suffix = |text: &str| {
        let options = parse(&format!("a.b.c/?srvAllowedHostsSuffix={text}"))?;
        Ok::<_, OptionsError>(options.srv().unwrap().allowed_hosts_suffix.clone().unwrap())
    };
    for text in [".mydomain.net", "mydomain.net", "MyDomain.NET.", "..mydomain.net.."] {
        assert_eq!(suffix(text).as_deref(), Ok("mydomain.net"), "{text}");
    }
    // Prose test 12: names that are kept for private use.
    for text in ["localhost", ".test", "internal", "corp", "local", "home.arpa"] {
        assert!(suffix(text).is_ok(), "{text}");
    }
    for text in ["", ".", "net", ".cc", "co.uk", "github.io", "nosuchtld", "a..b.net", "a%20b.net"]
    {
        let refused = suffix(text).unwrap_err();
        assert!(matches!(refused, OptionsError::SrvAllowedHostsSuffix { .. }), "{text}: {refused}");
    }
    assert!(suffix("b%C3%BCcher.example.net").unwrap_err().to_string().contains("xn--"));
    let options = parse("a.b.c/?srvAllowedHostsSuffix=.MyDomain.net").unwrap();
    assert_eq!(options.to_uri(), "mongodb+srv://a.b.c/?srvAllowedHostsSuffix=mydomain.net");
}

#[cfg(not(feature = "public-suffixes"))]
#[test]
fn a_suffix_needs_the_list_of_those_that_are_public() {
    let refused = parse("a.b.c/?srvAllowedHostsSuffix=mydomain.net");
    assert_eq!(refused, Err(OptionsError::NoPublicSuffixes));
}

/// Prose tests 9 and 13 of Initial DNS Seedlist Discovery.
#[test]
fn a_function_that_judges_hosts_goes_without_a_suffix_and_with_dns_alone() {
    let option = "srv_host_validator";
    let plain = Options::parse("mongodb://a").unwrap().with_judged_hosts();
    assert_eq!(plain, Err(UriError::NeedsSrv { option }.into()));
    assert!(parse("a.b.c").unwrap().with_judged_hosts().unwrap().srv().unwrap().hosts_are_judged);
    let mut srv = SrvOptions::new("a.b.c").with_allowed_hosts_suffix(Some("mydomain.net"));
    srv.hosts_are_judged = true;
    let conflict = OptionsError::Conflict { option: "srvAllowedHostsSuffix", with: option };
    assert_eq!(Options::builder().srv(srv).build(), Err(conflict));
}

/// "Default Connection String Options".
#[test]
fn a_txt_record_counts_where_the_string_is_silent() {
    let options = resolve("u@h.b.c/db", &["x.b.c", "y.b.c:1"], "replicaSet=rs&authSource=s");
    let options = options.unwrap();
    assert_eq!(options.seeds(), addresses(&["x.b.c", "y.b.c:1"]));
    assert_eq!(options.replica_set().map(|name| &**name), Some("rs"));
    assert_eq!(options.credential().unwrap().source, "s");
    assert!(options.tls().is_some());
    assert_eq!(options.srv(), Some(&SrvOptions::new("h.b.c")));
    let own = "u@h.b.c/?replicaSet=own&authSource=own&loadBalanced=false";
    let options = resolve(own, &["x.b.c"], "authSource=s&loadBalanced=true&replicaSet=rs");
    let options = options.unwrap();
    assert_eq!(options.replica_set().map(|name| &**name), Some("own"));
    assert_eq!(options.credential().unwrap().source, "own");
    assert!(!options.load_balanced());
    let silent = resolve("u@h.b.c/db", &["x.b.c"], "").unwrap();
    assert_eq!(silent.credential().unwrap().source, "db");
    let again = silent.resolved(addresses(&["z.b.c"]), "").unwrap();
    assert_eq!(again.seeds(), addresses(&["z.b.c"]));
}

/// "Default Connection String Options".
#[test]
fn a_txt_record_sets_nothing_else_and_is_well_formed() {
    let refused = |txt| resolve("h.b.c", &["x.b.c"], txt).unwrap_err();
    for txt in ["ssl=false", "tls=true", "socketTimeoutMS=500", "unknown=1"] {
        assert!(matches!(refused(txt), OptionsError::TxtOption { .. }), "{txt}");
    }
    for txt in ["authSource", "=x", "replicaSet=a&", "&"] {
        assert!(matches!(refused(txt), OptionsError::Txt(_)), "{txt}");
    }
    assert!(matches!(refused("authSource=%"), OptionsError::Txt(_)));
    assert!(matches!(refused(&"x".repeat(100_000)), OptionsError::Txt(_)));
    let options = resolve("h.b.c", &["x.b.c"], "loadBalanced=maybe").unwrap();
    assert!(matches!(options.warnings(), [Warning::InvalidValue { .. }]));
}

/// "URI Validation"; Load Balancer Support, "URI Validation": judged with DNS' answer.
#[test]
fn the_answer_is_judged_with_the_string() {
    assert_eq!(resolve("h", &[], ""), Err(OptionsError::NoSeeds));
    let two = ["x.h", "y.h"];
    let balanced = OptionsError::LoadBalancedWithSeeds(2);
    assert_eq!(resolve("h/?loadBalanced=true", &two, ""), Err(balanced.clone()));
    assert_eq!(resolve("h", &two, "loadBalanced=true"), Err(balanced));
    let conflict = |with| Err(OptionsError::Conflict { option: "srvMaxHosts", with });
    assert_eq!(resolve("h/?srvMaxHosts=1", &["x.h"], "replicaSet=rs"), conflict("replicaSet"));
    let txt = "loadBalanced=true";
    assert_eq!(resolve("h/?srvMaxHosts=1", &["x.h"], txt), conflict("loadBalanced=true"));
    let set = resolve("h/?replicaSet=rs", &["x.h"], "loadBalanced=true");
    assert_eq!(set, Err(OptionsError::LoadBalancedWithReplicaSet));
    let plain = Options::parse("mongodb://a").unwrap();
    assert_eq!(plain.resolved(addresses(&["b"]), ""), Err(OptionsError::NotSrv));
}
