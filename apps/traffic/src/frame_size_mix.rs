//! The sizes of a stream's frames, one after the other.

mod text;

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, Expected, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::text::FrameSizeMixError;
use crate::definition::{Problem, StreamError};
use crate::line_rate::FrameSize;
use crate::rotation::{MAX_CHOICES, MAX_ROTATION, Rotation};

/// Greatest number of sizes of one stream.
pub const MAX_SIZES: usize = 16384;

/// Sizes with FCS of the simple IMIX, each with its number of frames among 12.
///
/// IP packets of 40, 576 and 1500 bytes at 7 : 4 : 1, as in most testers, get 18 bytes of Ethernet header and FCS. The
/// smallest frame is padded to Ethernet's minimum.
pub const IMIX: [(u32, u32); 3] = [(64, 7), (594, 4), (1518, 1)];

/// Sizes and their order.
///
/// In text: a size (`64`), sizes in turn (`[64, 512, 1518]`), `"imix"`, weights
/// (`{weighted = [[64, 7], [594, 4], [1518, 1]]}`) or a range (`{range = [64, 1518], step = 2}`). Weights and ranges
/// may be drawn at random, with the same shares: `{range = [64, 1518], random_seed = 1}`.
///
/// Without randomness the order is fixed and spread: after any number of frames each size was sent less than one time
/// more or less than its exact share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameSizeMix {
    /// One size for all frames.
    Fixed(FrameSize),
    /// Sizes in turn, at most [`MAX_SIZES`].
    InTurn(Vec<FrameSize>),
    /// The sizes and weights of [`IMIX`].
    Imix,
    /// Sizes with weights of at least 1.
    Weighted {
        /// Sizes and weights.
        sizes: Vec<(FrameSize, u32)>,
        /// Seed of the random order; a fixed order if absent.
        random_seed: Option<u64>,
    },
    /// Sizes from the first to the last.
    Range {
        /// First size.
        first: FrameSize,
        /// Upper limit of the sizes.
        last: FrameSize,
        /// Bytes from one size to the next, at least 1.
        step: u32,
        /// Seed of the random order, in which all sizes are equally frequent; a fixed order if absent.
        random_seed: Option<u64>,
    },
}

impl Default for FrameSizeMix {
    /// Frames of 64 bytes.
    fn default() -> Self {
        Self::Fixed(FrameSize::MIN)
    }
}

impl FrameSizeMix {
    /// The sizes, and their order as indexes.
    pub(crate) fn rotation(&self) -> Result<(Vec<FrameSize>, Rotation), StreamError> {
        let (sizes, rotation) = match self {
            Self::Fixed(size) => (vec![*size], Rotation::in_turn(1)),
            Self::InTurn(sizes) => (sizes.clone(), Rotation::in_turn(checked_count(sizes.len())?)),
            Self::Imix => {
                let sizes = IMIX.into_iter().filter_map(|(size, _)| FrameSize::new(size).ok());
                (sizes.collect(), weighted(&IMIX.map(|(_, weight)| weight))?)
            }
            Self::Weighted { sizes, random_seed } => {
                let weights: Vec<u32> = sizes.iter().map(|(_, weight)| *weight).collect();
                let rotation = drawn(weighted(&weights)?, *random_seed);
                (sizes.iter().map(|(size, _)| *size).collect(), rotation)
            }
            Self::Range { first, last, step, random_seed } => {
                let sizes = range(*first, *last, *step)?;
                let rotation = Rotation::in_turn(checked_count(sizes.len())?);
                (sizes, drawn(rotation, *random_seed))
            }
        };
        Ok((sizes, rotation))
    }
}

fn checked_count(sizes: usize) -> Result<usize, StreamError> {
    match sizes {
        0 => Err(StreamError::out_of_range("size", "no size", "1 size at least")),
        1..=MAX_SIZES => Ok(sizes),
        given => Err(StreamError::at("size", Problem::TooManySizes { given })),
    }
}

fn weighted(weights: &[u32]) -> Result<Rotation, StreamError> {
    Rotation::weighted(weights).ok_or_else(|| {
        let allowed = format!(
            "1 to {MAX_CHOICES} weights of at least 1, of which the sum, over their greatest common divisor, is at most \
             {MAX_ROTATION}"
        );
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        StreamError::out_of_range(
            "size.weighted",
            format!("{} weights with sum {sum}", weights.len()),
            allowed,
        )
    })
}

fn drawn(rotation: Rotation, random_seed: Option<u64>) -> Rotation {
    match random_seed {
        Some(seed) => rotation.at_random(seed),
        None => rotation,
    }
}

fn range(first: FrameSize, last: FrameSize, step: u32) -> Result<Vec<FrameSize>, StreamError> {
    if step == 0 {
        return Err(StreamError::out_of_range("size.step", step, "1 or more bytes"));
    }
    if last < first {
        let given = format!("[{first}, {last}]");
        return Err(StreamError::out_of_range("size.range", given, "the lower size first"));
    }
    let sizes = (first.bytes()..=last.bytes()).step_by(step as usize);
    Ok(sizes.filter_map(|bytes| FrameSize::new(bytes).ok()).collect())
}

/// Sizes as a table.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SizeTable {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weighted: Option<Vec<(FrameSize, u32)>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    range: Option<(FrameSize, FrameSize)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    random_seed: Option<u64>,
}

impl Serialize for FrameSizeMix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let empty = SizeTable { weighted: None, range: None, step: None, random_seed: None };
        match self {
            Self::Fixed(size) => size.serialize(serializer),
            Self::InTurn(sizes) => sizes.serialize(serializer),
            Self::Imix => serializer.serialize_str("imix"),
            Self::Weighted { sizes, random_seed } => {
                SizeTable { weighted: Some(sizes.clone()), random_seed: *random_seed, ..empty }
                    .serialize(serializer)
            }
            Self::Range { first, last, step, random_seed } => SizeTable {
                range: Some((*first, *last)),
                step: Some(*step),
                random_seed: *random_seed,
                ..empty
            }
            .serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for FrameSizeMix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MixVisitor)
    }
}

struct MixVisitor;

impl<'de> Visitor<'de> for MixVisitor {
    type Value = FrameSizeMix;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a frame size, a list of them, \"imix\", {weighted = [[64, 7], [1518, 1]]} or {range = [64, 1518]}")
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<FrameSizeMix, E> {
        bytes.to_string().parse().map(FrameSizeMix::Fixed).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<FrameSizeMix, E> {
        bytes.to_string().parse().map(FrameSizeMix::Fixed).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<FrameSizeMix, E> {
        match text {
            "imix" => Ok(FrameSizeMix::Imix),
            size => size.parse().map(FrameSizeMix::Fixed).map_err(|_| {
                E::custom(format_args!("\"{size}\" is not a size of frames: give {}", &self as &dyn Expected))
            }),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, sizes: A) -> Result<FrameSizeMix, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(sizes)).map(FrameSizeMix::InTurn)
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<FrameSizeMix, A::Error> {
        let SizeTable { weighted, range, step, random_seed } =
            SizeTable::deserialize(MapAccessDeserializer::new(table))?;
        match (weighted, range, step) {
            (Some(sizes), None, None) => Ok(FrameSizeMix::Weighted { sizes, random_seed }),
            (None, Some((first, last)), step) => {
                Ok(FrameSizeMix::Range { first, last, step: step.unwrap_or(1), random_seed })
            }
            _ => Err(A::Error::custom("give weighted, or range with or without step")),
        }
    }
}
