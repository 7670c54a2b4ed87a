//! The Handshake specification's test plan, its truncation order, and that the limit always holds.

use bson::{Bson, Document, doc};
use proptest::prelude::*;

use super::{
    ClientMetadata, DRIVER_NAME, DRIVER_VERSION, DriverInfo, Environment, MAX_DOCUMENT_LEN,
    MetadataError, Os,
};

fn environment(variables: &[(&str, &str)], files: &[&str]) -> Environment {
    let variable = |wanted: &str| {
        let (_, value) = variables.iter().find(|(name, _)| *name == wanted)?;
        Some((*value).to_owned())
    };
    Environment::detect(variable, |path| files.contains(&path))
}

fn metadata(environment: Environment) -> ClientMetadata {
    ClientMetadata::new(None, Os::new("Linux"), environment).unwrap()
}

fn document(metadata: &ClientMetadata) -> Document {
    let raw = metadata.document();
    assert!(raw.as_bytes().len() <= MAX_DOCUMENT_LEN);
    Document::try_from(raw.as_ref()).unwrap()
}

fn env(variables: &[(&str, &str)], files: &[&str]) -> Option<Document> {
    match document(&metadata(environment(variables, files))).remove("env") {
        None => None,
        Some(Bson::Document(env)) => Some(env),
        Some(other) => panic!("env is {other}"),
    }
}

fn info(name: &str, version: Option<&str>, platform: Option<&str>) -> DriverInfo {
    DriverInfo::new(name, version, platform).unwrap()
}

const LAMBDA: (&str, &str) = ("AWS_EXECUTION_ENV", "AWS_Lambda_java8");

/// Handshake, "Test Plan", rows 1 to 4.
#[test]
fn one_faas_platform_is_described_by_its_variables() {
    let memory = ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1024");
    assert_eq!(
        env(&[LAMBDA, ("AWS_REGION", "us-east-2"), memory], &[]),
        Some(doc! { "name": "aws.lambda", "memory_mb": 1024, "region": "us-east-2" })
    );
    assert_eq!(
        env(&[("FUNCTIONS_WORKER_RUNTIME", "node")], &[]),
        Some(doc! { "name": "azure.func" })
    );
    let gcp = [
        ("K_SERVICE", "servicename"),
        ("FUNCTION_MEMORY_MB", "1024"),
        ("FUNCTION_TIMEOUT_SEC", "60"),
        ("FUNCTION_REGION", "us-central1"),
    ];
    assert_eq!(
        env(&gcp, &[]),
        Some(doc! {
            "name": "gcp.func", "timeout_sec": 60, "memory_mb": 1024, "region": "us-central1",
        })
    );
    assert_eq!(
        env(&[("VERCEL", "1"), ("VERCEL_REGION", "cdg1")], &[]),
        Some(doc! { "name": "vercel", "region": "cdg1" })
    );
}

/// Handshake, "FaaS": the second variable of a platform names it as well as the first.
#[test]
fn the_other_variables_of_lambda_and_gcp_name_them_too() {
    let lambda = env(&[("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001")], &[]);
    assert_eq!(lambda, Some(doc! { "name": "aws.lambda" }));
    let gcp = env(&[("FUNCTION_NAME", "f")], &[]);
    assert_eq!(gcp, Some(doc! { "name": "gcp.func" }));
}

/// Handshake, "Test Plan", row 5, and "FaaS": only Vercel and Lambda go together.
#[test]
fn several_platforms_are_none_unless_they_are_vercel_on_lambda() {
    let azure = ("FUNCTIONS_WORKER_RUNTIME", "node");
    assert_eq!(env(&[LAMBDA, azure], &[]), None);
    assert_eq!(env(&[("VERCEL", "1"), azure], &[]), None);
    assert_eq!(env(&[("VERCEL", "1"), LAMBDA, azure], &[]), None);
    assert_eq!(
        env(&[("VERCEL", "1"), LAMBDA, ("AWS_REGION", "r")], &[]),
        Some(doc! { "name": "vercel" })
    );
}

/// Handshake, "Test Plan", rows 6 to 8.
#[test]
fn bad_values_cost_their_own_field_only() {
    let long = "a".repeat(512);
    assert_eq!(
        env(&[LAMBDA, ("AWS_REGION", long.as_str())], &[]),
        Some(doc! { "name": "aws.lambda" })
    );
    assert_eq!(
        env(&[LAMBDA, ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "big")], &[]),
        Some(doc! { "name": "aws.lambda" })
    );
    assert_eq!(env(&[("AWS_EXECUTION_ENV", "EC2")], &[]), None);
    assert_eq!(env(&[("VERCEL", "")], &[]), None);
}

