//! The defaults, limits and combinations that the specifications name.

mod round_trip;

use std::time::Duration;

use super::{
    MAX_SEEDS, MonitoringMode, Notice, OpeningHello, Options, OptionsBuilder, OptionsError,
    PoolOptions, ServerApi, ServerApiVersion, TcpOptions, TlsOptions, Warning,
};
use crate::config::address_map::AddressMap;
use crate::config::metadata::{DriverInfo, Environment, MetadataError, Os};
use crate::config::{Secret, ServerAddress};
use crate::wire::Compressor;

fn addresses(texts: &[&str]) -> Vec<ServerAddress> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn with_seeds(texts: &[&str]) -> OptionsBuilder {
    Options::builder().seeds(addresses(texts))
}

fn lambda() -> Environment {
    let api = |name: &str| (name == "AWS_LAMBDA_RUNTIME_API").then(|| "host".to_owned());
    Environment::detect(api, |_| false)
}

/// SDAM, "heartbeatFrequencyMS"; URI Options; Server Selection, "Configuration".
#[test]
fn the_defaults_are_those_of_the_specifications() {
    let options = with_seeds(&["a"]).build().unwrap();
    assert_eq!(options.heartbeat_frequency(), Duration::from_secs(10));
    assert_eq!(options.connect_timeout(), Some(Duration::from_secs(10)));
    assert_eq!(options.local_threshold(), Duration::from_millis(15));
    assert_eq!(options.server_selection_timeout(), Duration::from_secs(30));
    assert_eq!(options.monitoring_mode(), MonitoringMode::Auto);
    assert_eq!(options.opening_hello(), OpeningHello::OpMsg);
    assert_eq!(options.server_api(), None);
    assert_eq!(options.replica_set(), None);
    assert!(!options.direct_connection());
    assert!(!options.load_balanced());
    // Handshake, "client.application.name": no default value.
    assert_eq!(options.metadata().application(), None);
    assert_eq!(options.warnings(), []);
}

/// SDAM, "heartbeatFrequencyMS"; Server Selection, "serverSelectionTryOnce".
#[test]
fn the_single_threaded_mode_has_its_own_defaults() {
    let options = with_seeds(&["a"]).single_threaded(true).build().unwrap();
    assert!(options.is_single_threaded());
    assert_eq!(options.heartbeat_frequency(), Duration::from_secs(60));
    assert!(options.server_selection_try_once());
    let stream = with_seeds(&["a"]).single_threaded(true).monitoring_mode(MonitoringMode::Stream);
    assert!(!stream.build().unwrap().streaming(), "there would be no listener");
    let uri = "mongodb://a/?heartbeatFrequencyMS=10000&serverSelectionTryOnce=false";
    let builder = Options::builder().single_threaded(true).uri(uri).unwrap();
    let options = builder.clone().build().unwrap();
    assert_eq!(options.heartbeat_frequency(), Duration::from_secs(10), "as was asked for");
    assert!(!options.server_selection_try_once());
    assert_eq!(options.warnings(), []);
    assert!(builder.clone().server_selection_try_once(true).build().is_ok());
    let short = builder.clone().heartbeat_frequency(Duration::from_millis(499)).build();
    assert!(matches!(short, Err(OptionsError::HeartbeatFrequency(_))));
    let unused = builder.single_threaded(false).build().unwrap();
    let option = "serverSelectionTryOnce";
    assert_eq!(unused.warnings(), [Warning::SingleThreadedOnly { option }]);
}

#[test]
fn a_compressor_that_this_build_lacks_is_told_with_those_that_it_has() {
    let parse = |uri: &str| Options::parse(uri).unwrap();
    let told = |uri: &str, is_compiled_in: fn(Compressor) -> bool| -> Vec<String> {
        parse(uri).settings.unused(is_compiled_in).iter().map(ToString::to_string).collect()
    };
    let uri = "mongodb://a/?compressors=zstd,snappy";
    assert_eq!(told(uri, |_| true), [""; 0]);
    let lines = told(uri, |compressor| compressor != Compressor::Zstd);
    let line = "ignored zstd of compressors, which needs the feature zstd; this build has snappy \
                and zlib";
    assert_eq!(lines, [line]);
    let lines = told(uri, |_| false);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].contains("snappy") && lines[1].ends_with("has none"), "{lines:?}");
    // The warnings are true of this build.
    let told = parse("mongodb://a/?compressors=zstd,snappy,zlib").warnings().len();
    let has = [cfg!(feature = "snappy"), cfg!(feature = "zlib"), cfg!(feature = "zstd")];
    assert_eq!(told, has.iter().filter(|has| !**has).count());
}

