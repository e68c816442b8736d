//! Why a function of the library failed: an errno for the program, a sentence for people.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ringroad_sze2::client::CardError;
use ringroad_sze2::memory::MemoryError;
use ringroad_sze2::message::MessageError;

thread_local! {
    /// The sentence of this thread's last failure.
    static LAST: RefCell<CString> = RefCell::default();
}

/// An errno for the program, and a sentence for the person who runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What `errno` becomes.
    errno: c_int,
    /// `None` where nothing went wrong: there is only nothing to be had yet.
    message: Option<String>,
}

impl Failure {
    /// A failure with this errno and sentence.
    #[must_use]
    pub fn new(errno: c_int, message: impl Into<String>) -> Self {
        Self { errno, message: Some(message.into()) }
    }

    /// `EINVAL` with this sentence.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, message)
    }

    /// A pointer that must not be NULL was.
    #[must_use]
    pub fn null(what: &str) -> Self {
        Self::invalid(format!("{what} is NULL"))
    }

    /// There is nothing now, which is no failure: the last sentence stays.
    #[must_use]
    pub const fn not_now() -> Self {
        Self { errno: libc::EAGAIN, message: None }
    }

    fn tell(self) {
        if let Some(message) = self.message {
            let message = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
            // A thread that ends has no place for it any more.
            let _ = LAST.try_with(|last| last.replace(message));
        }
        // SAFETY: there is always such a place.
        let place = unsafe { libc::__errno_location() };
        // SAFETY: it is this thread's.
        unsafe { place.write(self.errno) };
    }
}

impl From<CardError> for Failure {
    fn from(error: CardError) -> Self {
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
            CardError::Fault { .. } | CardError::Stopped(_) => libc::EBADMSG,
            CardError::NotSubscribed(_) => libc::EINVAL,
            _ => libc::EPROTO,
        };
        Self::new(errno, error.to_string())
    }
}

/// What `call` gives. Where it fails, that is told to the thread, and the answer is what `otherwise` makes of its errno.
pub fn answer<T>(otherwise: impl FnOnce(c_int) -> T, call: impl FnOnce() -> Result<T, Failure>) -> T {
    let outcome = catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| Err(Failure::new(libc::EIO, "libsze2 has a defect: a function of it panicked")));
    outcome.unwrap_or_else(|failure| {
        let errno = failure.errno;
        failure.tell();
        otherwise(errno)
    })
}

/// As [`answer`], of a function that returns 0 or an errno.
pub fn errno_of(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    answer(|errno| errno, || call().map(|()| 0))
}

/// As [`answer`], of a function that returns 0 or -1.
pub fn status_of(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    answer(|_| -1, || call().map(|()| 0))
}

/// The sentence of this thread's last failure, which stays until the next; empty before the first.
#[must_use]
pub fn last_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn a_panic_is_an_answer() {
        let answered = status_of(|| {
            let empty: [u8; 0] = [];
            let _ = std::hint::black_box(&empty[..])[0];
            Ok(())
        });
        assert_eq!(answered, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EIO));
        // SAFETY: it is a C string of this thread's, and no other call is made meanwhile.
        assert!(unsafe { CStr::from_ptr(last_message()) }.to_str().unwrap().contains("defect"));
        assert_eq!(errno_of(|| Err(Failure::null("x"))), libc::EINVAL);
    }
}
