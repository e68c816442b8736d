//! Received plus replicated equals delivered plus dropped, also if ports come and go while frames move.

#![allow(clippy::unwrap_used, unsafe_code)]

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use common::{BROADCAST, Far, Near, station, user};
use ringroad_datapath::engine::Engine;
use ringroad_datapath::engine_queue::EngineQueue;
use ringroad_datapath::exchange::{Doorbell, Handoff, HandoffTarget, exchange};
use ringroad_datapath::fabric::{Fabric, Share};
use ringroad_datapath::forwarding::{Forwarding, SwitchId};
use ringroad_datapath::scheduler::OwnerId;
use ringroad_datapath::worker::WorkerConfig;
use ringroad_port::batch::FrameMeta;
use ringroad_port::counters::CounterSnapshot;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::port_index::PortIndex;
use ringroad_switch::MacTableConfig;

const USER: Share = user(1);

fn sink(far: &Arc<Far>, number: u8) -> Near {
    Near::new(far, BROADCAST, station(number), 60)
}

#[test]
fn frames_for_a_port_under_replacement_are_in_its_counters() {
    let (mut fabric, engine) = Fabric::stepped(MacTableConfig::new(0));
    let (sender, got) = (Far::sending(1000), Arc::<Far>::default());
    fabric.attach("vale0", "s", USER, Near::new(&sender, BROADCAST, station(1), 60).parts()).unwrap();
    fabric.attach("vale0", "p", USER, sink(&got, 2).parts()).unwrap();
    for _ in 0..3 {
        fabric.replace("vale0", "p", USER, sink(&got, 2).stepping(&engine).parts()).unwrap();
    }
    assert!(got.got.load(SeqCst) > 0, "frames came during the changes");
    let counters = fabric.port_counters("vale0", "p").unwrap();
    assert_eq!(counters.delivered_frames, got.got.load(SeqCst));
    let totals = fabric.switch_totals("vale0").unwrap().totals;
    assert_eq!(totals.received_frames, 1000 - sender.left.load(SeqCst));
    assert_eq!(CounterSnapshot::unaccounted(&[totals]), 0);
}

fn check_churn(workers: u16) {
    let worker = |index| WorkerConfig { index, cpu: None, spin: Duration::ZERO, busy: true };
    let mut fabric = Fabric::threaded((0..workers).map(worker).collect(), MacTableConfig::new(0)).unwrap();
    let got = Arc::<Far>::default();
    let senders: Vec<_> = (1..4).map(|number| (number, Far::sending(u64::MAX))).collect();
    for (number, far) in &senders {
        let near = Near::new(far, BROADCAST, station(*number), 60);
        fabric.attach("vale0", &format!("s{number}"), user((*number).into()), near.parts()).unwrap();
    }
    fabric.attach("vale0", "p", USER, sink(&got, 10).parts()).unwrap();
    for round in 0..90u64 {
        // Ports change while frames are moving.
        let before = got.got.load(SeqCst);
        while got.got.load(SeqCst) == before {
            std::thread::yield_now();
        }
        match round % 3 {
            0 => fabric.replace("vale0", "p", USER, sink(&got, 10).parts()).unwrap(),
            1 => drop(fabric.attach("vale0", "q", Share::Own, sink(&got, 11).parts()).unwrap()),
            _ => drop(fabric.detach("vale0", "q").unwrap()),
        }
    }
    for (number, far) in &senders {
        fabric.detach("vale0", &format!("s{number}")).unwrap();
        assert_eq!((far.queues.load(SeqCst), far.unreleased.load(SeqCst)), (0, 0));
    }
    let totals = fabric.switch_totals("vale0").unwrap().totals;
    let taken: u64 = senders.iter().map(|(_, far)| far.taken.load(SeqCst)).sum();
    assert!(totals.received_frames <= taken, "{} of {taken}", totals.received_frames);
    // Senders get each other's frames too.
    let all_got = got.got.load(SeqCst) + senders.iter().map(|(_, far)| far.got.load(SeqCst)).sum::<u64>();
    assert_eq!(totals.delivered_frames, all_got);
    assert_eq!(CounterSnapshot::unaccounted(std::slice::from_ref(&totals)), 0);
    // The counters outlive the switch.
    fabric.detach("vale0", "p").unwrap();
    assert_eq!(fabric.switch_names().count(), 0);
    let all = fabric.totals();
    assert_eq!((all.received_frames, all.delivered_frames), (totals.received_frames, all_got));
    assert_eq!(CounterSnapshot::unaccounted(&[all]), 0);
}

#[test]
fn the_sum_is_exact_after_ports_came_and_went_under_load_on_one_worker() {
    check_churn(1);
}

#[test]
fn the_sum_is_exact_after_ports_came_and_went_under_load_on_two_workers() {
    check_churn(2);
}

#[test]
fn the_counters_of_a_wire_outlive_it() {
    let (mut fabric, engine) = Fabric::stepped(MacTableConfig::new(0));
    let (sender, got) = (Far::sending(10), Arc::<Far>::default());
    let near = Near::new(&sender, BROADCAST, station(1), 60);
    let wire = fabric.wire(USER, near.parts(), sink(&got, 2).parts()).unwrap();
    while engine.lock().unwrap().step() != 0 {}
    fabric.unwire(wire).unwrap();
    let totals = fabric.totals();
    assert_eq!((totals.received_frames, totals.delivered_frames), (10, 10));
}

/// Creates an engine, and another worker's outbox to it.
fn engine_with_neighbour() -> (Engine, ringroad_datapath::exchange::Outbox) {
    let (outbox, inbox) = exchange(Arc::new(Doorbell::new().unwrap()));
    let mut engine = Engine::new(0);
    engine.connect(vec![None, None], vec![inbox]);
    (engine, outbox)
}

fn handoff(target: HandoffTarget) -> Handoff {
    // SAFETY: the fragment's bytes are a constant.
    let fragment = unsafe { Fragment::from_private(&[0xff; 60], 0) };
    Handoff { fragment, target, switch: SwitchId(0), meta: FrameMeta::default() }
}

#[test]
fn frames_handed_over_reach_their_port_and_not_its_successor() {
    let (mut engine, mut outbox) = engine_with_neighbour();
    let queue = |far: &Arc<Far>| {
        EngineQueue::new(
            Box::new(sink(far, 2)),
            Forwarding::Hold,
            Arc::default(),
            OwnerId { user: 1, program: 0 },
        )
    };
    let (first, second) = (Arc::<Far>::default(), Arc::<Far>::default());
    engine.insert(0, queue(&first));
    outbox.push(handoff(HandoffTarget::Queue(0)));
    outbox.flush();
    let counters = engine.remove(0).unwrap().close();
    engine.insert(0, queue(&second));
    engine.step();
    assert_eq!((first.got.load(SeqCst), second.got.load(SeqCst)), (1, 0));
    let mut snapshot = CounterSnapshot::default();
    counters.add_to(&mut snapshot);
    assert_eq!(snapshot.delivered_frames, 1);
}

#[test]
fn frames_handed_over_for_a_removed_switch_are_counted() {
    let (mut engine, mut outbox) = engine_with_neighbour();
    outbox.push(handoff(HandoffTarget::Flood { switch: SwitchId(0), from: PortIndex(0) }));
    outbox.push(handoff(HandoffTarget::Queue(7)));
    outbox.flush();
    engine.step();
    let mut counters = CounterSnapshot::default();
    engine.counters().add_to(&mut counters);
    assert_eq!(counters.dropped_for(DropCause::PortGone), 2);
}
