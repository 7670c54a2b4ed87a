//! The environment of a process: a client finds out by itself, and says and does what follows.

use std::sync::{Arc, Mutex, PoisonError};

use sdam_core::bson::{RawDocument, RawDocumentBuf, oid::ObjectId, rawdoc};

use super::Test;
use crate::adapter::Adapter;
use crate::adapter::child::Watcher;
use crate::adapter::fixture::{Fixture, Outcome, ensure, wait_until};
use crate::adapter::scripted::{Scripted, ScriptedReply, is_hello, reply};

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        Test::new("environment::handshakes_tell_of_platforms_and_containers", metadata),
        Test::new("environment::monitors_poll_on_a_platform_for_functions", polled),
    ]
}

type Variables<'a> = &'a [(&'a str, &'a str)];

/// All variables that say something.
const KNOWN: [&str; 15] = [
    "AWS_EXECUTION_ENV",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
    "AWS_LAMBDA_RUNTIME_API",
    "AWS_REGION",
    "FUNCTIONS_WORKER_RUNTIME",
    "FUNCTION_MEMORY_MB",
    "FUNCTION_NAME",
    "FUNCTION_REGION",
    "FUNCTION_TIMEOUT_SEC",
    "KUBERNETES_SERVICE_HOST",
    "K_SERVICE",
    "VERCEL",
    "VERCEL_REGION",
    "AWS_LAMBDA_FUNCTION_NAME",
    "AWS_LAMBDA_FUNCTION_VERSION",
];

const LAMBDA: [(&str, &str); 3] = [
    ("AWS_EXECUTION_ENV", "AWS_Lambda_java8"),
    ("AWS_REGION", "us-east-2"),
    ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1024"),
];

/// The hellos that a server has seen.
type Hellos = Arc<Mutex<Vec<RawDocumentBuf>>>;

/// A server that could stream, and remembers every hello.
fn server() -> Outcome<(Scripted, Hellos)> {
    let (hellos, version) = (Hellos::default(), ObjectId::new());
    let seen = Arc::clone(&hellos);
    let server = Scripted::start(move |name, command: &RawDocument| {
        if !is_hello(name) {
            return reply(name);
        }
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(command.to_owned());
        ScriptedReply::Reply(rawdoc! {
            "isWritablePrimary": true, "helloOk": true, "minWireVersion": 0, "maxWireVersion": 21,
            "topologyVersion": { "processId": version, "counter": 0_i64 }, "ok": 1,
        })
    })?;
    Ok((server, hellos))
}

fn client_in<A: Adapter>(
    fixture: &Fixture<A>,
    server: &Scripted,
    variables: Variables<'_>,
) -> Outcome<Watcher> {
    let uri = format!("{}&heartbeatFrequencyMS=500", server.uri());
    let watcher = Watcher::start_with(&*fixture.adapter, &uri, |command| {
        for name in KNOWN {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied());
    });
    Ok(watcher?)
}

/// Waits until a hello was seen that is as it should be.
fn hello(hellos: &Hellos, wanted: impl Fn(usize, &RawDocument) -> bool) -> RawDocumentBuf {
    let find = || {
        let hellos = hellos.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = hellos.iter().enumerate().filter(|(index, hello)| wanted(*index, hello));
        found.next().map(|(_, hello)| hello.clone())
    };
    wait_until(|| find().is_some());
    find().unwrap_or_default()
}

/// Handshake, "Test Plan", 1: "Test that environment metadata is properly captured"; what files
/// say of containers depends on the machine.
fn metadata<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let lambda = rawdoc! { "name": "aws.lambda", "region": "us-east-2", "memory_mb": 1024 };
    let azure = ("FUNCTIONS_WORKER_RUNTIME", "node");
    let gcp = rawdoc! {
        "name": "gcp.func", "region": "us-central1", "memory_mb": 1024, "timeout_sec": 60,
    };
    let long = "a".repeat(512);
    let kubernetes = [&LAMBDA[..], &[("KUBERNETES_SERVICE_HOST", "1")]].concat();
    let cases: [(Variables<'_>, RawDocumentBuf); 9] = [
        (&LAMBDA, lambda.clone()),
        (&[azure], rawdoc! { "name": "azure.func" }),
        (
            &[
                ("K_SERVICE", "servicename"),
                ("FUNCTION_MEMORY_MB", "1024"),
                ("FUNCTION_TIMEOUT_SEC", "60"),
                ("FUNCTION_REGION", "us-central1"),
            ],
            gcp,
        ),
        (
            &[("VERCEL", "1"), ("VERCEL_REGION", "cdg1")],
            rawdoc! { "name": "vercel", "region": "cdg1" },
        ),
        (&[LAMBDA[0], azure], rawdoc! {}),
        (&[LAMBDA[0], ("AWS_REGION", &long), LAMBDA[2]], rawdoc! { "name": "aws.lambda" }),
        (
            &[LAMBDA[0], ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "big")],
            rawdoc! { "name": "aws.lambda" },
        ),
        (&[("AWS_EXECUTION_ENV", "EC2")], rawdoc! {}),
        (&kubernetes, lambda),
    ];
    for (variables, expected) in cases {
        let (server, hellos) = server()?;
        let _watcher = client_in(fixture, &server, variables)?;
        let hello = hello(&hellos, |_, hello| hello.get_document("client").is_ok());
        let client = hello.get_document("client")?;
        ensure!(client.as_bytes().len() <= 512, "{variables:?}: {client:?}");
        let env = client.get_document("env").map(ToOwned::to_owned).unwrap_or_default();
        for field in ["name", "region", "memory_mb", "timeout_sec"] {
            let (metadata, expected) = (env.get(field)?, expected.get(field)?);
            ensure!(
                metadata == expected,
                "{variables:?}: {field} is {metadata:?}, not {expected:?}"
            );
        }
        let container = env.get_document("container");
        let orchestrator = container.and_then(|container| container.get_str("orchestrator")).ok();
        let is_kubernetes = variables.len() == kubernetes.len() && variables == kubernetes;
        ensure!(orchestrator == is_kubernetes.then_some("kubernetes"), "{variables:?}: {env:?}");
    }
    Ok(())
}

/// Server Monitoring, "serverMonitoringMode": "auto" is polling on platforms for functions.
fn polled<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let awaits = |hello: &RawDocument| hello.get("maxAwaitTimeMS").is_ok_and(|it| it.is_some());
    // Elsewhere the same client asks the same server to stream.
    let (server_of_others, hellos) = server()?;
    let _others = client_in(fixture, &server_of_others, &[])?;
    hello(&hellos, |_, hello| awaits(hello));
    let (server, hellos) = server()?;
    let function = [&LAMBDA[..], &[("AWS_LAMBDA_FUNCTION_NAME", "shop")]].concat();
    let _watcher = client_in(fixture, &server, &function)?;
    hello(&hellos, |index, _| index == 3);
    let hellos = hellos.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(!hellos.iter().any(|hello| awaits(hello)), "a monitor streams: {hellos:?}");
    Ok(())
}
