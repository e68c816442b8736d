//! Objects behind descriptor numbers: readable without a lock, from any thread and in signal handlers.
//!
//! A number refers to an *entry*; copies of a descriptor refer to the same entry. Entries are static memory that is
//! reused, never freed, so a late reader finds a wrong count, but never foreign memory. An entry's value lives while a
//! number or a [`Reference`] refers to it.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};

/// Count of references in an entry without a value.
const FREE: u32 = 0;
/// Count of references while the value is put in or taken out; no reference may be taken then. Each reference adds 1.
const DYING: u32 = 1;

#[derive(Debug)]
struct Entry<T> {
    /// Number of descriptor numbers and [`Reference`]s above [`DYING`], or [`FREE`].
    references: AtomicU32,
    /// Count of the descriptor numbers alone.
    numbers: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

impl<T> Entry<T> {
    const fn new() -> Self {
        Self {
            references: AtomicU32::new(FREE),
            numbers: AtomicU32::new(0),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Adds a reference if there is one already.
    fn refer(&self) -> bool {
        let more = |count| (count > DYING && count < u32::MAX).then(|| count + 1);
        self.references.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    /// Gives a reference back; returns the value if it was the last reference.
    fn release(&self) -> Option<T> {
        if self.references.fetch_sub(1, Ordering::AcqRel) != DYING + 1 {
            return None;
        }
        // SAFETY: the count is `DYING`, so no other code reads or writes the value.
        let value = unsafe { &*self.value.get() };
        // SAFETY: the value was written before the first reference to it was given away, and is taken once: the entry
        // is free from here on.
        let value = unsafe { value.assume_init_read() };
        self.references.store(FREE, Ordering::Release);
        Some(value)
    }
}

/// Table of `NUMBERS` descriptor numbers with up to `ENTRIES` different values.
#[derive(Debug)]
pub(crate) struct DescriptorTable<T: 'static, const NUMBERS: usize, const ENTRIES: usize> {
    /// Index of the entry of each number, plus 1; 0: no entry.
    numbers: [AtomicU32; NUMBERS],
    entries: [Entry<T>; ENTRIES],
}

// SAFETY: values are written by the thread that claimed a free entry, before other threads can refer to it, and taken
// by the holder of the last reference; in between they are only shared.
unsafe impl<T: Send + Sync, const NUMBERS: usize, const ENTRIES: usize> Sync
    for DescriptorTable<T, NUMBERS, ENTRIES>
{
}

/// Reference that keeps a value alive.
#[derive(Debug)]
pub(crate) struct Reference<T: 'static>(&'static Entry<T>);

// SAFETY: a shared reference may be given back on any thread.
unsafe impl<T: Send + Sync> Send for Reference<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Reference<T> {}

impl<T> Deref for Reference<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: no code writes the value while there are references.
        let value = unsafe { &*self.0.value.get() };
        // SAFETY: the value was written before the first reference was given away.
        unsafe { value.assume_init_ref() }
    }
}

impl<T> Clone for Reference<T> {
    fn clone(&self) -> Self {
        self.0.references.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl<T> Drop for Reference<T> {
    fn drop(&mut self) {
        drop(self.0.release());
    }
}

impl<T> PartialEq for Reference<T> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

/// Earlier target of a number.
#[derive(Debug)]
pub(crate) struct Removed<T: 'static> {
    pub(crate) reference: Reference<T>,
    /// Whether no other number refers to it.
    pub(crate) was_last: bool,
}

impl<T, const NUMBERS: usize, const ENTRIES: usize> DescriptorTable<T, NUMBERS, ENTRIES> {
    pub(crate) const fn new() -> Self {
        Self { numbers: [const { AtomicU32::new(0) }; NUMBERS], entries: [const { Entry::new() }; ENTRIES] }
    }

    fn index_of(&self, number: i32) -> Option<&AtomicU32> {
        self.numbers.get(usize::try_from(number).ok()?)
    }

