//! The device's side of a virtqueue, of either layout.
//!
//! Buffers are taken in the order in which the driver made them available, and given back in the same order, without a
//! copy. The driver sees returned buffers when they are published, once per batch.

use std::sync::Arc;

use crate::chain::{BufferAccess, SgEntry};
use crate::fault::{RingFault, RingSetupError};
use crate::guest_memory::GuestMemory;
use crate::inflight::Inflight;
use crate::packed_device::PackedDevice;
use crate::split_device::SplitDevice;

/// Where a ring is and how it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtqueueConfig {
    /// Entries.
    pub entries: u16,
    /// The descriptors, as the front end counts addresses.
    pub descriptors: u64,
    /// The available ring, or the driver's event suppression in a packed ring.
    pub driver: u64,
    /// The used ring, or the device's event suppression in a packed ring.
    pub device: u64,
    /// Packed layout.
    pub is_packed: bool,
    /// Each side sets the entry at which it is woken.
    pub has_event_index: bool,
    /// Descriptors may point to tables.
    pub has_tables: bool,
}

/// How far a ring has come, in the format of vhost-user's `SET_VRING_BASE` and `GET_VRING_BASE`: of a split ring the
/// index of the next available entry; of a packed ring that and its lap in bits 0 to 15, and the next used one and its
/// lap in bits 16 to 31.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RingPosition(pub u32);

/// A ring in use.
#[derive(Debug)]
pub enum DeviceRing {
    /// Of the split layout.
    Split(SplitDevice),
    /// Of the packed layout.
    Packed(PackedDevice),
}

macro_rules! either {
    ($ring:expr, $inner:ident => $call:expr) => {
        match $ring {
            DeviceRing::Split($inner) => $call,
            DeviceRing::Packed($inner) => $call,
        }
    };
}

impl DeviceRing {
    /// Takes a ring up at `position`, if it is packed; a split ring has its position in its used ring.
    ///
    /// # Errors
    /// [`RingSetupError`].
    pub fn new(
        memory: Arc<GuestMemory>,
        config: &VirtqueueConfig,
        position: RingPosition,
    ) -> Result<Self, RingSetupError> {
        Ok(if config.is_packed {
            Self::Packed(PackedDevice::new(memory, config, position)?)
        } else {
            Self::Split(SplitDevice::new(memory, config)?)
        })
    }

    /// Notes used buffers from here on, as ring `index` of `inflight`, and begins with the buffers that a predecessor
    /// left in flight.
    ///
    /// # Errors
    /// [`RingSetupError::Inflight`].
    pub fn track(&mut self, inflight: &Arc<Inflight>, index: u16) -> Result<(), RingSetupError> {
        either!(self, ring => ring.track(inflight, index))
    }

    /// The memory that it is in.
    #[must_use]
    pub fn memory(&self) -> &Arc<GuestMemory> {
        either!(self, ring => &ring.memory)
    }

    /// The ring's position: buffers taken but not given back count as taken.
    #[must_use]
    pub fn position(&self) -> RingPosition {
        either!(self, ring => ring.position())
    }

    /// Whether a buffer is available. May read the ring once more.
    ///
    /// # Errors
    /// [`RingFault`].
    #[inline]
    pub fn has_available(&mut self) -> Result<bool, RingFault> {
        either!(self, ring => ring.has_available())
    }

    /// Whether every buffer that was there at the last read is taken. `false` implies nothing.
    #[inline]
    #[must_use]
    pub fn is_taken(&self) -> bool {
        match self {
            Self::Split(ring) => ring.is_taken(),
            // Each look is at the next descriptor alone.
            Self::Packed(_) => false,
        }
    }

    /// How many buffers are available, `most` at most; of a packed ring whether any is.
    ///
    /// # Errors
    /// [`RingFault`].
    pub fn available(&mut self, most: u16) -> Result<u16, RingFault> {
        match self {
            Self::Split(ring) => ring.available(most),
            Self::Packed(ring) => Ok(ring.available(most)),
        }
    }

    /// Takes the next buffers into `segments`, as long as each has one descriptor and lies in one region, as nearly all
    /// do. Returns their number. [`Self::take`] handles the next one.
    #[inline]
    pub fn take_singles(&mut self, access: BufferAccess, segments: &mut [SgEntry]) -> usize {
        either!(self, ring => ring.take_singles(access, segments))
    }

    /// Takes the next buffer, and appends its pieces; `false` where none is available.
    ///
    /// # Errors
    /// [`RingFault`]; the ring is unusable from then on.
    pub fn take(&mut self, access: BufferAccess, segments: &mut Vec<SgEntry>) -> Result<bool, RingFault> {
        either!(self, ring => ring.take(access, segments))
    }

    /// Makes the `buffers` buffers taken last available again, as if they had not been taken.
    pub fn put_back(&mut self, buffers: u16) {
        either!(self, ring => ring.put_back(buffers));
    }

    /// Gives the buffer back that was taken first, into which `written` bytes were written.
    #[inline]
    pub fn give_back(&mut self, written: u32) {
        self.give_back_all(std::iter::once(written));
    }

    /// Gives as many buffers back as `written` has numbers, those that were taken first: each number is the bytes
    /// written into that buffer.
    #[inline]
    pub fn give_back_all(&mut self, written: impl Iterator<Item = u32>) {
        either!(self, ring => ring.give_back_all(written));
    }

    /// Gives the `buffers` buffers back that were taken first, and only read.
    #[inline]
    pub fn give_back_read(&mut self, buffers: u16) {
        either!(self, ring => ring.give_back_read(buffers));
    }

    /// Whether something was given back that does not show yet.
    #[inline]
    #[must_use]
    pub fn is_unpublished(&self) -> bool {
        either!(self, ring => ring.is_unpublished())
    }

    /// Shows the driver the returned buffers, and marks the written parts of the ring in `log`. Returns whether the
    /// driver wants a wake-up.
    #[inline]
    pub fn publish(&mut self, log: impl FnMut(u64, u32)) -> bool {
        either!(self, ring => ring.publish(log))
    }

    /// Sets whether the driver must wake the device when it makes a buffer available. A full fence and another read of
    /// the ring must follow.
    pub fn wake_me(&mut self, wanted: bool) {
        either!(self, ring => ring.wake_me(wanted));
    }
}
