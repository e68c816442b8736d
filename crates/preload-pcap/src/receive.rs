//! Reading: `pcap_loop`, `pcap_dispatch`, `pcap_next` and `pcap_next_ex`.
#![allow(unsafe_code)]

use std::sync::MutexGuard;
use std::time::Duration;

use libc::{c_int, timeval};
use ringroad::Interest;
use ringroad_c_face::TimeLimit;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::abi::{Callback, PCAP_ERROR_BREAK, PacketHeader};
use crate::error::PcapError;
use crate::handle::{Active, Handle, ReadPermit};
use crate::session::{BATCH_FRAMES, Found, Frame, RingBurst, Session};

/// Time for which frames gather, for each slot of the ring, ns: a quarter of the time in which 10 million frames a
/// second fill the ring.
const GATHER_NS_PER_SLOT: i64 = 25;

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
            (true, _) => TimeLimit::Never,
            (false, 0) => active.patience(handle),
            (false, _) => TimeLimit::Now,
        };
        if done > 0 && !endless && handle.is_breaking() {
            break;
        }
        let limit = usize::try_from(left).unwrap_or(BATCH_FRAMES).min(BATCH_FRAMES);
        if !reading.await_frames(limit, patience)? {
            break;
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
        true => reading.hold(),
        false => Ok(None),
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

    /// Session, locked now if it was not, and the batch.
    fn session(&mut self) -> (&mut Session, &mut RingBurst) {
        (self.session.get_or_insert_with(|| self.active.session()), &mut self.batch)
    }

    /// Waits until the batch has frames; returns whether it has. If not, none came in time, or there are none and the
    /// program does not wait. The lock is released meanwhile, and afterwards.
    fn await_frames(&mut self, limit: usize, mut patience: TimeLimit) -> Result<bool, PcapError> {
        let mut rejected = 0;
        loop {
            if self.handle.take_break() {
                return Err(PcapError::coded(PCAP_ERROR_BREAK, ""));
            }
            let (session, batch) = self.session();
            match session.fill(batch, limit)? {
                Found::Frames => {
                    session.flowing = true;
                    self.session = None;
                    return Ok(true);
                }
                // A call that may not wait rejects no more than a ring's worth of frames.
                Found::Rejected(slots) if rejected < self.ring_slots => rejected += slots,
                Found::Rejected(_) => {
                    if patience.left() == Some(Duration::ZERO) {
                        return Ok(false);
                    }
                }
                Found::Nothing => match patience.left() {
                    Some(Duration::ZERO) => return Ok(false),
                    left => {
                        if self.active.gathers && std::mem::take(&mut self.session().0.flowing) {
                            self.gather();
                        } else if !self.sleep(left)? {
                            patience = TimeLimit::Now;
                        }
                    }
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
        let mut set = [PollFd::new(&*self.active.nudge, PollFlags::IN)];
        // A signal ends the wait early, and the next check finds out.
        if poll(&mut set, Some(&timeout)).is_ok_and(|ready| ready > 0) {
            self.active.nudge.take();
        }
    }

    /// Sleeps until frames, a signal or `pcap_breakloop` come. Returns false if the time is up.
    fn sleep(&mut self, left: Option<Duration>) -> Result<bool, PcapError> {
        let active = self.active;
        let (session, _) = self.session();
        if session.arm(Interest::Rx)? {
            session.settle();
            return Ok(true);
        }
        session.reader_sleeps = true;
        self.session = None;
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut set = [
            PollFd::from_borrowed_fd(active.port_descriptor(), PollFlags::IN),
            PollFd::new(&*active.nudge, PollFlags::IN),
        ];
        let polled = poll(&mut set, timeout.as_ref());
        let nudged = !set[1].revents().is_empty();
        if nudged {
            active.nudge.take();
        }
        let (session, _) = self.session();
        session.reader_sleeps = false;
        session.disarm()?;
        session.settle();
        match polled {
            Ok(0) => Ok(false),
            // A signal handler may have requested the end of the loop.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(true),
            Err(errno) => Err(PcapError::new(format!("waiting for frames: {errno}"))),
        }
    }

    /// Releases the first `seen` frames of the batch; the rest stays in the ring.
    fn release(&mut self, seen: usize) -> Result<(), PcapError> {
        let (session, batch) = self.session();
        Ok(session.release(batch, seen)?)
    }

    /// Keeps the batch's frame until the next call.
    fn hold(&mut self) -> Result<Option<(*const PacketHeader, *const u8)>, PcapError> {
        let nanoseconds = self.active.nanoseconds;
        let (session, batch) = self.session();
        let Some(frame) = batch.frames.first() else { return Ok(None) };
        let packet = session.hold(batch)?;
        let header: *const PacketHeader = session.header.insert(header(frame, nanoseconds));
        Ok(Some((header, packet)))
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let (session, batch) = self.session();
        session.batch = std::mem::take(batch);
        session.settle();
    }
}

impl Active {
    /// Maximum waiting time of a read from this device.
    fn patience(&self, handle: &Handle) -> TimeLimit {
        match self.timeout {
            _ if handle.is_nonblocking() => TimeLimit::Now,
            None => TimeLimit::Never,
            Some(timeout) => TimeLimit::after(timeout),
        }
    }
}
