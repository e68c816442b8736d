//! Descriptors block, by which a card finds the data blocks of a buffer.
//!
//! An array of 64-bit little-endian words. A *data* word (bit 0 is 0) names a block of whole pages: its address in bits
//! 63 to 12, its number of pages minus one in bits 11 to 1. A *next* word (bit 0 is 1) has in bits 63 to 1 the address
//! of the word to be read next. The last word leads back to the first, so that the card reads the words without end. A
//! second kind of array begins with words that are read once and continues with such a cycle, so that the buffer begins
//! somewhere in the middle of the cycle.
//!
//! (Thesis, section 2.7.4. One is subtracted from the number of pages as in ndk-sw's `dma_ctrl_sze`; the thesis does
//! not mention it.) Addresses are those of the software card: offsets in the file of a channel's memory.

/// Size of a page, bytes: blocks begin on pages and consist of whole pages.
pub const PAGE_BYTES: u64 = 4096;
/// Greatest number of pages of one block.
pub const MAX_BLOCK_PAGES: u64 = 2048;
/// Size of a word, bytes.
pub const WORD_BYTES: u64 = 8;
/// Greatest number of words that [`walk`] reads. A longer array counts as endless.
const MAX_WORDS: usize = 1 << 17;

/// One word of the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescriptorWord {
    /// A data block.
    Data(PageRun),
    /// Address of the next word.
    Next(u64),
}

/// A run of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRun {
    /// Address of the block, a multiple of [`PAGE_BYTES`].
    pub address: u64,
    /// Length of the block, bytes: 1 to [`MAX_BLOCK_PAGES`] pages.
    pub bytes: u64,
}

impl DescriptorWord {
    /// Decodes a word, which is either a data word or a next word.
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        if word & 1 == 1 {
            return Self::Next(word & !1);
        }
        Self::Data(PageRun {
            address: word & !(PAGE_BYTES - 1),
            bytes: ((word >> 1 & (MAX_BLOCK_PAGES - 1)) + 1) * PAGE_BYTES,
        })
    }

    /// Encodes the word. Excess bits are lost, so blocks must be as [`PageRun`] describes.
    #[must_use]
    pub fn to_word(self) -> u64 {
        match self {
            Self::Next(address) => address | 1,
            Self::Data(PageRun { address, bytes }) => {
                let pages_less_one = (bytes / PAGE_BYTES).wrapping_sub(1) & (MAX_BLOCK_PAGES - 1);
                address & !(PAGE_BYTES - 1) | pages_less_one << 1
            }
        }
    }
}

/// Words of a cycle of `blocks`. The first word will be at `address`.
#[must_use]
pub fn cycle(blocks: &[PageRun], address: u64) -> Vec<u64> {
    let data = blocks.iter().map(|&block| DescriptorWord::Data(block).to_word());
    data.chain([DescriptorWord::Next(address).to_word()]).collect()
}

/// Reason why an array describes no buffer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// A word is outside of the array's memory, or not aligned.
    #[error("a descriptor at {0:#x} is outside of the descriptors block")]
    Outside(u64),
    /// The words never repeat, or only next words do.
    #[error("the descriptors from {0:#x} on describe no cyclic buffer")]
    Endless(u64),
    /// The words before the cycle are not the end of the cycle.
    #[error("the {0} descriptor(s) before the cycle are not its end")]
    Lead(usize),
}

/// Reads the array from `start` on as a card does. `word_at` returns the word at an address. Returns the blocks of the
/// buffer, in the order in which data fill them first.
///
/// # Errors
/// [`WalkError`].
pub fn walk(start: u64, word_at: impl Fn(u64) -> Option<u64>) -> Result<Vec<PageRun>, WalkError> {
    // Addresses and blocks of the data words.
    let mut read: Vec<(u64, PageRun)> = Vec::new();
    let (mut at, mut words) = (start, 0);
    loop {
        words += 1;
        if words > MAX_WORDS {
            return Err(WalkError::Endless(start));
        }
        let word = word_at(at).filter(|_| at.is_multiple_of(WORD_BYTES)).ok_or(WalkError::Outside(at))?;
        match DescriptorWord::from_word(word) {
            DescriptorWord::Data(block) => {
                read.push((at, block));
                at = at.wrapping_add(WORD_BYTES);
            }
            DescriptorWord::Next(next) => {
                // Only a next word that leads back closes a cycle.
                if let Some(first) = read.iter().position(|&(address, _)| address == next) {
                    return whole(&read, first);
                }
                at = next;
            }
        }
    }
}

