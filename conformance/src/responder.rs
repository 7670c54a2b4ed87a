//! A real authority and a real responder of OCSP, both of openssl.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use tempfile::TempDir;

use crate::mongod::{Config, Tls};

/// The kind of an authority's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// RSA of 2048 bits.
    Rsa,
    /// ECDSA over P-256.
    Ecdsa,
}

/// The one who signs responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    /// The authority that has issued the certificate.
    Authority,
    /// One who has its leave to.
    Delegate,
}

/// The certificate of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// True if it was revoked.
    pub is_revoked: bool,
    /// True if it demands a staple.
    pub must_staple: bool,
    /// False if the server asks its responder and staples the answer.
    pub is_silent: bool,
}

/// An authority and what it has issued, in a folder.
#[derive(Debug)]
pub struct RevokingAuthority {
    folder: TempDir,
    keys: Keys,
}

impl RevokingAuthority {
    /// Makes an authority, and a delegate of it.
    ///
    /// # Errors
    ///
    /// Fails as openssl does.
    pub fn new(keys: Keys) -> io::Result<Self> {
        let made = Self { folder: TempDir::new()?, keys };
        let new = made.new_key();
        made.run(&format!(
            "openssl req -x509 {new} -keyout ca.key -out ca.pem -days 30 -subj /CN=authority"
        ))?;
        made.issue("delegate", "1000", "extendedKeyUsage=OCSPSigning\n")?;
        let index = "R\t400101000000Z\t250101000000Z,keyCompromise\t1001\tunknown\t/CN=server\n\
                     V\t400101000000Z\t\t1002\tunknown\t/CN=server\n";
        fs::write(made.folder.path().join("index.txt"), index)?;
        Ok(made)
    }

    const fn new_key(&self) -> &'static str {
        match self.keys {
            Keys::Rsa => "-newkey rsa:2048 -nodes",
            Keys::Ecdsa => "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes",
        }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    fn run(&self, script: &str) -> io::Result<()> {
        run(self.folder.path(), script)
    }

    fn issue(&self, name: &str, serial: &str, extensions: &str) -> io::Result<()> {
        fs::write(self.folder.path().join(format!("{name}.ext")), extensions)?;
        let new = self.new_key();
        self.run(&format!(
            "openssl req {new} -keyout {name}.key -out {name}.csr -subj /CN={name} && \
             openssl x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -set_serial 0x{serial} \
             -days 30 -extfile {name}.ext -out {name}.crt && cat {name}.crt {name}.key > {name}.pem"
        ))
    }

    /// Returns the path of the authority's certificate.
    pub fn file(&self) -> String {
        self.path("ca.pem")
    }

    /// Issues a certificate for 127.0.0.1 that names this responder; returns the path of the file
    /// with it and its key.
    ///
    /// # Errors
    ///
    /// Fails as openssl does.
    pub fn issue_server(&self, kind: Kind, responder: SocketAddr) -> io::Result<String> {
        let feature = if kind.must_staple { "tlsfeature=status_request\n" } else { "" };
        let extensions = format!(
            "subjectAltName=IP:127.0.0.1\n\
             authorityInfoAccess=OCSP;URI:http://{responder}/ocsp\n{feature}"
        );
        let serial = if kind.is_revoked { "1001" } else { "1002" };
        self.issue("server", serial, &extensions)?;
        Ok(self.path("server.pem"))
    }

    /// Describes a server with such a certificate.
    ///
    /// # Errors
    ///
    /// Fails as openssl does.
    pub fn server(&self, kind: Kind, responder: SocketAddr) -> io::Result<Config> {
        let tls = Some(Tls::new(self.issue_server(kind, responder)?, self.file()));
        let arguments = match kind.is_silent {
            true => vec!["--setParameter".to_owned(), "ocspEnabled=false".to_owned()],
            false => Vec::new(),
        };
        Ok(Config { tls, arguments, ..Config::default() })
    }
}

fn run(folder: &Path, script: &str) -> io::Result<()> {
    let made = Command::new("sh").args(["-c", script]).current_dir(folder).output()?;
    match made.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&made.stderr);
            Err(io::Error::other(format!("{script}: {said}")))
        }
    }
}

/// A responder on a loopback port of its own: `openssl ocsp` behind as much of HTTP as it needs,
/// as its own server listens on all addresses. Dropping it ends it.
#[derive(Debug)]
pub struct Responder {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Starts one.
    ///
    /// # Errors
    ///
    /// Fails if there is no port for it.
    pub fn start(authority: &RevokingAuthority, signer: Signer) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (asked, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, ended) = (Arc::clone(&asked), Arc::clone(&is_over));
        let folder = authority.folder.path().to_owned();
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                count.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = stream.and_then(|stream| answer(stream, &folder, signer)) {
                    eprintln!("the responder of OCSP: {error}");
                }
            }
        });
        Ok(Self { address, asked, is_over, thread: Some(thread) })
    }

    /// Returns where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns how often it was asked, servers that staple included.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It looks up when somebody comes.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: TcpStream, folder: &Path, signer: Signer) -> io::Result<()> {
    let request = body_of(&mut stream)?;
    fs::write(folder.join("request.der"), request)?;
    let (certificate, key) = match signer {
        Signer::Authority => ("ca.pem", "ca.key"),
        Signer::Delegate => ("delegate.crt", "delegate.key"),
    };
    run(
        folder,
        &format!(
            "openssl ocsp -index index.txt -CA ca.pem -rsigner {certificate} -rkey {key} \
             -reqin request.der -respout response.der -nmin 60"
        ),
    )?;
    let response = fs::read(folder.join("response.der"))?;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/ocsp-response\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        response.len()
    )?;
    stream.write_all(&response)
}

/// Reads a request, and returns its body.
fn body_of(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    loop {
        let mut part = [0; 4096];
        let count = stream.read(&mut part)?;
        request.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
        let head = request.windows(4).position(|it| it == b"\r\n\r\n").map(|at| at + 4);
        let length = text.split("content-length:").nth(1).and_then(|it| it.lines().next());
        let length = length.and_then(|it| it.trim().parse::<usize>().ok());
        match (head, length) {
            (Some(head), Some(length)) if request.len() >= head + length => {
                return Ok(request.split_off(head));
            }
            _ if count == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
    }
}
