//! The counters of a card.

use core::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::input::Rejection;

macro_rules! counters {
    ($(#[$about:meta])* $shared:ident, $plain:ident { $($(#[$doc:meta])* $field:ident,)+ }) => {
        $(#[$about])*
        // The layout is the one of libsze2's structures in C.
        #[repr(C)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        pub struct $plain {
            $($(#[$doc])* pub $field: u64,)+
        }

        /// The same counters, shared by several threads.
        #[derive(Debug, Default)]
        pub struct $shared {
            $($field: AtomicU64,)+
        }

        impl $shared {
            /// Adds the counts of a batch.
            #[inline]
            pub fn add(&self, more: &$plain) {
                $(if more.$field != 0 {
                    self.$field.fetch_add(more.$field, Ordering::Relaxed);
                })+
            }

            /// Present values of the counters.
            #[must_use]
            pub fn read(&self) -> $plain {
                $plain { $($field: self.$field.load(Ordering::Relaxed),)+ }
            }

            /// Sets the counters to zero.
            pub fn clear(&self) {
                $(self.$field.store(0, Ordering::Relaxed);)+
            }
        }
    };
}

counters! {
    /// Counters of an input buffer. Each frame is accepted, lost at a full channel, or rejected for one of the other
    /// reasons.
    SharedIbufCounters, IbufCounters {
        /// Frames accepted and put into a channel.
        frames,
        /// Bytes of the accepted frames, without FCS.
        bytes,
        /// Frames that came while the input buffer was switched off.
        disabled,
        /// Frames shorter than the minimum.
        short,
        /// Frames longer than the maximum, or than a segment can be.
        long,
        /// Frames for other stations.
        address,
        /// Frames that the filter denied.
        denied,
        /// Frames for a channel that no program has started.
        unclaimed,
        /// Frames for a channel without room, because the program is too slow.
        overflow,
    }
}

counters! {
    /// Counters of an output buffer.
    SharedObufCounters, ObufCounters {
        /// Frames let out.
        frames,
        /// Bytes of the frames let out, without FCS.
        bytes,
        /// Frames that came while the output buffer was switched off.
        disabled,
    }
}

counters! {
    /// Counters of a channel.
    SharedChannelCounters, ChannelCounters {
        /// Frames that the card put into the channel, or took from it.
        frames,
        /// Bytes of these frames, without FCS.
        bytes,
        /// Frames for which the channel had no room.
        overflow,
    }
}

counters! {
    /// Counters of a program's rule.
    SharedRuleCounters, RuleCounters {
        /// Frames that the rule decided on.
        frames,
        /// Bytes of these frames, without FCS.
        bytes,
    }
}

impl IbufCounters {
    /// Counts a rejected frame.
    pub fn reject(&mut self, rejection: Rejection) {
        *match rejection {
            Rejection::Disabled => &mut self.disabled,
            Rejection::Short => &mut self.short,
            Rejection::Long => &mut self.long,
            Rejection::Address => &mut self.address,
            Rejection::Filter => &mut self.denied,
        } += 1;
    }

    /// Number of all frames that reached the card.
    #[must_use]
    pub fn total(&self) -> u64 {
        let errors = self.disabled + self.short + self.long + self.address + self.denied + self.unclaimed;
        self.frames + errors + self.overflow
    }
}
