//! The four rings of an AF_XDP socket, mapped from the kernel (kernel documentation, "AF_XDP", "Rings").
//!
//! Each ring has one producer and one consumer, of which one is the kernel. Both counters run freely over 32 bits. The
//! index of an entry is its counter modulo the size, a power of two. The kernel's counter is loaded with acquire, the
//! own counter is stored with release.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};

/// A mapped ring with entries of type `T`.
#[derive(Debug)]
struct Ring<T> {
    base: NonNull<u8>,
    bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    entries: NonNull<T>,
    mask: u32,
}

// SAFETY: the mapping belongs to the value; counters are atomic, and entries are accessed only by their present owner.
unsafe impl<T> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps a ring of `size` entries (a power of two).
    fn map(socket: BorrowedFd<'_>, page_offset: u64, at: &XdpRingOffset, size: u32) -> Result<Self, Errno> {
        let offset = |bytes: u64| usize::try_from(bytes).map_err(|_| Errno::OVERFLOW);
        let bytes = offset(at.desc)? + size as usize * size_of::<T>();
        let counters = [Some(at.producer), Some(at.consumer), at.flags];
        if counters.into_iter().flatten().any(|counter| counter + 4 > bytes as u64) {
            return Err(Errno::PROTO);
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, socket, page_offset) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let field = |at: u64| {
            // SAFETY: the field is within the mapping, as checked above.
            unsafe { base.add(at as usize) }
        };
        Ok(Self {
            base,
            bytes,
            producer: field(at.producer).cast(),
            consumer: field(at.consumer).cast(),
            flags: at.flags.map(|flags| field(flags).cast()),
            entries: field(at.desc).cast(),
            mask: size - 1,
        })
    }
}

impl<T> Ring<T> {
    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: the counter is mapped while self lives, aligned by the kernel, and accessed atomically by both sides.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for the producer.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn entry(&self, counter: u32) -> NonNull<T> {
        // SAFETY: the mask keeps the index below the number of mapped entries.
        unsafe { self.entries.add((counter & self.mask) as usize) }
    }

