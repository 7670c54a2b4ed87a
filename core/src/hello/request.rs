//! The hello commands that a client sends.

use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};

use crate::config::{Options, ServerApi};
use crate::description::TopologyVersion;

/// Says whether the first command of a connection is hello, and not legacy hello.
pub(crate) fn opens_with_hello(options: &Options) -> bool {
    options.server_api().is_some() || options.load_balanced()
}

/// Builds the first command of a connection, without its `$db`.
///
/// It is legacy hello with `helloOk: true`, or hello if a server API version is requested or the
/// topology is load-balanced. `client` is the metadata document.
pub(crate) fn handshake(options: &Options, client: &RawDocument) -> RawDocumentBuf {
    let mut command = named(opens_with_hello(options));
    command.append(cstr!("backpressure"), "2");
    if options.load_balanced() {
        command.append(cstr!("loadBalanced"), true);
    }
    command.append(cstr!("client"), client.to_owned());
    append_server_api(&mut command, options.server_api());
    command
}

/// Builds a later check, without its `$db`; it repeats no argument of the handshake.
///
/// With `awaitable`, the server replies only when its topologyVersion is newer than that one, or
/// after that time ("Awaitable hello or legacy hello Protocol").
pub(crate) fn check(
    options: &Options,
    hello_ok: bool,
    awaitable: Option<(&TopologyVersion, Duration)>,
) -> RawDocumentBuf {
    let mut command = named(hello_ok);
    if let Some((version, max_await_time)) = awaitable {
        let version = rawdoc! { "processId": version.process_id, "counter": version.counter };
        command.append(cstr!("topologyVersion"), version);
        let millis = i64::try_from(max_await_time.as_millis()).unwrap_or(i64::MAX);
        command.append(cstr!("maxAwaitTimeMS"), millis);
    }
    append_server_api(&mut command, options.server_api());
    command
}

fn named(hello: bool) -> RawDocumentBuf {
    match hello {
        true => rawdoc! { "hello": 1, "helloOk": true },
        false => rawdoc! { "isMaster": 1, "helloOk": true },
    }
}

/// Appends the Stable API's fields, which every command then needs.
pub(crate) fn append_server_api(command: &mut RawDocumentBuf, server_api: Option<ServerApi>) {
    let Some(api) = server_api else { return };
    command.append(cstr!("apiVersion"), api.version.as_str());
    if let Some(strict) = api.strict {
        command.append(cstr!("apiStrict"), strict);
    }
    if let Some(errors) = api.deprecation_errors {
        command.append(cstr!("apiDeprecationErrors"), errors);
    }
}

#[cfg(test)]
mod tests {
    use bson::RawDocument;

    use super::handshake;
    use crate::config::Options;

    fn first_command(uri: &str) -> Vec<String> {
        let options = Options::parse(uri).unwrap();
        let command = handshake(&options, &options.metadata().document());
        let names = |document: &RawDocument| {
            document.iter().map(|element| element.unwrap().0.to_string()).collect()
        };
        names(&command)
    }

    #[test]
    fn handshake_hello_is_used_at_once_behind_a_load_balancer_and_says_so() {
        let command = first_command("mongodb://a/?loadBalanced=true");
        assert_eq!(command, ["hello", "helloOk", "backpressure", "loadBalanced", "client"]);
        let command = first_command("mongodb://a");
        assert_eq!(command, ["isMaster", "helloOk", "backpressure", "client"]);
    }
}
