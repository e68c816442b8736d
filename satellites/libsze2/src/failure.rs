//! Failures as a program sees them: a result, an errno, and an error message for each thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

pub use ringroad_c_face::CallError;
use ringroad_c_face::contained;
use ringroad_sze2::client::CardError;
use ringroad_sze2::memory::MemoryError;
use ringroad_sze2::message::MessageError;

/// Absence of data or room at the moment. It is not a failure: the last error message stays.
pub const NOT_NOW: CallError = CallError::silent(libc::EAGAIN);

thread_local! {
    /// Error message of this thread's last failure.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Translates a failure of the card for the program.
pub fn of_card(error: CardError) -> CallError {
    let errno = match &error {
        CardError::NotThere { source, .. } | CardError::Wait(source) | CardError::NoWaking(source) => {
            source.raw_os_error().unwrap_or(libc::ENOENT)
        }
        CardError::Refused(_) => libc::EPERM,
        CardError::Message { source: MessageError::Gone, .. } => libc::ENODEV,
        CardError::Message { source: MessageError::Silent(_), .. } => libc::ETIMEDOUT,
        CardError::Message { source: MessageError::System(source), .. } => {
            source.raw_os_error().unwrap_or(libc::EIO)
        }
        CardError::Memory(MemoryError::System { source, .. }) => source.raw_os_error(),
        CardError::OtherProcess(_) => libc::EBADF,
        CardError::Fault { .. } | CardError::Stopped(_) => libc::EBADMSG,
        _ => libc::EPROTO,
    };
    CallError::new(errno, error.to_string())
}

/// The result of `call`. On failure, stores the error for the thread and returns `otherwise` of its errno.
#[inline]
pub fn answer<T>(otherwise: impl FnOnce(c_int) -> T, call: impl FnOnce() -> Result<T, CallError>) -> T {
    contained("libsze2", call).unwrap_or_else(|failure| otherwise(store(failure)))
}

/// Stores the failure for the thread and returns its errno.
#[cold]
fn store(failure: CallError) -> c_int {
    let errno = failure.errno;
    if let Some(message) = failure.tell() {
        // A thread that is ending cannot store the message any more.
        let _ = LAST.try_with(|last| last.replace(message));
    }
    errno
}

/// Calls a function that returns 0 or an errno, as [`answer`] does.
pub fn errno_of(call: impl FnOnce() -> Result<(), CallError>) -> c_int {
    answer(|errno| errno, || call().map(|()| 0))
}

/// Calls a function that returns 0 or -1, as [`answer`] does.
pub fn status_of(call: impl FnOnce() -> Result<(), CallError>) -> c_int {
    number_of(|| call().map(|()| 0))
}

/// Calls a function that returns a number or -1, as [`answer`] does.
#[inline]
pub fn number_of(call: impl FnOnce() -> Result<c_int, CallError>) -> c_int {
    answer(|_| -1, call)
}

/// Error message of this thread's last failure. It stays until the next failure, and is empty before the first.
#[must_use]
pub fn last_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn a_panic_becomes_an_error_code() {
        let answered = status_of(|| {
            let empty: [u8; 0] = [];
            let _ = std::hint::black_box(&empty[..])[0];
            Ok(())
        });
        assert_eq!(answered, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EIO));
        // SAFETY: the message is a C string of this thread, and no other call is made meanwhile.
        assert!(unsafe { CStr::from_ptr(last_message()) }.to_str().unwrap().contains("defect"));
        assert_eq!(errno_of(|| Err(CallError::null("x"))), libc::EINVAL);
    }
}
