//! URI Options beyond monitoring: TLS, proxies, pools, concerns, credentials.

use std::time::Duration;

use super::{query, refusal};
use crate::config::uri::UriError;
use crate::config::{
    Acknowledgment, AllowedHosts, AuthMechanism, CredentialError, Options, OptionsError,
    PoolOptions, ProxyOptions, ReadMode, ReadPreferenceError, Secret, TlsOptions, Warning,
    WriteConcern,
};
use crate::wire::Compressor;

fn outcome(text: &str) -> Result<Options, OptionsError> {
    Options::parse(&format!("mongodb://a/?{text}"))
}

/// URI Options, "tls": implied by the other options of TLS; what is unreadable is not dropped.
#[test]
fn tls_is_on_if_asked_for_or_implied() {
    assert_eq!(query("").tls(), None);
    assert_eq!(query("tls=true&ssl=true").tls(), Some(&TlsOptions::default()));
    assert_eq!(query("ssl=1").tls(), Some(&TlsOptions::default()));
    let file = query("tlsCAFile=/ca.pem");
    assert_eq!(file.tls().unwrap().ca_file.as_deref(), Some("/ca.pem"));
    assert!(query("tlsInsecure=maybe").tls().is_some());
    assert_eq!(query("tls=false&tlsCAFile=/ca.pem").tls(), None);
    let unreadable = query("tls=tru");
    assert!(unreadable.tls().is_some());
    assert!(matches!(unreadable.warnings(), [Warning::InvalidValue { option: "tls", .. }]));
    let insecure = query("tlsInsecure=true");
    let insecure = insecure.tls().unwrap();
    assert!(insecure.allow_invalid_certificates && insecure.allow_invalid_hostnames);
}

/// URI Options, "Conflicting TLS options".
#[test]
fn options_of_tls_that_contradict_each_other_are_refused() {
    for text in ["tls=true&ssl=false", "ssl=false&tls=true", "tls=false&tls=true"] {
        assert_eq!(outcome(text), Err(OptionsError::TlsContradiction), "{text}");
    }
    let conflict = |option, with| Err(OptionsError::Conflict { option, with });
    let (insecure, hostnames) = ("tlsInsecure", "tlsAllowInvalidHostnames");
    assert_eq!(
        outcome("tlsAllowInvalidHostnames=false&tlsInsecure=x"),
        conflict(insecure, hostnames)
    );
    let (endpoint, check) = ("tlsDisableOCSPEndpointCheck", "tlsDisableCertificateRevocationCheck");
    let built = Options::builder().seeds(["a".parse().unwrap()]).tls_options(TlsOptions {
        disable_ocsp_endpoint_check: true,
        disable_certificate_revocation_check: true,
        ..TlsOptions::default()
    });
    assert_eq!(built.build(), conflict(check, endpoint));
}

/// SOCKS5 Support, "MongoClient Configuration".
#[test]
fn a_proxy_has_a_host_and_a_password_only_with_a_user() {
    let proxy = |text| query(text).proxy().cloned().unwrap();
    assert_eq!(proxy("proxyHost=::1"), ProxyOptions::new("::1"));
    assert_eq!(ProxyOptions::new("p").port, 1080);
    let login = proxy("proxyHost=p&proxyPort=9&proxyUsername=u&proxyPassword=%26");
    assert_eq!((login.port, login.username.as_deref()), (9, Some("u")));
    assert_eq!(login.password.as_ref().map(Secret::expose), Some("&"));
    let silent = proxy("proxyHost=p&proxyUsername=&proxyPassword=&proxyPort=0");
    assert_eq!(silent, ProxyOptions::new("p"));
    let needs = |option, other| Err(OptionsError::Needs { option, other });
    assert_eq!(outcome("proxyPort="), needs("proxyPort", "proxyHost"));
    let (user, password) = ("proxyUsername", "proxyPassword");
    assert_eq!(outcome("proxyHost=p&proxyUsername=u"), needs(user, password));
    assert_eq!(outcome("proxyHost=p&proxyPassword=x"), needs(password, user));
    assert_eq!(outcome("proxyHost="), Err(OptionsError::ProxyHost(0)));
    let (option, length) = (user, 256);
    let long = format!("proxyHost=p&proxyPassword=x&proxyUsername={}", "u".repeat(256));
    assert_eq!(outcome(&long), Err(OptionsError::ProxyLogin { option, length }));
    let option = "proxyHost";
    let twice = refusal("mongodb://a/?proxyHost=p&proxyHost=p");
    assert_eq!(twice, UriError::Repeated { option });
}

