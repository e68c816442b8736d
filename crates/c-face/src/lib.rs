//! Code that the libraries for programs in C share: a failure is an errno for the program and a sentence for its user.
#![deny(missing_docs)]
#![allow(unsafe_code)]

use std::ffi::{CString, c_int};
use std::io::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The calling thread's `errno`.
#[must_use]
pub fn errno() -> c_int {
    // SAFETY: the function always succeeds.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the location is the thread's own, for as long as the thread runs.
    unsafe { errno.read() }
}

/// Sets the calling thread's `errno`.
pub fn set_errno(value: c_int) {
    // SAFETY: the function always succeeds.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the location is the thread's own, for as long as the thread runs.
    unsafe { errno.write(value) };
}

/// Reason why a function failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// Value for `errno`.
    pub errno: c_int,
    /// Sentence with the error and its location; `None` if there is nothing to report, or it was already reported.
    pub message: Option<String>,
}

impl CallError {
    /// Creates a failure with this errno and sentence.
    #[must_use]
    pub fn new(errno: c_int, message: impl Into<String>) -> Self {
        Self { errno, message: Some(message.into()) }
    }

    /// Creates a failure without a sentence.
    #[must_use]
    pub const fn silent(errno: c_int) -> Self {
        Self { errno, message: None }
    }

    /// Creates a failure with `EINVAL` and this sentence.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, message)
    }

    /// Creates a failure for a pointer that is NULL and must not be.
    #[must_use]
    pub fn null(what: &str) -> Self {
        Self::invalid(format!("{what} is NULL"))
    }

    /// Creates a failure from the last system call's `errno`; `what` names the attempted step.
    #[must_use]
    pub fn of_system(what: &str) -> Self {
        let error = Error::last_os_error();
        Self::new(error.raw_os_error().unwrap_or(libc::EIO), format!("{what}: {error}"))
    }

    /// Sets `errno`, and returns the sentence as a string of C.
    #[must_use]
    pub fn tell(self) -> Option<CString> {
        set_errno(self.errno);
        self.message.map(|message| CString::new(message.replace('\0', "\\0")).unwrap_or_default())
    }
}

/// Result of `call`. A panic, which would be a defect of `library`, does not cross into C.
pub fn contained<T>(library: &str, call: impl FnOnce() -> Result<T, CallError>) -> Result<T, CallError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        Err(CallError::new(libc::EIO, format!("{library} has a defect: a function of it panicked")))
    })
}
