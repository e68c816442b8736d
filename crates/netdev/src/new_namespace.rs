//! New network namespaces.
#![allow(unsafe_code)]

use rustix::thread::UnshareFlags;

/// Moves the calling thread into a new network namespace.
///
/// # Errors
/// The kernel's error.
pub(crate) fn unshare_network() -> rustix::io::Result<()> {
    // SAFETY: only the network namespace changes; no table of descriptors is unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
}
