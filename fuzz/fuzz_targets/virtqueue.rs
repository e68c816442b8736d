//! Fuzz target: any bytes as a virtqueue, of both layouts, that changes while it is used. Taken chains lie in the
//! shared memory, and the taking ends.
#![no_main]

use std::os::fd::AsFd;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use ringroad_virtqueue::chain::{BufferAccess, MAX_SEGMENTS, SgEntry};
use ringroad_virtqueue::device_ring::{DeviceRing, RingPosition, VirtqueueConfig};
use ringroad_virtqueue::guest_memory::{GuestMemory, GuestRegion, RegionLayout};

const BYTES: usize = 8192;
/// Guest's address of the first byte: so small that random words are addresses often enough.
const GUEST: u64 = 0x1000;

static FILE: LazyLock<std::os::fd::OwnedFd> = LazyLock::new(|| {
    let file = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, BYTES as u64).unwrap();
    file
});
static MEMORY: LazyLock<Arc<GuestMemory>> = LazyLock::new(|| {
    let layout = RegionLayout { guest: GUEST, user: 0, bytes: BYTES as u64, file_offset: 0 };
    let region = Arc::new(GuestRegion::map(layout, FILE.as_fd()).unwrap());
    Arc::new(GuestMemory::new(vec![region]).unwrap())
});

fuzz_target!(|data: &[u8]| {
    let Some((&[kind, entries, ref changes @ ..], rest)) = data.split_first_chunk::<8>() else { return };
    let mut image = rest[..rest.len().min(BYTES)].to_vec();
    image.resize(BYTES, 0);
    rustix::io::pwrite(&*FILE, &image, 0).unwrap();
    let is_packed = kind & 1 != 0;
    let config = VirtqueueConfig {
        entries: if is_packed { u16::from(entries % 64) } else { 1 << (entries % 7) },
        descriptors: 0,
        driver: 1024,
        device: 2048,
        is_packed,
        has_event_index: kind & 2 != 0,
        has_tables: kind & 4 != 0,
    };
    let access = match kind & 40 {
        0 => BufferAccess::Read,
        8 => BufferAccess::Write,
        _ => BufferAccess::ReadThenWrite,
    };
    let Ok(mut ring) =
        DeviceRing::new(Arc::clone(&MEMORY), &config, RingPosition(u32::from(kind & 16) << 11))
    else {
        return;
    };
    let mut segments = Vec::new();
    for &change in changes {
        // The guest may write into the memory that is being read, at any time.
        rustix::io::pwrite(&*FILE, &[change], u64::from(change) * 4).unwrap();
        for _ in 0..config.entries {
            let mut singles = [SgEntry::EMPTY; 4];
            let count = if change & 4 != 0 { ring.take_singles(access, &mut singles) } else { 0 };
            ring.give_back_all((0..count).map(|_| change.into()));
            segments.clear();
            segments.extend(&singles[..count]);
            let Ok(true) = ring.take(access, &mut segments) else { break };
            // The entry between the parts of a request is empty.
            segments.retain(|piece| piece.bytes != 0);
            assert!(segments.len() <= count + MAX_SEGMENTS);
            for piece in &segments {
                assert!(piece.guest >= GUEST && piece.guest + u64::from(piece.bytes) <= GUEST + BYTES as u64);
            }
            if change & 1 != 0 {
                ring.put_back(1);
                break;
            }
            ring.give_back_all(std::iter::once(change.into()));
        }
        ring.publish(|_, _| ());
        ring.wake_me(change & 2 != 0);
        if ring.available(4).is_err() {
            return;
        }
    }
});
