//! The eventfds with which two sides wake each other. No read or write of an eventfd blocks.
//!
//! `O_NONBLOCK` belongs to the open file. So any other holder of an eventfd can clear the flag at any time, fill the
//! counter, and let the next write(2) block for ever. If an untrusted peer holds the eventfd, no operation relies on
//! the flag:
//!
//! - [`drain`] sets "do not wait" for each read (`RWF_NOWAIT`).
//! - [`ring`] lets the kernel signal the eventfd as the completion of an asynchronous operation (Linux AIO,
//!   `IOCB_FLAG_RESFD`), which adds 1 and never waits. The operation is a poll of the eventfd itself: an eventfd is
//!   always ready for reading, for writing, or in error.
//! - [`ring_own`] is a plain write, at a third of the price, for an eventfd that never left its process, or that only
//!   the daemon holds as well.
#![allow(unsafe_code)]

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags};

/// Creates an eventfd at zero, non-blocking and close-on-exec.
///
/// # Errors
/// The kernel's error (no free descriptor).
pub fn create() -> rustix::io::Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Adds 1 to an eventfd that other processes hold, and never waits. A full counter already signals; a descriptor that
/// is not an eventfd is unchanged.
///
/// If two threads signal one eventfd at the same moment, the kernel may add the second 1 a little later, in a kernel
/// thread: it signals no eventfd from within the signal of an eventfd (`eventfd_signal_allowed`).
pub fn ring(event: impl AsFd) {
    let descriptor = event.as_fd().as_raw_fd() as u32;
    let mut context = Context::current();
    loop {
        match context.submit(descriptor) {
            // The context is full of completed operations. It can be full again after they are reaped, because other
            // threads signal as well. Then the signal of each of these threads was sent, and this thread's turn comes.
            Err(Errno::AGAIN) => context.reap(),
            // The context belongs to the process that forked this process.
            Err(Errno::INVAL) if !context.is_known() => match Context::replace(context) {
                Ok(fresh) => context = fresh,
                Err(_) => return,
            },
            _ => return,
        }
    }
}

