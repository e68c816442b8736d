//! Tests of charged steps: a decision is charged exactly the steps that it takes, ends at its budget, and drops a frame
//! that would take too many.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;
use ringroad_flow_tables::control_frame::port_number;
use ringroad_flow_tables::forwarding_plane::FlowPlane;
use ringroad_flow_tables::state::{FlowState, TableLimits};
use ringroad_flow_tables::tables::TablePort;
use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::group_id;
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::{
    Bucket, FlowMod, GroupCommand, GroupKind, GroupMod, MeterBand, MeterCommand, MeterFlags, MeterMod,
    PortConfig,
};
use ringroad_openflow::oxm::{FieldMatch, FieldValue, Match, OxmField};
use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::clock::Clock;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::forwarding_plane::{BatchPlan, Decision, ForwardingPlane, Outcome, STEPS_PER_COST};
use ringroad_port::frame::Fragment;
use ringroad_port::port_index::{MAX_PORTS, PortIndex};
use ringroad_switch::{LearningSwitch, MacTable, MacTableConfig};

const FROM: PortIndex = PortIndex(0);
const TO: PortIndex = PortIndex(1);
const CONTROLLERS: PortIndex = PortIndex(MAX_PORTS as u8 - 1);
/// Port that no switch here has.
const GONE: PortNo = PortNo(9);

/// A switch, its one worker, and the entries as they were added.
struct Testbed {
    state: FlowState,
    plane: FlowPlane,
    plan: BatchPlan,
    entries: Vec<(u8, u16, FieldMatch, Instructions)>,
    groups: BTreeMap<u32, (GroupKind, Vec<Bucket>)>,
    bands: BTreeMap<u32, usize>,
}

impl Testbed {
    fn new() -> Self {
        let (mut state, needs) = FlowState::new(1, TableLimits::default());
        for port in [FROM, TO] {
            let known = TablePort { config: PortConfig::default(), is_live: true };
            state.set_port(port_number(port), Some(known));
        }
        let switch = LearningSwitch::new(MacTable::new(MacTableConfig::new(0)).unwrap());
        let plane = FlowPlane::new(needs[0].clone(), Arc::new(switch), CONTROLLERS, Clock::manual());
        Self {
            state,
            plane,
            plan: BatchPlan::new(),
            entries: Vec::new(),
            groups: BTreeMap::new(),
            bands: BTreeMap::new(),
        }
    }

    fn flow(&mut self, table: u8, priority: u16, matched: FieldMatch, instructions: Instructions) {
        let fields = Some(matched).filter(|one| one.mask != 0);
        let request = FlowMod::add(table, priority, Match::new(fields).unwrap(), instructions.clone());
        self.state.flow_mod(&request, 0).unwrap();
        self.entries.push((table, priority, matched, instructions));
    }

    fn group(&mut self, group: u32, kind: GroupKind, mut buckets: Vec<Bucket>) {
        buckets.iter_mut().for_each(|bucket| bucket.weight = u16::from(kind == GroupKind::Select));
        let request = GroupMod { command: GroupCommand::Add, kind, group, buckets: buckets.clone() };
        self.state.group_mod(&request, 0).unwrap();
        self.groups.insert(group, (kind, buckets));
    }

    fn meter(&mut self, meter: u32, bands: usize) {
        let band = MeterBand::Drop { rate: u32::MAX, burst: u32::MAX };
        let (command, flags) = (MeterCommand::Add, MeterFlags::KBPS | MeterFlags::BURST);
        self.state.meter_mod(&MeterMod { command, flags, meter, bands: vec![band; bands] }, 0).unwrap();
        self.bands.insert(meter, bands);
    }

    /// Decides on frames to these addresses, from number `first` on.
    fn decide(&mut self, to: &[u16], first: usize, budget: u64) -> Decision {
        let frames: Vec<Vec<u8>> = to.iter().map(|&to| frame(to)).collect();
        let mut batch = Batch::new();
        batch.reset(BATCH_FRAMES);
        for frame in &frames {
            // SAFETY: the frames outlive the batch, and nothing writes to them.
            batch.push(unsafe { Fragment::from_private(frame, 0) }, true);
        }
        self.plan.reset(first..to.len());
        let decided = self.plane.decide(FROM, &batch, first, budget, &mut self.plan);
        self.plane.executed(FROM, &batch, first..decided.end, &self.plan);
        decided
    }

