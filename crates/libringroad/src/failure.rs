//! Why a function of the library failed.

use std::ffi::c_int;
use std::io;

/// An errno for the program, and a sentence for the person who runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What `errno` becomes.
    pub errno: c_int,
    /// What went wrong and where; `None` if somebody has said it already.
    pub message: Option<String>,
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

    /// What the last system call left in `errno`, with what was tried.
    #[must_use]
    pub fn of_system(what: &str) -> Self {
        let error = io::Error::last_os_error();
        Self::new(error.raw_os_error().unwrap_or(libc::EIO), format!("{what}: {error}"))
    }

    /// A callback of the program failed, which has reported it itself.
    #[must_use]
    pub fn reported(errno: c_int) -> Self {
        Self { errno, message: None }
    }
}

/// Bytes of a name as a person can read them.
#[must_use]
pub fn readable(text: &[u8]) -> String {
    format!("`{}`", text.escape_ascii())
}