/// Blocks of the buffer whose data words are `read`. The words before number `first` precede the cycle.
fn whole(read: &[(u64, PageRun)], first: usize) -> Result<Vec<PageRun>, WalkError> {
    let blocks: Vec<PageRun> = read.iter().map(|&(_, block)| block).collect();
    let (lead, cycle) = blocks.split_at(first);
    if !cycle.ends_with(lead) {
        return Err(WalkError::Lead(first));
    }
    let (head, tail) = cycle.split_at(cycle.len() - lead.len());
    Ok(tail.iter().chain(head).copied().collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(page: u64, pages: u64) -> PageRun {
        PageRun { address: page * PAGE_BYTES, bytes: pages * PAGE_BYTES }
    }

    fn walk_words(words: &[u64], start: u64) -> Result<Vec<PageRun>, WalkError> {
        walk(start, |address| words.get((address / WORD_BYTES) as usize).copied())
    }

    #[test]
    fn words_follow_the_published_format() {
        for (descriptor, word) in [
            (DescriptorWord::Data(block(0x12345, 1)), 0x1234_5000),
            (DescriptorWord::Data(block(1, 1024)), 0x1000 | 1023 << 1),
            (DescriptorWord::Data(block(0, 2048)), 2047 << 1),
            (DescriptorWord::Next(0xABC8), 0xABC9),
        ] {
            assert_eq!(descriptor.to_word(), word);
            assert_eq!(DescriptorWord::from_word(word), descriptor);
        }
    }

    #[test]
    fn a_cycle_is_walked_once() {
        let blocks = [block(7, 3), block(1, 1), block(20, 2048)];
        assert_eq!(walk_words(&cycle(&blocks, 0), 0), Ok(blocks.to_vec()));
    }

    #[test]
    fn words_read_once_give_the_start_of_the_buffer() {
        let blocks = [block(1, 1), block(2, 1), block(3, 1)];
        // Two words come first, then the cycle from word 3 on.
        let mut words =
            vec![DescriptorWord::Data(blocks[1]).to_word(), DescriptorWord::Data(blocks[2]).to_word()];
        words.push(DescriptorWord::Next(24).to_word());
        words.extend(cycle(&blocks, 24));
        assert_eq!(walk_words(&words, 0), Ok(vec![blocks[1], blocks[2], blocks[0]]));
        words[0] = DescriptorWord::Data(block(9, 1)).to_word();
        assert_eq!(walk_words(&words, 0), Err(WalkError::Lead(2)));
    }

    #[test]
    fn arrays_without_a_buffer_are_refused() {
        assert_eq!(walk_words(&[1], 0), Err(WalkError::Endless(0)));
        assert_eq!(walk_words(&[0, 0], 0), Err(WalkError::Outside(16)));
        assert_eq!(walk_words(&[0, 5], 0), Err(WalkError::Outside(4)));
        assert_eq!(walk_words(&[0, 0x1001], 0), Err(WalkError::Outside(0x1000)));
    }

    proptest! {
        #[test]
        fn descriptors_round_trip_through_words(word: u64) {
            prop_assert_eq!(DescriptorWord::from_word(word).to_word(), word);
        }

        #[test]
        fn any_array_is_walked_once_without_panic(words in proptest::collection::vec(any::<u64>().prop_map(|w| w & 0xff), 0..40)) {
            let _ = walk_words(&words, 0);
        }
    }
}
