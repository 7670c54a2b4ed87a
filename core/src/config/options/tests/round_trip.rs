//! Texts that parse, print, and parse again to the same; and no printing shows a secret.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::config::address_map::AddressMap;
use crate::config::metadata::{DriverInfo, Environment, Os};
use crate::config::options::table::URI_OPTIONS;
use crate::config::{
    Acknowledgment, AllowedHosts, AuthMechanism, OpeningHello, Options, OptionsBuilder,
    PoolOptions, ProxyOptions, ReadConcern, ReadMode, ReadPreference, Secret, ServerApi,
    ServerApiVersion, SrvOptions, TagSet, TcpOptions, TlsOptions, Warning, WriteConcern,
};
use crate::wire::Compressor;

/// Prints options and parses them again.
fn again(options: &Options) -> Options {
    let printed = options.to_uri_with_secrets();
    Options::parse(printed.expose()).unwrap_or_else(|error| panic!("{}: {error}", printed.expose()))
}

fn builder() -> OptionsBuilder {
    Options::builder().seeds(["a".parse().unwrap(), "[::1]:2".parse().unwrap()])
}

/// Every option of URI Options that a mongodb:// string may have, none with its default; in one
/// string those that need each other.
const ALL: &[&str] = &[
    "replicaSet=my%20s%26t",
    "heartbeatFrequencyMS=600",
    "localThresholdMS=0",
    "serverSelectionTimeoutMS=0",
    "serverSelectionTryOnce=false",
    "serverMonitoringMode=poll",
    "appName=shop%20%F0%9F%9B%92",
    "connectTimeoutMS=0",
    "socketTimeoutMS=7",
    "tls=true",
    "tlsCAFile=/etc/c%C3%A4.pem",
    "tlsCertificateKeyFile=a%26b",
    "tlsCertificateKeyFilePassword=%25%26%3D",
    "tlsInsecure=true",
    "proxyHost=::1&proxyPort=1081&proxyUsername=u%40&proxyPassword=p%26",
    "maxPoolSize=7",
    "minPoolSize=3",
    "maxConnecting=5",
    "maxIdleTimeMS=9",
    "waitQueueTimeoutMS=8",
    "authSource=so%26urce",
    "authMechanism=SCRAM-SHA-256",
    "authMechanismProperties=A:mongodb://b,C:d",
    "maxScramIterations=4096",
    "readPreference=nearest&readPreferenceTags=dc:n%26y,rack:1&readPreferenceTags=\
     &maxStalenessSeconds=90",
    "readConcernLevel=majority",
    "w=my%20mode",
    "journal=true",
    "wTimeoutMS=9223372036854775807",
    "retryReads=false",
    "retryWrites=false",
    "maxAdaptiveRetries=0",
    "enableOverloadRetargeting=true",
    "timeoutMS=0",
    "compressors=zstd,snappy,zlib",
    "zlibCompressionLevel=9",
];

/// The options that go with none of those, or have another name there; tests besides are about
/// them.
const OTHERS: &[&str] = &[
    "directConnection",
    "loadBalanced",
    "srvAllowedHostsSuffix",
    "srvMaxHosts",
    "srvServiceName",
    "ssl",
    "tlsAllowInvalidCertificates",
    "tlsAllowInvalidHostnames",
    "tlsDisableCertificateRevocationCheck",
    "tlsDisableOCSPEndpointCheck",
    "wtimeout",
];

#[test]
fn every_option_of_the_table_is_tried_here() {
    let written = ALL.iter().flat_map(|options| options.split('&'));
    let written = written.filter_map(|option| option.split_once('=')).map(|(name, _)| name);
    let tried: BTreeSet<_> = written.chain(OTHERS.iter().copied()).collect();
    assert_eq!(URI_OPTIONS.iter().map(|option| option.name).collect::<BTreeSet<_>>(), tried);
    assert_eq!(URI_OPTIONS.len(), tried.len(), "each has one entry");
}

#[test]
fn every_option_prints_as_it_was_written() {
    let uri = format!("mongodb://%40:%3A%2F@h:1,%2Ftmp%2Fm%2C%40.sock/d%3Fb?{}", ALL.join("&"));
    let options = Options::parse(&uri).unwrap();
    let option = "serverSelectionTryOnce";
    // A build may lack compressors, and says so.
    let mut warnings = options.warnings().to_vec();
    warnings.retain(|warning| !matches!(warning, Warning::NotInThisBuild { .. }));
    assert_eq!(warnings, [Warning::SingleThreadedOnly { option }]);
    assert_eq!(again(&options), options);
    let printed = options.to_uri_with_secrets();
    let all = ALL.iter().flat_map(|options| options.split('&'));
    for option in all.filter(|option| *option != "tlsInsecure=true") {
        assert!(printed.expose().contains(option), "{option}: {}", printed.expose());
    }
}

