//! The monitors' first hello: MongoDB Handshake, in virtual time.

use sdam_core::config::Options;
use sdam_core::topology::Input;
use sdam_core::wire::op_code;

use super::fixture::{Fixture, standalone};
use super::monitoring::POLLING;

#[test]
fn handshake_legacy_hello_with_hello_ok_comes_first_and_by_op_msg() {
    let mut fixture = Fixture::new("mongodb://a/?directConnection=true&appName=test");
    fixture.opened("a.0");
    let command = fixture.command("a.0");
    assert_eq!(fixture.op_code("a.0"), op_code::OP_MSG);
    assert_eq!(command.iter().next().unwrap().unwrap().0, "isMaster");
    assert!(command.get_bool("helloOk").unwrap());
    assert_eq!(command.get_str("backpressure").unwrap(), "2");
    assert_eq!(command.get_str("$db").unwrap(), "admin");
    let client = command.get_document("client").unwrap();
    assert_eq!(client.get_document("application").unwrap().get_str("name").unwrap(), "test");
    assert_eq!(client.get_document("driver").unwrap().get_str("name").unwrap(), "sdam");
    for absent in ["saslSupportedMechs", "speculativeAuthenticate", "loadBalanced", "apiVersion"] {
        assert_eq!(command.get(absent).unwrap(), None, "{absent}");
    }
}

#[test]
fn handshake_later_checks_do_not_repeat_its_arguments() {
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &standalone()).at(10_000);
    let command = fixture.command("a.0");
    assert_eq!(command.iter().next().unwrap().unwrap().0, "hello");
    for absent in ["client", "backpressure"] {
        assert_eq!(command.get(absent).unwrap(), None, "{absent}");
    }
}

#[test]
fn handshake_hello_is_used_at_once_when_a_server_api_version_is_requested() {
    use sdam_core::config::{OpeningHello, ServerApi, ServerApiVersion};
    let api = ServerApi::from(ServerApiVersion::V1).with_strict(Some(true));
    let options = Options::builder().uri(POLLING).unwrap().server_api(api);
    let options = options.opening_hello(OpeningHello::OpQuery).build().unwrap();
    let mut fixture = Fixture::with(options);
    fixture.opened("a.0");
    for millis in [0, 10_000] {
        let command = fixture.at(millis).command("a.0");
        assert_eq!(command.iter().next().unwrap().unwrap().0, "hello");
        assert_eq!(command.get_str("apiVersion").unwrap(), "1");
        assert!(command.get_bool("apiStrict").unwrap());
        assert_eq!(command.get("apiDeprecationErrors").unwrap(), None);
        assert_eq!(fixture.op_code("a.0"), op_code::OP_MSG, "hello never goes by OP_QUERY");
        if millis == 0 {
            fixture.reply("a.0", &standalone());
        }
    }
}

#[test]
fn handshake_legacy_hello_goes_by_op_query_on_request_and_only_the_first_time() {
    use sdam_core::config::OpeningHello;
    let options = Options::builder().uri(POLLING).unwrap().opening_hello(OpeningHello::OpQuery);
    let mut fixture = Fixture::with(options.build().unwrap());
    fixture.opened("a.0");
    assert_eq!(fixture.op_code("a.0"), op_code::OP_QUERY);
    assert_eq!(fixture.command("a.0").get("$db").unwrap(), None);
    fixture.reply("a.0", &standalone()).at(10_000);
    assert_eq!(fixture.summary(), "Single a=Standalone");
    assert_eq!(fixture.op_code("a.0"), op_code::OP_MSG);
}

#[test]
fn appended_metadata_goes_with_connections_made_later() {
    use sdam_core::config::metadata::DriverInfo;
    let name = |fixture: &Fixture, link: &str| {
        let client = fixture.command(link).get_document("client").unwrap();
        client.get_document("driver").unwrap().get_str("name").unwrap().to_owned()
    };
    let mut fixture = Fixture::new(POLLING);
    fixture.opened("a.0");
    assert_eq!(name(&fixture, "a.0"), "sdam");
    for _ in 0..2 {
        let info = DriverInfo::new("wrapper", Some("1.0"), None).unwrap();
        fixture.input(Input::AppendMetadata { info });
    }
    fixture.reply("a.0", &standalone()).at(10_000).closed("a.0").opened("a.1");
    assert_eq!(name(&fixture, "a.1"), "sdam|wrapper");
}
