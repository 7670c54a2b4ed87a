//! The examples, as processes.

#[allow(dead_code, reason = "its main is for the example itself")]
#[path = "../../core/examples/std_net.rs"]
mod std_net;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::support::example_path;
use sdam::bson::{RawDocumentBuf, rawdoc};
use sdam::core::config::Options;
use sdam::core::description::ServerType;
use sdam::core::selection::Criteria;
use sdam::tokio::Topology;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, MemberId};

/// Generous, because nothing depends on it while a test succeeds.
const LIMIT: Duration = Duration::from_secs(60);

/// A process of one of the examples, until it is dropped.
struct Example(Child);

impl Example {
    /// Cargo builds the examples for its tests; if only this test is asked for, they must be there.
    fn start(name: &str, arguments: &[&str]) -> (Self, BufReader<ChildStdout>) {
        let mut command = Command::new(example_path(name));
        let child = command.args(arguments).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("the example was built: cargo build --examples");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        (Self(child), output)
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs an example to its end, and returns what it has printed, line by line.
fn printed(name: &str, arguments: &[&str]) -> Vec<String> {
    let output = Command::new(example_path(name)).args(arguments).output();
    let output = output.expect("the example was built: cargo build --examples");
    let [text, errors] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("it is text"));
    assert!(output.status.success(), "{name}: {text}{errors}");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn crud_prints_what_has_become_of_each_operation() {
    let lines = printed("crud", &[]);
    assert!(lines[0].starts_with("inserted ObjectId("), "{lines:?}");
    let expected = [
        "inserted 3 more",
        "there is an Emma already",
        "Silas Marner by George Eliot, 1861",
        "Persuasion by Jane Austen, 1817",
        "3 of 4 are as old",
        "George Eliot has written 2",
        "Jane Austen has written 2",
        "updated 1",
        "read 2 times",
        "upserted: true",
        "deleted 1",
    ];
    assert_eq!(lines[1..], expected);
}

#[cfg(feature = "blocking")]
#[tokio::test]
async fn blocking_writes_from_several_threads() {
    let options = EmbeddedOptions::default().with_keeps_data(true);
    let cluster = EmbeddedCluster::start(options).await.unwrap();
    let uri = cluster.uri();
    let lines = tokio::task::spawn_blocking(move || printed("blocking", &[&uri])).await.unwrap();
    assert_eq!(lines, ["39", "38", "37", "40 numbers"]);
}

#[test]
fn bulk_prints_what_was_refused_and_what_was_done() {
    let lines = printed("bulk", &[]);
    assert_eq!(lines[0], "150000 inserted");
    assert!(lines[1].starts_with("write 1 was refused: E11000"), "{lines:?}");
    let done = "2 inserted, 2 modified, 1 upserted, 1 deleted nevertheless";
    assert_eq!(lines[2..], [done, "2 deleted, 1 inserted"]);
}

#[test]
fn session_reads_what_was_written_and_one_moment() {
    let lines = printed("session", &[]);
    let balances: Vec<i32> =
        lines[0].split_whitespace().map(|it| it.parse().expect("a number")).collect();
    assert_eq!(balances, Vec::from_iter(1..=20));
    assert!(lines[1].contains("\"balance\": 20"), "{lines:?}");
    let counts = ["1 account before", "1 account in the snapshot", "2 accounts outside"];
    assert_eq!(lines[2..], counts);
}

#[test]
fn transfers_lose_no_money_when_primaries_change() {
    let lines = printed("transfer", &[]);
    assert_eq!(lines[..2], ["the primary steps down", "the next one is killed"]);
    assert!(lines[2].contains(" transfers in "), "{lines:?}");
    assert!(lines[3].ends_with(" audits found the same sum"), "{lines:?}");
    assert_eq!(lines[4..], ["500 at the end"]);
}

#[test]
fn the_outbox_delivers_each_message_once_through_a_restart() {
    let expected = [
        "5 orders were made",
        "the relay has delivered [0, 1]",
        "the relay was stopped, and begins again",
        "the relay has delivered [2, 3, 4, 5]",
        "6 messages were delivered",
    ];
    assert_eq!(printed("outbox", &[]), expected);
}

#[test]
fn an_application_loses_no_write_when_primaries_change() {
    let lines = printed("change_of_primary", &[]);
    assert!(lines.iter().any(|line| line.starts_with("primary: 127.0.0.1:")), "{lines:?}");
    // Views are printed beside it, also after it.
    assert!(lines.iter().any(|line| line.ends_with(" 0 are lost")), "{lines:?}");
}

/// Sends a request over HTTP; returns the status and the body of its response.
fn ask(address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    ask_with(address, method, path, "Accept: */*", body)
}

/// As [`ask`], with one more header.
fn ask_with(address: &str, method: &str, path: &str, header: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{header}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").expect("a response");
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    (status, body.to_owned())
}

#[cfg(unix)]
#[test]
fn the_service_answers_over_http_until_it_is_ended() {
    let (mut example, mut output) = Example::start("axum", &["127.0.0.1:0"]);
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening at ").expect("where it listens");
    let emma = r#"{"title":"Emma","year":1815}"#;
    assert_eq!(ask(address, "GET", "/health", ""), (200, "well".to_owned()));
    assert_eq!(ask(address, "POST", "/books", emma).0, 201);
    assert_eq!(ask(address, "POST", "/books", emma).0, 409);
    assert_eq!(ask(address, "GET", "/books/Emma", ""), (200, emma.to_owned()));
    assert_eq!(ask(address, "GET", "/books/Sanditon", "").0, 404);
    assert_eq!(ask(address, "GET", "/books", ""), (200, format!("[{emma}]")));
    assert_eq!(ask(address, "DELETE", "/books/Emma", "").0, 204);
    assert_eq!(ask(address, "DELETE", "/books/Emma", "").0, 404);

    let kill = format!("kill -TERM {}", example.0.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "closed\n");
    assert!(example.0.wait().unwrap().success());
}

#[test]
fn the_service_streams_files_and_parts_of_them() {
    let (_example, mut output) = Example::start("files", &["127.0.0.1:0"]);
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening at ").expect("where it listens");
    let content = "0123456789".repeat(1_000_000);
    assert_eq!(ask(address, "PUT", "/files/a", &content).0, 201);
    let listed = r#"[{"name":"a","length":10000000}]"#;
    assert_eq!(ask(address, "GET", "/files", ""), (200, listed.to_owned()));
    let (status, body) = ask(address, "GET", "/files/a", "");
    assert!(status == 200 && body == content, "{status}: {} bytes", body.len());
    let part = |range: &str| ask_with(address, "GET", "/files/a", &format!("Range: {range}"), "");
    assert_eq!(part("bytes=5-7"), (206, "567".to_owned()));
    assert_eq!(part("bytes=9999998-"), (206, "89".to_owned()));
    assert_eq!(part("bytes=-3"), (206, "789".to_owned()));
    assert_eq!(part("bytes=10000000-").0, 416);
    assert_eq!(part("lines=1-2").0, 200);
    assert_eq!(ask(address, "DELETE", "/files/a", "").0, 204);
    assert_eq!(ask(address, "GET", "/files/a", "").0, 404);
}

#[test]
fn run_command_prints_the_reply_of_its_own_deployment_and_why_there_is_none() {
    let run =
        |arguments: &[&str]| Command::new(example_path("run_command")).args(arguments).output();
    let output = run(&[]).expect("the example was built: cargo build --examples");
    let reply = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && reply.contains("\"version\": \"6.0"), "{reply}");

    let unreachable = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200";
    let output = run(&[unreachable, "ping"]).unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("127.0.0.1:1"), "{error}");
    assert!(error.contains("ms went into selecting a server"), "{error}");
}