fn with_what_only_builders_set() -> Options {
    let preference = ReadPreference::nearest().with_hedge(true).unwrap();
    builder()
        .server_api(ServerApi::new(ServerApiVersion::V1).with_strict(true))
        .opening_hello(OpeningHello::OpQuery)
        .single_threaded(true)
        .eager_checks(true)
        .os(Os::new("Plan 9").with_name("Plan"))
        .environment(Environment::default())
        .driver_info(DriverInfo::new("odm", None, None).unwrap())
        .tcp(TcpOptions::default().with_user_timeout(Some(Duration::from_secs(9))))
        .oidc_human_callback(AllowedHosts::new(["h"]))
        .auth_mechanism(AuthMechanism::Oidc)
        .local_threshold(Duration::from_nanos(1))
        .read_preference(preference)
        .read_concern(ReadConcern::majority())
        .address_map(AddressMap::new(["a=b".parse().unwrap()]).unwrap())
        .build()
        .unwrap()
}

/// Every option there is, of connection strings and of builders, is still there after a change of
/// another.
#[test]
fn options_can_be_changed_when_they_are_built() {
    let uri = format!("mongodb://u:p@h:1,g/d?{}&unknown=1", ALL.join("&"));
    let judged =
        Options::parse("mongodb+srv://a.example/?srvServiceName=s&srvMaxHosts=3&tls=false")
            .unwrap()
            .with_judged_hosts()
            .unwrap()
            .with_rescan_interval(Duration::from_secs(90));
    let resolved = judged.resolved(vec!["b".parse().unwrap()], "authSource=x").unwrap();
    let tls_option = |name| Options::parse(&format!("mongodb://a/?{name}=true")).unwrap();
    for options in [
        Options::parse(&uri).unwrap(),
        Options::parse("mongodb://a/?directConnection=true&wtimeout=7&ssl=true").unwrap(),
        Options::parse("mongodb://a/?loadBalanced=true").unwrap(),
        Options::parse("mongodb://a/?tls=false&tlsCAFile=b").unwrap().without_credential(),
        judged,
        resolved,
        with_what_only_builders_set(),
        builder()
            .username("u")
            .password("p")
            .auth_mechanism(AuthMechanism::Plain)
            .allow_plain_without_tls(true)
            .build()
            .unwrap(),
        tls_option("tlsAllowInvalidHostnames"),
        tls_option("tlsAllowInvalidCertificates"),
        tls_option("tlsDisableCertificateRevocationCheck"),
        tls_option("tlsDisableOCSPEndpointCheck"),
    ] {
        assert_eq!(options.clone().into_builder().build().as_ref(), Ok(&options));
        let other = options.clone().into_builder().app_name("other").build().unwrap();
        assert_eq!(other.app_name(), Some("other"));
        let mut back = other.into_builder();
        back.settings.app_name.clone_from(&options.settings.app_name);
        assert_eq!(back.build(), Ok(options));
    }
}

#[test]
fn tls_that_nothing_implied_can_be_implied_later() {
    let plain = || Options::parse("mongodb://a").unwrap().into_builder();
    let encrypted = plain().tls_options(TlsOptions::default()).build().unwrap();
    assert!(plain().build().unwrap().tls().is_none() && encrypted.tls().is_some());
    assert!(encrypted.into_builder().tls(false).build().unwrap().tls().is_none());
    let found = plain().srv(SrvOptions::new("a.example")).build().unwrap();
    assert!(found.tls().is_some());
    let off = Options::parse("mongodb+srv://a.example/?tls=false").unwrap();
    assert!(off.into_builder().build().unwrap().tls().is_none(), "it was turned off");
}

#[test]
fn defaults_are_left_out() {
    assert_eq!(Options::parse("mongodb://A").unwrap().to_string(), "mongodb://a:27017/");
    let srv = Options::parse("mongodb+srv://A.example/?srvServiceName=mongodb&tls=true");
    assert_eq!(srv.unwrap().to_uri(), "mongodb+srv://a.example/");
    let srv = Options::parse("mongodb+srv://a.example/db?tls=false&srvMaxHosts=2").unwrap();
    assert_eq!(srv.to_uri(), "mongodb+srv://a.example/db?srvMaxHosts=2&tls=false");
    assert_eq!(again(&srv), srv);
}

