//! A thread with a blocking socket for each task.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{ANSWER_LIMIT, Reply, message};
use crate::Failure;
use crate::load::on_threads;
use crate::raw::exchange;
use crate::sample::Sample;

pub(super) fn measure(
    address: SocketAddr,
    tasks: usize,
    window: Duration,
) -> Result<Sample, Failure> {
    let mut pingers = Vec::new();
    for _ in 0..tasks {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        let (message, mut reply): (_, Reply) = (message(), [0; _]);
        pingers.push(move || exchange(&mut stream, &message, &mut reply).map(drop));
    }
    on_threads(pingers, window)
}
