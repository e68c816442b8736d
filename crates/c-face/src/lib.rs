//! Code that the libraries for programs in C share: a failure is an errno for the program and a sentence for its user.
//! Functions of other libraries are found when they are needed. A call that waits has a time limit. Signals can wait.
#![deny(missing_docs)]
#![allow(unsafe_code)]

mod blocked_signals;

use std::cell::OnceCell;
use std::ffi::{CStr, CString, c_int, c_void};
use std::io::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

pub use blocked_signals::BlockedSignals;

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

/// Function of another library, which is looked up by its name when it is first needed.
#[derive(Debug)]
pub struct ForeignFunction {
    /// Name of the function.
    pub name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl ForeignFunction {
    /// Names a function. The name ends with a NUL.
    #[must_use]
    pub const fn new(name_with_nul: &'static str) -> Self {
        let Ok(name) = CStr::from_bytes_with_nul(name_with_nul.as_bytes()) else {
            panic!("names end with NUL")
        };
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Address of the function in `library`, a handle as `dlopen` returns it, or `RTLD_NEXT`; null if the handle is
    /// null, or the library does not have the function.
    #[inline]
    pub fn find(&self, library: impl FnOnce() -> *mut c_void) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.look_up(library()) } else { known }
    }

    #[cold]
    fn look_up(&self, library: *mut c_void) -> *mut c_void {
        if library.is_null() {
            return library;
        }
        // SAFETY: the handle is valid, and the name ends with NUL.
        let found = unsafe { libc::dlsym(library, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// End of a wait without an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimeLimit {
    /// The wait does not begin.
    Now,
    /// The wait ends this long after the first query of the remaining time, which sets the end: a call that succeeds at
    /// once reads no clock. `None`: the end is too far away to represent.
    After(Duration, OnceCell<Option<Instant>>),
    /// The wait does not end.
    Never,
}

impl TimeLimit {
    /// Limit after a time.
    #[must_use]
    pub fn after(time: Duration) -> Self {
        if time.is_zero() {
            return Self::Now;
        }
        Self::After(time, OnceCell::new())
    }

    /// Limit after milliseconds; negative: no limit.
    #[must_use]
    pub fn from_milliseconds(milliseconds: i32) -> Self {
        u64::try_from(milliseconds).map_or(Self::Never, |time| Self::after(Duration::from_millis(time)))
    }

    /// Remaining time, zero once the limit has passed; `None` without a limit.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        match self {
            Self::Now => Some(Duration::ZERO),
            Self::After(time, end) => {
                let now = Instant::now();
                let end = end.get_or_init(|| now.checked_add(*time));
                end.map(|end| end.saturating_duration_since(now))
            }
            Self::Never => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_never_exceeds_the_limit() {
        let hour = Duration::from_secs(3600);
        let left = TimeLimit::after(hour).left().unwrap();
        assert!(left <= hour && left > hour / 2);
        assert_eq!(TimeLimit::Now.left(), Some(Duration::ZERO));
        assert_eq!(TimeLimit::Never.left(), None);
        assert_eq!(TimeLimit::after(Duration::MAX).left(), None);
    }

    #[test]
    fn a_limit_comes_to_its_end() {
        let limit = TimeLimit::after(Duration::from_nanos(1));
        while limit.left() != Some(Duration::ZERO) {}
        assert_eq!(limit.left(), Some(Duration::ZERO));
    }
}
