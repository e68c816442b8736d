//! Tests of opening, changing and closing ports, in a datapath that the tests step.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};

use ringroad_datapath::engine::Engine;
use ringroad_datapath::fabric::{Fabric, FabricError, QueueParts, Share};
use ringroad_drivers::catalogue::port_name::{PipeSide, PortName};
use ringroad_drivers::catalogue::{open_device, plan_device};
use ringroad_drivers::device::{Device, DeviceRole};
use ringroad_drivers::shm::{PortShape, ShmRegion};
use ringroad_port::port_settings::{PortSettings, PortVlans};
use ringroad_ring::layout::Direction;
use ringroad_ring::ledger::{ChargedUser, Ledger, LedgerLimits};
use ringroad_ring::program_end::ProgramEnd;
use ringroad_ring::region::{HugePages, RegionError};
use ringroad_ring::ring_view::RingView;
use ringroad_switch::MacTableConfig;

use crate::entry::{Occupant, SwitchPortName};
use crate::error::TableError;
use crate::opening::{Opener, ProgramSide, device_home};
use crate::table::PortTable;

const SHAPE: PortShape = PortShape { slots: 64, huge_pages: HugePages::Never, ..PortShape::DEFAULT };
const UNSET: PortSettings = PortSettings { vlans: PortVlans::Unset, isolated: false, storm: None };
const A: SwitchPortName<'_> = SwitchPortName { switch: "vale0", port: "a" };
const B: SwitchPortName<'_> = SwitchPortName { switch: "vale0", port: "b" };

struct Testbed {
    table: PortTable<u32, &'static str>,
    engine: Arc<Mutex<Engine>>,
}

impl Testbed {
    fn new() -> Self {
        let (fabric, engine) = Fabric::stepped(MacTableConfig::new(0));
        Self { table: PortTable::new(fabric), engine }
    }

    fn home(&self) -> Arc<ShmRegion> {
        ShmRegion::create(SHAPE, None).unwrap()
    }

    fn open(&mut self, name: SwitchPortName<'_>, owner: u32) -> Result<ProgramSide, TableError> {
        let home = self.home();
        self.table.open(name, UNSET, &home, opener(owner))
    }

    fn pipe(&mut self, side: PipeSide, owner: u32) -> Result<ProgramSide, TableError> {
        self.table.open_pipe(("x", "1"), side, SHAPE, None, owner, "pipe")
    }

    fn close(&mut self, owner: u32) {
        self.table.close_all_of(|&other| other == owner).unwrap();
    }

    fn step(&self) {
        self.engine.lock().unwrap().step();
    }

    fn received(&self, name: SwitchPortName<'_>) -> u64 {
        self.table.fabric().port_counters(name.switch, name.port).unwrap().received_frames
    }

    fn is_empty(&self) -> bool {
        self.table.is_empty() && self.table.fabric().switch_names().next().is_none()
    }
}

fn opener(owner: u32) -> Opener<'static, u32, &'static str> {
    Opener { owner, kept: "made by a program", share: Share::Own, wrap: None }
}

fn end(side: &ProgramSide, direction: Direction) -> ProgramEnd {
    let ring = match direction {
        Direction::Tx => side.placement.tx_rings[0],
        Direction::Rx => side.placement.rx_rings[0],
    };
    ProgramEnd::take_up(RingView::new(&side.region, ring, side.placement.slots).unwrap(), direction)
}

/// Sends a frame to all other ports.
fn send(side: &ProgramSide) {
    let mut tx = end(side, Direction::Tx);
    tx.window().buffer(0).write(&[0xff; 6]);
    tx.window_mut().set(0, 60, 0);
    tx.window_mut().advance(1);
    tx.sync().unwrap();
}

fn available(side: &ProgramSide) -> u32 {
    let mut rx = end(side, Direction::Rx);
    rx.sync().unwrap();
    rx.window().available()
}

fn device(name: &str) -> (Device, Arc<ShmRegion>) {
    let name: PortName = name.parse().unwrap();
    let plan = plan_device(&name, None).unwrap();
    let home = device_home(None, &plan, SHAPE, None).unwrap();
    (open_device(&name, plan, DeviceRole::Program, Some(&home)).unwrap(), home)
}

/// Another handle on a port's memory, obtained without the table.
fn memory_of(side: &ProgramSide) -> File {
    File::from(side.region.as_fd().try_clone_to_owned().unwrap())
}

