//! A receiver of OTLP over HTTP on loopback, in place of a collector, and a client for it: what is
//! sent is the protocol's own, and so are the types that it is read as.

use std::future::Future;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::ScopeSpans;
use prost::Message;

/// A collector: what it has received, in the order of requests.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    requests: Receiver<ExportTraceServiceRequest>,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (received, requests) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                receive(&stream.unwrap(), &received).unwrap();
            }
        });
        Self { address, requests }
    }

    /// Takes what was received until now: the sender waits for an answer.
    pub(crate) fn take(&self) -> Vec<ScopeSpans> {
        let resources = self.requests.try_iter().flat_map(|request| request.resource_spans);
        resources.flat_map(|resource| resource.scope_spans).collect()
    }
}

/// Receives one request, and answers it.
fn receive(mut stream: &TcpStream, received: &Sender<ExportTraceServiceRequest>) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if reader.read_until(b'\n', &mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(head.starts_with("post /v1/traces "), "{head}");
    assert!(head.contains("content-type: application/x-protobuf\r\n"), "{head}");
    let mut lines = head.lines().filter_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; lines.next().unwrap().parse().unwrap()];
    reader.read_exact(&mut body)?;
    let request = ExportTraceServiceRequest::decode(&*body).unwrap();
    // The receiver may be gone.
    let _ = received.send(request);
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

/// A client for exporters, with a connection for each request.
#[derive(Debug)]
pub(crate) struct HttpOnLoopback;

type Sending<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for HttpOnLoopback {
    fn send_bytes<'a: 'b, 'b>(&'a self, request: Request<Bytes>) -> Sending<'b> {
        Box::pin(async move { Ok(send(&request)?) })
    }
}

fn send(request: &Request<Bytes>) -> io::Result<Response<Bytes>> {
    let (uri, body) = (request.uri(), request.body());
    let mut stream = TcpStream::connect(uri.authority().unwrap().as_str())?;
    let mut head = format!("{} {} HTTP/1.1\r\nHost: collector\r\n", request.method(), uri.path());
    for (name, value) in request.headers() {
        head += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    head += &format!("Content-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    Ok(Response::new(Bytes::new()))
}
