//! Watching a socket for a datapath that sleeps, and only then.
//!
//! For every frame that passes a socket the kernel wakes its watchers, even if no thread sleeps. On a veth this costs
//! 40 to 80 ns per frame for each epoll set with the socket. So the socket is only in this set, and only from a sleep
//! until frames pass again.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;

/// Number of frames after which watching ends. To end it and begin again costs as much as some 30 watched frames.
const FRAMES_UNWATCHED: usize = 64;

/// A descriptor that is readable when a socket is readable, while the socket is watched.
#[derive(Debug)]
pub(crate) struct SleepWatch {
    set: OwnedFd,
    is_watching: bool,
    /// Whether the kernel refused to watch.
    has_failed: bool,
    /// Number of frames since the last sleep.
    frames: usize,
}

impl SleepWatch {
    /// Watches `socket`.
    ///
    /// # Errors
    /// The kernel has no descriptors or no memory left, or cannot wait for this descriptor.
    pub(crate) fn new(socket: impl AsFd) -> rustix::io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut this = Self { set, is_watching: false, has_failed: false, frames: 0 };
        this.watch(socket)?;
        Ok(this)
    }

    fn watch(&mut self, socket: impl AsFd) -> rustix::io::Result<()> {
        if !self.is_watching {
            let added = epoll::add(&self.set, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
            self.has_failed = added.is_err();
            added?;
            self.is_watching = true;
        }
        Ok(())
    }

    /// Begins to watch before the datapath sleeps. The datapath must not sleep if [`Self::has_failed`] is true then.
    pub(crate) fn begin(&mut self, socket: impl AsFd) {
        self.frames = 0;
        // The caller checks for a failure.
        let _ = self.watch(socket);
    }

    /// Whether nothing would wake a datapath that sleeps now.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Notes that frames have passed `socket`: the datapath is awake.
    #[inline]
    pub(crate) fn note_frames(&mut self, socket: impl AsFd, frames: usize) {
        if self.is_watching {
            self.frames += frames;
            if self.frames >= FRAMES_UNWATCHED {
                self.give_up(socket);
            }
        }
    }

    #[cold]
    fn give_up(&mut self, socket: impl AsFd) {
        self.is_watching = epoll::delete(&self.set, socket).is_err();
    }

    /// A descriptor that is readable when the socket is readable, from [`Self::begin`] on.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(watch: &SleepWatch) -> bool {
        let mut descriptors = [PollFd::from_borrowed_fd(watch.descriptor(), PollFlags::IN)];
        poll(&mut descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn a_socket_is_watched_while_the_datapath_sleeps_and_until_frames_pass() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut watch = SleepWatch::new(&near).unwrap();
        assert!(!is_readable(&watch));
        far.write_all(b"frame").unwrap();
        assert!(is_readable(&watch));
        watch.note_frames(&near, FRAMES_UNWATCHED - 1);
        assert!(is_readable(&watch), "a few frames are not worth the calls");
        watch.note_frames(&near, 1);
        assert!(!is_readable(&watch));
        watch.note_frames(&near, FRAMES_UNWATCHED);
        watch.begin(&near);
        assert!(is_readable(&watch) && !watch.has_failed(), "what came before the sleep ends it");
    }

    #[test]
    fn a_datapath_does_not_sleep_before_a_socket_that_cannot_be_watched() {
        let (near, _far) = UnixStream::pair().unwrap();
        let mut watch = SleepWatch::new(&near).unwrap();
        watch.note_frames(&near, FRAMES_UNWATCHED);
        let file = tempfile::tempfile().unwrap();
        watch.begin(&file);
        assert!(watch.has_failed());
        watch.begin(&near);
        assert!(!watch.has_failed());
    }
}
