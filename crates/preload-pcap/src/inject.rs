//! Sending: `pcap_inject` and `pcap_sendpacket`.

use std::time::{Duration, Instant};

use libc::c_int;
use ringroad::{Interest, PortError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::PcapError;
use crate::handle::{Active, Handle};

/// Number of checks of a full ring before the program sleeps: slots come back in bursts, soon after each other.
const CHECKS: u32 = 64;
/// Maximum sleep between two checks of a full ring. Another thread of the device that wakes may consume this thread's
/// signal, and no signal announces the second slot for a long frame.
const LONGEST_SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Time after which a closing device gives up if no frame leaves: the link is down, or the datapath has stopped.
const STANDSTILL: Duration = Duration::from_millis(500);
/// Time between two checks of a ring that empties: no signal announces the last frame.
const EMPTYING_CHECK: Duration = Duration::from_micros(200);

/// Reason why a frame was not taken: the text for the program, and `errno`.
pub(crate) struct NotSent {
    /// Error for `pcap_geterr`.
    pub(crate) error: PcapError,
    /// Value for `errno`.
    pub(crate) errno: Errno,
}

impl NotSent {
    fn new(errno: Errno, text: &str) -> Self {
        Self { error: PcapError::new(text), errno }
    }
}

impl From<PcapError> for NotSent {
    fn from(error: PcapError) -> Self {
        Self { error, errno: Errno::BADF }
    }
}

impl From<PortError> for NotSent {
    fn from(error: PortError) -> Self {
        let errno =
            if matches!(error, PortError::FrameTooLong { .. }) { Errno::MSGSIZE } else { Errno::NETDOWN };
        Self { error: error.into(), errno }
    }
}

/// Waits until accepted frames are sent, before the port closes. Frames on a pipe are at the reader already.
pub(crate) fn finish(active: &Active) {
    let mut session = active.session();
    if session.port.info().driver == "pipe" {
        return;
    }
    let (mut left, mut moved) = (u32::MAX, Instant::now());
    // A failed port sends nothing more, so the wait ends.
    while session.port.tx().sync().is_ok() {
        let pending = session.port.tx().pending();
        if pending < left {
            (left, moved) = (pending, Instant::now());
        }
        if pending == 0 || moved.elapsed() > STANDSTILL {
            return;
        }
        std::thread::sleep(EMPTYING_CHECK);
    }
}

/// Puts a frame into the ring and publishes it. Waits while the ring is full, unless the handle is non-blocking.
pub(crate) fn inject(handle: &Handle, frame: &[u8]) -> Result<c_int, NotSent> {
    let active = handle.active()?;
    let Ok(len) = c_int::try_from(frame.len()) else {
        return Err(NotSent::new(Errno::MSGSIZE, "a frame of more than 2 GiB cannot be sent"));
    };
    if frame.is_empty() {
        return Err(NotSent::new(Errno::INVAL, "an empty frame cannot be sent"));
    }
    let mut session = active.session();
    let mut checks = 0;
    loop {
        let tx = session.port.tx();
        if tx.send(frame)? {
            tx.sync()?;
            session.settle_sent();
            return Ok(len);
        }
        if tx.sync()? > 0 {
            continue;
        }
        if handle.is_nonblocking() {
            session.settle_refused(frame.len())?;
            return Err(NotSent::new(Errno::AGAIN, "the ring is full: try again when frames have left it"));
        }
        if checks < CHECKS {
            checks += 1;
            std::thread::yield_now();
            continue;
        }
        if session.arm(Interest::Tx)? {
            session.settle();
            if session.has_room_for(frame.len()) {
                continue;
            }
        }
        drop(session);
        let mut set = [PollFd::from_borrowed_fd(active.port_descriptor(), PollFlags::IN)];
        let polled = poll(&mut set, Some(&LONGEST_SLEEP));
        session = active.session();
        session.disarm()?;
        session.settle();
        match polled {
            Ok(_) => {}
            Err(Errno::INTR) => {
                return Err(NotSent::new(Errno::INTR, "interrupted by a signal while the ring was full"));
            }
            Err(errno) => return Err(NotSent::new(errno, "waiting for room in the ring failed")),
        }
    }
}
