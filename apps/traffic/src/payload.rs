//! The payload: the bytes after a frame's headers.

use std::fmt;
use std::iter;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::header::HexBytes;
use crate::random::SplitMix64;

/// Payload of a stream's frames, which is the same in each frame.
///
/// In text, bytes that repeat, as pairs of hexadecimal digits (`"00"`, `"55aa"`), `{increment = true}` or `{random_seed
/// = 1}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Bytes that repeat.
    Pattern(HexBytes),
    /// Bytes 0, 1, 2 to 255, which repeat.
    Increment,
    /// Random bytes that depend only on the seed.
    Random {
        /// Seed of the random numbers.
        seed: u64,
    },
}

impl Default for Payload {
    /// Zeros.
    fn default() -> Self {
        Self::Pattern(HexBytes(vec![0]))
    }
}

impl Payload {
    /// Bytes of the payload, endless; `None` for a pattern without bytes.
    pub(crate) fn bytes(&self) -> Box<dyn Iterator<Item = u8> + '_> {
        match self {
            Self::Pattern(HexBytes(bytes)) => Box::new(bytes.iter().copied().cycle()),
            Self::Increment => Box::new(iter::successors(Some(0u8), |byte| Some(byte.wrapping_add(1)))),
            Self::Random { seed } => {
                Box::new((0..).flat_map(|index| SplitMix64::at(*seed, index).to_be_bytes()))
            }
        }
    }
}

/// Payload as a table.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PayloadTable {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    increment: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    random_seed: Option<u64>,
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Pattern(bytes) => bytes.serialize(serializer),
            Self::Increment => {
                PayloadTable { increment: Some(true), random_seed: None }.serialize(serializer)
            }
            Self::Random { seed } => {
                PayloadTable { increment: None, random_seed: Some(*seed) }.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PayloadVisitor;
        impl<'de> Visitor<'de> for PayloadVisitor {
            type Value = Payload;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "bytes as pairs of hexadecimal digits, {increment = true} or {random_seed = NUMBER}",
                )
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Payload, E> {
                text.parse().map(Payload::Pattern).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Payload, A::Error> {
                match PayloadTable::deserialize(MapAccessDeserializer::new(table))? {
                    PayloadTable { increment: Some(true), random_seed: None } => Ok(Payload::Increment),
                    PayloadTable { increment: None, random_seed: Some(seed) } => Ok(Payload::Random { seed }),
                    _ => Err(A::Error::custom("give increment = true or random_seed = NUMBER")),
                }
            }
        }
        deserializer.deserialize_any(PayloadVisitor)
    }
}
