//! Positions of all objects in a region: three pools (interfaces, rings, buffers) from offset 0, as netmap maps them,
//! then the control area with one [`crate::control_block::ControlBlock`] per ring object.
//!
//! A geometry arrives over the control socket too, so every computation is checked.

use serde::{Deserialize, Serialize};

use crate::layout::{FIRST_BUFFER, InterfaceHeader, RingHeader, Slot};

/// Smallest and largest size of a buffer, bytes.
pub const BUFFER_BYTES_RANGE: core::ops::RangeInclusive<u32> = 64..=65536;
/// Default size of a buffer, bytes: one cache line more than netmap's. Buffers at intervals of 2048 bytes begin in few
/// cache sets, so the buffers of one ring would evict each other.
pub const DEFAULT_BUFFER_BYTES: u32 = NETMAP_BUFFER_BYTES + 64;
/// Default size of a buffer of netmap's own memory, bytes.
pub const NETMAP_BUFFER_BYTES: u32 = 2048;
/// Default number of slots of a ring.
pub const DEFAULT_SLOTS: u32 = 1024;
/// Smallest and largest number of slots of a ring.
pub const SLOTS_RANGE: core::ops::RangeInclusive<u32> = 4..=4096;
/// Maximum number of queues (ring pairs) of one port.
pub const MAX_QUEUES: u16 = 16;
/// Offset of a buffer in its chunk of the buffer area, bytes. AF_XDP writes received frames at this offset of a chunk
/// (`XDP_PACKET_HEADROOM`, linux/bpf.h). So any region can be registered as UMEM, and frames begin where buffers begin.
pub const CHUNK_HEADROOM_BYTES: u32 = 256;
/// Bytes of the control area per ring.
pub const CONTROL_BLOCK_BYTES: u64 = 256;
/// Maximum number of buffers of a region.
pub const MAX_BUFFERS: u32 = 1_000_000;
/// Maximum number of extra buffers of one port or binding: the process that lists them has to touch a page for each.
pub const MAX_EXTRA_BUFFERS: u32 = 4096;
/// Maximum number of rings of a region.
pub const MAX_RINGS: u32 = 1024;
/// Smallest and largest size of a ring object, bytes (netmap's limits).
const MIN_RING_BYTES: u32 = 256;
const MAX_RING_BYTES: u32 = 131_072;
const PAGE: u64 = 4096;

/// Counts and sizes of the pools of one region. All offsets follow from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RegionGeometry {
    /// Number of interface objects.
    pub interfaces: u32,
    /// Size of one interface object, bytes (multiple of 64).
    pub interface_bytes: u32,
    /// Number of ring objects.
    pub rings: u32,
    /// Size of one ring object, bytes (multiple of 128).
    pub ring_bytes: u32,
    /// Number of buffers, the two reserved ones included.
    pub buffers: u32,
    /// Size of one buffer, bytes (multiple of 64).
    pub buffer_bytes: u32,
}

/// Reason why a geometry, or a request for one, is invalid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum GeometryError {
    /// The size of a buffer is out of range or not a multiple of 64.
    #[error("buffer size {0} bytes: choose a multiple of 64 from 64 to 65536")]
    BufferBytes(u32),
    /// The number of slots is out of range.
    #[error("{0} slots: choose from 4 to 4096")]
    Slots(u32),
    /// The number of queues is out of range.
    #[error("{0} queues: choose from 1 to 16")]
    Queues(u16),
    /// The region would have too many buffers.
    #[error(
        "{0} buffers are more than a region holds (1000000): request fewer slots, queues or extra buffers"
    )]
    Buffers(u64),
    /// The port would have too many extra buffers.
    #[error("{0} extra buffers: choose 4096 at most")]
    ExtraBuffers(u32),
    /// A count or size is impossible for a region.
    #[error("region geometry is not possible: {0}")]
    Impossible(&'static str),
}

/// Size of a ring object with `slots` slots, bytes.
#[must_use]
pub fn ring_object_bytes(slots: u32) -> u32 {
    (size_of::<RingHeader>() as u32 + slots * size_of::<Slot>() as u32).next_multiple_of(128)
}

