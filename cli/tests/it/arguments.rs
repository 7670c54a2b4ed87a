//! The arguments of `sdam`: where the connection string comes from, what help says, colour, scripts
//! for shells, and pages for man.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use sdam_conformance::refusal::RefusingPort;

/// A connection string whose password must not be shown; nothing listens at its address.
fn nowhere() -> String {
    static PORT: LazyLock<RefusingPort> =
        LazyLock::new(|| RefusingPort::new().expect("a free port"));
    let address = PORT.address();
    format!("mongodb://me:sesame@{address}/?authMechanism=PLAIN&authSource=%24external")
}

fn sdam(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdam"));
    command.args(arguments).stdin(Stdio::null()).env_remove("SDAM_URI").env_remove("NO_COLOR");
    command
}

fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("a process");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    output(&mut sdam(arguments))
}

/// A file of this process among the build's own.
fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).expect("a file");
    path
}

#[test]
fn a_call_with_a_file_of_certificates_that_cannot_be_used_makes_no_sense() {
    let empty = file("arguments-empty.pem", b"");
    let empty = empty.to_str().expect("a path");
    let page = format!("--output={}/arguments-none", env!("CARGO_TARGET_TMPDIR"));
    let commands = [
        (&["watch"][..], 2),
        (&["record", &page], 2),
        (&["report", &page], 2),
        (&["lint"], 2),
        (&["tunnel"], 2),
        (&["exporter"], 2),
        (&["doctor"], 2),
        // There, 2 says that no server is available.
        (&["status"], 3),
    ];
    for option in ["tlsCAFile", "tlsCertificateKeyFile"] {
        for path in ["/nowhere/file.pem", empty] {
            let uri = format!("{}&tls=true&{option}={path}", nowhere());
            for (command, expected) in commands {
                let (code, out, err) = run(&[command, &["--for", "10s", &uri]].concat());
                assert_eq!(code, Some(expected), "{command:?}: {out}{err}");
                // Only a doctor goes on, and reports it among what else it finds.
                assert_eq!(out.is_empty(), command != ["doctor"], "{command:?}: {out}");
                let both = out + &err;
                assert!(both.contains(option) && both.contains(path), "{command:?}: {both}");
            }
        }
    }
}

#[cfg(unix)]
#[test]
fn a_signal_that_comes_too_early_says_before_what_it_came() {
    for (command, before) in [
        ("lint", "everything was asked"),
        ("status", "each server had answered or failed"),
        ("doctor", "everything was looked at"),
        ("tunnel", "any server was found"),
    ] {
        // It accepts connections and never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let uri = format!("mongodb://{}/", silent.local_addr().expect("an address"));
        let mut process = sdam(&[command, "--for", "90s", &uri]);
        let process = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let process = process.expect("it runs");
        let _connection = silent.accept().expect("it connects");
        let killed = Command::new("kill").args(["-INT", &process.id().to_string()]).status();
        assert!(killed.expect("kill").success());
        let output = process.wait_with_output().expect("the end");
        let err = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(130), "{command}: {err}");
        assert_eq!(err, format!("sdam: interrupted before {before}\n"), "{command}");
    }
}

/// Returns the commands that `sdam --help` lists.
fn commands() -> Vec<String> {
    let (_, help, _) = run(&["--help"]);
    let listed = help.split("Commands:\n").nth(1).expect("a list");
    let names = listed.lines().take_while(|line| !line.is_empty());
    let names = names.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
    let names: Vec<String> = names.filter(|name| name != "help").collect();
    assert!(names.len() > 8, "{help}");
    names
}

#[test]
fn the_connection_string_comes_from_a_file_standard_input_or_the_variable() {
    let path = file("arguments.uri", format!("{}\n", nowhere()).as_bytes());
    let path = path.to_str().expect("a path");
    let mut piped = sdam(&["watch", "--for", "10ms", "--uri-file", "-"]);
    let mut piped = piped
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process");
    piped.stdin.take().expect("a pipe").write_all(nowhere().as_bytes()).expect("it reads");
    let piped = piped.wait_with_output().expect("the end");
    let piped = String::from_utf8(piped.stdout).expect("text");
    let (_, of_file, _) = run(&["watch", "--for", "10ms", "--uri-file", path]);
    let (_, of_variable, _) = output(sdam(&["watch", "--for", "10ms"]).env("SDAM_URI", nowhere()));
    // What an argument says counts more than the variable.
    let (_, of_argument, _) = output(
        sdam(&["watch", "--for", "10ms", &nowhere()]).env("SDAM_URI", "mongodb://another.invalid"),
    );
    let (_, of_both, _) = output(
        sdam(&["watch", "--for", "10ms", "--uri-file", path])
            .env("SDAM_URI", "mongodb://another.invalid"),
    );
    for both in [piped, of_file, of_variable, of_argument, of_both] {
        assert!(both.starts_with("watching 127.0.0.1:"), "{both}");
    }
}

#[test]
fn record_takes_the_connection_string_from_the_variable_too() {
    let (code, trace, _) =
        output(sdam(&["record", "--for", "10ms", "-o", "-"]).env("SDAM_URI", nowhere()));
    assert_eq!(code, Some(0));
    assert!(trace.contains("127.0.0.1:") && !trace.contains("sesame"), "{trace}");
}

