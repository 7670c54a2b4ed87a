//! MongoDB's half of a login by GSSAPI: the sample server of Cyrus SASL, a process a connection,
//! behind a server that speaks the wire protocol.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sdam::core::bson::{RawDocument, RawDocumentBuf, rawdoc};

use crate::fake_server::{FakeServer, error, first_key, payload, sasl};

const PROGRAM: &str = "/usr/sbin/sasl-sample-server";

/// The error of a server that refuses a login.
const AUTHENTICATION_FAILED: i32 = 18;

type Environment = Vec<(&'static str, OsString)>;

/// The sample server, which reads and writes messages as lines of base64.
pub(crate) struct SaslServer {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The next word of the sample server.
enum Said {
    Message(Vec<u8>),
    /// The client is let in under this name.
    Accepted(String),
    Refused,
}

impl SaslServer {
    /// Returns what is missing for it, if something is.
    pub(crate) fn is_missing() -> Option<&'static str> {
        let is_there = Path::new(PROGRAM).exists();
        (!is_there).then_some(
            "there is no sample server of SASL: install the packages sasl2-bin and \
             libsasl2-modules-gssapi-mit",
        )
    }

    fn start(environment: &Environment, options: &[&str]) -> io::Result<Self> {
        let mut command = Command::new("stdbuf");
        command.args(["-oL", PROGRAM, "-m", "GSSAPI", "-s", "mongodb"]).args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.envs(environment.clone()).spawn()?;
        let missing = || io::Error::other("the process has no pipes");
        let input = process.stdin.take().ok_or_else(missing)?;
        let output = BufReader::new(process.stdout.take().ok_or_else(missing)?);
        Ok(Self { process, input, output })
    }

    fn say(&mut self, message: &[u8]) -> io::Result<Said> {
        writeln!(self.input, "C: {}", BASE64_STANDARD.encode(message))?;
        // It repeats messages as they are, which is no text.
        let mut bytes = Vec::new();
        while self.output.read_until(b'\n', &mut bytes)? > 0 {
            let line = String::from_utf8_lossy(&bytes);
            if let Some(user) = line.trim_end().strip_prefix("Username: ") {
                return Ok(Said::Accepted(user.to_owned()));
            }
            // The first one lists the mechanisms.
            match line.trim_end().strip_prefix("S:").map(|text| BASE64_STANDARD.decode(text.trim()))
            {
                Some(Ok(message)) if message != b"GSSAPI" => return Ok(Said::Message(message)),
                _ => bytes.clear(),
            }
        }
        Ok(Said::Refused)
    }
}

impl Drop for SaslServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server that asks such processes who its clients are.
pub(crate) struct Server {
    fake: FakeServer,
    users: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) async fn start(environment: Environment, options: &'static [&str]) -> Self {
        let users = Arc::<Mutex<Vec<String>>>::default();
        let (known, logins) = (Arc::clone(&users), Mutex::new(BTreeMap::new()));
        let fake = FakeServer::start(Arc::new(move |connection, command: &RawDocument| {
            let message = match first_key(command).as_str() {
                "saslStart" => {
                    let sasl = SaslServer::start(&environment, options).unwrap();
                    logins.lock().unwrap().insert(connection, sasl);
                    [b"GSSAPI\0", payload(command)].concat()
                }
                "saslContinue" => payload(command).to_vec(),
                _ => return Some(rawdoc! { "ok": 1 }),
            };
            let login = logins.lock().unwrap().remove(&connection);
            let Some(mut login) = login else { return Some(error(AUTHENTICATION_FAILED)) };
            let said = login.say(&message).unwrap_or(Said::Refused);
            Some(match said {
                Said::Message(message) => {
                    logins.lock().unwrap().insert(connection, login);
                    sasl(false, &message)
                }
                Said::Accepted(user) => {
                    known.lock().unwrap().push(user);
                    sasl(true, b"")
                }
                Said::Refused => error(AUTHENTICATION_FAILED),
            })
        }))
        .await;
        Self { fake, users }
    }

    /// Starts a server that has no key, and answers nevertheless.
    pub(crate) async fn impostor() -> Self {
        let fake =
            FakeServer::start(Arc::new(|_, command: &RawDocument| -> Option<RawDocumentBuf> {
                let is_login = first_key(command) == "saslStart";
                Some(if is_login {
                    sasl(false, b"a token")
                } else {
                    rawdoc! { "ok": 1 }
                })
            }))
            .await;
        Self { fake, users: Arc::default() }
    }

    pub(crate) fn address(&self) -> String {
        self.fake.address.to_string()
    }

    /// Returns who was let in, in order.
    pub(crate) fn users(&self) -> Vec<String> {
        self.users.lock().unwrap().clone()
    }
}