impl RegionGeometry {
    /// A region for `ports` ports of `queues` ring pairs of `slots` slots each, with `extra_buffers` besides.
    ///
    /// # Errors
    /// [`GeometryError`] if a number is out of its range.
    pub fn for_ports(
        ports: u32,
        queues: u16,
        slots: u32,
        buffer_bytes: u32,
        extra_buffers: u32,
    ) -> Result<Self, GeometryError> {
        if !SLOTS_RANGE.contains(&slots) {
            return Err(GeometryError::Slots(slots));
        }
        if queues == 0 || queues > MAX_QUEUES {
            return Err(GeometryError::Queues(queues));
        }
        let rings = ports * 2 * u32::from(queues);
        let buffers =
            u64::from(rings) * u64::from(slots) + u64::from(extra_buffers) + u64::from(FIRST_BUFFER);
        let buffers = u32::try_from(buffers)
            .ok()
            .filter(|&count| count <= MAX_BUFFERS)
            .ok_or(GeometryError::Buffers(buffers))?;
        // Table of the offsets of all rings and of one host ring per direction, which the API always counts.
        let offsets = 8 * (2 * u32::from(queues) + 2);
        let geometry = Self {
            interfaces: ports,
            interface_bytes: (size_of::<InterfaceHeader>() as u32 + offsets).next_multiple_of(64),
            rings,
            ring_bytes: ring_object_bytes(slots),
            buffers,
            buffer_bytes,
        };
        geometry.check()?;
        Ok(geometry)
    }

    /// Checks numbers of untrusted origin; after the check, no computation of an offset can overflow.
    ///
    /// # Errors
    /// [`GeometryError`], with the number that is out of range.
    pub fn check(&self) -> Result<(), GeometryError> {
        if !BUFFER_BYTES_RANGE.contains(&self.buffer_bytes) || !self.buffer_bytes.is_multiple_of(64) {
            return Err(GeometryError::BufferBytes(self.buffer_bytes));
        }
        if self.buffers > MAX_BUFFERS || self.buffers < FIRST_BUFFER {
            return Err(GeometryError::Buffers(u64::from(self.buffers)));
        }
        if self.rings > MAX_RINGS || self.interfaces > MAX_RINGS {
            return Err(GeometryError::Impossible("too many rings or interfaces"));
        }
        if !(MIN_RING_BYTES..=MAX_RING_BYTES).contains(&self.ring_bytes)
            || !self.ring_bytes.is_multiple_of(128)
        {
            return Err(GeometryError::Impossible("size of a ring object"));
        }
        if !(56..=4096).contains(&self.interface_bytes) || !self.interface_bytes.is_multiple_of(64) {
            return Err(GeometryError::Impossible("size of an interface object"));
        }
        Ok(())
    }

    /// Maximum number of slots in a ring object of this region.
    #[must_use]
    pub fn max_slots(&self) -> u32 {
        (self.ring_bytes - size_of::<RingHeader>() as u32) / size_of::<Slot>() as u32
    }

    /// Offset of interface object `index`, bytes.
    #[must_use]
    pub fn interface_offset(&self, index: u32) -> u64 {
        u64::from(index) * u64::from(self.interface_bytes)
    }

    /// Offset of ring object `index`, bytes (a multiple of 128).
    #[must_use]
    pub fn ring_offset(&self, index: u32) -> u64 {
        let start = self.interface_offset(self.interfaces).next_multiple_of(PAGE);
        start + u64::from(index) * u64::from(self.ring_bytes)
    }

    /// Offset of the buffer area, bytes (a multiple of 4096): one chunk of `buffer_bytes` per buffer.
    #[must_use]
    pub fn area_offset(&self) -> u64 {
        self.ring_offset(self.rings).next_multiple_of(PAGE)
    }

    /// Size of the buffer area, bytes.
    #[must_use]
    pub fn area_bytes(&self) -> u64 {
        u64::from(self.buffers) * u64::from(self.buffer_bytes)
    }

    /// Offset of buffer `index`, bytes. A buffer begins [`CHUNK_HEADROOM_BYTES`] after the start of its chunk, and ends
    /// as many bytes after the start of the next chunk.
    #[must_use]
    pub fn buffer_offset(&self, index: u32) -> u64 {
        self.area_offset() + u64::from(CHUNK_HEADROOM_BYTES) + u64::from(index) * u64::from(self.buffer_bytes)
    }

    /// Size of the part that a netmap program maps, bytes: the three pools, without the control area.
    #[must_use]
    pub fn pools_bytes(&self) -> u64 {
        self.buffer_offset(self.buffers).next_multiple_of(PAGE)
    }

    /// Offset of the control block of ring object `index`, bytes.
    #[must_use]
    pub fn control_offset(&self, index: u32) -> u64 {
        self.pools_bytes() + u64::from(index) * CONTROL_BLOCK_BYTES
    }

