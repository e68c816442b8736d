//! The byte layout that programs see: netmap API 14's `netmap_if`, `netmap_ring` and `netmap_slot`.
//!
//! These structures are never borrowed whole across the process boundary: ring headers are written once when a
//! ring is made and slots are accessed through [`crate::shared::SharedSlot`]. The definitions exist so that sizes
//! and offsets are asserted at compile time against the published ABI (x86-64 Linux, little endian).
//!
//! Writer of each field: `(p)` the program, `(d)` the datapath (or, once, the maker of the ring).

use core::mem::{offset_of, size_of};

use serde::{Deserialize, Serialize};

/// API version of this layout (`NETMAP_API` 14).
pub const API_VERSION: u32 = 14;
/// First buffer index in use: the API reserves 0 and 1, which are never handed out.
pub const FIRST_BUFFER: u32 = 2;
/// Maximum number of fragments (slots) of one frame.
pub const MAX_FRAGMENTS: usize = 64;

/// Layout of `netmap_if`: describes one binding of a port. One `i64` offset per ring follows: tx, host tx, rx, host rx.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub struct InterfaceHeader {
    /// (d) Port name, NUL-terminated, truncated to 15 bytes.
    pub name: [u8; 16],
    /// (d) Unused, 0.
    pub version: u32,
    /// (d) Bit 0: the region is private to this port.
    pub flags: u32,
    /// (d) Number of tx rings, host rings not counted.
    pub tx_rings: u32,
    /// (d) Number of rx rings, host rings not counted.
    pub rx_rings: u32,
    /// (p) Head of the list of extra buffers; 0 ends it.
    pub extra_buffers_head: u32,
    /// (d) Number of host tx rings; at least 1 even if their offsets are 0.
    pub host_tx_rings: u32,
    /// (d) Number of host rx rings; at least 1.
    pub host_rx_rings: u32,
    /// Reserved.
    pub spare: [u32; 3],
}

/// Layout of `netmap_ring`: 256 bytes, followed by its slots.
#[repr(C, align(128))]
#[derive(Debug, Clone, Copy)]
pub struct RingHeader {
    /// (d) Start of the buffer pool minus start of this ring, bytes.
    pub buffers_offset: i64,
    /// (d) Number of slots.
    pub num_slots: u32,
    /// (d) Size of every buffer, bytes.
    pub buffer_bytes: u32,
    /// (d) Index of the ring within its direction.
    pub ring_id: u16,
    /// (d) Direction: 0 = tx, 1 = rx, as in the API's header.
    pub direction: u16,
    /// (p) First slot that the program still owns.
    pub head: u32,
    /// (p) Slot at which the program wants to be woken.
    pub cur: u32,
    /// (d, written by the program's own sync) First slot owned by the datapath.
    pub tail: u32,
    /// (p) Ring flags (`NR_TIMESTAMP`, `NR_FORWARD`).
    pub flags: u32,
    pad: u32,
    /// (d) Time of the last rx sync: seconds, microseconds.
    pub timestamp: [i64; 2],
    /// (d) Mask of the offset bits in `slot.ptr`; 0 if the ring uses no offsets.
    pub offset_mask: u64,
    /// (d) Alignment that the datapath requires of buffers; 0 for software ports.
    pub buffer_align: u64,
    pad2: [u8; 56],
    /// Slots from `cur` on that a program of 2012 owns: written by its own sync, never read.
    pub available: u32,
    /// (p) Received slots before `cur` that a program of 2012 keeps.
    pub reserved: u32,
    /// (p) Scratch space of the program, with the two words above where it is none of 2012; never touched here.
    pub scratch: [u8; 120],
}

impl RingHeader {
    /// A header of zeros, except for the fields of a new ring.
    #[must_use]
    pub fn new(
        buffers_offset: i64,
        num_slots: u32,
        buffer_bytes: u32,
        ring_id: u16,
        direction: Direction,
    ) -> Self {
        Self {
            buffers_offset,
            num_slots,
            buffer_bytes,
            ring_id,
            direction: match direction {
                Direction::Tx => 0,
                Direction::Rx => 1,
            },
            head: 0,
            cur: 0,
            tail: match direction {
                Direction::Tx => num_slots - 1,
                Direction::Rx => 0,
            },
            flags: 0,
            pad: 0,
            timestamp: [0; 2],
            offset_mask: 0,
            buffer_align: 0,
            pad2: [0; 56],
            available: 0,
            reserved: 0,
            scratch: [0; 120],
        }
    }
}

