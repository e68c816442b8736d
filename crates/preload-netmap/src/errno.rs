//! The calling thread's `errno`.

use std::ffi::c_int;

pub(crate) use ringroad_c_face::{errno as get, set_errno as set};
use rustix::io::Errno;

/// Fails a call: sets `errno` and gives what calls return then.
#[cold]
pub(crate) fn fail(errno: Errno) -> c_int {
    set(errno.raw_os_error());
    -1
}

/// A call's return value for a result.
pub(crate) fn returned(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(fail)
}

/// The error in `errno`.
pub(crate) fn last() -> Errno {
    Errno::from_raw_os_error(get())
}
