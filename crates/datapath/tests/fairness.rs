//! No owner's ports, queues or floods take the time of others: the tests count copies, and measure no time.

#![allow(clippy::unwrap_used, unsafe_code)]

mod common;

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use common::{BROADCAST, Far, Near, station, user};
use ringroad_datapath::engine::Engine;
use ringroad_datapath::engine_queue::EngineQueue;
use ringroad_datapath::exchange::{Doorbell, exchange};
use ringroad_datapath::fabric::{Fabric, QueueParts, Share};
use ringroad_datapath::forwarding::{Forwarding, QueueRef, SwitchId, SwitchView, Topology};
use ringroad_datapath::scheduler::{OwnerId, TURN_COST};
use ringroad_port::counters::CounterSnapshot;
use ringroad_port::port_index::{MAX_PORTS, PortIndex};
use ringroad_switch::{LearningSwitch, MacTable, MacTableConfig};

struct Testbed {
    fabric: Fabric,
    engine: Arc<Mutex<Engine>>,
    /// Far side of the attacker's ports.
    attacker: Arc<Far>,
    bystanders: [Arc<Far>; 2],
}

impl Testbed {
    /// Creates a switch with two ports of one user, beside another user's `ports` ports of `queues` queues, each with
    /// `frames` frames of `bytes` bytes to flood.
    fn new(ports: u8, queues: usize, frames: u64, bytes: usize) -> Self {
        Self::with(user(2), ports, queues, frames, bytes)
    }

    fn with(attacker_share: Share, ports: u8, queues: usize, frames: u64, bytes: usize) -> Self {
        let (mut fabric, engine) = Fabric::stepped(MacTableConfig::new(0));
        let bystanders = [Far::sending(0), Far::sending(0)];
        for (number, far) in (1..).zip(&bystanders) {
            let near = Near::new(far, BROADCAST, station(number), 60);
            fabric.attach("vale8", &format!("b{number}"), user(1), near.parts()).unwrap();
        }
        let attacker = Far::sending(frames);
        for port in 0..ports {
            let near = |_| QueueParts::new(Box::new(Near::new(&attacker, BROADCAST, station(port), bytes)));
            let queues = (0..queues).map(near).collect();
            fabric.attach("vale9", &format!("e{port}"), attacker_share, queues).unwrap();
        }
        Self { fabric, engine, attacker, bystanders }
    }

    /// Sends a frame from one bystander to the other. Returns the work done for the attacker until the frame arrives:
    /// copies and checks.
    fn one_way(&self) -> (u64, u64) {
        let [one, other] = &self.bystanders;
        let before = (self.attacker.got.load(SeqCst), self.attacker.polls.load(SeqCst));
        let got = other.got.load(SeqCst);
        one.left.store(1, SeqCst);
        while other.got.load(SeqCst) == got {
            self.engine.lock().unwrap().turn();
        }
        (self.attacker.got.load(SeqCst) - before.0, self.attacker.polls.load(SeqCst) - before.1)
    }
}

#[test]
fn a_flood_over_thousands_of_queues_lets_a_bystander_wait_for_one_turn() {
    let site = Testbed::new(120, 16, u64::MAX, 60);
    let mut most = (0, 0);
    for _ in 0..500 {
        let (copies, polls) = site.one_way();
        most = (most.0.max(copies), most.1.max(polls));
    }
    // The turn's last batch may begin with nearly all of the share left, and ends with a whole flood.
    assert!(most.0 <= 2 * TURN_COST + MAX_PORTS as u64, "{most:?}");
    assert!(most.0 > 0 && most.1 > 0);
}

#[test]
fn a_flood_of_the_same_users_other_program_does_so_too() {
    let site = Testbed::with(Share::Program { user: 1, program: 1 }, 120, 16, u64::MAX, 60);
    for _ in 0..500 {
        assert!(site.one_way().0 <= 2 * TURN_COST + MAX_PORTS as u64);
    }
}

#[test]
fn a_flood_of_long_frames_lets_a_bystander_wait_for_one_turn() {
    let site = Testbed::new(100, 1, u64::MAX, 60_000);
    for _ in 0..100 {
        // A flood of one such frame costs more than a turn.
        assert!(site.one_way().0 <= 99);
    }
}

