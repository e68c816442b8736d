//! The datapath executes any forwarding plane's plan exactly: sets of ports, copies, header rewrites; on one worker and
//! on two.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use ringroad_datapath::engine::Engine;
use ringroad_datapath::engine_queue::EngineQueue;
use ringroad_datapath::exchange::{Doorbell, exchange};
use ringroad_datapath::forwarding::{Forwarding, QueueRef, SwitchId, SwitchView, Topology};
use ringroad_datapath::scheduler::{OwnerId, TURN_COST};
use ringroad_port::batch::{Batch, FrameMeta};
use ringroad_port::counters::{CounterSnapshot, QueueCounters};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::forwarding_plane::{
    BatchPlan, Decision, Destination, ForwardingPlane, FrameCopy, MAX_COPIES, Outcome, STEPS_PER_COST,
};
use ringroad_port::frame::Fragment;
use ringroad_port::offload::Unfinished;
use ringroad_port::port_index::PortIndex;
use ringroad_port::port_queue::{Delivery, PortQueue};
use ringroad_ring::layout::{MAX_FRAGMENTS, slot_flags::MORE_FRAGMENTS};

const SWITCH: SwitchId = SwitchId(0);
const PORTS: u8 = 4;
/// Index without a port.
const GONE: u8 = 9;

/// Fragments of a frame.
type Parts = Vec<Vec<u8>>;

/// Far side of a port: the batches that it sends, and the frames that it got.
#[derive(Default)]
struct Far {
    sends: Vec<Vec<(Parts, FrameMeta)>>,
    got: Vec<(Vec<u8>, FrameMeta)>,
    /// Number of slots taken and not given back.
    lent: usize,
}

struct Near {
    far: Arc<Mutex<Far>>,
    /// Sent frames, whose bytes stay at their addresses.
    memory: Vec<Vec<(Parts, FrameMeta)>>,
}

impl PortQueue for Near {
    fn receive(&mut self, batch: &mut Batch) {
        let mut far = self.far.lock().unwrap();
        if far.sends.is_empty() {
            return;
        }
        self.memory.push(far.sends.remove(0));
        for (parts, meta) in self.memory.last().unwrap() {
            for (index, part) in parts.iter().enumerate() {
                let flags = if index + 1 < parts.len() { MORE_FRAGMENTS } else { 0 };
                // SAFETY: the memory is kept until the queue goes.
                batch.push(unsafe { Fragment::from_private(part, flags) }, index == 0);
            }
            batch.describe(*meta);
        }
        far.lent += batch.slots();
    }

    fn release(&mut self, slots: usize) {
        self.far.lock().unwrap().lent -= slots;
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        let mut delivery = Delivery::default();
        for &number in frames {
            let fragments = batch.frame(number.into());
            let (last, others) = fragments.split_last().unwrap();
            assert!(
                !last.has_more() && others.iter().all(Fragment::has_more) && others.len() < MAX_FRAGMENTS
            );
            let mut bytes = Vec::new();
            for fragment in fragments {
                let mut part = vec![0; fragment.len()];
                fragment.bytes().read(&mut part);
                bytes.extend(part);
            }
            delivery.frames += 1;
            delivery.bytes += bytes.len() as u64;
            self.far.lock().unwrap().got.push((bytes, batch.meta(number.into())));
        }
        delivery
    }

    fn takes_unfinished(&mut self) -> bool {
        true
    }
}

/// Decides by the number at the start of a frame.
struct ByNumber<Choose> {
    choose: Choose,
    /// Numbers of the frames that were executed.
    executed: Arc<Mutex<Vec<u8>>>,
}

impl<Choose> std::fmt::Debug for ByNumber<Choose> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ByNumber")
    }
}

fn number_of(batch: &Batch, frame: usize) -> u8 {
    let mut number = [0];
    batch.first_fragment(frame).unwrap().bytes().read(&mut number);
    number[0]
}

