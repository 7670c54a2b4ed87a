//! GSSAPI with a real Kerberos: MIT's server of it, and as MongoDB's half the library that MongoDB
//! has, Cyrus SASL, by its sample server.

#[path = "../support/fake_server.rs"]
#[expect(dead_code, reason = "others use the rest")]
mod fake_server;
mod sasl_server;

use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use sdam::core::bson::rawdoc;
use sdam::core::config::Options;
use sdam_conformance::kerberos::{REALM, Realm};

use fake_server::soon;
use sasl_server::{SaslServer, Server};

/// The variable that has this program log in by the connection string in it, and say how that went:
/// the library reads the variables of its process.
const LOGIN: &str = "SDAM_TEST_LOGIN";

/// The program that has another one see another time.
const FAKETIME: &str = "/usr/bin/faketime";

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// The host of the service, as the realm knows it.
const SERVICE: &str = "SERVICE_HOST:db.example";

/// A test, and its name.
type Scenario = (&'static str, fn(&World) -> Outcome);

/// All of them.
const TESTS: [Scenario; 10] = [
    ("a_ticket_or_a_password_logs_in", logs_in),
    ("a_host_goes_by_its_canonical_name_if_that_is_asked_for", canonical),
    ("without_a_ticket_the_error_says_how_to_obtain_one", no_ticket),
    ("an_expired_ticket_and_clocks_that_differ_are_told_apart", other_times),
    ("a_service_that_is_unknown_is_named", unknown_service),
    ("a_realm_that_is_unknown_is_named", wrong_realm),
    ("a_wrong_password_and_an_unknown_user_are_told_apart", refused_user),
    ("a_realm_that_does_not_answer_is_named", silent_realm),
    ("a_server_that_does_not_prove_itself_is_not_believed", impostor),
    ("a_server_that_demands_a_security_layer_is_refused", demanding),
];

fn main() -> ExitCode {
    if let Ok(uri) = std::env::var(LOGIN) {
        return log_in(&uri);
    }
    let arguments = Arguments::from_args();
    let missing = Realm::is_missing().or_else(SaslServer::is_missing).or_else(|| {
        let is_there = Path::new(FAKETIME).exists();
        (!is_there).then_some("there is no faketime: install the package")
    });
    if let Some(missing) = missing {
        eprintln!("unavailable: {missing}");
        let on_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        return if on_ci { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let trial = |(name, test): Scenario| {
        Trial::test(name, move || {
            let run = || test(&World::start()?);
            run().map_err(|error| Failed::from(error.to_string()))
        })
    };
    let trials = TESTS.into_iter().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Logs in, and prints how that went.
fn log_in(uri: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(async {
        let client = sdam::tokio::Topology::new(Options::parse(uri).unwrap()).unwrap();
        soon(client.run_command("admin", &rawdoc! { "ping": 1 })).await
    });
    match outcome {
        Ok(_) => println!("logged in"),
        Err(error) => println!("{error}"),
    }
    // A library that waits for a server of keys is not waited for.
    runtime.shutdown_background();
    ExitCode::SUCCESS
}

/// A realm with a user who has a ticket, the key of a service, and a runtime for servers.
struct World {
    realm: Realm,
    runtime: tokio::runtime::Runtime,
}

impl World {
    fn start() -> Result<Self, Box<dyn std::error::Error>> {
        let realm = Realm::start()?;
        realm.add_user("ann", "secret")?;
        realm.add_service("mongodb/db.example")?;
        realm.obtain_ticket("ann", "secret")?;
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        Ok(Self { realm, runtime: runtime.worker_threads(2).enable_all().build()? })
    }

    fn server(&self, options: &'static [&'static str]) -> Server {
        self.runtime.block_on(Server::start(self.realm.environment_of_service(), options))
    }

    /// Has a process log in as a user at a server, and returns what it says.
    fn log_in(&self, server: &Server, user: &str, properties: &str) -> String {
        self.log_in_at(None, server, user, properties)
    }

    /// Does the same at another time: so many minutes from now.
    fn log_in_at(
        &self,
        time: Option<&str>,
        server: &Server,
        user: &str,
        properties: &str,
    ) -> String {
        let this = std::env::current_exe().expect("this program");
        let mut command = match time {
            None => Command::new(this),
            Some(time) => {
                let mut command = Command::new(FAKETIME);
                command.args(["-f", time]).arg(this);
                command
            }
        };
        let uri = format!(
            "mongodb://{user}@{}/?authMechanism=GSSAPI&authMechanismProperties={properties}",
            server.address(),
        );
        let output = command.envs(self.realm.environment()).env(LOGIN, uri).output();
        let output = output.expect("a process");
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(!said.is_empty(), "{output:?}");
        assert!(!said.contains("secret"), "{said}");
        said
    }
}

/// Fails unless an error is one sentence with all of these parts.
fn says(said: &str, parts: &[&str]) -> Outcome {
    let missing = parts.iter().find(|part| !said.contains(**part));
    match missing {
        _ if said.contains('\n') => Err(format!("more than one line: {said}").into()),
        Some(part) => Err(format!("{part:?} is not in {said:?}").into()),
        None => Ok(()),
    }
}

/// RFC 4752, sections 3.1 and 3.2: Cyrus SASL is offered tokens, and offers all security layers.
fn logs_in(world: &World) -> Outcome {
    let server = world.server(&[]);
    says(&world.log_in(&server, "ann%40SDAM.TEST", SERVICE), &["logged in"])?;
    world.realm.add_user("bob", "pass.word")?;
    says(&world.log_in(&server, "bob%40SDAM.TEST:pass.word", SERVICE), &["logged in"])?;
    assert_eq!(server.users(), ["ann@SDAM.TEST", "bob@SDAM.TEST"]);
    // The ticket is of the default realm, and the name that the user goes by has it.
    says(&world.log_in(&server, "ann", SERVICE), &["code 18"])
}

/// "Hostname Canonicalization": 127.0.0.1 has a name on every machine.
fn canonical(world: &World) -> Outcome {
    let server = world.server(&[]);
    world.realm.add_service("mongodb/localhost")?;
    let found = "CANONICALIZE_HOST_NAME:forwardAndReverse";
    says(&world.log_in(&server, "ann%40SDAM.TEST", found), &["logged in"])?;
    // Without it, the service goes by the address.
    says(&world.log_in(&server, "ann%40SDAM.TEST", "SERVICE_NAME:mongodb"), &["mongodb/127.0.0.1"])
}

fn no_ticket(world: &World) -> Outcome {
    let server = world.server(&[]);
    let said = world.log_in(&server, "bob%40SDAM.TEST", SERVICE);
    says(&said, &["no ticket of bob@SDAM.TEST", "kinit", "KRB5CCNAME"])
}

fn other_times(world: &World) -> Outcome {
    let server = world.server(&[]);
    let said = world.log_in_at(Some("+30m"), &server, "ann", SERVICE);
    says(&said, &["Clock skew too great", "synchronise the clocks"])?;
    let said = world.log_in_at(Some("+20h"), &server, "ann", SERVICE);
    says(&said, &["mongodb/db.example", "xpired", "kinit"])?;
    let said = world.log_in_at(Some("-30m"), &server, "ann", SERVICE);
    says(&said, &["mongodb/db.example", "synchronise the clocks"])
}

fn unknown_service(world: &World) -> Outcome {
    let server = world.server(&[]);
    let said = world.log_in(&server, "ann", "SERVICE_HOST:db.example,SERVICE_NAME:other");
    says(&said, &["other/db.example", "not found in Kerberos database", "SERVICE_NAME"])
}

fn wrong_realm(world: &World) -> Outcome {
    let server = world.server(&[]);
    let said = world.log_in(&server, "ann%40OTHER.TEST:secret", SERVICE);
    says(&said, &["ann@OTHER.TEST", "Cannot find KDC for realm", "krb5.conf"])?;
    let said = world.log_in(&server, "ann", "SERVICE_HOST:db.example,SERVICE_REALM:OTHER.TEST");
    says(&said, &["mongodb/db.example@OTHER.TEST", "SERVICE_REALM"])
}

fn refused_user(world: &World) -> Outcome {
    let server = world.server(&[]);
    let said = world.log_in(&server, &format!("ann%40{REALM}:wrong"), SERVICE);
    says(&said, &["ann@SDAM.TEST", "check the password"])?;
    let said = world.log_in(&server, &format!("carl%40{REALM}:wrong"), SERVICE);
    says(&said, &["carl@SDAM.TEST", "not found in Kerberos database", "check the user name"])?;
    let ann = format!("ann%40{REALM}:secret");
    world.realm.change_user("ann", "-pwexpire yesterday")?;
    says(&world.log_in(&server, &ann, SERVICE), &["ann@SDAM.TEST", "expired", "kpasswd"])?;
    world.realm.add_user("bob", "secret")?;
    world.realm.change_user("bob", "-allow_tix")?;
    let said = world.log_in(&server, &format!("bob%40{REALM}:secret"), SERVICE);
    says(&said, &["bob@SDAM.TEST", "revoked", "unlock that user"])
}

/// A server of keys that does not answer is what the connection has waited for, and not its server.
fn silent_realm(world: &World) -> Outcome {
    let server = world.server(&[]);
    world.realm.freeze()?;
    let said = world.log_in(&server, "ann", &format!("{SERVICE}&connectTimeoutMS=1000"));
    says(&said, &["credentials of the login", "connectTimeoutMS", "a server of that realm"])
}

/// RFC 4752, section 3.1: mutual authentication, without which any server could be the service.
fn impostor(world: &World) -> Outcome {
    let server = world.runtime.block_on(Server::impostor());
    let said = world.log_in(&server, "ann", SERVICE);
    says(&said, &["does not prove that it is mongodb/db.example", "keytab"])
}

fn demanding(world: &World) -> Outcome {
    let server = world.server(&["-b", "min=1"]);
    let said = world.log_in(&server, "ann", SERVICE);
    says(&said, &["demands a security layer", "authentication alone"])
}