#[test]
fn thousands_of_empty_queues_let_a_bystander_wait_for_one_turn() {
    let site = Testbed::new(120, 16, 0, 60);
    for _ in 0..5000 {
        let (copies, polls) = site.one_way();
        assert!(copies == 0 && polls <= TURN_COST, "{polls}");
    }
    // The attacker's queues have been put to sleep meanwhile, and few are checked.
    assert!(site.one_way().1 <= 32);
}

#[test]
fn floods_do_not_pile_up_at_another_worker_before_a_bystanders_frame() {
    let bells = [Doorbell::new().unwrap(), Doorbell::new().unwrap()].map(Arc::new);
    let (outbox, inbox) = exchange(Arc::clone(&bells[1]));
    let [mut source, mut taker] = [Engine::new(0), Engine::new(1)];
    source.connect(vec![None, Some(outbox)], Vec::new());
    taker.connect(vec![None, None], vec![inbox]);
    let [attacker, flooded, bystander, other] =
        [Far::sending(u64::MAX), Far::sending(0), Far::sending(0), Far::sending(0)];
    // The first port of each of the two switches belongs to the first worker, all other ports to the second.
    for (number, from, to, ports) in [(0, &attacker, &flooded, 200), (1, &bystander, &other, 1)] {
        let (id, user) = (SwitchId(number), OwnerId { user: number.into(), program: 0 });
        let mut topology = Topology::default();
        let mut insert = |engine: &mut Engine, worker, index: u32, port: u8, far| {
            topology.set(PortIndex(port), vec![QueueRef { worker, frame_cost: 1, index }]);
            let forwarding = Forwarding::Switch { switch: id, port: PortIndex(port), queue: 0 };
            let near = Near::new(far, BROADCAST, station(port), 60);
            engine.insert(index, EngineQueue::new(Box::new(near), forwarding, Arc::default(), user));
        };
        insert(&mut source, 0, number.into(), 0, from);
        for port in 1..=ports {
            insert(&mut taker, 1, u32::from(number) * 250 + u32::from(port), port, to);
        }
        let table = MacTable::new(MacTableConfig::new(0)).unwrap();
        let (switch, topology) = (Arc::new(LearningSwitch::new(table)), Arc::new(topology));
        for engine in [&mut source, &mut taker] {
            let (decide, topology) = (switch.forwarding_plane(), Arc::clone(&topology));
            engine.set_switch(id, Some(SwitchView { decide, topology, counters: Arc::default() }));
        }
    }
    for _ in 0..200 {
        // The worker that only hands frames over is far ahead of the worker that copies.
        for _ in 0..100 {
            source.turn();
        }
        let (copies, got) = (flooded.got.load(SeqCst), other.got.load(SeqCst));
        bystander.left.store(1, SeqCst);
        while other.got.load(SeqCst) == got {
            for _ in 0..100 {
                source.turn();
            }
            taker.turn();
        }
        let copies = flooded.got.load(SeqCst) - copies;
        assert!(copies <= 4 * TURN_COST, "{copies}");
    }
    assert!(flooded.got.load(SeqCst) > 0);
}

#[test]
fn users_with_endless_work_get_equal_parts_with_any_number_of_queues() {
    let site = Testbed::new(120, 16, u64::MAX, 60);
    let [one, other] = &site.bystanders;
    one.left.store(u64::MAX, SeqCst);
    let (mut mine, mut all) = (0, 0);
    for _ in 0..2000 {
        let mut engine = site.engine.lock().unwrap();
        let (got, spent) = (other.got.load(SeqCst), engine.spent());
        engine.turn();
        all += engine.spent() - spent;
        if other.got.load(SeqCst) != got {
            mine += engine.spent() - spent;
        }
    }
    let difference = (2 * mine).abs_diff(all);
    assert!(difference <= 4 * TURN_COST, "{mine} of {all}");
}

#[test]
fn a_program_that_sends_to_a_dear_device_pays_for_what_the_device_costs() {
    let mut engine = Engine::new(0);
    let wires = [(8, Far::sending(0)), (1, Far::sending(0))];
    for (index, (frame_cost, far)) in [0, 2].into_iter().zip(&wires) {
        let owner = OwnerId { user: u64::from(index), program: 0 };
        let queue =
            |near: Near, forwarding| EngineQueue::new(Box::new(near), forwarding, Arc::default(), owner);
        let program = Near::new(&Far::sending(u64::MAX), BROADCAST, station(1), 60);
        let device = Near::new(far, BROADCAST, station(2), 60).costing(*frame_cost);
        engine.insert(index, queue(program, Forwarding::Wire(index + 1)));
        engine.insert(index + 1, queue(device, Forwarding::Hold));
    }
    for _ in 0..4000 {
        engine.turn();
    }
    let [dear, cheap] = wires.map(|(_, far)| far.got.load(SeqCst));
    assert!((7 * dear..9 * dear).contains(&cheap), "{dear} and {cheap} frames");
}

