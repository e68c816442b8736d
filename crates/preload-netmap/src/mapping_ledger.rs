//! Parts of this process's memory that are mappings of devices. Each mapping keeps its device bound, even if the
//! program has closed all descriptors of the device.

use std::sync::Arc;

use crate::signal_safe_lock::SignalSafeLock;

/// Mapping, or a remaining part of one, held by `H`.
#[derive(Debug)]
pub(crate) struct TrackedMapping<H> {
    pub(crate) start: usize,
    pub(crate) end: usize,
    holder: Arc<H>,
}

/// All mappings.
#[derive(Debug)]
pub(crate) struct MappingTable<H> {
    mappings: Vec<TrackedMapping<H>>,
}

impl<H> MappingTable<H> {
    const fn new() -> Self {
        Self { mappings: Vec::new() }
    }

    /// First mapping that overlaps a range.
    fn overlapping(&self, start: usize, end: usize) -> Option<&TrackedMapping<H>> {
        self.mappings.iter().find(|mapping| mapping.start < end && start < mapping.end)
    }

    /// Removes a range; returns the parts of mappings in it.
    fn remove(&mut self, start: usize, end: usize) -> Vec<TrackedMapping<H>> {
        let overlaps = |mapping: &mut TrackedMapping<H>| mapping.start < end && start < mapping.end;
        let mut removed: Vec<_> = self.mappings.extract_if(.., overlaps).collect();
        for mapping in &mut removed {
            for (start, end) in [(mapping.start, start), (end, mapping.end)] {
                if start < end {
                    self.mappings.push(TrackedMapping { start, end, holder: mapping.holder.clone() });
                }
            }
            mapping.start = mapping.start.max(start);
            mapping.end = mapping.end.min(end);
        }
        removed
    }
}

/// Holder of a mapping in a process: another handle on the device's descriptor.
pub(crate) type Holder = ringroad_netmap::private_descriptors::PrivateDescriptor;

/// All mappings of this process.
pub(crate) static LEDGER: SignalSafeLock<MappingTable<Holder>> =
    SignalSafeLock::new(MappingTable::new(), |ledger| ledger.mappings.len());

/// Adds a mapping.
pub(crate) fn add(start: usize, bytes: usize, holder: Arc<Holder>) {
    LEDGER.with(|ledger| {
        ledger.mappings.push(TrackedMapping { start, end: start.saturating_add(bytes), holder })
    });
}

/// Removes a range. The result holds the devices of the mappings in it.
#[must_use]
pub(crate) fn remove(start: usize, bytes: usize) -> Vec<TrackedMapping<Holder>> {
    LEDGER.with(|ledger| ledger.remove(start, start.saturating_add(bytes)))
}

/// Puts back the mappings that [`remove`] returned.
pub(crate) fn put_back(removed: Vec<TrackedMapping<Holder>>) {
    LEDGER.with(|ledger| ledger.mappings.extend(removed));
}

/// Holder of the first mapping that overlaps a range.
pub(crate) fn holder(start: usize, bytes: usize) -> Option<Arc<Holder>> {
    LEDGER.with(|ledger| {
        ledger.overlapping(start, start.saturating_add(bytes)).map(|mapping| mapping.holder.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(holder: &Arc<()>) -> MappingTable<()> {
        let mut ledger = MappingTable::new();
        ledger.mappings.push(TrackedMapping { start: 100, end: 200, holder: holder.clone() });
        ledger.mappings.push(TrackedMapping { start: 300, end: 400, holder: holder.clone() });
        ledger
    }

    fn ranges(mappings: &[TrackedMapping<()>]) -> Vec<(usize, usize)> {
        let mut ranges: Vec<_> = mappings.iter().map(|mapping| (mapping.start, mapping.end)).collect();
        ranges.sort_unstable();
        ranges
    }

    #[test]
    fn any_part_of_a_mapping_can_be_removed() {
        for (start, end, removed, left) in [
            (0, 100, vec![], vec![(100, 200), (300, 400)]),
            (200, 300, vec![], vec![(100, 200), (300, 400)]),
            (100, 200, vec![(100, 200)], vec![(300, 400)]),
            (50, 150, vec![(100, 150)], vec![(150, 200), (300, 400)]),
            (150, 250, vec![(150, 200)], vec![(100, 150), (300, 400)]),
            (120, 130, vec![(120, 130)], vec![(100, 120), (130, 200), (300, 400)]),
            (150, 350, vec![(150, 200), (300, 350)], vec![(100, 150), (350, 400)]),
            (0, usize::MAX, vec![(100, 200), (300, 400)], vec![]),
        ] {
            let mut ledger = ledger(&Arc::new(()));
            assert_eq!(ranges(&ledger.remove(start, end)), removed, "{start}-{end}");
            assert_eq!(ranges(&ledger.mappings), left, "{start}-{end}");
            assert!(ledger.overlapping(start, end).is_none());
        }
    }

    #[test]
    fn a_mapping_is_held_until_its_last_part_is_gone() {
        let holder = Arc::new(());
        let mut ledger = ledger(&holder);
        ledger.remove(300, 400);
        ledger.remove(100, 130);
        drop(ledger.remove(140, 200));
        assert_eq!(Arc::strong_count(&holder), 2);
        drop(ledger.remove(130, 140));
        assert_eq!(Arc::strong_count(&holder), 1);
    }
}
