//! A listening port whose connections have a thread each.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A listening port; dropping it closes it, and leaves its connections alone.
pub(super) struct Port {
    address: SocketAddr,
    is_closed: Arc<AtomicBool>,
}

impl Port {
    /// Listens, and serves each connection on a thread of its own.
    pub(super) fn open(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (serve, is_closed) = (Arc::new(serve), Arc::<AtomicBool>::default());
        let told = Arc::clone(&is_closed);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if told.load(Ordering::Relaxed) {
                    return;
                }
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(stream));
            }
        });
        Ok(Self { address, is_closed })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts, which sees it then.
        let _ = TcpStream::connect(self.address);
    }
}
