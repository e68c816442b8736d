//! Access to the calling thread's `errno`.

use std::ffi::c_int;

pub(crate) use ringroad_c_face::{errno as get, set_errno as set};
use rustix::io::Errno;

/// Fails a call: sets `errno`, and returns the value that failed calls return.
#[cold]
pub(crate) fn fail(errno: Errno) -> c_int {
    set(errno.raw_os_error());
    -1
}

/// Return value of a call with this result.
pub(crate) fn returned(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(fail)
}

/// Error in `errno`.
pub(crate) fn last() -> Errno {
    Errno::from_raw_os_error(get())
}