#[test]
fn a_batch_in_parts_reaches_every_port_once_and_in_order() {
    let (mut fabric, engine) = Fabric::stepped(MacTableConfig::new(0));
    let sender = Far::sending(1000);
    fabric.attach("vale0", "s", user(1), Near::new(&sender, BROADCAST, station(1), 60).parts()).unwrap();
    let sinks: Vec<_> = (0..100).map(|_| Far::sending(0)).collect();
    for (number, far) in sinks.iter().enumerate() {
        far.keeps_numbers.store(true, SeqCst);
        let near = Near::new(far, BROADCAST, station(number as u8 + 2), 60);
        fabric.attach("vale0", &format!("p{number}"), user(1), near.parts()).unwrap();
    }
    let mut turns = 0;
    while sender.taken.load(SeqCst) < 1000 {
        let mut engine = engine.lock().unwrap();
        assert!(engine.turn() < 256, "a batch is never flooded in one turn");
        assert!(sender.taken.load(SeqCst) == 1000 || !engine.fall_asleep(usize::MAX), "frames are held");
        turns += 1;
        assert!(turns < 1000);
    }
    let expected: Vec<u32> = (1..=1000).rev().collect();
    for far in &sinks {
        assert!(*far.numbers.lock().unwrap() == expected);
    }
    assert_eq!(sender.taken.load(SeqCst), 1000);
    let totals = fabric.switch_totals("vale0").unwrap().totals;
    assert_eq!((totals.received_frames, totals.delivered_frames), (1000, 100_000));
    assert_eq!(totals.received_bytes, 60_000);
    assert_eq!(CounterSnapshot::unaccounted(&[totals]), 0);
}

#[test]
fn a_port_that_leaves_amid_a_batch_leaves_exact_counters() {
    let mut site = Testbed::new(120, 2, u64::MAX, 60);
    for port in 0..120 {
        site.engine.lock().unwrap().turn();
        let left = site.attacker.left.load(SeqCst);
        site.fabric.detach("vale9", &format!("e{port}")).unwrap();
        // The last frames are forwarded, but not for ever.
        let drained = left - site.attacker.left.load(SeqCst);
        assert!(drained <= 65 * (TURN_COST + 256), "{drained}");
        site.attacker.is_closed.store(false, SeqCst);
    }
    assert_eq!((site.attacker.queues.load(SeqCst), site.attacker.unreleased.load(SeqCst)), (0, 0));
    let totals = site.fabric.totals();
    assert_eq!(totals.delivered_frames, site.attacker.got.load(SeqCst));
    assert_eq!(CounterSnapshot::unaccounted(&[totals]), 0);
}

#[test]
fn a_closed_port_forwards_its_published_frames_and_takes_no_more() {
    let (mut fabric, _engine) = Fabric::stepped(MacTableConfig::new(0));
    let (sender, got) = (Far::sending(4000), Far::sending(0));
    fabric.attach("vale0", "s", user(1), Near::new(&sender, BROADCAST, station(1), 60).parts()).unwrap();
    fabric.attach("vale0", "p", user(1), Near::new(&got, BROADCAST, station(2), 60).parts()).unwrap();
    fabric.detach("vale0", "s").unwrap();
    assert!(sender.is_closed.load(SeqCst));
}

#[test]
fn to_sleep_again_costs_time_only_for_the_queues_that_were_awake() {
    let site = Testbed::new(120, 16, 0, 60);
    let mut engine = site.engine.lock().unwrap();
    let told = |site: &Testbed| site.attacker.told.load(SeqCst);
    let mut tries = 0;
    while !engine.fall_asleep(512) {
        tries += 1;
    }
    assert_eq!((tries, told(&site)), (3, 120 * 16), "notified in parts");
    engine.awake();
    // Queue indexes from 2 on are the attacker's.
    assert!(engine.woken(100));
    engine.turn();
    assert!(engine.fall_asleep(512));
    assert_eq!(told(&site), 120 * 16 + 1);
}
