use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn counts(mut tracker: SequenceTracker, numbers: impl IntoIterator<Item = u64>) -> SequenceCounts {
    let mut told = SequenceCounts::default();
    for number in numbers {
        let expected = tracker.expected();
        match tracker.record(number) {
            ArrivalOrder::InOrder { .. } if told.received == 0 => {}
            ArrivalOrder::InOrder { skipped } => assert_eq!(number, expected + skipped),
            ArrivalOrder::Reordered => told.reordered += 1,
            ArrivalOrder::Duplicate => told.duplicates += 1,
            ArrivalOrder::Stale => told.stale += 1,
        }
        told.received += 1;
    }
    let counts = tracker.counts();
    assert_eq!(SequenceCounts { lost: counts.lost, ..told }, counts);
    counts
}

#[test]
fn numbers_in_order_lose_nothing() {
    let expected = SequenceCounts { received: 200_000, ..SequenceCounts::default() };
    assert_eq!(counts(SequenceTracker::new(), 1000..201_000), expected);
}

#[test]
fn gaps_are_lost_unless_their_frames_arrive_late() {
    let after_gap = SequenceCounts { received: 2, lost: 9, ..SequenceCounts::default() };
    assert_eq!(counts(SequenceTracker::new(), [0, 10]), after_gap);
    let after_late = SequenceCounts { received: 4, lost: 7, reordered: 2, ..SequenceCounts::default() };
    assert_eq!(counts(SequenceTracker::new(), [0, 10, 3, 2]), after_late);
}

#[test]
fn repeated_numbers_are_duplicates() {
    let expected = SequenceCounts { received: 6, duplicates: 3, reordered: 1, ..SequenceCounts::default() };
    assert_eq!(counts(SequenceTracker::new(), [5, 7, 6, 6, 5, 7]), expected);
}

#[test]
fn with_a_known_start_missing_first_numbers_are_lost() {
    let expected = SequenceCounts { received: 1, lost: 100, ..SequenceCounts::default() };
    assert_eq!(counts(SequenceTracker::starting_at(0), [100]), expected);
    let below = SequenceCounts { received: 2, lost: 1, ..SequenceCounts::default() };
    assert_eq!(counts(SequenceTracker::starting_at(100), [90, 92]), below);
}

#[test]
fn a_late_number_is_reordered_within_the_window_and_stale_below_it() {
    // The highest number is the last of its block, where the window is longest, then the first of its block, where it
    // is shortest.
    for (highest, reaches) in
        [(BLOCK_FRAMES * 5000 - 1, BLOCK_FRAMES * 1024 - 1), (BLOCK_FRAMES * 5000, WINDOW_FRAMES)]
    {
        let lost_before = highest - 1;
        let within =
            SequenceCounts { received: 3, lost: lost_before - 1, reordered: 1, ..SequenceCounts::default() };
        assert_eq!(counts(SequenceTracker::new(), [0, highest, highest - reaches]), within);
        let below = SequenceCounts { received: 3, lost: lost_before, stale: 1, ..SequenceCounts::default() };
        assert_eq!(counts(SequenceTracker::new(), [0, highest, highest - reaches - 1]), below);
    }
}

#[test]
fn a_jump_over_the_window_forgets_earlier_numbers() {
    // Both jumps end so that the window's bit of number 0 belongs to a number that has not arrived.
    for blocks in [1024, 2048] {
        let distance = blocks * BLOCK_FRAMES;
        let expected =
            SequenceCounts { received: 3, lost: distance + 2, reordered: 1, ..SequenceCounts::default() };
        assert_eq!(counts(SequenceTracker::new(), [0, distance + 4, distance]), expected, "{blocks} blocks");
    }
}

#[test]
fn first_and_last_numbers_are_counted_like_others() {
    let expected =
        SequenceCounts { received: 3, lost: u64::MAX - 2, reordered: 1, ..SequenceCounts::default() };
    assert_eq!(counts(SequenceTracker::new(), [0, u64::MAX, u64::MAX - 1]), expected);
}

/// The definitions of the module, word by word.
fn model(first: Option<u64>, numbers: &[u64]) -> SequenceCounts {
    let mut came = BTreeSet::new();
    let mut expected = SequenceCounts { received: numbers.len() as u64, ..SequenceCounts::default() };
    for &number in numbers {
        let highest = came.last().copied();
        match highest {
            Some(highest) if number / 64 + 1024 <= highest / 64 => expected.stale += 1,
            _ if !came.insert(number) => expected.duplicates += 1,
            Some(highest) if number < highest => expected.reordered += 1,
            _ => {}
        }
    }
    if let (Some(lowest), Some(highest)) = (came.first(), came.last()) {
        let lowest = first.map_or(*lowest, |first| first.min(*lowest));
        expected.lost = highest - lowest + 1 - came.len() as u64;
    }
    expected
}

/// Numbers that mostly rise, by small and large steps, and sometimes fall.
fn numbers() -> impl Strategy<Value = Vec<u64>> {
    let step = prop_oneof![
        20 => Just(1i64),
        3 => 2..200i64,
        3 => -200..=0i64,
        1 => 60_000..70_000i64,
        1 => -70_000..-60_000i64,
        1 => -70_000..200_000i64,
    ];
    (0..300_000u64, prop::collection::vec(step, 1..400)).prop_map(|(start, steps)| {
        let mut number = start;
        steps
            .into_iter()
            .map(|step| {
                number = number.saturating_add_signed(step);
                number
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn the_tracker_counts_as_defined(numbers in numbers(), first in prop::option::of(0..300_000u64)) {
        let tracker = first.map_or_else(SequenceTracker::new, SequenceTracker::starting_at);
        prop_assert_eq!(counts(tracker, numbers.iter().copied()), model(first, &numbers));
    }

    #[test]
    fn numbers_shuffled_within_the_window_are_not_lost(swaps in prop::collection::vec((0..3000usize, 0..3000usize), 0..500)) {
        let mut order: Vec<u64> = (0..3000).collect();
        for (a, b) in swaps {
            order.swap(a, b);
        }
        let seen = counts(SequenceTracker::starting_at(0), order);
        prop_assert_eq!((seen.received, seen.lost, seen.duplicates, seen.stale), (3000, 0, 0, 0));
    }
}
