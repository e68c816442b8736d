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
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt,
};

use super::Session;

/// Time between two checks of a ring that has free slots, but fewer than a long frame needs: no signal announces more.
const ROOM_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Bytes that are sent at once to fill the send buffer.
const FILLING: [u8; 2048] = [0; 2048];

/// What the thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watch {
    /// For orders alone.
    Orders,
    /// For orders and the port's signals.
    Port,
    /// For orders and the port's signals, but not longer than until the next check.
    PortAndTime,
}

/// Way to change what the thread waits for, or to end it.
#[derive(Debug)]
struct Order {
    event: OwnedFd,
    ends: AtomicBool,
}

impl Order {
    fn give(&self) {
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
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
    watch: Watch,
    order: Arc<Order>,
}

impl Selectable {
    /// Makes a descriptor, writable and not readable.
    fn new(order: Arc<Order>) -> rustix::io::Result<Self> {
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
            watch: Watch::Port,
            order,
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
    pub(super) fn require(&mut self, watch: Watch) {
        if self.watch < watch {
            self.watch = watch;
            self.order.give();
        }
    }

    /// Records what the thread waits for from now on.
    pub(super) fn watches(&mut self, watch: Watch) {
        self.watch = watch;
    }
}

/// Thread of a descriptor.
#[derive(Debug)]
pub(crate) struct Carrier {
    order: Arc<Order>,
    thread: JoinHandle<()>,
}

impl Carrier {
    /// Gives `session` a descriptor, and starts its thread.
    pub(super) fn start(session: &mut Session, shared: &Arc<Mutex<Session>>) -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let order = Arc::new(Order { event, ends: AtomicBool::new(false) });
        let selectable = Selectable::new(Arc::clone(&order))?;
        let port = session.port.as_fd().try_clone_to_owned()?;
        let (orders, shared) = (Arc::clone(&order), Arc::downgrade(shared));
        // The program's signal handlers run in its own threads alone.
        let _blocked = BlockedSignals::new();
        let thread = std::thread::Builder::new().name("ringroad-pcap".into());
        let thread = thread.spawn(move || carry(&orders, &port, &shared))?;
        session.selectable = Some(selectable);
        Ok(Self { order, thread })
    }

    /// Ends the thread.
    pub(crate) fn end(self) {
        self.order.ends.store(true, Ordering::Release);
        self.order.give();
        let _ = self.thread.join();
    }
}

/// Waits for signals and orders until the end.
fn carry(order: &Order, port: &OwnedFd, session: &Weak<Mutex<Session>>) {
    let mut watch = Watch::Port;
    loop {
        let mut set = [PollFd::new(&order.event, PollFlags::IN), PollFd::new(port, PollFlags::IN)];
        let watched = if watch == Watch::Orders { &mut set[..1] } else { &mut set[..] };
        let time = (watch == Watch::PortAndTime).then_some(&ROOM_CHECK);
        match poll(watched, time) {
            Ok(_) | Err(Errno::INTR) => {}
            // The kernel has no memory for the call.
            Err(_) => std::thread::yield_now(),
        }
        if !set[0].revents().is_empty() {
            let _ = rustix::io::read(&order.event, &mut [0; 8]);
        }
        if order.ends.load(Ordering::Acquire) {
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
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let order = Arc::new(Order { event, ends: AtomicBool::new(false) });
        let mut selectable = Selectable::new(order).unwrap();
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