#[test]
fn a_level_of_zlib_without_zlib_is_told() {
    let unused = |uri: &str| Options::parse(uri).unwrap().settings.unused(|_| true);
    let (option, with) = ("zlibCompressionLevel", "zlib among the compressors");
    let warning = Warning::CountsOnlyWith { option, with };
    assert_eq!(unused("mongodb://a/?zlibCompressionLevel=9&compressors=snappy"), [warning]);
    assert_eq!(unused("mongodb://a/?zlibCompressionLevel=9&compressors=snappy,zlib"), []);
}

#[test]
fn what_is_dangerous_or_without_effect_in_tls_is_noticed() {
    let notices = |uri: &str| Options::parse(uri).unwrap().notices();
    assert_eq!(notices("mongodb://a/?tls=true"), []);
    assert_eq!(notices("mongodb://a/?tlsInsecure=true"), [Notice::AnyCertificate]);
    assert_eq!(notices("mongodb://a/?tlsAllowInvalidHostnames=true"), [Notice::AnyHostname]);
    assert_eq!(notices("mongodb://a/?tls=false&tlsInsecure=true"), []);
    let [revocation, responders] =
        ["tlsDisableCertificateRevocationCheck", "tlsDisableOCSPEndpointCheck"];
    let uri = |option| format!("mongodb://a/?tlsAllowInvalidHostnames=true&{option}=true");
    let (of_revocation, of_responders) = (notices(&uri(revocation)), notices(&uri(responders)));
    if cfg!(feature = "ocsp") {
        assert_eq!(of_revocation, [Notice::AnyHostname, Notice::Revoked]);
        assert_eq!(of_responders, [Notice::AnyHostname]);
    } else {
        let without_effect = |option| [Notice::AnyHostname, Notice::NoRevocationCheck { option }];
        assert_eq!(of_revocation, without_effect(revocation));
        assert_eq!(of_responders, without_effect(responders));
    }
}

/// OCSP Support, "How OCSP interacts with existing configuration options": an error if certificates
/// are not checked and revocation is to be.
#[test]
fn lists_of_revoked_certificates_are_refused_where_they_would_not_count() {
    let lists = Some("/lists.pem".to_owned());
    let tls = || TlsOptions::default().with_revocation_lists_file(lists.clone());
    let build = |tls| Options::builder().uri("mongodb://a/").unwrap().tls_options(tls).build();
    assert_eq!(build(tls()).unwrap().tls().unwrap().revocation_lists_file, lists);
    let mut off = tls();
    off.disable_certificate_revocation_check = true;
    for refused in [tls().with_allow_invalid_certificates(true), off] {
        let error = build(refused).unwrap_err();
        assert!(error.to_string().contains("revocation lists"), "{error}");
    }
}

/// Max Staleness, "API" and STALE-P1; the suites of URI Options agree.
#[test]
fn max_staleness_is_judged_by_its_sign_here_and_by_its_size_when_a_server_is_selected() {
    let parse = |options: &str| Options::parse(&format!("mongodb://a/?{options}"));
    let most = |options: &str| parse(options).unwrap().read_preference().max_staleness();
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(most("readPreference=secondary&maxStalenessSeconds=120"), seconds(120));
    assert_eq!(most("readPreference=secondary&maxStalenessSeconds=1"), seconds(1));
    assert!(parse("readPreference=secondary&maxStalenessSeconds=1").unwrap().warnings().is_empty());
    for invalid in ["maxStalenessSeconds=120", "readPreference=primary&maxStalenessSeconds=1"] {
        assert!(matches!(parse(invalid), Err(OptionsError::ReadPreference(_))), "{invalid}");
    }
    for unlimited in ["readPreference=secondary", "readPreference=primary", ""] {
        let options = parse(format!("{unlimited}&maxStalenessSeconds=-1").trim_start_matches('&'));
        assert_eq!(options.map(|it| it.warnings().len()), Ok(0), "{unlimited}");
    }
    for ignored in ["0", "-2", "1.5", "+90", "2147483648", "many"] {
        let options = parse(&format!("readPreference=nearest&maxStalenessSeconds={ignored}"));
        let options = options.unwrap();
        assert_eq!(options.read_preference().max_staleness(), None, "{ignored}");
        assert_eq!(options.warnings().len(), 1, "{ignored}");
    }
}