/// Connection Monitoring And Pooling, "Connection Pool Options".
#[test]
fn a_pool_has_room_for_what_it_keeps() {
    assert_eq!(query("").pool(), &PoolOptions::default());
    assert_eq!(query("maxPoolSize=0&minPoolSize=101").pool().max_pool_size, 0);
    let pool = query("maxIdleTimeMS=1&maxConnecting=3&waitQueueTimeoutMS=4").pool().clone();
    assert_eq!(pool.max_idle_time, Duration::from_millis(1));
    assert_eq!(pool.max_connecting, 3);
    assert_eq!(pool.wait_queue_timeout, Some(Duration::from_millis(4)));
    let small = OptionsError::MinPoolSize { min: 101, max: 100 };
    assert_eq!(outcome("minPoolSize=101"), Err(small));
    for (name, value) in [
        ("maxConnecting", "0"),
        ("waitQueueTimeoutMS", "0"),
        ("maxPoolSize", "-1"),
        ("minPoolSize", "x"),
        ("maxIdleTimeMS", "2147483648"),
        ("zlibCompressionLevel", "10"),
        ("zlibCompressionLevel", "-2"),
        ("authMechanism", "MONGODB-CR"),
        ("readPreference", "Nearest"),
        ("readPreferenceTags", "dc"),
        ("maxStalenessSeconds", "0"),
        ("retryWrites", "TRUE"),
        ("wTimeoutMS", "9223372036854775808"),
        ("proxyHost=p&proxyPort", "65536"),
    ] {
        let options = query(&format!("{name}={value}"));
        let name = name.rsplit('&').next().unwrap();
        match options.warnings() {
            [Warning::InvalidValue { option, .. }] => assert_eq!(*option, name),
            other => panic!("{name}={value}: {other:?}"),
        }
    }
    let built = |pool| Options::builder().seeds(["a".parse().unwrap()]).pool(pool).build();
    let none = PoolOptions { max_connecting: 0, ..PoolOptions::default() };
    assert_eq!(built(none), Err(OptionsError::MaxConnecting));
    let wait_queue_timeout = Some(Duration::ZERO);
    let never = PoolOptions { wait_queue_timeout, ..PoolOptions::default() };
    assert_eq!(built(never), Err(OptionsError::WaitQueueTimeout));
    let level = Options::builder().seeds(["a".parse().unwrap()]).zlib_compression_level(10);
    assert_eq!(level.build(), Err(OptionsError::ZlibCompressionLevel(10)));
}

/// Server Selection, "Read Preference"; Max Staleness, "API"; Read and Write Concern.
#[test]
fn what_commands_declare_is_carried_or_refused() {
    let options = query("readPreference=secondary&readPreferenceTags=a:b&maxStalenessSeconds=-1");
    assert_eq!(options.read_preference().mode(), ReadMode::Secondary);
    assert_eq!(options.read_preference().tag_sets().len(), 1);
    assert_eq!(options.read_preference().max_staleness(), None);
    assert_eq!(
        outcome("maxStalenessSeconds=120"),
        Err(ReadPreferenceError::MaxStalenessWithPrimary.into())
    );
    assert_eq!(
        outcome("readPreferenceTags=a:b"),
        Err(ReadPreferenceError::TagSetsWithPrimary.into())
    );
    let w = |text| query(text).write_concern().w.clone();
    assert_eq!(w("w=2"), Some(Acknowledgment::Servers(2)));
    assert_eq!(w("w=majority"), Some(Acknowledgment::Named("majority".to_owned())));
    assert_eq!(query("").write_concern(), &WriteConcern::default());
    for text in ["w=-2", "w=2147483648"] {
        assert_eq!(outcome(text), Err(UriError::Acknowledgment.into()), "{text}");
    }
    let (option, with) = ("w=0", "journal=true");
    assert_eq!(outcome("w=0&journal=true"), Err(OptionsError::Conflict { option, with }));
    let options = query("compressors=zstd,lz4,zlib,zstd");
    assert_eq!(options.compressors(), [Compressor::Zstd, Compressor::Zlib]);
    let option = "compressors";
    let allowed = "snappy, zlib or zstd";
    // A build may lack compressors, and says so.
    let mut warnings = options.warnings().to_vec();
    warnings.retain(|warning| !matches!(warning, Warning::NotInThisBuild { .. }));
    assert_eq!(warnings, [Warning::InvalidElement { option, allowed }]);
    let defaults = query("");
    assert!(defaults.retry_reads() && defaults.retry_writes());
    assert_eq!((defaults.timeout(), defaults.socket_timeout()), (None, None));
    assert_eq!(defaults.max_adaptive_retries(), 2);
    assert_eq!(defaults.zlib_compression_level(), -1);
}

