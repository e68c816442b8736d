//! Whether the holder of a lock in shared memory lives: the answer comes from the kernel, never from that memory.
//!
//! A process proves its number ([`HolderNumber`]) by keeping the byte of that number locked in the region's memfd
//! (bytes behind a file's end can be locked too), through an open file description of its own. The kernel unlocks the
//! byte when the last copy of this description is closed: when the process exits, is killed, or becomes another
//! program. Any process with the memfd can query the lock of a byte from the kernel, in any PID namespace.
//!
//! Any process with the memfd can lock bytes of other numbers, even all of them. Then a killed process counts as alive,
//! or a later process finds no number to prove: rings that these processes leave locked stay locked.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::shared_lock::HolderNumber;

/// Bit in the number of a process without a proof: the process counts as alive for ever.
const UNPROVEN: u32 = 1 << 30;
/// Number of holder numbers that are tried.
const TRIES: usize = 64;

/// Takes a number that this process keeps while the descriptor is open.
///
/// # Errors
/// The kernel's error: no /proc, which is needed to open the memfd again, no number left, no memory.
pub fn prove(region: BorrowedFd<'_>) -> Result<(HolderNumber, OwnedFd), Errno> {
    let path = format!("/proc/self/fd/{}", region.as_raw_fd());
    let descriptor = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    for _ in 0..TRIES {
        let number = random_number(0).ok_or(Errno::IO)?;
        let byte = byte(number);
        // SAFETY: the call reads one structure.
        if unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_OFD_SETLK, &raw const byte) } == 0 {
            return Ok((number, descriptor));
        }
    }
    Err(Errno::AGAIN)
}

/// A number without a proof; `None` if the kernel has no random bytes.
#[must_use]
pub fn unproven() -> Option<HolderNumber> {
    random_number(UNPROVEN)
}

/// Whether the process with the number `holder` lives; any process with the region can query it. If the kernel gives no
/// answer, the process counts as alive.
#[must_use]
pub fn is_alive(region: BorrowedFd<'_>, holder: HolderNumber) -> bool {
    if holder.get() & UNPROVEN != 0 {
        return true;
    }
    let mut byte = byte(holder);
    // SAFETY: the call reads and writes one structure.
    let asked = unsafe { libc::fcntl(region.as_raw_fd(), libc::F_OFD_GETLK, &raw mut byte) };
    asked != 0 || libc::c_int::from(byte.l_type) != libc::F_UNLCK
}

fn random_number(mark: u32) -> Option<HolderNumber> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
    HolderNumber::new((u32::from_ne_bytes(bytes) & (UNPROVEN - 1)).max(1) | mark)
}

fn byte(number: HolderNumber) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: number.get().into(),
        l_len: 1,
        l_pid: 0,
    }
}
