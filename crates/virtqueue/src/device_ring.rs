//! The device's side of a virtqueue, for both layouts.
//!
//! Buffers are taken in the order in which the driver made them available, and given back in the same order, without a
//! copy. The device publishes returned buffers once per batch. Only then does the driver see them.

use std::sync::Arc;

use crate::chain::{BufferAccess, SgEntry};
use crate::fault::{RingFault, RingSetupError};
use crate::guest_memory::GuestMemory;
use crate::inflight::Inflight;
use crate::packed_device::PackedDevice;
use crate::split_device::SplitDevice;

/// Location and properties of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtqueueConfig {
    /// Number of entries.
    pub entries: u16,
    /// Front end's address of the descriptors.
    pub descriptors: u64,
    /// Front end's address of the available ring, or of the driver's event suppression in a packed ring.
    pub driver: u64,
    /// Front end's address of the used ring, or of the device's event suppression in a packed ring.
    pub device: u64,
    /// Whether the layout is packed.
    pub is_packed: bool,
    /// Whether each side sets the entry at which it is woken.
    pub has_event_index: bool,
    /// Whether descriptors may point to tables.
    pub has_tables: bool,
}

/// Progress of a ring, in the format of vhost-user's `SET_VRING_BASE` and `GET_VRING_BASE`. For a split ring it is the
/// index of the next available entry. For a packed ring, bits 0 to 15 have the next available entry and its lap, bits
/// 16 to 31 the next used entry and its lap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RingPosition(pub u32);

/// The device's side of a ring in use.
#[derive(Debug)]
pub enum DeviceRing {
    /// Ring of the split layout.
    Split(SplitDevice),
    /// Ring of the packed layout.
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
    /// Takes up a ring. A packed ring begins at `position`; a split ring has its position in its used ring.
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

    /// Notes used buffers from now on, as ring `index` of `inflight`. Begins with the buffers that a predecessor left
    /// in flight.
    ///
    /// # Errors
    /// [`RingSetupError::Inflight`].
    pub fn track(&mut self, inflight: &Arc<Inflight>, index: u16) -> Result<(), RingSetupError> {
        either!(self, ring => ring.track(inflight, index))
    }

    /// Memory that the ring is in.
    #[must_use]
    pub fn memory(&self) -> &Arc<GuestMemory> {
        either!(self, ring => &ring.memory)
    }

    /// Position of the ring. Buffers taken but not given back count as taken.
    #[must_use]
    pub fn position(&self) -> RingPosition {
        either!(self, ring => ring.position())
    }

    /// Whether a buffer is available. May read the driver's index again.
    ///
    /// # Errors
    /// [`RingFault`].
    #[inline]
    pub fn has_available(&mut self) -> Result<bool, RingFault> {
        either!(self, ring => ring.has_available())
    }

    /// Whether every buffer that was available at the last read of the driver's index is taken. `false` implies
    /// nothing.
    #[inline]
    #[must_use]
    pub fn is_taken(&self) -> bool {
        match self {
            Self::Split(ring) => ring.is_taken(),
            // A query reads only the next descriptor, so no other is known.
            Self::Packed(_) => false,
        }
    }

    /// Number of available buffers, up to `most`. For a packed ring it is the number of available descriptors.
    ///
    /// # Errors
    /// [`RingFault`].
    pub fn available(&mut self, most: u16) -> Result<u16, RingFault> {
        match self {
            Self::Split(ring) => ring.available(most),
            Self::Packed(ring) => Ok(ring.available(most)),
        }
    }

    /// Takes the next buffers into `segments` while each has one descriptor and lies in one region, which is true for
    /// nearly all. Returns their number. [`Self::take`] handles the buffer after them.
    #[inline]
    pub fn take_singles(&mut self, access: BufferAccess, segments: &mut [SgEntry]) -> usize {
        either!(self, ring => ring.take_singles(access, segments))
    }

    /// Takes the next buffer and appends its segments. Returns `false` if no buffer is available.
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

    /// Gives back the oldest taken buffers, one for each number of `written`: the bytes written into that buffer.
    #[inline]
    pub fn give_back_all(&mut self, written: impl Iterator<Item = u32>) {
        either!(self, ring => ring.give_back_all(written));
    }

    /// Gives back the `buffers` oldest taken buffers, which the device only read.
    #[inline]
    pub fn give_back_read(&mut self, buffers: u16) {
        either!(self, ring => ring.give_back_read(buffers));
    }

    /// Whether a returned buffer is not yet published.
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