impl<Choose: FnMut(u8, usize, &mut BatchPlan) + Send> ForwardingPlane for ByNumber<Choose> {
    fn decide(
        &mut self,
        from: PortIndex,
        batch: &Batch,
        first: usize,
        _: u64,
        plan: &mut BatchPlan,
    ) -> Decision {
        assert_eq!(from, PortIndex(0));
        for frame in first..batch.frames() {
            (self.choose)(number_of(batch, frame), frame, plan);
        }
        Decision::all(batch)
    }

    fn executed(&mut self, _from: PortIndex, batch: &Batch, range: Range<usize>, _plan: &BatchPlan) {
        self.executed.lock().unwrap().extend(range.map(|frame| number_of(batch, frame)));
    }
}

/// Sends all frames to port 1, and takes `steps_each` steps for each.
#[derive(Debug)]
struct Dear {
    steps_each: u64,
    /// Frames decided, repeated decisions included.
    decided: Arc<AtomicU64>,
}

impl ForwardingPlane for Dear {
    fn decide(
        &mut self,
        _: PortIndex,
        batch: &Batch,
        first: usize,
        budget: u64,
        plan: &mut BatchPlan,
    ) -> Decision {
        let affordable = usize::try_from(budget.div_ceil(self.steps_each)).unwrap_or(usize::MAX).max(1);
        let end = batch.frames().min(first.saturating_add(affordable));
        plan.set_common(first..end, Outcome::Port(PortIndex(1)));
        self.decided.fetch_add((end - first) as u64, Ordering::Relaxed);
        Decision { end, steps: (end - first) as u64 * self.steps_each }
    }
}

/// Sends several copies of each frame to port 3, each with a header of its own.
#[derive(Debug)]
struct Copying(usize);

impl ForwardingPlane for Copying {
    fn decide(
        &mut self,
        _: PortIndex,
        batch: &Batch,
        first: usize,
        _: u64,
        plan: &mut BatchPlan,
    ) -> Decision {
        for frame in first..batch.frames() {
            let copies: Vec<_> = (0..self.0)
                .map(|_| FrameCopy { rewrite: plan.rewrite(1, &[number_of(batch, frame)]), ..copy_to(3) })
                .collect();
            plan.copy(frame, &copies);
        }
        Decision::all(batch)
    }
}

/// A switch of four ports; the first port sends.
struct Testbed {
    engines: Vec<Engine>,
    fars: Vec<Arc<Mutex<Far>>>,
    counters: Vec<Arc<QueueCounters>>,
    executed: Arc<Mutex<Vec<u8>>>,
}

impl Testbed {
    /// Creates a switch with `workers` workers, which serve its ports in turn.
    fn new(workers: u8, decision: impl FnMut(u8, usize, &mut BatchPlan) + Send + 'static) -> Self {
        let mut engines: Vec<_> = (0..workers).map(|worker| Engine::new(worker.into())).collect();
        if let [one, other] = &mut engines[..] {
            let ((to_other, from_one), (to_one, from_other)) = (path(), path());
            one.connect(vec![None, Some(to_other)], vec![from_other]);
            other.connect(vec![Some(to_one), None], vec![from_one]);
        }
        let fars: Vec<_> = (0..PORTS).map(|_| Arc::<Mutex<Far>>::default()).collect();
        let mut counters: Vec<Arc<QueueCounters>> = (0..PORTS).map(|_| Arc::default()).collect();
        let mut topology = Topology::default();
        for (number, (far, counters)) in (0u8..).zip(fars.iter().zip(&counters)) {
            let (port, worker, index) = (PortIndex(number), number % workers, u32::from(number));
            let forwarding = Forwarding::Switch { switch: SWITCH, port, queue: 0 };
            let near = Box::new(Near { far: Arc::clone(far), memory: Vec::new() });
            let owner = OwnerId { user: 0, program: 0 };
            engines[usize::from(worker)]
                .insert(index, EngineQueue::new(near, forwarding, Arc::clone(counters), owner));
            topology.set(port, vec![QueueRef { worker: worker.into(), frame_cost: 1, index }]);
        }
        let executed = Arc::<Mutex<Vec<u8>>>::default();
        let topology = Arc::new(topology);
        let mut decision = Some(decision);
        for engine in &mut engines {
            // The first worker alone has a port that sends.
            let decide: Box<dyn ForwardingPlane> = match decision.take() {
                Some(decision) => Box::new(ByNumber { choose: decision, executed: Arc::clone(&executed) }),
                None => Box::new(ByNumber { choose: |_, _, _: &mut BatchPlan| (), executed: Arc::default() }),
            };
            counters.push(Arc::default());
            let counters = Arc::clone(counters.last().unwrap());
            engine.set_switch(SWITCH, Some(SwitchView { decide, topology: Arc::clone(&topology), counters }));
        }
        Self { engines, fars, counters, executed }
    }

