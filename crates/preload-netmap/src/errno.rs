//! The calling thread's `errno`.

use std::ffi::c_int;

use rustix::io::Errno;

/// Its value.
pub(crate) fn get() -> c_int {
    // SAFETY: always succeeds.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it is the thread's own, for as long as the thread runs.
    unsafe { *place }
}

/// Sets it.
pub(crate) fn set(value: c_int) {
    // SAFETY: always succeeds.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it is the thread's own, for as long as the thread runs.
    unsafe { *place = value };
}

/// Fails a call: sets `errno` and gives what calls return then.
pub(crate) fn fail(errno: Errno) -> c_int {
    set(errno.raw_os_error());
    -1
}

/// What a call returns for a result.
pub(crate) fn returned(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(fail)
}

/// The error that `errno` tells of.
pub(crate) fn last() -> Errno {
    Errno::from_raw_os_error(get())
}
