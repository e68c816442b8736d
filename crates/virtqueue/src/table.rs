//! A table of descriptors, to which one of a ring's descriptors points (virtio 1.2, sections 2.7.5.3 and 2.8.7).
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::chain::Descriptor;
use crate::fault::RingFault;
use crate::guest_memory::GuestMemory;
use crate::layout::{DESC_NEXT, DESCRIPTOR_BYTES, MAX_RING_ENTRIES};
use crate::words::read_u64;

/// A table in guest memory, contiguous in its mapping.
#[derive(Debug)]
pub(crate) struct IndirectTable<'memory> {
    memory: PhantomData<&'memory GuestMemory>,
    start: NonNull<u8>,
    pub(crate) count: u16,
}

impl<'memory> IndirectTable<'memory> {
    /// The table to which `descriptor` points. `has_tables`: tables were negotiated.
    ///
    /// # Errors
    /// [`RingFault::Table`] if there may be none, its length is invalid or another descriptor follows it; [`RingFault::NoMemory`]
    /// if it is not contiguous in `memory`.
    pub(crate) fn at(
        memory: &'memory GuestMemory,
        descriptor: Descriptor,
        has_tables: bool,
    ) -> Result<Self, RingFault> {
        let Descriptor { address, bytes, flags, .. } = descriptor;
        let count = u16::try_from(bytes / DESCRIPTOR_BYTES as u32).unwrap_or(u16::MAX);
        if !has_tables
            || flags & DESC_NEXT != 0
            || !bytes.is_multiple_of(DESCRIPTOR_BYTES as u32)
            || !(1..=MAX_RING_ENTRIES).contains(&count)
        {
            return Err(RingFault::Table(bytes));
        }
        match memory.at(address, bytes) {
            Some((start, together)) if together == bytes => Ok(Self { memory: PhantomData, start, count }),
            _ => Err(RingFault::NoMemory { address, bytes }),
        }
    }

    /// Both words of descriptor `index`, read once.
    ///
    /// # Errors
    /// [`RingFault::NoSuchDescriptor`].
    pub(crate) fn words(&self, index: u16) -> Result<(u64, u64), RingFault> {
        if index >= self.count {
            return Err(RingFault::NoSuchDescriptor(index));
        }
        // SAFETY: all `count` descriptors are mapped from `start` as long as the memory, and the index is below
        // `count`.
        let first = unsafe { self.start.add(DESCRIPTOR_BYTES * usize::from(index)) };
        // SAFETY: as above; a descriptor has two words.
        let second = unsafe { first.add(8) };
        // SAFETY: as above.
        let first = unsafe { read_u64(first) };
        // SAFETY: as above.
        let second = unsafe { read_u64(second) };
        Ok((first, second))
    }
}
