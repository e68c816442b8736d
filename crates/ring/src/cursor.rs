//! Arithmetic on ring indexes: all modulo the number of slots, which need not be a power of two.

/// Number of slots from `from` up to, but not including, `to`. Both must be below `slots`.
#[inline]
#[must_use]
pub fn distance(from: u32, to: u32, slots: u32) -> u32 {
    if to >= from { to - from } else { to + slots - from }
}

/// Index `count` slots after `index`. `index` is below `slots`, and `count` at most `slots`.
#[inline]
#[must_use]
pub fn advance(index: u32, count: u32, slots: u32) -> u32 {
    let moved = index + count;
    if moved >= slots { moved - slots } else { moved }
}

/// Index of the slot before `index`.
#[inline]
#[must_use]
pub fn previous(index: u32, slots: u32) -> u32 {
    if index == 0 { slots - 1 } else { index - 1 }
}

/// Whether `index` lies in the cyclic interval `[start, end]`.
#[inline]
#[must_use]
pub fn within(start: u32, index: u32, end: u32, slots: u32) -> bool {
    index < slots && distance(start, index, slots) <= distance(start, end, slots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn advancing_by_the_distance_arrives(slots in 2u32..5000, a: u32, b: u32) {
            let (from, to) = (a % slots, b % slots);
            prop_assert_eq!(advance(from, distance(from, to, slots), slots), to);
        }

        #[test]
        fn distance_there_and_back_is_a_whole_turn(slots in 2u32..5000, a: u32, b: u32) {
            let (from, to) = (a % slots, b % slots);
            let sum = distance(from, to, slots) + distance(to, from, slots);
            prop_assert_eq!(sum, if from == to { 0 } else { slots });
        }

        #[test]
        fn previous_undoes_one_step(slots in 2u32..5000, a: u32) {
            prop_assert_eq!(previous(advance(a % slots, 1, slots), slots), a % slots);
        }

        #[test]
        fn within_agrees_with_walking(slots in 2u32..300, a: u32, b: u32, index in 0u32..400) {
            let (start, end) = (a % slots, b % slots);
            let mut walk = start;
            let mut found = walk == index;
            while walk != end {
                walk = advance(walk, 1, slots);
                found |= walk == index;
            }
            prop_assert_eq!(within(start, index, end, slots), found);
        }
    }
}
