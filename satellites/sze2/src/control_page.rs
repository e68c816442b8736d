//! The first page of a channel's memory: its magic number, and the pointers of its two sides.
//!
//! Data lie from the *start* pointer to the *end* pointer; both are offsets in the buffer, and equal ones mean that
//! there are none, so a writer always leaves 8 bytes free. In a receive buffer the card moves the end and the program
//! the start, in a transmit buffer the other way round. So each side has one pointer and a line of its own, which the
//! other only reads.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The first bytes of the page.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"RINGSZE2");
/// Layout of the page and of what lies behind it.
pub(crate) const VERSION: u32 = 1;
/// Size of the page, bytes.
pub(crate) const CONTROL_PAGE_BYTES: u64 = 4096;

/// Whether the card moves data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelState {
    /// Not started yet, or stopped again.
    Stopped,
    /// It does.
    Running,
    /// The program broke a rule: see the card's status.
    Faulty,
    /// The card is gone.
    Gone,
}

impl ChannelState {
    pub(crate) fn to_number(self) -> u32 {
        match self {
            Self::Stopped => 0,
            Self::Running => 1,
            Self::Faulty => 2,
            Self::Gone => 3,
        }
    }

    pub(crate) fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Stopped,
            1 => Self::Running,
            2 => Self::Faulty,
            _ => Self::Gone,
        }
    }
}

/// One side's line: written by it alone. Two cache lines, since processors fetch them in pairs.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Where its data end or begin, bytes from the start of the buffer.
    pub(crate) pointer: AtomicU64,
    /// Number of the sleep from which it wants to be woken ([`ringroad_ring::wakeup`]); 0 while it is awake.
    pub(crate) sleeping: AtomicU32,
    /// Of the card's line: a [`ChannelState`].
    pub(crate) state: AtomicU32,
}

/// The page.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub(crate) struct ControlPage {
    /// [`MAGIC`].
    pub(crate) magic: AtomicU64,
    /// [`VERSION`].
    pub(crate) version: AtomicU32,
    /// Bytes before the first data block: this page and the descriptors block.
    pub(crate) data_offset: AtomicU32,
    /// Size of the buffer, bytes: a power of two.
    pub(crate) buffer_bytes: AtomicU64,
    /// Offset of the first descriptor.
    pub(crate) descriptors: AtomicU64,
    /// The program's.
    pub(crate) software: Line,
    /// The card's.
    pub(crate) hardware: Line,
}

const _: () = assert!(size_of::<ControlPage>() == 384);
