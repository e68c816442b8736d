//! Descriptor for `pcap_get_selectable_fd`: readable while frames are unread, and writable while the ring has room.
//!
//! It is one end of a pair of sockets. A byte from the other end makes it readable, and a full send buffer makes it not
//! writable. An epoll descriptor, which would need no thread, is never writable, and an eventfd is always readable or
//! writable.
//!
//! The signals for a program that sleeps come to the port's descriptor. A thread, which starts with the descriptor,
//! waits for them there and changes the state of the pair.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use ringroad_c_face::BlockedSignals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt,
};

use super::Session;
use crate::nudge::Nudge;

/// Time between two checks of a ring that has free slots, but fewer than a long frame needs: no signal announces more.
const ROOM_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Bytes that are sent at once to fill the send buffer.
const FILLING: [u8; 2048] = [0; 2048];

/// Events that end the wait of the descriptor's thread. A nudge ends each wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CarrierWait {
    /// No others.
    Nudge,
    /// The port's signals.
    Port,
    /// The port's signals, and the time of the next check.
    PortAndTime,
}

/// State that the thread shares with those that change its wait or end it.
#[derive(Debug)]
struct CarrierControl {
    nudge: Nudge,
    ends: AtomicBool,
}

/// The descriptor, as the program was told its state.
#[derive(Debug)]
pub(super) struct Selectable {
    /// The program's end of the pair.
    program: OwnedFd,
    /// The other end.
    library: OwnedFd,
    readable: bool,
    writable: bool,
    /// Number of free slots that make the descriptor writable: those of the last frame, if the ring had no room for it.
    pub(super) wanted_slots: u32,
    /// Whether the port's sleep is announced: a signal comes with frames or room.
    pub(super) announced: bool,
    /// Whether the port has failed. The descriptor stays readable and writable, so that the program learns of it.
    pub(super) failed: bool,
    watch: CarrierWait,
    control: Arc<CarrierControl>,
}

impl Selectable {
    /// Makes a descriptor, writable and not readable.
    fn new(control: Arc<CarrierControl>) -> rustix::io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (program, library) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The kernel makes it as small as it can be, so that little fills it.
        sockopt::set_socket_send_buffer_size(&program, 0)?;
        Ok(Self {
            program,
            library,
            readable: false,
            writable: true,
            wanted_slots: 1,
            announced: false,
            failed: false,
            watch: CarrierWait::Port,
            control,
        })
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.program.as_raw_fd()
    }

    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Makes the descriptor readable or not, and writable or not.
    pub(super) fn tell(&mut self, readable: bool, writable: bool) {
        let mut bytes = [0; FILLING.len()];
        if readable && !self.readable {
            let _ = send(&self.library, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        } else if self.readable && !readable {
            let _ = recv(&self.program, &mut bytes, RecvFlags::DONTWAIT);
        }
        if writable && !self.writable {
            while recv(&self.library, &mut bytes, RecvFlags::DONTWAIT).is_ok_and(|(count, _)| count > 0) {}
        } else if self.writable && !writable {
            while send(&self.program, &FILLING, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok() {}
        }
        (self.readable, self.writable) = (readable, writable);
    }

    /// Ensures that the thread waits for `watch` at least.
    pub(super) fn require(&mut self, watch: CarrierWait) {
        if self.watch < watch {
            self.watch = watch;
            self.control.nudge.give();
        }
    }

    /// Records what the thread waits for from now on.
    pub(super) fn watches(&mut self, watch: CarrierWait) {
        self.watch = watch;
    }
}

/// Thread of a descriptor.
#[derive(Debug)]
pub(crate) struct Carrier {
    control: Arc<CarrierControl>,
    thread: JoinHandle<()>,
}

impl Carrier {
    /// Gives `session` a descriptor, and starts its thread.
    pub(super) fn start(session: &mut Session, shared: &Arc<Mutex<Session>>) -> std::io::Result<Self> {
        let control = Arc::new(CarrierControl { nudge: Nudge::new()?, ends: AtomicBool::new(false) });
        let selectable = Selectable::new(Arc::clone(&control))?;
        let port = session.port.as_fd().try_clone_to_owned()?;
        let (of_thread, shared) = (Arc::clone(&control), Arc::downgrade(shared));
        // The program's signal handlers run in its own threads alone.
        let _blocked = BlockedSignals::new();
        let thread = std::thread::Builder::new().name("ringroad-pcap".into());
        let thread = thread.spawn(move || carry(&of_thread, &port, &shared))?;
        session.selectable = Some(selectable);
        Ok(Self { control, thread })
    }

    /// Ends the thread.
    pub(crate) fn end(self) {
        self.control.ends.store(true, Ordering::Release);
        self.control.nudge.give();
        let _ = self.thread.join();
    }
}

/// Waits for signals and nudges until the end.
fn carry(control: &CarrierControl, port: &OwnedFd, session: &Weak<Mutex<Session>>) {
    let mut watch = CarrierWait::Port;
    loop {
        let mut set = [PollFd::new(&control.nudge, PollFlags::IN), PollFd::new(port, PollFlags::IN)];
        let watched = if watch == CarrierWait::Nudge { &mut set[..1] } else { &mut set[..] };
        let time = (watch == CarrierWait::PortAndTime).then_some(&ROOM_CHECK);
        match poll(watched, time) {
            Ok(_) | Err(Errno::INTR) => {}
            // The kernel has no memory for the call.
            Err(_) => std::thread::yield_now(),
        }
        if !set[0].revents().is_empty() {
            control.nudge.take();
        }
        if control.ends.load(Ordering::Acquire) {
            return;
        }
        let Some(session) = session.upgrade() else { return };
        watch = session.lock().unwrap_or_else(PoisonError::into_inner).carry_signals();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(descriptor: &OwnedFd) -> PollFlags {
        let mut set = [PollFd::new(descriptor, PollFlags::IN | PollFlags::OUT)];
        poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        set[0].revents()
    }

    #[test]
    fn the_descriptor_is_ready_for_exactly_what_it_was_told() {
        let control = CarrierControl { nudge: Nudge::new().unwrap(), ends: AtomicBool::new(false) };
        let mut selectable = Selectable::new(Arc::new(control)).unwrap();
        assert_eq!(events(&selectable.program), PollFlags::OUT);
        let flag = |set, flag| if set { flag } else { PollFlags::empty() };
        // Every state follows every other one, and itself.
        for before in 0..4 {
            for after in 0..4 {
                for state in [before, after] {
                    let (readable, writable) = (state & 1 != 0, state & 2 != 0);
                    selectable.tell(readable, writable);
                    let wanted = flag(readable, PollFlags::IN) | flag(writable, PollFlags::OUT);
                    assert_eq!(events(&selectable.program), wanted, "{before} {after}");
                }
            }
        }
    }
}
