//! The poller of sockets: what an engine asks the system for.
//!
//! On Linux, a socket is made known once, for whatever becomes of it ([edge-triggered]), and a wait
//! is one system call. Elsewhere, the poller is armed before each wait for a socket.
//!
//! [edge-triggered]: https://man7.org/linux/man-pages/man7/epoll.7.html

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use linux::Poller;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) use elsewhere::Poller;

use super::Interest;

/// A socket that a wait has found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fired {
    pub(super) key: usize,
    /// The transfers that it is ready for.
    pub(super) interest: Interest,
    /// True if the peer sends nothing more, which is reported only once.
    pub(super) closed: bool,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::time::{Duration, Instant};

    use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
    use rustix::event::{EventfdFlags, Timespec, eventfd};
    use rustix::io::Errno;
    use socket2::Socket;

    use super::Fired;
    use crate::engine::Interest;

    /// The number of sockets that one look finds at most.
    const CAPACITY: usize = 64;

    /// The key of what other threads wake the poller by.
    const WAKE_UP: usize = usize::MAX;

    pub(in crate::engine) struct Poller {
        epoll: OwnedFd,
        wake_up: OwnedFd,
    }

    /// The longest wait.
    const DAY: Duration = Duration::from_secs(86_400);

    impl Poller {
        pub(in crate::engine) fn new() -> io::Result<Self> {
            let epoll = epoll::create(CreateFlags::CLOEXEC)?;
            let wake_up = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            // Every write is an event, so that it need not be read.
            epoll::add(&epoll, &wake_up, data(WAKE_UP), EventFlags::IN | EventFlags::ET)?;
            Ok(Self { epoll, wake_up })
        }

        /// Waits for sockets; returns whether there may be more.
        pub(in crate::engine) fn wait(
            &self,
            fired: &mut Vec<Fired>,
            until: Option<Instant>,
        ) -> io::Result<bool> {
            // Older systems refuse a wait of more than 24 days; one that ends early does no harm.
            let left = until.map(|until| until.saturating_duration_since(Instant::now()).min(DAY));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let mut events = [MaybeUninit::<Event>::uninit(); CAPACITY];
            let events = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
                Ok((events, _)) => events,
                Err(Errno::INTR) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            fired.extend(events.iter().map(read).filter(|fired| fired.key != WAKE_UP));
            Ok(events.len() == CAPACITY)
        }

        /// Ends the wait, or the next one.
        pub(in crate::engine) fn notify(&self) {
            let one = 1_u64.to_ne_bytes();
            // The count is full only after 2^64 of them; then it starts again.
            if rustix::io::write(&self.wake_up, &one) == Err(Errno::AGAIN) {
                let _ = rustix::io::read(&self.wake_up, &mut [0; 8]);
                let _ = rustix::io::write(&self.wake_up, &one);
            }
        }

        /// Adds a socket, and reports whatever it is ready for from now on.
        pub(in crate::engine) fn add(&self, socket: &Socket, key: usize) -> io::Result<()> {
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            Ok(epoll::add(&self.epoll, socket, data(key), flags)?)
        }

        /// Does nothing: all readiness is reported anyway.
        pub(in crate::engine) fn expect(
            &self,
            _: &Socket,
            _: usize,
            _: Interest,
        ) -> io::Result<()> {
            Ok(())
        }

        pub(in crate::engine) fn delete(&self, socket: &Socket) {
            // It fails only if it was not added.
            let _ = epoll::delete(&self.epoll, socket);
        }
    }

    fn data(key: usize) -> EventData {
        EventData::new_u64(u64::try_from(key).unwrap_or(u64::MAX))
    }

    /// Reads an event; a socket that has failed is ready for everything, and says so then.
    fn read(&Event { flags, data, .. }: &Event) -> Fired {
        let failed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        Fired {
            key: usize::try_from(data.u64()).unwrap_or(WAKE_UP),
            interest: Interest {
                readable: failed || flags.intersects(EventFlags::IN | EventFlags::RDHUP),
                writable: failed || flags.contains(EventFlags::OUT),
            },
            closed: flags.intersects(EventFlags::RDHUP | EventFlags::HUP),
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod elsewhere {
    use std::io;
    use std::time::Instant;

    use polling::{Event, Events};
    use socket2::Socket;

    use super::Fired;
    use crate::engine::Interest;

    pub(in crate::engine) struct Poller(polling::Poller);

    impl Poller {
        pub(in crate::engine) fn new() -> io::Result<Self> {
            polling::Poller::new().map(Self)
        }

        /// Waits for sockets; returns whether there may be more.
        pub(in crate::engine) fn wait(
            &self,
            fired: &mut Vec<Fired>,
            until: Option<Instant>,
        ) -> io::Result<bool> {
            let mut events = Events::new();
            let count = match until {
                Some(until) => self.0.wait_deadline(&mut events, until),
                None => self.0.wait(&mut events, None),
            }?;
            fired.extend(events.iter().map(|Event { key, readable, writable, .. }| Fired {
                key,
                interest: Interest { readable, writable },
                // It is reported again to the next waiter.
                closed: false,
            }));
            Ok(count == events.capacity().get())
        }

        /// Ends the wait, or the next one.
        pub(in crate::engine) fn notify(&self) {
            // It fails only if the poller is gone, and with it the thread that waits.
            let _ = self.0.notify();
        }

        /// Makes a socket known, which must be deleted before it is closed.
        #[expect(unsafe_code, reason = "the poller wants to be promised that sockets are deleted")]
        pub(in crate::engine) fn add(&self, socket: &Socket, key: usize) -> io::Result<()> {
            // SAFETY: the socket must be removed from the poller before it is closed. It cannot be
            // closed before, because its registration has a reference to it until after its
            // `drop`, which removes it. (If that is leaked, so is the socket. A process that was
            // forked off removes nothing, as the poller's list is its parent's, and closes nothing
            // but its own number for the socket, which stays open in the parent.)
            unsafe { self.0.add(socket, Event::none(key)) }
        }

        /// Reports once when the socket is ready for that.
        pub(in crate::engine) fn expect(
            &self,
            socket: &Socket,
            key: usize,
            interest: Interest,
        ) -> io::Result<()> {
            let Interest { readable, writable } = interest;
            self.0.modify(socket, Event::new(key, readable, writable))
        }

        pub(in crate::engine) fn delete(&self, socket: &Socket) {
            // It fails only if it was not added.
            let _ = self.0.delete(socket);
        }
    }
}