    /// Computes the steps of a frame from the entries alone: the steps of lookups, and those of the instructions'
    /// interpreter.
    fn steps(&self, to: u16) -> (u64, u64) {
        let (mut searches, mut acts, mut tables, mut is_plain) = (0, 0, 0, true);
        let (mut table, mut set) = (0, Vec::new());
        loop {
            let here: Vec<_> = self.entries.iter().filter(|(of, ..)| *of == table).collect();
            let matches = |matched: &FieldMatch| u128::from(to) & matched.mask == matched.value;
            let found = here.iter().filter(|(_, _, matched, _)| matches(matched)).max_by_key(|one| one.1);
            let priority = found.map_or(-1, |one| i32::from(one.1));
            // Each mask has a hash table. Those with the highest priority are searched first, until none can beat the
            // entry found.
            let mut masks: BTreeMap<u128, (u16, i32)> = BTreeMap::new();
            for (_, other, matched, _) in &here {
                let (top, best) = masks.entry(matched.mask).or_insert((0, -1));
                *top = (*top).max(*other);
                *best = (*best).max(if matches(matched) { i32::from(*other) } else { -1 });
            }
            let mut masks: Vec<_> = masks.into_values().collect();
            masks.sort_by_key(|(top, _)| std::cmp::Reverse(*top));
            let mut best = -1;
            for (top, own) in masks {
                if i32::from(top) <= best {
                    break;
                }
                searches += 1;
                best = best.max(own);
            }
            assert_eq!(best, priority);
            tables += 1;
            let Some((_, _, _, instructions)) = found else {
                // A packet without an entry skips its action set.
                return (searches, if is_plain { 0 } else { tables + acts });
            };
            let Instructions { meter, apply, write, goto, .. } = instructions;
            let actions = apply.iter().chain(write).flatten().count();
            let leaves = apply.iter().chain(write).flatten().all(|one| matches!(one, Action::Output { .. }));
            is_plain &= meter.is_none() && (actions == 0 || actions == 1 && goto.is_none() && leaves);
            acts += meter.map_or(0, |meter| 1 + self.bands[&meter].div_ceil(4) as u64) + actions as u64;
            // An action on headers counts four times: once in the list, three times when it is done.
            let changes = apply.iter().flatten().filter(|action| matches!(action, Action::SetField(_)));
            acts += 3 * changes.count() as u64;
            acts += self.of_groups(apply.iter().flatten());
            set.extend(write.iter().flatten().copied());
            match goto {
                Some(next) => table = *next,
                None => break,
            }
        }
        acts += self.of_groups(set.iter().rev().find(|action| matches!(action, Action::Group(_))));
        if set.iter().any(|action| matches!(action, Action::Group(_) | Action::Output { .. })) {
            acts += changes_of_set(&set);
        }
        (searches, if is_plain { 0 } else { tables + acts })
    }

    fn of_groups<'actions>(&self, actions: impl IntoIterator<Item = &'actions Action>) -> u64 {
        // A bucket's actions form a set, which has only the last group.
        let of_bucket = |bucket: &Bucket| {
            let group = bucket.actions.iter().rev().find(|action| matches!(action, Action::Group(_)));
            1 + bucket.actions.len() as u64 + changes_of_set(&bucket.actions) + self.of_groups(group)
        };
        let of_group = |action: &Action| {
            let Action::Group(group) = action else { return 0 };
            let (kind, buckets) = &self.groups[group];
            let live = buckets.iter().position(|bucket| bucket.watch_port != GONE);
            match kind {
                GroupKind::All => buckets.iter().map(of_bucket).sum(),
                GroupKind::Indirect => of_bucket(&buckets[0]),
                // All buckets of such a group are the same here.
                GroupKind::Select => buckets.len().div_ceil(16) as u64 + of_bucket(&buckets[0]),
                GroupKind::FastFailover => match live {
                    Some(live) => (live + 1).div_ceil(16) as u64 + of_bucket(&buckets[live]),
                    None => buckets.len().div_ceil(16) as u64,
                },
            }
        };
        actions.into_iter().map(of_group).sum()
    }
}