#[test]
fn watch_topology_prints_views_until_there_is_a_primary() {
    let (_example, output) = Example::start("watch_topology", &[]);
    let mut lines = Vec::new();
    for line in output.lines().map_while(Result::ok) {
        lines.push(line);
        if lines.last().is_some_and(|line| line.contains("RSPrimary")) {
            break;
        }
    }
    assert_eq!(lines[0], "ReplicaSetNoPrimary", "{lines:?}");
    assert!(lines.last().is_some_and(|line| line.contains("RSPrimary")), "{lines:?}");
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, work).await.expect("done in time")
}

async fn run(client: &Topology, command: RawDocumentBuf) {
    soon(client.run_command("test", &command)).await.unwrap_or_else(|error| panic!("{error}"));
}

#[tokio::test]
async fn a_client_works_through_the_proxy_and_across_a_failover() {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
    let primary = soon(cluster.elected()).await.unwrap();
    let uri = cluster.uri();
    let (_example, mut output) = Example::start("proxy", &["127.0.0.1:0", &uri]);
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening at ").expect("where it listens");

    let client = Topology::new(Options::parse(&format!("mongodb://{address}")).unwrap()).unwrap();
    run(&client, rawdoc! { "ping": 1 }).await;
    assert_eq!(client.view().servers()[0].server_type, ServerType::Mongos);

    // Several replies to one message, and none to another, on one connection.
    let mut checked_out =
        soon(client.select(Criteria::write())).await.unwrap().check_out().await.unwrap();
    let find = rawdoc! { "find": "things", "batchSize": 2 };
    let reply = soon(checked_out.command("test", &find)).await.unwrap();
    let cursor = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    let get_more = rawdoc! { "getMore": cursor, "collection": "things", "batchSize": 2 };
    let mut replies = soon(checked_out.command_exhaust("test", &get_more)).await.unwrap();
    let mut count = 0;
    while let Some(reply) = soon(replies.next()).await {
        reply.unwrap();
        count += 1;
    }
    assert_eq!(count, 3, "six documents that are left, two at a time");
    let write = rawdoc! { "insert": "things", "documents": [{}], "writeConcern": { "w": 0 } };
    soon(checked_out.command_unacknowledged("test", &write)).await.unwrap();
    soon(checked_out.command("test", &rawdoc! { "ping": 1 })).await.unwrap();
    drop(checked_out);

    // Its own session hears of the state change, and a later command finds the one that is elected.
    cluster.step_down(primary).await.unwrap();
    let insert = || rawdoc! { "insert": "things", "documents": [{}] };
    soon(async { while client.run_command("test", &insert()).await.is_err() {} }).await;

    // A connection that breaks behind the proxy breaks in front of it, and is replaced.
    let data = rawdoc! { "failCommands": ["insert"], "closeConnection": true };
    let fail =
        rawdoc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
    let elected = soon(cluster.elected()).await.unwrap();
    cluster.run_command(elected, fail).await.unwrap();
    soon(client.run_command("test", &insert())).await.unwrap_err();
    run(&client, insert()).await;
}

