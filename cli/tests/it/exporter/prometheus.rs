//! A real Prometheus, which reads an exporter and an application through a failover; every query of
//! the dashboard finds something in it.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, encoded};
use sdam_core::bson::rawdoc;
use sdam_core::config::Options;
use sdam_core::metrics::{DEFINITIONS, Exposition};
use sdam_core::selection::Criteria;
use sdam_tokio::Topology;
use serde_json::Value;

use super::{Exporter, GENEROUS, get, is_there, lint};

/// The dashboard.
const DASHBOARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/grafana.json");

/// A Prometheus in a process of its own, with its data in a folder of the build's own.
struct Prometheus {
    process: Child,
    address: SocketAddr,
    folder: PathBuf,
}

impl Prometheus {
    fn start(exporter: SocketAddr, application: SocketAddr) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("prometheus-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let config = folder.join("prometheus.yml");
        let text = format!(
            "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\nscrape_configs:\n\
             - job_name: sdam\n  static_configs:\n  - targets: ['{exporter}']\n\
             - job_name: application\n  static_configs:\n  - targets: ['{application}']\n"
        );
        std::fs::write(&config, text).expect("a file");
        let port = sdam_conformance::mongod::free_port().expect("a free port");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process");
        let prometheus = Self { process, address, folder };
        let begun = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            assert!(begun.elapsed() < GENEROUS, "prometheus does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        prometheus
    }

    /// Waits until a query finds what it is to find: what is not read in time once, on a machine
    /// that is busy, counts as gone until it is read again.
    fn wait_for(&self, query: &str, wanted: impl Fn(&[f64]) -> bool) {
        let begun = Instant::now();
        loop {
            let found = self.query(query);
            if found.as_ref().is_ok_and(|found| wanted(found)) {
                return;
            }
            assert!(begun.elapsed() < GENEROUS, "{query}: {found:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the values that a query finds, those that are numbers.
    fn query(&self, query: &str) -> Result<Vec<f64>, String> {
        let (_, body) = get(self.address, &format!("/api/v1/query?query={}", encoded(query)));
        let answer: Value = serde_json::from_str(&body).map_err(|_| body.clone())?;
        let found = answer["data"]["result"].as_array().ok_or(body)?;
        let value = |it: &Value| it["value"][1].as_str()?.parse::<f64>().ok();
        Ok(found.iter().filter_map(value).filter(|value| !value.is_nan()).collect())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended before, and what it leaves lies where the build cleans.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// An application: a client with a connection at most, its metrics, and where they are served.
struct Application {
    client: Topology,
    address: SocketAddr,
}

impl Application {
    async fn start(uri: &str) -> Self {
        let options = Options::parse(uri).expect("a connection string");
        let client = Topology::builder(options).metrics().connect().await.expect("a client");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let page = {
            let client = client.clone();
            move || Exposition::new(&client.metrics()).to_string()
        };
        std::thread::spawn(move || listener.incoming().for_each(|it| answer(it, &page)));
        Self { client, address }
    }

    /// Uses its connection in every way that there are metrics of.
    async fn work(&self) {
        // Without a primary, some of it fails.
        let _ = self.client.run_command("admin", &rawdoc! { "ping": 1 }).await;
        let _ = self.client.run_command("admin", &rawdoc! { "noSuchCommand": 1 }).await;
        let Ok(primary) = self.client.select(Criteria::write()).await else { return };
        let Ok(_kept) = primary.check_out().await else { return };
        let refused = self.client.run_command("admin", &rawdoc! { "ping": 1 }).await;
        assert!(refused.is_err(), "there is one connection, and that is in use");
    }
}

/// Answers one request with a page, whatever is asked.
fn answer(stream: std::io::Result<std::net::TcpStream>, page: &impl Fn() -> String) {
    let Ok(mut stream) = stream else { return };
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => request.push(byte[0]),
            _ => return,
        }
    }
    let page = page();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close";
    // A client that has gone needs nothing.
    let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{page}", page.len());
}

/// Returns the queries of the dashboard, as it sends them.
fn queries() -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| match value {
                Value::String(query) if name == "expr" => found.push(query.clone()),
                value => collect(value, found),
            }),
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            _ => {}
        }
    }
    let text = std::fs::read_to_string(DASHBOARD).expect("the dashboard");
    let mut found = Vec::new();
    collect(&serde_json::from_str(&text).expect("JSON"), &mut found);
    let variables = [("$__rate_interval", "1m"), ("$__range", "5m"), ("$job", ".+")];
    for query in &mut found {
        for (variable, value) in variables {
            *query = query.replace(variable, value);
        }
        assert!(!query.contains('$'), "a variable that is not known here: {query}");
    }
    found
}

#[test]
fn the_dashboard_asks_for_every_family() {
    let queries = queries().join("\n");
    let is_asked_for = |name: &&str| {
        queries.match_indices(name).any(|(at, _)| {
            let rest = &queries[at + name.len()..];
            rest.starts_with("{") || rest.starts_with("_bucket{")
        })
    };
    let names: BTreeSet<&str> = DEFINITIONS.iter().map(|it| it.prometheus_name).collect();
    let forgotten: Vec<_> = names.into_iter().filter(|name| !is_asked_for(name)).collect();
    assert!(forgotten.is_empty(), "the dashboard has no query for {forgotten:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_the_dashboard_finds_something_after_a_failover() {
    if !is_there("prometheus") {
        return;
    }
    let timeout = Duration::from_millis(500);
    let options = EmbeddedOptions::default().with_election_timeout(timeout);
    let cluster = EmbeddedCluster::start(options).await.expect("a deployment");
    let uri = format!("{}&heartbeatFrequencyMS=500", cluster.uri());
    let limits = "maxPoolSize=1&minPoolSize=1&waitQueueTimeoutMS=5&serverSelectionTimeoutMS=500";
    let application = Application::start(&format!("{uri}&{limits}")).await;
    let exporter = Exporter::start(&uri);
    let prometheus = Prometheus::start(exporter.address, application.address);
    let primary = cluster.elected().await.expect("a primary");
    exporter.expect("sdam_topology_writable 1");
    prometheus.wait_for("sum(up)", |found| found == [2.0]);
    application.work().await;
    cluster.kill(primary).await.expect("it runs");
    let (begun, none) = (Instant::now(), "sdam_elections_total 0");
    while exporter.metrics().lines().any(|line| line == none) {
        assert!(begun.elapsed() < GENEROUS, "no election:\n{}", exporter.metrics());
        application.work().await;
    }
    cluster.restart(primary).await.expect("its port is free");
    let (begun, queries) = (Instant::now(), queries());
    for query in &queries {
        while prometheus.query(query).unwrap_or_else(|error| panic!("{query}: {error}")).is_empty()
        {
            let metrics = [exporter.metrics(), get(application.address, "/").1].concat();
            assert!(begun.elapsed() < GENEROUS, "nothing for {query}\n{metrics}");
            application.work().await;
        }
    }
    assert!(queries.len() > 20, "{queries:?}");
    prometheus.wait_for("max(sdam_failover_duration_seconds_count{job=\"sdam\"})", |found| {
        found.len() == 1 && found[0] >= 1.0
    });
    prometheus.wait_for("up", |found| found == [1.0, 1.0]);
    lint(&get(application.address, "/metrics").1);
    application.client.close().await;
}