/// Counts the changes of headers by an action set, three times each. The fourth count of each is in the set's length.
fn changes_of_set(set: &[Action]) -> u64 {
    let of = |action: &Action| match action {
        Action::SetField(set) => Some(set.field),
        _ => None,
    };
    3 * set.iter().filter_map(of).collect::<HashSet<_>>().len() as u64
}

fn frame(to: u16) -> Vec<u8> {
    let mut frame = vec![0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    frame[4..6].copy_from_slice(&to.to_be_bytes());
    frame.resize(60, 0);
    frame
}

fn to_port() -> Action {
    Action::Output { port: port_number(TO), max_len: 0 }
}

fn changes(count: usize) -> Vec<Action> {
    (0..count)
        .map(|value| Action::SetField(FieldValue { field: OxmField::EthSrc, value: value as u128 }))
        .collect()
}

fn bucket(actions: Vec<Action>, watch_port: PortNo) -> Bucket {
    Bucket { weight: 0, watch_port, watch_group: group_id::ANY, actions }
}

fn by_mask(value: u16, mask: u16) -> FieldMatch {
    FieldMatch { field: OxmField::EthDst, value: (value & mask).into(), mask: mask.into() }
}

/// Makes a switch with groups 1 to 5 and meters 1 and 2.
fn site() -> Testbed {
    let mut site = Testbed::new();
    site.group(1, GroupKind::All, (1..4).map(|len| bucket(changes(len), PortNo::ANY)).collect());
    site.group(2, GroupKind::Select, vec![bucket([changes(2), vec![to_port()]].concat(), PortNo::ANY); 35]);
    let dead = bucket(changes(7), GONE);
    let live = bucket(vec![Action::Group(1), to_port()], PortNo::ANY);
    let failover = [vec![dead.clone(); 16], vec![live; 2]].concat();
    site.group(3, GroupKind::FastFailover, failover);
    site.group(4, GroupKind::FastFailover, vec![dead.clone(), dead]);
    site.group(5, GroupKind::Indirect, vec![bucket(vec![Action::Group(3), Action::Group(2)], PortNo::ANY)]);
    site.meter(1, 1);
    site.meter(2, 9);
    site
}

/// Makes instructions for an entry of a table.
fn instructions(table: u8) -> impl Strategy<Value = Instructions> {
    let list = || {
        prop_oneof![
            2 => Just(None),
            2 => Just(Some(vec![to_port()])),
            1 => (0..6usize).prop_map(|count| Some(changes(count))),
            1 => (1..6u32, 0..3usize).prop_map(|(group, count)| {
                Some([changes(count), vec![Action::Group(group)]].concat())
            }),
        ]
    };
    let goto = (any::<bool>(), 1..3u8)
        .prop_map(move |(goes, far)| (goes && table < LAST_TABLE).then(|| (table + far).min(LAST_TABLE)));
    (list(), list(), goto, proptest::option::weighted(0.2, 1..3u32)).prop_map(
        |(apply, write, goto, meter)| Instructions { apply, write, goto, meter, ..Instructions::default() },
    )
}

const LAST_TABLE: u8 = 3;
/// Masks, fewer than a table merges.
const MASKS: [u16; 6] = [0xffff, 0xfff0, 0x0fff, 0xff00, 0x000f, 0];

/// Makes entries: table, address, mask, and instructions.
fn entries(most: usize) -> impl Strategy<Value = Vec<(u8, u16, u16, Instructions)>> {
    let one = (0..=LAST_TABLE).prop_flat_map(|table| {
        (Just(table), 0..200u16, prop::sample::select(&MASKS[..]), instructions(table))
    });
    proptest::collection::vec(one, 0..most)
}

impl Testbed {
    /// Adds entries, each with its own priority, so that the hash tables have one order.
    fn flows(&mut self, entries: Vec<(u8, u16, u16, Instructions)>) {
        let mut known = HashSet::new();
        for ((table, value, mask, instructions), priority) in entries.into_iter().zip((1..).step_by(7)) {
            if known.insert((table, value & mask, mask)) {
                self.flow(table, priority % 101 * 50 + priority / 101, by_mask(value, mask), instructions);
            }
        }
        self.state.publish();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_charge_equals_the_steps_exactly(
        entries in entries(40),
        order in proptest::collection::vec(0..200u16, 1..40),
        budget in 0..60u64,
    ) {
        let mut site = site();
        site.flows(entries);
        let used: HashSet<_> = site.entries.iter().map(|(table, _, matched, _)| (*table, matched.mask)).collect();
        let is_cached = used.len() >= 4;
        // A decision that depends on the port alone is made once for all frames.
        let is_common = site.entries.iter().all(|(.., matched, _)| matched.mask == 0);
        // Each frame has an address of its own, so the cache does not know it from earlier frames.
        let mut to = order.clone();
        to.sort_unstable();
        to.dedup();
        let expected = |site: &Testbed, to: u16, is_known: bool| {
            let (searches, acts) = site.steps(to);
            acts + if is_known { 0 } else { searches } + u64::from(is_cached && !is_common)
        };
        let mut first = 0;
        while first < to.len() {
            let Decision { end, steps } = site.decide(&to, first, budget);
            prop_assert!(end > first && end <= to.len());
            let searches = if is_common { site.steps(to[first]).0 } else { 0 };
            let each = |frame: usize| expected(&site, to[frame], is_common);
            let sum: u64 = searches + (first..end).map(each).sum::<u64>();
            prop_assert_eq!(steps, sum, "frames {} to {} of {:?}", first, end, &to);
            // The cost of copies can end a decision earlier, but nothing ends it later. Cache queries, one for each
            // frame, do not count for the budget.
            let lookups = u64::from(is_cached && !is_common);
            let before: u64 = (first..end - 1).map(|frame| each(frame) - lookups).sum();
            prop_assert!(end == first + 1 || before < budget, "{} steps of {}", before, budget);
            first = end;
        }
    }
}

#[test]
fn a_cached_path_is_charged_what_is_done_again() {
    let mut site = site();
    let on = Instructions { goto: Some(1), ..Instructions::default() };
    for (priority, mask) in (10..).zip([0xff00, 0xf000, 0x0f00]) {
        site.flow(0, priority, by_mask(0xffff, mask), Instructions::default());
    }
    site.flow(0, 1, by_mask(0, 0), on);
    let does = |actions: Vec<Action>| Instructions { apply: Some(actions), ..Instructions::default() };
    site.flow(1, 3, by_mask(1, 0xffff), does(vec![to_port()]));
    site.flow(1, 2, by_mask(2, 0xffff), does([changes(4), vec![to_port()]].concat()));
    site.state.publish();
    // Both frames: one cache query, four hash tables of table 0, and one of table 1. The second frame: also two tables,
    // an output, and four changes, which count four times.
    assert_eq!((site.steps(1), site.steps(2)), ((5, 0), (5, 19)));
    assert_eq!(site.decide(&[1, 2], 0, u64::MAX).steps, 1 + 5 + 1 + 5 + 19);
    assert_eq!(site.decide(&[1, 2], 0, u64::MAX).steps, 1 + 1 + 19);
    assert_eq!(site.decide(&[2, 2, 1, 1], 0, u64::MAX).steps, 2 * (1 + 19) + 2);
}

#[test]
fn a_decision_ends_where_its_steps_and_copies_reach_the_budget() {
    let mut site = Testbed::new();
    let does = |actions: Vec<Action>| Instructions { apply: Some(actions), ..Instructions::default() };
    site.flow(0, 2, by_mask(1, 0xffff), does([changes(24), vec![Action::SetQueue(1); 2]].concat()));
    site.flow(0, 1, by_mask(2, 0xffff), does([vec![to_port(); 12], changes(1)].concat()));
    site.state.publish();
    let each = (site.steps(1), site.steps(2));
    assert_eq!(each, ((1, 99), (1, 17)));
    for (budget, end) in [(0, 1), (100, 1), (101, 2), (200, 2), (201, 3), (u64::MAX, 200)] {
        let decided = site.decide(&[1; 200], 0, budget);
        assert_eq!(decided, Decision { end, steps: end as u64 * 100 });
    }
    // Each frame has twelve copies.
    let of_one = 18 + 12 * STEPS_PER_COST;
    for (budget, end) in [(of_one, 1), (of_one + 1, 2), (10 * of_one, 10)] {
        assert_eq!(site.decide(&[2; 200], 0, budget), Decision { end, steps: end as u64 * 18 });
    }
}

#[test]
fn a_frame_may_leave_by_each_port_of_a_switch_with_a_header_of_its_own() {
    let mut site = Testbed::new();
    let each = [changes(1), vec![to_port()]].concat();
    site.group(1, GroupKind::All, vec![bucket(each, PortNo::ANY); MAX_PORTS]);
    let does = Instructions { apply: Some(vec![Action::Group(1)]), ..Instructions::default() };
    site.flow(0, 1, by_mask(0, 0), does);
    site.state.publish();
    let decided = site.decide(&[1], 0, u64::MAX);
    // Steps: a hash table, a table and the entry's action. For each port a bucket, an output, and a change that counts
    // four times.
    assert_eq!(decided, Decision { end: 1, steps: 3 + 6 * MAX_PORTS as u64 });
    assert_ne!(site.plan.outcome(0), Outcome::Drop(DropCause::TooManySteps));
}

#[test]
fn a_list_with_more_actions_than_a_frame_may_take_is_refused() {
    let site = Testbed::new();
    let outputs = |count| vec![to_port(); count];
    let changes_and_outputs = |count: usize| [changes(count / 4), outputs(count % 4)].concat();
    for list in [&outputs as &dyn Fn(usize) -> Vec<Action>, &changes_and_outputs] {
        assert_eq!(site.state.check_actions(&list(1536), None), Ok(()));
        assert_eq!(site.state.check_actions(&list(1537), None), Err(ErrorCode::ACTION_TOO_MANY));
    }
}

/// Adds entries whose shapes have no bits in common, and which no frame matches: each lookup has to search all shapes.
fn many_shapes(site: &mut Testbed, table: u8, then: Instructions) {
    for (priority, bit) in (1..).zip(0..64) {
        let matched = FieldMatch { field: OxmField::Metadata, value: 1 << bit, mask: 1 << bit };
        site.flow(table, priority, matched, Instructions::default());
    }
    site.flow(table, 0, by_mask(0, 0), then);
}

#[test]
fn a_frame_that_would_take_too_many_steps_is_dropped_and_takes_no_more() {
    // The limit applies to lookups without the interpreter, and to lookups after an action.
    for (actions, tables) in [(0, 40), (1, 40)] {
        let mut site = Testbed::new();
        for table in 0..tables {
            let next = (table + 1 < tables).then_some(table + 1);
            let apply = match next {
                Some(_) if actions == 0 => None,
                Some(_) => Some(changes(actions)),
                None => Some(vec![to_port()]),
            };
            let then = Instructions { goto: next, apply, ..Instructions::default() };
            many_shapes(&mut site, table, then);
        }
        site.state.publish();
        for round in 0..2 {
            let Decision { end, steps } = site.decide(&[1, 2, 3], 0, 1);
            assert_eq!(
                (end, site.plan.outcome(0)),
                (1, Outcome::Drop(DropCause::TooManySteps)),
                "round {round}"
            );
            // The limit of searches, the actions of 40 tables, each four times, and the steps for all frames at once,
            // in one table.
            assert!((2048..=2048 + 4 * 40 + 65 + 1).contains(&steps), "{steps}");
        }
    }
    // The limit applies to actions, too: a group of groups.
    let mut site = Testbed::new();
    site.group(0, GroupKind::All, vec![bucket(changes(3), PortNo::ANY); 10]);
    for level in 1..6 {
        site.group(level, GroupKind::All, vec![bucket(vec![Action::Group(level - 1)], PortNo::ANY); 10]);
    }
    let does = Instructions { apply: Some(vec![Action::Group(5)]), ..Instructions::default() };
    site.flow(0, 1, by_mask(0, 0), does);
    site.state.publish();
    let Decision { end, steps } = site.decide(&[1, 2, 3], 0, 1);
    assert_eq!((end, site.plan.outcome(0)), (1, Outcome::Drop(DropCause::TooManySteps)));
    assert!((1500..=1538).contains(&steps), "{steps}");
}
