//! Fields in network byte order, read from foreign bytes and appended to a message.

use crate::error::ErrorCode;

/// Reader of foreign bytes from front to back. Each read is checked.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    /// Error for bytes that end too early or are too long.
    bad_length: ErrorCode,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], bad_length: ErrorCode) -> Self {
        Self { rest: bytes, bad_length }
    }

    /// Reads by `read`, with another error for bad lengths.
    pub(crate) fn reporting<T>(
        &mut self,
        bad_length: ErrorCode,
        read: impl FnOnce(&mut Self) -> Result<T, ErrorCode>,
    ) -> Result<T, ErrorCode> {
        let mut within = Self { bad_length, ..*self };
        let read = read(&mut within)?;
        self.rest = within.rest;
        Ok(read)
    }

    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], ErrorCode> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(self.bad_length)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ErrorCode> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(self.bad_length)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Skips padding; its content is ignored.
    pub(crate) fn skip(&mut self, bytes: usize) -> Result<(), ErrorCode> {
        self.take(bytes).map(|_| ())
    }

    /// Returns a reader of the next `bytes` bytes.
    pub(crate) fn part(&mut self, bytes: usize) -> Result<Self, ErrorCode> {
        Ok(Self { rest: self.take(bytes)?, ..*self })
    }

    /// Returns a reader of a part that begins with its length. The length counts itself and the `before` bytes already
    /// read.
    pub(crate) fn sized(&mut self, before: usize) -> Result<Self, ErrorCode> {
        let length = usize::from(self.get::<u16>()?);
        self.part(length.checked_sub(before + 2).ok_or(self.bad_length)?)
    }

    /// Reads the number of a kind, and returns a reader of the part of this kind, whose length follows the number.
    pub(crate) fn kind_and_part(&mut self) -> Result<(u16, Self), ErrorCode> {
        Ok((self.get()?, self.sized(2)?))
    }

    /// Takes all remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn get<T: Wire>(&mut self) -> Result<T, ErrorCode> {
        T::read(self)
    }

    /// Checks that no bytes remain.
    pub(crate) fn finish(self) -> Result<(), ErrorCode> {
        if self.is_empty() { Ok(()) } else { Err(self.bad_length) }
    }
}

/// A type that messages contain.
pub(crate) trait Wire: Sized {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode>;
    fn write(&self, out: &mut Vec<u8>);

    /// Writes the value, and calls `written` after each entry of a list, or after the whole of another value. `written`
    /// gets the entry's offset in `out`.
    fn write_entries(&self, out: &mut Vec<u8>, written: &mut dyn FnMut(&mut Vec<u8>, usize)) {
        let start = out.len();
        self.write(out);
        written(out, start);
    }

    /// Reads a list, which goes on to the end of the part that contains it.
    fn read_list(reader: &mut Reader) -> Result<Vec<Self>, ErrorCode> {
        let mut items = Vec::new();
        while !reader.is_empty() {
            items.push(reader.get()?);
        }
        Ok(items)
    }

    fn write_list(items: &[Self], out: &mut Vec<u8>) {
        items.iter().for_each(|item| item.write(out));
    }
}

impl Wire for u8 {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        reader.array().map(|[byte]| byte)
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    fn read_list(reader: &mut Reader) -> Result<Vec<Self>, ErrorCode> {
        Ok(reader.rest().to_vec())
    }
    fn write_list(bytes: &[Self], out: &mut Vec<u8>) {
        out.extend(bytes);
    }
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Wire for $integer {
            fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
                reader.array().map(Self::from_be_bytes)
            }
            fn write(&self, out: &mut Vec<u8>) {
                out.extend(self.to_be_bytes());
            }
        }
    )*};
}
integers!(u16 u32 u64);

impl<T: Wire + Copy + Default, const N: usize> Wire for [T; N] {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let mut items = [T::default(); N];
        for item in &mut items {
            *item = reader.get()?;
        }
        Ok(items)
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|item| item.write(out));
    }
}

