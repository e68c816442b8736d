//! Shared code of the libraries for programs in C: a failure is an errno for the program and a sentence for its user.
#![deny(missing_docs)]
#![allow(unsafe_code)]

use std::ffi::{CString, c_int};
use std::io::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The calling thread's `errno`.
#[must_use]
pub fn errno() -> c_int {
    // SAFETY: always succeeds.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: it is the thread's own, for as long as the thread runs.
    unsafe { errno.read() }
}

/// Sets the calling thread's `errno`.
pub fn set_errno(value: c_int) {
    // SAFETY: always succeeds.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: it is the thread's own, for as long as the thread runs.
    unsafe { errno.write(value) };
}

/// Why a function failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// What `errno` becomes.
    pub errno: c_int,
    /// The error and its place; `None` if there is nothing to report, or it was already reported.
    pub message: Option<String>,
}

impl CallError {
    /// A failure with this errno and sentence.
    #[must_use]
    pub fn new(errno: c_int, message: impl Into<String>) -> Self {
        Self { errno, message: Some(message.into()) }
    }

    /// A failure without a sentence.
    #[must_use]
    pub const fn silent(errno: c_int) -> Self {
        Self { errno, message: None }
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

    /// What the last system call left in `errno`, with what was tried.
    #[must_use]
    pub fn of_system(what: &str) -> Self {
        let error = Error::last_os_error();
        Self::new(error.raw_os_error().unwrap_or(libc::EIO), format!("{what}: {error}"))
    }

    /// Sets `errno`; the sentence as a string of C.
    #[must_use]
    pub fn tell(self) -> Option<CString> {
        set_errno(self.errno);
        self.message.map(|message| CString::new(message.replace('\0', "\\0")).unwrap_or_default())
    }
}

/// What `call` gives. A panic, which would be a defect of `library`, does not cross into C.
pub fn contained<T>(library: &str, call: impl FnOnce() -> Result<T, CallError>) -> Result<T, CallError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        Err(CallError::new(libc::EIO, format!("{library} has a defect: a function of it panicked")))
    })
}
