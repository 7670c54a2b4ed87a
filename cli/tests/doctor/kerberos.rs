//! Logins by GSSAPI that come to nothing, with a real Kerberos, and what the doctor says of them.

use std::path::Path;
use std::process::Command;

use sdam_conformance::kerberos::Realm;

use crate::support::{Failure, Fixture, Report, SDAM, run};
use crate::table::Row;

/// The program that has another one see another time.
const FAKETIME: &str = "/usr/bin/faketime";

/// Returns what is missing for these tests, if something is.
pub(crate) fn missing() -> Option<&'static str> {
    let time = (!Path::new(FAKETIME).exists()).then_some("there is no faketime: install it");
    let build = (!cfg!(feature = "gssapi")).then_some("the tool is built without gssapi");
    Realm::is_missing().or(time).or(build)
}

/// No ticket, one that has expired, a service and a realm that are unknown, a wrong password, and
/// clocks that differ.
pub(crate) fn logins_without_a_context(fixture: &Fixture) -> Result<Row, Failure> {
    let (server, realm) = (fixture.standalone()?.address(), Realm::start()?);
    let look = |time: Option<&str>, user: &str, properties: &str| -> Result<Report, Failure> {
        let mut command = match time {
            None => Command::new(SDAM),
            Some(time) => {
                let mut command = Command::new(FAKETIME);
                command.args(["-f", time, SDAM]);
                command
            }
        };
        command.envs(realm.environment());
        let options = format!("authMechanism=GSSAPI&authMechanismProperties={properties}");
        run(command, &[&format!("mongodb://{user}@{server}/?{options}")])
    };
    const HOST: &str = "SERVICE_HOST:db.example";
    realm.add_user("ann", "secret")?;
    let first = look(None, "ann%40SDAM.TEST", HOST)?;
    realm.obtain_ticket("ann", "secret")?;
    let others = [
        ("kinit -R", look(Some("+20h"), "ann", HOST)?),
        ("SERVICE_NAME", look(None, "ann", HOST)?),
        ("krb5.conf", look(None, "ann%40OTHER.TEST:secret", HOST)?),
        ("check the password", look(None, "ann%40SDAM.TEST:wrong", HOST)?),
        ("check the user name", look(None, "eve%40SDAM.TEST:wrong", HOST)?),
        ("NTP", look(Some("+30m"), "ann", HOST)?),
    ];
    let row = |report: &Report, advice: &str| -> Result<Row, Failure> {
        let said = report.first("gssapiFailed")?;
        if !said.advice.contains(advice) {
            return Err(format!("{advice:?} is not advised: {said:?}").into());
        }
        Ok(Row::of(report, said).naming(&server, "a.example:27017"))
    };
    let mut rows = row(&first, "kinit")?;
    for (advice, report) in &others {
        rows = rows.with(row(report, advice)?);
    }
    Ok(rows)
}
