//! Connection strings by the section of the specification that rules them, and any text at all.

mod layers;
mod srv;

use std::time::Duration;

use proptest::prelude::*;

use super::{MAX_URI_LEN, UriError};
use crate::config::{MAX_SEEDS, MonitoringMode, Options, OptionsError, Secret, Warning};

fn seeds(uri: &str) -> Vec<String> {
    let options = Options::parse(uri).unwrap_or_else(|error| panic!("{uri}: {error}"));
    options.seeds().iter().map(ToString::to_string).collect()
}

fn refusal(uri: &str) -> UriError {
    match Options::parse(uri) {
        Err(OptionsError::Uri(error)) => error,
        other => panic!("{uri}: {other:?}"),
    }
}

fn query(text: &str) -> Options {
    Options::parse(&format!("mongodb://a/?{text}")).unwrap()
}

fn host_problem(uri: &str) -> (String, &'static str) {
    match refusal(uri) {
        UriError::Host { host, problem } => (host, problem),
        other => panic!("{uri}: {other:?}"),
    }
}

/// Connection String, "Scheme".
#[test]
fn the_scheme_is_mongodb_or_mongodb_srv() {
    assert_eq!(refusal(""), UriError::Scheme);
    assert_eq!(refusal("localhost"), UriError::Scheme);
    assert_eq!(refusal("http://localhost"), UriError::Scheme);
    assert_eq!(refusal("mongodb:/localhost"), UriError::Scheme);
    assert_eq!(refusal("mongodb+srv:/example.com"), UriError::Scheme);
    assert_eq!(refusal("\"localhost\""), UriError::Scheme);
    let wrapped = |uri: &str| refusal(uri).to_string();
    for uri in ["\"mongodb://h\"", "'mongodb+srv://h.b.c'", " \u{201c}mongodb://h\u{201d}"] {
        let expected = "the connection string is in quotation marks; leave that out";
        assert_eq!(wrapped(uri), expected, "{uri}");
    }
    assert!(wrapped(" mongodb://h").contains("begins with white space"));
    for uri in
        ["mongodb://h\n", "mongodb://h/\r\n", "mongodb://h/?replicaSet=rs\n", "mongodb://h/db "]
    {
        assert!(wrapped(uri).contains("ends with white space"), "{uri:?}");
    }
    assert!(wrapped("<mongodb://h>").contains("angle brackets"));
    assert!(Options::parse("mongodb+srv://example.com").is_ok());
}

/// Connection String, "Host Information".
#[test]
fn hosts_are_names_addresses_and_socket_paths() {
    assert_eq!(
        seeds("mongodb://A.example,10.0.0.1:1,[FE80::1]:2,[::1]"),
        ["a.example:27017", "10.0.0.1:1", "[fe80::1]:2", "[::1]:27017"]
    );
    assert_eq!(
        seeds("mongodb://%2Ftmp%2FM%20%C3%BC.sock,x.sock,rel%2fy.sock/db"),
        ["/tmp/M ü.sock", "x.sock:27017", "rel/y.sock"]
    );
    assert_eq!(seeds("mongodb://bücher.example"), ["bücher.example:27017"]);
    assert_eq!(seeds("mongodb://%61"), ["a:27017"]);
}

/// Connection String, "Host Information", "Host" and "Port".
#[test]
fn a_malformed_host_is_named_and_its_problem_said() {
    assert_eq!(refusal("mongodb://"), UriError::NoHost);
    assert_eq!(refusal("mongodb://u:p@"), UriError::NoHost);
    assert_eq!(refusal("mongodb:///tmp/mongodb-27017.sock"), UriError::NoHost);
    let port = "the port is not a number from 1 to 65535";
    for text in ["0", "65536", "abc", "", "-1", "+1"] {
        let uri = format!("mongodb://ok,db.example:{text}/");
        assert_eq!(host_problem(&uri), ("db.example".to_owned(), port));
    }
    assert_eq!(host_problem("mongodb://[::1]:x").0, "[::1]");
    assert_eq!(host_problem("mongodb://::1").0, "::1");
    assert_eq!(host_problem("mongodb://a,,b").1, "the name is empty");
    assert_eq!(
        host_problem("mongodb://%2Ftmp%2Fx").1,
        "the path of a Unix domain socket must end in .sock"
    );
    assert!(host_problem("mongodb://a%3A1").1.contains("may not stand for"));
    assert!(host_problem("mongodb://a%zz").1.contains("%"));
    assert!(host_problem("mongodb://a%ff").1.contains("UTF-8"));
    assert!(host_problem("mongodb://a b").1.contains("space"));
}

