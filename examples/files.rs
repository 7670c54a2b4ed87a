//! A service over HTTP that streams files up and down: no file is held in memory, and a player or a
//! download that goes on gets the part that it asks for.
//!
//! ```sh
//! cargo run --example files -- 127.0.0.1:8080 'mongodb://localhost'
//! curl -T film.mkv -H 'Content-Type: video/x-matroska' http://127.0.0.1:8080/files/film.mkv
//! curl http://127.0.0.1:8080/files
//! curl -r 0-1023 http://127.0.0.1:8080/files/film.mkv
//! curl -X DELETE http://127.0.0.1:8080/files/film.mkv
//! ```
//!
//! Without a connection string it uses a replica set inside this process. It ends at Ctrl-C.

use std::error::Error;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures_core::Stream as _;
use sdam::error::GridFsErrorKind;
use sdam::options::GridFsBucketOptions;
use sdam::{Client, GridFsBucket, GridFsDownloadStream, doc};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use serde::Serialize;
use tokio::net::TcpListener;

/// The time that a file may take, both ways: a stream lasts as long as its client is slow.
const LIMIT: Duration = Duration::from_secs(3600);

/// The length that a file may have, in bytes.
const LONGEST: u64 = 10_000_000_000;

/// The number of files that a list has at most.
const PAGE: i64 = 100;

/// A file, as lists have it.
#[derive(Serialize)]
struct Listed {
    name: Option<String>,
    length: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = EmbeddedOptions::default().with_keeps_data(true);
    let embedded = EmbeddedCluster::start(options).await?;
    let mut arguments = std::env::args().skip(1);
    let at = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let uri = arguments.next().unwrap_or_else(|| embedded.uri());

    let client = Client::connect(uri).await?;
    let options = GridFsBucketOptions::builder().timeout(LIMIT).build();
    let bucket = client.database("sdam_files").gridfs_bucket_with_options(options);
    let service = Router::new()
        .route("/files", get(list))
        .route("/files/{name}", get(download).put(upload).delete(remove))
        .with_state(bucket);

    let listener = TcpListener::bind(at).await?;
    println!("listening at {}", listener.local_addr()?);
    axum::serve(listener, service).with_graceful_shutdown(end()).await?;
    client.close().await;
    Ok(())
}

/// Stores a file, while it comes; another one of its name stays, as an older revision.
///
/// If its client goes away in the middle, this future is dropped, or the body ends with an error:
/// the chunks are removed either way.
async fn upload(
    State(bucket): State<GridFsBucket>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Failure> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let metadata = kind.map(|kind| doc! { "contentType": kind });
    let mut upload = bucket.open_upload_stream(name).metadata(metadata).await?;
    let mut body = body.into_data_stream();
    while let Some(bytes) = poll_fn(|cx| Pin::new(&mut body).poll_next(cx)).await {
        let Ok(bytes) = bytes else {
            upload.abort().await?;
            return Ok(StatusCode::BAD_REQUEST);
        };
        upload.write_all(&bytes).await?;
        if upload.bytes_written() > LONGEST {
            upload.abort().await?;
            return Ok(StatusCode::PAYLOAD_TOO_LARGE);
        }
    }
    upload.close().await?;
    Ok(StatusCode::CREATED)
}

/// Sends the newest file of a name, or a part of it.
///
/// If the database fails in the middle, the connection ends before the length that was announced.
async fn download(
    State(bucket): State<GridFsBucket>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let whole = bucket.open_download_stream_by_name(name).await?;
    let length = whole.length();
    let Some(part) = part(&headers, length) else {
        return Ok(respond(StatusCode::OK, whole, length));
    };
    if part.is_empty() {
        let range = [(header::CONTENT_RANGE, format!("bytes */{length}"))];
        return Ok((StatusCode::RANGE_NOT_SATISFIABLE, range).into_response());
    }
    let stream = bucket.open_download_stream(whole.id().clone());
    let stream = stream.start(part.start).end(part.end).await?;
    let range = format!("bytes {}-{}/{length}", part.start, part.end - 1);
    let response = respond(StatusCode::PARTIAL_CONTENT, stream, part.end - part.start);
    Ok(([(header::CONTENT_RANGE, range)], response).into_response())
}

/// Makes a response of a stream that has so many bytes. It asks for chunks as its client reads.
fn respond(status: StatusCode, stream: GridFsDownloadStream, length: u64) -> Response {
    let metadata = stream.document().ok().and_then(|file| file.metadata);
    let kind = metadata.as_ref().and_then(|it| it.get_str("contentType").ok());
    let kind = kind.and_then(|kind| HeaderValue::from_str(kind).ok());
    let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_LENGTH, length.into()),
        (header::ACCEPT_RANGES, HeaderValue::from_static("bytes")),
        // What strangers have stored is not what it says that it is.
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (status, headers, Body::from_stream(stream)).into_response()
}

/// Returns the part that a request asks for, as `bytes=5-9`, `bytes=5-` or `bytes=-5`; it is empty
/// if the file does not have it. `None` is the whole, also for what is asked in another way.
fn part(headers: &HeaderMap, length: u64) -> Option<Range<u64>> {
    let asked = headers.get(header::RANGE)?.to_str().ok()?.strip_prefix("bytes=")?;
    let (first, last) = asked.split_once('-')?;
    match (first.parse::<u64>().ok(), last.parse::<u64>().ok()) {
        (Some(first), Some(last)) => Some(first..last.saturating_add(1).min(length)),
        (Some(first), None) if last.is_empty() => Some(first..length),
        (None, Some(last)) if first.is_empty() => Some(length.saturating_sub(last)..length),
        _ => None,
    }
}

async fn list(State(bucket): State<GridFsBucket>) -> Result<Json<Vec<Listed>>, Failure> {
    let mut found = bucket.find(doc! {}).sort(doc! { "filename": 1 }).limit(PAGE).await?;
    let mut files = Vec::new();
    while let Some(file) = found.try_next().await? {
        files.push(Listed { name: file.filename, length: file.length });
    }
    Ok(Json(files))
}

/// Deletes all files of a name.
async fn remove(
    State(bucket): State<GridFsBucket>,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    bucket.delete_by_name(name).await?;
    Ok(StatusCode::NO_CONTENT)
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
        let of_file = error.as_grid_fs();
        if of_file.is_some_and(|error| error.kind == GridFsErrorKind::FileNotFound) {
            return StatusCode::NOT_FOUND.into_response();
        }
        // Its text names servers and says where the time went: that is for the log.
        eprintln!("{error}");
        match error.is_timeout() {
            true => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            false => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

/// Waits for Ctrl-C.
async fn end() {
    tokio::signal::ctrl_c().await.expect("signals can be received");
}