/// Handshake, "Container"; both are sent since October 2024.
#[test]
fn a_container_is_described_with_or_without_a_platform() {
    let kubernetes = ("KUBERNETES_SERVICE_HOST", "1");
    assert_eq!(env(&[], &["/.dockerenv"]), Some(doc! { "container": { "runtime": "docker" } }));
    assert_eq!(
        env(&[LAMBDA, kubernetes], &["/.dockerenv"]),
        Some(doc! {
            "name": "aws.lambda",
            "container": { "runtime": "docker", "orchestrator": "kubernetes" },
        })
    );
    assert_eq!(env(&[], &[]), None);
}

/// Handshake, "Agent": known agents have fixed names, and go before one that names itself.
#[test]
fn an_agent_is_named_by_its_variable_or_by_itself() {
    let agent = |variables: &[(&str, &str)]| {
        let env = env(variables, &[])?;
        Some(env.get_str("agent").expect("an agent alone").to_owned())
    };
    for (variable, name) in [
        ("CLAUDECODE", "claude_code"),
        ("CLAUDE_CODE_ENTRYPOINT", "claude_code"),
        ("CURSOR_AGENT", "cursor"),
        ("CODEX_SANDBOX", "codex_cli"),
        ("CLINE_ACTIVE", "cline"),
        ("GEMINI_CLI", "gemini_cli"),
        ("AUGMENT_AGENT", "auggie_cli"),
        ("OPENCODE", "opencode_client"),
        ("TRAE_AI_SHELL_ID", "trae_ai"),
        ("GOOSE_TERMINAL", "goose"),
        ("GOOSE_AGENT", "goose"),
    ] {
        let with = agent(&[("AI_AGENT", "another"), (variable, "0")]);
        assert_eq!(with.as_deref(), Some(name), "{variable}");
        for blank in ["", "  "] {
            assert_eq!(agent(&[(variable, blank)]), None, "{variable}");
        }
    }
    assert_eq!(agent(&[("GOOSE_AGENT", "1"), ("CURSOR_AGENT", "1")]).as_deref(), Some("cursor"));
    let named = |value: &str| agent(&[("AI_AGENT", value)]);
    for anonymous in ["1", "true", " TRUE "] {
        assert_eq!(named(anonymous).as_deref(), Some("ai_agent"), "{anonymous}");
    }
    assert_eq!(named(" My-Agent_2 ").as_deref(), Some("my-agent_2"));
    assert_eq!(named(" "), None);
    // "Drivers MUST drop a character that does not fit."
    let long = format!("{}é", "a".repeat(63));
    assert_eq!(named(&long), Some("a".repeat(63)));
    assert_eq!(named(&"é".repeat(40)), Some("é".repeat(32)));
    let lambda = env(&[LAMBDA, ("CLAUDECODE", "1")], &["/.dockerenv"]);
    let container = doc! { "runtime": "docker" };
    let expected = doc! { "name": "aws.lambda", "agent": "claude_code", "container": container };
    assert_eq!(lambda, Some(expected));
    assert!(!environment(&[("CLAUDECODE", "1")], &[]).is_faas());
}

/// Handshake, "Limitations", steps 1 and 2: the agent goes after all else of `env`, but its name.
#[test]
fn an_agent_is_left_out_before_the_name_of_the_platform() {
    let client = |region: usize, os_name: usize, variables: &[(&str, &str)]| {
        let region = "r".repeat(region);
        let variables = [variables, &[("AWS_REGION", region.as_str())]].concat();
        let os = Os::new("Linux").with_name("o".repeat(os_name));
        let env = environment(&variables, &[]);
        document(&ClientMetadata::new(Some("shop"), os, env).unwrap())
    };
    let (agent, long) = (("GOOSE_AGENT", "1"), "a".repeat(64));
    let both = Bson::from(doc! { "name": "aws.lambda", "agent": "goose" });
    assert_eq!(client(400, 100, &[LAMBDA, agent]).get("env"), Some(&both));
    let tight = client(100, 280, &[LAMBDA, ("AI_AGENT", &long)]);
    assert_eq!(tight.get("env"), Some(&Bson::from(doc! { "name": "aws.lambda" })));
    assert_eq!(tight.get_document("os").unwrap().len(), 2, "the system is still described");
    let alone = client(0, 300, &[("AI_AGENT", &long)]);
    assert!(!alone.contains_key("env"));
    assert_eq!(alone.get_document("os").unwrap().len(), 2);
}

