//! The machine's busybox, with the libraries that it needs.

use std::path::PathBuf;

use crate::error::GuestError;
use crate::program;

/// The tools of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busybox {
    pub program: PathBuf,
    /// Shared libraries and loader of busybox; empty if it is linked statically.
    pub libraries: Vec<PathBuf>,
}

impl Busybox {
    /// Finds busybox in PATH.
    ///
    /// # Errors
    /// [`GuestError`]: busybox is not installed, or ldd failed.
    pub fn find() -> Result<Self, GuestError> {
        let program = program::find("busybox", "busybox")?;
        let libraries = program::libraries(&program)?;
        Ok(Self { program, libraries })
    }
}