impl<T: Wire> Wire for Box<T> {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        reader.get().map(Self::new)
    }
    fn write(&self, out: &mut Vec<u8>) {
        T::write(self, out);
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        T::read_list(reader)
    }
    fn write(&self, out: &mut Vec<u8>) {
        T::write_list(self, out);
    }
    fn write_entries(&self, out: &mut Vec<u8>, written: &mut dyn FnMut(&mut Vec<u8>, usize)) {
        self.iter().for_each(|item| item.write_entries(out, written));
    }
}

/// Appends the output of `body`, then stores its length in it, at the offset `length_at`. A length that is too long for
/// its field makes the whole message too long, which is refused there.
pub(crate) fn sized(out: &mut Vec<u8>, length_at: usize, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    body(out);
    let length = (out.len() - start) as u16;
    put(out, start + length_at, length);
}

/// Appends the number of a kind, the length of this part, and the output of `body`.
pub(crate) fn kind_and_part(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    sized(out, 2, |out| {
        kind.write(out);
        pad(out, 2);
        body(out);
    });
}

/// Stores a number in bytes that are there already.
pub(crate) fn put(out: &mut [u8], at: usize, number: u16) {
    if let Some(field) = out.get_mut(at..at + 2) {
        field.copy_from_slice(&number.to_be_bytes());
    }
}

pub(crate) fn pad(out: &mut Vec<u8>, bytes: usize) {
    out.resize(out.len() + bytes, 0);
}

/// Number of bytes missing to a multiple of eight.
pub(crate) fn to_eight(bytes: usize) -> usize {
    bytes.wrapping_neg() % 8
}