#[test]
fn what_a_builder_sets_prints_and_parses_to_the_same() {
    let tags = TagSet::from([("dc".to_owned(), "ny:1".to_owned())]);
    let preference = ReadPreference::new(ReadMode::Secondary);
    let options = builder()
        .load_balanced(false)
        .tls_options(TlsOptions {
            disable_ocsp_endpoint_check: true,
            allow_invalid_hostnames: true,
            ..TlsOptions::default()
        })
        .proxy(ProxyOptions::new("proxy"))
        .pool(PoolOptions { max_pool_size: 0, min_pool_size: 200, ..PoolOptions::default() })
        .username("u:@/?%")
        .password("p:@/?%")
        .database("d=b")
        .auth_mechanism(AuthMechanism::Gssapi)
        .auth_mechanism_property("CANONICALIZE_HOST_NAME", "forward")
        .read_preference(preference.with_tag_sets(vec![tags, TagSet::new()]).unwrap())
        .write_concern(WriteConcern {
            w: Some(Acknowledgment::Servers(2)),
            journal: Some(false),
            timeout: Some(Duration::ZERO),
        })
        .compressors([Compressor::Zlib])
        .timeout(Duration::from_millis(1))
        .build()
        .unwrap();
    assert_eq!(again(&options), options);
    let mut srv = SrvOptions::new("db.example.com");
    srv.service_name = "service".into();
    let options = Options::builder().srv(srv).build().unwrap();
    assert_eq!(again(&options), options);
}

/// Nothing that can be printed, asked for or not, contains a planted secret.
#[test]
fn no_printing_shows_a_secret() {
    let builder = builder()
        .environment(Environment::default())
        .username("user")
        .password("hunter2")
        .auth_mechanism_property("AWS_SESSION_TOKEN", "hunter3")
        .tls_options(TlsOptions {
            certificate_key_file_password: Some(Secret::from("hunter4")),
            ..TlsOptions::default()
        })
        .proxy(ProxyOptions {
            username: Some("proxy-user".to_owned()),
            password: Some("hunter5".into()),
            ..ProxyOptions::new("proxy")
        });
    let options = builder.clone().build().unwrap();
    let shown = format!(
        "{builder:?} {options:?} {options} {:?} {:?} {:?} {:#?}",
        options.credential(),
        options.tls(),
        options.proxy(),
        options.to_uri_with_secrets(),
    );
    assert!(!shown.contains("hunter"), "{shown}");
    for secret in ["hunter2", "hunter3", "hunter4", "hunter5"] {
        assert!(options.to_uri_with_secrets().expose().contains(secret));
    }
    let redacted = options.to_uri();
    assert!(redacted.starts_with("mongodb://user:***@a:27017,[::1]:2/?"), "{redacted}");
    assert!(redacted.contains("AWS_SESSION_TOKEN:***"), "{redacted}");
    assert!(redacted.contains("proxyPassword=***"), "{redacted}");
    let password = options.credential().unwrap().password.as_ref();
    assert_eq!(password, Some(&Secret::from("hunter2")));
    assert_ne!(password, Some(&Secret::from("hunter3")));
    for error in [
        builder.clone().heartbeat_frequency(Duration::ZERO).build().unwrap_err(),
        builder.clone().auth_mechanism(AuthMechanism::X509).build().unwrap_err(),
        builder.clone().auth_source("").build().unwrap_err(),
    ] {
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("hunter"), "{shown}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_options_that_parse_print_and_parse_to_the_same(
        scheme in select(vec!["mongodb", "mongodb+srv"]),
        user_info in "(u([a-z%ü]|%40|%00|%C3%BC){0,3}(:([a-z$]|%3A|%2F|%25){0,3})?@)?",
        hosts in "([A-Za-z0-9.:%/ü\\[\\]*,]|%[0-7][0-9a-f]){1,8}\
                  |(A|[a-zü]{1,3}|\\[::1\\]|%2Fx(%2C|%20)?.sock)(,[a-z]:[1-9])?",
        database in "(/([a-z*]|%3F|%2E){0,3})?",
        options in subsequence(ALL, 0..ALL.len()).prop_shuffle(),
        wild in "(&[a-z]{1,3}=[a-z%=:,@]{0,5})?",
    ) {
        let uri = format!("{scheme}://{user_info}{hosts}{database}?{}{wild}", options.join("&"));
        if let Ok(mut options) = Options::parse(&uri) {
            let built_again = options.clone().into_builder().build();
            prop_assert_eq!(built_again.as_ref(), Ok(&options));
            // The others are about how the string was written.
            options.warnings = options.settings.unused(crate::wire::is_compiled_in);
            prop_assert_eq!(again(&options), options);
        }
    }

    /// The texts of options come back as they were, whatever they are.
    #[test]
    fn any_text_in_an_option_prints_and_parses_to_the_same(
        texts in proptest::array::uniform8("\\PC{1,12}"),
    ) {
        let [set, user, password, source, file, key, level, proxy] = texts;
        let options = builder()
            .replica_set(set)
            .username(user)
            .password(password)
            .auth_source(source)
            .tls_options(TlsOptions {
                ca_file: Some(file),
                certificate_key_file_password: Some(key.into()),
                ..TlsOptions::default()
            })
            .read_concern_level(level)
            .proxy(ProxyOptions::new(proxy))
            .build()
            .unwrap();
        prop_assert_eq!(again(&options), options);
    }
}
