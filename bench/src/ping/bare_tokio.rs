//! A tokio task with a socket for each task.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Reply, message};
use crate::Failure;
use crate::load::{Work, on_tokio};
use crate::raw::is_whole;
use crate::sample::Sample;

pub(super) fn measure(
    address: SocketAddr,
    tasks: usize,
    window: Duration,
) -> Result<Sample, Failure> {
    let open = async {
        let mut pingers = Vec::new();
        for _ in 0..tasks {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            pingers.push(Bare { stream, message: message(), reply: [0; _] });
        }
        Ok(pingers)
    };
    on_tokio(open, window)
}

struct Bare {
    stream: TcpStream,
    message: Vec<u8>,
    reply: Reply,
}

impl Work for Bare {
    async fn once(&mut self) -> Result<(), Failure> {
        self.stream.write_all(&self.message).await?;
        let mut filled = 0;
        while !is_whole(&self.reply[..filled], self.reply.len())? {
            match self.stream.read(&mut self.reply[filled..]).await? {
                0 => return Err("the server hung up".into()),
                count => filled += count,
            }
        }
        Ok(())
    }
}
