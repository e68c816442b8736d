//! Heap of the process.
#![allow(unsafe_code)]

/// Returns free pages that the allocator keeps to the kernel: after large releases, the allocator keeps most pages.
/// Takes milliseconds for each GiB; meanwhile other threads may wait for memory.
pub fn give_back() {
    #[cfg(all(target_env = "gnu", not(miri)))]
    // SAFETY: the call reads and changes nothing but the allocator's own state, under its locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
