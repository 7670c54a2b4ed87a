//! Transactions that hold up others, conflict, take too long or are lost, each made to happen, and
//! what the doctor says of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use sdam_conformance::mongod::{Config, Connection, Options, ReplicaSet, User};
use sdam_core::config::ServerAddress;

use crate::support::{Embedded, Failure, Fixture, Report, Said, doctor, until};
use crate::table::Row;

/// The session of a client that runs transactions.
struct Client {
    connection: Connection,
    session: u8,
    number: i64,
}

impl Client {
    fn connect(address: &ServerAddress, session: u8) -> Result<Self, Failure> {
        let connection = Connection::open(address, crate::GENEROUS)?;
        Ok(Self { connection, session, number: 0 })
    }

    /// Runs a command, and returns the reply, which may be an error.
    fn run(&mut self, database: &str, command: &Document) -> Result<Document, Failure> {
        Ok(self.connection.reply(database, command, crate::GENEROUS)?)
    }

    /// Runs a command in the newest transaction.
    fn within(&mut self, database: &str, mut command: Document) -> Result<Document, Failure> {
        let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![self.session; 16] };
        command.insert("lsid", doc! { "id": id });
        command.insert("txnNumber", self.number);
        command.insert("autocommit", false);
        self.run(database, &command)
    }

    /// Begins a transaction with a write to the one document that all write to.
    fn begin(&mut self) -> Result<Document, Failure> {
        self.number += 1;
        let updates = vec![doc! { "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } }];
        self.within("test", doc! { "update": "hot", "updates": updates, "startTransaction": true })
    }

    fn commit(&mut self) -> Result<Document, Failure> {
        self.within("admin", doc! { "commitTransaction": 1 })
    }

    /// Writes the document that all write to.
    fn prepare(&mut self) -> Result<(), Failure> {
        self.run("test", &doc! { "insert": "hot", "documents": [{ "_id": 1, "n": 0 }] }).map(drop)
    }
}

/// A set of one member with these arguments, and its connection string.
fn set(fixture: &Fixture, arguments: &[&str]) -> Result<(ReplicaSet, String), Failure> {
    let arguments = arguments.iter().map(|it| (*it).to_owned()).collect();
    let options = Options { arguments, ..Options::default() };
    let set = ReplicaSet::start(fixture.newest()?, 1, &options)?;
    let uri = format!("mongodb://{}/?replicaSet=rs", set.members()[0].address());
    Ok((set, uri))
}

/// Runs doctors until one says this.
fn looked(uri: &str, verdict: &str) -> Result<(Report, Said), Failure> {
    until(&format!("{verdict} is not said"), || {
        let report = doctor(&[uri])?;
        let said = report.any(verdict);
        Ok(said.ok().map(|said| (report, said)))
    })
}

/// Returns a field of a finding.
fn field<'r>(
    report: &'r Report,
    verdict: &str,
    name: &str,
) -> Result<&'r serde_json::Value, Failure> {
    let findings = report.json["findings"].as_array().ok_or("no findings")?;
    let finding = findings.iter().find(|it| it["verdict"] == verdict).ok_or("no such finding")?;
    Ok(&finding[name])
}

/// One is begun and left until the server aborts it, again and again.
pub(crate) fn transactions_that_are_left_open(fixture: &Fixture) -> Result<Row, Failure> {
    let limit = ["--setParameter", "transactionLifetimeLimitSeconds=6"];
    let (set, uri) = set(fixture, &limit)?;
    let address = set.members()[0].address();
    let mut client = Client::connect(&address, 1)?;
    client.prepare()?;
    let mut look = |verdict: &str| {
        until(&format!("{verdict} is not said"), || {
            let status = client.run("admin", &doc! { "serverStatus": 1 })?;
            if status.get_document("transactions")?.get_i64("currentOpen")? == 0 {
                client.begin()?;
            }
            let report = doctor(&[&uri])?;
            let said = report.any(verdict);
            Ok(said.ok().map(|said| (report, said)))
        })
    };
    let (report, said) = look("transactionsIdle")?;
    let owner = field(&report, "transactionsIdle", "owner")?.as_str().ok_or("no owner")?.to_owned();
    let idle = Row::of(&report, said).naming(&owner, "10.1.2.4:50000, shop");
    let (report, said) = look("transactionsExpire")?;
    let expired = field(&report, "transactionsExpire", "expired")?.as_u64().ok_or("no number")?;
    let counted = match expired {
        1 => "1 transaction".to_owned(),
        _ => format!("{expired} transactions"),
    };
    let expired = Row::of(&report, said).naming(&counted, "3 transactions");
    let named = |row: Row| row.naming(&address, "a.example:27017");
    Ok(named(idle).with(named(expired)))
}

