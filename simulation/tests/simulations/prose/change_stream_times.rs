//! Change Streams, as far as it is about time: the pace at which a stream begins again, the time
//! that a call may take, and what is saved while nothing happens.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::{Document, doc};
use sdam::checkpoint::CheckpointStore;
use sdam::error::Error;
use sdam::results::{ChangeStreamEvent, ResumeToken};
use sdam_host::ErrorKind;
use sdam_simulation::virtual_time::VirtualTime;

use super::Fixture;
use super::cursors::within;

const SECOND: Duration = Duration::from_secs(1);

/// The time that opening a stream may take in the simulated network.
const WAYS: Duration = Duration::from_millis(200);

/// CursorNotFound, which is always resumable.
fn not_found() -> Document {
    doc! { "failCommands": ["getMore"], "errorCode": 43 }
}

fn id(event: Option<Result<ChangeStreamEvent, Error>>) -> i32 {
    event.unwrap().unwrap().full_document.unwrap().get_i32("_id").unwrap()
}

/// "Resume Process": a stream goes on as often as its aggregate succeeds, "even in the absence of
/// any changes received by the cursor between resume attempts"; but not as fast as it fails.
#[test]
fn a_stream_that_fails_at_once_each_time_begins_again_at_a_pace() {
    const FAILURES: i32 = 20;
    let mut fixture = Fixture::new("");
    fixture.fail(fixture.primary(), doc! { "times": FAILURES }, not_found());
    let (things, time) = (fixture.things(), fixture.simulation.time());
    fixture.begin(async move {
        // Each attempt before that finds nothing.
        time.sleep(20 * SECOND).await;
        things.insert_one(&doc! { "_id": 1 }).await.unwrap();
    });
    let things = fixture.things();
    let (read, _) = fixture.run(async move { id(things.watch().await.unwrap().next().await) });
    assert_eq!(read, 1);
    let opened = fixture.started("aggregate");
    assert_eq!(opened.len(), FAILURES as usize + 1);
    // The first at once, the others after half of 5 ms, 7.5 ms and so on at the least, up to half a
    // second.
    let failed = fixture.ended("getMore");
    let pauses: Vec<_> =
        opened[1..].iter().zip(&failed).map(|(again, failed)| *again - failed.at).collect();
    assert!(pauses[0] < Duration::from_millis(1), "{pauses:?}");
    for (n, pause) in (0..).zip(&pauses[1..]) {
        let most = Duration::from_secs_f64((0.005 * 1.5_f64.powi(n)).min(0.5));
        assert!((most / 2..=most).contains(pause), "{n}: {pauses:?}");
    }
}

/// Client Side Operations Timeout, "Change Streams": the time of a call "MUST apply to the entirety
/// of the initial getMore and all commands sent as part of the resume attempt", pauses too, and is
/// no end of the stream.
#[test]
fn the_time_of_a_call_ends_its_attempts_at_beginning_again() {
    let mut fixture = Fixture::new("");
    fixture.fail(fixture.primary(), "alwaysOn", not_found());
    let things = fixture.things();
    let (mut stream, took) = fixture.run(async move {
        let mut stream = things.watch().timeout(SECOND).await.unwrap();
        let error = stream.next().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(stream.is_alive());
        stream
    });
    assert!((SECOND..SECOND + WAYS).contains(&took), "{took:?}");
    // Pauses of 5 ms, 7.5 ms and so on: a dozen at the most are over in a second.
    let attempts = fixture.started("aggregate").len();
    assert!((8..16).contains(&attempts), "{attempts}");
    fixture.fail(fixture.primary(), "off", not_found());
    let things = fixture.things();
    fixture.run(async move {
        things.insert_one(&doc! { "_id": 1 }).await.unwrap();
        assert_eq!(id(stream.next().await), 1);
    });
}

/// Client Side Operations Timeout, "Change Streams": "If a `next` call fails with a timeout error,
/// drivers MUST NOT invalidate the change stream. The subsequent `next` call MUST perform a resume
/// attempt".
#[test]
fn a_call_behind_one_whose_time_was_over_begins_again_first() {
    let mut fixture = Fixture::new("");
    let blocks =
        doc! { "failCommands": ["getMore"], "blockConnection": true, "blockTimeMS": 15_000 };
    fixture.fail(fixture.primary(), doc! { "times": 1 }, blocks);
    let things = fixture.things();
    let (mut stream, took) = fixture.run(async move {
        let mut stream = things.watch().timeout(10 * SECOND).await.unwrap();
        let error = stream.next().await.unwrap().unwrap_err();
        assert!(error.is_timeout() && stream.is_alive(), "{error}");
        stream
    });
    assert!((10 * SECOND..10 * SECOND + WAYS).contains(&took), "{took:?}");
    assert_eq!(fixture.started("aggregate").len(), 1);
    let things = fixture.things();
    fixture.run(async move {
        things.insert_one(&doc! { "_id": 1 }).await.unwrap();
        assert_eq!(id(stream.next().await), 1);
    });
    let (opened, asked) = (fixture.started("aggregate"), fixture.started("getMore"));
    // The event is in the first batch.
    assert_eq!((opened.len(), asked.len()), (2, 1), "{opened:?} {asked:?}");
}

