//! Text in a field of fixed length.

use std::borrow::Cow;
use std::fmt;

use crate::error::ErrorCode;
use crate::wire::{Reader, Wire};

/// A text of at most N bytes, which ends at the first zero. The bytes are kept as received. In output, a byte that is
/// not UTF-8 becomes a replacement character.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text<const N: usize>([u8; N]);

impl<const N: usize> Text<N> {
    /// Makes a field of a text, cut so that a zero fits after it.
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; N];
        let fitting = text.get(..text.floor_char_boundary(N.saturating_sub(1))).unwrap_or_default();
        bytes.iter_mut().zip(fitting.bytes()).for_each(|(target, byte)| *target = byte);
        Self::ended(bytes)
    }

    /// Zeroes all bytes from the first zero on, so that equal texts are equal.
    fn ended(mut bytes: [u8; N]) -> Self {
        bytes.iter_mut().skip_while(|byte| **byte != 0).for_each(|byte| *byte = 0);
        Self(bytes)
    }

    /// Text without the zeros.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.0.split(|byte| *byte == 0).next().unwrap_or_default())
    }
}

impl<const N: usize> Wire for Text<N> {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        reader.array().map(Self::ended)
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.0);
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Debug::fmt(&self.text(), f)
    }
}
