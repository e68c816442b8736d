//! Decodes numbers from untrusted bytes in the byte order of the file. Missing bytes give `None`, never a panic.

/// Byte order in which a capture file, or a pcapng section, holds its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// Byte order in which `bytes` read as `magic`.
    pub(crate) fn of_magic(bytes: [u8; 4], magic: u32) -> Option<Self> {
        if bytes == magic.to_le_bytes() {
            Some(Self::Little)
        } else if bytes == magic.to_be_bytes() {
            Some(Self::Big)
        } else {
            None
        }
    }

    pub(crate) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    pub(crate) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    pub(crate) fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            Self::Little => i64::from_le_bytes(bytes),
            Self::Big => i64::from_be_bytes(bytes),
        }
    }
}

/// Remainder of a header, record or option list that is not decoded yet.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8], order: ByteOrder) -> Self {
        Self { rest: bytes, order }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*array)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(|bytes| self.order.u16(bytes))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(|bytes| self.order.u32(bytes))
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(|bytes| self.order.i64(bytes))
    }

    /// The next `len` bytes. Skips the padding to a multiple of four after them, if it is present.
    pub(crate) fn padded(&mut self, len: usize) -> Option<&'a [u8]> {
        let (value, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest.get(len.next_multiple_of(4) - len..).unwrap_or_default();
        Some(value)
    }
}
