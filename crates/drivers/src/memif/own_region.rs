//! The one region of a client: rings first, then a buffer for each slot. It is a memfd that no process can truncate.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ringroad_ring::foreign_memory::ForeignMemory;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::ring::{Descriptor, Regions, Ring, ring_bytes};

const LINE_BYTES: u64 = 64;
const PAGE_BYTES: u64 = 4096;

/// The buffers of a ring's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnBuffers {
    /// Offset of the first buffer, bytes.
    start: u32,
    /// Distance of buffers, bytes.
    stride: u32,
    /// Size of each buffer, bytes.
    pub(super) bytes: u32,
    /// Number of slots less one.
    mask: u16,
}

impl OwnBuffers {
    /// Offset of the buffer of the slot at `position`, bytes.
    #[inline]
    pub(super) fn offset(&self, position: u16) -> u32 {
        self.start + u32::from(position & self.mask) * self.stride
    }

    /// The descriptor of the buffer at `position` while it is empty.
    #[inline]
    pub(super) fn empty(&self, position: u16) -> Descriptor {
        Descriptor { has_next: false, region: 0, bytes: self.bytes, offset: self.offset(position) }
    }
}

/// Requested number and sizes of a client's rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RingPlan {
    /// Number of rings, both directions together.
    pub(super) rings: u16,
    /// Number of descriptors of each ring, as the exponent of a power of two.
    pub(super) log2_size: u8,
    /// Size of a buffer, bytes.
    pub(super) buffer_bytes: u32,
}

impl RingPlan {
    /// Distance of rings, bytes.
    fn ring_stride(&self) -> u64 {
        (ring_bytes(self.log2_size) as u64).next_multiple_of(LINE_BYTES)
    }

    /// Distance of buffers, bytes. It is an odd number of cache lines, so that the first lines of the buffers map to
    /// different cache sets.
    fn buffer_stride(&self) -> u64 {
        let lines = u64::from(self.buffer_bytes).div_ceil(LINE_BYTES);
        (lines | 1) * LINE_BYTES
    }

    fn first_buffer(&self) -> u64 {
        (u64::from(self.rings) * self.ring_stride()).next_multiple_of(PAGE_BYTES)
    }

    /// Size of the region, bytes; `None` if it exceeds offsets of 32 bits.
    pub(super) fn region_bytes(&self) -> Option<u64> {
        let buffers = u64::from(self.rings) << self.log2_size;
        let bytes = self.first_buffer() + buffers * self.buffer_stride();
        (bytes <= u64::from(u32::MAX)).then_some(bytes)
    }
}

#[derive(Debug)]
pub(super) struct OwnRegion {
    /// File that the peer maps.
    pub(super) file: OwnedFd,
    regions: Arc<Regions>,
    plan: RingPlan,
}

impl OwnRegion {
    /// Creates the region.
    ///
    /// # Errors
    /// The reason why the region could not be created, as text for users.
    pub(super) fn new(plan: RingPlan) -> Result<Self, String> {
        let bytes = plan.region_bytes().ok_or("the rings and buffers need more than 4 GiB")?;
        let failed = |error: rustix::io::Errno| format!("making the memory for the peer: {error}");
        let file = memfd_create("memif", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(failed)?;
        ftruncate(&file, bytes).map_err(failed)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(failed)?;
        let memory = ForeignMemory::map(file.as_fd(), 0, bytes).map_err(|error| error.to_string())?;
        Ok(Self { file, regions: Regions::new(vec![memory]), plan })
    }

    /// Size of the region, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.plan.region_bytes().unwrap_or(0)
    }

    /// Offset of ring number `number`, bytes.
    pub(super) fn ring_offset(&self, number: u16) -> u32 {
        (u64::from(number) * self.plan.ring_stride()) as u32
    }

    /// Makes ring number `number`, which is empty, and its buffers.
    ///
    /// # Errors
    /// There is no such ring.
    pub(super) fn ring(&self, number: u16) -> Result<(Ring, OwnBuffers), String> {
        let ring = Ring::new(&self.regions, 0, self.ring_offset(number), self.plan.log2_size)?;
        ring.init();
        let stride = self.plan.buffer_stride();
        let before = u64::from(number) << self.plan.log2_size;
        let buffers = OwnBuffers {
            start: (self.plan.first_buffer() + before * stride) as u32,
            stride: stride as u32,
            bytes: self.plan.buffer_bytes,
            mask: ring.size() - 1,
        };
        Ok((ring, buffers))
    }
}