    fn send(&self, batch: Vec<(Parts, FrameMeta)>) {
        self.fars[0].lock().unwrap().sends.push(batch);
    }

    fn run(&mut self) {
        while self.engines.iter_mut().map(Engine::step).sum::<usize>() != 0 {}
    }

    fn got(&self) -> Vec<Vec<Vec<u8>>> {
        let got = |far: &Arc<Mutex<Far>>| {
            far.lock().unwrap().got.drain(..).map(|(bytes, _)| bytes).collect::<Vec<_>>()
        };
        self.fars.iter().map(got).collect()
    }

    /// Sums the counters, and checks that they add up.
    fn counters(&self) -> CounterSnapshot {
        let mut sum = CounterSnapshot::default();
        self.counters.iter().for_each(|counters| counters.add_to(&mut sum));
        assert_eq!(CounterSnapshot::unaccounted(std::slice::from_ref(&sum)), 0, "{sum:?}");
        assert!(self.fars.iter().all(|far| far.lock().unwrap().lent == 0), "all slots came back");
        sum
    }
}

fn path() -> (ringroad_datapath::exchange::Outbox, ringroad_datapath::exchange::Inbox) {
    exchange(Arc::new(Doorbell::new().unwrap()))
}

fn frame(number: u8, bytes: usize) -> Vec<u8> {
    std::iter::once(number).chain((1..bytes).map(|index| index as u8)).collect()
}