/// SDAM, "Initial Servers".
#[test]
fn seeds_keep_their_order_and_count_once() {
    let options = with_seeds(&["b", "a:1", "B:27017", "a"]).build().unwrap();
    assert_eq!(options.seeds(), addresses(&["b", "a:1", "a"]));
    let none = Options::builder().build();
    assert_eq!(none, Err(OptionsError::NoSeeds));
    let seed = |number| format!("host{number}").parse::<ServerAddress>().unwrap();
    let many = Options::builder().seeds((0..=MAX_SEEDS).map(seed)).build();
    assert_eq!(many, Err(OptionsError::TooManySeeds(MAX_SEEDS + 1)));
}

/// SDAM, "Allowed configuration combinations".
#[test]
fn a_direct_connection_goes_to_one_seed_and_may_name_a_replica_set() {
    let two = with_seeds(&["a", "b"]).direct_connection(true).build();
    assert_eq!(two, Err(OptionsError::DirectConnectionWithSeeds(2)));
    let one = with_seeds(&["a"]).direct_connection(true);
    assert!(one.replica_set("rs").build().unwrap().direct_connection());
    assert!(with_seeds(&["a", "b"]).direct_connection(false).build().is_ok());
}

/// SDAM, "Allowed configuration combinations"; Load Balancer Support, "URI Validation".
#[test]
fn a_load_balancer_is_alone() {
    let balanced = |seeds| with_seeds(seeds).load_balanced(true);
    assert!(balanced(&["a"]).build().unwrap().load_balanced());
    let two = balanced(&["a", "b"]).build();
    assert_eq!(two, Err(OptionsError::LoadBalancedWithSeeds(2)));
    let direct = balanced(&["a"]).direct_connection(true).build();
    assert_eq!(direct, Err(OptionsError::LoadBalancedWithDirectConnection));
    let set = balanced(&["a"]).replica_set("rs").build();
    assert_eq!(set, Err(OptionsError::LoadBalancedWithReplicaSet));
}

/// SDAM, "heartbeatFrequencyMS": not below minHeartbeatFrequencyMS.
#[test]
fn values_out_of_range_are_refused_by_name() {
    let frequency = |millis| with_seeds(&["a"]).heartbeat_frequency(Duration::from_millis(millis));
    let error = frequency(499).build().unwrap_err();
    assert_eq!(error.to_string(), "heartbeatFrequencyMS is 499 ms; at least 500 ms are needed");
    assert!(frequency(500).build().is_ok());
    let empty = with_seeds(&["a"]).replica_set("").build();
    assert_eq!(empty, Err(OptionsError::EmptyReplicaSet));
    let name = with_seeds(&["a"]).app_name("x".repeat(129)).build();
    assert_eq!(name, Err(MetadataError::ApplicationName(129).into()));
}

