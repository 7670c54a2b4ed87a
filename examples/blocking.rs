//! Reads and writes documents from threads, without a runtime.
//!
//! ```sh
//! cargo run --example blocking --features blocking -- mongodb://localhost
//! ```
//!
//! Without a server at hand, `cargo run -p sdam-cli -- cluster --data` plays one, and says where.

use std::thread;
use std::time::Duration;

use sdam::blocking::{Client, Collection};
use sdam::{Document, Result, doc};

fn main() -> Result<()> {
    let uri = std::env::args().nth(1).unwrap_or_else(|| "mongodb://localhost".to_owned());
    let client = Client::connect(uri)?;
    let numbers: Collection<Document> = client.database("sdam_blocking").collection("numbers");
    numbers.drop().run()?;

    // Handles are cheap to clone, and may be used from any thread.
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let numbers = numbers.clone();
            thread::spawn(move || write(&numbers, writer))
        })
        .collect();
    for writer in writers {
        writer.join().expect("it does not panic")?;
    }

    let largest = numbers.find(doc! {}).sort(doc! { "value": -1 }).limit(3).run()?;
    for number in largest {
        println!("{}", number?.get_i32("value").unwrap_or_default());
    }
    let count = numbers.count_documents(doc! {}).timeout(Duration::from_secs(5)).run()?;
    println!("{count} numbers");
    numbers.drop().run()?;
    client.close();
    Ok(())
}

/// Writes ten numbers one by one.
fn write(numbers: &Collection<Document>, writer: i32) -> Result<()> {
    for value in writer * 10..(writer + 1) * 10 {
        numbers.insert_one(doc! { "value": value }).run()?;
    }
    Ok(())
}
