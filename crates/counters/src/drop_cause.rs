//! Why a frame was dropped. One list for all: counters, CLI, JSON and metrics use these names.

use serde::{Deserialize, Serialize};

/// Makes the list of causes: a cause is one line here, with its name in reports and what it means.
macro_rules! causes {
    ($($(#[doc = $meaning:literal])+ $cause:ident = $name:literal,)+) => {
        /// A cause of dropped frames, which are counted by it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum DropCause {
            $($(#[doc = $meaning])+ #[serde(rename = $name)] $cause,)+
        }

        impl DropCause {
            /// All causes, in the order of their numbers.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$cause),+];

            /// The name used everywhere, snake_case.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$cause => $name,)+
                }
            }
        }
    };
}

causes! {
    /// The destination's ring had no free slot. Counted at the destination.
    NoSpace = "no_space",
    /// The destination was not bound by any program. Counted at the destination.
    NotBound = "not_bound",
    /// The destination's ring is stopped after a violation. Counted at the destination.
    RingStopped = "ring_stopped",
    /// Longer than the destination can take at all. Counted at the destination.
    TooLong = "too_long",
    /// The destination is a file and writing failed (disk full). Counted at the destination.
    WriteFailed = "write_failed",
    /// Shorter than an Ethernet header (14 bytes): counted at the source. Shorter than a capture card lets in: counted
    /// at the card.
    TooShort = "too_short",
    /// To a port where it came from. Counted at the source.
    ToSelf = "to_self",
    /// To a learned or forced port that has left. Counted at the source; at the destination where an impairment still
    /// held it when the port ended.
    PortGone = "port_gone",
    /// It would be flooded, but there is no other port. Counted at the source.
    NoDestination = "no_destination",
    /// To be flooded, but there is a loop behind the port that it came in by. Counted at the source.
    Looped = "looped",
    /// Without a tag, with one, or of a VLAN, where the port that it came from does not send such frames; or its
    /// destination takes it only untagged and there is a second tag behind the first. Counted at the source.
    WrongVlan = "wrong_vlan",
    /// From an isolated port to another isolated port. Counted at the source.
    Isolated = "isolated",
    /// Beyond the port's limit of frames that go to several ports. Counted at the source.
    Storm = "storm",
    /// From a port to which a mirror leads: such a port only monitors. Counted at the source.
    MirrorPort = "mirror_port",
    /// No entry of a flow table matched it. Counted at the source.
    NoFlow = "no_flow",
    /// The flow entries that matched it send it nowhere. Counted at the source.
    ByFlow = "by_flow",
    /// Its way through flow tables, groups and meters had more steps than one frame may take. Counted at the source.
    TooManySteps = "too_many_steps",
    /// A band of a meter dropped it. Counted at the source.
    Metered = "metered",
    /// Its TTL was over where a flow entry decrements it. Counted at the source.
    TtlExpired = "ttl_expired",
    /// A fragment of an IP packet, on a switch whose controller has them dropped. Counted at the source.
    Fragment = "fragment",
    /// A controller has disabled the port for frames that come in. Counted at the source.
    PortDisabled = "port_disabled",
    /// Lost in the kernel: it arrived at the interface faster than frames were taken from the kernel's ring. Counted at
    /// the source, as received and dropped.
    KernelDropped = "kernel_dropped",
    /// It came in pieces, and its last piece did not: a driver cut it, or it has more pieces than a frame can have.
    /// Counted at the source, as received and dropped.
    Incomplete = "incomplete",
    /// The destination is an interface that is down or gone, also one that went before its driver took the frame.
    /// Counted at the destination.
    LinkDown = "link_down",
    /// The destination is an interface whose driver dropped it, as a veth does whose other end does not keep up. Counted
    /// at the destination.
    Refused = "refused",
    /// Dropped on purpose, by the plan of an impaired port. Counted at the destination.
    Impaired = "impaired",
    /// An impaired port held as many frames back as it has memory for. Counted at the destination.
    HoldFull = "hold_full",
    /// A virtio-net header with an impossible request for its frame: offsets outside of it, an unknown kind of
    /// segmentation, segments of nothing. Counted at the source; if that shows only when the frame is finished, at the
    /// destination.
    BadOffload = "bad_offload",
    /// For a station that a capture card does not listen for, or denied by its filter. Counted at the card.
    Filtered = "filtered",
}

/// Frames dropped, by cause, in one step of work.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DropTally {
    by_cause: [u32; DropCause::ALL.len()],
    total: u32,
}

impl DropTally {
    /// Counts `frames` more.
    #[inline]
    pub fn add(&mut self, cause: DropCause, frames: u32) {
        self.by_cause[cause as usize] += frames;
        self.total += frames;
    }

    /// Counts what another tally has.
    pub fn add_all(&mut self, other: &Self) {
        for (sum, frames) in self.by_cause.iter_mut().zip(other.by_cause) {
            *sum += frames;
        }
        self.total += other.total;
    }

    /// Frames counted under `cause`.
    #[must_use]
    pub fn of(&self, cause: DropCause) -> u32 {
        self.by_cause[cause as usize]
    }

    /// All frames counted.
    #[inline]
    #[must_use]
    pub fn total(&self) -> u32 {
        self.total
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
