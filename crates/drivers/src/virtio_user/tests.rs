//! A back end for the tests of the rings: it has the memory as a real back end does, and writes into it what a test
//! requests.

use std::os::fd::AsFd;
use std::sync::Arc;

use ringroad_ring::foreign_memory::ForeignMemory;
use ringroad_virtqueue::layout::NET_HEADER_BYTES;

use super::memory::{CardMemory, GUEST_BASE, RingAddresses, RingMemory};

/// Number of entries of the rings under test.
pub(super) const ENTRIES: u16 = 64;

pub(super) struct BackEnd {
    map: ForeignMemory,
    base: u64,
    addresses: RingAddresses,
    /// Number of buffers taken from the available ring, and used index.
    pub(super) seen: u16,
    pub(super) used: u16,
}

/// A descriptor that the back end has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) flags: u16,
    pub(super) next: u16,
}

impl BackEnd {
    /// A ring, and the back end that serves it.
    pub(super) fn with_ring() -> (Self, RingMemory) {
        let memory = CardMemory::new(1, ENTRIES).unwrap();
        let ring = memory.ring(0).unwrap();
        (Self::of(&memory), ring)
    }

    fn of(memory: &Arc<CardMemory>) -> Self {
        let map = ForeignMemory::map(memory.file.as_fd(), 0, memory.bytes()).unwrap();
        let addresses = memory.addresses(0).unwrap();
        Self { map, base: GUEST_BASE, addresses, seen: 0, used: 0 }
    }

    pub(super) fn read<const N: usize>(&self, address: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.map.part((address - self.base) as usize, N).unwrap().read(&mut bytes);
        bytes
    }

    pub(super) fn bytes(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.map.part((address - self.base) as usize, len).unwrap().read(&mut bytes);
        bytes
    }

    pub(super) fn write(&self, address: u64, bytes: &[u8]) {
        self.map.part((address - self.base) as usize, bytes.len()).unwrap().write(bytes);
    }

    pub(super) fn available(&self) -> u16 {
        u16::from_le_bytes(self.read(self.addresses.avail + 2)).wrapping_sub(self.seen)
    }

    pub(super) fn descriptor(&self, index: u16) -> Descriptor {
        let bytes: [u8; 16] = self.read(self.addresses.descriptors + 16 * u64::from(index));
        let part = |from: usize, to: usize| {
            bytes[from..to].iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte))
        };
        Descriptor {
            address: part(0, 8),
            len: part(8, 12) as u32,
            flags: part(12, 14) as u16,
            next: part(14, 16) as u16,
        }
    }

    /// Takes the next head from the available ring.
    pub(super) fn take(&mut self) -> u16 {
        assert!(self.available() > 0);
        let index = u64::from(self.seen % ENTRIES);
        self.seen = self.seen.wrapping_add(1);
        u16::from_le_bytes(self.read(self.addresses.avail + 4 + 2 * index))
    }

    /// Writes a used entry, which the driver sees after [`Self::publish`].
    pub(super) fn put_used(&mut self, id: u32, len: u32) {
        let entry = self.addresses.used + 4 + 8 * u64::from(self.used % ENTRIES);
        self.write(entry, &id.to_le_bytes());
        self.write(entry + 4, &len.to_le_bytes());
        self.used = self.used.wrapping_add(1);
    }

    pub(super) fn publish(&self) {
        self.write(self.addresses.used + 2, &self.used.to_le_bytes());
    }

    /// Fills the next available buffer with `bytes` behind a header that states `buffers`.
    pub(super) fn fill(&mut self, buffers: u16, bytes: &[u8]) {
        let head = self.take();
        let address = self.descriptor(head).address;
        let mut header = [0; NET_HEADER_BYTES];
        header[10..].copy_from_slice(&buffers.to_le_bytes());
        self.write(address, &header);
        self.write(address + NET_HEADER_BYTES as u64, bytes);
        self.put_used(head.into(), (NET_HEADER_BYTES + bytes.len()) as u32);
    }
}
