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
    for option in ["srvMaxHosts", "srvServiceName"] {
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