#[test]
fn options_of_tcp_are_those_that_systems_take() {
    let built = |tcp| with_seeds(&["a"]).tcp(tcp).build();
    let seconds = Duration::from_secs;
    let tcp = with_seeds(&["a"]).build().unwrap().tcp();
    assert_eq!((tcp.keepalive_idle, tcp.keepalive_interval), (seconds(120), seconds(10)));
    assert_eq!((tcp.keepalive_probes, tcp.user_timeout), (9, None));
    for limit in [0, 1999, 2000, 4999, 25_000, 210_000, 32_767_000, u64::MAX] {
        let limit = Duration::from_millis(limit);
        let tcp = built(TcpOptions::noticing_within(limit)).unwrap().tcp();
        let probing = tcp.keepalive_interval * tcp.keepalive_probes;
        let least = tcp.keepalive_idle + tcp.keepalive_interval;
        assert!(least <= tcp.user_timeout.unwrap(), "there is time for a probe: {tcp:?}");
        assert!(tcp.keepalive_idle + probing <= tcp.user_timeout.unwrap(), "{tcp:?}");
    }
    for idle in [Duration::ZERO, Duration::from_millis(1500), seconds(32_768)] {
        let error = built(tcp.with_keepalive_idle(idle)).unwrap_err().to_string();
        let must = "must be a whole number of seconds from 1 to 32767";
        assert_eq!(error, format!("the idle time of TCP keepalive is {idle:?}; it {must}"));
        assert!(built(tcp.with_keepalive_interval(idle)).is_err());
    }
    for probes in [0, 128] {
        let error = built(tcp.with_keepalive_probes(probes)).unwrap_err();
        assert_eq!(error, OptionsError::KeepaliveProbes(probes));
    }
    for time in [Duration::from_millis(999), seconds(2_147_484)] {
        let error = built(tcp.with_user_timeout(Some(time))).unwrap_err();
        assert_eq!(error, OptionsError::UserTimeout(time));
    }
}

/// URI Options, "connectTimeoutMS": 0 means no timeout.
#[test]
fn a_connect_timeout_of_zero_is_no_limit() {
    let options = with_seeds(&["a"]).connect_timeout(Duration::ZERO).build().unwrap();
    assert_eq!(options.connect_timeout(), None);
}

/// Server Monitoring, "serverMonitoringMode".
#[test]
fn monitors_stream_unless_told_otherwise_or_on_a_faas_platform() {
    let streaming = |mode, environment| {
        let builder = with_seeds(&["a"]).monitoring_mode(mode).environment(environment);
        builder.build().unwrap().streaming()
    };
    assert!(streaming(MonitoringMode::Auto, Environment::default()));
    assert!(!streaming(MonitoringMode::Auto, lambda()));
    assert!(streaming(MonitoringMode::Stream, lambda()));
    assert!(!streaming(MonitoringMode::Poll, Environment::default()));
}

/// Handshake, "Connection handshake": `hello` must be sent by OP_MSG.
#[test]
fn op_query_opens_only_where_hello_is_not_demanded() {
    let legacy = || with_seeds(&["a"]).opening_hello(OpeningHello::OpQuery);
    let opening = |builder: OptionsBuilder| builder.build().unwrap().opening_hello();
    assert_eq!(opening(legacy()), OpeningHello::OpQuery);
    assert_eq!(opening(legacy().load_balanced(true)), OpeningHello::OpMsg);
    let api = ServerApi::from(ServerApiVersion::V1);
    assert_eq!(opening(legacy().server_api(api)), OpeningHello::OpMsg);
    assert_eq!(api.version.as_str(), "1");
}

#[test]
fn a_connection_string_and_calls_combine_and_the_last_one_counts() {
    let options = Options::builder()
        .replica_set("before")
        .local_threshold(Duration::from_millis(1))
        .uri("mongodb://a/?replicaSet=uri&appName=uri&heartbeatFrequencyMS=600")
        .unwrap()
        .app_name("after")
        .os(Os::new("Plan 9"))
        .environment(lambda())
        .driver_info(DriverInfo::new("odm", None, None).unwrap())
        .build()
        .unwrap();
    assert_eq!(options.replica_set().map(|name| &**name), Some("uri"));
    assert_eq!(options.local_threshold(), Duration::from_millis(1));
    assert_eq!(options.heartbeat_frequency(), Duration::from_millis(600));
    assert_eq!(options.metadata().application(), Some("after"));
    assert!(!options.streaming());
    let client = options.metadata().document();
    let text = |document, field| client.get_document(document).unwrap().get_str(field).unwrap();
    assert_eq!(text("os", "type"), "Plan 9");
    assert_eq!(text("driver", "name"), "sdam|odm");
}

