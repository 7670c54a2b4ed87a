//! A process that was forked off with its parent's client in it, which the library names.

use std::io::{BufRead, BufReader};
use std::process::{self, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use bson::rawdoc;
use fork::{Fork, fork, waitpid};
use sdam_host::Error;
use sdam_tokio::Topology;

use crate::support::{Failure, Fixture, Said};
use crate::table::Row;

/// The variable that has the connection string of the program that forks.
const ROLE: &str = "SDAM_TEST_FORK";

/// Is the program that forks, if this process was started as such.
pub(crate) fn play() -> Option<ExitCode> {
    let uri = std::env::var(ROLE).ok()?;
    Some(match fork_off(&uri) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    })
}

fn fork_off(uri: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Topology::connect(uri).await?;
        let ping = rawdoc! { "ping": 1 };
        client.run_command("admin", &ping).await?;
        match fork()? {
            Fork::Child => {
                let begun = Instant::now();
                let error = client.run_command("admin", &ping).await.err();
                let kind = error.as_ref().map(|error| error.kind().name()).unwrap_or_default();
                let text = error.as_ref().map(ToString::to_string).unwrap_or_default();
                let verdict = error.as_ref().and_then(Error::verdict);
                let advice = verdict.map(|it| it.advice().to_string()).unwrap_or_default();
                let took = begun.elapsed().as_millis();
                println!("{took}\t{kind}\t{text}\t{advice}");
                process::exit(0)
            }
            Fork::Parent(child) => {
                waitpid(child)?;
                client.run_command("admin", &ping).await?;
                client.close().await;
                Ok(())
            }
        }
    })
}

pub(crate) fn a_process_that_was_forked_off(fixture: &Fixture) -> Result<Row, Failure> {
    let address = fixture.standalone()?.address();
    let mut program = Command::new(std::env::current_exe()?);
    program.env(ROLE, format!("mongodb://{address}/")).stdout(Stdio::piped());
    let mut program = program.spawn()?;
    let mut said = String::new();
    BufReader::new(program.stdout.take().ok_or("no pipe")?).read_line(&mut said)?;
    if !program.wait()?.success() {
        return Err("the parent's client does not go on".into());
    }
    let parts: Vec<&str> = said.trim().split('\t').collect();
    let [millis, "forked", text, advice] = parts.as_slice() else {
        return Err(format!("the child has got {said:?}").into());
    };
    let cause = without_processes(text);
    let said = Said {
        verdict: "forked".to_owned(),
        severity: "error".to_owned(),
        cause: format!("{cause} (said by the library, in the child)"),
        advice: (*advice).to_owned(),
        lines: Vec::new(),
    };
    Ok(Row::of_library(said, Duration::from_millis(millis.parse()?)))
}

/// Replaces the numbers of processes.
fn without_processes(text: &str) -> String {
    let is_number = |word: &&str| word.trim_end_matches(['.', ',', ';']).parse::<u32>().is_ok();
    let words = text.split(' ').map(|word| if is_number(&word) { "…" } else { word });
    words.collect::<Vec<_>>().join(" ")
}