/// The error of a call whose time was over counts all of it, and not its last command alone; that
/// of a call of a cursor does, too.
#[test]
fn the_error_of_a_call_that_was_late_says_how_long_all_of_it_took() {
    let mut fixture = Fixture::new("");
    let things = fixture.things();
    let (error, _) = fixture.run(async move {
        let watch = things.watch().max_await_time(SECOND / 5).timeout(2 * SECOND);
        let mut stream = watch.await.unwrap();
        stream.next().await.unwrap().unwrap_err()
    });
    assert!(error.is_timeout(), "{error}");
    assert!(fixture.started("getMore").len() > 5);
    let spent = error.spent().unwrap();
    let in_all = spent.exchanging + spent.before;
    assert!((2 * SECOND..2 * SECOND + WAYS).contains(&in_all), "{error}");
    assert!(
        spent.exchanging < SECOND / 2 && error.to_string().contains(" ms into what"),
        "{error}"
    );
}

/// docs/change-streams.md: a call that waits for a change ends with its client, however long its
/// server would let it wait.
#[test]
fn a_call_that_waits_ends_when_the_client_is_closed() {
    let mut fixture = Fixture::new("");
    let (things, time) = (fixture.things(), fixture.simulation.time());
    let client = fixture.client.clone();
    fixture.begin(async move {
        time.sleep(SECOND).await;
        client.close().await;
    });
    let (_, took) = fixture.run(async move {
        let mut stream = things.watch().max_await_time(20 * SECOND).await.unwrap();
        let error = stream.next().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    });
    assert!((SECOND..SECOND + 2 * WAYS).contains(&took), "{took:?}");
}

/// A store that keeps each token, and when it was saved.
struct Memory {
    time: VirtualTime,
    saved: Mutex<Vec<(Duration, ResumeToken)>>,
}

impl CheckpointStore for Memory {
    async fn load(&self) -> sdam::Result<Option<ResumeToken>> {
        Ok(None)
    }

    async fn save(&self, token: &ResumeToken) -> sdam::Result<()> {
        self.saved.lock().unwrap().push((self.time.elapsed(), token.clone()));
        Ok(())
    }
}

/// A store that takes its time: to load, and with each token in turn, from the last on for ever.
struct Slow {
    time: VirtualTime,
    load: Duration,
    saves: Mutex<Vec<Duration>>,
}

impl Slow {
    /// Takes the times of the saves from the last one to the first.
    fn new(time: VirtualTime, load: Duration, saves: &[Duration]) -> Self {
        Self { time, load, saves: Mutex::new(saves.to_vec()) }
    }
}

impl CheckpointStore for Slow {
    async fn load(&self) -> sdam::Result<Option<ResumeToken>> {
        self.time.sleep(self.load).await;
        Ok(None)
    }

    async fn save(&self, _: &ResumeToken) -> sdam::Result<()> {
        let takes = self.saves.lock().unwrap().pop();
        match takes {
            Some(takes) => self.time.sleep(takes).await,
            None => std::future::pending().await,
        }
        Ok(())
    }
}

/// Client Side Operations Timeout, "Change Streams": `timeoutMS` limits what opens the stream, its
/// first checkpoint too, and the cursor is closed then.
#[test]
fn the_first_checkpoint_has_the_time_of_the_call() {
    let mut fixture = Fixture::new("");
    let things = fixture.things();
    let stuck = Slow::new(fixture.simulation.time(), Duration::ZERO, &[]);
    let (_, took) = fixture.run(async move {
        let error = things.watch().checkpoint(stuck).timeout(SECOND).await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert!(error.to_string().contains("was not saved"), "{error}");
    });
    assert!((SECOND..SECOND + WAYS).contains(&took), "{took:?}");
    let time = fixture.simulation.time();
    fixture.run(async move { time.sleep(WAYS).await });
    assert_eq!(fixture.started("killCursors").len(), 1);
}