fn plain(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<(Parts, FrameMeta)> {
    frames.into_iter().map(|frame| (vec![frame], FrameMeta::default())).collect()
}

fn copy_to(port: u8) -> FrameCopy {
    FrameCopy { to: Destination::Port(PortIndex(port)), rewrite: None }
}

#[test]
fn a_mirror_gets_a_tagged_copy_of_every_frame() {
    for workers in [1, 2] {
        let mut bed = Testbed::new(workers, |number, frame, plan| {
            let rewrite = [&[number], &[7; 11][..], &[0x81, 0, 0, 42]].concat();
            let rewrite = plan.rewrite(12, &rewrite);
            plan.copy(frame, &[copy_to(1), FrameCopy { rewrite, ..copy_to(2) }]);
        });
        bed.send(plain((0..200).map(|number| frame(number, 60))));
        bed.run();
        let [source, direct, mirror, other] = bed.got().try_into().unwrap();
        assert!(source.is_empty() && other.is_empty());
        assert_eq!(direct, (0..200).map(|number| frame(number, 60)).collect::<Vec<_>>());
        for (number, tagged) in (0u8..).zip(&mirror) {
            let rest = &frame(number, 60)[12..];
            assert_eq!(*tagged, [&[number], &[7; 11][..], &[0x81, 0, 0, 42], rest].concat());
        }
        let counters = bed.counters();
        assert_eq!(mirror.len(), 200);
        assert_eq!((counters.received_frames, counters.delivered_frames), (200, 400));
    }
}

#[test]
fn decisions_are_charged_to_the_owner_and_stop_in_the_middle_of_a_batch() {
    const FRAMES: u64 = 200;
    // Cost of the decision on a frame, in units of its delivery.
    for decision_cost in [1, 50, TURN_COST / 2, TURN_COST, 3 * TURN_COST] {
        let mut bed = Testbed::new(1, |_, _, _: &mut BatchPlan| ());
        let decided = Arc::<AtomicU64>::default();
        let dear = Dear { steps_each: decision_cost * STEPS_PER_COST, decided: Arc::clone(&decided) };
        bed.engines[0].set_forwarding_plane(SWITCH, Box::new(dear));
        bed.send(plain((0..FRAMES as u8).map(|number| frame(number, 60))));
        let (mut polls, mut turns, mut got) = (0, 0, Vec::new());
        while got.len() < FRAMES as usize {
            let (spent, frames) = (bed.engines[0].spent(), decided.load(Ordering::Relaxed));
            bed.engines[0].turn();
            got.extend(bed.got().swap_remove(1));
            let frames = decided.load(Ordering::Relaxed) - frames;
            let spent = bed.engines[0].spent() - spent;
            // Checks of queues cost a unit each, and are few.
            polls += spent - frames * (decision_cost + 1);
            assert!(frames * decision_cost < TURN_COST + 2 * decision_cost, "{frames} frames in a turn");
            turns += 1;
        }
        assert_eq!(got, (0..FRAMES as u8).map(|number| frame(number, 60)).collect::<Vec<_>>());
        assert_eq!(decided.load(Ordering::Relaxed), FRAMES, "no frame is decided twice");
        // Bytes of the frames cost units, too.
        let bytes_cost = FRAMES * 60 / 512;
        assert!(polls <= 16 * turns + bytes_cost, "{polls} units more in {turns} turns");
        // Other owners have turns, too, so this owner gets no more than its share.
        assert!(turns >= FRAMES * decision_cost / (TURN_COST + decision_cost), "{turns} turns");
        bed.counters();
    }
}

#[test]
fn several_queues_of_an_owner_can_each_have_frames_that_wait_for_memory() {
    const FRAMES: u8 = 200;
    const COPIES: usize = 20;
    let mut bed = Testbed::new(1, |_, _, _: &mut BatchPlan| ());
    bed.engines[0].set_forwarding_plane(SWITCH, Box::new(Copying(COPIES)));
    for source in 0..2 {
        let frames = (0..FRAMES).map(|number| frame(number, 60));
        bed.fars[source].lock().unwrap().sends.push(plain(frames));
    }
    assert!((1..2 * u64::from(FRAMES)).contains(&(bed.engines[0].step() as u64)), "some frames wait");
    bed.run();
    assert_eq!(bed.got()[3].len(), 2 * usize::from(FRAMES) * COPIES);
    assert_eq!(bed.counters().received_frames, 2 * u64::from(FRAMES));
}

#[test]
fn the_offsets_of_open_tasks_move_with_the_headers() {
    let open = |start: u16| {
        Unfinished::from_header(
            &[[1, 0].as_slice(), &[54, 0, start, 16].map(u16::to_ne_bytes).concat()].concat(),
        )
    };
    let mut bed = Testbed::new(1, |number, frame, plan| {
        // The first frame gets a tag, the second loses one, the third loses the start of its checksum, the fourth all
        // headers.
        let (replaces, len) = [(12, 16), (16, 12), (60, 14), (100, 40)][usize::from(number)];
        let rewrite = plan.rewrite(replaces, &vec![number; len]);
        plan.copy(frame, &[FrameCopy { rewrite, ..copy_to(1) }]);
    });
    let frames = [34, 38, 34, 34].map(|start| FrameMeta { timestamp_ns: 5, unfinished: open(start) });
    bed.send((0u8..).zip(frames).map(|(number, meta)| (vec![frame(number, 100)], meta)).collect());
    bed.run();
    let metas: Vec<_> = bed.fars[1].lock().unwrap().got.iter().map(|(_, meta)| *meta).collect();
    let moved = |start| FrameMeta { timestamp_ns: 5, unfinished: open(start) };
    let finished = FrameMeta { timestamp_ns: 5, ..FrameMeta::default() };
    assert_eq!(metas, [moved(38), moved(34), finished]);
    assert_eq!(bed.counters().dropped[DropCause::BadOffload as usize], 1);
}

#[test]
fn frames_without_memory_wait_until_another_worker_has_copied() {
    let mut bed = Testbed::new(2, |number, frame, plan| {
        let copies: Vec<_> = (0..100u8)
            .map(|copy| {
                let rewrite = plan.rewrite(2, &[number, copy, 0]);
                FrameCopy { rewrite, ..copy_to(1) }
            })
            .collect();
        plan.copy(frame, &copies);
    });
    bed.send(plain((0..200).map(|number| frame(number, 60))));
    // The other worker consumes nothing meanwhile.
    while bed.engines[0].step() != 0 {}
    let done = bed.executed.lock().unwrap().len();
    assert!(0 < done && done < 200, "{done}");
    bed.run();
    let got = bed.got();
    assert_eq!(got[1].len(), 200 * 100);
    let order = (0..200u8).flat_map(|number| (0..100u8).map(move |copy| [number, copy]));
    assert!(got[1].iter().zip(order).all(|(got, expected)| got[..2] == expected && got.len() == 61));
    assert_eq!(*bed.executed.lock().unwrap(), (0..200).collect::<Vec<_>>(), "each frame once, in order");
    assert_eq!(bed.counters().replicated_frames, 200 * 99);
}

#[test]
fn outcomes_that_cannot_be_executed_are_dropped_by_cause() {
    let mut bed = Testbed::new(2, |number, frame, plan| match number {
        // Frame 0 gets no outcome, frame 1 a port that does not exist.
        0 => {}
        1 => plan.set_outcome(frame, Outcome::Port(PortIndex(GONE))),
        // Frame 2 has fewer bytes than are replaced; frame 3 becomes too short.
        2 | 3 => {
            let rewrite = plan.rewrite(if number == 2 { 61 } else { 60 }, &[0; 13]);
            plan.copy(frame, &[FrameCopy { rewrite, ..copy_to(1) }]);
        }
        // Frame 4 has the maximum number of fragments, and gets a header as one more.
        4 => {
            let rewrite = plan.rewrite(0, &[0; 4]);
            plan.copy(frame, &[FrameCopy { rewrite, ..copy_to(1) }]);
        }
        // Frame 5 gets more copies of more fragments than an exchange has entries.
        _ => plan.copy(frame, &[copy_to(1); MAX_COPIES]),
    });
    let mut batch = plain((0..4).map(|number| frame(number, 60)));
    for number in [4, 5] {
        let parts = (0..MAX_FRAGMENTS).map(|_| vec![number; 20]).collect();
        batch.push((parts, FrameMeta::default()));
    }
    bed.send(batch);
    bed.run();
    assert!(bed.got().iter().all(Vec::is_empty));
    let dropped = bed.counters().dropped;
    let of = |cause: DropCause| dropped[cause as usize];
    assert_eq!(of(DropCause::NoDestination), 1);
    assert_eq!(of(DropCause::PortGone), 1);
    assert_eq!(of(DropCause::TooShort), 2);
    assert_eq!(of(DropCause::TooLong), 2);
}

/// Decision: copies, each to a port, to all other ports or to a set, with the number of bytes that are replaced and the
/// length of their replacement.
#[derive(Debug, Clone)]
enum To {
    Port(u8),
    Others,
    Ports(Vec<u8>),
}

#[derive(Debug, Clone)]
struct Copy {
    to: To,
    rewrite: Option<(usize, usize)>,
}

fn copies() -> impl Strategy<Value = Vec<Copy>> {
    let port = || prop_oneof![6 => 0..PORTS, 1 => Just(GONE)];
    let to = prop_oneof![
        3 => port().prop_map(To::Port),
        1 => Just(To::Others),
        2 => proptest::collection::vec(port(), 0..5).prop_map(To::Ports),
    ];
    let rewrite = proptest::option::of((0..30usize, 14..40usize));
    let copy = (to, rewrite).prop_map(|(to, rewrite)| Copy { to, rewrite });
    // Plans without copies are the most frequent in practice.
    prop_oneof![2 => proptest::collection::vec(copy.clone(), 0..4), 3 => copy.prop_map(|copy| vec![Copy { rewrite: None, ..copy }])]
}

fn parts() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![Just(vec![60]), proptest::collection::vec(0..40usize, 1..5)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_port_gets_what_the_plan_gives_it_in_order_and_the_sum_is_exact(
        frames in proptest::collection::vec((parts(), copies()), 1..250),
        workers in 1..=2u8,
        is_plain in any::<bool>(),
    ) {
        let frames: Vec<(Parts, Vec<Copy>)> = (0u8..)
            .zip(frames)
            .map(|(number, (lengths, mut copies))| {
                if is_plain {
                    copies.truncate(1);
                    copies.iter_mut().for_each(|copy| copy.rewrite = None);
                }
                // The first fragment holds the bytes that decisions read, and all fragments together the bytes that are
                // replaced.
                let mut whole = frame(number, 30 + lengths.iter().sum::<usize>());
                let mut parts: Parts = lengths.iter().map(|&len| whole.split_off(whole.len() - len)).rev().collect();
                parts.insert(0, whole);
                (parts, copies)
            })
            .collect();
        let mut expected = vec![Vec::new(); usize::from(PORTS)];
        for (parts, copies) in &frames {
            for Copy { to, rewrite } in copies {
                let mut bytes = parts.concat();
                if let Some((replaces, len)) = *rewrite {
                    bytes.splice(..replaces, std::iter::repeat_n(0xaa, len));
                }
                let ports: Vec<u8> = match to {
                    To::Port(port) => vec![*port],
                    To::Others => (1..PORTS).collect(),
                    To::Ports(ports) => (0..PORTS).filter(|port| ports.contains(port)).collect(),
                };
                for port in ports {
                    if let Some(expected) = expected.get_mut(usize::from(port)) {
                        expected.push(bytes.clone());
                    }
                }
            }
        }
        let decisions: Vec<_> = frames.iter().map(|(_, copies)| copies.clone()).collect();
        let mut bed = Testbed::new(workers, move |number, frame, plan| {
            let copies: Vec<_> = decisions[usize::from(number)].iter().map(|Copy { to, rewrite }| FrameCopy {
                to: match to {
                    To::Port(port) => Destination::Port(PortIndex(*port)),
                    To::Others => Destination::Others,
                    To::Ports(ports) => {
                        Destination::Ports(plan.set(ports.iter().map(|&port| PortIndex(port)).collect()).unwrap())
                    }
                },
                rewrite: rewrite.map(|(replaces, len)| plan.rewrite(replaces, &vec![0xaa; len]).unwrap()),
            }).collect();
            plan.copy(frame, &copies);
        });
        for batch in frames.chunks(100) {
            bed.send(batch.iter().map(|(parts, _)| (parts.clone(), FrameMeta::default())).collect());
        }
        bed.run();
        // The source shares a worker with some ports and not with others, and each kind of destination keeps its order.
        prop_assert_eq!(bed.got(), expected);
        prop_assert_eq!(bed.counters().received_frames, frames.len() as u64);
    }
}
