//! The handles of applications: the client's views, the servers it leads to, and the deadlines of
//! operations.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use bson::rawdoc;

use super::fixture::{Fixture, Task};
use super::forks::in_child;
use super::puppet::Puppet;
use super::{host, pass, polling_host};
use crate::client::Topology;
use crate::client::driver::DriverTopology;
use crate::error::ClientError;
use crate::sync::lock;
use sdam_core::config::metadata::DriverInfo;
use sdam_core::config::{Options, ReadMode, ReadPreference};
use sdam_core::description::{ServerType, TopologyType};
use sdam_core::dns::srv::SrvRecord;
use sdam_core::failure::{Cause, Failure, Stage as Step};
use sdam_core::selection::Criteria;

fn client(fixture: &Fixture) -> Topology<Puppet> {
    Topology::from_host(Arc::clone(&fixture.host))
}

#[test]
fn a_client_tells_what_is_known_and_leads_to_its_members() {
    let fixture = Fixture::new("");
    let client = client(&fixture);
    assert_eq!(client.view().servers()[0].server_type, ServerType::Standalone);
    assert!(client.diagnose(&Criteria::write()).is_none());
    let members = client.members();
    assert_eq!(members.len(), 1);
    assert_eq!(members[0].topology_type(), TopologyType::Single);
    let address = "a:27017".parse().unwrap();
    assert_eq!(client.member(&address).unwrap().address(), &address);
    assert!(client.member(&"b:27017".parse().unwrap()).is_none());

    let host = host("mongodb://a", false);
    host.ring();
    let unknown = Topology::from_host(host);
    assert_eq!(unknown.view().servers()[0].server_type, ServerType::Unknown);
    let error = unknown.diagnose(&Criteria::write()).expect("nothing is known yet");
    assert!(error.to_string().contains("a:27017"), "{error}");
}

/// The test holds the locks, so that taking one would block for ever.
#[test]
fn selecting_from_what_is_known_takes_no_lock_no_memory_and_no_look_at_the_clock() {
    let fixture = Fixture::new("");
    let (client, criteria) = (client(&fixture), Arc::new(Criteria::write()));
    let server = client.members().remove(0);
    let (state, pool) = (lock(&fixture.host.topology), lock(&server.server().state));
    // Reading the clock would stop the process.
    *lock(&fixture.host.runtime().stops) = Some(Duration::from_secs(1));
    let mut selected = None;
    let allocated = allocation_counter::measure(|| {
        selected = client.select_now(Arc::clone(&criteria)).ok();
    });
    assert_eq!(allocated.count_total, 0);
    assert_eq!(selected.unwrap().address(), server.address());
    let mut selecting = Task::new(client.select(Arc::clone(&criteria)));
    assert!(selecting.poll().is_ready(), "it begins with that");
    assert!(lock(&fixture.host.runtime().stops).is_some());
    drop((state, pool));

    let secondary = ReadPreference::new(ReadMode::Secondary);
    let unknown = Topology::from_host(host("mongodb://a", false));
    let returned = unknown.select_now(Criteria::read(secondary.clone())).unwrap_err();
    assert_eq!(returned.read_preference(), Some(&secondary));
    let one = Fixture::single_threaded("");
    let scans = Topology::from_host(Arc::clone(&one.host));
    scans.select_now(Arc::clone(&criteria)).expect_err("a scan may be due");
    in_child(|| client.select_now(criteria).expect_err("it is of no use in a fork"));
}

/// Server Monitoring, "Requesting an immediate check": not within minHeartbeatFrequencyMS.
#[test]
fn whoever_asks_for_a_check_gets_it_500_ms_after_the_last_one() {
    let fixture = Fixture::new("&serverMonitoringMode=poll");
    let client = client(&fixture);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(fixture.link.poll_outgoing(&mut cx).is_pending());
    fixture.pass(Duration::from_millis(100));
    client.request_check();
    fixture.pass(Duration::from_millis(399));
    assert!(fixture.link.poll_outgoing(&mut cx).is_pending());
    fixture.pass(Duration::from_millis(1));
    assert!(fixture.link.poll_outgoing(&mut cx).is_ready(), "ten seconds would be the frequency");
}

/// Handshake, "Metadata updates": connections that are made afterwards send it.
#[test]
fn a_library_that_wraps_this_one_is_named_by_connections_from_then_on() {
    let fixture = Fixture::new("");
    let client = client(&fixture);
    let drivers = || {
        let hello = lock(&fixture.server.commands).pop().unwrap();
        let driver = hello.get_document("client").unwrap().get_document("driver").unwrap();
        driver.get_str("name").unwrap().to_owned()
    };
    let selected = fixture.run(client.select(Criteria::write())).unwrap();
    let first = fixture.run(selected.check_out()).unwrap();
    let before = drivers();
    client.append_metadata(DriverInfo::new("wrapper", Some("1.0"), None).unwrap());
    let second = fixture.run(selected.check_out()).unwrap();
    assert_eq!(drivers(), format!("{before}|wrapper"));
    drop((first, second));
}

