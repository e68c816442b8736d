//! The counters of a card.

use core::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::input::Rejection;

macro_rules! counters {
    ($(#[$about:meta])* $shared:ident, $plain:ident { $($(#[$doc:meta])* $field:ident,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        pub struct $plain {
            $($(#[$doc])* pub $field: u64,)+
        }

        /// As they are counted, by several threads.
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

            /// The present values.
            #[must_use]
            pub fn read(&self) -> $plain {
                $plain { $($field: self.$field.load(Ordering::Relaxed),)+ }
            }

            /// Clears the counters and returns their values.
            pub fn take(&self) -> $plain {
                $plain { $($field: self.$field.swap(0, Ordering::Relaxed),)+ }
            }
        }
    };
}

counters! {
    /// Of an input buffer. All frames are accepted, lost before a full channel, or rejected for one of the other
    /// reasons.
    SharedIbufCounters, IbufCounters {
        /// Frames accepted, and put into a channel.
        frames,
        /// Their bytes, without FCS.
        bytes,
        /// Frames that came while it was switched off.
        disabled,
        /// Frames shorter than it lets in.
        short,
        /// Frames longer than it lets in, or than a segment can be.
        long,
        /// Frames for other stations.
        address,
        /// Frames that the filter denied.
        denied,
        /// Frames for a channel that no program has started.
        unclaimed,
        /// Frames for a channel without room: the program is too slow.
        overflow,
    }
}

counters! {
    /// Of an output buffer.
    SharedObufCounters, ObufCounters {
        /// Frames let out.
        frames,
        /// Their bytes, without FCS.
        bytes,
        /// Frames that came while it was switched off.
        disabled,
    }
}

counters! {
    /// Of a channel.
    SharedChannelCounters, ChannelCounters {
        /// Frames put into it by the card, or taken from it.
        frames,
        /// Their bytes, without FCS.
        bytes,
        /// Frames that it had no room for.
        overflow,
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

    /// All frames that reached the card.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.frames + self.errors() + self.overflow
    }

    /// Frames refused for any other reason than a full channel.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.disabled + self.short + self.long + self.address + self.denied + self.unclaimed
    }
}
