//! Real-time priority of threads (sched(7)).
//!
//! A thread with real-time priority keeps its processor until it sleeps or offers the processor to threads of its own
//! priority. So a thread that waits for another must not compute with a higher priority on the same processor.
#![allow(unsafe_code)]

use rustix::io::Errno;
use rustix::process::Pid;

/// The highest priority.
pub const HIGHEST: u8 = 99;

fn outcome(result: libc::c_int) -> rustix::io::Result<libc::c_int> {
    match result {
        0.. => Ok(result),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Gives a thread of this process (`None`: the calling thread) the real-time priority `priority`, 1 to 99, or makes it
/// an ordinary thread again: 0. Threads that it starts are ordinary.
///
/// # Errors
/// EPERM without CAP_SYS_NICE for a priority above RLIMIT_RTPRIO, or if a seccomp filter forbids the call; ESRCH if the
/// thread has ended.
pub fn set_priority(thread: Option<Pid>, priority: u8) -> rustix::io::Result<()> {
    let policy = if priority == 0 { libc::SCHED_OTHER } else { libc::SCHED_RR };
    let parameters = libc::sched_param { sched_priority: priority.into() };
    let thread = thread.map_or(0, |thread| thread.as_raw_nonzero().get());
    // SAFETY: the kernel reads the parameters during the call.
    let result = unsafe {
        libc::sched_setscheduler(thread, policy | libc::SCHED_RESET_ON_FORK, &raw const parameters)
    };
    outcome(result).map(drop)
}

/// Real-time priority of the calling thread; 0: it is an ordinary thread.
#[must_use]
pub fn own_priority() -> u8 {
    // SAFETY: a call without pointers.
    let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    if policy != libc::SCHED_RR && policy != libc::SCHED_FIFO {
        return 0;
    }
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel writes the parameters during the call.
    let read = unsafe { libc::sched_getparam(0, &raw mut parameters) };
    outcome(read).map_or(0, |_| u8::try_from(parameters.sched_priority).unwrap_or(HIGHEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore)]
    fn a_thread_gets_its_priority_and_loses_it() {
        std::thread::spawn(|| {
            assert_eq!(own_priority(), 0);
            match set_priority(None, 3) {
                Ok(()) => assert_eq!(own_priority(), 3),
                Err(errno) => assert_eq!((errno, own_priority()), (Errno::PERM, 0)),
            }
            set_priority(Some(rustix::thread::gettid()), 0).unwrap();
            assert_eq!(own_priority(), 0);
        })
        .join()
        .unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn a_priority_out_of_range_is_refused() {
        assert!(set_priority(None, HIGHEST + 1).is_err());
    }
}