#[test]
fn loans_end_by_the_deadline_of_the_client_that_they_come_from() {
    let fixture = Fixture::new("");
    let client = client(&fixture);
    let loan_of = |client: &Topology<Puppet>| {
        let selected = fixture.run(client.select(Criteria::write())).unwrap();
        fixture.run(selected.check_out()).unwrap().deadline()
    };
    assert_eq!(loan_of(&client), None);
    let deadline = fixture.now() + Duration::from_secs(7);
    assert_eq!(loan_of(&client.with_deadline(deadline)), Some(deadline));
    assert_eq!(loan_of(&client.with_timeout(Duration::from_secs(7)).clone()), Some(deadline));
    let member = client.with_deadline(deadline).members().remove(0);
    assert_eq!(fixture.run(member.check_out()).unwrap().deadline(), Some(deadline));
}

#[test]
fn options_whose_servers_are_to_be_looked_up_make_no_client_yet() {
    let options = Options::parse("mongodb+srv://cluster.example.com").unwrap();
    let error = ClientError::unless_resolved(&options).unwrap_err();
    assert!(error.to_string().contains("cluster.example.com"), "{error}");
    assert!(ClientError::unless_resolved(polling_host(false).options()).is_ok());
    assert!(ClientError::unless_resolved(&Options::parse("mongodb://a").unwrap()).is_ok());
}

/// One server leaves as another one joins: the list of pools has as many as before.
#[test]
fn members_are_those_of_the_view_when_one_has_taken_the_place_of_another() {
    let host = polling_host(false);
    let client = Topology::from_host(Arc::clone(&host));
    let hosts = || -> Vec<String> {
        let members = client.members();
        members.iter().map(|member| member.address().host().to_owned()).collect()
    };
    assert_eq!(hosts(), ["a.example.com"]);
    let record = |host: &str| SrvRecord::new(host, 27017, Duration::ZERO);
    for names in [&["b.example.com"][..], &["b.example.com", "c.example.com"], &["c.example.com"]] {
        let rescan = lock(&host.runtime().rescans).pop().expect("a rescan");
        rescan.ended(Ok(names.iter().map(|name| record(name)).collect()));
        assert_eq!(hosts(), names);
        pass(&host, Duration::from_secs(60));
    }
}

/// The labels by which applications decide what to retry.
#[test]
fn errors_of_commands_have_the_labels_of_what_went_wrong() {
    let fixture = Fixture::new("");
    let client = client(&fixture);
    let ping = rawdoc! { "ping": 1 };
    *lock(&fixture.server.reply) = Some(rawdoc! {
        "ok": 0, "code": 189, "errmsg": "no", "errorLabels": ["RetryableWriteError"],
    });
    let error = fixture.run(client.run_command("admin", &ping)).unwrap_err();
    assert_eq!(error.labels(), ["RetryableWriteError"]);

    let nearest = Criteria::read(ReadPreference::new(ReadMode::Nearest));
    let mut asked = Task::new(client.run_command_on(nearest, "admin", &ping));
    let failure = Failure::new(Step::Hello, Cause::Io, "gone");
    fixture.pass(Duration::from_secs(10));
    fixture.link.closed(failure);
    client.host().close();
    let std::task::Poll::Ready(Err(error)) = asked.poll() else { panic!("the error says so") };
    assert!(error.labels().is_empty(), "{error}");
}

/// Invariant: no task keeps a dropped client alive, be its executor slow, or one that goes on with
/// no task any more.
#[test]
fn a_task_of_a_client_ends_when_the_last_of_the_others_is_dropped_or_closed() {
    for closes in [false, true] {
        let host = host("mongodb://a", false);
        let (client, weak) = (Topology::from_host(Arc::clone(&host)), Arc::downgrade(&host));
        let kept = Arc::new(());
        let held = Arc::clone(&kept);
        client.clone().spawn(|client| async move {
            let _held = (client, held);
            std::future::pending::<()>().await;
        });
        let work = lock(&host.runtime().tasks).pop().expect("it was started");
        let mut task = Task::new(work);
        drop(host);
        assert!(task.poll().is_pending() && task.poll().is_pending());
        match closes {
            true => {
                let mut closing = Task::new(client.close());
                assert!(closing.poll().is_pending(), "its link has not ended");
            }
            false => {
                drop(client);
                assert!(weak.upgrade().is_none(), "nothing keeps the client");
            }
        }
        assert_eq!(Arc::strong_count(&kept), 1, "what the task has is let go");
        assert!(task.was_woken() && task.poll().is_ready());
    }
}

/// A task that closes or drops its client is given up when it waits next; one that begins later is
/// not polled at all.
#[test]
fn a_task_may_end_its_own_client() {
    let host = host("mongodb://a", false);
    let client = Topology::from_host(Arc::clone(&host));
    let (last, kept) = (client.clone(), Arc::new(()));
    let held = Arc::clone(&kept);
    client.spawn(|_| async move {
        let _held = held;
        last.close_now();
        std::future::pending::<()>().await;
    });
    let held = Arc::clone(&kept);
    let mut task = Task::new(lock(&host.runtime().tasks).pop().expect("it was started"));
    assert!(task.poll().is_ready());
    client.spawn(|_| async move {
        let _held = held;
        panic!("it is polled");
    });
    let mut late = Task::new(lock(&host.runtime().tasks).pop().expect("it was started"));
    assert_eq!(Arc::strong_count(&kept), 1);
    assert!(late.poll().is_ready());
}
