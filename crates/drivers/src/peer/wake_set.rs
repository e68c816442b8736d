//! The descriptors that wake a worker at one queue: the worker's bell, and the eventfds that the peer writes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringroad_ring::eventfd;
use rustix::event::{Timespec, epoll};

/// Events for which all descriptors are in the set.
const ARRIVAL: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ET);

/// A set of descriptors that has a descriptor itself ([`WakeSet::descriptor`]). The connection's thread adds and
/// removes descriptors while the worker waits.
#[derive(Debug)]
pub(crate) struct WakeSet {
    set: OwnedFd,
    bell: Arc<OwnedFd>,
}

impl WakeSet {
    /// Creates a set with only a bell.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = Arc::new(eventfd::create()?);
        let this = Self { set, bell };
        this.add(this.bell.as_fd())?;
        Ok(this)
    }

    /// Bell with which this process wakes the worker.
    pub(crate) fn bell(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.bell)
    }

    /// Adds an eventfd of the peer, or a socket. The set never reads it: with edge triggering each write to it wakes. It
    /// leaves the set when its last copy is closed, or by [`Self::remove`].
    ///
    /// # Errors
    /// The kernel's error if the descriptor cannot be waited for.
    pub(crate) fn add(&self, event: BorrowedFd<'_>) -> rustix::io::Result<()> {
        epoll::add(&self.set, event, epoll::EventData::new_u64(0), ARRIVAL)
    }

    /// Sets whether room in a socket of the set wakes, too. Room that is there already wakes at once.
    ///
    /// # Errors
    /// The socket is not in the set.
    pub(crate) fn wake_for_room(&self, socket: BorrowedFd<'_>, is_wanted: bool) -> rustix::io::Result<()> {
        let room = if is_wanted { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        epoll::modify(&self.set, socket, epoll::EventData::new_u64(0), ARRIVAL | room)
    }

    /// Removes an eventfd. An eventfd that is not in the set is ignored.
    pub(crate) fn remove(&self, event: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.set, event);
    }

    /// A descriptor that is readable when the worker is needed.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// Clears the signals of the set. Called once per sleep.
    pub(crate) fn drain(&self) {
        let nothing = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [nothing; 4];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Waiting removes edge-triggered events. Events beyond the buffer are signalled again.
        let _ = epoll::wait(&self.set, &mut events, Some(&at_once));
    }
}

/// Checks that a descriptor from a peer is an eventfd. The eventfd may be blocking: no code relies on the flag.
///
/// # Errors
/// The kind of the other descriptor, as text for users.
pub(crate) fn check_eventfd(descriptor: BorrowedFd<'_>) -> Result<(), String> {
    use std::os::fd::AsRawFd;
    match std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd())) {
        Ok(kind) if kind.as_os_str() == "anon_inode:[eventfd]" => Ok(()),
        Ok(kind) => Err(format!("a wake-up descriptor is {}, not an eventfd", kind.display())),
        Err(error) => Err(format!("a wake-up descriptor cannot be checked: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn is_readable(set: &WakeSet) -> bool {
        let descriptor = set.descriptor();
        let mut wait = [PollFd::new(&descriptor, PollFlags::IN)];
        poll(&mut wait, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn each_write_wakes_without_a_read_of_the_eventfd() {
        let set = WakeSet::new().unwrap();
        let event = eventfd::create().unwrap();
        set.add(event.as_fd()).unwrap();
        set.drain();
        for _ in 0..3 {
            assert!(!is_readable(&set));
            eventfd::ring(&event);
            assert!(is_readable(&set));
            set.drain();
        }
        eventfd::ring_own(&*set.bell());
        assert!(is_readable(&set));
        set.drain();
        set.remove(event.as_fd());
        eventfd::ring(&event);
        assert!(!is_readable(&set));
    }

    #[test]
    fn room_in_a_socket_wakes_while_it_is_wanted() {
        let set = WakeSet::new().unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        set.add(near.as_fd()).unwrap();
        assert!(!is_readable(&set));
        for _ in 0..2 {
            set.wake_for_room(near.as_fd(), true).unwrap();
            assert!(is_readable(&set));
            set.drain();
            set.wake_for_room(near.as_fd(), false).unwrap();
            assert!(!is_readable(&set));
        }
        set.remove(near.as_fd());
        assert!(set.wake_for_room(near.as_fd(), true).is_err());
    }

    #[test]
    fn only_eventfds_are_taken() {
        let event = eventfd::create().unwrap();
        assert_eq!(check_eventfd(event.as_fd()), Ok(()));
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        assert!(check_eventfd(OwnedFd::as_fd(&pipe)).unwrap_err().contains("pipe"));
    }
}
