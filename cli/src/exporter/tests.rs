//! The server of pages, over streams in memory and with a clock that tests move.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::http::{
    Connections, IDLE_LIMIT, LIMIT, MAX_CONNECTIONS, MAX_HEAD_LEN, Page, Presence, converse,
};

/// A client of a server whose page counts how often it was made.
struct Client {
    stream: DuplexStream,
    server: JoinHandle<std::io::Result<()>>,
}

impl Client {
    fn new() -> Self {
        let (stream, other) = duplex(1 << 16);
        let count = AtomicUsize::new(0);
        let page: Page =
            Arc::new(move || format!("page {}\n", count.fetch_add(1, Ordering::Relaxed)));
        let server = tokio::spawn(async move { converse(other, &page, &presence()).await });
        Self { stream, server }
    }

    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.expect("it is read");
    }

    /// Returns the next response with a body: its head, and the body.
    async fn response(&mut self) -> (String, String) {
        let head = self.head().await;
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let mut body = vec![0; length.expect("a length").parse().expect("a number")];
        self.stream.read_exact(&mut body).await.expect("a body");
        (head, String::from_utf8(body).expect("text"))
    }

    async fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head.push(self.stream.read_u8().await.expect("a head").into());
        }
        head
    }

    /// Checks that the server ends the connection, having sent nothing more.
    async fn expect_end(mut self) {
        let mut rest = String::new();
        self.stream.read_to_string(&mut rest).await.expect("it ends");
        assert_eq!(rest, "");
        drop(self.stream);
        // It may have timed out.
        let _ = self.server.await.expect("it does not panic");
    }
}

/// Returns what a connection of its own is to others.
fn presence() -> Presence {
    Presence::new(&Arc::default())
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn one_connection_serves_one_request_after_the_other() {
    let mut client = Client::new();
    client.send(GET).await;
    let (head, body) = client.response().await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert!(head.contains("\r\nDate: ") && head.contains(" GMT\r\n") && !head.contains("close"));
    assert_eq!(body, "page 0\n");
    // Two at once, and a third in pieces.
    client.send(&format!("{GET}{GET}GET http://h/metrics?x=1 HT")).await;
    assert_eq!(client.response().await.1, "page 1\n");
    assert_eq!(client.response().await.1, "page 2\n");
    client.send("TP/1.1\r\nhost: h\r\nConnection: x, Close\r\n\r\n").await;
    let (head, body) = client.response().await;
    assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
    assert_eq!(body, "page 3\n");
    client.expect_end().await;
}

#[tokio::test(start_paused = true)]
async fn head_is_answered_without_a_body() {
    let mut client = Client::new();
    client.send("HEAD /metrics HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let head = client.head().await;
    assert!(head.contains("\r\nContent-Length: 7\r\n"), "{head}");
    client.send(GET).await;
    assert_eq!(client.response().await.1, "page 1\n");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_served_is_refused_with_a_status() {
    let long = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n", "x".repeat(MAX_HEAD_LEN));
    let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "A: b\r\n".repeat(64));
    for (request, status, ends) in [
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", "200 OK", false),
        ("GET /other HTTP/1.1\r\nHost: h\r\n\r\n", "404 Not Found", false),
        ("DELETE /metrics HTTP/1.1\r\nHost: h\r\n\r\n", "405 Method Not Allowed", false),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
            "405 Method Not Allowed",
            true,
        ),
        ("GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", "200 OK", true),
        ("GET /metrics HTTP/1.1\r\n\r\n", "400 Bad Request", true),
        ("GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", "400 Bad Request", true),
        ("GET / HTTP/1.0\r\n\r\n", "200 OK", true),
        ("\u{16}\u{3}\u{1}\u{2}\r\n\r\n", "400 Bad Request", true),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 HTTP Version Not Supported", true),
        (&long, "431 Request Header Fields Too Large", true),
        (&many, "431 Request Header Fields Too Large", true),
    ] {
        let mut client = Client::new();
        client.send(request).await;
        let (head, _) = client.response().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {head}");
        assert_eq!(head.contains("\r\nAllow: GET, HEAD\r\n"), status.starts_with("405"));
        assert_eq!(head.contains("\r\nConnection: close\r\n"), ends, "{request}: {head}");
        match ends {
            true => client.expect_end().await,
            false => client.send(GET).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_slow_or_idle_is_let_go() {
    for request in ["GET /metr", ""] {
        let (mut client, begun) = (Client::new(), Instant::now());
        client.send(request).await;
        client.expect_end().await;
        assert_eq!(begun.elapsed().as_secs(), LIMIT.as_secs(), "{request:?}");
    }
    let mut client = Client::new();
    client.send(GET).await;
    client.response().await;
    let begun = Instant::now();
    client.expect_end().await;
    assert_eq!(begun.elapsed().as_secs(), IDLE_LIMIT.as_secs());
}

/// As many as are served, and none of them says anything: the next client is answered at once.
#[tokio::test(start_paused = true)]
async fn those_that_say_nothing_make_room_for_others() {
    let (mut connections, mut silent) = (Connections::default(), Vec::new());
    let page: Page = Arc::new(|| "page\n".to_owned());
    let begun = Instant::now();
    for _ in 0..MAX_CONNECTIONS {
        let (stream, other) = duplex(1 << 16);
        connections.begin(other, &page).await;
        silent.push(stream);
    }
    // The first one asks, so that the second is the idlest.
    silent[0].write_all(GET.as_bytes()).await.expect("it is read");
    silent[0].read_u8().await.expect("an answer");
    let (mut stream, other) = duplex(1 << 16);
    connections.begin(other, &page).await;
    stream.write_all(GET.as_bytes()).await.expect("it is read");
    assert_eq!(stream.read_u8().await.expect("an answer"), b'H');
    assert_eq!(begun.elapsed().as_secs(), 0, "no reader waits");
    assert_eq!(silent[1].read(&mut [0]).await.expect("an end"), 0, "it has made room");
    silent[0].write_all(GET.as_bytes()).await.expect("it is still served");
}

/// One more than all that wait for what they have asked for waits for the first that has it.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_being_answered_is_not_cut_off() {
    let (mut connections, mut busy) = (Connections::default(), Vec::new());
    let page: Page = Arc::new(|| "x".repeat(1000));
    for _ in 0..MAX_CONNECTIONS {
        let (mut stream, other) = duplex(64);
        connections.begin(other, &page).await;
        stream.write_all(GET.as_bytes()).await.expect("it is read");
        stream.read_u8().await.expect("an answer");
        busy.push(stream);
    }
    let begun = Instant::now();
    let (mut stream, other) = duplex(1 << 16);
    connections.begin(other, &page).await;
    assert_eq!(begun.elapsed(), LIMIT, "until the first of those that do not read is let go");
    stream.write_all(GET.as_bytes()).await.expect("it is read");
    assert_eq!(stream.read_u8().await.expect("an answer"), b'H');
}

/// One that never reads what it has asked for.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_let_go() {
    let (mut stream, other) = duplex(64);
    let page: Page = Arc::new(|| "x".repeat(1000));
    let begun = Instant::now();
    let server = tokio::spawn(async move { converse(other, &page, &presence()).await });
    stream.write_all(GET.as_bytes()).await.expect("it is read");
    let ended = server.await.expect("it does not panic");
    assert_eq!(ended.expect_err("no reader is there").kind(), std::io::ErrorKind::TimedOut);
    assert_eq!(begun.elapsed(), LIMIT);
}
