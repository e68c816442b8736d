//! Memory of many entries.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use ringroad_flow_tables::state::{FlowState, Limits};
use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::group_id;
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::{FlowCommand, FlowFlags, FlowMod};
use ringroad_openflow::oxm::{Field, FieldMatch, Match};

/// Counts the bytes in use, with what glibc's allocator adds: a word before each piece, and multiples of 16.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);

fn piece(bytes: usize) -> usize {
    (bytes + 8).next_multiple_of(16).max(32)
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        USED.fetch_add(piece(layout.size()), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        USED.fetch_sub(piece(layout.size()), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// An exact UDP flow.
fn flow(number: u32) -> FlowMod {
    let fields = [
        (Field::EthType, 0x0800),
        (Field::IpProto, 17),
        (Field::Ipv4Src, u128::from(0x0a00_0000 + number)),
        (Field::Ipv4Dst, 0xc612_0001),
        (Field::UdpSrc, u128::from(number & 0xffff)),
        (Field::UdpDst, 9),
    ];
    let output = Action::Output { port: PortNo(1 + number % 4), max_len: 0 };
    FlowMod {
        cookie: u64::from(number),
        cookie_mask: 0,
        table: 0,
        command: FlowCommand::Add,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        priority: 1,
        buffer_id: None,
        out_port: PortNo::ANY,
        out_group: group_id::ANY,
        flags: FlowFlags::default(),
        matching: Match::new(fields.map(|(field, value)| FieldMatch::exact(field, value))).unwrap(),
        instructions: Instructions { apply: Some(vec![output]), ..Instructions::default() },
    }
}

/// Bytes per entry with `flows` entries.
fn bytes_each(flows: u32) -> usize {
    let before = USED.load(Ordering::Relaxed);
    let (mut state, _needs) = FlowState::new(1, Limits::default());
    for number in 0..flows {
        state.flow_mod(&flow(number), 0).unwrap();
        if number % 1000 == 0 {
            state.publish();
        }
    }
    // Twice: only then both copies have all.
    state.publish();
    state.set_fragments(ringroad_flow_tables::tables::Fragments::Drop);
    state.publish();
    (USED.load(Ordering::Relaxed) - before) / flows as usize
}

/// The controller's copy and the two of the workers are in it, and the counters.
#[test]
fn an_entry_takes_at_most_400_bytes() {
    // A hash table that has just become twice as long is at its emptiest.
    let flows = (1 << 16) * 7 / 8 + 1;
    let each = bytes_each(flows);
    assert!(each <= 400, "{each} bytes");
}
