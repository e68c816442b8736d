//! Shared code of the paths below a program's rings: a datapath that is stepped here, ports on it, and the programs at
//! their rings.

use std::any::Any;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringroad::Port;
use ringroad_bench::worker;
use ringroad_datapath::engine::Engine;
use ringroad_datapath::fabric::{Fabric, MakeForwardingPlane, QueueParts, Share};
use ringroad_datapath::worker::WorkerConfig;
use ringroad_drivers::catalogue::{open_device, plan_device};
use ringroad_drivers::device::{Device, DeviceRole};
use ringroad_drivers::shm::{PortShape, ShmPort};
use ringroad_port::counters::QueueCounters;
use ringroad_ring::geometry::{DEFAULT_BUFFER_BYTES, DEFAULT_SLOTS};
use ringroad_ring::layout::Direction;
use ringroad_ring::program_end::ProgramEnd;
use ringroad_ring::region::HugePages;
use ringroad_ring::ring_view::RingView;
use ringroad_switch::MacTableConfig;

use crate::Failure;

/// Length of a frame in a slot, bytes without FCS.
pub(crate) const SLOT_BYTES: u16 = 60;
/// Owner of all ports of a site.
const SHARE: Share = Share::Program { user: 0, program: 0 };
const SWITCH: &str = "vale0";

/// A datapath with one switch.
pub(crate) struct Testbed {
    fabric: Fabric,
    engine: Arc<Mutex<Engine>>,
    keep: Vec<Box<dyn Any + Send>>,
}

/// A program at the rings of a port.
pub(crate) struct ProgramRings {
    pub(crate) tx: ProgramEnd,
    pub(crate) rx: ProgramEnd,
}

impl Testbed {
    pub(crate) fn new() -> Self {
        let (fabric, engine) = Fabric::stepped(MacTableConfig::new(0));
        Self { fabric, engine, keep: Vec::new() }
    }

    /// Serves each queue once.
    pub(crate) fn step(&self) {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner).step();
    }

    pub(crate) fn attach(&mut self, port: &str, queue: QueueParts) -> Result<(), Failure> {
        self.fabric.attach(SWITCH, port, SHARE, vec![queue])?;
        Ok(())
    }

    /// Replaces the learning switch by another forwarding plane.
    pub(crate) fn set_forwarding_plane(&mut self, make: MakeForwardingPlane) -> Result<(), Failure> {
        Ok(self.fabric.set_forwarding_plane(SWITCH, Some(make))?)
    }

    /// Attaches a port of the switch, and returns its program.
    pub(crate) fn attach_program(&mut self, port: &str) -> Result<ProgramRings, Failure> {
        let (queue, program) = self.program(port)?;
        self.attach(port, queue)?;
        Ok(program)
    }

    /// Opens a device, and returns the program that it is wired to.
    pub(crate) fn wire_device(&mut self, name: &str) -> Result<ProgramRings, Failure> {
        let (queue, program) = self.program(name)?;
        let device = self.device(name, DeviceRole::Program)?;
        self.fabric.wire(SHARE, vec![queue], device.queues.into_iter().map(QueueParts::new).collect())?;
        Ok(program)
    }

    /// Opens a device that needs no region. The site keeps the objects that keep the device open.
    pub(crate) fn device(&mut self, name: &str, role: DeviceRole) -> Result<Device, Failure> {
        let mut device = open(name, role)?;
        if let Some(keep) = device.keep.take() {
            self.keep.push(keep);
        }
        Ok(device)
    }

    fn program(&mut self, name: &str) -> Result<(QueueParts, ProgramRings), Failure> {
        let (slots, buffer_bytes) = (DEFAULT_SLOTS, DEFAULT_BUFFER_BYTES);
        let shape = PortShape { slots, buffer_bytes, huge_pages: HugePages::Never, ..PortShape::DEFAULT };
        let port = ShmPort::create(name, shape)?;
        let counters = Arc::<QueueCounters>::default();
        let queue = QueueParts { port: Box::new(port.queue(0, Arc::clone(&counters))?), counters };
        let placement = port.placement();
        let (Some(&tx), Some(&rx)) = (placement.tx_rings.first(), placement.rx_rings.first()) else {
            return Err(format!("the port {name} has no rings").into());
        };
        let view = |ring| RingView::new(port.region(), ring, placement.slots);
        let program = ProgramRings {
            tx: ProgramEnd::take_up(view(tx)?, Direction::Tx),
            rx: ProgramEnd::take_up(view(rx)?, Direction::Rx),
        };
        self.keep.push(Box::new(port));
        Ok((queue, program))
    }
}

