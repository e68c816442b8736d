//! Random numbers of tests.

/// SplitMix64: the same seed gives the same numbers in each run.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below the bound, and 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }

    /// Returns true in one of `of` cases.
    pub fn one_of(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// Returns one of several values.
    pub fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len() as u64) as usize]
    }
}