    fn entry(&'static self, index_plus_1: u32) -> Option<&'static Entry<T>> {
        self.entries.get((index_plus_1 as usize).checked_sub(1)?)
    }

    /// Whether a number refers to a value.
    #[inline]
    pub(crate) fn has(&self, number: i32) -> bool {
        self.index_of(number).is_some_and(|index| index.load(Ordering::Relaxed) != 0)
    }

    /// Value to which a number refers.
    #[inline]
    pub(crate) fn get(&'static self, number: i32) -> Option<Reference<T>> {
        let index_cell = self.index_of(number)?;
        loop {
            let index = index_cell.load(Ordering::Acquire);
            let entry = self.entry(index)?;
            if entry.refer() {
                let reference = Reference(entry);
                // If the number still refers to the entry, the reference is to the number's present value; otherwise
                // the reference is to the entry's new value.
                if index_cell.load(Ordering::Acquire) == index {
                    return Some(reference);
                }
            }
        }
    }

    /// A value to which numbers refer and that `wanted` accepts.
    pub(crate) fn find(&'static self, wanted: impl Fn(&T) -> bool) -> Option<Reference<T>> {
        self.entries.iter().find_map(|entry| {
            if entry.numbers.load(Ordering::Acquire) == 0 || !entry.refer() {
                return None;
            }
            let reference = Reference(entry);
            let live = entry.numbers.load(Ordering::Acquire) != 0;
            (live && wanted(&reference)).then_some(reference)
        })
    }

    /// Adds a value, to which no number refers yet; returns the value as an error if the table is full.
    pub(crate) fn add(&'static self, value: T) -> Result<Reference<T>, T> {
        let claim = |entry: &&'static Entry<T>| {
            entry.references.compare_exchange(FREE, DYING, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let Some(entry) = self.entries.iter().find(claim) else { return Err(value) };
        // SAFETY: the count went from `FREE` to `DYING` here, so no other code reads or writes the value.
        let target = unsafe { &mut *entry.value.get() };
        target.write(value);
        entry.references.store(DYING + 1, Ordering::Release);
        Ok(Reference(entry))
    }

    /// Makes a number refer to a value. `Err` if the table has no such number.
    pub(crate) fn set(&'static self, number: i32, value: &Reference<T>) -> Result<Option<Removed<T>>, ()> {
        let index_cell = self.index_of(number).ok_or(())?;
        let index =
            (std::ptr::from_ref(value.0).addr() - self.entries.as_ptr().addr()) / size_of::<Entry<T>>();
        value.0.numbers.fetch_add(1, Ordering::AcqRel);
        // The number keeps its own reference.
        std::mem::forget(value.clone());
        Ok(self.removed(index_cell.swap(index as u32 + 1, Ordering::AcqRel)))
    }

    /// Makes a number refer to no value.
    pub(crate) fn remove(&'static self, number: i32) -> Option<Removed<T>> {
        self.removed(self.index_of(number)?.swap(0, Ordering::AcqRel))
    }

    /// Gives up the number's entry `index_plus_1`.
    fn removed(&'static self, index_plus_1: u32) -> Option<Removed<T>> {
        let entry = self.entry(index_plus_1)?;
        let was_last = entry.numbers.fetch_sub(1, Ordering::AcqRel) == 1;
        Some(Removed { reference: Reference(entry), was_last })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    type Table = DescriptorTable<Arc<u32>, 16, 4>;

    #[test]
    fn copies_lead_to_one_value_which_ends_with_the_last() {
        static TABLE: Table = Table::new();
        let value = Arc::new(1);
        let reference = TABLE.add(value.clone()).unwrap();
        assert!(!TABLE.has(3) && TABLE.get(3).is_none());
        assert!(TABLE.set(3, &reference).unwrap().is_none());
        assert!(TABLE.set(5, &TABLE.get(3).unwrap()).unwrap().is_none());
        drop(reference);
        assert!(TABLE.has(3) && TABLE.get(3) == TABLE.get(5));
        assert!(!TABLE.remove(3).unwrap().was_last);
        let in_use = TABLE.get(5).unwrap();
        assert!(TABLE.remove(5).unwrap().was_last);
        assert!(TABLE.remove(5).is_none());
        assert_eq!((Arc::strong_count(&value), **in_use), (2, 1));
        drop(in_use);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_reused_number_returns_its_earlier_value() {
        static TABLE: Table = Table::new();
        let (first, second) = (TABLE.add(Arc::new(1)).unwrap(), TABLE.add(Arc::new(2)).unwrap());
        TABLE.set(0, &first).unwrap();
        let removed = TABLE.set(0, &second).unwrap().unwrap();
        assert!(removed.was_last && removed.reference == first);
        assert!(TABLE.find(|value| **value == 1).is_none(), "no number leads there");
        assert!(TABLE.find(|value| **value == 2) == Some(second));
        // Another reference to the same value.
        let same = TABLE.get(0).unwrap();
        assert!(!TABLE.set(0, &same).unwrap().unwrap().was_last);
    }

    #[test]
    fn numbers_and_entries_are_limited() {
        static TABLE: Table = Table::new();
        let all: Vec<_> = (0..4).map(|value| TABLE.add(Arc::new(value)).unwrap()).collect();
        assert!(TABLE.add(Arc::new(9)).is_err());
        for number in [-1, 16, i32::MAX, i32::MIN] {
            assert!(TABLE.set(number, &all[0]).is_err() && !TABLE.has(number));
            assert!(TABLE.get(number).is_none() && TABLE.remove(number).is_none());
        }
        drop(all);
        assert!(TABLE.add(Arc::new(9)).is_ok());
    }

    #[test]
    fn readers_see_whole_values_while_numbers_change() {
        static TABLE: Table = Table::new();
        static STOP: AtomicU32 = AtomicU32::new(0);
        let read = || {
            let mut seen = 0_u64;
            while STOP.load(Ordering::Relaxed) == 0 || seen == 0 {
                if let Some(value) = TABLE.get(7) {
                    assert!(Arc::strong_count(&value) >= 1 && **value < 20_000);
                    seen += 1;
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(read);
            scope.spawn(read);
            for value in 0..20_000 {
                let reference = TABLE.add(Arc::new(value)).unwrap();
                drop(TABLE.set(7, &reference).unwrap());
                drop(reference);
                if value % 3 == 0 {
                    drop(TABLE.remove(7));
                }
            }
            let last = TABLE.add(Arc::new(0)).unwrap();
            drop(TABLE.set(7, &last).unwrap());
            STOP.store(1, Ordering::Relaxed);
        });
        drop(TABLE.remove(7));
        let all: Vec<_> = (0..4).map(|value| TABLE.add(Arc::new(value))).collect();
        assert!(all.iter().all(Result::is_ok), "all entries are free again");
    }
}
