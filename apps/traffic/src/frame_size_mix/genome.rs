//! The sizes of frames in the notation of RFC 6985, the "IMIX genome".

use std::fmt::Write;

use crate::line_rate::FrameSize;
use crate::rotation::Rotation;

/// Sizes (with FCS) that have a letter of their own (RFC 6985, section 3).
const LETTERS: [(u32, char); 9] = [
    (64, 'a'),
    (128, 'b'),
    (256, 'c'),
    (512, 'd'),
    (1024, 'e'),
    (1280, 'f'),
    (1518, 'g'),
    (2112, 'h'),
    (9600, 'i'),
];
/// Length of the longest round that is printed in letters. A longer round is printed as shares.
const LONGEST_GENOME: usize = 64;

impl Rotation {
    /// One round of `sizes` in letters, for example `aAaaAaAagaAa A=594`. Sizes without a letter in the RFC get capital
    /// letters, which are explained after the round. A round that is long, random or of too many sizes is described in
    /// words.
    pub(crate) fn genome(&self, sizes: &[FrameSize]) -> String {
        let mut custom: Vec<u32> = sizes.iter().map(|size| size.bytes()).collect();
        custom.retain(|bytes| LETTERS.iter().all(|(size, _)| size != bytes));
        custom.sort_unstable();
        custom.dedup();
        if self.is_random() || self.order().len() > LONGEST_GENOME || custom.len() > 26 {
            return self.in_words(sizes);
        }
        let custom: Vec<(u32, char)> = custom.into_iter().zip('A'..='Z').collect();
        let letters = self.order().iter().filter_map(|index| {
            let bytes = sizes.get(usize::from(*index))?.bytes();
            LETTERS.iter().chain(&custom).find(|(size, _)| *size == bytes).map(|(_, letter)| *letter)
        });
        let mut genome: String = letters.collect();
        for (bytes, letter) in custom {
            // Writing to a string cannot fail.
            let _ = write!(genome, " {letter}={bytes}");
        }
        genome
    }

    fn in_words(&self, sizes: &[FrameSize]) -> String {
        let order = if self.is_random() { "random" } else { "fixed" };
        let bytes = || sizes.iter().map(|size| size.bytes());
        let (least, most) = (bytes().min().unwrap_or(0), bytes().max().unwrap_or(0));
        format!("{} sizes from {least} to {most} in {order} order of {}", sizes.len(), self.order().len())
    }
}
