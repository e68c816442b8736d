//! Errors for callers of libpcap's functions: a number, and a text in the handle or in the caller's buffer.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{c_char, c_int};
use ringroad::control::ControlError;
use ringroad::control::message::ErrorKind;
use ringroad::{OpenError, PortError};

use crate::abi::{
    ERROR_TEXT_BYTES, PCAP_ERROR, PCAP_ERROR_ACTIVATED, PCAP_ERROR_NO_SUCH_DEVICE, PCAP_ERROR_NOT_ACTIVATED,
    PCAP_ERROR_PERM_DENIED,
};

/// Failure of a function of libpcap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PcapError {
    /// The function's return value.
    pub(crate) code: c_int,
    /// Text for `pcap_geterr`.
    pub(crate) text: String,
}

impl PcapError {
    /// Makes a failure without a number of its own.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { code: PCAP_ERROR, text: text.into() }
    }

    /// Makes a failure with a number.
    pub(crate) fn coded(code: c_int, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// Failure of a function that needs an activated handle.
    pub(crate) fn not_activated() -> Self {
        Self::coded(PCAP_ERROR_NOT_ACTIVATED, "this device is not activated yet: call pcap_activate first")
    }

    /// Failure of a function for handles that are not activated.
    pub(crate) fn activated() -> Self {
        Self::coded(PCAP_ERROR_ACTIVATED, "this device is activated already: set this before pcap_activate")
    }
}

impl From<OpenError> for PcapError {
    fn from(error: OpenError) -> Self {
        let code = match &error {
            OpenError::Name(_) => PCAP_ERROR_NO_SUCH_DEVICE,
            OpenError::Control(ControlError::PermissionDenied { .. }) => PCAP_ERROR_PERM_DENIED,
            OpenError::Control(ControlError::Refused(refusal)) => match refusal.kind {
                ErrorKind::BadName | ErrorKind::NoSuchPort => PCAP_ERROR_NO_SUCH_DEVICE,
                ErrorKind::PermissionDenied => PCAP_ERROR_PERM_DENIED,
                _ => PCAP_ERROR,
            },
            _ => PCAP_ERROR,
        };
        Self::coded(code, error.to_string())
    }
}

impl From<PortError> for PcapError {
    fn from(error: PortError) -> Self {
        Self::new(error.to_string())
    }
}

/// Writes `text` into a buffer of [`ERROR_TEXT_BYTES`], with a NUL after it. A text that is too long is cut.
///
/// # Safety
/// `into` is null or has [`ERROR_TEXT_BYTES`] writable bytes.
pub(crate) unsafe fn write_text(into: *mut c_char, text: &str) {
    if into.is_null() {
        return;
    }
    let end = text.floor_char_boundary(ERROR_TEXT_BYTES - 1);
    // SAFETY: `end` is below the buffer's size, and the text does not overlap the buffer.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), into.cast(), end) };
    // SAFETY: `end` is below the buffer's size.
    let terminator = unsafe { into.add(end) };
    // SAFETY: the address is within the buffer.
    unsafe { terminator.write(0) };
}

/// Return value of a function that failed without an error text.
pub(crate) trait Failed {
    /// Value that stands for a failure.
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: Self = PCAP_ERROR;
}

impl Failed for () {
    const FAILED: Self = ();
}

impl<T> Failed for *mut T {
    const FAILED: Self = std::ptr::null_mut();
}

impl<T> Failed for *const T {
    const FAILED: Self = std::ptr::null();
}

/// Runs `f`, and keeps a panic, which would be an error of this library, from crossing into C.
#[inline]
pub(crate) fn contained<T: Failed>(f: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(T::FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut buffer = [1 as c_char; ERROR_TEXT_BYTES];
        let text = "ä".repeat(200);
        // SAFETY: the buffer has the requested size.
        unsafe { write_text(buffer.as_mut_ptr(), &text) };
        assert_eq!((buffer[254], buffer[255]), (0, 1));
        // SAFETY: the pointer may be null.
        unsafe { write_text(std::ptr::null_mut(), "x") };
    }

    #[test]
    fn a_panic_becomes_a_failure() {
        assert_eq!(contained(|| -> c_int { panic!("on purpose") }), PCAP_ERROR);
    }
}
