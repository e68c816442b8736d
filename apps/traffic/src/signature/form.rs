//! Forms of signatures, and sets of forms.

use serde::Serialize;

/// Form of a signature. Forms are ordered from the longest. The layouts are drawn in [the module](super).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SignatureForm {
    /// 28 bytes: every field at full length. The checksum covers payload, too.
    Full,
    /// 18 bytes: sequence number and timestamp of 40 bits.
    Compact,
    /// 10 bytes: 256 streams, 24 bits of sequence, 32 bits of timestamp, 16 bits of checksum.
    Short,
    /// 6 bytes: as the short form, without timestamp.
    Tiny,
}

impl SignatureForm {
    /// All forms, from the longest.
    pub const ALL: [Self; 4] = [Self::Full, Self::Compact, Self::Short, Self::Tiny];

    /// Length of the form, bytes; the highest stream number; lengths of sequence number and timestamp, bits.
    const fn layout(self) -> (usize, u16, u32, u32) {
        match self {
            Self::Full => (28, u16::MAX, 64, 64),
            Self::Compact => (18, u16::MAX, 40, 40),
            Self::Short => (10, u8::MAX as u16, 24, 32),
            Self::Tiny => (6, u8::MAX as u16, 24, 0),
        }
    }

    /// Length of the form, bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.layout().0
    }

    /// The longest form that fits into `room_bytes` bytes of payload after the headers. None below 6.
    #[must_use]
    pub fn longest_within(room_bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.bytes() <= room_bytes)
    }

    /// The highest stream number of the form.
    #[must_use]
    pub const fn max_stream(self) -> u16 {
        self.layout().1
    }

    /// Length of the sequence number, bits.
    #[must_use]
    pub const fn sequence_bits(self) -> u32 {
        self.layout().2
    }

    /// Length of the timestamp, bits; 0 without a timestamp.
    #[must_use]
    pub const fn timestamp_bits(self) -> u32 {
        self.layout().3
    }

    /// Whether latency can be measured with this form.
    #[must_use]
    pub const fn carries_timestamp(self) -> bool {
        self.timestamp_bits() > 0
    }
}

/// Forms that a receiver expects; all forms by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FormSet(u8);

impl FormSet {
    /// Every form.
    pub const ALL: Self = Self(0b1111);
    /// No form: every frame is foreign.
    pub const NONE: Self = Self(0);

    /// The set with `form` added.
    #[must_use]
    pub const fn with(self, form: SignatureForm) -> Self {
        Self(self.0 | 1 << form as u8)
    }

    /// The union with `others`.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether the set contains `form`.
    #[inline]
    #[must_use]
    pub const fn contains(self, form: SignatureForm) -> bool {
        self.0 & 1 << form as u8 != 0
    }
}

impl Default for FormSet {
    fn default() -> Self {
        Self::ALL
    }
}

impl FromIterator<SignatureForm> for FormSet {
    fn from_iter<T: IntoIterator<Item = SignatureForm>>(forms: T) -> Self {
        forms.into_iter().fold(Self::NONE, Self::with)
    }
}