/// Connection String, "Userinfo".
#[test]
fn a_user_name_and_password_are_decoded_and_checked() {
    let user_infos = [
        ("u", "u", None),
        ("u:", "u", Some("")),
        ("u:p", "u", Some("p")),
        ("%40l%3Ace%2F:%25", "@l:ce/", Some("%")),
        ("!$&'()*+,;=:-._~", "!$&'()*+,;=", Some("-._~")),
        ("ü:ü", "ü", Some("ü")),
    ];
    for (user_info, username, password) in user_infos {
        let options = Options::parse(&format!("mongodb://{user_info}@h")).unwrap();
        let credential = options.credential().unwrap();
        assert_eq!(credential.username.as_deref(), Some(username));
        assert_eq!(credential.password.as_ref().map(Secret::expose), password);
    }
    for user_info in ["", ":p", "u:p:q", "u@v", "u:%", "u:%a", "u:%zz", "u:%ff", "u:[", "u p"] {
        let refused = refusal(&format!("mongodb://{user_info}@h"));
        assert!(matches!(refused, UriError::UserInfo(_)), "{user_info}: {refused}");
    }
}

/// Connection String, "Userinfo": a password with `/`, `?` or without its `@` must not be shown.
#[test]
fn no_part_of_a_password_is_ever_shown() {
    let uris = [
        "mongodb://u:hunter@h:x",
        "mongodb://u:hunter@@h",
        "mongodb://u:hunter:2@h",
        "mongodb://u:hunter%@h",
        "mongodb://u:hunter",
        "mongodb://u:hunter:2",
        "mongodb://u:hunter/2@h",
        "mongodb://u:1/hunter@h",
        "mongodb://u:1/hunter$",
        "mongodb://u:hunter?2@h",
        "mongodb://u:1?hunter@h",
        "mongodb://u:1?hunter&2@h",
        "mongodb://u:1?hunter=2@h",
        "mongodb://u:1?hunter&x=2@h",
        "mongodb://u:p@hunter/2@h",
        "mongodb://u:1@h/?authMechanismProperties=AWS_SESSION_TOKEN:hunter",
        "mongodb://u:1@h/?authMechanismProperties=AWS_SESSION_TOKEN:x&hunter=2",
        "mongodb://u:1@h/?authMechanismProperties=AWS_SESSION_TOKEN:x&hunter",
        "mongodb://u:1@h/?proxyHost=p&proxyUsername=u&proxyPassword=hunter",
        "mongodb://u:1@h/?proxyPassword=hunter",
        "mongodb://u:1@h/?proxyHost=p&proxyUsername=u&proxyPassword=x&hunter=2",
        "mongodb://u:1@h/?tlsCertificateKeyFilePassword=hunter",
        // An option whose `=` was left out.
        "mongodb://u:1@h/?proxyPasswordhunter",
        "mongodb://h/?tlsCertificateKeyFilePasswordhunter",
        "mongodb://h/?tls=true&tlsCertificateKeyFilePassword:hunter&appName=a",
        "mongodb://h/?proxyPasswordhunter=2",
        "mongodb://h/?proxyPassword:hunter=2",
        "mongodb+srv://u:hunter@h",
        "mongodb+srv://u:hunter",
        "mongodb+srv://u:hunter@h:x",
        "mongodb:/u:hunter@h",
    ];
    for uri in uris {
        let outcome = Options::builder().uri(uri);
        let text = match &outcome {
            Ok(builder) => {
                let warnings = builder.clone().build().unwrap();
                let texts = warnings.warnings().iter().map(ToString::to_string);
                texts.collect::<String>()
            }
            Err(error) => error.to_string(),
        };
        let shown = format!("{text} {outcome:?}");
        assert!(!shown.contains("hunter"), "{uri}: {shown}");
    }
}

