//! Processes that outlive the program that started them: identified by process ID and start time, watched and ended by
//! a descriptor.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, pidfd_send_signal, set_parent_process_death_signal,
    setsid,
};
use serde::{Deserialize, Serialize};

use crate::error::GuestError;

/// Identity of a process, which no later process with the same ID has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process ID.
    pub pid: u32,
    /// Start time, in clock ticks since the machine started (field 22 of proc(5)'s stat).
    pub start_ticks: u64,
}

impl ProcessIdentity {
    /// Returns the process that has this ID now; `None` if none is running.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The program's name, in parentheses, may contain spaces and parentheses.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let start_ticks = fields.nth(18)?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some(Self { pid, start_ticks })
    }

    /// Returns the calling process.
    #[must_use]
    pub fn own() -> Self {
        let pid = std::process::id();
        Self::of(pid).unwrap_or(Self { pid, start_ticks: 0 })
    }

    /// Whether the process is still running.
    #[must_use]
    pub fn is_running(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Returns a descriptor that becomes readable when the process ends; `None` if the process has ended.
    #[must_use]
    pub fn descriptor(self) -> Option<OwnedFd> {
        let descriptor = pidfd_open(Pid::from_raw(self.pid.cast_signed())?, PidfdFlags::empty()).ok()?;
        // The ID may have been reused before the descriptor was opened, but not after.
        self.is_running().then_some(descriptor)
    }

    /// Sends SIGTERM to the process, waits, and kills it after `patience`.
    ///
    /// # Errors
    /// [`GuestError::Killed`]: the process had to be killed.
    pub fn end(self, patience: Duration) -> Result<(), GuestError> {
        let Some(descriptor) = self.descriptor() else { return Ok(()) };
        // A failure means that the process has ended.
        let _ = pidfd_send_signal(&descriptor, Signal::TERM);
        if ends_within(&descriptor, patience) {
            return Ok(());
        }
        let _ = pidfd_send_signal(&descriptor, Signal::KILL);
        // A killed process can take a while to end.
        let _ = ends_within(&descriptor, patience);
        Err(GuestError::Killed { pid: self.pid, waited: patience })
    }
}

/// Waits until the process of a descriptor has ended, for at most `patience`. Returns whether it has ended.
#[must_use]
pub fn ends_within(descriptor: &OwnedFd, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    loop {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::new(descriptor, PollFlags::IN)], left.as_ref()) {
            Err(Errno::INTR) => {}
            result => return result.is_ok_and(|ready| ready > 0),
        }
    }
}

/// Starts the process of `command` in its own session, which a terminal's keys do not reach.
#[allow(unsafe_code)]
pub fn in_own_session(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes one system call; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
}

/// Makes the kernel kill the process of `command` when the thread that starts it ends for any reason.
pub fn end_with_caller(command: &mut Command) {
    signal_at_callers_end(command, Signal::KILL);
}

/// Makes the kernel send `signal` to the process of `command` when the thread that starts it ends for any reason
/// (prctl(2), `PR_SET_PDEATHSIG`).
#[allow(unsafe_code)]
pub(crate) fn signal_at_callers_end(command: &mut Command, signal: Signal) {
    let caller = getpid();
    let before = move || {
        set_parent_process_death_signal(Some(signal))?;
        // The caller may have ended before the previous call.
        if getppid() == Some(caller) { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    };
    // SAFETY: between fork and exec the closure makes system calls only; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(before) };
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_process_is_identified_by_number_and_start_time() {
        let own = ProcessIdentity::own();
        assert!(own.is_running() && own.descriptor().is_some());
        let former = ProcessIdentity { start_ticks: own.start_ticks + 1, ..own };
        assert!(!former.is_running() && former.descriptor().is_none());
        assert!(former.end(Duration::from_secs(9)).is_ok(), "there is nothing to end");
    }

    #[test]
    fn only_a_process_that_ignores_sigterm_is_killed() {
        let mut obedient = Command::new("sleep").arg("1000").spawn().unwrap();
        let identity = ProcessIdentity::of(obedient.id()).unwrap();
        identity.end(Duration::from_secs(30)).unwrap();
        assert!(!identity.is_running(), "it has not been waited for yet");
        obedient.wait().unwrap();

        // A shell that waits for its input, which this test keeps open. So the test leaves no process running.
        let mut deaf = Command::new("sh")
            .args(["-c", "trap '' TERM; echo; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut trapped = [0];
        io::Read::read_exact(deaf.stdout.as_mut().unwrap(), &mut trapped).unwrap();
        let killed = ProcessIdentity::of(deaf.id()).unwrap().end(Duration::from_millis(1)).unwrap_err();
        assert!(matches!(killed, GuestError::Killed { .. }), "{killed}");
        deaf.wait().unwrap();
    }
}
