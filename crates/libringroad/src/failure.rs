//! Failures of the library's functions.

pub use ringroad_c_face::CallError;

/// Bytes of a name as a person can read them.
#[must_use]
pub fn readable(text: &[u8]) -> String {
    format!("`{}`", text.escape_ascii())
}
