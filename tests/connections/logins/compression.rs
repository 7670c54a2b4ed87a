//! Messages are compressed as client and server have agreed, and secrets never.

use sdam_cluster::certificates::Authority;
use sdam_conformance::mongod::{Binary, Config, Server};
use sdam_core::bson::{Document, doc};
use sdam_core::config::Options;
use sdam_core::selection::Criteria;
use sdam_tokio::{CheckedOut, Topology};

use super::authentication::tls_server;
use super::fixture::{client, connection, guarded_server, number, ping, play, run_on, status, uri};
use super::recorder::Recorder;
use super::{Outcome, Scenario, V4_2};

/// Returns what can be played with the compressors that this build has.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut scenarios: Vec<Scenario> =
        vec![("an_unknown_compressor_is_told_and_left_out", V4_2, unknown)];
    if cfg!(all(feature = "snappy", feature = "zlib")) {
        scenarios.extend::<[Scenario; 3]>([
            ("the_first_common_compressor_is_used", V4_2, first_common),
            ("hello_and_logins_are_never_compressed", V4_2, never),
            ("tls_login_and_compression_go_together", V4_2, together),
        ]);
    }
    if cfg!(feature = "zstd") {
        scenarios.push(("zstd_is_used_both_ways", V4_2, zstd));
    }
    scenarios
}

const ALL: [&str; 3] = ["snappy", "zlib", "zstd"];

fn server(binary: &Binary, compressors: &[&str]) -> Outcome<Server> {
    Ok(Server::start(binary, config(compressors))?)
}

fn config(compressors: &[&str]) -> Config {
    let compressors = compressors.iter().map(|it| (*it).to_owned()).collect();
    Config { compressors, ..Config::default() }
}

/// The number of bytes that a server has received and sent so far, compressed with each of [`ALL`].
async fn counters(observer: &mut CheckedOut) -> Outcome<[(i64, i64); 3]> {
    let status = status(observer).await?;
    Ok(ALL.map(|name| {
        let path = ["network", "compression", name];
        let received = [&path[..], &["decompressor", "bytesIn"]].concat();
        let sent = [&path[..], &["compressor", "bytesOut"]].concat();
        (number(&status, &received), number(&status, &sent))
    }))
}

/// Returns the compressors that were in use between two looks, each both ways.
fn used(before: [(i64, i64); 3], after: [(i64, i64); 3]) -> Vec<&'static str> {
    let mut used = Vec::new();
    for (name, (before, after)) in ALL.into_iter().zip(before.into_iter().zip(after)) {
        assert_eq!(after.0 > before.0, after.1 > before.1, "{name} is used one way only");
        if after.0 > before.0 {
            used.push(name);
        }
    }
    used
}

/// Pings, and sends and receives a large document; returns the compressors in use.
async fn exchange(client: &Topology, observer: &mut CheckedOut) -> Outcome<Vec<&'static str>> {
    let before = counters(observer).await?;
    let mut checked_out = client.select(Criteria::write()).await?.check_out().await?;
    run_on(&mut checked_out, doc! { "ping": 1 }).await?;
    let text = "compress me ".repeat(50_000);
    run_on(&mut checked_out, doc! { "insert": "large", "documents": [{ "text": &text }] }).await?;
    let found = run_on(&mut checked_out, doc! { "find": "large", "limit": 1 }).await?;
    let first = found.get_document("cursor")?.get_array("firstBatch")?[0].as_document();
    assert_eq!(first.ok_or("no document was found")?.get_str("text")?, text);
    run_on(&mut checked_out, doc! { "drop": "large" }).await?;
    Ok(used(before, counters(observer).await?))
}

