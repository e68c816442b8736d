//! Weighted selection of the next element, such as the size of a frame or the stream of a load.

use crate::random::{SplitMix64, below};

/// Greatest number of steps until a rotation repeats. It is the sum of the weights divided by their greatest common
/// divisor.
pub const MAX_ROTATION: usize = 65536;
/// Greatest number of weighted elements in one rotation.
pub const MAX_CHOICES: usize = 4096;

/// Indexes in an order that repeats, or drawn from that order at random.
#[derive(Debug, Clone)]
pub(crate) struct Rotation {
    order: Box<[u16]>,
    position: usize,
    draw: Option<Draw>,
}

#[derive(Debug, Clone, Copy)]
struct Draw {
    seed: u64,
    position: u64,
}

impl Rotation {
    /// Selects each of `choices` elements once, in turn. `choices` is at most [`MAX_ROTATION`].
    pub(crate) fn in_turn(choices: usize) -> Self {
        Self::of((0..choices).map(|choice| choice as u16).collect())
    }

    /// Selects elements in proportion to their weights, spread as evenly as possible. After any number of steps, the
    /// count of each element differs from its exact share by less than one. The first element with the greatest weight
    /// comes first.
    ///
    /// `None` if there are no weights or more than [`MAX_CHOICES`], if a weight is 0, or if the order would be longer
    /// than [`MAX_ROTATION`].
    pub(crate) fn weighted(weights: &[u32]) -> Option<Self> {
        let divisor = weights.iter().copied().fold(0, greatest_common_divisor);
        if weights.contains(&0) || divisor == 0 || weights.len() > MAX_CHOICES {
            return None;
        }
        let weights: Vec<u64> = weights.iter().map(|weight| u64::from(weight / divisor)).collect();
        let steps: u64 = weights.iter().sum();
        (steps <= MAX_ROTATION as u64).then(|| Self::of(spread(&weights, steps)))
    }

    fn of(order: Vec<u16>) -> Self {
        Self { order: order.into_boxed_slice(), position: 0, draw: None }
    }

    /// Selects elements at random with the same shares. Each step depends only on `seed` and the step's number.
    pub(crate) fn at_random(mut self, seed: u64) -> Self {
        self.draw = Some(Draw { seed, position: 0 });
        self.draw_position();
        self
    }

    /// Starts anew and returns the first element. Random choices differ with `sender`, so that several senders do not
    /// draw the same elements.
    pub(crate) fn restart(&mut self, sender: u32) -> usize {
        self.position = 0;
        if let Some(draw) = &mut self.draw {
            *draw = Draw { seed: SplitMix64::at(draw.seed, sender.into()), position: 0 };
            self.draw_position();
        }
        self.current()
    }

    /// Order of one round.
    pub(crate) fn order(&self) -> &[u16] {
        &self.order
    }

    #[inline]
    pub(crate) fn current(&self) -> usize {
        self.order.get(self.position).copied().unwrap_or(0).into()
    }

    /// Moves to the next element and returns it.
    #[inline]
    pub(crate) fn advance(&mut self) -> usize {
        match &mut self.draw {
            None => {
                let following = self.position + 1;
                self.position = if following >= self.order.len() { 0 } else { following };
            }
            Some(draw) => {
                draw.position = draw.position.wrapping_add(1);
                self.draw_position();
            }
        }
        self.current()
    }

    #[inline]
    fn draw_position(&mut self) {
        if let Some(Draw { seed, position }) = self.draw {
            self.position = below(SplitMix64::at(seed, position), self.order.len() as u64) as usize;
        }
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Order by Tijdeman's rule ("The chairman assignment problem", 1980). Among the elements that would otherwise fall too
/// far behind their share, the one with the earliest deadline is next. The rule keeps every element within less than 1
/// of its share at every step.
fn spread(weights: &[u64], steps: u64) -> Vec<u16> {
    if weights.len() == 1 {
        return vec![0];
    }
    // All compared numbers are multiplied by 2k - 2, so that they are whole.
    let scale = 2 * weights.len() as u64 - 2;
    let mut made = vec![0u64; weights.len()];
    (1..=steps)
        .map(|step| {
            let due = weights
                .iter()
                .zip(&made)
                .enumerate()
                .filter(|(_, (weight, made))| step * *weight * scale >= (**made * scale + 1) * steps);
            // The deadline of an element is the last step at which its share is less than 1 (minus 1 / scale) ahead of
            // its count.
            let soonest = due.min_by(|(_, (weight, made)), (_, (other_weight, other_made))| {
                ((*made * scale + scale - 1) * *other_weight)
                    .cmp(&((*other_made * scale + scale - 1) * *weight))
            });
            let choice = soonest.map_or(0, |(choice, _)| choice);
            made[choice] += 1;
            choice as u16
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round(weights: &[u32]) -> Vec<u16> {
        Rotation::weighted(weights).unwrap().order().to_vec()
    }

    #[test]
    fn equal_weights_take_turns_and_common_divisors_do_not_lengthen_the_round() {
        assert_eq!(round(&[5, 5, 5]), [0, 1, 2]);
        assert_eq!(round(&[9]), [0]);
        assert_eq!(round(&[7, 4, 1]).len(), 12);
        assert_eq!(round(&[700, 400, 100]), round(&[7, 4, 1]));
    }

    #[test]
    fn weights_that_cannot_be_rotated_are_refused() {
        assert!(Rotation::weighted(&[]).is_none());
        assert!(Rotation::weighted(&[1, 0]).is_none());
        assert!(Rotation::weighted(&[65535, 2]).is_none());
        assert!(Rotation::weighted(&[u32::MAX, u32::MAX - 1]).is_none());
        assert!(Rotation::weighted(&[65535, 1]).is_some());
    }

    proptest! {
        #[test]
        fn every_choice_stays_within_one_step_of_its_share(weights in prop::collection::vec(1..60u32, 1..9)) {
            let mut rotation = Rotation::weighted(&weights).unwrap();
            let sum: u32 = weights.iter().sum();
            let mut made = vec![0i64; weights.len()];
            for step in 1..=2 * i64::from(sum) {
                made[rotation.current()] += 1;
                rotation.advance();
                for (weight, made) in weights.iter().zip(&made) {
                    let off = made * i64::from(sum) - step * i64::from(*weight);
                    prop_assert!(off.abs() < i64::from(sum), "after {step} steps of {weights:?}: {made}");
                }
            }
        }

        #[test]
        fn random_rotations_keep_the_shares_and_are_repeatable(seed: u64) {
            let draw = || {
                let mut rotation = Rotation::weighted(&[7, 4, 1]).unwrap().at_random(seed);
                (0..12_000).map(|_| { let choice = rotation.current(); rotation.advance(); choice }).collect::<Vec<_>>()
            };
            let drawn = draw();
            prop_assert_eq!(&drawn, &draw());
            for (choice, share) in [(0, 7000i32), (1, 4000), (2, 1000)] {
                let made = drawn.iter().filter(|drawn| **drawn == choice).count() as i32;
                // The bound is more than six standard deviations.
                prop_assert!((made - share).abs() < 400, "{choice}: {made}");
            }
        }
    }
}
