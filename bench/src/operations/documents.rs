//! Documents as applications have them: some ten fields, 240 bytes.

use bson::{DateTime, Document, doc};
use serde::{Deserialize, Serialize};

/// A document as a struct, without an `_id`, which is the driver's to make.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Book {
    title: String,
    author: String,
    language: String,
    year: i32,
    pages: i32,
    price: f64,
    lent: bool,
    times_lent: i64,
    subjects: Vec<String>,
    bought: DateTime,
}

/// The same with an `_id`, as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Stored {
    #[serde(rename = "_id")]
    id: i32,
    #[serde(flatten)]
    book: Book,
}

impl Book {
    pub(crate) fn of(number: i32) -> Self {
        Self {
            title: format!("Sense and Sensibility, volume {number}"),
            author: "Jane Austen".to_owned(),
            language: "English".to_owned(),
            year: 1811 + number % 200,
            pages: 409,
            price: 12.5,
            lent: number % 3 == 0,
            times_lent: i64::from(number) * 7,
            subjects: ["novel", "sisters", "manners"].map(str::to_owned).to_vec(),
            bought: DateTime::from_millis(1_700_000_000_000 + i64::from(number)),
        }
    }
}

impl Stored {
    pub(crate) fn of(number: i32) -> Self {
        Self { id: number, book: Book::of(number) }
    }
}

/// Makes the document of [`Book::of`] without a type of its own.
pub(crate) fn untyped(number: i32) -> Document {
    let Book { title, author, language, year, pages, price, lent, times_lent, subjects, bought } =
        Book::of(number);
    doc! {
        "title": title,
        "author": author,
        "language": language,
        "year": year,
        "pages": pages,
        "price": price,
        "lent": lent,
        "times_lent": times_lent,
        "subjects": subjects,
        "bought": bought,
    }
}
