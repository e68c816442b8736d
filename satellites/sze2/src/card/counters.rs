//! What a card counts.

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
            /// Adds what a batch came to.
            #[inline]
            pub fn add(&self, more: &$plain) {
                $(if more.$field != 0 {
                    self.$field.fetch_add(more.$field, Ordering::Relaxed);
                })+
            }

            /// What they are now.
            #[must_use]
            pub fn read(&self) -> $plain {
                $plain { $($field: self.$field.load(Ordering::Relaxed),)+ }
            }

            /// Begins anew; what was counted up to now is returned.
            pub fn take(&self) -> $plain {
                $plain { $($field: self.$field.swap(0, Ordering::Relaxed),)+ }
            }
        }
    };
}

counters! {
    /// Of an input buffer. All frames are let in, lost before a full channel, or kept out for one of the other reasons.
    SharedIbufCounters, IbufCounters {
        /// Frames let in, and put into a channel.
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
        /// Frames for a channel that nobody has started.
        unclaimed,
        /// Frames for a channel that had no room: the program is too slow for what comes.
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
    /// Counts a frame that was not let in.
    pub fn reject(&mut self, rejection: Rejection) {
        *match rejection {
            Rejection::Disabled => &mut self.disabled,
            Rejection::Short => &mut self.short,
            Rejection::Long => &mut self.long,
            Rejection::Address => &mut self.address,
            Rejection::Filter => &mut self.denied,
        } += 1;
    }

    /// Frames that came.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.frames + self.errors() + self.overflow
    }

    /// Frames that were not let in for what they are or where they were to go.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.disabled + self.short + self.long + self.address + self.denied + self.unclaimed
    }
}