#[test]
fn a_connection_string_that_cannot_be_had_is_one_sentence_and_exit_code_2() {
    let empty = file("arguments.empty", b"\n");
    let two = file("arguments.two", b"mongodb://me:sesame@a\nmongodb://me:sesame@b\n");
    let binary = file("arguments.binary", b"mongodb://\xff");
    let cases = [
        (empty, "has no connection string, it is empty"),
        (two, "has more than one line; it has to hold one connection string"),
        (binary, "is not text in UTF-8"),
        (PathBuf::from("/nowhere/uri"), "No such file"),
        (PathBuf::from("/dev/zero"), "more than 65536 bytes"),
    ];
    for (path, expected) in cases {
        let path = path.to_str().expect("a path");
        let (code, out, err) = run(&["watch", "--uri-file", path]);
        assert_eq!(code, Some(2), "{path}");
        assert!(out.is_empty() && err.contains(path) && err.contains(expected), "{out}{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        assert!(!err.contains("sesame"), "{err}");
    }
    // A variable that was meant to have something does not start a demonstration.
    let (code, _, err) = output(sdam(&["watch", "--for", "10ms"]).env("SDAM_URI", ""));
    assert_eq!(code, Some(2));
    assert!(err.contains("the variable SDAM_URI has no connection string"), "{err}");
}

#[test]
fn an_argument_and_a_file_are_one_too_many() {
    let (code, _, err) = run(&["watch", "mongodb://a", "--uri-file", "b"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("[URI]") && err.contains("--uri-file <FILE>"), "{err}");
}

#[test]
fn what_is_mistyped_is_answered_by_what_may_be_meant() {
    let cases: [(&[&str], &str); 4] = [
        (&["wach"], "'watch'"),
        (&["watch", "--uri-fil", "a"], "'--uri-file'"),
        (&["watch", "--heartbeat"], "'--heartbeats'"),
        (&["completions", "bsh"], "'bash'"),
    ];
    for (arguments, meant) in cases {
        let (code, _, err) = run(arguments);
        assert_eq!(code, Some(2), "{arguments:?}");
        assert!(err.contains("similar") && err.contains(meant), "{err}");
    }
}

#[test]
fn a_time_before_the_beginning_is_refused_with_what_is_allowed() {
    for command in [&["replay", "a"][..], &["shrink", "a", "-o", "b", "--view"]] {
        let (code, _, err) = run(&[command, &["--at", "-1"]].concat());
        assert_eq!(code, Some(2));
        assert!(err.contains("write seconds since the beginning, 0 or more"), "{err}");
    }
}

#[test]
fn every_command_documents_examples_and_exit_codes() {
    for command in commands() {
        let (code, help, _) = run(&[&command, "--help"]);
        assert_eq!(code, Some(0), "{command}");
        let example = format!("\n  sdam {command}");
        for expected in ["Examples:", &example, "Exit codes:\n  0", "--color <WHEN>"] {
            assert!(help.contains(expected), "{command} does not say {expected:?}:\n{help}");
        }
    }
}

#[test]
fn there_is_a_script_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (code, script, err) = run(&["completions", shell]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{shell}");
        assert!(script.contains("uri-file") && script.contains("check-log"), "{script}");
    }
}

#[test]
fn there_is_a_page_for_every_command() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("man");
    fs::create_dir_all(&folder).expect("a folder");
    let (code, ..) = run(&["man", "--out", folder.to_str().expect("a path")]);
    assert_eq!(code, Some(0));
    for command in commands() {
        let page = folder.join(format!("sdam-{command}.1"));
        let page = fs::read_to_string(page).expect("a page");
        for expected in [".SH NAME", ".SH SYNOPSIS", ".SH EXAMPLES", ".SH \"EXIT CODES\""] {
            assert!(page.contains(expected), "{command} has no {expected}:\n{page}");
        }
        let (_, printed, _) = run(&["man", &command]);
        assert_eq!(printed, page, "{command}");
    }
    let (_, whole, _) = run(&["man"]);
    assert_eq!(whole, fs::read_to_string(folder.join("sdam.1")).expect("a page"));
    assert!(whole.contains("SDAM_URI") && whole.contains(".SH VARIABLES"), "{whole}");
    let (code, _, err) = run(&["man", "nonsense"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("there is no command \"nonsense\"; there are watch,"), "{err}");
}

#[test]
fn colour_comes_when_it_is_asked_for() {
    let (_, plain, _) = run(&["watch", "--help"]);
    let (_, colored, _) = run(&["watch", "--help", "--color", "always"]);
    let (_, wrong, err) = run(&["--color", "always", "wach"]);
    assert!(!plain.contains('\u{1b}') && colored.contains('\u{1b}'), "{colored}");
    assert!(wrong.is_empty() && err.contains('\u{1b}'), "{err}");
    let watch = ["watch", "--for", "6s", &nowhere(), "--color"];
    let (_, plain, _) = run(&[&watch[..], &["auto"]].concat());
    let (_, colored, _) = output(sdam(&[&watch[..], &["always"]].concat()).env("NO_COLOR", "1"));
    assert!(plain.contains("heartbeat failed") && !plain.contains('\u{1b}'), "{plain}");
    assert!(colored.contains("\u{1b}[31mheartbeat failed"), "{colored}");
}