/// Defines a struct whose fields follow each other; `=> n` is followed by n bytes of padding.
///
/// An entry of a list of entries of different lengths has its own length, after the fields in `[]`. `else` names the
/// error about a bad length, if it is not that of the message.
macro_rules! wire_struct {
    ($(
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $([
                $( $(#[$first_attribute:meta])* pub $first:ident: $first_type:ty, )*
                length $(else $error:ident)? $(=> $length_pad:literal)?
            ])?
            $( $(#[$field_attribute:meta])* pub $field:ident: $type:ty $(=> $pad:literal)? ),* $(,)?
        }
    )*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($( $(#[$first_attribute])* pub $first: $first_type, )*)?
            $( $(#[$field_attribute])* pub $field: $type, )*
        }

        impl $crate::wire::Wire for $name {
            fn read(reader: &mut $crate::wire::Reader) -> Result<Self, $crate::ErrorCode> {
                $(
                    $( let $first = reader.get()?; )*
                    let before = 0 $( + size_of::<$first_type>() )*;
                    let mut entry = $crate::wire::wire_struct!(@sized reader, before $(, $error)?);
                    $( entry.skip($length_pad)?; )?
                    let reader = &mut entry;
                )?
                Ok(Self {
                    $($( $first, )*)?
                    $( $field: { let field = reader.get()?; $( reader.skip($pad)?; )? field }, )*
                })
            }
            fn write(&self, out: &mut Vec<u8>) {
                $(
                    let start = out.len();
                    $( $crate::wire::Wire::write(&self.$first, out); )*
                    $crate::wire::pad(out, 2 $( + $length_pad )?);
                )?
                $( $crate::wire::Wire::write(&self.$field, out); $( $crate::wire::pad(out, $pad); )? )*
                $(
                    let length_at = start $( + size_of::<$first_type>() )*;
                    let length = (out.len() - start) as u16;
                    $crate::wire::put(out, length_at, length);
                )?
            }
        }

        #[cfg(test)]
        $crate::tests::sample::sample_struct!($name {
            $($( $first: $first_type, )*)?
            $( $field: $type, )*
        });
    )*};
    (@sized $reader:ident, $before:ident) => { $reader.sized($before)? };
    (@sized $reader:ident, $before:ident, $error:ident) => {
        $reader.reporting($crate::ErrorCode::$error, |within| within.sized($before))?
    };
}
pub(crate) use wire_struct;

/// Defines an enum with a number for each variant. Other numbers cause the error after `else`.
macro_rules! wire_enum {
    ($(
        $(#[$attribute:meta])*
        pub enum $name:ident: $number:ty { $( $(#[$value_attribute:meta])* $value:ident = $code:literal ),* $(,)? } else $error:ident;
    )*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $( $(#[$value_attribute])* $value = $code, )* }

        impl $crate::wire::Wire for $name {
            fn read(reader: &mut $crate::wire::Reader) -> Result<Self, $crate::ErrorCode> {
                match reader.get::<$number>()? {
                    $( $code => Ok(Self::$value), )*
                    _ => Err($crate::ErrorCode::$error),
                }
            }
            fn write(&self, out: &mut Vec<u8>) {
                $crate::wire::Wire::write(&(*self as $number), out);
            }
        }

        #[cfg(test)]
        impl $crate::tests::sample::Sample for $name {
            fn sample() -> proptest::strategy::BoxedStrategy<Self> {
                use proptest::strategy::Strategy;
                proptest::sample::select(vec![$( Self::$value, )*]).boxed()
            }
        }
    )*};
}
pub(crate) use wire_enum;

/// Defines a set of flags. Bits without a meaning cause the error after `else`; without `else` they are kept.
macro_rules! wire_flags {
    ($(
        $(#[$attribute:meta])*
        pub struct $name:ident: $number:ty { $( $(#[$bit_attribute:meta])* $bit:ident = $value:literal ),* $(,)? } $(else $error:ident)?;
    )*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $number);

        impl $name {
            $( $(#[$bit_attribute])* pub const $bit: Self = Self($value); )*
            /// All bits that have a meaning.
            pub const KNOWN: Self = Self(0 $( | $value )*);

            /// Whether all bits of `other` are set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl $crate::wire::Wire for $name {
            fn read(reader: &mut $crate::wire::Reader) -> Result<Self, $crate::ErrorCode> {
                let bits = reader.get()?;
                $(
                    if bits & !Self::KNOWN.0 != 0 {
                        return Err($crate::ErrorCode::$error);
                    }
                )?
                Ok(Self(bits))
            }
            fn write(&self, out: &mut Vec<u8>) {
                $crate::wire::Wire::write(&self.0, out);
            }
        }

        #[cfg(test)]
        impl $crate::tests::sample::Sample for $name {
            fn sample() -> proptest::strategy::BoxedStrategy<Self> {
                use proptest::strategy::Strategy;
                proptest::arbitrary::any::<$number>().prop_map(|bits| Self(bits & Self::KNOWN.0)).boxed()
            }
        }
    )*};
}
pub(crate) use wire_flags;

/// Defines an enum whose kind is a number before the value. Unknown kinds cause the error after `else`.
macro_rules! wire_kinds {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident: $number:ty {
            $( $(#[$kind_attribute:meta])* $kind:ident $(($body:ident: $type:ty))? = $code:literal ),* $(,)?
        } else $error:ident;
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name { $( $(#[$kind_attribute])* $kind $(($type))?, )* }

        impl $name {
            /// Number of this kind in messages.
            pub fn kind(&self) -> $number {
                match self { $( Self::$kind { .. } => $code, )* }
            }

            fn read_kind(kind: $number, reader: &mut $crate::wire::Reader) -> Result<Self, $crate::ErrorCode> {
                match kind {
                    $( $code => Ok(Self::$kind $((reader.get::<$type>()?))?), )*
                    _ => Err($crate::ErrorCode::$error),
                }
            }

            /// Writes the body, and calls `written` as `Wire::write_entries` does.
            fn write_body(&self, out: &mut Vec<u8>, written: &mut dyn FnMut(&mut Vec<u8>, usize)) {
                match self {
                    $( Self::$kind $(($body))? => {
                        $( $crate::wire::Wire::write_entries($body, out, written); )?
                    } )*
                }
            }
        }

        #[cfg(test)]
        impl $crate::tests::sample::Sample for $name {
            fn sample() -> proptest::strategy::BoxedStrategy<Self> {
                use proptest::strategy::{Just, Strategy, Union};
                Union::new([$(
                    ( Just(()), $( <$type as $crate::tests::sample::Sample>::sample(), )? )
                        .prop_map(|((), $($body,)?)| Self::$kind $(($body))?).boxed(),
                )*]).boxed()
            }
        }
    };
}
pub(crate) use wire_kinds;
