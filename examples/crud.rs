//! Inserts documents of a type of its own, finds, changes, counts and deletes them.
//!
//! ```sh
//! cargo run --example crud -- mongodb://localhost
//! ```
//!
//! Without a connection string it uses a replica set inside this process.

use std::error::Error;

use sdam::options::ReturnDocument;
use sdam::{Client, Collection, IndexModel, doc};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Book {
    title: String,
    author: String,
    year: i32,
    #[serde(default)]
    read: u32,
}

/// A row of an aggregation.
#[derive(Debug, Deserialize)]
struct Author {
    #[serde(rename = "_id")]
    name: String,
    books: u32,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = EmbeddedOptions::default().with_keeps_data(true);
    let embedded = EmbeddedCluster::start(options).await?;
    let uri = std::env::args().nth(1).unwrap_or_else(|| embedded.uri());
    let client = Client::connect(uri).await?;
    let library = client.database("sdam_crud");
    let books: Collection<Book> = library.collection("books");
    library.drop().await?;

    fill(&books).await?;
    find(&books).await?;
    change(&books).await?;
    library.drop().await?;
    client.close().await;
    Ok(())
}

async fn fill(books: &Collection<Book>) -> sdam::Result<()> {
    books.create_index(IndexModel::new(doc! { "title": 1 }).unique(true)).await?;
    let book = |title: &str, author: &str, year| Book {
        title: title.to_owned(),
        author: author.to_owned(),
        year,
        read: 0,
    };
    let emma = book("Emma", "Jane Austen", 1815);
    println!("inserted {}", books.insert_one(&emma).await?.inserted_id);
    let others = [
        book("Persuasion", "Jane Austen", 1817),
        book("Middlemarch", "George Eliot", 1871),
        book("Silas Marner", "George Eliot", 1861),
    ];
    println!("inserted {} more", books.insert_many(others).await?.inserted_ids.len());
    match books.insert_one(emma).await {
        Err(error) if error.is_duplicate_key() => println!("there is an Emma already"),
        outcome => println!("inserted {} again", outcome?.inserted_id),
    }
    Ok(())
}

async fn find(books: &Collection<Book>) -> sdam::Result<()> {
    let old = doc! { "year": { "$lt": 1870 } };
    let mut found = books.find(old.clone()).sort(doc! { "year": -1 }).limit(2).await?;
    while let Some(book) = found.try_next().await? {
        println!("{} by {}, {}", book.title, book.author, book.year);
    }
    let count = books.count_documents(old).await?;
    println!("{count} of {} are as old", books.estimated_document_count().await?);

    let by_author = doc! { "$group": { "_id": "$author", "books": { "$sum": 1 } } };
    let pipeline = [by_author, doc! { "$sort": { "_id": 1 } }];
    let mut authors = books.aggregate(pipeline).with_type::<Author>().await?;
    while let Some(author) = authors.try_next().await? {
        println!("{} has written {}", author.name, author.books);
    }
    Ok(())
}

async fn change(books: &Collection<Book>) -> sdam::Result<()> {
    let emma = doc! { "title": "Emma" };
    let read = doc! { "$inc": { "read": 1 } };
    let updated = books.update_one(emma.clone(), read.clone()).await?;
    println!("updated {}", updated.modified_count);
    let after = books.find_one_and_update(emma, read).return_document(ReturnDocument::After);
    println!("read {} times", after.await?.map_or(0, |book| book.read));

    let lost = doc! { "title": "Sanditon" };
    let text = doc! { "$set": { "author": "Jane Austen", "year": 1925 } };
    let upserted = books.update_one(lost.clone(), text).upsert(true).await?;
    println!("upserted: {}", upserted.upserted_id.is_some());
    println!("deleted {}", books.delete_one(lost).await?.deleted_count);
    Ok(())
}