    #[inline]
    fn needs_wakeup(&self) -> bool {
        match self.flags {
            Some(flags) => {
                // SAFETY: as for the producer.
                let flags = unsafe { flags.as_ref() };
                flags.load(Ordering::Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
            }
            // Kernels without the flag (before 5.4) must always be called.
            None => true,
        }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `map`, which no other code holds.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A ring that this process fills: the fill ring or the tx ring.
#[derive(Debug)]
pub(super) struct ProducerRing<T> {
    ring: Ring<T>,
    /// Own counter, which runs ahead of the published one.
    filled: u32,
    published: u32,
    /// The kernel's counter of taken entries at its last read.
    pub(super) consumed: u32,
}

impl<T: Copy> ProducerRing<T> {
    /// Maps the ring at `page_offset` of `socket`.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        at: &XdpRingOffset,
        size: u32,
    ) -> Result<Self, Errno> {
        Ok(Self { ring: Ring::map(socket, page_offset, at, size)?, filled: 0, published: 0, consumed: 0 })
    }

    /// Number of entries that can be put. The kernel's counter is read only if fewer than `wanted` are known to be
    /// free.
    #[inline]
    pub(super) fn free(&mut self, wanted: u32) -> u32 {
        let size = self.ring.mask + 1;
        let free = size.saturating_sub(self.filled.wrapping_sub(self.consumed));
        if free >= wanted {
            return free;
        }
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        size.saturating_sub(self.filled.wrapping_sub(self.consumed))
    }

    /// Memory of the next entries, at most `most`, up to the ring's end. The caller has checked [`ProducerRing::free`].
    /// [`ProducerRing::advance`] puts the first of them.
    #[inline]
    pub(super) fn run_mut(&mut self, most: u32) -> &mut [T] {
        let first = self.filled & self.ring.mask;
        let count = most.min(self.ring.mask + 1 - first);
        // SAFETY: the entries are mapped, and not published, so the kernel does not read them. They are borrowed as
        // `self` is. They are integers, which the kernel has set to 0.
        unsafe { std::slice::from_raw_parts_mut(self.ring.entry(first).as_ptr(), count as usize) }
    }

    /// Puts the next `count` entries.
    #[inline]
    pub(super) fn advance(&mut self, count: u32) {
        self.filled = self.filled.wrapping_add(count);
    }

    /// Puts an entry for each of `sources`, which are not more than [`ProducerRing::free`] returned.
    #[inline]
    pub(super) fn put_all<S>(&mut self, mut sources: &[S], entry: impl Fn(&S) -> T) {
        // The loop goes on if the run ended at the end of the ring.
        while !sources.is_empty() {
            let run = self.run_mut(sources.len() as u32);
            let count = run.len();
            for (slot, source) in run.iter_mut().zip(sources) {
                *slot = entry(source);
            }
            self.advance(count as u32);
            sources = sources.get(count..).unwrap_or(&[]);
        }
    }

    /// Puts an entry for each of `sources`, which are not more than [`ProducerRing::free`] returned, up to the first
    /// without an entry from `entry`. Returns their number.
    #[inline]
    pub(super) fn put_each<S>(&mut self, sources: &[S], mut entry: impl FnMut(&S) -> Option<T>) -> usize {
        let mut put = 0;
        loop {
            let rest = sources.get(put..).unwrap_or(&[]);
            let mut count = 0;
            for (slot, source) in self.run_mut(rest.len() as u32).iter_mut().zip(rest) {
                let Some(entry) = entry(source) else { break };
                *slot = entry;
                count += 1;
            }
            self.advance(count as u32);
            put += count;
            // The loop goes on if the run ended at the end of the ring.
            if count == 0 || put == sources.len() {
                return put;
            }
        }
    }

    /// Makes the put entries visible to the kernel. Returns whether there were any.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        self.publish_but(0)
    }

    /// Publishes all put entries but the last `held` ones. Returns whether there were any.
    #[inline]
    pub(super) fn publish_but(&mut self, held: u32) -> bool {
        let end = self.filled.wrapping_sub(held);
        if self.published == end {
            return false;
        }
        self.published = end;
        self.ring.producer().store(end, Ordering::Release);
        true
    }

    /// Number of published entries that the kernel has not taken yet.
    #[inline]
    pub(super) fn untaken(&mut self) -> u32 {
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.published.wrapping_sub(self.consumed)
    }

    /// The kernel's counter of taken entries, read now.
    pub(super) fn taken_now(&self) -> u32 {
        self.ring.consumer().load(Ordering::Acquire)
    }

    /// The entry that the kernel took `back` before the next one to take, if no entry was put since then.
    pub(super) fn taken_entry(&self, back: u32) -> T {
        // SAFETY: a mapped entry, written when it was put or by the kernel when it made the ring.
        unsafe { self.ring.entry(self.consumed.wrapping_sub(back)).read() }
    }

    /// Published entries that the kernel has not taken yet, oldest first. The kernel may take some while they are read.
    pub(super) fn waiting(&self) -> impl Iterator<Item = T> + '_ {
        let first = self.taken_now();
        // The limit holds even if the kernel's counter is invalid: the ring has no more entries.
        let count = self.published.wrapping_sub(first).min(self.ring.mask + 1);
        (0..count).map(move |ahead| {
            // SAFETY: a mapped entry that was written when it was put, and that only this side writes.
            unsafe { self.ring.entry(first.wrapping_add(ahead)).read() }
        })
    }

