//! Plan of an impairment: the choice of frames, and what is done to them.

use std::ops::Range;

/// Longest delay and patience, ns: an hour.
const MAX_DELAY_NS: u64 = 3_600_000_000_000;
/// Maximum number of frames that can be held.
const MAX_HOLD_FRAMES: u32 = 1 << 18;
/// Largest distance from an end of a frame at which a range can end, bytes.
const MAX_RANGE_BYTES: u32 = 1 << 17;

/// Choice of frames by their number: from 0, in the order in which they come to their queue.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum FramePattern {
    /// No frame.
    #[default]
    Never,
    /// One of `n` frames: those whose number modulo `n` is `offset`.
    Every {
        /// Distance between two chosen frames, from 1.
        n: u64,
        /// Number of the first chosen frame, below `n`.
        offset: u64,
    },
    /// Each frame with a given probability, independent of all others: another queue or another stage of the plan draws
    /// other numbers from the same seed.
    Random {
        /// Probability, from 0 to 1.
        probability: f64,
        /// Seed of the choice: equal seeds choose equal frames.
        seed: u64,
    },
    /// Frames with these numbers, in any order.
    At(Vec<u64>),
}

/// Time for which frames are held before they may leave, ns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Delay {
    /// No delay.
    #[default]
    None,
    /// Equal delay for all frames.
    Fixed(u64),
    /// Entry number `k` modulo the length of the list, for frame `k`.
    Cycle(Vec<u64>),
    /// Time between two bounds, both included, all equally likely.
    Uniform {
        /// Shortest time, ns.
        low: u64,
        /// Longest time, ns.
        high: u64,
        /// Seed of the delays: equal seeds give equal delays.
        seed: u64,
    },
}

/// Frames that step aside and let later frames pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Reorder {
    /// Choice of these frames.
    pub frames: FramePattern,
    /// Number of later frames that have to come before such a frame leaves, from 1. Frames dropped by the plan do not
    /// count.
    pub by: u32,
    /// Time after which such a frame leaves even if fewer frames have come, ns, at least 1; `None`: it waits for ever.
    pub patience_ns: Option<u64>,
}

impl Default for Reorder {
    fn default() -> Self {
        Self { frames: FramePattern::Never, by: 1, patience_ns: None }
    }
}

/// Range of bytes in a frame (without FCS), for frames of any length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Within {
    /// Range counted from the first byte: `0..14` is the Ethernet header.
    Start(Range<u32>),
    /// Range counted back from the last byte: `0..16` are the last 16 bytes.
    End(Range<u32>),
}

/// Frames in which one bit is flipped.
#[derive(Debug, Clone, PartialEq)]
pub struct Corruption {
    /// Choice of these frames. A frame without a byte in the range passes unchanged.
    pub frames: FramePattern,
    /// Range in which the bit lies.
    pub within: Within,
    /// Seed for the choice of the bit, which differs for each frame.
    pub seed: u64,
}

impl Default for Corruption {
    fn default() -> Self {
        Self { frames: FramePattern::Never, within: Within::Start(0..MAX_RANGE_BYTES), seed: 0 }
    }
}

/// Impairments of the frames delivered to a port; none by default. The stages and their order: [`super`].
#[derive(Debug, Clone, PartialEq)]
pub struct ImpairmentPlan {
    /// Frames that are lost.
    pub drop: FramePattern,
    /// Frames that are delivered twice.
    pub duplicate: FramePattern,
    /// Frames that let later frames pass.
    pub reorder: Reorder,
    /// Frames that are damaged.
    pub corrupt: Corruption,
    /// Time for which frames are held.
    pub delay: Delay,
    /// Number of frames of up to 2048 bytes that each queue can hold, 1 to 262144; longer frames count as several. The
    /// queue needs room for all frames that come during the delay. Memory is taken from the system as it is used.
    pub hold_frames: u32,
}

impl Default for ImpairmentPlan {
    fn default() -> Self {
        Self {
            drop: FramePattern::Never,
            duplicate: FramePattern::Never,
            reorder: Reorder::default(),
            corrupt: Corruption::default(),
            delay: Delay::None,
            hold_frames: 16384,
        }
    }
}

/// Decision of a plan for one frame.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Impairments {
    /// Whether the frame is lost; no other impairment is then applied.
    pub drop: bool,
    /// Whether the frame is delivered twice.
    pub duplicate: bool,
    /// Whether the frame is taken aside.
    pub reorder: bool,
    /// Whether a bit is flipped, if the frame has a byte in the range.
    pub corrupt: bool,
    /// Delay, ns.
    pub delay_ns: u64,
}

