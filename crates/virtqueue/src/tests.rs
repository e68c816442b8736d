//! Tests of rings of both layouts, written byte by byte, as drivers write them and as no driver should.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::chain::{BufferAccess, MAX_CHAIN_BYTES, MAX_SEGMENTS, SgEntry};
use crate::device_ring::{DeviceRing, RingPosition, VirtqueueConfig};
use crate::fault::{RingFault, RingSetupError};
use crate::guest_memory::{GuestMemory, GuestMemoryError, GuestRegion, RegionLayout};
use crate::inflight::{Inflight, InflightLayout};
use crate::layout::*;

const BYTES: u64 = 64 << 10;
/// Addresses of the first byte for the guest and for its front end.
const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7f00_0000_0000;
// Offsets of the parts from the first byte.
const DESCRIPTORS: u64 = 0;
const DRIVER: u64 = 0x1000;
const DEVICE: u64 = 0x2000;
const BUFFERS: u64 = 0x3000;
const TABLE: u64 = 0x8000;

/// A guest with a ring.
struct Guest {
    file: OwnedFd,
    memory: Arc<GuestMemory>,
}

fn region(file: &OwnedFd, guest: u64, file_offset: u64, bytes: u64) -> Arc<GuestRegion> {
    let layout = RegionLayout { guest, user: USER + guest - GUEST, bytes, file_offset };
    Arc::new(GuestRegion::map(layout, file.as_fd()).unwrap())
}

impl Guest {
    fn new() -> Self {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, BYTES).unwrap();
        let memory = Arc::new(GuestMemory::new(vec![region(&file, GUEST, 0, BYTES)]).unwrap());
        Self { file, memory }
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        rustix::io::pwrite(&self.file, bytes, at).unwrap();
    }

    fn read<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        rustix::io::pread(&self.file, &mut bytes, at).unwrap();
        bytes
    }

    fn word(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.read(at))
    }

    fn set_word(&self, at: u64, value: u16) {
        self.write(at, &value.to_le_bytes());
    }

    /// Descriptor `index` of the table at `table`. In a packed ring `flags` and `last` are swapped.
    fn describe(&self, table: u64, index: u64, buffer: u64, bytes: u32, third: u16, fourth: u16) {
        let mut descriptor = (GUEST + BUFFERS + buffer).to_le_bytes().to_vec();
        descriptor.extend(bytes.to_le_bytes());
        descriptor.extend([third, fourth].map(u16::to_le_bytes).concat());
        self.write(table + 16 * index, &descriptor);
    }

    fn config(entries: u16, is_packed: bool) -> VirtqueueConfig {
        VirtqueueConfig {
            entries,
            descriptors: USER + DESCRIPTORS,
            driver: USER + DRIVER,
            device: USER + DEVICE,
            is_packed,
            has_event_index: false,
            has_tables: true,
        }
    }

    fn ring(&self, config: &VirtqueueConfig, position: u32) -> DeviceRing {
        DeviceRing::new(Arc::clone(&self.memory), config, RingPosition(position)).unwrap()
    }

    /// Makes chains available in a split ring.
    fn offer(&self, entries: u16, from: u16, heads: &[u16]) {
        for (number, &head) in (0..).zip(heads) {
            let number = from.wrapping_add(number);
            self.set_word(DRIVER + 4 + 2 * u64::from(number % entries), head);
        }
        self.set_word(DRIVER + 2, from.wrapping_add(heads.len() as u16));
    }
}

/// Offsets of segments from the first buffer, and their lengths.
fn shape(segments: &[SgEntry]) -> Vec<(u64, u32)> {
    segments.iter().map(|segment| (segment.guest - GUEST - BUFFERS, segment.bytes)).collect()
}

fn no_log(_: u64, _: u32) {}