/// Connection String, "Auth Database".
#[test]
fn a_database_is_decoded_and_checked_and_asks_for_no_authentication() {
    let databases = [
        ("", None),
        ("admin", Some("admin")),
        ("my%3Ddb", Some("my=db")),
        ("admin.sock", Some("admin.sock")),
        ("%3F", Some("?")),
        ("ü", Some("ü")),
    ];
    for (database, decoded) in databases {
        let options = Options::parse(&format!("mongodb://h/{database}?w=1")).unwrap();
        assert_eq!(options.database(), decoded);
        assert_eq!(options.credential(), None);
    }
    for database in ["a/b", "a%2Fb", "a\\b", "a b", "a%20b", "a\"b", "a$b", "%", "%ff"] {
        let refused = refusal(&format!("mongodb://h/{database}"));
        assert!(matches!(refused, UriError::Database(_)), "{database}: {refused}");
    }
}

/// Connection String, "Connection Options" and "Keys"; URI Options.
#[test]
fn options_are_set_whatever_the_case_of_their_names() {
    let options = query(
        "REPLICASET=my%20set&appname=shop%26co&connectTimeoutMS=0&heartbeatfrequencyms=500\
         &localThresholdMS=0&serverSelectionTimeoutMS=2147483647&serverMonitoringMode=poll",
    );
    assert_eq!(options.replica_set().map(|name| &**name), Some("my set"));
    assert_eq!(options.metadata().application(), Some("shop&co"));
    assert_eq!(options.connect_timeout(), None);
    assert_eq!(options.heartbeat_frequency(), Duration::from_millis(500));
    assert_eq!(options.local_threshold(), Duration::ZERO);
    let longest = Duration::from_millis(2_147_483_647);
    assert_eq!(options.server_selection_timeout(), longest);
    assert_eq!(options.monitoring_mode(), MonitoringMode::Poll);
    assert_eq!(options.warnings(), []);
    assert!(query("directConnection=true").direct_connection());
    assert!(query("loadBalanced=true").load_balanced());
    assert_eq!(query("replicaSet=my@set").replica_set().map(|name| &**name), Some("my@set"));
}

/// Connection String, "Host Information": the slash before the options is optional.
#[test]
fn options_may_follow_the_hosts_without_a_slash() {
    let options = Options::parse("mongodb://a,b?replicaSet=a/b").unwrap();
    assert_eq!(options.seeds().len(), 2);
    assert_eq!(options.replica_set().map(|name| &**name), Some("a/b"));
    assert!(Options::parse("mongodb://a/?").is_ok());
    assert!(Options::parse("mongodb://a?").is_ok());
}

/// Connection String, "Values": an invalid value is ignored, with a warning.
#[test]
fn an_invalid_value_leaves_the_default_and_a_warning() {
    let defaults = query("");
    let cases = [
        ("heartbeatFrequencyMS", "499"),
        ("heartbeatFrequencyMS", "-1"),
        ("connectTimeoutMS", "-2"),
        ("connectTimeoutMS", "1.5"),
        ("connectTimeoutMS", "+1"),
        ("localThresholdMS", "2147483648"),
        ("serverSelectionTimeoutMS", "soon"),
        ("directConnection", "TRUE"),
        ("loadBalanced", "maybe"),
        ("serverMonitoringMode", "Stream"),
    ];
    for (name, value) in cases {
        let options = query(&format!("{name}={value}"));
        match options.warnings() {
            [Warning::InvalidValue { option, .. }] => assert_eq!(*option, name),
            other => panic!("{name}={value}: {other:?}"),
        }
        assert_eq!(options.heartbeat_frequency(), defaults.heartbeat_frequency());
        assert_eq!(options.connect_timeout(), defaults.connect_timeout());
        assert_eq!(options.local_threshold(), defaults.local_threshold());
        let timeout = options.server_selection_timeout();
        assert_eq!(timeout, defaults.server_selection_timeout());
        assert!(!options.direct_connection() && !options.load_balanced());
        assert_eq!(options.monitoring_mode(), defaults.monitoring_mode());
    }
    let long = query(&format!("appName={}", "x".repeat(129)));
    assert_eq!(long.metadata().application(), None);
    assert_eq!(long.warnings().len(), 1);
}