fn blocks(memory: &File) -> u64 {
    memory.metadata().unwrap().blocks()
}

fn is_taken(result: Result<ProgramSide, TableError>) -> bool {
    matches!(result, Err(TableError::Fabric(FabricError::PortTaken(_))))
}

#[test]
fn frames_pass_between_program_ports_and_the_switch_goes_with_them() {
    let mut site = Testbed::new();
    let (a, b) = (site.open(A, 1).unwrap(), site.open(B, 2).unwrap());
    send(&a);
    site.step();
    assert_eq!((site.received(A), available(&b)), (1, 1));
    assert!(is_taken(site.open(A, 3)), "a port has one program");
    site.close(1);
    assert!(site.table.occupant("vale0:a").is_none() && site.table.owner("vale0:b") == Some(&2));
    site.close(2);
    assert!(site.is_empty());
}

#[test]
fn a_shared_region_is_discarded_with_its_last_port() {
    let mut site = Testbed::new();
    let a = site.open(A, 1).unwrap();
    let (_, shm, _) = site.table.programs().find(|(key, ..)| *key == "vale0:a").unwrap();
    let home = Arc::clone(shm.home());
    let b = site.table.open(B, UNSET, &home, opener(1)).unwrap();
    drop(home);
    assert_eq!(a.region.id(), b.region.id());
    assert_ne!(a.placement.tx_rings, b.placement.tx_rings);
    assert_eq!(site.table.regions().count(), 2);
    let memory = memory_of(&a);
    drop((a, b));
    assert!(blocks(&memory) > 0);
    site.close(1);
    assert!(site.is_empty());
    assert_eq!(blocks(&memory), 0, "a handle that a program kept leads to nothing");
}

#[test]
fn each_end_of_a_pipe_signals_the_other() {
    let mut site = Testbed::new();
    let (master, slave) = (site.pipe(PipeSide::Master, 1).unwrap(), site.pipe(PipeSide::Slave, 2).unwrap());
    assert_eq!(master.peer.as_ref(), Some(&slave.placement));
    assert_eq!(slave.peer.as_ref(), Some(&master.placement));
    let clone = |event: &dyn AsFd| File::from(event.as_fd().try_clone_to_owned().unwrap());
    for (one, other) in [(&master, &slave), (&slave, &master)] {
        clone(&one.events[0].kick).write_all(&7_u64.to_ne_bytes()).unwrap();
        let mut number = [0; 8];
        clone(&other.events[0].notify).read_exact(&mut number).unwrap();
        assert_eq!(u64::from_ne_bytes(number), 7, "what one end rings, the other waits on");
    }
}

#[test]
fn an_end_of_a_pipe_is_opened_once_and_the_pipe_goes_with_its_last_end() {
    let mut site = Testbed::new();
    let master = site.pipe(PipeSide::Master, 1).unwrap();
    let refused = site.pipe(PipeSide::Master, 2).unwrap_err();
    assert!(matches!(refused, TableError::EndInUse(name) if name == "x{1"));
    let slave = site.pipe(PipeSide::Slave, 2).unwrap();
    site.close(1);
    let again = site.pipe(PipeSide::Master, 3).unwrap();
    assert_eq!(again.region.id(), slave.region.id(), "the other end holds the pipe");
    let memory = memory_of(&master);
    drop((master, slave, again));
    site.close(3);
    assert!(blocks(&memory) > 0);
    site.close(2);
    assert!(site.is_empty());
    assert_eq!(blocks(&memory), 0);
}

#[test]
fn a_persistent_port_outlives_its_programs_and_keeps_its_index_and_counters() {
    let mut site = Testbed::new();
    let waiting = site.table.attach(A, None, None, (SHAPE, UNSET), "attached").unwrap();
    assert_eq!((waiting.occupant.mode(), waiting.is_persistent), ("waits for a program", true));
    for owner in 1..=2 {
        let side = site.open(A, owner).unwrap();
        assert_eq!(site.table.occupant("vale0:a").unwrap().mode(), "shared memory, 4 KiB pages");
        assert!(is_taken(site.open(A, 9)));
        send(&side);
        site.step();
        assert_eq!(site.received(A), u64::from(owner));
        site.close(owner);
        let port = &site.table.on_switches()["vale0:a"];
        assert!(matches!(port.occupant, Occupant::Nobody), "{port:?}");
        assert_eq!((port.index, port.kept, port.occupant.driver()), (0, "attached", "shm"));
    }
    assert_eq!(site.table.detach("vale0:a").unwrap().kept, "attached");
    assert!(site.is_empty());
}