#[test]
fn seeds_in_the_place_of_a_name_in_dns_keep_the_tls_that_it_implies() {
    let seed = || ["a.example.com:27017".parse().unwrap()];
    let uri = "mongodb+srv://c.example.com/";
    let options = Options::builder().uri(uri).unwrap().seeds(seed()).build().unwrap();
    assert!(options.tls().is_some());
    let off = format!("{uri}?tls=false");
    let options = Options::builder().uri(&off).unwrap().seeds(seed()).build().unwrap();
    assert!(options.tls().is_none(), "it was turned off");
    assert!(Options::builder().seeds(seed()).build().unwrap().tls().is_none());
}

#[test]
fn other_seeds_leave_everything_else_as_it_is() {
    let srv = Options::parse("mongodb+srv://c.example.com/?appName=app").unwrap();
    let found = srv.resolved(addresses(&["a.example.com"]), "replicaSet=rs").unwrap();
    let other = found.with_seeds(addresses(&["b.example.com", "a.example.com", "b.example.com"]));
    let other = other.unwrap();
    assert_eq!(other.seeds(), addresses(&["b.example.com", "a.example.com"]));
    assert!(other.srv().is_some() && other.tls().is_some(), "they are still those of DNS");
    assert_eq!(other.with_seeds(addresses(&["a.example.com"])), Ok(found));
    let direct = Options::parse("mongodb://a/?directConnection=true").unwrap();
    assert!(direct.with_seeds(addresses(&["a", "b"])).is_err());
    assert_eq!(direct.with_seeds([]), Err(OptionsError::NoSeeds));
}

#[test]
fn options_become_a_builder_again_that_keeps_what_is_not_changed() {
    let map = AddressMap::new(["a=127.0.0.1:1".parse().unwrap()]).unwrap();
    let built = Options::builder()
        .uri("mongodb://user:secret@a/db?maxPoolSize=7&compressors=snappy&unknown=1")
        .unwrap()
        .os(Os::new("Plan 9"))
        .environment(lambda())
        .driver_info(DriverInfo::new("odm", None, None).unwrap())
        .address_map(map)
        .build()
        .unwrap();
    assert_eq!(built.clone().into_builder().build().as_ref(), Ok(&built));
    let changed = built.clone().into_builder().retry_reads(false).build().unwrap();
    assert!(!changed.retry_reads());
    assert_eq!(changed.into_builder().retry_reads(true).build(), Ok(built.clone()));
    let other = built.into_builder().password("other").build().unwrap();
    let password = other.credential().and_then(|credential| credential.password.as_ref());
    assert_eq!(password.map(Secret::expose), Some("other"), "it is judged once more");
}

#[test]
fn what_a_builder_concluded_is_concluded_once_more() {
    let parse = |uri: &str| Options::parse(uri).unwrap().into_builder();
    let level = parse("mongodb://a/?zlibCompressionLevel=9").compressors([Compressor::Zlib]);
    let counts = |warning: &Warning| matches!(warning, Warning::CountsOnlyWith { .. });
    assert!(!level.build().unwrap().warnings().iter().any(counts), "the level counts now");
    let with_tls = parse("mongodb://a/").tls_options(TlsOptions::default()).build().unwrap();
    assert!(with_tls.tls().is_some(), "no option turns it off");
    let off = parse("mongodb+srv://c.example.com/?tls=false").build().unwrap();
    assert!(off.tls().is_none());
    let pool = parse("mongodb://a/?minPoolSize=5").max_pool_size(4).build();
    assert_eq!(pool, Err(OptionsError::MinPoolSize { min: 5, max: 4 }));
}

#[test]
fn options_of_pools_are_set_one_by_one_as_well() {
    let one_by_one = with_seeds(&["a"])
        .max_pool_size(9)
        .min_pool_size(3)
        .max_connecting(4)
        .max_idle_time(Duration::from_secs(1));
    let pool = PoolOptions {
        max_pool_size: 9,
        min_pool_size: 3,
        max_connecting: 4,
        max_idle_time: Duration::from_secs(1),
        ..PoolOptions::default()
    };
    assert_eq!(one_by_one.build().unwrap().pool(), &pool);
}
