//! UMEM: the buffer area of a region, with AF_XDP's addresses.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use ringroad_ring::geometry::CHUNK_HEADROOM_BYTES;
use ringroad_ring::layout::FIRST_BUFFER;
use ringroad_ring::region::Region;
use ringroad_ring::shared::SharedBytes;

use super::error::XdpError;

/// Bytes in front of a frame with which the kernel is asked to fill in its checksum (`struct xsk_tx_metadata` of
/// linux/if_xdp.h). Before Linux 6.15 it reads only the first 16.
pub(super) const TX_REQUEST_BYTES: usize = 24;

/// Coarsest step in which a driver gives its card the size of a buffer.
const ROUGHEST_STEP_BYTES: u32 = 1024;

/// Number of bytes that every card can write into a chunk in one piece, in zero-copy mode. Drivers round the room
/// behind the headroom down. The coarsest steps are those of igb and igc (`igb_setup_srrctl`, `igc_configure_rx_ring`
/// of Linux 6.14), and of ixgbe with an 82599: their cards have buffer sizes in KiB. i40e and ice have steps of 128
/// bytes; mlx5, stmmac and virtio-net have none.
pub(super) fn uncut_bytes(chunk_bytes: u32) -> usize {
    ((chunk_bytes - CHUNK_HEADROOM_BYTES) / ROUGHEST_STEP_BYTES * ROUGHEST_STEP_BYTES) as usize
}

/// The buffers of a region by UMEM address. Chunk `i` holds buffer `i`, which begins where the kernel writes received
/// frames ([`CHUNK_HEADROOM_BYTES`]).
#[derive(Debug, Clone)]
pub(super) struct Umem {
    pub(super) region: Arc<Region>,
    /// First byte and size of the area.
    pub(super) area: NonNull<u8>,
    pub(super) area_bytes: usize,
    /// Log2 of a chunk's size in bytes.
    pub(super) chunk_shift: u32,
    pub(super) chunk_bytes: u32,
    /// Number of buffers, the reserved ones included.
    pub(super) buffers: u32,
    /// Address of the first buffer that frames may lie in.
    first: u64,
}

// SAFETY: the area is shared memory that the region keeps mapped; it is only accessed as raw bytes.
unsafe impl Send for Umem {}

impl Umem {
    /// The buffer area of `region`.
    pub(super) fn new(region: &Arc<Region>) -> Result<Self, XdpError> {
        let geometry = region.geometry();
        if ![2048, 4096].contains(&geometry.buffer_bytes) {
            return Err(XdpError::BufferBytes(geometry.buffer_bytes));
        }
        let (area, area_bytes) = region.buffer_area().ok_or(XdpError::Unmapped)?;
        Ok(Self {
            region: Arc::clone(region),
            area,
            area_bytes,
            chunk_shift: geometry.buffer_bytes.trailing_zeros(),
            chunk_bytes: geometry.buffer_bytes,
            buffers: geometry.buffers,
            first: u64::from(FIRST_BUFFER * geometry.buffer_bytes + CHUNK_HEADROOM_BYTES),
        })
    }

    /// Maximum number of bytes of a frame in one buffer. The kernel lets no descriptor reach into the next chunk.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        (self.chunk_bytes - CHUNK_HEADROOM_BYTES) as usize
    }

    /// Whether `buffer` is one that frames may lie in.
    #[inline]
    pub(super) fn has(&self, buffer: u32) -> bool {
        buffer.wrapping_sub(FIRST_BUFFER) < self.buffers.saturating_sub(FIRST_BUFFER)
    }

    /// UMEM address of the first byte of `buffer`.
    #[inline]
    pub(super) fn address(&self, buffer: u32) -> u64 {
        u64::from(buffer) * u64::from(self.chunk_bytes) + u64::from(CHUNK_HEADROOM_BYTES)
    }

    /// The buffer whose chunk `address` lies in; `None` outside the buffers that frames may lie in.
    #[inline]
    pub(super) fn buffer_at(&self, address: u64) -> Option<u32> {
        u32::try_from(address >> self.chunk_shift).ok().filter(|&buffer| self.has(buffer))
    }

    /// The first `len` bytes (at most [`Umem::capacity`]) of `buffer`. Empty for a buffer outside the region.
    #[inline]
    pub(super) fn bytes(&self, buffer: u32, len: usize) -> SharedBytes<'_> {
        let len = if self.has(buffer) { len.min(self.capacity()) } else { 0 };
        let offset = if len == 0 { 0 } else { self.address(buffer) as usize };
        // SAFETY: the offset is that of a chunk in the area, as just checked, or 0.
        let start = unsafe { self.area.add(offset) };
        // SAFETY: `len` bytes from there lie in the chunk, and the region stays mapped while self is borrowed.
        unsafe { SharedBytes::from_trusted_parts(start, len) }
    }

    /// The buffer that begins at `address`, and its first `len` bytes. `None` if no buffer begins there, or `len` is
    /// above `most` (at most [`Umem::capacity`]).
    #[inline]
    pub(super) fn beginning_at(&self, address: u64, len: u64, most: u64) -> Option<(u32, SharedBytes<'_>)> {
        // One comparison checks everything: an address before the first buffer, or not at the start of one, gives a
        // number above all buffers.
        let number = address.wrapping_sub(self.first).rotate_right(self.chunk_shift);
        if number >= u64::from(self.buffers - FIRST_BUFFER) || len > most {
            return None;
        }
        // SAFETY: the address is the start of a buffer in the area, as just checked.
        let start = unsafe { self.area.add(address as usize) };
        // SAFETY: as in `bytes`.
        let bytes = unsafe { SharedBytes::from_trusted_parts(start, len as usize) };
        Some((number as u32 + FIRST_BUFFER, bytes))
    }

    /// Pointer to the start of the buffer at `address`, for a prefetch. It is one that [`Umem::has`].
    #[inline]
    pub(super) fn start(&self, address: u64) -> *const u8 {
        self.area.as_ptr().cast_const().wrapping_add(address as usize)
    }

    /// Moves `len` bytes at `address`, which lies in the chunk of `buffer`, to the buffer's start. Returns `false` if
    /// they do not lie in the chunk.
    #[cold]
    pub(super) fn move_to_start(&self, buffer: u32, address: u64, len: usize) -> bool {
        let offset = (address & u64::from(self.chunk_bytes - 1)) as usize;
        if !self.has(buffer) || offset + len > self.chunk_bytes as usize || len > self.capacity() {
            return false;
        }
        let from =
            self.area.as_ptr().wrapping_add((buffer as usize) << self.chunk_shift).wrapping_add(offset);
        let to = self.area.as_ptr().wrapping_add(self.address(buffer) as usize);
        // SAFETY: both ranges lie in a chunk of the area, checked above; `copy` allows for overlap.
        unsafe { std::ptr::copy(from, to, len) };
        true
    }
}
