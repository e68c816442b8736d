//! Reading: `pcap_loop`, `pcap_dispatch`, `pcap_next` and `pcap_next_ex`.
#![allow(unsafe_code)]

use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use libc::{c_int, timeval};
use ringroad::Interest;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::abi::{Callback, PCAP_ERROR_BREAK, PacketHeader};
use crate::error::PcapError;
use crate::handle::{Active, Handle, ReadPermit};
use crate::session::{BATCH_FRAMES, Found, Frame, RingBurst, Session};

/// Time for which frames gather, for each slot of the ring, ns: a quarter of the time in which 10 million frames a
/// second fill the ring.
const GATHER_NS_PER_SLOT: i64 = 25;

/// Result of waiting for frames.
enum Awaited {
    /// The batch has frames.
    Frames,
    /// No frames came in time, or there are none and the program does not wait.
    None,
}

/// Limit on the waiting time of a read.
#[derive(Debug, Clone, Copy)]
enum ReadTimeout {
    /// The read does not wait.
    No,
    /// The read waits until frames come.
    Endless,
    /// The read waits for this time, beginning when no frames are found.
    For(Duration),
    /// The read waits until this time.
    Until(Instant),
}

impl ReadTimeout {
    /// Remaining time; `None` if none is left, `Some(None)` if there is no limit.
    fn left(&mut self) -> Option<Option<Duration>> {
        if let Self::For(duration) = *self {
            *self = Self::Until(Instant::now() + duration);
        }
        match *self {
            Self::No => None,
            Self::Endless => Some(None),
            Self::For(duration) => Some(Some(duration)),
            Self::Until(end) => {
                let left = end.saturating_duration_since(Instant::now());
                (!left.is_zero()).then_some(Some(left))
            }
        }
    }
}

/// `pcap_loop` and `pcap_dispatch`.
///
/// # Safety
/// `callback` may be called with `user`.
pub(crate) unsafe fn dispatch(
    handle: &Handle,
    count: c_int,
    callback: Callback,
    user: *mut u8,
    endless: bool,
) -> Result<c_int, PcapError> {
    let active = handle.active()?;
    let mut reading = Reading::begin(handle, active)?;
    // The default limit is a ring's worth of frames: under endless load a call must still end.
    let most = u64::try_from(count).ok().filter(|count| *count > 0);
    let mut left = most.unwrap_or(if endless { u64::MAX } else { u64::from(reading.ring_slots) });
    let mut done: c_int = 0;
    loop {
        let patience = match (endless, done) {
            (true, _) => ReadTimeout::Endless,
            (false, 0) => active.patience(handle),
            (false, _) => ReadTimeout::No,
        };
        if done > 0 && !endless && handle.is_breaking() {
            break;
        }
        let limit = usize::try_from(left).unwrap_or(BATCH_FRAMES).min(BATCH_FRAMES);
        match reading.await_frames(limit, patience)? {
            Awaited::Frames => {}
            Awaited::None => break,
        }
        let mut seen = 0;
        let precision = active.nanoseconds;
        for frame in &reading.batch.frames {
            if handle.is_breaking() {
                break;
            }
            let header = header(frame, precision);
            seen += 1;
            // SAFETY: guaranteed by the caller; header and frame live until the callback returns.
            unsafe { callback(user, &raw const header, frame.packet) };
        }
        reading.release(seen)?;
        left -= seen as u64;
        done = done.saturating_add(seen as c_int);
        if left == 0 {
            break;
        }
    }
    if endless { Ok(0) } else { Ok(done) }
}

/// `pcap_next_ex`: returns the addresses of the next frame's header and bytes; `None` if no frame came in time.
pub(crate) fn next(handle: &Handle) -> Result<Option<(*const PacketHeader, *const u8)>, PcapError> {
    let active = handle.active()?;
    let mut reading = Reading::begin(handle, active)?;
    match reading.await_frames(1, active.patience(handle))? {
        Awaited::Frames => Ok(reading.hold()?),
        Awaited::None => Ok(None),
    }
}

/// Header of a frame for the program.
#[inline]
fn header(frame: &Frame, nanoseconds: bool) -> PacketHeader {
    let (seconds, rest) = (frame.stamp_ns / 1_000_000_000, frame.stamp_ns % 1_000_000_000);
    let fraction = if nanoseconds { rest } else { rest / 1000 };
    PacketHeader {
        stamp: timeval { tv_sec: seconds.cast_signed(), tv_usec: fraction.cast_signed() },
        captured: frame.captured,
        len: frame.len,
    }
}

/// A call that reads. A handle has one at a time.
struct Reading<'a> {
    handle: &'a Handle,
    active: &'a Active,
    /// Lock of the session, held while the call works on rings.
    session: Option<MutexGuard<'a, Session>>,
    batch: RingBurst,
    ring_slots: u32,
    _turn: ReadPermit<'a>,
}

