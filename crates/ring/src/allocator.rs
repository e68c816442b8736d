//! Records of the objects of a region that are in use: interfaces, rings and buffers.
//!
//! The maker of the region keeps these records outside of it. Programs exchange buffers between the rings of a region,
//! so freeing a ring frees the buffers that its slots name at that time. A buffer that a program left in two slots is
//! freed once; a buffer that a program lost stays in use until the region is unmapped.

use serde::{Deserialize, Serialize};

use crate::geometry::RegionGeometry;
use crate::layout::FIRST_BUFFER;

/// Set of numbers below a limit; its smallest free number is found quickly.
#[derive(Debug, Clone)]
struct Numbers {
    used: Vec<bool>,
    /// Lower bound of the free numbers: no smaller number is free.
    lowest: usize,
    free: usize,
}

impl Numbers {
    fn new(count: u32) -> Self {
        Self { used: vec![false; count as usize], lowest: 0, free: count as usize }
    }

    /// Used numbers, as ranges: the first number and the count of each.
    fn used(&self) -> Vec<(u32, u32)> {
        let mut ranges = Vec::new();
        let mut from = 0;
        for chunk in self.used.chunk_by(|one, next| one == next) {
            if chunk.first() == Some(&true) {
                ranges.push((from, chunk.len() as u32));
            }
            from += chunk.len() as u32;
        }
        ranges
    }

    fn mark_all(&mut self, ranges: &[(u32, u32)]) {
        for &(first, count) in ranges {
            (first..first.saturating_add(count).min(self.used.len() as u32))
                .for_each(|number| self.mark(number));
        }
    }

    fn take(&mut self) -> Option<u32> {
        let found = self.lowest + self.used.get(self.lowest..)?.iter().position(|used| !used)?;
        self.mark(found as u32);
        self.lowest = found + 1;
        Some(found as u32)
    }

    fn mark(&mut self, number: u32) {
        if let Some(used @ false) = self.used.get_mut(number as usize) {
            *used = true;
            self.free -= 1;
        }
    }

    fn give_back(&mut self, number: u32) -> bool {
        match self.used.get_mut(number as usize) {
            Some(used @ true) => {
                *used = false;
                self.free += 1;
                self.lowest = self.lowest.min(number as usize);
                true
            }
            _ => false,
        }
    }
}

/// Records of the used objects of one region.
#[derive(Debug, Clone)]
pub struct RegionAllocator {
    interfaces: Numbers,
    rings: Numbers,
    buffers: Numbers,
}

/// Objects of a region that are in use: ranges of numbers, each as its first number and its count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HandedOut {
    interfaces: Vec<(u32, u32)>,
    rings: Vec<(u32, u32)>,
    buffers: Vec<(u32, u32)>,
}

impl RegionAllocator {
    /// Records of a region whose objects in `handed_out` are in use.
    #[must_use]
    pub fn resume(geometry: &RegionGeometry, handed_out: &HandedOut) -> Self {
        let mut usage = Self::new(geometry);
        usage.interfaces.mark_all(&handed_out.interfaces);
        usage.rings.mark_all(&handed_out.rings);
        usage.buffers.mark_all(&handed_out.buffers);
        usage
    }

    /// Objects in use.
    #[must_use]
    pub fn handed_out(&self) -> HandedOut {
        let Self { interfaces, rings, buffers } = self;
        HandedOut { interfaces: interfaces.used(), rings: rings.used(), buffers: buffers.used() }
    }

    /// Records of a region where only the reserved buffers are in use.
    #[must_use]
    pub fn new(geometry: &RegionGeometry) -> Self {
        let mut buffers = Numbers::new(geometry.buffers);
        (0..FIRST_BUFFER).for_each(|buffer| buffers.mark(buffer));
        Self { interfaces: Numbers::new(geometry.interfaces), rings: Numbers::new(geometry.rings), buffers }
    }

    /// Takes an interface object; `None` if all are in use.
    pub fn take_interface(&mut self) -> Option<u32> {
        self.interfaces.take()
    }

    /// Takes a ring object; `None` if all are in use.
    pub fn take_ring(&mut self) -> Option<u32> {
        self.rings.take()
    }

    /// Takes `count` buffers, or none if fewer are free.
    pub fn take_buffers(&mut self, count: u32) -> Option<Vec<u32>> {
        if self.buffers.free < count as usize {
            return None;
        }
        Some((0..count).map_while(|_| self.buffers.take()).collect())
    }

    /// Number of free buffers.
    #[must_use]
    pub fn free_buffers(&self) -> u32 {
        self.buffers.free as u32
    }

    /// Number of free ring objects.
    #[must_use]
    pub fn free_rings(&self) -> u32 {
        self.rings.free as u32
    }

    /// Gives an interface object back.
    pub fn free_interface(&mut self, interface: u32) {
        self.interfaces.give_back(interface);
    }

    /// Gives a ring object back.
    pub fn free_ring(&mut self, ring: u32) {
        self.rings.give_back(ring);
    }

    /// Gives a buffer back; returns whether it was in use. Accepts any number, because a program wrote it.
    pub fn free_buffer(&mut self, buffer: u32) -> bool {
        buffer >= FIRST_BUFFER && self.buffers.give_back(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn allocator() -> RegionAllocator {
        RegionAllocator::new(&RegionGeometry::for_ports(2, 1, 8, 128, 0).unwrap())
    }

    #[test]
    fn the_reserved_buffers_are_never_given_out_nor_taken_back() {
        let mut allocator = allocator();
        let free = allocator.free_buffers();
        assert!(!allocator.free_buffer(0) && !allocator.free_buffer(1));
        let all = allocator.take_buffers(free).unwrap();
        assert!(all.iter().all(|&buffer| buffer >= FIRST_BUFFER));
        assert_eq!(allocator.take_buffers(1), None);
    }

    #[test]
    fn a_buffer_that_a_program_names_twice_is_freed_once() {
        let mut allocator = allocator();
        let taken = allocator.take_buffers(1).unwrap()[0];
        assert!(allocator.free_buffer(taken));
        assert!(!allocator.free_buffer(taken) && !allocator.free_buffer(u32::MAX));
    }

    proptest! {
        #[test]
        fn no_buffer_is_given_out_twice(gives in proptest::collection::vec(0usize..32, 0..64)) {
            let mut allocator = allocator();
            let mut held = Vec::new();
            for give in gives {
                match allocator.take_buffers(1) {
                    Some(taken) => {
                        prop_assert!(!held.contains(&taken[0]));
                        held.push(taken[0]);
                    }
                    None => prop_assert_eq!(allocator.free_buffers(), 0),
                }
                if give < held.len() {
                    prop_assert!(allocator.free_buffer(held.swap_remove(give)));
                }
            }
            let geometry = RegionGeometry::for_ports(2, 1, 8, 128, 0).unwrap();
            let mut resumed = RegionAllocator::resume(&geometry, &allocator.handed_out());
            prop_assert_eq!(resumed.handed_out(), allocator.handed_out());
            prop_assert_eq!(resumed.free_buffers(), allocator.free_buffers());
            prop_assert_eq!(resumed.take_buffers(1), allocator.take_buffers(1));
        }
    }
}