/// Server Monitoring, "serverMonitoringMode": a container is not a FaaS platform.
#[test]
fn only_a_named_platform_is_faas() {
    assert!(environment(&[LAMBDA], &[]).is_faas());
    assert!(!environment(&[("KUBERNETES_SERVICE_HOST", "1")], &["/.dockerenv"]).is_faas());
    assert!(!Environment::default().is_faas());
}

/// Handshake, "Hello Command" and "client.application.name".
#[test]
fn the_document_has_the_fields_of_the_specification() {
    let os = Os::new("Linux").with_name("Debian").with_architecture("x86_64").with_version("13");
    let whole = ClientMetadata::new(Some("shop"), os, Environment::default()).unwrap();
    assert_eq!(
        document(&whole),
        doc! {
            "application": { "name": "shop" },
            "driver": { "name": DRIVER_NAME, "version": DRIVER_VERSION },
            "os": {
                "type": "Linux", "name": "Debian", "architecture": "x86_64", "version": "13",
            },
            "platform": "Rust",
        }
    );
    let bare = ClientMetadata::new(Some(""), Os::new(""), Environment::default()).unwrap();
    assert!(!document(&bare).contains_key("application"));
    assert_eq!(document(&bare).get("os"), Some(&doc! { "type": "unknown" }.into()));
}

/// Handshake, "Limitations": at most 128 bytes, not characters.
#[test]
fn an_application_name_has_at_most_128_bytes() {
    let new = |name: &str| {
        ClientMetadata::new(Some(name), Os::current(), Environment::default()).map(drop)
    };
    assert_eq!(new(&"é".repeat(64)), Ok(()));
    assert_eq!(new(&"é".repeat(65)), Err(MetadataError::ApplicationName(130)));
}

/// Handshake, "Supporting Wrapping Libraries".
#[test]
fn driver_info_is_joined_by_a_delimiter_which_it_must_not_contain() {
    let mut metadata = metadata(Environment::default());
    metadata.append(&info("library", Some("1.2"), Some("Library Platform")));
    metadata.append(&info("framework", None, None));
    metadata.append(&info("tool", Some("3"), None));
    let document = document(&metadata);
    let driver = document.get_document("driver").unwrap();
    assert_eq!(driver.get_str("name").ok(), Some("sdam|library|framework|tool"));
    let version = format!("{DRIVER_VERSION}|1.2|3");
    assert_eq!(driver.get_str("version").ok(), Some(version.as_str()));
    assert_eq!(document.get_str("platform").ok(), Some("Rust|Library Platform"));

    let part = |name, version, platform| DriverInfo::new(name, version, platform).unwrap_err();
    let delimiter = |part| MetadataError::Delimiter { part };
    assert_eq!(part("a|b", None, None), delimiter("name"));
    assert_eq!(part("a", Some("|"), None), delimiter("version"));
    assert_eq!(part("a", None, Some("b|")), delimiter("platform"));
    assert_eq!(part("", None, None), MetadataError::EmptyName);
    let long = "x".repeat(513);
    let too_long = MetadataError::TooLong { part: "version", len: 513 };
    assert_eq!(part("a", Some(&long), None), too_long);
}

/// Metadata updates: appending the same info twice changes nothing, whatever came in between.
#[test]
fn driver_info_counts_once_and_differs_by_any_part() {
    let first = info("library", Some("1.2"), Some("Library Platform"));
    let mut metadata = metadata(Environment::default());
    metadata.append(&first);
    let once = metadata.document();
    metadata.append(&first);
    assert_eq!(metadata.document(), once);

    metadata.append(&info("framework", Some("1.2"), Some("Library Platform")));
    let twice = document(&metadata);
    assert_eq!(twice.get_str("platform").ok(), Some("Rust|Library Platform|Library Platform"));
    metadata.append(&first);
    assert_eq!(document(&metadata), twice);

    metadata.append(&info("library", None, Some("Library Platform")));
    let thrice = document(&metadata);
    assert_ne!(thrice, twice);
    metadata.append(&info("library", Some(""), Some("Library Platform")));
    assert_eq!(document(&metadata), thrice);
}

#[test]
fn a_client_that_keeps_appending_does_not_grow() {
    let mut metadata = metadata(Environment::default());
    for number in 0..1_000 {
        metadata.append(&info(&number.to_string(), None, None));
    }
    let full = metadata.clone();
    metadata.append(&info("one more", Some("1"), Some("p")));
    assert_eq!(metadata, full);
    assert!(metadata.appended.len() <= MAX_DOCUMENT_LEN / 2);
    document(&metadata);
}

