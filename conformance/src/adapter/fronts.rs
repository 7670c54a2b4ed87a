//! Other ways to a server: through TLS, and over a Unix domain socket.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::fixture::world;

/// A port that speaks TLS, and leads to a server; dropping it closes the port.
pub(super) struct TlsFront {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl TlsFront {
    /// Listens with the certificate and the key of a file.
    pub(super) fn start(server: SocketAddr, file: &str) -> io::Result<Self> {
        let certificate = CertificateDer::from_pem_file(file).map_err(io::Error::other)?;
        let key = PrivateKeyDer::from_pem_file(file).map_err(io::Error::other)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| {
                config.with_no_client_auth().with_single_cert(vec![certificate], key)
            })
            .map_err(io::Error::other)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = world().block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        let task = world().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // A client that refuses the certificate ends it here.
                    let mut client = acceptor.accept(client).await?;
                    let mut server = TcpStream::connect(server).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Ok(Self { address, task })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A Unix domain socket that leads to a server; dropping it removes the socket.
pub(super) struct UnixFront {
    folder: TempDir,
    task: JoinHandle<()>,
}

impl UnixFront {
    pub(super) fn start(server: SocketAddr) -> io::Result<Self> {
        let folder = TempDir::new()?;
        let _entered = world().enter();
        let listener = UnixListener::bind(folder.path().join("mongodb.sock"))?;
        let task = world().spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(server).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Ok(Self { folder, task })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("mongodb.sock")
    }
}

impl Drop for UnixFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}