#[test]
fn split_rings_give_and_take_back_chains_and_tables() {
    let guest = Guest::new();
    guest.describe(DESCRIPTORS, 5, 0, 12, DESC_NEXT, 2);
    guest.describe(DESCRIPTORS, 2, 100, 60, 0, 0);
    guest.describe(TABLE, 0, 200, 12, DESC_NEXT, 2);
    guest.describe(TABLE, 2, 300, 1500, 0, 0);
    guest.describe(DESCRIPTORS, 7, TABLE - BUFFERS, 48, DESC_INDIRECT, 0);
    guest.set_word(DEVICE + 2, 65534);
    guest.set_word(DRIVER + 2, 65534);
    let mut ring = guest.ring(&Guest::config(8, false), 65534);
    let mut segments = Vec::new();
    assert_eq!(ring.take(BufferAccess::Read, &mut segments), Ok(false));
    guest.offer(8, 65534, &[5, 7]);
    assert_eq!(ring.available(9), Ok(2));
    assert_eq!(ring.take(BufferAccess::Read, &mut segments), Ok(true));
    assert_eq!(ring.take(BufferAccess::Read, &mut segments), Ok(true));
    assert_eq!(shape(&segments), [(0, 12), (100, 60), (200, 12), (300, 1500)]);
    assert_eq!(ring.take(BufferAccess::Read, &mut segments), Ok(false));
    // Buffers that are put back can be taken again, as if they had never been taken.
    ring.put_back(1);
    assert_eq!(ring.take(BufferAccess::Read, &mut segments), Ok(true));
    assert_eq!(shape(&segments)[2..], [(200, 12), (300, 1500), (200, 12), (300, 1500)]);
    ring.give_back_all(std::iter::once(77));
    ring.give_back_read(1);
    assert!(ring.is_unpublished());
    assert_eq!(guest.word(DEVICE + 2), 65534);
    assert!(ring.publish(no_log));
    assert_eq!(guest.word(DEVICE + 2), 0);
    assert_eq!(guest.read::<16>(DEVICE + 4 + 8 * 6), [5, 0, 0, 0, 77, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ring.position(), RingPosition(0));
}

#[test]
fn packed_rings_give_and_take_back_chains_on_each_lap() {
    let guest = Guest::new();
    let entries = 5;
    let mut ring = guest.ring(&Guest::config(entries, true), 0x8000);
    let (mut index, mut wrap_counter) = (0u64, true);
    for round in 0..20u16 {
        let available = if wrap_counter { DESC_AVAIL } else { DESC_USED };
        let (first, second) = (index, (index + 1) % u64::from(entries));
        let second_available = if (second == 0) ^ wrap_counter { DESC_AVAIL } else { DESC_USED };
        guest.describe(DESCRIPTORS, second, 100, 60, round, second_available);
        guest.describe(DESCRIPTORS, first, 0, 12, 99, available | DESC_NEXT);
        let mut segments = Vec::new();
        assert_eq!(ring.has_available(), Ok(true));
        assert_eq!(ring.take(BufferAccess::Read, &mut segments), Ok(true));
        assert_eq!(shape(&segments), [(0, 12), (100, 60)]);
        ring.put_back(1);
        assert_eq!(ring.take(BufferAccess::Read, &mut segments), Ok(true));
        assert_eq!(shape(&segments)[2..], [(0, 12), (100, 60)]);
        assert_eq!(ring.take(BufferAccess::Read, &mut segments), Ok(false));
        ring.give_back_read(1);
        assert!(ring.publish(no_log));
        // The id of the last descriptor is in the chain's first entry, with the flags of this lap.
        let used = if wrap_counter { DESC_AVAIL | DESC_USED } else { 0 };
        assert_eq!((guest.word(16 * first + 12), guest.word(16 * first + 14)), (round, used));
        index += 2;
        if index >= u64::from(entries) {
            (index, wrap_counter) = (index - u64::from(entries), !wrap_counter);
        }
        let position = index as u32 | u32::from(wrap_counter) << 15;
        assert_eq!(ring.position(), RingPosition(position | position << 16));
    }
}

#[test]
fn several_buffers_of_a_packed_ring_are_published_together() {
    let guest = Guest::new();
    let mut ring = guest.ring(&Guest::config(4, true), 0x8000);
    for index in 0..3 {
        guest.describe(DESCRIPTORS, index, 100 * index, 50, index as u16, DESC_AVAIL | DESC_WRITE);
    }
    assert_eq!(ring.available(9), Ok(3));
    let mut segments = Vec::new();
    assert!((0..3).all(|_| ring.take(BufferAccess::Write, &mut segments).unwrap()));
    ring.give_back_all(0..3);
    assert!((0..3).all(|index| guest.word(16 * index + 14) & DESC_USED == 0));
    ring.publish(no_log);
    assert!((0..3).all(|index| guest.word(16 * index + 14) & DESC_USED != 0));
    assert_eq!(guest.read::<4>(16 * 2 + 8), [2, 0, 0, 0]);
}

#[test]
fn buffers_of_one_piece_are_taken_up_to_the_first_of_another_kind() {
    for is_packed in [false, true] {
        let guest = Guest::new();
        for (index, kind) in (0..).zip([0, 0, 0, DESC_NEXT]) {
            let flags = DESC_WRITE | kind | if is_packed { DESC_AVAIL } else { 0 };
            let (third, fourth) = if is_packed { (index, flags) } else { (flags, 0) };
            guest.describe(DESCRIPTORS, index.into(), 100 * u64::from(index), 60, third, fourth);
        }
        guest.offer(8, 0, &[0, 1, 2, 3]);
        let mut ring = guest.ring(&Guest::config(8, is_packed), if is_packed { 0x8000 } else { 0 });
        let mut segments = [SgEntry::EMPTY; 8];
        assert_eq!(ring.take_singles(BufferAccess::Read, &mut segments), 0, "they are for writing");
        assert_eq!(ring.take_singles(BufferAccess::Write, &mut segments), 3);
        assert_eq!(shape(&segments[..3]), [(0, 60), (100, 60), (200, 60)]);
        ring.put_back(2);
        assert_eq!(ring.take_singles(BufferAccess::Write, &mut segments[..1]), 1);
        assert_eq!(shape(&segments[..1]), [(100, 60)]);
        ring.give_back_all([50, 60].into_iter());
        ring.publish(no_log);
        if is_packed {
            assert_eq!(guest.read::<6>(8), [50, 0, 0, 0, 0, 0]);
            assert_eq!(guest.read::<6>(16 + 8), [60, 0, 0, 0, 1, 0]);
        } else {
            assert_eq!(guest.word(DEVICE + 2), 2);
            assert_eq!(guest.read::<16>(DEVICE + 4), [0, 0, 0, 0, 50, 0, 0, 0, 1, 0, 0, 0, 60, 0, 0, 0]);
        }
        assert_eq!(ring.take_singles(BufferAccess::Write, &mut segments), 1);
        assert_eq!(shape(&segments[..1]), [(200, 60)]);
    }
}

#[test]
fn a_request_has_a_part_to_read_and_then_a_part_to_write() {
    for is_packed in [false, true] {
        let guest = Guest::new();
        let describe = |index: u16, buffer: u64, bytes: u32, kind: u16| {
            let flags = kind | if is_packed { DESC_AVAIL } else { 0 };
            let (third, fourth) = if is_packed { (index, flags) } else { (flags, index + 1) };
            guest.describe(DESCRIPTORS, index.into(), buffer, bytes, third, fourth);
        };
        let take = |segments: &mut Vec<SgEntry>| {
            let mut ring = guest.ring(&Guest::config(8, is_packed), if is_packed { 0x8000 } else { 0 });
            let taken = ring.take(BufferAccess::ReadThenWrite, segments);
            assert_eq!(ring.take_singles(BufferAccess::ReadThenWrite, &mut [SgEntry::EMPTY]), 0);
            taken
        };
        guest.offer(8, 0, &[0]);
        describe(0, 0, 2, DESC_NEXT);
        describe(1, 100, 6, DESC_NEXT);
        describe(2, 200, 1, DESC_WRITE);
        let mut segments = Vec::new();
        assert_eq!(take(&mut segments), Ok(true));
        assert_eq!(shape(&segments[..2]), [(0, 2), (100, 6)]);
        assert_eq!(segments[2].bytes, 0);
        assert_eq!(shape(&segments[3..]), [(200, 1)]);
        // A request may have only one of the parts.
        describe(1, 100, 6, 0);
        segments.clear();
        assert_eq!(take(&mut segments), Ok(true));
        assert_eq!(shape(&segments), [(0, 2), (100, 6)]);
        describe(0, 0, 2, DESC_WRITE);
        segments.clear();
        assert_eq!(take(&mut segments), Ok(true));
        assert_eq!(shape(&segments[1..]), [(0, 2)]);
        describe(0, 0, 2, DESC_WRITE | DESC_NEXT);
        assert_eq!(take(&mut segments), Err(RingFault::Direction));
    }
}

/// DPDK's driver marks the header of a frame so, in the tables of packed rings.
#[test]
fn a_frame_to_be_sent_may_lie_in_buffers_that_are_marked_for_writing() {
    for is_packed in [false, true] {
        let guest = Guest::new();
        guest.offer(8, 0, &[0]);
        for (index, buffer, bytes, kind) in [(0, 0, 12, DESC_WRITE | DESC_NEXT), (1, 100, 60, 0)] {
            let flags = kind | if is_packed { DESC_AVAIL } else { 0 };
            let (third, fourth) = if is_packed { (index, flags) } else { (flags, index + 1) };
            guest.describe(DESCRIPTORS, index.into(), buffer, bytes, third, fourth);
        }
        let mut ring = guest.ring(&Guest::config(8, is_packed), if is_packed { 0x8000 } else { 0 });
        let mut segments = Vec::new();
        assert_eq!(ring.take(BufferAccess::Read, &mut segments), Ok(true));
        assert_eq!(shape(&segments), [(0, 12), (100, 60)]);
    }
}

#[test]
fn the_driver_is_woken_only_on_request() {
    let guest = Guest::new();
    let use_one = |ring: &mut DeviceRing| {
        assert!(ring.take(BufferAccess::Read, &mut Vec::new()).unwrap());
        ring.give_back_read(1);
        ring.publish(no_log)
    };
    guest.describe(DESCRIPTORS, 0, 0, 60, 0, 0);
    let mut ring = guest.ring(&Guest::config(8, false), 0);
    guest.offer(8, 0, &[0; 6]);
    assert!(use_one(&mut ring));
    guest.set_word(DRIVER, AVAIL_NO_INTERRUPT);
    assert!(!use_one(&mut ring));
    ring.wake_me(false);
    assert_eq!(guest.word(DEVICE), USED_NO_NOTIFY);
    ring.wake_me(true);
    assert_eq!(guest.word(DEVICE), 0);

    let config = VirtqueueConfig { has_event_index: true, ..Guest::config(8, false) };
    let mut ring = guest.ring(&config, 2);
    // The driver's event is behind its ring. It asks for the fourth entry.
    guest.set_word(DRIVER + 4 + 2 * 8, 3);
    assert!(!use_one(&mut ring));
    assert!(use_one(&mut ring));
    assert!(!use_one(&mut ring));
    ring.wake_me(true);
    assert_eq!(guest.word(DEVICE + 4 + 8 * 8), 5);

    let guest = Guest::new();
    for index in 0..8 {
        guest.describe(DESCRIPTORS, index, 0, 60, 0, DESC_AVAIL);
    }
    let use_one = |ring: &mut DeviceRing| {
        assert!(ring.take(BufferAccess::Read, &mut Vec::new()).unwrap());
        ring.give_back_read(1);
        ring.publish(no_log)
    };
    let mut ring = guest.ring(&VirtqueueConfig { has_event_index: true, ..Guest::config(8, true) }, 0x8000);
    guest.set_word(DRIVER + 2, EVENT_DISABLE);
    assert!(!use_one(&mut ring));
    guest.set_word(DRIVER, 2 | 1 << 15);
    guest.set_word(DRIVER + 2, EVENT_AT_DESCRIPTOR);
    assert!(!use_one(&mut ring));
    assert!(use_one(&mut ring));
    ring.wake_me(true);
    assert_eq!((guest.word(DEVICE), guest.word(DEVICE + 2)), (3 | 1 << 15, EVENT_AT_DESCRIPTOR));
    ring.wake_me(false);
    assert_eq!(guest.word(DEVICE + 2), EVENT_DISABLE);
}

#[test]
fn each_broken_rule_has_its_own_fault() {
    let take = |guest: &Guest, access| guest.ring(&Guest::config(4, false), 0).take(access, &mut Vec::new());
    let guest = Guest::new();
    guest.set_word(DRIVER + 2, 5);
    assert_eq!(take(&guest, BufferAccess::Read), Err(RingFault::AvailableIndex));
    guest.offer(4, 0, &[4]);
    assert_eq!(take(&guest, BufferAccess::Read), Err(RingFault::NoSuchDescriptor(4)));
    guest.offer(4, 0, &[1]);
    guest.describe(DESCRIPTORS, 1, 0, 60, DESC_NEXT, 2);
    guest.describe(DESCRIPTORS, 2, 0, 60, DESC_NEXT, 1);
    assert_eq!(take(&guest, BufferAccess::Read), Err(RingFault::Endless));
    assert_eq!(take(&guest, BufferAccess::Write), Err(RingFault::Direction));
    guest.describe(DESCRIPTORS, 2, 0, 60, DESC_NEXT, 9);
    assert_eq!(take(&guest, BufferAccess::Read), Err(RingFault::NoSuchDescriptor(9)));
    guest.describe(DESCRIPTORS, 1, BYTES, 60, 0, 0);
    let outside = RingFault::NoMemory { address: GUEST + BUFFERS + BYTES, bytes: 60 };
    assert_eq!(take(&guest, BufferAccess::Read), Err(outside));
    guest.describe(DESCRIPTORS, 1, BYTES - BUFFERS - 10, 60, 0, 0);
    assert!(matches!(take(&guest, BufferAccess::Read), Err(RingFault::NoMemory { .. })));
    guest.describe(DESCRIPTORS, 1, 0, u32::MAX, 0, 0);
    assert_eq!(take(&guest, BufferAccess::Read), Err(RingFault::TooLong));
    // Tables that have an invalid size, are followed by a descriptor, are in a table, or were not negotiated.
    let table = |bytes, flags| guest.describe(DESCRIPTORS, 1, TABLE - BUFFERS, bytes, flags, 0);
    table(40, DESC_INDIRECT);
    assert_eq!(take(&guest, BufferAccess::Read), Err(RingFault::Table(40)));
    table(32, DESC_INDIRECT | DESC_NEXT);
    assert_eq!(take(&guest, BufferAccess::Read), Err(RingFault::Table(32)));
    guest.describe(TABLE, 0, 0, 16, DESC_INDIRECT, 0);
    table(32, DESC_INDIRECT);
    assert_eq!(take(&guest, BufferAccess::Read), Err(RingFault::Table(16)));
    guest.describe(TABLE, 0, 0, 60, DESC_NEXT, 0);
    assert_eq!(take(&guest, BufferAccess::Read), Err(RingFault::Endless));
    let plain = VirtqueueConfig { has_tables: false, ..Guest::config(4, false) };
    let refused = guest.ring(&plain, 0).take(BufferAccess::Read, &mut Vec::new());
    assert_eq!(refused, Err(RingFault::Table(32)));
    // The buffer has more segments than a frame can have.
    for index in 0..200 {
        guest.describe(TABLE, index, 0, 1, DESC_NEXT, index as u16 + 1);
    }
    table(16 * 200, DESC_INDIRECT);
    assert_eq!(take(&guest, BufferAccess::Read), Err(RingFault::TooManyPieces));

    let packed =
        |guest: &Guest| guest.ring(&Guest::config(4, true), 0x8000).take(BufferAccess::Read, &mut Vec::new());
    let guest = Guest::new();
    for index in 0..4 {
        guest.describe(DESCRIPTORS, index, 0, 10, 0, DESC_AVAIL | DESC_NEXT);
    }
    // The lap changes behind the last entry, so the chain leads to a descriptor that is not available.
    assert_eq!(packed(&guest), Err(RingFault::Endless));
    guest.describe(DESCRIPTORS, 1, 0, 10, 0, DESC_AVAIL | DESC_INDIRECT);
    assert_eq!(packed(&guest), Err(RingFault::Table(10)));
}

#[test]
fn pieces_and_bytes_of_a_table_count_towards_its_chain() {
    let guest = Guest::new();
    let take = || {
        let mut segments = Vec::new();
        let mut ring = guest.ring(&Guest::config(128, false), 0);
        ring.take(BufferAccess::Read, &mut segments).map(|_| segments.len())
    };
    // Chain of `direct` descriptors in the ring, then a table of `inner` ones, each with the given number of bytes.
    let offer = |(direct, direct_bytes): (u16, u32), (inner, inner_bytes): (u16, u32)| {
        for index in 0..direct {
            guest.describe(DESCRIPTORS, index.into(), 0, direct_bytes, DESC_NEXT, index + 1);
        }
        guest.describe(DESCRIPTORS, direct.into(), TABLE - BUFFERS, 16 * u32::from(inner), DESC_INDIRECT, 0);
        for index in 0..inner {
            let flags = if index + 1 == inner { 0 } else { DESC_NEXT };
            guest.describe(TABLE, index.into(), 0, inner_bytes, flags, index + 1);
        }
    };
    let most = MAX_SEGMENTS as u16;
    guest.offer(128, 0, &[0]);
    offer((most - 10, 1), (10, 1));
    assert_eq!(take(), Ok(MAX_SEGMENTS));
    offer((most - 10, 1), (11, 1));
    assert_eq!(take(), Err(RingFault::TooManyPieces));
    offer((1, MAX_CHAIN_BYTES / 2), (1, MAX_CHAIN_BYTES / 2));
    assert_eq!(take(), Ok(2));
    offer((1, MAX_CHAIN_BYTES / 2), (1, MAX_CHAIN_BYTES / 2 + 1));
    assert_eq!(take(), Err(RingFault::TooLong));
}

#[test]
fn rings_that_do_not_fit_are_refused() {
    let guest = Guest::new();
    let set_up = |change: fn(&mut VirtqueueConfig)| {
        let mut config = Guest::config(8, false);
        change(&mut config);
        DeviceRing::new(Arc::clone(&guest.memory), &config, RingPosition(0)).map(|_| ())
    };
    assert_eq!(set_up(|config| config.entries = 12), Err(RingSetupError::Entries(12)));
    assert_eq!(set_up(|config| config.entries = 0), Err(RingSetupError::Entries(0)));
    for change in [
        |config: &mut VirtqueueConfig| config.descriptors = USER + BYTES - 8 * 16 + 1,
        |config: &mut VirtqueueConfig| config.driver = USER + DRIVER + 1,
        |config: &mut VirtqueueConfig| config.device = USER - 1,
        |config: &mut VirtqueueConfig| config.device = u64::MAX,
    ] {
        assert!(matches!(set_up(change), Err(RingSetupError::PartAddress { .. })));
    }
    let packed = DeviceRing::new(Arc::clone(&guest.memory), &Guest::config(8, true), RingPosition(9));
    assert_eq!(packed.err(), Some(RingSetupError::Entries(9)));
}

#[test]
fn a_buffer_over_two_regions_has_two_pieces() {
    let guest = Guest::new();
    // The second half of the guest lies in the first half of the file.
    let halves = vec![
        region(&guest.file, GUEST, BYTES / 2, BYTES / 2),
        region(&guest.file, GUEST + BYTES / 2, 0, BYTES / 2),
    ];
    let memory = Arc::new(GuestMemory::new(halves).unwrap());
    let overlap = GuestMemory::new(vec![
        region(&guest.file, GUEST, 0, 4096),
        region(&guest.file, GUEST + 4095, 0, 4096),
    ]);
    assert!(matches!(overlap, Err(GuestMemoryError::Overlap { .. })));
    guest.write(BYTES / 2 + DESCRIPTORS, &(GUEST + BYTES / 2 - 10).to_le_bytes());
    guest.write(BYTES / 2 + DESCRIPTORS + 8, &60u32.to_le_bytes());
    guest.set_word(BYTES / 2 + DRIVER + 2, 1);
    let mut ring = DeviceRing::new(memory, &Guest::config(8, false), RingPosition(0)).unwrap();
    assert_eq!(ring.take_singles(BufferAccess::Read, &mut [SgEntry::EMPTY]), 0, "it has two pieces");
    let mut segments = Vec::new();
    assert_eq!(ring.take(BufferAccess::Read, &mut segments), Ok(true));
    let pieces: Vec<_> = segments.iter().map(|piece| (piece.guest - GUEST, piece.bytes)).collect();
    assert_eq!(pieces, [(BYTES / 2 - 10, 10), (BYTES / 2, 50)]);
}

#[test]
fn the_next_back_end_finds_buffers_in_flight() {
    for is_packed in [false, true] {
        let guest = Guest::new();
        let config = Guest::config(4, is_packed);
        let layout = InflightLayout { rings: 2, entries: 4, is_packed };
        let (inflight, kept) = Inflight::create(layout).unwrap();
        let (inflight, start) = (Arc::new(inflight), if is_packed { 0x8000 } else { 0 });
        for index in 0..3 {
            let flags = if is_packed { DESC_AVAIL } else { 0 };
            let (third, fourth) = if is_packed { (index, flags) } else { (flags, 0) };
            guest.describe(DESCRIPTORS, index.into(), 100 * u64::from(index), 60, third, fourth);
        }
        guest.offer(4, 0, &[0, 1, 2]);
        let mut ring = guest.ring(&config, start);
        ring.track(&inflight, 1).unwrap();
        assert_eq!(ring.track(&inflight, 2), Err(RingSetupError::Inflight(2)));
        let take = |ring: &mut DeviceRing| {
            let mut segments = Vec::new();
            ring.take(BufferAccess::Read, &mut segments).unwrap().then(|| shape(&segments)[0].0)
        };
        assert_eq!((take(&mut ring), take(&mut ring)), (Some(0), Some(100)));
        ring.give_back_read(1);
        ring.publish(no_log);
        // The back end ends here. The front end may report any position to the next one.
        let inflight = Arc::new(Inflight::map(layout, kept.as_fd(), 0).unwrap());
        let mut next = guest.ring(&config, start | 3);
        next.track(&inflight, 1).unwrap();
        let addresses: Vec<u64> = std::iter::from_fn(|| take(&mut next)).collect();
        assert_eq!(addresses, [100, 200]);
    }
}

fn wild_word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        // Values close to valid ones: an address within the memory, a short length, few flags.
        (0..BYTES).prop_map(|offset| GUEST + offset),
        (0u64..200, 0u64..8, 0u64..9).prop_map(|(bytes, flags, next)| bytes | flags << 32 | next << 48),
        (0u64..200, 0u64..9, any::<u16>())
            .prop_map(|(bytes, id, flags)| bytes | id << 32 | u64::from(flags & 0x8087) << 48),
    ]
}

