//! Structures that are shared with C, with the layout of `compat/include/libsze2.h`. `compat/tests/sze2_layout.c`
//! asserts the same offsets.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::ptr;

use ringroad_sze2::card::counters::{IbufCounters, ObufCounters, RuleCounters};

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
    /// The direction with this number.
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
    /// Address of the first byte.
    pub start: *mut c_void,
    /// Length, bytes.
    pub len: u32,
    /// Number of the channel.
    pub area: u8,
    /// Second part, which continues at the start of the buffer; NULL if there is none.
    pub next: *const Self,
}

impl LockedArea {
    /// An area without bytes.
    #[must_use]
    pub const fn empty() -> Self {
        Self { start: ptr::null_mut(), len: 0, area: 0, next: ptr::null() }
    }
}

/// `struct szecard_frame`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SzecardFrame {
    /// Bytes of the frame.
    pub data: *mut u8,
    /// Metadata that the card has for the frame.
    pub metadata: *mut u8,
    /// Length of the frame, bytes.
    pub length: u32,
    /// Length of the metadata, bytes.
    pub metadata_length: u32,
}

/// `SZECARD_MAX_ADDRESSES`.
pub const MAX_ADDRESSES: usize = 32;

/// `struct szecard_info`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SzecardInfo {
    /// Name, NUL-terminated, cut off if it is too long.
    pub name: [c_char; 64],
    /// Size of the buffer of each receive channel, bytes.
    pub receive_buffer: u64,
    /// Size of the buffer of each transmit channel, bytes.
    pub transmit_buffer: u64,
    /// Number of receive channels.
    pub receive_channels: u16,
    /// Number of transmit channels.
    pub transmit_channels: u16,
    /// Station address of the card.
    pub address: [u8; 6],
}

/// `struct szecard_design`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SzecardDesign {
    /// Name, NUL-terminated, cut off if it is too long.
    pub name: [c_char; 48],
    /// Version, NUL-terminated, cut off if it is too long; empty if it is not known.
    pub version: [c_char; 16],
}

/// `struct szecard_ibuf`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SzecardIbuf {
    /// 0 if the input buffer is switched off.
    pub enabled: c_uint,
    /// Address check, `SZECARD_CHECK_*`.
    pub address_check: c_uint,
    /// Shortest frame, bytes without FCS.
    pub min_length: u32,
    /// Longest frame, bytes without FCS.
    pub max_length: u32,
    /// Number of `addresses` in use.
    pub nr_addresses: c_uint,
    /// Addresses of the accepted stations.
    pub addresses: [[u8; 6]; MAX_ADDRESSES],
}

/// `struct szecard_channel`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct SzecardChannel {
    /// Frames that the card put into the channel, or took from it.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Frames lost for lack of room in the channel.
    pub overflow: u64,
    /// Bytes in the channel's buffer.
    pub used: u64,
    /// Violations of rules by the channel's programs.
    pub faults: u64,
    /// Whether the channel is started.
    pub running: c_uint,
    /// ID of the process that uses the channel; 0 if none does or it is unknown.
    pub pid: c_uint,
}

/// Greatest number of channels of a direction.
pub const MAX_CHANNELS: usize = 32;

/// `struct szecard_status`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SzecardStatus {
    /// Settings of the input buffer.
    pub ibuf: SzecardIbuf,
    /// 0 if the output buffer is switched off.
    pub obuf_enabled: c_uint,
    /// Counters of the input buffer, `struct szecard_ibuf_counters`.
    pub ibuf_counters: IbufCounters,
    /// Counters of the output buffer, `struct szecard_obuf_counters`.
    pub obuf_counters: ObufCounters,
    /// States of the receive channels.
    pub receive: [SzecardChannel; MAX_CHANNELS],
    /// States of the transmit channels.
    pub transmit: [SzecardChannel; MAX_CHANNELS],
}

/// `struct szecard_handle_counters`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HandleCounters {
    /// Frames returned to the program.
    pub received: u64,
    /// Frames that the program's filter skipped.
    pub filtered: u64,
    /// Frames written.
    pub transmitted: u64,
    /// Faults found in buffers.
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
    assert!(size_of::<SzecardDesign>() == 64);
    assert!(offset_of!(SzecardDesign, version) == 48);
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
    assert!(size_of::<RuleCounters>() == 16);
};