#[test]
fn a_device_serves_a_programs_rings_or_a_port_of_a_switch() {
    let mut site = Testbed::new();
    let (null, home) = device("null:size=60");
    let side = site.table.open_device("null:".into(), null, &home, opener(1)).unwrap();
    site.step();
    assert!(available(&side) > 0);
    let (second, home) = device("null:size=60");
    assert!(is_taken(site.table.open_device("null:".into(), second, &home, opener(2))));
    assert_eq!(site.table.owner("null:"), Some(&1));
    site.close(1);
    assert!(site.is_empty());

    let (null, _) = device("null:size=60");
    let attached = site.table.attach(A, None, Some((null, None)), (SHAPE, UNSET), "attached").unwrap();
    assert_eq!((attached.occupant.driver(), attached.occupant.owner()), ("null", None));
    assert!(is_taken(site.open(A, 1)), "a device is not a waiting port");
    let sink = site.open(B, 1).unwrap();
    site.step();
    assert!(available(&sink) > 0);
    assert!(site.table.detach("vale0:a").unwrap().occupant.device().is_some());
    site.close(1);
    assert!(site.is_empty());
}

#[test]
fn only_the_netmap_service_takes_its_ports_back() {
    let mut site = Testbed::new();
    let home = site.home();
    let shm = home.lay_out_next("vale0:a").unwrap();
    let queue = || vec![QueueParts::new(Box::new(shm.queue(0, Arc::default()).unwrap()))];
    let entered = site.table.attach_netmap(A, (SHAPE, UNSET), opener(1), queue()).unwrap();
    assert_eq!((entered.occupant.driver(), entered.index), ("netmap", 0));
    site.close(1);
    assert!(is_taken(site.open(A, 1)), "its owner's connections do not matter");
    site.table.detach("vale0:a").unwrap();
    assert!(site.is_empty());
}

#[test]
fn a_failed_open_leaves_nothing() {
    let mut site = Testbed::new();
    let ledger = Ledger::new(LedgerLimits {
        total: SHAPE.geometry(1).unwrap().total_bytes(),
        user: u64::MAX,
        reserve: 0,
    });
    let charged = ChargedUser::new(&ledger, 1, false);
    let full = ShmRegion::create(SHAPE, Some(&charged)).unwrap();
    let name = full.lay_out_next("somebody's").unwrap();
    let refused = site.table.open(A, UNSET, &full, opener(1));
    assert!(matches!(refused, Err(TableError::Region(RegionError::Geometry(_)))), "{refused:?}");
    let (null, _) = device("null:size=60");
    assert!(site.table.open_device("null:".into(), null, &full, opener(1)).is_err());
    let refused = site.table.open_pipe(("x", "1"), PipeSide::Slave, SHAPE, Some(&charged), 1, "pipe");
    assert!(matches!(refused, Err(TableError::Region(RegionError::Limit { .. }))), "{refused:?}");
    let endless = PortShape { slots: 1 << 20, ..SHAPE };
    assert!(site.table.attach(A, None, None, (endless, UNSET), "attached").is_err());
    assert!(site.is_empty());

    // A waiting port continues to wait, and a port that exists is not made again.
    site.table.attach(A, None, None, (SHAPE, UNSET), "attached").unwrap();
    assert!(site.table.open(A, UNSET, &full, opener(1)).is_err());
    assert!(matches!(site.table.occupant("vale0:a"), Some(Occupant::Nobody)));
    let again = site.table.attach(A, None, None, (SHAPE, UNSET), "again");
    assert!(matches!(again, Err(TableError::Fabric(FabricError::PortTaken(_)))), "{again:?}");
    assert_eq!(site.table.on_switches()["vale0:a"].kept, "attached");
    drop((name, full));
    assert_eq!(ledger.total(), 0);
}

#[test]
fn a_device_in_a_shared_region_has_as_many_queues_as_its_ports() {
    let site = Testbed::new();
    let plan = plan_device(&"null:@queues=2".parse().unwrap(), None).unwrap();
    let refused = device_home(Some(site.home()), &plan, SHAPE, None);
    assert!(matches!(refused, Err(TableError::SharedQueues { asked: 2, has: 1 })), "{refused:?}");
    assert_eq!(device_home(None, &plan, SHAPE, None).unwrap().shape().queues, 2);
}