/// Connection String, "Deprecated Key Value Pairs".
#[test]
fn a_deprecated_name_gives_way_to_its_replacement() {
    let timeout = |text| query(text).write_concern().timeout;
    assert_eq!(timeout("wtimeout=5"), Some(Duration::from_millis(5)));
    for text in ["wtimeout=5&wTimeoutMS=10", "wTimeoutMS=10&wtimeout=5"] {
        assert_eq!(timeout(text), Some(Duration::from_millis(10)));
        let (option, replacement) = ("wtimeout", "wTimeoutMS");
        let warning = Warning::DeprecatedOption { option, replacement };
        assert_eq!(query(text).warnings(), [warning]);
    }
}

/// Authentication, "Connection String Options"; the official suite covers each mechanism.
#[test]
fn a_credential_is_whole_or_refused() {
    let parse = |text: &str| Options::parse(&format!("mongodb://{text}"));
    let source = |text| parse(text).unwrap().credential().unwrap().source.clone();
    assert_eq!(source("u@h"), "admin");
    assert_eq!(source("u@h/db"), "db");
    assert_eq!(source("u@h/db?authSource=s"), "s");
    assert_eq!(source("u:p@h/db?authMechanism=PLAIN"), "db");
    assert_eq!(source("h/db?authMechanism=MONGODB-X509"), "$external");
    let options = parse("u@h/?authMechanism=GSSAPI").unwrap();
    let credential = options.credential().unwrap();
    assert_eq!(credential.mechanism, Some(AuthMechanism::Gssapi));
    let service = credential.mechanism_properties.get("SERVICE_NAME");
    assert_eq!(service.map(Secret::expose), Some("mongodb"));
    let mechanism = "SCRAM-SHA-256";
    assert_eq!(
        parse("u@h/?authMechanism=SCRAM-SHA-256"),
        Err(CredentialError::Missing { mechanism, what: "a password" }.into())
    );
    let builder = || Options::builder().seeds(["a".parse().unwrap()]);
    let alone = builder().password("p").build();
    assert_eq!(alone, Err(CredentialError::PasswordWithoutUsername.into()));
    let unnamed = builder().username("").build();
    assert_eq!(unnamed, Err(CredentialError::EmptyUsername.into()));
    let oidc = || builder().auth_mechanism(AuthMechanism::Oidc);
    assert!(oidc().oidc_callback(true).build().is_ok());
    assert!(oidc().build().is_err());
    let both = oidc().oidc_callback(true).auth_mechanism_property("ENVIRONMENT", "k8s");
    assert!(both.build().is_err());
    // "Drivers MUST return an error if both an OIDC Callback and `OIDC Human Callback` are
    // provided"
    let human = || oidc().oidc_human_callback(AllowedHosts::default());
    assert!(human().username("ann").build().is_ok());
    let both = human().oidc_callback(true).build();
    let (mechanism, what) = ("MONGODB-OIDC", "both a callback and a human callback");
    assert_eq!(both, Err(CredentialError::NotAllowed { mechanism, what }.into()));
    let (name, value) = ("ENVIRONMENT", "k8s");
    assert!(human().auth_mechanism_property(name, value).build().is_err());
    // OIDC-H1.7: "This value MUST NOT be allowed in the URI connection string."
    let uri = "mongodb+srv://a.example/?authMechanism=MONGODB-OIDC&\
               authMechanismProperties=ALLOWED_HOSTS:%5B%22a.example%22%5D";
    let listed = Options::builder().uri(uri).unwrap();
    let error = listed.oidc_human_callback(AllowedHosts::default()).build().unwrap_err();
    assert!(error.to_string().contains("other properties than ENVIRONMENT"), "{error}");
}

/// Connection String, "Values": one malformed pair is ignored, with a warning.
#[test]
fn a_pair_without_a_colon_is_ignored() {
    let text = "authMechanismProperties=TOKEN_RESOURCE:mongodb://a%2Cb,ENVIRONMENT:azure";
    let options = query(&format!("authMechanism=MONGODB-OIDC&{text}"));
    let properties = &options.credential().unwrap().mechanism_properties;
    assert_eq!(properties["TOKEN_RESOURCE"].expose(), "mongodb://a");
    assert_eq!(properties["ENVIRONMENT"].expose(), "azure");
    let option = "authMechanismProperties";
    let allowed = "a name:value pair";
    assert_eq!(options.warnings(), [Warning::InvalidElement { option, allowed }]);
}
