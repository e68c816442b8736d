//! Tests of the memory of many entries, and of the charge for it.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringroad_flow_tables::memory_budget::SharedBudget;
use ringroad_flow_tables::state::{FlowState, TableLimits};
use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::group_id;
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::{
    Bucket, FlowCommand, FlowMod, GroupCommand, GroupKind, GroupMod, MeterBand, MeterCommand, MeterFlags,
    MeterMod,
};
use ringroad_openflow::oxm::{FieldMatch, FieldValue, Match, OxmField};
use ringroad_openflow::{meter_id, table_id};

/// Allocator that counts the bytes in use, with glibc's overhead: a word before each piece, and multiples of 16.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);

fn piece(bytes: usize) -> usize {
    (bytes + 8).next_multiple_of(16).max(32)
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        USED.fetch_add(piece(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's promise for `layout` holds for the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        USED.fetch_sub(piece(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's promise for `at` and `layout` holds for the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Lock for a test: the tests count the bytes of the whole process, so one runs after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an exact entry for a UDP flow.
fn flow(number: u32) -> FlowMod {
    let fields = [
        (OxmField::EthType, 0x0800),
        (OxmField::IpProto, 17),
        (OxmField::Ipv4Src, u128::from(0x0a00_0000 + number)),
        (OxmField::Ipv4Dst, 0xc612_0001),
        (OxmField::UdpSrc, u128::from(number & 0xffff)),
        (OxmField::UdpDst, 9),
    ];
    let output = Action::Output { port: PortNo(1 + number % 4), max_len: 0 };
    let matching = Match::new(fields.map(|(field, value)| FieldMatch::exact(field, value))).unwrap();
    let instructions = Instructions { apply: Some(vec![output]), ..Instructions::default() };
    FlowMod { cookie: u64::from(number), ..FlowMod::add(0, 1, matching, instructions) }
}

/// Measures the bytes per entry of `flows` entries.
fn bytes_each(flows: u32) -> usize {
    let before = USED.load(Ordering::Relaxed);
    let (mut state, _needs) = FlowState::new(1, TableLimits::default());
    for number in 0..flows {
        state.flow_mod(&flow(number), 0).unwrap();
        if number % 1000 == 0 {
            state.publish();
        }
    }
    // Two publications are needed until both copies have everything.
    state.publish();
    state.set_drops_fragments(true);
    state.publish();
    (USED.load(Ordering::Relaxed) - before) / flows as usize
}

/// The controller's copy, the two copies of the workers and the counters are included.
#[test]
fn an_entry_takes_at_most_400_bytes() {
    let _alone = alone();
    // A hash table that has just doubled has the most unused buckets.
    let flows = (1 << 16) * 7 / 8 + 1;
    let each = bytes_each(flows);
    assert!(each <= 400, "{each} bytes");
}

/// Maximum of the memory in use, as a multiple of the charge.
const USED_FOR_CHARGED: f64 = 1.1;
/// Maximum of the charge, as a multiple of the memory in use.
const CHARGED_FOR_USED: f64 = 4.0;
/// Maximum memory that empty tables keep, bytes.
const KEPT_BYTES: usize = 512 << 10;

/// Number of actions in a list near the limit.
const LONG: u32 = 380;

fn actions(count: u32, from: u32) -> Vec<Action> {
    let set = |value: u32| FieldValue { field: OxmField::EthDst, value: value.into() };
    (from..from + count).map(|value| Action::SetField(set(value))).collect()
}

fn masked(mask: u64) -> Match {
    Match::new([FieldMatch { field: OxmField::EthDst, value: 0, mask: mask.into() }]).unwrap()
}

/// Fills tables with one kind of content.
type Fill = fn(&mut FlowState, u32) -> Result<(), ErrorCode>;

const FILLS: [(&str, u32, Fill); 8] = [
    ("exact flows", 20_000, |state, number| state.flow_mod(&flow(number), 0).map(drop)),
    ("flows that end", 20_000, |state, number| {
        state.flow_mod(&FlowMod { idle_timeout_s: 60, ..flow(number) }, 0).map(drop)
    }),
    ("long lists of actions", 1600, |state, number| {
        let apply = Some(actions(LONG, number));
        let instructions = Instructions { apply, ..Instructions::default() };
        state.flow_mod(&FlowMod { instructions, ..flow(number) }, 0).map(drop)
    }),
    ("short lists of actions", 20_000, |state, number| {
        let write = Some(actions(2, number));
        let instructions = Instructions { write, ..Instructions::default() };
        state.flow_mod(&FlowMod { instructions, ..flow(number) }, 0).map(drop)
    }),
    ("one shape for each entry, in one table", 500, |state, number| {
        let matching = masked(u64::from(number) << 3 | 1);
        state.flow_mod(&FlowMod { matching, ..flow(number) }, 0).map(drop)
    }),
    ("few shapes in each of many tables", 250 * 6, |state, number| {
        let (table, matching) = ((number % 250) as u8, masked(u64::from(number / 250) << 3 | 1));
        state.flow_mod(&FlowMod { table, matching, ..flow(number) }, 0).map(drop)
    }),
    ("groups", 2000, |state, number| {
        let bucket = Bucket {
            weight: 0,
            watch_port: PortNo::ANY,
            watch_group: group_id::ANY,
            actions: actions(number % 8, 0),
        };
        let buckets = vec![bucket; (number % 100) as usize];
        let request = GroupMod { command: GroupCommand::Add, kind: GroupKind::All, group: number, buckets };
        state.group_mod(&request, 0).map(drop)
    }),
    ("meters", 5000, |state, number| {
        let bands = vec![MeterBand::Drop { rate: 1, burst: 1 }; (number % 17) as usize];
        let (command, flags) = (MeterCommand::Add, MeterFlags::KBPS);
        state.meter_mod(&MeterMod { command, flags, meter: number + 1, bands }, 0).map(drop)
    }),
];

/// Deletes everything by requests of a controller.
fn delete_all(state: &mut FlowState) {
    let all = Match::default();
    let delete = FlowMod { command: FlowCommand::Delete, table: table_id::ALL, matching: all, ..flow(0) };
    state.flow_mod(&FlowMod { cookie: 0, ..delete }, 0).unwrap();
    let (command, kind) = (GroupCommand::Delete, GroupKind::All);
    state.group_mod(&GroupMod { command, kind, group: group_id::ALL, buckets: vec![] }, 0).unwrap();
    let (command, flags) = (MeterCommand::Delete, MeterFlags::KBPS);
    state.meter_mod(&MeterMod { command, flags, meter: meter_id::ALL, bands: vec![] }, 0).unwrap();
}

/// Publishes twice: only then both copies of the workers are complete.
fn settle(state: &mut FlowState) {
    (0..3).for_each(|_| state.publish());
}

#[test]
fn a_switch_is_charged_for_the_memory_that_it_uses_until_it_is_free() {
    let _alone = alone();
    for (what, count, fill) in FILLS {
        let (mut state, _needs) = FlowState::new(1, TableLimits::default());
        settle(&mut state);
        assert_eq!(state.memory_bytes(), 0);
        let before = USED.load(Ordering::Relaxed);
        for number in 0..count {
            fill(&mut state, number).unwrap();
            if number % 1000 == 0 {
                state.publish();
            }
        }
        settle(&mut state);
        let used = (USED.load(Ordering::Relaxed) - before) as f64;
        let charged = state.memory_bytes() as f64;
        assert!(used <= charged * USED_FOR_CHARGED, "{what}: {used} bytes in use, {charged} charged");
        assert!(charged <= used * CHARGED_FOR_USED, "{what}: {used} bytes in use, {charged} charged");
        delete_all(&mut state);
        settle(&mut state);
        assert_eq!(state.memory_bytes(), 0, "{what}");
        let kept = USED.load(Ordering::Relaxed).saturating_sub(before);
        assert!(kept <= KEPT_BYTES, "{what}: {kept} bytes of {used} are kept");
    }
}

#[test]
fn a_change_beyond_the_memory_is_refused_and_costs_nothing() {
    let _alone = alone();
    const LIMIT: u64 = 2 << 20;
    for (what, count, fill) in FILLS {
        let limits = TableLimits { memory_bytes: LIMIT, ..TableLimits::default() };
        let (mut state, _needs) = FlowState::new(1, limits);
        let before = USED.load(Ordering::Relaxed);
        let refused = (0..count).find_map(|number| fill(&mut state, number).err());
        let expected = match what {
            "groups" => ErrorCode::GROUP_OUT_OF_GROUPS,
            "meters" => ErrorCode::METER_OUT_OF_METERS,
            _ => ErrorCode::FLOW_TABLE_FULL,
        };
        assert_eq!(refused, Some(expected), "{what}");
        let charged = state.memory_bytes();
        assert!(charged <= LIMIT && charged > LIMIT / 2, "{what}: {charged}");
        let used = USED.load(Ordering::Relaxed) - before;
        // The measured bytes include empty tables, and changes that workers have not seen yet.
        assert!(used as f64 <= LIMIT as f64 * USED_FOR_CHARGED + 2e6, "{what}: {used}");
        // Deletions make room at once, even before workers have seen them.
        delete_all(&mut state);
        fill(&mut state, count).unwrap();
        delete_all(&mut state);
        settle(&mut state);
        assert_eq!(state.memory_bytes(), 0, "{what}");
    }
}

#[test]
fn switches_share_memory_and_each_has_a_little_in_any_case() {
    let _alone = alone();
    let shared = SharedBudget::new(1 << 20);
    let switch = || FlowState::within(1, TableLimits::default(), std::sync::Arc::clone(&shared)).0;
    let (mut one, mut other) = (switch(), switch());
    let full = (0..).find_map(|number| one.flow_mod(&flow(number), 0).err());
    assert_eq!(full, Some(ErrorCode::FLOW_TABLE_FULL));
    other.flow_mod(&flow(0), 0).unwrap();
    let full = (0..).find_map(|number| other.flow_mod(&flow(number), 0).err());
    assert_eq!(full, Some(ErrorCode::FLOW_TABLE_FULL));
    assert_eq!(shared.used_bytes(), one.memory_bytes() + other.memory_bytes());
    assert!(other.memory_bytes() < one.memory_bytes() / 2);
    drop(one);
    assert_eq!(shared.used_bytes(), other.memory_bytes());
    (1000..1100).for_each(|number| drop(other.flow_mod(&flow(number), 0).unwrap()));
}

#[test]
fn changed_and_replaced_entries_are_charged_once() {
    let _alone = alone();
    let (mut state, _needs) = FlowState::new(1, TableLimits::default());
    let long = |from| Instructions { apply: Some(actions(LONG, from)), ..Instructions::default() };
    state.flow_mod(&flow(1), 0).unwrap();
    state.flow_mod(&flow(5), 0).unwrap();
    settle(&mut state);
    let short = state.memory_bytes();
    for round in 0..20 {
        // Both entries share the same instructions.
        let matching = Match::default();
        let modify = FlowMod { command: FlowCommand::Modify, matching, instructions: long(round), ..flow(0) };
        state.flow_mod(&modify, 0).unwrap();
        state.flow_mod(&FlowMod { instructions: long(round), ..flow(1) }, 0).unwrap();
        settle(&mut state);
        let added = state.memory_bytes() - short;
        assert!((u64::from(LONG) * 31..u64::from(LONG) * 48).contains(&added), "{added}");
    }
    state.flow_mod(&flow(1), 0).unwrap();
    state.flow_mod(&flow(5), 0).unwrap();
    settle(&mut state);
    assert_eq!(state.memory_bytes(), short);
}
