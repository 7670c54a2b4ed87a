//! The services that hand out credentials: an endpoint on loopback that answers as the test wants.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sdam::bson::DateTime;
use sdam::core::http::Endpoint;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::server::{ACCESS_KEY, SECRET_KEY, TOKEN};

/// An endpoint on loopback, and the requests it has received.
pub(crate) struct Http {
    pub(crate) endpoint: Endpoint,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
}

/// The endpoint's reaction when it has read a request.
pub(crate) enum Reaction {
    /// Sends this, and closes.
    Send(Vec<u8>),
    /// Sends these one after another, with pauses.
    Slowly(Vec<Vec<u8>>),
    /// Keeps it open, and says nothing.
    Hang,
}

impl Http {
    pub(crate) async fn start(react: impl Fn(&str) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (known, react) = (Arc::clone(&requests), Arc::new(react));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (known, react) = (Arc::clone(&known), Arc::clone(&react));
                tokio::spawn(async move {
                    let request = read_request(&mut stream).await;
                    let reaction = react(&request);
                    known.lock().unwrap().push(request);
                    match reaction {
                        // A client that does not want to hear it all has gone.
                        Reaction::Send(bytes) => drop(stream.write_all(&bytes).await),
                        Reaction::Slowly(parts) => {
                            for part in parts {
                                tokio::time::sleep(Duration::from_millis(5)).await;
                                drop(stream.write_all(&part).await);
                            }
                        }
                        Reaction::Hang => drop(stream.read(&mut [0]).await),
                    }
                });
            }
        });
        Self { endpoint: Endpoint::new("127.0.0.1", port, false), requests }
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

/// Reads a request to the end of its body.
async fn read_request(stream: &mut TcpStream) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 1024]);
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        if is_whole(&text) {
            break;
        }
    }
    text
}

/// Returns whether a request has come to the end of its body.
pub(crate) fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

pub(crate) fn json(token: &str, valid_for: Duration) -> String {
    let expires = DateTime::from_system_time(DateTime::now().to_system_time() + valid_for);
    let expires = expires.try_to_rfc3339_string().unwrap();
    format!(
        r#"{{"AccessKeyId": "{ACCESS_KEY}", "SecretAccessKey": "{SECRET_KEY}",
            "{token}": "{TOKEN}", "Expiration": "{expires}"}}"#
    )
}

pub(crate) fn ok(body: &str) -> Reaction {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    Reaction::Send((head + body).into_bytes())
}

/// Answers as ECS does, with credentials that are valid for an hour.
pub(crate) fn credentials(_: &str) -> Reaction {
    ok(&json("Token", Duration::from_secs(3600)))
}

/// Answers as the metadata of EC2 do.
pub(crate) fn metadata(request: &str) -> Reaction {
    let path = "/latest/meta-data/iam/security-credentials/";
    let has_token = request.contains("\r\nX-aws-ec2-metadata-token: session\r\n");
    match request.split(' ').collect::<Vec<_>>()[..2] {
        ["PUT", "/latest/api/token"] => ok("session"),
        ["GET", asked] if asked == path && has_token => ok("role"),
        ["GET", asked] if asked == format!("{path}role") && has_token => credentials(request),
        _ => Reaction::Send(b"HTTP/1.1 401 Unauthorized\r\n\r\n".to_vec()),
    }
}