    /// Changes published entries that the kernel has not taken, oldest first, while `change` returns a new entry.
    ///
    /// # Safety
    /// The kernel must not read the ring meanwhile: it reads the ring only in calls of this thread.
    pub(super) unsafe fn change_untaken(&mut self, mut change: impl FnMut(T) -> Option<T>) {
        for ahead in 0..self.untaken() {
            let slot = self.ring.entry(self.consumed.wrapping_add(ahead));
            // SAFETY: a mapped entry that was written when it was put.
            let entry = unsafe { slot.read() };
            let Some(changed) = change(entry) else { return };
            // SAFETY: the entry is mapped, and the caller vouches that the kernel does not read it now.
            unsafe { slot.write(changed) };
        }
    }

    /// Takes entries off the ring as the kernel would; the kernel must take none.
    #[cfg(test)]
    pub(super) fn take_as_kernel(&mut self, count: u32) {
        self.ring.consumer().store(self.taken_now().wrapping_add(count), Ordering::Release);
    }

    /// Whether the kernel must be called before it continues with this ring.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring that the kernel fills: the completion ring or the rx ring.
#[derive(Debug)]
pub(super) struct ConsumerRing<T> {
    ring: Ring<T>,
    /// Own counter, which runs ahead of the published one.
    taken: u32,
    published: u32,
    /// The kernel's counter at its last read.
    produced: u32,
}

impl<T: Copy> ConsumerRing<T> {
    /// Maps the ring at `page_offset` of `socket`.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        at: &XdpRingOffset,
        size: u32,
    ) -> Result<Self, Errno> {
        Ok(Self { ring: Ring::map(socket, page_offset, at, size)?, taken: 0, published: 0, produced: 0 })
    }

    /// Reads the kernel's counter. Returns the number of entries that can be taken.
    #[inline]
    pub(super) fn refresh(&mut self) -> u32 {
        self.produced = self.ring.producer().load(Ordering::Acquire);
        self.available()
    }

    /// Number of entries known to be there.
    #[inline]
    pub(super) fn available(&self) -> u32 {
        self.produced.wrapping_sub(self.taken).min(self.ring.mask + 1)
    }

    /// The entry `ahead` entries after the next one; `None` if it is not known to be there.
    #[inline]
    pub(super) fn peek(&self, ahead: u32) -> Option<T> {
        if ahead >= self.available() {
            return None;
        }
        let entry = self.ring.entry(self.taken.wrapping_add(ahead));
        // SAFETY: a mapped entry that the kernel published and does not write before it is given back.
        Some(unsafe { entry.read() })
    }

    /// Known entries that are contiguous in memory, from the next one up to the end of the ring, at most `most`.
    #[inline]
    pub(super) fn run(&self, most: u32) -> &[T] {
        let first = self.taken & self.ring.mask;
        let count = self.available().min(self.ring.mask + 1 - first).min(most);
        // SAFETY: mapped entries that the kernel published and does not write before they are given back, which takes
        // `&mut self`.
        unsafe { std::slice::from_raw_parts(self.ring.entry(first).as_ptr(), count as usize) }
    }

    /// Takes `count` entries that were there.
    #[inline]
    pub(super) fn take(&mut self, count: u32) {
        self.taken = self.taken.wrapping_add(count);
    }

    /// Gives taken entries back to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        if self.published != self.taken {
            self.published = self.taken;
            self.ring.consumer().store(self.taken, Ordering::Release);
        }
    }

    /// The kernel's counter of put entries, read now.
    pub(super) fn produced_now(&self) -> u32 {
        self.ring.producer().load(Ordering::Acquire)
    }

    /// Puts entries on the ring as the kernel would; the kernel must put none.
    #[cfg(test)]
    pub(super) fn put_as_kernel(&mut self, entries: &[T]) {
        for &entry in entries {
            let end = self.ring.producer().load(Ordering::Relaxed);
            // SAFETY: a mapped entry, which only this test writes and reads.
            unsafe { self.ring.entry(end).write(entry) };
            self.ring.producer().store(end.wrapping_add(1), Ordering::Release);
        }
    }
}
