//! A socket in the hands of a thread, and of a task.

use std::future::poll_fn;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{self, Duration};

use sdam_core::time::Instant;
use sdam_host::Socket as _;

use super::{FRESH, Socket};
use crate::block_on::block_on;
use crate::engine::{Engine, EngineMode};

fn pair(engine: &Arc<Engine>) -> (UnixStream, Socket) {
    let (far, near) = UnixStream::pair().unwrap();
    let near = Arc::new(OwnedFd::from(near).into());
    (far, Socket::new(near, Arc::clone(engine), time::Instant::now()).unwrap())
}

async fn read(socket: &mut Socket, deadline: Option<Instant>) -> io::Result<usize> {
    poll_fn(|cx| socket.poll_read(cx, &mut [0; 8], deadline)).await
}

fn within(socket: &Socket, millis: u64) -> Option<Instant> {
    Some(socket.now() + Duration::from_millis(millis))
}

#[test]
fn a_thread_waits_as_long_as_it_may_and_no_longer() {
    let (mut far, mut socket) = pair(&Engine::new(EngineMode::Thread).unwrap());
    for millis in [0, 1, 30, 70] {
        let deadline = within(&socket, millis).unwrap();
        let error = block_on(read(&mut socket, Some(deadline))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(socket.now() >= deadline, "{millis} ms");
    }
    // A limit that had been set is none for what has no deadline, nor for what has a later one.
    for deadline in [None, within(&socket, 30_000)] {
        let far = far.try_clone().unwrap();
        let writer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            (&far).write_all(b"late").unwrap();
        });
        assert_eq!(block_on(read(&mut socket, deadline)).unwrap(), 4);
        writer.join().unwrap();
    }
    far.write_all(b"here").unwrap();
    let passed = Some(Instant::ZERO);
    assert_eq!(block_on(read(&mut socket, passed)).unwrap(), 4, "it had come in time");
}

#[test]
fn a_thread_that_cannot_write_gives_up_at_the_deadline() {
    let (_far, mut socket) = pair(&Engine::new(EngineMode::Thread).unwrap());
    let bytes = vec![0; 1 << 20];
    let deadline = within(&socket, 50);
    let error = loop {
        let write = poll_fn(|cx| socket.poll_write(cx, &bytes, deadline));
        if let Err(error) = block_on(write) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(socket.now() >= deadline.unwrap());
}

#[test]
fn a_thread_a_task_and_a_thread_use_it_in_turn() {
    let engine = Engine::new(EngineMode::Thread).unwrap();
    let (mut far, mut socket) = pair(&engine);
    far.write_all(b"thread").unwrap();
    let deadline = within(&socket, 30_000);
    assert_eq!(block_on(read(&mut socket, deadline)).unwrap(), 6);
    let (sender, receiver) = mpsc::channel();
    let mut task_far = far.try_clone().unwrap();
    engine.spawn(Box::pin(async move {
        let deadline = within(&socket, 5);
        let error = read(&mut socket, deadline).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(socket.now() >= deadline.unwrap());
        task_far.write_all(b"task").unwrap();
        assert_eq!(read(&mut socket, None).await.unwrap(), 4);
        sender.send(socket).unwrap();
    }));
    engine.block_on(engine.end());
    let mut socket = receiver.try_recv().unwrap();
    far.write_all(b"thread").unwrap();
    assert_eq!(block_on(read(&mut socket, None)).unwrap(), 6);
}

#[test]
fn what_is_unasked_or_the_end_disturbs_the_quiet() {
    let (mut far, mut socket) = pair(&Engine::new(EngineMode::Thread).unwrap());
    assert!(socket.is_quiet());
    far.write_all(b"!").unwrap();
    assert!(!socket.is_quiet());
    assert_eq!(block_on(read(&mut socket, None)).unwrap(), 1, "nothing was taken away");
    assert!(socket.is_quiet());
    drop(far);
    thread::sleep(FRESH);
    assert!(!socket.is_quiet());
}

#[test]
fn a_thread_that_blocks_can_be_interrupted() {
    let (_far, mut socket) = pair(&Engine::new(EngineMode::Thread).unwrap());
    let interrupt = socket.interrupter().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(10));
            interrupt();
        });
        assert_eq!(block_on(read(&mut socket, None)).unwrap(), 0);
    });
    drop(socket);
    interrupt();
}

/// A process that was forked off holds the stream, too.
#[test]
fn dropping_it_ends_the_stream_whoever_else_holds_it() {
    let (mut far, socket) = pair(&Engine::new(EngineMode::Thread).unwrap());
    let _held = socket.stream.try_clone().unwrap();
    drop(socket);
    assert_eq!(far.read(&mut [0; 1]).unwrap(), 0);
}
