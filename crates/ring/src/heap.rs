//! The process's own heap.
#![allow(unsafe_code)]

/// Gives pages that the allocator keeps for later back to the kernel: after much was freed, it keeps most. Takes
/// milliseconds for each GiB, in which other threads may wait for memory.
pub fn give_back() {
    #[cfg(all(target_env = "gnu", not(miri)))]
    // SAFETY: the call reads and changes nothing but the allocator's own state, under its locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
