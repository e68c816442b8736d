//! Reasons why a ring was stopped: a program broke a rule of its own ring, or the device behind the ring ended. The
//! datapath stops only this ring and continues.

/// Rule of the ring that the other side broke. The code stands in the control block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u32)]
#[non_exhaustive]
pub enum RingViolation {
    /// `head` is beyond the ring, or outside `[previous head, tail]`.
    #[error("head moved outside the slots that the program owns")]
    Head = 1,
    /// A slot names a buffer that the region does not have.
    #[error("a slot names a buffer outside the region")]
    BufferIndex = 2,
    /// The length in a slot is beyond the end of its buffer.
    #[error("a slot is longer than its buffer")]
    Length = 3,
    /// A frame has more fragments than allowed.
    #[error("a frame has more than 64 fragments")]
    Fragments = 4,
    /// The peer moved its published index backwards or beyond the ring.
    #[error("tail moved outside the ring's order")]
    Tail = 5,
    /// The device behind the ring has ended; the program has no fault.
    #[error("the device behind the port is gone")]
    DeviceGone = 6,
    /// A holder punched a hole into the huge pages of the region.
    #[error("the region is lost: another process punched a hole into its huge pages")]
    RegionLost = 7,
    /// The ring belongs to the process that forked this one ([`crate::fork`]). The code is that of a control block full
    /// of ones.
    #[error("the ring belongs to the process that opened it, of which this process is a child")]
    OtherProcess = u32::MAX,
}

impl RingViolation {
    /// The violation of a code in a control block; `None` for 0. Codes of a newer version read as [`Self::Head`].
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => return None,
            2 => Self::BufferIndex,
            3 => Self::Length,
            4 => Self::Fragments,
            5 => Self::Tail,
            6 => Self::DeviceGone,
            7 => Self::RegionLost,
            u32::MAX => Self::OtherProcess,
            _ => Self::Head,
        })
    }
}