/// Adds 1 to an eventfd; all its holders are trusted not to make it blocking.
pub fn ring_own(event: impl AsFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Sets the counter to zero, and never waits. A counter of zero stays unchanged.
pub fn drain(event: impl AsFd) {
    let mut count = [0; 8];
    // The position is -1: an eventfd has none.
    let _ = rustix::io::preadv2(event, &mut [IoSliceMut::new(&mut count)], u64::MAX, ReadWriteFlags::NOWAIT);
}

/// Makes sure that [`ring`] works in this process. Call it before other processes get an eventfd.
///
/// # Errors
/// The kernel refuses a context for asynchronous I/O: `EAGAIN` if all of `fs.aio-max-nr` is in use, `ENOSYS` if the
/// kernel has no asynchronous I/O.
pub fn prepare() -> rustix::io::Result<()> {
    let context = Context::current();
    if context.is_known() { Ok(()) } else { Context::replace(context).map(|_| ()) }
}

/// Maximum number of completed operations that a context holds until they are reaped. The kernel has room for more.
const COMPLETIONS: usize = 64;
/// Value in linux/aio_abi.h.
const IOCB_CMD_POLL: u16 = 5;
const IOCB_FLAG_RESFD: u32 = 1;

/// This process's context for asynchronous operations; 0 before there is one. After fork(2), a child finds its parent's
/// context, which the kernel does not know in the child.
static CONTEXT: AtomicU64 = AtomicU64::new(0);

/// Number of a context, from the kernel (`aio_context_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Context(u64);

/// Layout of `struct io_event` (linux/aio_abi.h).
#[derive(Clone, Copy)]
#[repr(C)]
struct Completion {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

fn outcome(result: libc::c_long) -> rustix::io::Result<u64> {
    u64::try_from(result)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

impl Context {
    fn current() -> Self {
        Self(CONTEXT.load(Ordering::Acquire))
    }

    /// Replaces the context `old` by a new one, unless another thread has already done so.
    #[cold]
    fn replace(old: Self) -> rustix::io::Result<Self> {
        let mut fresh = 0u64;
        // SAFETY: the kernel writes the number of the context into memory of our own.
        outcome(unsafe { libc::syscall(libc::SYS_io_setup, COMPLETIONS, &raw mut fresh) })?;
        match CONTEXT.compare_exchange(old.0, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(Self(fresh)),
            Err(other) => {
                // SAFETY: no other code has seen this context.
                unsafe { libc::syscall(libc::SYS_io_destroy, fresh) };
                Ok(Self(other))
            }
        }
    }

    /// Whether the kernel knows the context in this process.
    #[cold]
    fn is_known(self) -> bool {
        self.completed(&mut []).is_ok()
    }

    /// Signals an eventfd by an operation that is complete at once.
    fn submit(self, event: u32) -> rustix::io::Result<()> {
        // SAFETY: all zeros are a valid iocb.
        let mut operation: libc::iocb = unsafe { std::mem::zeroed() };
        operation.aio_lio_opcode = IOCB_CMD_POLL;
        operation.aio_fildes = event;
        operation.aio_buf = (libc::POLLIN | libc::POLLOUT) as u64;
        operation.aio_flags = IOCB_FLAG_RESFD;
        operation.aio_resfd = event;
        let mut operations = [&raw mut operation];
        // SAFETY: the kernel reads one pointer to one operation, and both live until the call returns; a poll has no
        // buffer.
        outcome(unsafe { libc::syscall(libc::SYS_io_submit, self.0, 1, operations.as_mut_ptr()) }).map(|_| ())
    }

    /// Takes completed operations off the context.
    #[cold]
    fn reap(self) {
        let nothing = Completion { data: 0, object: 0, result: 0, result2: 0 };
        let _ = self.completed(&mut [nothing; 2 * COMPLETIONS]);
    }

    fn completed(self, events: &mut [Completion]) -> rustix::io::Result<u64> {
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes at most as many events as there is room for; the time is read during the call.
        outcome(unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.0,
                0,
                events.len(),
                events.as_mut_ptr(),
                &raw const at_once,
            )
        })
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use rustix::event::{PollFd, PollFlags};
    use rustix::fs::OFlags;

    use super::*;

    fn count(event: &OwnedFd) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(event, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    /// Waits for a signal that may still be on its way; true if it comes within a minute.
    fn readable_within_a_minute(event: &OwnedFd) -> bool {
        let minute = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        rustix::event::poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&minute)) == Ok(1)
    }

    /// The worst state in which another holder may leave an eventfd: blocking and full.
    fn hostile() -> OwnedFd {
        let event = create().unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        rustix::fs::fcntl_setfl(&event, OFlags::empty()).unwrap();
        event
    }

    #[test]
    fn a_thousand_signals_all_count_in_a_context_with_less_room() {
        let (one, other) = (create().unwrap(), create().unwrap());
        for _ in 0..1000 {
            ring(&one);
        }
        ring(&other);
        assert_eq!((count(&one), count(&other)), (1000, 1));
        assert_eq!(count(&one), 0);
    }

    #[test]
    fn threads_signal_at_once_and_no_signal_is_lost() {
        let event = create().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..20_000).for_each(|_| ring(&event)));
            }
        });
        let mut signals = 0;
        while signals < 160_000 && readable_within_a_minute(&event) {
            signals += count(&event);
        }
        assert_eq!(signals, 160_000);
        assert_eq!(count(&event), 0);
    }

    #[test]
    fn a_full_blocking_eventfd_does_not_block_the_sender() {
        let event = hostile();
        ring(&event);
        drain(&event);
        drain(&event);
        ring(&event);
        assert_eq!(count(&event), 1);
    }

    #[test]
    fn a_descriptor_that_is_not_an_eventfd_is_not_written() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        ring(&writer);
        ring(&reader);
        rustix::fs::fcntl_setfl(&reader, OFlags::NONBLOCK).unwrap();
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]).unwrap_err(), Errno::AGAIN);
    }

    #[test]
    fn a_forked_child_signals_too() {
        let event = create().unwrap();
        ring(&event);
        // SAFETY: the child makes only system calls, and ends without running anything of the parent's.
        let child = unsafe { libc::fork() };
        if child == 0 {
            ring(&event);
            ring(&event);
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        let child = rustix::process::Pid::from_raw(child).unwrap();
        rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
        assert_eq!(count(&event), 3);
    }
}