/// Several clients write to one document, each in transactions.
pub(crate) fn transactions_that_conflict(fixture: &Fixture) -> Result<Row, Failure> {
    let (set, uri) = set(fixture, &[])?;
    let address = set.members()[0].address();
    Client::connect(&address, 1)?.prepare()?;
    let is_over = AtomicBool::new(false);
    let write = |session: u8| -> Result<(), String> {
        let mut client = Client::connect(&address, session).map_err(|error| error.to_string())?;
        while !is_over.load(Ordering::Relaxed) {
            client.begin().and_then(|_| client.commit()).map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    let looked = thread::scope(|scope| {
        let writers: Vec<_> = (1..=8).map(|session| scope.spawn(move || write(session))).collect();
        let looked = looked(&uri, "writeConflicts");
        is_over.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().map_err(|_| "a writer has panicked")??;
        }
        looked
    });
    let (report, said) = looked?;
    let number = |name| field(&report, "writeConflicts", name).map(ToString::to_string);
    let (aborted, ended, conflicts) = (number("aborted")?, number("ended")?, number("conflicts")?);
    Ok(Row::of(&report, said)
        .naming(&format!("{aborted} of {ended} transactions"), "40 of 100 transactions")
        .naming(&format!("{conflicts} writes outside"), "7 writes outside")
        .naming(&address, "a.example:27017"))
}

/// The member that was primary is so again, and knows nothing of what began before.
pub(crate) fn a_transaction_that_a_failover_has_ended(fixture: &Fixture) -> Result<Row, Failure> {
    let (set, uri) = set(fixture, &[])?;
    let address = set.members()[0].address();
    let mut client = Client::connect(&address, 1)?;
    client.prepare()?;
    client.begin()?;
    set.members()[0].command(&doc! { "replSetStepDown": 10, "force": true }, crate::GENEROUS)?;
    set.wait_for_primary(crate::GENEROUS)?;
    let mut client = Client::connect(&address, 1)?;
    client.number = 1;
    let reply = client.commit()?;
    if reply.get_i32("code").ok() != Some(251) {
        return Err(format!("that is no NoSuchTransaction: {reply}").into());
    }
    // One that goes well: there is something to count.
    client.begin()?;
    client.commit()?;
    let (report, said) = looked(&uri, "transactionsLost")?;
    Ok(Row::of(&report, said).naming(&address, "a.example:27017"))
}

/// It has room for a mebibyte, and for no more.
pub(crate) fn an_oplog_that_is_too_small(fixture: &Fixture) -> Result<Row, Failure> {
    let lifetime = "transactionLifetimeLimitSeconds=3600";
    let (set, uri) = set(fixture, &["--oplogSize", "1", "--setParameter", lifetime])?;
    let address = set.members()[0].address();
    let mut client = Client::connect(&address, 1)?;
    client.prepare()?;
    // The lifetime is asked of servers that have had a transaction.
    client.begin()?;
    client.commit()?;
    fill_oplog(&mut client)?;
    let (report, said) = looked(&uri, "oplogSmall")?;
    Ok(Row::of(&report, said).naming(&address, "a.example:27017"))
}

/// Writes until an oplog is full.
fn fill_oplog(client: &mut Client) -> Result<(), Failure> {
    let text = "x".repeat(4096);
    until("the oplog is not full", || {
        for _ in 0..64 {
            client.run("test", &doc! { "insert": "much", "documents": [{ "text": &text }] })?;
        }
        let stats = client.run("local", &doc! { "collStats": "oplog.rs" })?;
        let number = |field| {
            let number = stats.get(field);
            number.and_then(|it| it.as_i64().or_else(|| it.as_i32().map(i64::from)))
        };
        let (size, max_size) = (number("size").ok_or("no size")?, number("maxSize").ok_or("none")?);
        Ok((size >= max_size).then_some(()))
    })
}

/// A user of an application, who sees its data and nothing of the server.
pub(crate) fn a_user_who_may_ask_little(fixture: &Fixture) -> Result<(), Failure> {
    let mut server = fixture.server(Config::default())?;
    let roles = vec![doc! { "role": "readWrite", "db": "shop" }];
    let create = doc! { "createUser": "app", "pwd": "secret", "roles": roles };
    server.command(&create, crate::GENEROUS)?;
    server.enable_auth(&[User::new("root", "secret")])?;
    let uri =
        |user: &str| format!("mongodb://{user}:secret@{}/?authSource=admin", server.address());
    let report = crate::support::all_is_well(|| doctor(&["--for", "60s", &uri("app")]))?;
    let said = report.noted("notPermitted")?;
    if !said.cause.contains("serverStatus and $currentOp at ") {
        return Err(format!("{said:?}").into());
    }
    let report = crate::support::all_is_well(|| doctor(&["--for", "60s", &uri("root")]))?;
    match report.noted("notPermitted") {
        Ok(said) => Err(format!("root may do that: {said:?}").into()),
        Err(_) => Ok(()),
    }
}

/// The embedded deployment counts what real servers count.
pub(crate) fn transactions_of_the_embedded_deployment(_: &Fixture) -> Result<(), Failure> {
    let deployment = Embedded::start()?;
    let address = &deployment.address;
    let (mut holder, mut other) = (Client::connect(address, 1)?, Client::connect(address, 2)?);
    holder.prepare()?;
    let begun = holder.begin()?;
    for _ in 0..100 {
        let reply = other.begin()?;
        if reply.get_i32("code").ok() != Some(112) {
            return Err(format!("{reply} does not conflict with {begun}").into());
        }
    }
    fill_oplog(&mut other)?;
    let (report, said) = looked(&deployment.uri, "transactionsIdle")?;
    report.any("writeConflicts")?;
    report.any("oplogSmall")?;
    match said.cause.contains("1 transaction open") && said.cause.contains("60.0 s after") {
        true => Ok(()),
        false => Err(format!("{said:?}").into()),
    }
}
