//! Causes of dropped frames, in one list: counters, CLI, JSON and metrics use these names.

use serde::{Deserialize, Serialize};

/// Makes the list of causes. Each cause is one line here, with its meaning and its name in reports.
macro_rules! causes {
    ($($(#[doc = $meaning:literal])+ $cause:ident = $name:literal,)+) => {
        /// Cause of dropped frames; each cause has a counter.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum DropCause {
            $($(#[doc = $meaning])+ #[serde(rename = $name)] $cause,)+
        }

        impl DropCause {
            /// All causes, in the order of their numbers.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$cause),+];

            /// Name of the cause everywhere, in snake case.
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
    /// Frame is longer than the destination can take. Counted at the destination.
    TooLong = "too_long",
    /// The destination is a file and writing failed (disk full). Counted at the destination.
    WriteFailed = "write_failed",
    /// Frame is shorter than an Ethernet header (14 bytes): counted at the source. Frame is shorter than a capture card
    /// lets in: counted at the card.
    TooShort = "too_short",
    /// Destination is the port that the frame came from. Counted at the source.
    ToSelf = "to_self",
    /// Destination is a learned or forced port that has left. Counted at the source; at the destination if an
    /// impairment still held the frame when the port ended.
    PortGone = "port_gone",
    /// Frame would be flooded, but there is no other port. Counted at the source.
    NoDestination = "no_destination",
    /// Frame would be flooded, but there is a loop behind the port that it came in by. Counted at the source.
    Looped = "looped",
    /// Frame has no tag, has one, or is of a VLAN, and its source port does not send such frames; or its destination
    /// takes it only untagged and there is a second tag behind the first. Counted at the source.
    WrongVlan = "wrong_vlan",
    /// Frame came from an isolated port and goes to another isolated port. Counted at the source.
    Isolated = "isolated",
    /// Frame exceeds the port's storm limit, which is for frames to several ports. Counted at the source.
    Storm = "storm",
    /// Frame came from a port to which a mirror leads: such a port only monitors. Counted at the source.
    MirrorPort = "mirror_port",
    /// No entry of a flow table matched the frame. Counted at the source.
    NoFlow = "no_flow",
    /// The matching flow entries send the frame nowhere. Counted at the source.
    ByFlow = "by_flow",
    /// Path of the frame through flow tables, groups and meters had more steps than one frame may take. Counted at the
    /// source.
    TooManySteps = "too_many_steps",
    /// A band of a meter dropped the frame. Counted at the source.
    Metered = "metered",
    /// TTL of the frame expired as a flow entry decremented it. Counted at the source.
    TtlExpired = "ttl_expired",
    /// Frame is a fragment of an IP packet, on a switch whose controller has fragments dropped. Counted at the source.
    Fragment = "fragment",
    /// A controller has disabled the port for received frames. Counted at the source.
    PortDisabled = "port_disabled",
    /// Frame was lost in the kernel: it arrived at the interface while the kernel's ring was full. Counted at the
    /// source, as received and dropped.
    KernelDropped = "kernel_dropped",
    /// Frame came in pieces without the last piece: a driver cut it, or it has more pieces than a frame can have.
    /// Counted at the source, as received and dropped.
    Incomplete = "incomplete",
    /// The destination is an interface that is down or gone, or that went before its driver took the frame. Counted at
    /// the destination.
    LinkDown = "link_down",
    /// The destination is an interface whose driver dropped the frame, as a veth does whose other end does not keep up.
    /// Counted at the destination.
    Refused = "refused",
    /// Frame was dropped on purpose, by the plan of an impaired port. Counted at the destination.
    Impaired = "impaired",
    /// An impaired port already held as many frames back as it has memory for. Counted at the destination.
    HoldFull = "hold_full",
    /// The frame's virtio-net header has an impossible request: offsets outside of the frame, an unknown kind of
    /// segmentation, segments of nothing. Counted at the source; at the destination if the fault shows only when the
    /// frame is finished.
    BadOffload = "bad_offload",
    /// Frame is for a station or a VLAN that the card does not listen for, or its filter denies the frame: a capture card
    /// or a guest's card. Counted at the card.
    Filtered = "filtered",
}

/// Frames dropped, by cause, in one step of work.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DropTally {
    by_cause: [u32; DropCause::ALL.len()],
    total: u32,
}

impl DropTally {
    /// Adds `frames` to the count of `cause`.
    #[inline]
    pub fn add(&mut self, cause: DropCause, frames: u32) {
        self.by_cause[cause as usize] += frames;
        self.total += frames;
    }

    /// Adds the counts of another tally.
    pub fn add_all(&mut self, other: &Self) {
        for (sum, frames) in self.by_cause.iter_mut().zip(other.by_cause) {
            *sum += frames;
        }
        self.total += other.total;
    }

    /// Number of frames counted under `cause`.
    #[must_use]
    pub fn of(&self, cause: DropCause) -> u32 {
        self.by_cause[cause as usize]
    }

    /// Number of all counted frames.
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
