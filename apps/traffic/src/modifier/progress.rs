//! Values of a field from frame to frame.

use crate::random::{SplitMix64, below};

/// Values of a field, and the position of the next frame's value.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    values: Values,
    /// Number of values until they repeat, 1 to [`MAX_COUNT`].
    count: u64,
    /// Number of consecutive frames with the same value.
    every: u64,
    /// Number of frames before the next that already had its value.
    phase: u64,
    /// Index of the next frame's value.
    position: u64,
    /// Increments of `phase` (less than `every`) and of `position` (less than `count`) for each frame.
    phase_step: u64,
    position_step: u64,
}

/// Greatest number of values until they repeat. Two positions can be added without overflow.
pub(crate) const MAX_COUNT: u64 = 1 << 63;

/// Values of a field, by position.
#[derive(Debug, Clone)]
pub(crate) enum Values {
    /// Value `start + (position >> shift & mask) * step`.
    Linear { start: u64, step: u64, shift: u32, mask: u64 },
    /// Value `(start + position * step) & highest`, where `highest` is the field's highest value.
    Wrapped { start: u64, step: u64, highest: u64 },
    /// Value `low` plus a random number below `span`; a `span` of 0 means 2^64.
    Random { seed: u64, low: u64, span: u64 },
    /// Value from a list.
    List(Box<[u64]>),
}

impl Progress {
    /// Makes a sequence of `count` values, 1 to [`MAX_COUNT`], each for `every` frames, at least 1.
    pub(crate) fn new(values: Values, count: u64, every: u64) -> Self {
        let mut progress =
            Self { values, count, every, phase: 0, position: 0, phase_step: 0, position_step: 0 };
        progress.start(0, 1);
        progress
    }

    /// Moves to frame number `first`. Each further frame is `stride` later.
    pub(crate) fn start(&mut self, first: u64, stride: u64) {
        let position = |frames| frames / self.every % self.count;
        (self.position, self.position_step) = (position(first), position(stride));
        (self.phase, self.phase_step) = (first % self.every, stride % self.every);
    }

    /// The next frame's value.
    #[inline]
    pub(crate) fn current(&self) -> u64 {
        match &self.values {
            Values::Linear { start, step, shift, mask } => {
                start.wrapping_add((self.position >> shift & mask).wrapping_mul(*step))
            }
            Values::Wrapped { start, step, highest } => {
                start.wrapping_add(self.position.wrapping_mul(*step)) & highest
            }
            Values::Random { seed, low, span } => {
                let drawn = SplitMix64::at(*seed, self.position);
                low.wrapping_add(if *span == 0 { drawn } else { below(drawn, *span) })
            }
            Values::List(values) => values.get(self.position as usize).copied().unwrap_or(0),
        }
    }

    /// Moves to the next frame. Counts up, because a division would be slower.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.step_by(self.position_step);
        if self.every > 1 {
            self.phase += self.phase_step;
            if self.phase >= self.every {
                self.phase -= self.every;
                self.step_by(1);
            }
        }
    }

    #[inline]
    fn step_by(&mut self, positions: u64) {
        let following = self.position + positions;
        self.position = if following >= self.count { following - self.count } else { following };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn linear(start: u64, step: u64) -> Values {
        Values::Linear { start, step, shift: 0, mask: u64::MAX }
    }

    fn first(progress: &mut Progress, frames: usize) -> Vec<u64> {
        (0..frames)
            .map(|_| {
                let value = progress.current();
                progress.advance();
                value
            })
            .collect()
    }

    #[test]
    fn values_step_repeat_and_stay() {
        assert_eq!(first(&mut Progress::new(linear(10, 2), 3, 1), 7), [10, 12, 14, 10, 12, 14, 10]);
        assert_eq!(first(&mut Progress::new(linear(10, 2u64.wrapping_neg()), 3, 1), 4), [10, 8, 6, 10]);
        assert_eq!(first(&mut Progress::new(linear(0, 1), 2, 3), 8), [0, 0, 0, 1, 1, 1, 0, 0]);
        let list = Values::List(Box::new([7, 5, 9]));
        assert_eq!(first(&mut Progress::new(list, 3, 1), 4), [7, 5, 9, 7]);
        let wrapped = |step| Values::Wrapped { start: 14, step, highest: 15 };
        assert_eq!(first(&mut Progress::new(wrapped(1), 4, 1), 5), [14, 15, 0, 1, 14]);
        assert_eq!(first(&mut Progress::new(wrapped(7u64.wrapping_neg()), 4, 1), 5), [14, 7, 0, 9, 14]);
    }

    fn values() -> impl Strategy<Value = (Values, u64)> {
        prop_oneof![
            (any::<u64>(), any::<u64>(), 1..40u64, 0..3u32, any::<u64>()).prop_map(
                |(start, step, count, shift, mask)| (Values::Linear { start, step, shift, mask }, count)
            ),
            (any::<u64>(), any::<u64>(), 1..40u64)
                .prop_map(|(start, step, count)| { (Values::Wrapped { start, step, highest: 0xff }, count) }),
            (any::<u64>(), any::<u64>(), any::<u64>())
                .prop_map(|(seed, low, span)| (Values::Random { seed, low, span }, MAX_COUNT)),
            prop::collection::vec(any::<u64>(), 1..40).prop_map(|list| {
                let count = list.len() as u64;
                (Values::List(list.into_boxed_slice()), count)
            }),
        ]
    }

    proptest! {
        #[test]
        fn several_senders_make_the_frames_of_one(
            (values, count) in values(), every in 1..20u64, senders in 1..9u64, from in 0..1000u64,
        ) {
            let mut one = Progress::new(values, count, every);
            one.start(from, 1);
            let expected = first(&mut one.clone(), 100 * senders as usize);
            for sender in 0..senders {
                let mut share = one.clone();
                share.start(from + sender, senders);
                let made = first(&mut share, 100);
                let own = expected.iter().copied().skip(sender as usize).step_by(senders as usize);
                prop_assert!(made.into_iter().eq(own));
            }
        }

        #[test]
        fn any_frame_can_be_made_directly((values, count) in values(), every in 1..20u64, frame in 0..500u64) {
            let mut walked = Progress::new(values, count, every);
            let mut jumped = walked.clone();
            first(&mut walked, frame as usize);
            jumped.start(frame, 1);
            prop_assert_eq!(walked.current(), jumped.current());
        }
    }
}