/// Connection String, "Values", "Keys" and "Repeated Keys".
#[test]
fn what_is_unknown_empty_repeated_or_deprecated_leaves_a_warning() {
    let warnings = |text: &str| query(text).warnings().to_vec();
    let unknown = Warning::UnknownOption { option: "option \"conectTimeoutMS\"".to_owned() };
    let misspelt = warnings("conectTimeoutMS=1");
    assert_eq!(misspelt, [unknown]);
    assert_eq!(misspelt[0].to_string(), "ignored option \"conectTimeoutMS\", which is unknown");
    for option in ["maxIdleTimeMS", "journal", "connectTimeoutMS", "appName"] {
        let empty = Warning::EmptyValue { option };
        assert_eq!(warnings(&format!("{option}=")), [empty]);
    }
    let repeated = query("appName=first&APPNAME=second");
    assert_eq!(repeated.metadata().application(), Some("first"));
    let option = "appName";
    assert_eq!(repeated.warnings(), [Warning::RepeatedOption { option }]);
    let deprecated = query("directConnection=yes");
    assert!(deprecated.direct_connection());
    let (option, value) = ("directConnection", true);
    assert_eq!(deprecated.warnings(), [Warning::DeprecatedBoolean { option, value }]);
}

/// Connection String, "Key Value Pair".
#[test]
fn an_option_is_a_name_and_a_value() {
    for (text, position) in [("w", 1), ("=1", 1), ("w=1&", 2), ("&w=1", 1)] {
        let refused = refusal(&format!("mongodb://a/?{text}"));
        assert_eq!(refused, UriError::OptionForm { position });
        assert_eq!(refused.to_string(), format!("option {position} is not of the form name=value"));
    }
    let escape = refusal("mongodb://a/?appName=%");
    assert_eq!(escape, UriError::Escape { option: "appName" });
}

/// URI Options, "directConnection URI option with multiple seeds"; Load Balancer Support, "URI
/// Validation".
#[test]
fn combinations_are_judged_as_everywhere() {
    let parse = |text| Options::parse(text).map(drop);
    assert_eq!(
        parse("mongodb://a,b/?directConnection=true"),
        Err(OptionsError::DirectConnectionWithSeeds(2))
    );
    assert_eq!(
        parse("mongodb://a/?loadBalanced=true&replicaSet=rs"),
        Err(OptionsError::LoadBalancedWithReplicaSet)
    );
    assert_eq!(parse("mongodb://a/?replicaSet="), Err(OptionsError::EmptyReplicaSet));
}

#[test]
fn size_is_limited() {
    let long = format!("mongodb://{}", "a".repeat(MAX_URI_LEN));
    assert_eq!(refusal(&long), UriError::TooLong(long.len()));
    let hosts = (0..=MAX_SEEDS).map(|number| format!("h{number}"));
    let many = format!("mongodb://{}", hosts.collect::<Vec<_>>().join(","));
    assert_eq!(Options::parse(&many), Err(OptionsError::TooManySeeds(MAX_SEEDS + 1)));
    let name = query(&format!("{}=1", "é".repeat(1_000)));
    assert!(name.warnings()[0].to_string().len() < 120);
    match refusal(&format!("mongodb://{}:x", "a".repeat(10_000))) {
        UriError::Host { host, .. } => assert_eq!(host.len(), 255),
        other => panic!("{other:?}"),
    }
}

proptest! {
    /// Any text is options or an error, and both can be shown.
    #[test]
    fn any_text_gives_options_or_an_error(
        text in prop_oneof![
            any::<String>(),
            "mongodb(\\+srv)?://[a-c@:/?&=%,.\\[\\]0-9é$ ]{0,60}",
            "mongodb://(a|b:1|\\[::1\\]|%2Fx.sock)(,c)?/?[a-z]{0,3}\\?\
             ((tls|appName|w|x)=[%0-9a-f@]{0,4}&?){0,4}",
        ],
    ) {
        match Options::parse(&text) {
            Ok(options) => {
                prop_assert!(!options.seeds().is_empty() || options.srv().is_some());
                prop_assert!(options.warnings().iter().all(|w| !w.to_string().is_empty()));
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    /// Connection String, "Userinfo": a well-formed one leaves no trace.
    #[test]
    fn a_password_leaves_no_trace(
        password in "[A-Z]{8}[%/?@:&=#]{0,2}[A-Z]{8}",
        rest in "[a-z:@/?&=%.,]{0,12}",
    ) {
        let outcome = Options::parse(&format!("mongodb://u:{password}@h{rest}"));
        // Host names are shown in lower case.
        let printed = outcome.as_ref().map(ToString::to_string);
        let shown = format!("{outcome:?} {printed:?}").to_lowercase();
        let password = password.to_lowercase();
        prop_assert!(!shown.contains(&password[..8]), "{shown}");
        prop_assert!(!shown.contains(&password[password.len() - 8..]), "{shown}");
    }
}