    /// Size of the whole region, bytes: a multiple of the base page size (4096).
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.control_offset(self.rings).next_multiple_of(PAGE)
    }
}

/// Objects of a region that make up one port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortPlacement {
    /// Index of the interface object.
    pub interface: u32,
    /// Indexes of the ring objects of the tx rings, one per queue.
    pub tx_rings: Vec<u32>,
    /// Indexes of the ring objects of the rx rings, one per queue.
    pub rx_rings: Vec<u32>,
    /// Number of slots of each ring.
    pub slots: u32,
    /// Number of extra buffers, listed from the interface's `extra_buffers_head`.
    pub extra_buffers: u32,
}

impl PortPlacement {
    /// The placement of port number `port` in a region made by [`RegionGeometry::for_ports`]: tx rings, then rx rings.
    #[must_use]
    pub fn of_port(port: u32, queues: u16, slots: u32, extra_buffers: u32) -> Self {
        let queues = u32::from(queues);
        let first = port * 2 * queues;
        Self {
            interface: port,
            tx_rings: (first..first + queues).collect(),
            rx_rings: (first + queues..first + 2 * queues).collect(),
            slots,
            extra_buffers,
        }
    }

    /// Checks that the placement lies within `geometry`.
    ///
    /// # Errors
    /// [`GeometryError::Impossible`] or [`GeometryError::Slots`].
    pub fn check(&self, geometry: &RegionGeometry) -> Result<(), GeometryError> {
        if !SLOTS_RANGE.contains(&self.slots) || self.slots > geometry.max_slots() {
            return Err(GeometryError::Slots(self.slots));
        }
        if self.interface >= geometry.interfaces {
            return Err(GeometryError::Impossible("interface outside the region"));
        }
        if self.tx_rings.len() != self.rx_rings.len()
            || self.tx_rings.is_empty()
            || self.tx_rings.len() > usize::from(MAX_QUEUES)
        {
            return Err(GeometryError::Impossible("rings that do not pair up into queues"));
        }
        if self.tx_rings.iter().chain(&self.rx_rings).any(|&ring| ring >= geometry.rings) {
            return Err(GeometryError::Impossible("ring outside the region"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn default_port_needs_two_rings_of_buffers() {
        let geometry = RegionGeometry::for_ports(1, 1, 1024, 2048, 0).unwrap();
        assert_eq!(geometry.buffers, 2050);
        assert_eq!(geometry.max_slots(), 1024);
        assert_eq!(geometry.ring_offset(0) % 128, 0);
    }

    #[test]
    fn sizes_out_of_range_are_named() {
        assert_eq!(RegionGeometry::for_ports(1, 1, 3, 2048, 0), Err(GeometryError::Slots(3)));
        assert_eq!(RegionGeometry::for_ports(1, 17, 64, 2048, 0), Err(GeometryError::Queues(17)));
        assert_eq!(RegionGeometry::for_ports(1, 1, 64, 100, 0), Err(GeometryError::BufferBytes(100)));
        assert!(matches!(
            RegionGeometry::for_ports(1, 16, 4096, 2048, u32::MAX),
            Err(GeometryError::Buffers(_))
        ));
    }

    proptest! {
        #[test]
        fn no_two_objects_overlap(
            ports in 1u32..8, queues in 1u16..=16, slots in 4u32..=4096, blocks in 1u32..=32, extra in 0u32..1000,
        ) {
            if let Ok(geometry) = RegionGeometry::for_ports(ports, queues, slots, blocks * 64, extra) {
                prop_assert!(geometry.interface_offset(geometry.interfaces) <= geometry.ring_offset(0));
                prop_assert!(geometry.ring_offset(geometry.rings) <= geometry.buffer_offset(0));
                prop_assert!(geometry.buffer_offset(geometry.buffers) <= geometry.control_offset(0));
                prop_assert!(geometry.control_offset(geometry.rings) <= geometry.total_bytes());
                prop_assert!(geometry.max_slots() >= slots);
            }
        }

        #[test]
        fn any_checked_geometry_computes_without_overflow(
            interfaces: u32, interface_bytes: u32, rings: u32, ring_bytes: u32, buffers: u32, buffer_bytes: u32,
        ) {
            let geometry =
                RegionGeometry { interfaces, interface_bytes, rings, ring_bytes, buffers, buffer_bytes };
            if geometry.check().is_ok() {
                prop_assert!(geometry.total_bytes() < 1 << 40);
            }
        }
    }
}
