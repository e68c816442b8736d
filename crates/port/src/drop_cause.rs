//! Why a frame was dropped. One list for all: counters, CLI, JSON and metrics use these names.

use serde::{Deserialize, Serialize};

/// A cause by which frames are dropped and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
#[non_exhaustive]
pub enum DropCause {
    /// The destination's ring had no free slot. Counted at the destination.
    NoSpace,
    /// The destination was not bound by any program. Counted at the destination.
    NotBound,
    /// The destination's ring is stopped after a violation. Counted at the destination.
    RingStopped,
    /// Longer than the destination can take at all. Counted at the destination.
    TooLong,
    /// The destination is a file and writing failed (disk full). Counted at the destination.
    WriteFailed,
    /// Shorter than an Ethernet header (14 bytes): counted at the source. Shorter than a capture card lets in: counted at the card.
    TooShort,
    /// To a port where it came from. Counted at the source.
    ToSelf,
    /// To a learned or forced port that has left. Counted at the source; at the destination where an impairment still held it when
    /// the port ended.
    PortGone,
    /// To be flooded where there is no other port. Counted at the source.
    NoDestination,
    /// Lost in the kernel: it came to the interface faster than it was taken from the kernel's ring. Counted at the source, as
    /// received and dropped.
    KernelDropped,
    /// The destination is an interface that is down or gone. Counted at the destination.
    LinkDown,
    /// Dropped on purpose, by the plan of an impaired port. Counted at the destination.
    Impaired,
    /// An impaired port held as many frames back as it has memory for. Counted at the destination.
    HoldFull,
    /// A virtio-net header that asked for what cannot be done with its frame: offsets outside of it, an unknown kind of segmentation, segments of
    /// nothing. Counted at the source; where that shows only in finishing the frame, at the destination.
    BadOffload,
    /// For a station that a capture card does not listen for, or denied by its filter. Counted at the card.
    Filtered,
}

impl DropCause {
    /// All causes, in the order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::NoSpace,
        Self::NotBound,
        Self::RingStopped,
        Self::TooLong,
        Self::WriteFailed,
        Self::TooShort,
        Self::ToSelf,
        Self::PortGone,
        Self::NoDestination,
        Self::KernelDropped,
        Self::LinkDown,
        Self::Impaired,
        Self::HoldFull,
        Self::BadOffload,
        Self::Filtered,
    ];

    /// The name used everywhere, snake_case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSpace => "no_space",
            Self::NotBound => "not_bound",
            Self::RingStopped => "ring_stopped",
            Self::TooLong => "too_long",
            Self::WriteFailed => "write_failed",
            Self::TooShort => "too_short",
            Self::ToSelf => "to_self",
            Self::PortGone => "port_gone",
            Self::NoDestination => "no_destination",
            Self::KernelDropped => "kernel_dropped",
            Self::LinkDown => "link_down",
            Self::Impaired => "impaired",
            Self::HoldFull => "hold_full",
            Self::BadOffload => "bad_offload",
            Self::Filtered => "filtered",
        }
    }
}

/// Frames dropped, by cause, in one step of work.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DropTally([u32; DropCause::ALL.len()]);

impl DropTally {
    /// Counts `frames` more.
    #[inline]
    pub fn add(&mut self, cause: DropCause, frames: u32) {
        self.0[cause as usize] += frames;
    }

    /// Frames counted under `cause`.
    #[must_use]
    pub fn of(&self, cause: DropCause) -> u32 {
        self.0[cause as usize]
    }

    /// All frames counted.
    #[inline]
    #[must_use]
    pub fn total(&self) -> u32 {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_the_numbers() {
        for (number, cause) in DropCause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, number);
        }
    }
}
