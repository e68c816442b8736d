//! Copy of frames between isolated regions: tuned for frames, exact to the byte.
//!
//! Nothing beyond `len` is read or written, so no stale byte of one program reaches another. Short frames are copied in
//! two overlapping blocks instead of a byte tail. So a byte may be read twice. This is fine for payload, but no caller
//! may check the source afterwards.
#![allow(unsafe_code)]

/// Copies `len` bytes.
///
/// # Safety
/// `len` bytes must be readable at `from` and writable at `to`. If a hostile program makes the ranges overlap (one
/// buffer named twice in its own region), it gets an unspecified mixture of its own bytes.
#[inline]
pub unsafe fn copy_bytes(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        match len {
            // Length of nearly all short frames: no loop, and no call.
            33..=64 => {
                // SAFETY: the caller's contract; the last two blocks end where the range does.
                unsafe { copy_32(from, to, 0) };
                // SAFETY: as above.
                unsafe { copy_32(from, to, len - 32) };
            }
            // SAFETY: the caller's contract.
            _ => unsafe { copy_others(from, to, len) },
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's contract.
    unsafe {
        core::ptr::copy(from, to, len);
    }
}

/// Copies `len` bytes, for any `len`. A separate function, so that loops over short frames keep their values in
/// registers.
///
/// # Safety
/// The conditions of [`copy_bytes`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[cold]
#[inline(never)]
unsafe fn copy_others(from: *const u8, to: *mut u8, len: usize) {
    match len {
        16..=32 => {
            let last = len - 16;
            // SAFETY: the caller's contract; the last block ends where the range does.
            unsafe { copy_16(from, to, 0) };
            // SAFETY: as above.
            unsafe { copy_16(from, to, last) };
        }
        // Lengths of virtio headers: too short for a 16-byte block, too frequent for a call.
        8..16 => {
            // SAFETY: as above.
            unsafe { copy_8(from, to, 0) };
            // SAFETY: as above.
            unsafe { copy_8(from, to, len - 8) };
        }
        65..=256 => {
            let last = len - 32;
            let mut offset = 0;
            while offset < last {
                // SAFETY: offset + 32 <= len, the caller's contract covers it.
                unsafe { copy_32(from, to, offset) };
                offset += 32;
            }
            // SAFETY: last + 32 == len.
            unsafe { copy_32(from, to, last) };
        }
        // SAFETY: the caller's contract.
        _ => unsafe { core::ptr::copy(from, to, len) },
    }
}

/// Copies 8 bytes at `offset` of both ranges.
///
/// # Safety
/// `offset + 8` bytes must be readable at `from` and writable at `to`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn copy_8(from: *const u8, to: *mut u8, offset: usize) {
    // SAFETY: within the range of the contract.
    let source = unsafe { from.add(offset) }.cast::<u64>();
    // SAFETY: within the range of the contract.
    let target = unsafe { to.add(offset) }.cast::<u64>();
    // SAFETY: an unaligned load of 8 readable bytes.
    let word = unsafe { source.read_unaligned() };
    // SAFETY: an unaligned store to 8 writable bytes.
    unsafe { target.write_unaligned(word) };
}

/// Copies 32 bytes at `offset` of both ranges.
///
/// # Safety
/// `offset + 32` bytes must be readable at `from` and writable at `to`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn copy_32(from: *const u8, to: *mut u8, offset: usize) {
    // SAFETY: the caller's contract.
    unsafe { copy_16(from, to, offset) };
    // SAFETY: the caller's contract.
    unsafe { copy_16(from, to, offset + 16) };
}

/// Copies 16 bytes at `offset` of both ranges.
///
/// # Safety
/// `offset + 16` bytes must be readable at `from` and writable at `to`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn copy_16(from: *const u8, to: *mut u8, offset: usize) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};
    // SAFETY: within the range of the contract.
    let source = unsafe { from.add(offset) }.cast::<__m128i>();
    // SAFETY: within the range of the contract.
    let target = unsafe { to.add(offset) }.cast::<__m128i>();
    // SAFETY: an unaligned load of 16 readable bytes.
    let block = unsafe { _mm_loadu_si128(source) };
    // SAFETY: an unaligned store to 16 writable bytes.
    unsafe { _mm_storeu_si128(target, block) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_exactly() {
        let source: Vec<u8> = (0..2048u32).map(|i| (i * 7 + 1) as u8).collect();
        for len in (0..=300).chain([511, 512, 1514, 2048]) {
            let mut target = vec![0xEE; 2048 + 32];
            // SAFETY: both vectors hold `len` bytes and are distinct.
            unsafe { copy_bytes(source.as_ptr(), target.as_mut_ptr(), len) };
            assert_eq!(target[..len], source[..len], "length {len}");
            assert!(target[len..].iter().all(|&byte| byte == 0xEE), "length {len} wrote too far");
        }
    }
}
