//! PLAIN against a server behind TLS, which is where a password may be shown.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use crate::fake_server::{FakeServer, error, first_key, payload, sasl, soon};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sdam_cluster::certificates::Authority;
use sdam_core::bson::{RawDocument, rawdoc};
use sdam_core::config::Options;
use sdam_tokio::Topology;

/// A server that knows one user by PLAIN.
async fn server() -> FakeServer {
    FakeServer::start(Arc::new(|_, command: &RawDocument| {
        Some(match &*first_key(command) {
            "saslStart" => {
                assert_eq!(command.get_str("mechanism").ok(), Some("PLAIN"));
                assert_eq!(command.get_str("$db").ok(), Some("$external"));
                match payload(command) {
                    b"\0user\0planted" => sasl(true, b""),
                    _ => error(18),
                }
            }
            _ => rawdoc! { "ok": 1 },
        })
    }))
    .await
}

/// Opens a port that speaks TLS with the certificate and key of a file, and leads to `server`.
fn behind_tls(server: SocketAddr, file: &str) -> u16 {
    let certificate = CertificateDer::from_pem_file(file).unwrap();
    let key = PrivateKeyDer::from_pem_file(file).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let stream = StreamOwned::new(connection, client);
            thread::spawn(move || forward(stream, TcpStream::connect(server).unwrap()));
        }
    });
    port
}

/// Moves one request to the server and one reply back, in turn.
fn forward(mut client: StreamOwned<ServerConnection, TcpStream>, mut server: TcpStream) {
    let mut buffer = vec![0; 16_384];
    while let Ok(count @ 1..) = client.read(&mut buffer) {
        server.write_all(&buffer[..count]).unwrap();
        let Ok(count @ 1..) = server.read(&mut buffer) else { return };
        if client.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn the_password_is_shown_through_tls_only() {
    // Authentication, "PLAIN": "MUST be used with TLS"
    let (server, authority) = (server().await, Authority::new("ours").unwrap());
    let port = behind_tls(server.address, &authority.issue("db", &["127.0.0.1"]).unwrap());
    let uri = |password: &str, port, tls: &str| {
        format!("mongodb://user:{password}@127.0.0.1:{port}/?authMechanism=PLAIN{tls}")
    };
    let with_tls = format!("&tls=true&tlsCAFile={}", authority.file());
    let run = async |uri: String| {
        let client = Topology::new(Options::parse(&uri).unwrap()).unwrap();
        let reply = soon(client.run_command("admin", &rawdoc! { "ping": 1 })).await;
        reply.map(drop).map_err(|error| error.to_string())
    };
    run(uri("planted", port, &with_tls)).await.unwrap();
    assert_eq!((server.count("saslStart"), server.count("ping")), (1, 1));
    let refused = run(uri("planted2", port, &with_tls)).await.unwrap_err();
    assert!(refused.contains("18") && !refused.contains("planted"), "{refused}");
    let refused = run(uri("planted", server.address.port(), "")).await.unwrap_err();
    assert!(refused.contains("TLS") && !refused.contains("planted"), "{refused}");
    assert_eq!(server.count("saslStart"), 2);
}
