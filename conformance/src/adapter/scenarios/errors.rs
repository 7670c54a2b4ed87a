//! Errors as an application matches on them: the kind, the server, and what the server said.

use std::time::Duration;

use sdam_core::bson::{RawDocumentBuf, rawdoc};
use sdam_core::config::ServerAddress;
use sdam_core::selection::Criteria;
use sdam_host::{Error, ErrorKind, Runtime, Topology};

use super::Test;
use crate::adapter::Adapter;
use crate::adapter::fixture::{Fixture, Outcome, direct, ensure, ping};
use crate::adapter::scripted::{Scripted, ScriptedReply, is_hello, reply};

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        Test::new("errors::a_reply_is_told_with_its_code_and_labels", replied),
        Test::new("errors::a_connection_that_breaks_is_told_with_its_server", broken),
        Test::new("errors::a_login_that_is_refused_is_told_as_one", login),
        Test::new("errors::a_time_out_says_where_the_time_went", time_out),
        Test::new("errors::what_was_never_sent_is_told_as_such", unsent),
    ]
}

/// Starts a server that answers everything but hello in this way.
fn answering(answer: impl Fn(&str) -> ScriptedReply + Send + Sync + 'static) -> Outcome<Scripted> {
    Ok(Scripted::start(move |name, _| match is_hello(name) {
        true => reply(name),
        false => answer(name),
    })?)
}

fn hang() -> RawDocumentBuf {
    rawdoc! { "hang": 1 }
}

/// Runs a command that fails, and returns why.
fn failed<A: Adapter>(fixture: &Fixture<A>, client: &Topology<A::Runtime>) -> Outcome<Error> {
    let told = fixture.block_on(client.run_command("admin", &ping()));
    told.err().ok_or_else(|| "the command succeeds".into())
}

/// Checks what every error of the client's only server must say.
fn is_of<R: Runtime>(error: &Error, kind: ErrorKind, client: &Topology<R>) -> Outcome {
    is_of_server(error, kind, &client.view().servers()[0].address)
}

fn is_of_server(error: &Error, kind: ErrorKind, address: &ServerAddress) -> Outcome {
    ensure!(error.kind() == kind, "{error:?}");
    ensure!(error.server() == Some(address), "{error:?}");
    ensure!(error.to_string().contains(&address.to_string()), "{error}");
    Ok(())
}

fn replied<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let server = answering(|_| {
        ScriptedReply::Reply(rawdoc! {
            "ok": 0, "code": 112, "codeName": "WriteConflict", "errmsg": "planted",
            "errorLabels": ["TransientTransactionError"],
        })
    })?;
    let client = fixture.client(&server.uri())?;
    let error = failed(fixture, &client)?;
    is_of(&error, ErrorKind::Command, &client)?;
    ensure!(error.code() == Some(112), "{error:?}");
    ensure!(error.labels() == ["TransientTransactionError"], "{error:?}");
    let reply = error.reply().ok_or("there was a reply")?;
    ensure!((&*reply.code_name, &*reply.message) == ("WriteConflict", "planted"), "{reply:?}");
    ensure!(error.spent().is_some() && error.failure().is_none(), "{error:?}");
    let mut checked_out = fixture.block_on(fixture.primary(&client)?.check_out())?;
    let error = fixture.block_on(checked_out.command("admin", &ping())).err();
    is_of(&error.ok_or("the command succeeds")?, ErrorKind::Command, &client)
}

fn broken<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let server = answering(|_| ScriptedReply::HangUp)?;
    let client = fixture.client(&server.uri())?;
    let error = failed(fixture, &client)?;
    is_of(&error, ErrorKind::Network, &client)?;
    ensure!(error.as_operation().is_some() && error.code().is_none(), "{error:?}");
    // And one that cannot be opened at all.
    let client = fixture.client(&direct("127.0.0.1:1"))?;
    fixture.failure(&client)?;
    let connected = fixture.block_on(client.members()[0].connect()).err();
    let error = connected.ok_or("there is no listener")?;
    is_of(&error, ErrorKind::Network, &client)?;
    ensure!(error.as_check_out().is_some() && error.failure().is_some(), "{error:?}");
    ensure!(error.spent().is_some_and(|spent| spent.selecting.is_zero()), "{error:?}");
    Ok(())
}

fn login<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let server = answering(|_| {
        ScriptedReply::Reply(rawdoc! {
            "ok": 0, "code": 18, "codeName": "AuthenticationFailed", "errmsg": "planted",
        })
    })?;
    let uri = server.uri().replace("mongodb://", "mongodb://user:pencil@");
    let client = fixture.client(&format!("{uri}&authMechanism=SCRAM-SHA-256"))?;
    let error = failed(fixture, &client)?;
    is_of(&error, ErrorKind::Authentication, &client)?;
    ensure!(error.code() == Some(18) && error.as_check_out().is_some(), "{error:?}");
    Ok(())
}

fn time_out<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let time = Duration::from_millis(300);
    let server = Scripted::silent_on("hang")?;
    let client = fixture.client(&server.uri())?;
    fixture.block_on(client.run_command("admin", &ping()))?;
    let begun = client.now();
    let by = begun + Duration::from_secs(2);
    let hang = fixture.block_on(client.with_deadline(by).run_command("admin", &hang())).err();
    let error = hang.ok_or("there is a reply")?;
    ensure!(error.kind() == ErrorKind::Timeout, "{error:?}");
    // On a busy machine the time may have passed before the command was sent to any server.
    if error.as_operation().is_some() || error.as_check_out().is_some() {
        is_of(&error, ErrorKind::Timeout, &client)?;
        let spent = error.spent().ok_or("the time went somewhere")?;
        let all = spent.selecting + spent.checking_out + spent.exchanging;
        ensure!(all <= client.now() - begun && !all.is_zero(), "{error:?}");
    }
    let nobody = fixture.client(&direct("127.0.0.1:1"))?;
    let error = failed(fixture, &nobody.with_timeout(time))?;
    // CSOT, "Errors": it is a time-out, and what was being done then is within.
    ensure!(error.kind() == ErrorKind::Timeout && error.server().is_none(), "{error:?}");
    ensure!(error.as_selection().is_some(), "{error:?}");
    let spent = error.spent().ok_or("the time went somewhere")?;
    ensure!(spent.checking_out.is_zero() && spent.exchanging.is_zero(), "{error:?}");
    ensure!(error.verdict().is_some(), "{error:?}");
    Ok(())
}

fn unsent<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let server = answering(reply)?;
    let client = fixture.client(&server.uri())?;
    let empty = fixture.block_on(client.run_command("admin", &rawdoc! {})).err();
    let error = empty.ok_or("an empty command is sent")?;
    is_of(&error, ErrorKind::Invalid, &client)?;
    let primary = fixture.primary(&client)?;
    fixture.block_on(client.close());
    let refused = fixture.block_on(primary.check_out()).err().ok_or("the pool is open")?;
    is_of_server(&refused, ErrorKind::CheckOut, primary.address())?;
    let selected = fixture.block_on(client.select(Criteria::write()));
    let error = selected.err().ok_or("the client is open")?;
    ensure!(error.kind() == ErrorKind::Closed && error.server().is_none(), "{error:?}");
    ensure!(error.as_selection().is_some(), "{error:?}");
    Ok(())
}