/// The same of what a store is asked for before that, and of both together.
#[test]
fn what_a_store_loads_has_the_time_of_the_call() {
    let mut fixture = Fixture::new("");
    let (things, time) = (fixture.things(), fixture.simulation.time());
    let stuck = Slow::new(time.clone(), SECOND * 1_000, &[]);
    let (_, took) = fixture.run(async move {
        let error = things.watch().checkpoint(stuck).timeout(SECOND).await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert!(error.to_string().contains("was not loaded"), "{error}");
    });
    assert!((SECOND..SECOND + WAYS).contains(&took), "{took:?}");
    assert_eq!(fixture.started("aggregate").len(), 0);

    let blocks = doc! {
        "failCommands": ["aggregate"], "blockConnection": true, "blockTimeMS": 600,
    };
    fixture.fail(fixture.primary(), doc! { "times": 1 }, blocks);
    let things = fixture.things();
    let slow = Slow::new(time, SECOND * 6 / 10, &[Duration::ZERO]);
    let (_, took) = fixture.run(async move {
        let error = things.watch().checkpoint(slow).timeout(SECOND).await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
    });
    assert!((SECOND..SECOND + WAYS).contains(&took), "{took:?}");
}

/// Client Side Operations Timeout, "Change Streams": the time of a call for the next event limits
/// what it waits for, the token of the event before too; the save goes on, and the stream with it.
#[test]
fn later_checkpoints_have_the_times_of_the_calls_that_wait_for_them() {
    let mut fixture = Fixture::new("");
    let (things, time) = (fixture.things(), fixture.simulation.time());
    let slow = Slow::new(time.clone(), Duration::ZERO, &[SECOND * 5 / 2, Duration::ZERO]);
    let others = fixture.things();
    fixture.run(async move {
        let mut stream = things.watch().checkpoint(slow).timeout(SECOND).await.unwrap();
        others.insert_many(&[doc! { "_id": 1 }, doc! { "_id": 2 }]).await.unwrap();
        assert_eq!(id(stream.next().await), 1);
        for _ in 0..2 {
            let began = time.elapsed();
            let error = stream.next().await.unwrap().unwrap_err();
            assert!(error.is_timeout() && error.to_string().contains("was not saved"), "{error}");
            assert_eq!(time.elapsed() - began, SECOND);
        }
        assert_eq!(id(stream.next().await), 2);
        let began = time.elapsed();
        let error = stream.save_checkpoint().await.unwrap_err();
        assert!(error.is_timeout() && stream.is_alive(), "{error}");
        assert_eq!(time.elapsed() - began, SECOND);
    });
}

/// The same of a call that waits for a store, with a limit or without one.
#[test]
fn a_call_that_waits_for_a_store_ends_when_the_client_is_closed() {
    for limit in [Duration::ZERO, 60 * SECOND] {
        let mut fixture = Fixture::new("");
        let (things, time) = (fixture.things(), fixture.simulation.time());
        let slow = Slow::new(time.clone(), Duration::ZERO, &[Duration::ZERO]);
        let client = fixture.client.clone();
        fixture.begin(async move {
            time.sleep(SECOND).await;
            client.close().await;
        });
        let (_, took) = fixture.run(async move {
            let mut stream = things.watch().checkpoint(slow).timeout(limit).await.unwrap();
            things.insert_one(&doc! { "_id": 1 }).await.unwrap();
            assert_eq!(id(stream.next().await), 1);
            for _ in 0..2 {
                let error = stream.next().await.unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
            }
        });
        assert!((SECOND..SECOND + 2 * WAYS).contains(&took), "{took:?}");
    }
}

/// "users intending to store the resume token should use this method to get the most up to date
/// resume token" ("Not Blocking on Iteration"): while others write and the stream has no event, its
/// place is saved every ten seconds.
#[test]
fn the_place_of_a_stream_moves_on_in_its_store_while_nothing_happens() {
    let mut fixture = Fixture::new("");
    let (things, time) = (fixture.things(), fixture.simulation.time());
    let store = Arc::new(Memory { time: time.clone(), saved: Mutex::default() });
    let others = fixture.client.database("app").collection::<Document>("others");
    let writing = fixture.simulation.time();
    fixture.begin(async move {
        for id in 0..40 {
            others.insert_one(&doc! { "_id": id }).await.unwrap();
            writing.sleep(SECOND).await;
        }
    });
    let kept = Arc::clone(&store);
    fixture.run(async move {
        let mut stream = things.watch().checkpoint(kept).await.unwrap();
        assert!(within(&time, 35 * SECOND, stream.next()).await.is_none(), "nothing happens");
    });
    let saved = store.saved.lock().unwrap();
    assert_eq!(saved.len(), 4, "the first, and three more: {saved:?}");
    for pair in saved.windows(2) {
        let [(earlier, before), (later, after)] = pair else { unreachable!("there are two") };
        assert!((10 * SECOND..12 * SECOND).contains(&(*later - *earlier)), "{saved:?}");
        assert_ne!(before, after);
    }
}
