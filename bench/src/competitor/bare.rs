//! A thread with a blocking socket for each task.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{ANSWER_LIMIT, Reply, is_whole, message};
use sdam_bench::Failure;
use sdam_bench::load::on_threads;
use sdam_bench::sample::Sample;

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
        pingers.push(move || ping(&mut stream, &message, &mut reply));
    }
    on_threads(pingers, window)
}

fn ping(stream: &mut TcpStream, message: &[u8], reply: &mut Reply) -> Result<(), Failure> {
    stream.write_all(message)?;
    let mut filled = 0;
    while !is_whole(&reply[..filled])? {
        match stream.read(&mut reply[filled..])? {
            0 => return Err("the server hung up".into()),
            count => filled += count,
        }
    }
    Ok(())
}