impl<'a> Reading<'a> {
    fn begin(handle: &'a Handle, active: &'a Active) -> Result<Self, PcapError> {
        let turn = active.take_turn()?;
        let mut session = active.session();
        session.begin_read()?;
        let batch = std::mem::take(&mut session.batch);
        let ring_slots = session.ring_slots();
        Ok(Self { handle, active, session: Some(session), batch, ring_slots, _turn: turn })
    }

    /// Session, locked now if it was not.
    fn session(&mut self) -> &mut Session {
        self.session.get_or_insert_with(|| self.active.session())
    }

    /// Waits until the batch has frames. The lock is released meanwhile, and afterwards.
    fn await_frames(&mut self, limit: usize, mut patience: ReadTimeout) -> Result<Awaited, PcapError> {
        let mut rejected = 0;
        loop {
            if self.handle.take_break() {
                return Err(PcapError::coded(PCAP_ERROR_BREAK, ""));
            }
            let mut batch = std::mem::take(&mut self.batch);
            let found = self.session().fill(&mut batch, limit);
            self.batch = batch;
            match found? {
                Found::Frames => {
                    self.session().flowing = true;
                    self.session = None;
                    return Ok(Awaited::Frames);
                }
                // A call that may not wait rejects no more than a ring's worth of frames.
                Found::Rejected(slots) if rejected < self.ring_slots => rejected += slots,
                Found::Rejected(_) => {
                    if patience.left().is_none() {
                        return Ok(Awaited::None);
                    }
                }
                Found::Nothing => match patience.left() {
                    Some(left) => {
                        if self.active.gathers && std::mem::take(&mut self.session().flowing) {
                            self.gather();
                        } else if !self.sleep(left)? {
                            patience = ReadTimeout::No;
                        }
                    }
                    None => return Ok(Awaited::None),
                },
            }
        }
    }

    /// Lets frames gather while they flow, as libpcap's timeout allows: a wake-up for every few frames costs the
    /// program and the datapath several times what the frames do. No sleep is announced, so only `pcap_breakloop` wakes
    /// the program.
    fn gather(&mut self) {
        self.session = None;
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(self.ring_slots) * GATHER_NS_PER_SLOT };
        let mut set = [PollFd::new(&self.active.nudge, PollFlags::IN)];
        // A signal ends the wait early, and the next check finds out.
        if poll(&mut set, Some(&timeout)).is_ok_and(|ready| ready > 0) {
            self.active.take_nudge();
        }
    }

    /// Sleeps until frames, a signal or `pcap_breakloop` come. Returns false if the time is up.
    fn sleep(&mut self, left: Option<Duration>) -> Result<bool, PcapError> {
        let active = self.active;
        let session = self.session();
        if session.arm(Interest::Rx)? {
            return Ok(true);
        }
        session.reader_sleeps = true;
        self.session = None;
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut set = [
            PollFd::from_borrowed_fd(active.port_descriptor(), PollFlags::IN),
            PollFd::new(&active.nudge, PollFlags::IN),
        ];
        let polled = poll(&mut set, timeout.as_ref());
        let nudged = !set[1].revents().is_empty();
        if nudged {
            active.take_nudge();
        }
        let session = self.session();
        session.reader_sleeps = false;
        session.disarm()?;
        match polled {
            Ok(0) => Ok(false),
            // A signal handler may have requested the end of the loop.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(true),
            Err(errno) => Err(PcapError::new(format!("waiting for frames: {errno}"))),
        }
    }

    /// Releases the first `seen` frames of the batch; the rest stays in the ring.
    fn release(&mut self, seen: usize) -> Result<(), PcapError> {
        let batch = std::mem::take(&mut self.batch);
        let released = self.session().release(&batch, seen);
        self.batch = batch;
        Ok(released?)
    }

    /// Keeps the batch's frame until the next call.
    fn hold(&mut self) -> Result<Option<(*const PacketHeader, *const u8)>, PcapError> {
        let Some(frame) = self.batch.frames.first() else { return Ok(None) };
        let header = header(frame, self.active.nanoseconds);
        let batch = std::mem::take(&mut self.batch);
        let session = self.session();
        let kept = session.hold(&batch).map(|packet| {
            let header: *const PacketHeader = session.header.insert(header);
            (header, packet)
        });
        self.batch = batch;
        Ok(Some(kept?))
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let session = self.session();
        session.batch = batch;
        // An error of the port is ignored here: the next call fails too, and can report it.
        let _ = session.settle();
    }
}

impl Active {
    /// Maximum waiting time of a read from this device.
    fn patience(&self, handle: &Handle) -> ReadTimeout {
        match self.timeout {
            _ if handle.is_nonblocking() => ReadTimeout::No,
            None => ReadTimeout::Endless,
            Some(timeout) => ReadTimeout::For(timeout),
        }
    }
}
