//! The sync loop of `SYNC_KLOOP_START`: it runs inside the ioctl, in the calling thread.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use crate::abi::EventPair;
use crate::binding::{Binding, SHARED_SLEEP, announce};
use crate::csb::Csb;
use crate::descriptor::{LoopError, LoopPlan};
use crate::outcome::SyncOutcome;
use crate::ring_lock::SyncIntent;

/// Longest sleep of a loop with eventfds: some changes are not announced.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);
/// Bits of `SYNC_KLOOP_MODE`.
const MODES: u32 = 0b11;

/// Starting, stopping and waiting for the one loop of a device.
#[derive(Debug, Default)]
pub(crate) struct LoopState {
    stop: AtomicBool,
    running: Mutex<bool>,
    ended: Condvar,
}

impl LoopState {
    pub(crate) fn is_running(&self) -> bool {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests the loop's end and waits for it; a loop that starts later ends at once.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while *running {
            running = self.ended.wait(running).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Runs the loop until it is stopped.
    pub(crate) fn run(&self, binding: &Binding, csb: &Csb, plan: &LoopPlan) -> Result<(), LoopError> {
        {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            if *running {
                return Err(LoopError::Request(Errno::BUSY));
            }
            *running = true;
        }
        let result = self.checked(binding, csb, plan);
        if result.is_ok() {
            self.stop.store(false, Ordering::Release);
        }
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.ended.notify_all();
        result
    }

    fn checked(&self, binding: &Binding, csb: &Csb, plan: &LoopPlan) -> Result<(), LoopError> {
        let events = plan.events.as_deref();
        let kicks = match events {
            Some(events) => Some(kick_descriptors(events)?),
            None => None,
        };
        let sleeps_on_kicks = kicks.as_ref().is_some_and(|kicks| kicks.iter().all(|kick| *kick >= 0));
        if plan.mode & !MODES != 0 || plan.mode != 0 && !sleeps_on_kicks {
            return Err(LoopError::ModeOption(Errno::INVAL));
        }
        let kicks = kicks.filter(|_| sleeps_on_kicks);
        let mut rounds = Rounds { binding, csb, events, shown: Vec::new() };
        while !self.stop.load(Ordering::Acquire) {
            let round = rounds.run(SyncIntent::Passing).map_err(LoopError::Request)?;
            if round.moved {
                continue;
            }
            match &kicks {
                Some(kicks) => rounds.sleep(kicks, &self.stop).map_err(LoopError::Request)?,
                None if plan.sleep_us > 0 => std::thread::sleep(Duration::from_micros(plan.sleep_us.into())),
                None => std::thread::yield_now(),
            }
        }
        Ok(())
    }
}

/// Descriptors with which the program kicks; EBADF if one is not open.
fn kick_descriptors(events: &[EventPair]) -> Result<Vec<RawFd>, LoopError> {
    let check = |number: RawFd| match number {
        ..0 => Ok(()),
        _ => crate::foreign_descriptor::is_open(number).map_err(LoopError::EventsOption),
    };
    for event in events {
        check(event.kick)?;
        check(event.interrupt)?;
    }
    Ok(events.iter().map(|event| event.kick).collect())
}

struct Rounds<'a> {
    binding: &'a Binding,
    csb: &'a Csb,
    events: Option<&'a [EventPair]>,
    /// Position of each ring when the program last saw it.
    shown: Vec<(u32, u32)>,
}

/// Result of a sync of every ring.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    moved: bool,
    skipped: bool,
}

impl Rounds<'_> {
    /// Syncs every ring once.
    fn run(&mut self, intent: SyncIntent) -> Result<Round, Errno> {
        let mut round = Round::default();
        for (entry, ring) in self.binding.rings().enumerate() {
            let cursors = self.csb.read(entry)?;
            let sync = || ring.sync_to(cursors.head, cursors.cur, intent);
            let outcome = self.binding.with_monitors(sync(), sync);
            if outcome.intersects(SyncOutcome::KICK) {
                self.binding.kick(ring);
            }
            round.skipped |= outcome.intersects(SyncOutcome::SKIPPED);
            let position = ring.position();
            let now = (position.hwcur, position.hwtail);
            if self.shown.len() <= entry {
                self.shown.push(now);
                self.csb.write(entry, now.0, now.1)?;
                continue;
            }
            if self.shown.get(entry) != Some(&now) {
                round.moved = true;
                self.csb.write(entry, now.0, now.1)?;
                if let Some(shown) = self.shown.get_mut(entry) {
                    *shown = now;
                }
                self.interrupt(entry, cursors.needs_kick != 0);
            }
        }
        Ok(round)
    }

    /// Wakes the program, if the program wants it.
    fn interrupt(&self, entry: usize, wanted: bool) {
        let event = self.events.and_then(|events| events.get(entry)).map_or(-1, |event| event.interrupt);
        if wanted && event >= 0 {
            crate::foreign_descriptor::ring(event);
        }
    }

    /// Sleeps until the program kicks or a ring has news.
    fn sleep(&mut self, kicks: &[RawFd], stop: &AtomicBool) -> Result<(), Errno> {
        let binding = self.binding;
        for (entry, ring) in binding.rings().enumerate() {
            self.csb.write_needs_kick(entry, true)?;
            self.binding.drain_notify(ring);
            announce(ring);
        }
        std::sync::atomic::fence(Ordering::SeqCst);
        let round = self.run(SyncIntent::BeforeSleep)?;
        if !round.moved && !stop.load(Ordering::Acquire) {
            let most = if round.skipped { SHARED_SLEEP } else { LONGEST_SLEEP };
            let waited =
                kicks.iter().copied().chain(binding.rings().filter_map(|ring| binding.notify_of(ring)));
            crate::foreign_descriptor::wait_readable(waited, most);
        }
        for (entry, ring) in binding.rings().enumerate() {
            self.csb.write_needs_kick(entry, false)?;
            ring.sleeping_flag().store(0, Ordering::Relaxed);
        }
        for &kick in kicks {
            crate::foreign_descriptor::drain(kick);
        }
        Ok(())
    }
}
