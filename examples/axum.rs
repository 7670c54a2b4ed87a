//! A service over HTTP: a state that all requests share, a health check, and an orderly end.
//!
//! ```sh
//! cargo run --example axum -- 127.0.0.1:8080 'mongodb://localhost/?timeoutMS=5000'
//! curl --json '{ "title": "Emma", "year": 1815 }' http://127.0.0.1:8080/books
//! curl http://127.0.0.1:8080/books/Emma
//! curl http://127.0.0.1:8080/health
//! ```
//!
//! Without a connection string it uses a replica set inside this process. It ends at Ctrl-C and at
//! SIGTERM: requests that are under way are answered first, and the client is closed then.

use std::error::Error;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use sdam::{Client, Collection, ErrorKind, IndexModel, doc};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

/// The time that a health check may take: a load balancer does not wait for long.
const HEALTH_LIMIT: Duration = Duration::from_secs(1);

/// The number of books that a list has at most.
const PAGE: i64 = 100;

#[derive(Serialize, Deserialize)]
struct Book {
    title: String,
    year: i32,
}

/// All that requests share: handles are cheap to clone, and share one pool of connections.
#[derive(Clone)]
struct Shop {
    client: Client,
    books: Collection<Book>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = EmbeddedOptions::default().with_keeps_data(true);
    let embedded = EmbeddedCluster::start(options).await?;
    let mut arguments = std::env::args().skip(1);
    let at = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let uri = arguments.next().unwrap_or_else(|| embedded.uri());

    let client = Client::connect(uri).await?;
    let books = client.database("sdam_axum").collection("books");
    books.create_index(IndexModel::new(doc! { "title": 1 }).unique(true)).await?;
    let service = Router::new()
        .route("/books", get(list).post(add))
        .route("/books/{title}", get(find).delete(remove))
        .route("/health", get(health))
        .with_state(Shop { client: client.clone(), books });

    let listener = TcpListener::bind(at).await?;
    println!("listening at {}", listener.local_addr()?);
    axum::serve(listener, service).with_graceful_shutdown(end()).await?;
    client.close().await;
    println!("closed");
    Ok(())
}

async fn add(State(shop): State<Shop>, Json(book): Json<Book>) -> Result<StatusCode, Failure> {
    shop.books.insert_one(book).await?;
    Ok(StatusCode::CREATED)
}

async fn list(State(shop): State<Shop>) -> Result<Json<Vec<Book>>, Failure> {
    let found = shop.books.find(doc! {}).sort(doc! { "title": 1 }).limit(PAGE).await?;
    Ok(Json(found.try_collect::<Vec<_>>().await?))
}

async fn find(State(shop): State<Shop>, Path(title): Path<String>) -> Result<Response, Failure> {
    Ok(match shop.books.find_one(doc! { "title": title }).await? {
        Some(book) => Json(book).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    })
}

async fn remove(
    State(shop): State<Shop>,
    Path(title): Path<String>,
) -> Result<StatusCode, Failure> {
    let deleted = shop.books.delete_one(doc! { "title": title }).await?.deleted_count;
    Ok(if deleted == 0 { StatusCode::NOT_FOUND } else { StatusCode::NO_CONTENT })
}

/// Asks the primary for a sign of life, as writes need it.
async fn health(State(shop): State<Shop>) -> Result<&'static str, Failure> {
    let admin = shop.client.database("admin").with_timeout(HEALTH_LIMIT);
    admin.run_command(doc! { "ping": 1 }).await?;
    Ok("well")
}

/// An error of the database, as clients of the service see it.
struct Failure(sdam::Error);

impl From<sdam::Error> for Failure {
    fn from(error: sdam::Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self(error) = self;
        let is_elsewhere = error.is_timeout() || error.kind() == ErrorKind::Selection;
        let status = match error.is_duplicate_key() {
            true => return (StatusCode::CONFLICT, "there is such a book").into_response(),
            false if is_elsewhere => StatusCode::SERVICE_UNAVAILABLE,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        };
        // Its text names servers and says where the time went: that is for the log.
        eprintln!("{error}");
        status.into_response()
    }
}

/// Waits for Ctrl-C, or for the signal by which services are ended.
async fn end() {
    #[cfg(unix)]
    let terminated = async {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::terminate()).expect("signals can be received").recv().await;
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    tokio::select! {
        outcome = tokio::signal::ctrl_c() => outcome.expect("signals can be received"),
        () = terminated => {}
    }
}
