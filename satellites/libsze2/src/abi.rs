//! The structures that cross to C, as `compat/include/libsze2.h` lays them out. The same offsets are asserted there, in
//! `compat/tests/sze2_layout.c`.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::ptr;

use crate::failure::CallError;

/// `enum sze2_dir`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sze2Dir {
    /// `SZE2_DIR_RX`.
    Receive,
    /// `SZE2_DIR_TX`.
    Transmit,
    /// `SZE2_DIR_ALL`.
    Both,
}

impl Sze2Dir {
    /// From its number.
    ///
    /// # Errors
    /// The number is invalid.
    pub fn from_number(number: c_int) -> Result<Self, CallError> {
        match number {
            0 => Ok(Self::Receive),
            1 => Ok(Self::Transmit),
            2 => Ok(Self::Both),
            other => Err(CallError::invalid(format!("direction {other}: choose SZE2_DIR_RX, _TX or _ALL"))),
        }
    }
}

/// `struct szedata_lock`.
#[repr(C)]
#[derive(Debug)]
pub struct LockedArea {
    /// First byte.
    pub start: *mut c_void,
    /// Bytes.
    pub len: u32,
    /// Number of the channel.
    pub area: u8,
    /// The part that continues at the start of the buffer; NULL if there is none.
    pub next: *const Self,
}

impl LockedArea {
    /// Nothing.
    #[must_use]
    pub const fn empty() -> Self {
        Self { start: ptr::null_mut(), len: 0, area: 0, next: ptr::null() }
    }
}

/// `struct szecard_frame`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SzecardFrame {
    /// The frame.
    pub data: *mut u8,
    /// The card's metadata.
    pub metadata: *mut u8,
    /// Bytes of the frame.
    pub length: u32,
    /// Bytes of the metadata.
    pub metadata_length: u32,
}

/// `SZECARD_MAX_ADDRESSES`.
pub const MAX_ADDRESSES: usize = 32;

/// `struct szecard_info`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SzecardInfo {
    /// Name, NUL-terminated, cut where it is too long.
    pub name: [c_char; 64],
    /// Buffer of each receive channel, bytes.
    pub receive_buffer: u64,
    /// Buffer of each transmit channel, bytes.
    pub transmit_buffer: u64,
    /// Receive channels.
    pub receive_channels: u16,
    /// Transmit channels.
    pub transmit_channels: u16,
    /// Station address.
    pub address: [u8; 6],
}

/// `struct szecard_ibuf`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SzecardIbuf {
    /// 0 where it lets nothing in.
    pub enabled: c_uint,
    /// `SZECARD_CHECK_*`.
    pub address_check: c_uint,
    /// Shortest frame, bytes without FCS.
    pub min_length: u32,
    /// Longest frame, bytes without FCS.
    pub max_length: u32,
    /// How many of `addresses` count.
    pub nr_addresses: c_uint,
    /// Stations.
    pub addresses: [[u8; 6]; MAX_ADDRESSES],
}

/// `struct szecard_ibuf_counters`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IbufCounters {
    /// Let in.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// It was switched off.
    pub disabled: u64,
    /// Too short.
    pub too_short: u64,
    /// Too long.
    pub too_long: u64,
    /// For other stations.
    pub address: u64,
    /// Denied by the filter.
    pub denied: u64,
    /// For a channel that no program has started.
    pub unclaimed: u64,
    /// For a channel without room.
    pub overflow: u64,
}

/// `struct szecard_obuf_counters`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ObufCounters {
    /// Let out.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// It was switched off.
    pub disabled: u64,
}

/// `struct szecard_channel`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct SzecardChannel {
    /// Put in or taken out by the card.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames without room.
    pub overflow: u64,
    /// Bytes in the buffer.
    pub used: u64,
    /// Rules that its programs broke.
    pub faults: u64,
    /// Whether it is started.
    pub running: c_uint,
    /// Process that uses it, 0 for none or unknown.
    pub pid: c_uint,
}

/// Most channels of a direction.
pub const MAX_CHANNELS: usize = 32;

/// `struct szecard_status`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SzecardStatus {
    /// The input buffer.
    pub ibuf: SzecardIbuf,
    /// 0 where the output buffer lets nothing out.
    pub obuf_enabled: c_uint,
    /// Counters of the input buffer.
    pub ibuf_counters: IbufCounters,
    /// Counters of the output buffer.
    pub obuf_counters: ObufCounters,
    /// Receive channels.
    pub receive: [SzecardChannel; MAX_CHANNELS],
    /// Transmit channels.
    pub transmit: [SzecardChannel; MAX_CHANNELS],
}

/// `struct szecard_handle_counters`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HandleCounters {
    /// Frames given to the program.
    pub received: u64,
    /// Frames that its filter skipped.
    pub filtered: u64,
    /// Frames written.
    pub transmitted: u64,
    /// Buffers that were not as they must be.
    pub faults: u64,
}

const _: () = {
    assert!(size_of::<LockedArea>() == 24);
    assert!(offset_of!(LockedArea, len) == 8);
    assert!(offset_of!(LockedArea, area) == 12);
    assert!(offset_of!(LockedArea, next) == 16);
    assert!(size_of::<SzecardFrame>() == 24);
    assert!(offset_of!(SzecardFrame, length) == 16);
    assert!(size_of::<SzecardInfo>() == 96);
    assert!(offset_of!(SzecardInfo, receive_buffer) == 64);
    assert!(offset_of!(SzecardInfo, receive_channels) == 80);
    assert!(offset_of!(SzecardInfo, address) == 84);
    assert!(size_of::<SzecardIbuf>() == 212);
    assert!(offset_of!(SzecardIbuf, addresses) == 20);
    assert!(size_of::<IbufCounters>() == 72);
    assert!(size_of::<ObufCounters>() == 24);
    assert!(size_of::<SzecardChannel>() == 48);
    assert!(offset_of!(SzecardStatus, obuf_enabled) == 212);
    assert!(offset_of!(SzecardStatus, ibuf_counters) == 216);
    assert!(offset_of!(SzecardStatus, receive) == 312);
    assert!(size_of::<SzecardStatus>() == 312 + 64 * 48);
    assert!(size_of::<HandleCounters>() == 32);
};
