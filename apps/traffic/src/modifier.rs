//! Variation of a field from frame to frame of a stream.

mod bit_field;
mod progress;
mod resolve;

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

pub(crate) use self::bit_field::BitField;
pub(crate) use self::progress::{Progress, Values};
pub(crate) use self::resolve::{FrameMap, Varied, flows, resolve};

/// Greatest number of modifiers of one stream, including the two or three of `flows`.
pub const MAX_MODIFIERS: usize = 32;
/// Greatest number of values in a list.
pub const MAX_LIST: usize = 65536;
/// Greatest number of flows that `flows` makes.
pub const MAX_FLOWS: u64 = 10_000_000;

/// Variation of one field.
///
/// In text, a table with `field` and one of `increment`, `decrement`, `random` and `list`: `{field = "ipv4.source",
/// increment = {count = 1000}, every = 10}`.
///
/// A field is named by its header and its own name, `ipv4.source`; if a header occurs more than once, `vlan[1].id` is
/// in the second header. Bytes are named by position: `payload[4..8]` are four bytes of the payload, `udp[0..2]` the
/// first two bytes of the UDP header, `frame[0..6]` the first six of the frame. A name covers at most 8 bytes. Only the
/// low 64 bits of IPv6 addresses vary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ModifierText", into = "ModifierText")]
pub struct ModifierDefinition {
    /// Name of the field.
    pub field: String,
    /// Values of the field.
    pub progression: Progression,
    /// Number of consecutive frames with the same value, at least 1. If a modifier has `count` values, another with
    /// `every = count` makes all combinations of both.
    pub every: u64,
}

/// Values of a field, beginning with the first frame's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progression {
    /// Ascending values, `count` in number, then the first again.
    Increment(SteppedValues),
    /// Descending values, `count` in number, then the first again.
    Decrement(SteppedValues),
    /// A random value for each frame, which depends only on the seed and the frame's number.
    Random(Draws),
    /// Values in turn, at most [`MAX_LIST`].
    List(Vec<ModifierValue>),
}

/// Values at equal distances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SteppedValues {
    /// Number of values, at least 1.
    pub count: u64,
    /// Difference between consecutive values; 1 if not given.
    #[serde(default = "one")]
    pub step: u64,
    /// First value; the header's value if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<ModifierValue>,
    /// Whether the values continue at the field's other end after its highest or lowest value: they are taken modulo
    /// the field's size. If not, which is the default, more values than the field has from `start` on are an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wrap: bool,
}

/// Values drawn uniformly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draws {
    /// Seed of the random numbers. Each seed gives another sequence of values.
    pub seed: u64,
    /// Lowest value; 0 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<ModifierValue>,
    /// Highest value; the field's maximum if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<ModifierValue>,
}

/// Value of a field: a number, or text as in the field's header, like `10.0.0.1`, `02:00:00:00:00:0a`, `SA`. Text can
/// also be a hexadecimal number, `0x10`, and for fields without a notation of their own a decimal number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ModifierValue {
    /// A number.
    Number(u64),
    /// Text.
    Text(String),
}

impl fmt::Display for ModifierValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => write!(f, "\"{text}\""),
        }
    }
}

impl<'de> Deserialize<'de> for ModifierValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValueVisitor;
        impl Visitor<'_> for ValueVisitor {
            type Value = ModifierValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 0 on, or a field's value as text")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<ModifierValue, E> {
                Ok(ModifierValue::Number(number))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<ModifierValue, E> {
                u64::try_from(number).map(ModifierValue::Number).map_err(|_| {
                    E::custom(format_args!("{number} is out of range: fields hold numbers from 0 on"))
                })
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ModifierValue, E> {
                Ok(ModifierValue::Text(text.to_owned()))
            }
        }
        deserializer.deserialize_any(ValueVisitor)
    }
}

/// A modifier in its text form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModifierText {
    field: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    increment: Option<SteppedValues>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    decrement: Option<SteppedValues>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    random: Option<Draws>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    list: Option<Vec<ModifierValue>>,
    #[serde(default = "one")]
    every: u64,
}

fn one() -> u64 {
    1
}

impl TryFrom<ModifierText> for ModifierDefinition {
    type Error = String;

    fn try_from(text: ModifierText) -> Result<Self, Self::Error> {
        let progression = match (text.increment, text.decrement, text.random, text.list) {
            (Some(steps), None, None, None) => Progression::Increment(steps),
            (None, Some(steps), None, None) => Progression::Decrement(steps),
            (None, None, Some(draws), None) => Progression::Random(draws),
            (None, None, None, Some(values)) => Progression::List(values),
            _ => {
                return Err(format!(
                    "the modifier of \"{}\" needs one of increment, decrement, random and list, and no more",
                    text.field
                ));
            }
        };
        Ok(Self { field: text.field, progression, every: text.every })
    }
}

impl From<ModifierDefinition> for ModifierText {
    fn from(definition: ModifierDefinition) -> Self {
        let ModifierDefinition { field, progression, every } = definition;
        let mut text = Self { field, increment: None, decrement: None, random: None, list: None, every };
        match progression {
            Progression::Increment(steps) => text.increment = Some(steps),
            Progression::Decrement(steps) => text.decrement = Some(steps),
            Progression::Random(draws) => text.random = Some(draws),
            Progression::List(values) => text.list = Some(values),
        }
        text
    }
}
