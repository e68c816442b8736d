//! Descriptor for `pcap_get_selectable_fd`: readable with select, poll and epoll while frames are unread.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, epoll, eventfd};

/// An epoll set over the port, which is ready when frames come, and an eventfd, which is ready while frames are unread.
#[derive(Debug)]
pub(super) struct Selectable {
    set: OwnedFd,
    there: OwnedFd,
    tells: Tells,
}

/// State of the descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tells {
    /// Nothing is announced yet.
    Nothing,
    /// Frames are unread: the eventfd is ready.
    There,
    /// The port's sleep is announced: the port makes the descriptor readable.
    ToCome,
}

impl Selectable {
    /// Makes a descriptor over the port's own descriptor.
    pub(super) fn new(port: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let there = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        for (number, descriptor) in [(0, port), (1, there.as_fd())] {
            epoll::add(&set, descriptor, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
        }
        Ok(Self { set, there, tells: Tells::Nothing })
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    /// Prepares a read. Returns whether the port's sleep was announced and must be ended.
    pub(super) fn disarm(&mut self) -> bool {
        let armed = self.tells == Tells::ToCome;
        if armed {
            self.tells = Tells::Nothing;
        }
        armed
    }

    /// Ends a read. `there` tells whether frames are unread; if not, the port's sleep must be announced.
    pub(super) fn tell(&mut self, there: bool) {
        match (self.tells, there) {
            (Tells::There, false) => {
                let _ = rustix::io::read(&self.there, &mut [0; 8]);
            }
            (Tells::Nothing | Tells::ToCome, true) => {
                let _ = rustix::io::write(&self.there, &1u64.to_ne_bytes());
            }
            _ => {}
        }
        self.tells = if there { Tells::There } else { Tells::ToCome };
    }
}
