//! First page of a channel's memory: its magic number, and the pointers of its two sides.
//!
//! Data lie from the *start* pointer to the *end* pointer. Both are offsets in the buffer. Equal pointers mean that
//! there are no data, so a writer always leaves 8 bytes free. In a receive buffer, the card moves the end and the
//! program the start; in a transmit buffer, the program moves the end and the card the start. So each side has one
//! pointer and a line of its own, which the other side only reads.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// First bytes of the page.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"RINGSZE2");
/// Version of the layout of the page and of the memory after it.
pub(crate) const VERSION: u32 = 1;
/// Size of the page, bytes.
pub(crate) const CONTROL_PAGE_BYTES: u64 = 4096;

/// State of a channel: whether the card moves data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ChannelState {
    /// The channel is not started yet, or stopped again.
    Stopped = 0,
    /// The card moves data.
    Running = 1,
    /// The program broke a rule: the card's status names it.
    Faulty = 2,
    /// The card is gone.
    Gone = 3,
}

impl ChannelState {
    pub(crate) fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Stopped,
            1 => Self::Running,
            2 => Self::Faulty,
            _ => Self::Gone,
        }
    }
}

/// Line of one side, which only this side writes. It has two cache lines, since processors fetch them in pairs.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// End or start of the data, bytes from the start of the buffer.
    pub(crate) pointer: AtomicU64,
    /// Number of the sleep from which this side wants to be woken ([`ringroad_ring::wakeup`]); 0 while it is awake.
    pub(crate) sleeping: AtomicU32,
    /// State of the channel, a [`ChannelState`]; only used in the card's line.
    pub(crate) state: AtomicU32,
}

#[repr(C, align(128))]
#[derive(Debug, Default)]
pub(crate) struct ControlPage {
    /// Magic number, [`MAGIC`].
    pub(crate) magic: AtomicU64,
    /// Version of the layout, [`VERSION`].
    pub(crate) version: AtomicU32,
    /// Bytes before the first data block: this page and the descriptors block.
    pub(crate) data_offset: AtomicU32,
    /// Size of the buffer, bytes: a power of two.
    pub(crate) buffer_bytes: AtomicU64,
    /// Offset of the first descriptor.
    pub(crate) descriptors: AtomicU64,
    /// Line of the program.
    pub(crate) software: Line,
    /// Line of the card.
    pub(crate) hardware: Line,
}

const _: () = assert!(size_of::<ControlPage>() == 384);