/// The use of a capture card's channels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CardRole {
    /// A thread fills the receive channel.
    Feeds,
    /// No program sends through the transmit channel.
    Idles,
}

/// A capture card with one channel in each direction.
pub(crate) struct Card {
    _fabric: Option<Fabric>,
    _keep: Option<Box<dyn Any + Send + Sync>>,
}

impl Card {
    pub(crate) fn open(path: &Path, role: CardRole) -> Result<Self, Failure> {
        let Device { queues, keep, .. } =
            open(&format!("sze2:{}@channels=1", path.display()), DeviceRole::Program)?;
        let fabric = match role {
            CardRole::Idles => None,
            CardRole::Feeds => {
                let worker = WorkerConfig { index: 0, cpu: None, spin: Duration::ZERO, busy: false };
                let mut fabric = Fabric::threaded(vec![worker], MacTableConfig::new(0))?;
                let source = open(&format!("null:size={SLOT_BYTES}"), DeviceRole::Program)?;
                let [source, card] =
                    [source.queues, queues].map(|queues| queues.into_iter().map(QueueParts::new).collect());
                fabric.wire(SHARE, source, card)?;
                Some(fabric)
            }
        };
        Ok(Self { _fabric: fabric, _keep: keep })
    }
}

/// Opens a device that needs no region.
fn open(name: &str, role: DeviceRole) -> Result<Device, Failure> {
    let name = name.parse()?;
    Ok(open_device(&name, plan_device(&name, None)?, role, None)?)
}

impl ProgramRings {
    /// Sends the same frame `count` times.
    pub(crate) fn send(&mut self, frame: &[u8], count: u32) -> Result<(), Failure> {
        self.tx.sync()?;
        let window = self.tx.window_mut();
        window.push_each::<true>(count, |mut slot| Some(slot.bytes.write(frame) as u16));
        self.tx.sync()?;
        Ok(())
    }

    /// Receives frames and releases up to `most` slots. Returns the number of slots.
    pub(crate) fn receive(&mut self, most: u32) -> Result<u64, Failure> {
        self.rx.sync()?;
        let window = self.rx.window_mut();
        let count = window.available().min(most);
        window.advance(count);
        self.rx.sync()?;
        Ok(count.into())
    }
}

/// Makes a frame from station `from` to station `to`, in the form of the benchmark's workers.
pub(crate) fn frame(from: u8, to: u8) -> Vec<u8> {
    worker::template(from, to, SLOT_BYTES.into())
}

/// Fills `count` slots of a port with the same frame, or none without room. Returns the number of filled slots.
pub(crate) fn fill(port: &mut Port, frame: &[u8], count: u32) -> u32 {
    let tx = port.tx();
    if tx.available() < count {
        return 0;
    }
    tx.push_each::<true>(count, |mut slot| {
        slot.bytes.write(frame);
        Some(SLOT_BYTES)
    })
}

/// Fills `count` slots with the same frame, as [`fill`] does, and hands them over.
pub(crate) fn send(port: &mut Port, frame: &[u8], count: u32) -> Result<u64, Failure> {
    let filled = fill(port, frame, count);
    port.tx().sync()?;
    Ok(filled.into())
}

/// Releases up to `most` received frames of a port unread. Returns their number.
pub(crate) fn take(port: &mut Port, most: u32) -> u64 {
    let rx = port.rx();
    let count = rx.available().min(most);
    rx.release(count);
    count.into()
}

/// Syncs, then releases received frames, as [`take`] does.
pub(crate) fn receive(port: &mut Port, most: u32) -> Result<u64, Failure> {
    port.rx().sync()?;
    Ok(take(port, most))
}
