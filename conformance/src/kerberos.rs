//! A real realm of Kerberos: MIT's server of it, as Debian's package krb5-kdc has it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::mongod::free_port;

/// The server of Kerberos.
const KDC: &str = "/usr/sbin/krb5kdc";

/// The programs that make a realm, and change it.
const UTILITY: &str = "/usr/sbin/kdb5_util";
const ADMIN: &str = "/usr/sbin/kadmin.local";

/// The time that the server may take to listen.
const LIMIT: Duration = Duration::from_secs(30);

/// The number of ports that are tried: another process may take one first.
const MAX_STARTS: u32 = 3;

/// The name of the realm.
pub const REALM: &str = "SDAM.TEST";

/// A realm with a server on a loopback port of its own; dropping it ends it.
///
/// Everything is in a folder of its own: nothing of this machine's Kerberos is read or changed.
#[derive(Debug)]
pub struct Realm {
    process: Child,
    folder: TempDir,
}

impl Realm {
    /// Returns what is missing for it, if something is.
    pub fn is_missing() -> Option<&'static str> {
        // It prints its usage.
        let has_kinit = Command::new("kinit").arg("-?").output().is_ok();
        let has_server = [KDC, UTILITY, ADMIN].iter().all(|path| Path::new(path).exists());
        (!has_kinit || !has_server).then_some(
            "there is no Kerberos: install the packages krb5-kdc, krb5-admin-server and krb5-user",
        )
    }

    /// Makes a realm without users and services, and waits until its server listens.
    ///
    /// # Errors
    ///
    /// Fails if a part of it cannot be started, or if the server does not listen within 30 s.
    pub fn start() -> io::Result<Self> {
        for _ in 1..MAX_STARTS {
            match Self::start_once() {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                started => return started,
            }
        }
        Self::start_once()
    }

    fn start_once() -> io::Result<Self> {
        let (port, folder) = (free_port()?, TempDir::new()?);
        let path = |name: &str| folder.path().join(name).display().to_string();
        let client = format!(
            "[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\n\
             dns_lookup_realm = false\ndns_canonicalize_hostname = false\nrdns = false\n\
             ignore_acceptor_hostname = true\n[realms]\n{REALM} = {{\n\
             kdc = 127.0.0.1:{port}\n}}\n"
        );
        fs::write(path("krb5.conf"), client)?;
        // The library of SASL leaves the default realm out of the names of users.
        fs::write(path("service.conf"), "[libdefaults]\ndefault_realm = NONE.TEST\n")?;
        let server = format!(
            "[kdcdefaults]\nkdc_listen = 127.0.0.1:{port}\nkdc_tcp_listen = 127.0.0.1:{port}\n\
             [realms]\n{REALM} = {{\ndatabase_name = {}\nkey_stash_file = {}\nacl_file = {}\n\
             max_life = 10h\n}}\n[logging]\nkdc = FILE:{}\n",
            path("database"),
            path("stash"),
            path("acl"),
            path("kdc.log"),
        );
        fs::write(path("kdc.conf"), server)?;
        let environment = environment(folder.path());
        let mut make = Command::new(UTILITY);
        make.args(["create", "-s", "-r", REALM, "-P", "master"]).envs(environment.clone());
        run(make, "")?;
        let mut command = Command::new(KDC);
        let log = File::create(path("log"))?;
        command.arg("-n").envs(environment).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut realm = Self { process: command.spawn()?, folder };
        let start = Instant::now();
        loop {
            let listens = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
            if let Some(status) = realm.process.try_wait()? {
                // Another process has taken the port, also if that one listens.
                let reason = format!("the server has ended: {status}");
                return Err(io::Error::new(io::ErrorKind::AddrInUse, reason));
            }
            if listens {
                return Ok(realm);
            }
            if start.elapsed() > LIMIT {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not listen"));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Adds a user with a password.
    ///
    /// # Errors
    ///
    /// Fails if the realm is not changed.
    pub fn add_user(&self, name: &str, password: &str) -> io::Result<()> {
        self.administer(&format!("add_principal -pw {password} {name}"))
    }

    /// Changes a user as `modify_principal` of kadmin does: `-pwexpire yesterday`, for example.
    ///
    /// # Errors
    ///
    /// Fails if the realm is not changed.
    pub fn change_user(&self, name: &str, change: &str) -> io::Result<()> {
        self.administer(&format!("modify_principal {change} {name}"))
    }

    /// Stops the server (SIGSTOP), which takes connections and answers nothing from then on.
    ///
    /// # Errors
    ///
    /// Fails if the server has ended.
    pub fn freeze(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.process), Signal::STOP)?)
    }

    /// Adds a service, and its key to the keytab.
    ///
    /// # Errors
    ///
    /// Fails if the realm is not changed.
    pub fn add_service(&self, name: &str) -> io::Result<()> {
        self.administer(&format!("add_principal -randkey {name}"))?;
        let keytab = self.folder.path().join("keytab");
        self.administer(&format!("ktadd -k {} {name}", keytab.display()))
    }

    /// Obtains a ticket of a user, and puts it into the cache.
    ///
    /// # Errors
    ///
    /// Fails if there is none with this password.
    pub fn obtain_ticket(&self, name: &str, password: &str) -> io::Result<()> {
        let mut command = Command::new("kinit");
        command.arg(name).envs(self.environment());
        run(command, &format!("{password}\n"))
    }

    /// Returns the variables by which a program finds the realm, the cache and the keytab.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        environment(self.folder.path())
    }

    /// Returns the variables for a service, to which users go by names that have their realm.
    pub fn environment_of_service(&self) -> Vec<(&'static str, OsString)> {
        let mut environment = self.environment();
        let files = ["service.conf", "krb5.conf"].map(|name| self.folder.path().join(name));
        // What the first one says comes first.
        let files = format!("{}:{}", files[0].display(), files[1].display());
        environment.push(("KRB5_CONFIG", files.into()));
        environment
    }

    fn administer(&self, query: &str) -> io::Result<()> {
        let mut command = Command::new(ADMIN);
        command.args(["-r", REALM, "-q", query]).envs(self.environment());
        run(command, "")
    }
}

fn environment(folder: &Path) -> Vec<(&'static str, OsString)> {
    let file = |name: &str| -> PathBuf { folder.join(name) };
    let of_type = |name: &str| OsString::from(format!("FILE:{}", file(name).display()));
    vec![
        ("KRB5_CONFIG", file("krb5.conf").into()),
        ("KRB5_KDC_PROFILE", file("kdc.conf").into()),
        ("KRB5CCNAME", of_type("cache")),
        ("KRB5_KTNAME", of_type("keytab")),
        // What services remember of tickets is in no folder of this machine.
        ("KRB5RCACHENAME", "none:".into()),
    ]
}

/// Runs a program to its end with this input.
fn run(mut command: Command, input: &str) -> io::Result<()> {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = command.spawn()?;
    if let Some(mut stdin) = process.stdin.take() {
        // One that does not read fails by its status.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = process.wait_with_output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("{command:?} failed: {said}")))
        }
    }
}

impl Drop for Realm {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