/// Layout of `netmap_slot`: 16 bytes.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Index of the buffer in the region's pool.
    pub buffer: u32,
    /// Length of the fragment, bytes.
    pub len: u16,
    /// Flags: see [`slot_flags`].
    pub flags: u16,
    /// Offset (API option) or user address (`NS_INDIRECT`).
    pub ptr: u64,
}

impl Slot {
    /// Number of frames that end in this slot: 1 for the last slot of a frame, else 0.
    #[inline]
    #[must_use]
    pub fn ends_frame(&self) -> u32 {
        u32::from(self.flags & slot_flags::MORE_FRAGMENTS == 0)
    }
}

/// Flags of a slot (`NS_*`). The high 8 bits hold the fragment count (rx) or a forced destination port (tx).
pub mod slot_flags {
    /// The program exchanged the buffer (`NS_BUF_CHANGED`).
    pub const BUF_CHANGED: u16 = 0x0001;
    /// The program requests early completion (`NS_REPORT`); software ports complete at once.
    pub const REPORT: u16 = 0x0002;
    /// A released host or NIC slot goes to the other side (`NS_FORWARD`).
    pub const FORWARD: u16 = 0x0004;
    /// The switch does not learn the source of this frame (`NS_NO_LEARN`).
    pub const NO_LEARN: u16 = 0x0008;
    /// The data is at a user address (`NS_INDIRECT`).
    pub const INDIRECT: u16 = 0x0010;
    /// Another slot of the same frame follows (`NS_MOREFRAG`).
    pub const MORE_FRAGMENTS: u16 = 0x0020;
    /// A monitor's frame was seen on the tx side (`NS_TXMON`).
    pub const MONITORED_TX: u16 = 0x0040;
    /// Shift of the fragment count or forced port in the high bits (`NS_PORT_SHIFT`).
    pub const PORT_SHIFT: u16 = 8;
}

/// Direction of a ring, seen by the program: it fills tx rings and empties rx rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The ring carries frames from the program to the datapath.
    Tx,
    /// The ring carries frames from the datapath to the program.
    Rx,
}

const _: () = {
    assert!(size_of::<InterfaceHeader>() == 56);
    assert!(offset_of!(InterfaceHeader, version) == 16);
    assert!(offset_of!(InterfaceHeader, flags) == 20);
    assert!(offset_of!(InterfaceHeader, tx_rings) == 24);
    assert!(offset_of!(InterfaceHeader, rx_rings) == 28);
    assert!(offset_of!(InterfaceHeader, extra_buffers_head) == 32);
    assert!(offset_of!(InterfaceHeader, host_tx_rings) == 36);
    assert!(offset_of!(InterfaceHeader, host_rx_rings) == 40);

    assert!(size_of::<RingHeader>() == 256);
    assert!(align_of::<RingHeader>() == 128);
    assert!(offset_of!(RingHeader, buffers_offset) == 0);
    assert!(offset_of!(RingHeader, num_slots) == 8);
    assert!(offset_of!(RingHeader, buffer_bytes) == 12);
    assert!(offset_of!(RingHeader, ring_id) == 16);
    assert!(offset_of!(RingHeader, direction) == 18);
    assert!(offset_of!(RingHeader, head) == 20);
    assert!(offset_of!(RingHeader, cur) == 24);
    assert!(offset_of!(RingHeader, tail) == 28);
    assert!(offset_of!(RingHeader, flags) == 32);
    assert!(offset_of!(RingHeader, timestamp) == 40);
    assert!(offset_of!(RingHeader, offset_mask) == 56);
    assert!(offset_of!(RingHeader, buffer_align) == 64);
    assert!(offset_of!(RingHeader, available) == 128);
    assert!(offset_of!(RingHeader, reserved) == 132);

    assert!(size_of::<Slot>() == 16);
    assert!(align_of::<Slot>() == 8);
    assert!(offset_of!(Slot, len) == 4);
    assert!(offset_of!(Slot, flags) == 6);
    assert!(offset_of!(Slot, ptr) == 8);
    assert!(cfg!(target_endian = "little"));
};
