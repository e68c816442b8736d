//! Failures of the library's functions.

pub use ringroad_c_face::CallError;

/// Name as text that a person can read.
#[must_use]
pub fn readable(text: &[u8]) -> String {
    format!("`{}`", text.escape_ascii())
}