/// A value of a plan that is out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("impairment: {field} is {given}: {allowed}")]
pub struct ImpairmentPlanError {
    /// Name of the value.
    pub field: String,
    /// The given value.
    pub given: String,
    /// The allowed values.
    pub allowed: String,
}

/// Stage that draws a number: one seed gives each stage its own sequence.
#[derive(Clone, Copy)]
enum Stage {
    Drop = 1,
    Duplicate,
    Reorder,
    Corrupt,
    Bit,
    Delay,
}

/// Random number for `seed`, `stage`, queue and frame number: uniform, and the same for the same arguments.
fn draw(seed: u64, stage: Stage, queue: u16, number: u64) -> u64 {
    let key = scramble(seed ^ scramble(u64::from(queue) << 8 | stage as u64));
    scramble(key.wrapping_add(number))
}

/// A step of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
fn scramble(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Reduces a uniform number to a number below `bound`.
fn below(bound: u128, uniform: u64) -> u64 {
    ((u128::from(uniform) * bound) >> 64) as u64
}

fn bad(field: &str, given: impl ToString, allowed: impl ToString) -> ImpairmentPlanError {
    ImpairmentPlanError { field: field.to_owned(), given: given.to_string(), allowed: allowed.to_string() }
}

impl FramePattern {
    #[inline]
    fn hits(&self, stage: Stage, queue: u16, number: u64) -> bool {
        match self {
            Self::Never => false,
            Self::Every { n, offset } => number % n == *offset,
            Self::Random { probability, seed } => {
                // The limit is 2^64 times the probability. The conversion of 1.0 saturates, so 1.0 is checked first.
                let limit = (probability * 18_446_744_073_709_551_616.0) as u64;
                *probability >= 1.0 || draw(*seed, stage, queue, number) < limit
            }
            Self::At(numbers) => numbers.binary_search(&number).is_ok(),
        }
    }

    /// Checks the values, and sorts the lists that are searched.
    fn check(&mut self, name: &str) -> Result<(), ImpairmentPlanError> {
        match self {
            Self::Never => {}
            Self::Every { n: 0, .. } => return Err(bad(&format!("{name}.n"), 0, "choose from 1")),
            Self::Every { n, offset } if *offset >= *n => {
                let allowed = format!("choose from 0 to {}, since n is {n}", *n - 1);
                return Err(bad(&format!("{name}.offset"), offset, allowed));
            }
            Self::Every { .. } => {}
            Self::Random { probability, .. } if !(0.0..=1.0).contains(probability) => {
                return Err(bad(&format!("{name}.probability"), probability, "choose from 0 to 1"));
            }
            Self::Random { .. } => {}
            Self::At(numbers) => numbers.sort_unstable(),
        }
        Ok(())
    }
}

impl Delay {
    #[inline]
    fn of(&self, queue: u16, number: u64) -> u64 {
        match self {
            Self::None => 0,
            Self::Fixed(ns) => *ns,
            Self::Cycle(list) => {
                let entry = number.checked_rem(list.len() as u64).and_then(|entry| list.get(entry as usize));
                entry.copied().unwrap_or(0)
            }
            Self::Uniform { low, high, seed } => {
                low + below(u128::from(high - low) + 1, draw(*seed, Stage::Delay, queue, number))
            }
        }
    }

    fn check(&self) -> Result<(), ImpairmentPlanError> {
        let limit = |field: &str, ns: u64| match ns {
            0..=MAX_DELAY_NS => Ok(()),
            _ => Err(bad(field, format!("{ns} ns"), format!("choose from 0 to {MAX_DELAY_NS} ns, an hour"))),
        };
        match self {
            Self::None => Ok(()),
            Self::Fixed(ns) => limit("delay", *ns),
            Self::Cycle(list) if list.is_empty() => Err(bad("delay", "an empty list", "give at least one")),
            Self::Cycle(list) => list.iter().try_for_each(|&ns| limit("delay", ns)),
            Self::Uniform { low, high, .. } if low > high => {
                let allowed = format!("choose at most the longest delay, {high} ns");
                Err(bad("delay.low", format!("{low} ns"), allowed))
            }
            Self::Uniform { high, .. } => limit("delay.high", *high),
        }
    }
}

impl Within {
    fn range(&self) -> &Range<u32> {
        match self {
            Self::Start(range) | Self::End(range) => range,
        }
    }

    /// Range of these bytes from the start of a frame of `frame_bytes` bytes.
    fn of(&self, frame_bytes: usize) -> Range<usize> {
        let clip = |end: u32| (end as usize).min(frame_bytes);
        match self {
            Self::Start(range) => clip(range.start)..clip(range.end),
            Self::End(range) => frame_bytes - clip(range.end)..frame_bytes - clip(range.start),
        }
    }
}

impl ImpairmentPlan {
    /// Returns the plan if all its values are in range.
    pub(super) fn checked(mut self) -> Result<Self, ImpairmentPlanError> {
        self.drop.check("drop")?;
        self.duplicate.check("duplicate")?;
        self.reorder.frames.check("reorder")?;
        self.corrupt.frames.check("corrupt")?;
        self.delay.check()?;
        if self.reorder.by == 0 {
            return Err(bad("reorder.by", 0, "choose from 1"));
        }
        if let Some(ns) = self.reorder.patience_ns
            && !(1..=MAX_DELAY_NS).contains(&ns)
        {
            let allowed = format!("choose from 1 to {MAX_DELAY_NS} ns, an hour, or none");
            return Err(bad("reorder.patience", format!("{ns} ns"), allowed));
        }
        let range = self.corrupt.within.range();
        if range.is_empty() || range.end > MAX_RANGE_BYTES {
            let allowed = format!("give at least one byte, none of them beyond {MAX_RANGE_BYTES}");
            return Err(bad("corrupt.within", format!("bytes {} to {}", range.start, range.end), allowed));
        }
        if !(1..=MAX_HOLD_FRAMES).contains(&self.hold_frames) {
            let allowed = format!("choose from 1 to {MAX_HOLD_FRAMES}");
            return Err(bad("hold_frames", self.hold_frames, allowed));
        }
        Ok(self)
    }

    #[inline]
    pub(super) fn impairments(&self, queue: u16, number: u64) -> Impairments {
        if self.drop.hits(Stage::Drop, queue, number) {
            return Impairments { drop: true, ..Impairments::default() };
        }
        Impairments {
            drop: false,
            duplicate: self.duplicate.hits(Stage::Duplicate, queue, number),
            reorder: self.reorder.frames.hits(Stage::Reorder, queue, number),
            corrupt: self.corrupt.frames.hits(Stage::Corrupt, queue, number),
            delay_ns: self.delay.of(queue, number),
        }
    }

    /// Bit of frame `number` that is flipped if the frame is corrupted: eight times the byte's number, from the frame's
    /// start, plus the bit's number, from the lowest bit. `None` if a frame of `frame_bytes` bytes has no byte in the
    /// range.
    pub(super) fn bit(&self, queue: u16, number: u64, frame_bytes: usize) -> Option<usize> {
        let bytes = self.corrupt.within.of(frame_bytes);
        let bits = 8 * bytes.len();
        let uniform = draw(self.corrupt.seed, Stage::Bit, queue, number);
        (bits > 0).then(|| 8 * bytes.start + below(bits as u128, uniform) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(pattern: FramePattern, stage: Stage, queue: u16, frames: u64) -> Vec<u64> {
        let mut pattern = pattern;
        pattern.check("x").unwrap();
        (0..frames).filter(|&number| pattern.hits(stage, queue, number)).collect()
    }

    #[test]
    fn patterns_hit_exactly_the_frames_that_they_name() {
        assert!(hits(FramePattern::Never, Stage::Drop, 0, 100).is_empty());
        assert_eq!(hits(FramePattern::Every { n: 4, offset: 3 }, Stage::Drop, 0, 13), [3, 7, 11]);
        assert_eq!(hits(FramePattern::Every { n: 1, offset: 0 }, Stage::Drop, 0, 3), [0, 1, 2]);
        assert_eq!(hits(FramePattern::At(vec![9, 2, 2, 5]), Stage::Drop, 0, 9), [2, 5]);
        assert_eq!(hits(FramePattern::Random { probability: 1.0, seed: 1 }, Stage::Drop, 0, 3), [0, 1, 2]);
        assert!(hits(FramePattern::Random { probability: 0.0, seed: 1 }, Stage::Drop, 0, 1000).is_empty());
    }

    #[test]
    fn random_patterns_hit_their_share_and_are_independent() {
        let frames = 1_000_000;
        let random = |seed| FramePattern::Random { probability: 0.01, seed };
        let of = |seed, stage, queue| hits(random(seed), stage, queue, frames);
        let one = of(1, Stage::Drop, 0);
        assert_eq!(one, of(1, Stage::Drop, 0));
        // Seeds, stages and queues are independent: each chooses 10 000 frames on average (standard deviation 99.5),
        // and any two have 100 frames in common (standard deviation 10). The seeds are fixed, so this always passes or
        // always fails.
        for other in [of(2, Stage::Drop, 0), of(1, Stage::Duplicate, 0), of(1, Stage::Drop, 1)] {
            assert!((9600..10400).contains(&other.len()), "{}", other.len());
            let both = other.iter().filter(|number| one.binary_search(number).is_ok()).count();
            assert!((60..140).contains(&both), "{both}");
        }
        // Decisions on neighbouring frames are independent, too.
        let pairs = one.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!((60..140).contains(&pairs), "{pairs}");
    }

    #[test]
    fn uniform_delays_fill_their_range_evenly() {
        let delay = Delay::Uniform { low: 100, high: 109, seed: 7 };
        let mut counts = [0; 10];
        for number in 0..100_000 {
            counts[delay.of(0, number) as usize - 100] += 1;
        }
        // The standard deviation is 95.
        assert!(counts.iter().all(|count| (9600..10400).contains(count)), "{counts:?}");
        assert_eq!(Delay::Uniform { low: 5, high: 5, seed: 0 }.of(0, 3), 5);
    }

    #[test]
    fn flipped_bits_lie_within_the_range_and_reach_all_of_it() {
        let plan = |within| ImpairmentPlan {
            corrupt: Corruption { frames: FramePattern::Never, within, seed: 3 },
            ..ImpairmentPlan::default()
        };
        let bits = |within, len| {
            let plan = plan(within);
            let mut bits: Vec<usize> = (0..5000).filter_map(|number| plan.bit(0, number, len)).collect();
            bits.sort_unstable();
            bits.dedup();
            bits
        };
        assert_eq!(bits(Within::Start(2..4), 60), (16..32).collect::<Vec<_>>());
        assert_eq!(bits(Within::End(0..2), 60), (8 * 58..8 * 60).collect::<Vec<_>>());
        assert_eq!(bits(Within::End(1..100), 4), (0..24).collect::<Vec<_>>());
        assert!(bits(Within::Start(60..64), 60).is_empty());
        assert!(bits(Within::End(60..64), 60).is_empty());
    }

    #[test]
    fn values_out_of_range_are_named_with_the_allowed_range() {
        let base = ImpairmentPlan::default;
        let cases = [
            (
                ImpairmentPlan { drop: FramePattern::Every { n: 0, offset: 0 }, ..base() },
                "impairment: drop.n is 0: choose from 1",
            ),
            (
                ImpairmentPlan { duplicate: FramePattern::Every { n: 3, offset: 3 }, ..base() },
                "impairment: duplicate.offset is 3: choose from 0 to 2, since n is 3",
            ),
            (
                ImpairmentPlan { drop: FramePattern::Random { probability: f64::NAN, seed: 0 }, ..base() },
                "impairment: drop.probability is NaN: choose from 0 to 1",
            ),
            (
                ImpairmentPlan { reorder: Reorder { by: 0, ..Reorder::default() }, ..base() },
                "impairment: reorder.by is 0: choose from 1",
            ),
            (
                ImpairmentPlan { reorder: Reorder { patience_ns: Some(0), ..Reorder::default() }, ..base() },
                "impairment: reorder.patience is 0 ns: choose from 1 to 3600000000000 ns, an hour, or none",
            ),
            (
                ImpairmentPlan {
                    corrupt: Corruption { within: Within::End(4..4), ..Corruption::default() },
                    ..base()
                },
                "impairment: corrupt.within is bytes 4 to 4: give at least one byte, none of them beyond 131072",
            ),
            (
                ImpairmentPlan { delay: Delay::Uniform { low: 2, high: 1, seed: 0 }, ..base() },
                "impairment: delay.low is 2 ns: choose at most the longest delay, 1 ns",
            ),
            (
                ImpairmentPlan { delay: Delay::Fixed(u64::MAX), ..base() },
                "impairment: delay is 18446744073709551615 ns: choose from 0 to 3600000000000 ns, an hour",
            ),
            (
                ImpairmentPlan { delay: Delay::Cycle(Vec::new()), ..base() },
                "impairment: delay is an empty list: give at least one",
            ),
            (
                ImpairmentPlan { hold_frames: 0, ..base() },
                "impairment: hold_frames is 0: choose from 1 to 262144",
            ),
        ];
        for (plan, message) in cases {
            assert_eq!(plan.checked().unwrap_err().to_string(), message);
        }
    }
}