proptest! {
    #[test]
    fn random_ring_bytes_never_lead_outside_guest_memory(
        descriptors in prop::collection::vec(wild_word(), 16),
        table in prop::collection::vec(wild_word(), 16),
        driver in prop::collection::vec(0u16..10, 11),
        is_packed: bool,
        access in prop_oneof![
            Just(BufferAccess::Read),
            Just(BufferAccess::Write),
            Just(BufferAccess::ReadThenWrite),
        ],
    ) {
        let guest = Guest::new();
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        guest.write(DESCRIPTORS, &bytes(&descriptors));
        guest.write(TABLE, &bytes(&table));
        guest.write(DRIVER, &driver.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
        let mut ring = guest.ring(&Guest::config(8, is_packed), if is_packed { 0x8000 } else { 0 });
        let mut taken = 0;
        loop {
            let mut singles = [SgEntry::EMPTY; 3];
            let count = ring.take_singles(access, &mut singles);
            ring.give_back_all((0..count).map(|_| 1));
            let mut segments = Vec::from(&singles[..count]);
            match ring.take(access, &mut segments) {
                Ok(true) => ring.give_back_all(std::iter::once(1)),
                Ok(false) | Err(_) => break,
            }
            // Nothing but the entry between the parts of a request is empty.
            let is_between = |piece: &&SgEntry| piece.bytes == 0;
            prop_assert!(segments.iter().filter(is_between).count() <= 1);
            segments.retain(|piece| piece.bytes != 0);
            prop_assert!(segments.len() <= count + MAX_SEGMENTS);
            for piece in &segments {
                prop_assert!(piece.guest >= GUEST && piece.guest + u64::from(piece.bytes) <= GUEST + BYTES);
            }
            taken += count + 1;
            prop_assert!(taken <= 8);
        }
        ring.publish(no_log);
    }
}
