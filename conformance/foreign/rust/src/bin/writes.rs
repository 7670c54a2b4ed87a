//! The Rust driver, or sdam, writing one document after another, until standard input ends.
//!
//! Prints the time of each acknowledged write, in seconds since 1970, as `first_writes.py` reads
//! it.
//! The argument says whose client it is: `mongodb`, `sdam` or `sdam-blocking`.

use std::error::Error;
use std::fmt::Display;
use std::io::{Read, stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mongodb::bson::{Document, doc};
use tokio::time::sleep;

/// The time between two writes.
const PAUSE: Duration = Duration::from_millis(2);

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let uri = std::env::var("SDAM_URI")?;
    let ended = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&ended);
    thread::spawn(move || {
        // How it ends makes no difference.
        let _ = stdin().read_to_end(&mut Vec::new());
        end.store(true, Ordering::Relaxed);
    });
    let goes_on = || !ended.load(Ordering::Relaxed);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match std::env::args().nth(1).as_deref() {
        Some("mongodb") => runtime.block_on(official(&uri, goes_on)),
        Some("sdam") => runtime.block_on(ours(&uri, goes_on)),
        Some("sdam-blocking") => ours_blocking(&uri, goes_on),
        _ => Err("one argument is needed: mongodb, sdam or sdam-blocking".into()),
    }
}

async fn official(uri: &str, goes_on: impl Fn() -> bool) -> Outcome {
    let client = mongodb::Client::with_uri_str(uri).await?;
    let things = client.database("app").collection::<Document>("rust");
    while goes_on() {
        tell(things.insert_one(doc! { "at": 1 }).await);
        sleep(PAUSE).await;
    }
    client.shutdown().await;
    Ok(())
}

async fn ours(uri: &str, goes_on: impl Fn() -> bool) -> Outcome {
    let client = sdam::Client::connect(uri).await?;
    let things = client.database("app").collection::<Document>("sdam");
    while goes_on() {
        tell(things.insert_one(doc! { "at": 1 }).await);
        sleep(PAUSE).await;
    }
    Ok(())
}

fn ours_blocking(uri: &str, goes_on: impl Fn() -> bool) -> Outcome {
    let client = sdam::blocking::Client::connect(uri)?;
    let things = client.database("app").collection::<Document>("blocking");
    while goes_on() {
        tell(things.insert_one(doc! { "at": 1 }).run());
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Prints when a write was acknowledged, or why it was not.
fn tell<T>(written: Result<T, impl Display>) {
    match written {
        Ok(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            println!("{:.6}", now.as_secs_f64());
        }
        Err(error) => eprintln!("{error}"),
    }
}