/// Handshake, "Limitations": each step is taken only if the ones before did not suffice.
#[test]
fn truncation_follows_the_order_of_the_specification() {
    let lambda = |region: usize| environment(&[LAMBDA, ("AWS_REGION", &"r".repeat(region))], &[]);
    let client = |env, os_name: usize, platform: usize| {
        let os = Os::new("Linux").with_name("o".repeat(os_name));
        let mut metadata = ClientMetadata::new(Some("shop"), os, env).unwrap();
        metadata.append(&info("l", None, Some(&"é".repeat(platform / 2))));
        document(&metadata)
    };
    let name_only = Bson::from(doc! { "name": "aws.lambda" });
    let type_only = Bson::from(doc! { "type": "Linux" });

    let whole = client(lambda(100), 100, 0);
    assert_eq!(whole.get_document("env").unwrap().len(), 2);
    assert_eq!(whole.get_document("os").unwrap().len(), 2);

    let step_1 = client(lambda(400), 100, 0);
    assert_eq!(step_1.get("env"), Some(&name_only));
    assert_eq!(step_1.get_document("os").unwrap().len(), 2);

    let step_3 = client(lambda(100), 400, 0);
    assert_eq!(step_3.get("env"), Some(&name_only));
    assert_eq!(step_3.get("os"), Some(&type_only));
    assert_eq!(step_3.get_str("platform").ok(), Some("Rust"));

    let step_4 = client(lambda(100), 100, 356);
    assert!(!step_4.contains_key("env"));
    assert_eq!(step_4.get("os"), Some(&type_only));
    assert_eq!(step_4.get_str("platform").unwrap().len(), "Rust|".len() + 356);

    let step_5 = client(lambda(100), 100, 512);
    assert!(!step_5.contains_key("env"));
    let platform = step_5.get_str("platform").unwrap();
    assert!(platform.starts_with("Rust|éé"), "{platform}");
    assert!(platform.len() < "Rust|".len() + 512);
    assert!(step_5.get_document("driver").unwrap().get_str("name").unwrap().ends_with("|l"));
}

#[test]
fn what_the_steps_leave_too_long_is_cut_behind_our_own_name_and_version() {
    let mut metadata = metadata(Environment::default());
    let text = "x".repeat(500);
    metadata.append(&info("library", Some(&text), Some(&text)));
    let long_version = document(&metadata);
    let driver = long_version.get_document("driver").unwrap();
    assert_eq!(driver.get_str("name").ok(), Some("sdam|library"));
    assert!(driver.get_str("version").unwrap().len() > 300);
    assert!(!long_version.contains_key("platform"));

    metadata.append(&info(&"y".repeat(512), Some("1"), None));
    let long_name = document(&metadata);
    let driver = long_name.get_document("driver").unwrap();
    assert!(driver.get_str("name").unwrap().starts_with("sdam|library|yyy"));
    assert_eq!(driver.get_str("version").ok(), Some(DRIVER_VERSION));
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[a-zé🦀]{0,300}"]
}

proptest! {
    /// Handshake, "Limitations": the whole document never exceeds 512 bytes.
    #[test]
    fn the_limit_always_holds_and_the_required_fields_are_there(
        application in any_text(),
        os in (any_text(), any_text(), any_text()),
        region in any_text(),
        infos in proptest::collection::vec((any_text(), any_text(), any_text()), 0..6),
    ) {
        let environment = environment(&[LAMBDA, ("AWS_REGION", &region)], &["/.dockerenv"]);
        let os = Os::new(os.0).with_name(os.1).with_architecture("a").with_version(os.2);
        let application = &application[..application.floor_char_boundary(128)];
        let mut metadata = ClientMetadata::new(Some(application), os, environment).unwrap();
        for (name, version, platform) in &infos {
            if let Ok(info) = DriverInfo::new(name, Some(version), Some(platform)) {
                metadata.append(&info);
            }
        }
        let client = document(&metadata);
        let driver = client.get_document("driver").unwrap();
        prop_assert!(driver.get_str("name").unwrap().starts_with(DRIVER_NAME));
        prop_assert!(driver.get_str("version").unwrap().starts_with(DRIVER_VERSION));
        prop_assert!(!client.get_document("os").unwrap().get_str("type").unwrap().is_empty());
        for (_, value) in &client {
            prop_assert_ne!(value, &Bson::Document(Document::new()));
        }
    }
}