/// Hands on what is written, and fails once the receiver is gone.
struct Lines(mpsc::Sender<Vec<u8>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.send(bytes.to_vec());
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads what the example writes until it contains all of `wanted` in one line.
fn line_with(output: &mpsc::Receiver<Vec<u8>>, text: &mut String, wanted: &[String]) {
    loop {
        while let Some((line, rest)) = text.split_once('\n') {
            let found = wanted.iter().all(|wanted| line.contains(wanted));
            *text = rest.to_owned();
            if found {
                return;
            }
        }
        let more = output.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("no line with {wanted:?}"));
        text.push_str(&String::from_utf8(more).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loop_of_the_standard_library_follows_a_step_down_and_a_kill() {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
    let (uri, (sender, output)) = (cluster.uri(), mpsc::channel());
    let example =
        thread::spawn(move || std_net::follow(&uri, &mut Lines(sender)).unwrap_err().to_string());
    let is = |member: MemberId, server_type: &str| {
        format!("{}={server_type}", cluster.addresses()[member.0])
    };
    let mut text = String::new();
    let with = "ReplicaSetWithPrimary".to_owned();
    let first = soon(cluster.elected()).await.unwrap();
    line_with(&output, &mut text, &[with.clone(), is(first, "RSPrimary")]);

    // If the next primary is heard of first, there is no view without one.
    cluster.step_down(first).await.unwrap();
    let second = soon(cluster.elected()).await.unwrap();
    line_with(&output, &mut text, &[with.clone(), is(second, "RSPrimary")]);

    cluster.kill(second).await.unwrap();
    let third = soon(cluster.elected()).await.unwrap();
    line_with(&output, &mut text, &[with, is(third, "RSPrimary"), is(second, "Unknown")]);

    // Without a reader it ends at the next change.
    drop(output);
    cluster.restart(second).await.unwrap();
    assert_eq!(example.join().unwrap(), io::Error::from(io::ErrorKind::BrokenPipe).to_string());
}

#[test]
fn the_loop_of_the_standard_library_refuses_what_it_cannot_do() {
    let follow = |uri: &str| std_net::follow(uri, &mut io::sink()).unwrap_err().to_string();
    for uri in ["mongodb://a.example/?tls=true", "mongodb+srv://a.example"] {
        assert!(follow(uri).contains("without TLS"), "{uri}");
    }
    assert!(follow("localhost").contains("mongodb://"));
}