/// COMP-P1, (1), (3) and (4): the first of the client's that the server knows, too.
fn first_common(binary: &Binary) -> Outcome {
    let server = server(binary, &["snappy", "zlib"])?;
    let cases = [
        ("snappy", "snappy"),
        ("snappy,zlib", "snappy"),
        ("zlib,snappy", "zlib"),
        ("zstd,zlib", "zlib"),
    ];
    play(async {
        let mut observer = connection(&uri(&server, "", "")).await?;
        for (wanted, agreed) in cases {
            let client = client(&uri(&server, "", &format!("compressors={wanted}")))?;
            assert_eq!(exchange(&client, &mut observer).await?, [agreed], "{wanted}");
        }
        // Only zlib has levels to choose from.
        let options = "compressors=zlib&zlibCompressionLevel=9";
        let client = client(&uri(&server, "", options))?;
        assert_eq!(exchange(&client, &mut observer).await?, ["zlib"]);
        Ok(())
    })
}

/// COMP-P1 with the compressor that came last.
fn zstd(binary: &Binary) -> Outcome {
    let server = server(binary, &["snappy", "zlib", "zstd"])?;
    play(async {
        let mut observer = connection(&uri(&server, "", "")).await?;
        let client = client(&uri(&server, "", "compressors=zstd,snappy"))?;
        assert_eq!(exchange(&client, &mut observer).await?, ["zstd"]);
        Ok(())
    })
}

/// COMP-P1, (2): nothing is offered, nothing compressed, and the ping works.
fn unknown(binary: &Binary) -> Outcome {
    let server = server(binary, &["snappy", "zlib"])?;
    let options = Options::parse(&uri(&server, "", "compressors=snoopy"))?;
    let warnings: Vec<_> = options.warnings().iter().map(ToString::to_string).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("compressors"), "{warnings:?}");
    play(async {
        let mut observer = connection(&uri(&server, "", "")).await?;
        let recorder = Recorder::default();
        let client = Topology::builder(options).dialer(recorder.clone()).build()?;
        assert_eq!(exchange(&client, &mut observer).await?, [""; 0]);
        let hello = recorder.handshakes("ping")?;
        assert!(hello[0].get_array("compression")?.is_empty(), "{hello:?}");
        Ok(())
    })
}

/// COMP-P2, as far as a server shows it: a login and a new user go as they are, and what follows on
/// the same connection does not.
fn never(binary: &Binary) -> Outcome {
    let server = guarded_server(binary, config(&["snappy"]), &[])?;
    play(async {
        let mut observer = connection(&uri(&server, "root:root@", "")).await?;
        let client = client(&uri(&server, "root:root@", "compressors=snappy"))?;
        let before = counters(&mut observer).await?;
        let mut checked_out = client.select(Criteria::write()).await?.check_out().await?;
        let user: Document = doc! { "createUser": "ada", "pwd": "secret", "roles": [] };
        run_on(&mut checked_out, user).await?;
        run_on(&mut checked_out, doc! { "updateUser": "ada", "pwd": "other" }).await?;
        run_on(&mut checked_out, doc! { "hello": 1 }).await.or(run_on(
            &mut checked_out,
            doc! { "isMaster": 1 },
        )
        .await)?;
        assert_eq!(used(before, counters(&mut observer).await?), [""; 0]);
        run_on(&mut checked_out, doc! { "ping": 1 }).await?;
        assert_eq!(used(before, counters(&mut observer).await?), ["snappy"]);
        Ok(())
    })
}

/// All three layers at once.
fn together(binary: &Binary) -> Outcome {
    let authority = Authority::new("the authority")?;
    let server = tls_server(binary, &authority, &[], &ALL)?;
    let tls = format!("tls=true&tlsCAFile={}", authority.file());
    let compressors: &[&str] = if cfg!(feature = "zstd") { &ALL } else { &["snappy", "zlib"] };
    play(async {
        let mut observer = connection(&uri(&server, "root:root@", &tls)).await?;
        for compressor in compressors {
            let options = format!("{tls}&compressors={compressor}");
            let client = client(&uri(&server, "root:root@", &options))?;
            ping(&client).await?;
            assert_eq!(exchange(&client, &mut observer).await?, [*compressor]);
        }
        Ok(())
    })
}
