//! Embedded mode: the daemon's datapath inside the program, stepped by `sync` itself or on a thread of its own.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringroad_datapath::fabric::{Fabric, FabricError, Share};
use ringroad_datapath::worker::WorkerConfig;
use ringroad_drivers::catalogue::port_name::{PipeSide, PortBase, PortName};
use ringroad_drivers::catalogue::{open_device, plan_device};
use ringroad_drivers::device::DeviceRole;
use ringroad_drivers::shm::{PortShape, ShmRegion};
use ringroad_port::clock::Clock;
use ringroad_port::counters::{CounterSnapshot, QueueCounters};
use ringroad_port::impairment::{Impairment, ImpairmentPlan};
use ringroad_port::port_queue::PortQueue;
use ringroad_port_table::entry::SwitchPortName;
use ringroad_port_table::error::TableError;
use ringroad_port_table::opening::{Opener, ProgramSide, Wrap, device_home};
use ringroad_port_table::table::PortTable;
use ringroad_ring::eventfd;
use ringroad_ring::fork::ProcessMark;
use ringroad_ring::layout::Direction;
use ringroad_ring::pipe_end::PipeSendEnd;
use ringroad_ring::program_end::ProgramEnd;
use ringroad_ring::region::Region;
use ringroad_ring::ring_view::RingView;
use ringroad_switch::MacTableConfig;

use crate::error::OpenError;
use crate::port::{OpenOptions, Port, PortInfo};
use crate::queue::Queue;
use crate::ring::{RemoteEnd, RxRing, TxEnd, TxRing};
use crate::stepped::{DeviceSleep, Stepped};
use crate::waiter::Binding;

/// Share of all ports, since all of them belong to the program.
const ALL: Share = Share::Program { user: 0, program: 0 };

/// A datapath in the program: switches, pipes and devices, without a daemon.
///
/// Ports opened here behave like the daemon's. Without [`Embedded::on_thread`] frames move when some port is synced, in
/// that caller's context, which makes tests deterministic.
///
/// A child of fork(2) cannot use its parent's datapath: it makes its own.
#[derive(Debug, Clone)]
pub struct Embedded {
    inner: Arc<Mutex<Inner>>,
    /// Process that made the datapath.
    process: ProcessMark,
}

/// Configuration of the worker thread of an embedded datapath, for [`Embedded::on_thread`].
#[derive(Debug, Clone, Default)]
pub struct EmbeddedThread {
    /// Processor to run on; `None` for any.
    pub cpu: Option<u32>,
    /// Whether the worker never sleeps.
    pub busy: bool,
}

#[derive(Debug)]
struct Inner {
    /// Ports of the datapath; each port has an owner of its own.
    table: PortTable<u64, ()>,
    last_owner: u64,
    /// Engine that the ports step; `None` if a thread runs it.
    stepped: Option<Arc<Stepped>>,
}

/// Ends an embedded port when the last ring of the port is dropped.
#[derive(Debug)]
pub(crate) struct EmbeddedBinding {
    inner: Arc<Mutex<Inner>>,
    owner: u64,
    process: ProcessMark,
}

/// Leaks a child's copy of the datapath: its threads do not run in the child, and its devices are the parent's.
fn leak_in_child(inner: &Arc<Mutex<Inner>>, process: ProcessMark) {
    if !process.is_here() {
        std::mem::forget(Arc::clone(inner));
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        leak_in_child(&self.inner, self.process);
    }
}

impl Drop for EmbeddedBinding {
    fn drop(&mut self) {
        leak_in_child(&self.inner, self.process);
        if !self.process.is_here() {
            return;
        }
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        // No relevant failure is possible: the worker lives as long as the owner of this lock.
        let _ = inner.table.close_all_of(|&owner| owner == self.owner);
    }
}

impl Default for Embedded {
    fn default() -> Self {
        Self::new()
    }
}

impl Embedded {
    /// Makes a datapath that moves frames whenever one of its ports is synced.
    #[must_use]
    pub fn new() -> Self {
        let (fabric, engine) = Fabric::stepped(MacTableConfig::new(0));
        Self::of(fabric, Some(Arc::new(Stepped::new(engine))))
    }

    /// Makes a datapath with its own worker thread, which sleeps when there is nothing to do.
    ///
    /// # Errors
    /// [`OpenError::Fabric`] if the thread cannot be started.
    pub fn on_thread(thread: &EmbeddedThread) -> Result<Self, OpenError> {
        let worker =
            WorkerConfig { index: 0, cpu: thread.cpu, spin: Duration::from_micros(50), busy: thread.busy };
        Ok(Self::of(Fabric::threaded(vec![worker], MacTableConfig::new(0))?, None))
    }

    fn of(fabric: Fabric, stepped: Option<Arc<Stepped>>) -> Self {
        let inner = Inner { table: PortTable::new(fabric), last_owner: 0, stepped };
        Self { inner: Arc::new(Mutex::new(inner)), process: ProcessMark::here() }
    }

    /// Opens a port.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(&self, name: &str) -> Result<Port, OpenError> {
        self.open_with(name, &OpenOptions::default())
    }

    /// Opens a port with options.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_with(&self, name: &str, options: &OpenOptions) -> Result<Port, OpenError> {
        self.open_parsed(&name.parse()?, options, None)
    }

    /// Opens a port that applies `plan` to the frames it receives ([`impairment`](crate::impairment)). Returns also the
    /// counters of the applied impairments. Frames that the port sends are unchanged. If there is no room for frames, a
    /// device is held back instead of losing them, as without a plan.
    ///
    /// Delays are measured by `clock`. Held frames leave when the datapath runs. A datapath with a thread
    /// ([`Embedded::on_thread`]) runs when they are due, with a manual clock within a millisecond. Without a thread it
    /// runs when some port is synced or [`Embedded::step`] is called. [`Queue::wait`] wakes in time by itself; after
    /// [`Queue::arm`] no descriptor announces frames held in a datapath without a thread.
    ///
    /// # Errors
    /// [`OpenError`]: [`OpenError::Impairment`] for a plan with a value out of range, [`OpenError::NotHere`] for pipes,
    /// whose frames pass no datapath.
    pub fn open_impaired(
        &self,
        name: &str,
        options: &OpenOptions,
        plan: ImpairmentPlan,
        clock: Clock,
    ) -> Result<(Port, Impairment), OpenError> {
        let mut impairment = Impairment::new(plan, clock)?;
        let port = self.open_parsed(&name.parse()?, options, Some(&mut impairment))?;
        Ok((port, impairment))
    }

    fn open_parsed(
        &self,
        name: &PortName,
        options: &OpenOptions,
        impairment: Option<&mut Impairment>,
    ) -> Result<Port, OpenError> {
        if !self.process.is_here() {
            return Err(OpenError::NotHere {
                name: name.base.to_string(),
                context: "in a child of the process that made the datapath",
                why: "its threads and devices are the parent's; make a datapath here, with Embedded::new",
            });
        }
        let mut wrap = impairment.map(|impairment| {
            |port: Box<dyn PortQueue>, counters: Arc<QueueCounters>| -> Box<dyn PortQueue> {
                Box::new(impairment.wrap(port, counters))
            }
        });
        let wrap = wrap.as_mut().map(|wrap| wrap as Wrap<'_>);
        let shape = PortShape::of(&name.options, &options.properties());
        match &name.base {
            PortBase::Switch { switch, port } => {
                self.open_switch_port(name, SwitchPortName { switch, port }, shape, wrap)
            }
            PortBase::Pipe { .. } if wrap.is_some() => Err(OpenError::NotHere {
                name: name.base.to_string(),
                context: "impaired",
                why: "the frames of a pipe pass no datapath; use a port of a switch, such as vale0:a",
            }),
            PortBase::Pipe { parent, id, side } => self.open_pipe(name, (parent, id), *side, shape),
            PortBase::Device(_) => self.open_device(name, shape, options, wrap),
        }
    }

    /// Moves frames once, if ports step this datapath. Returns the number of frames taken.
    pub fn step(&self) -> usize {
        let stepped = self.lock_own().and_then(|inner| inner.stepped.clone());
        stepped.map_or(0, |stepped| stepped.lock().step())
    }

    /// Advances the switches' ageing clock by one tick.
    pub fn tick(&self) {
        if let Some(inner) = self.lock_own() {
            inner.table.fabric().tick();
        }
    }

    /// Sum of the counters of a switch's ports, including ports that left.
    #[must_use]
    pub fn switch_counters(&self, switch: &str) -> Option<CounterSnapshot> {
        self.lock_own()?.table.fabric().switch_totals(switch).map(|totals| totals.totals)
    }

    /// Counters of one port.
    #[must_use]
    pub fn port_counters(&self, switch: &str, port: &str) -> Option<CounterSnapshot> {
        self.lock_own()?.table.fabric().port_counters(switch, port)
    }

    /// Locks the datapath. `None` in a child of the process that made it, where a thread that does not run may hold the
    /// lock.
    fn lock_own(&self) -> Option<std::sync::MutexGuard<'_, Inner>> {
        self.process.is_here().then(|| self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a port in the table for an owner of its own. The binding ends the port.
    fn enter<T>(
        &self,
        open: impl FnOnce(&mut PortTable<u64, ()>, u64) -> Result<T, TableError>,
    ) -> Result<(T, Arc<Binding>), OpenError> {
        let (opened, owner) = {
            let inner = &mut *self.lock();
            inner.last_owner += 1;
            (open(&mut inner.table, inner.last_owner)?, inner.last_owner)
        };
        let embedded = EmbeddedBinding { inner: Arc::clone(&self.inner), owner, process: self.process };
        Ok((opened, Arc::new(Binding::new(None, Some(embedded), 0))))
    }

    fn open_switch_port(
        &self,
        name: &PortName,
        switch_port: SwitchPortName<'_>,
        shape: PortShape,
        wrap: Option<Wrap<'_>>,
    ) -> Result<Port, OpenError> {
        let home = match &name.options.share {
            Some(other) => self.home_of(other)?,
            None => ShmRegion::create(shape, None)?,
        };
        let key = switch_port.to_string();
        let ((side, switch_index), binding) = self.enter(|table, owner| {
            let settings = name.options.settings.clone();
            let side = table.open(switch_port, settings, &home, opener(owner, wrap))?;
            Ok((side, table.on_switches().get(&key).map(|port| port.index)))
        })?;
        let info = PortInfo {
            name: key,
            driver: "shm".into(),
            mode: "embedded".into(),
            max_frame_bytes: usize::MAX,
            switch_index,
        };
        self.program_port(info, side, &binding, None)
    }

    fn home_of(&self, port: &str) -> Result<Arc<ShmRegion>, OpenError> {
        let inner = self.lock();
        let known = inner.table.programs().find(|(key, ..)| *key == port);
        let home = known.map(|(_, shm, _)| Arc::clone(shm.home()));
        home.ok_or_else(|| FabricError::NoSuchPort(port.to_owned()).into())
    }

    fn open_device(
        &self,
        name: &PortName,
        shape: PortShape,
        options: &OpenOptions,
        wrap: Option<Wrap<'_>>,
    ) -> Result<Port, OpenError> {
        let shared = name.options.share.as_ref().map(|other| self.home_of(other)).transpose()?;
        // A shared region gives each port the number of ring pairs that it was made for.
        let queues = shared.as_ref().map(|home| home.shape().queues).or(options.queues);
        let plan = plan_device(name, queues)?;
        let home = device_home(shared, &plan, shape, None)?;
        let mut device = open_device(name, plan, DeviceRole::Program, Some(&home))?;
        let wakes = device_wakes(&mut device.queues)?;
        let full_name = name.base.to_string();
        let info = PortInfo {
            name: full_name.clone(),
            driver: device.capabilities.driver.into(),
            mode: device.capabilities.mode.clone(),
            max_frame_bytes: device.capabilities.max_frame_bytes as usize,
            switch_index: None,
        };
        let ((side, queue_refs), binding) = self.enter(|table, owner| {
            // The same device may be opened several times, and each opening is a device of its own.
            let key = match table.devices().contains_key(&full_name) {
                true => format!("{full_name} ({owner})"),
                false => full_name,
            };
            let side = table.open_device(key.clone(), device, &home, opener(owner, wrap))?;
            let wire = table.devices().get(&key).map(|port| port.wire);
            Ok((side, wire.map(|wire| table.fabric().second_queues(wire)).unwrap_or_default()))
        })?;
        let ends = queue_refs
            .into_iter()
            .zip(wakes)
            .map(|(queue, wake)| DeviceEnd { queue_index: queue.index, wake });
        self.program_port(info, side, &binding, Some(ends.collect()))
    }

    fn open_pipe(
        &self,
        name: &PortName,
        pipe: (&str, &str),
        end: PipeSide,
        shape: PortShape,
    ) -> Result<Port, OpenError> {
        let (side, binding) =
            self.enter(|table, owner| table.open_pipe(pipe, end, shape, None, owner, ()))?;
        let info = PortInfo {
            name: name.base.to_string(),
            driver: "pipe".into(),
            mode: "embedded".into(),
            max_frame_bytes: usize::MAX,
            switch_index: None,
        };
        self.program_port(info, side, &binding, None)
    }

    fn program_port(
        &self,
        info: PortInfo,
        side: ProgramSide,
        binding: &Arc<Binding>,
        device: Option<Vec<DeviceEnd>>,
    ) -> Result<Port, OpenError> {
        let stepped = self.lock().stepped.clone();
        let here = stepped.map(|stepped| EmbeddedEnd { stepped, device });
        Port::new(info, take_up(side, binding, here)?)
    }
}

fn opener(owner: u64, wrap: Option<Wrap<'_>>) -> Opener<'_, u64, ()> {
    Opener { owner, kept: (), share: ALL, wrap }
}

fn events_failed(source: std::io::Error) -> OpenError {
    OpenError::System { what: "making the queues' eventfds", source }
}

/// Opens a device in its own embedded datapath, which the port's syncs step.
pub(crate) fn open_device_port(name: &PortName, options: &OpenOptions) -> Result<Port, OpenError> {
    Embedded::new().open_parsed(name, options, None)
}

/// Wake descriptor of each queue of a device; `None` for a queue that cannot wake a worker.
fn device_wakes(queues: &mut [Box<dyn PortQueue>]) -> Result<Vec<Option<OwnedFd>>, OpenError> {
    let clone = |descriptor: BorrowedFd<'_>| descriptor.try_clone_to_owned().map_err(events_failed);
    let wake = |queue: &mut Box<dyn PortQueue>| queue.sleeper()?.wake_descriptor().map(clone);
    queues.iter_mut().map(|queue| wake(queue).transpose()).collect()
}

/// A datapath that the program's own syncs step.
pub(crate) struct EmbeddedEnd {
    stepped: Arc<Stepped>,
    /// Queues of the device behind the rings, if there is one.
    device: Option<Vec<DeviceEnd>>,
}

/// A queue of a device in a datapath that syncs step.
struct DeviceEnd {
    queue_index: u32,
    /// Wake descriptor of the queue; `None` if it cannot wake a worker.
    wake: Option<OwnedFd>,
}

/// Takes up the rings of a port. The other side is a datapath, elsewhere or `here`, or the other end of a pipe.
pub(crate) fn take_up(
    side: ProgramSide,
    binding: &Arc<Binding>,
    mut here: Option<EmbeddedEnd>,
) -> Result<Vec<Queue>, OpenError> {
    let ProgramSide { region, placement, peer, events } = side;
    if peer.is_some() {
        eventfd::prepare().map_err(|errno| OpenError::System {
            what: "setting up asynchronous I/O, which wakes a pipe's other end (see the sysctl fs.aio-max-nr)",
            source: errno.into(),
        })?;
    }
    let identity = region_identity(&region)?;
    let failed = |errno: rustix::io::Errno| events_failed(errno.into());
    let view = |ring| RingView::new(&region, ring, placement.slots);
    let mut queues = Vec::new();
    let rings = placement.tx_rings.iter().zip(&placement.rx_rings);
    for (number, ((&tx, &rx), events)) in rings.zip(events).enumerate() {
        let peer_rx = peer.as_ref().and_then(|peer| peer.rx_rings.get(number)).copied();
        let other = |event: OwnedFd| match &here {
            Some(EmbeddedEnd { stepped, device }) if peer_rx.is_none() => {
                let end = device.as_ref().and_then(|ends| ends.get(number));
                RemoteEnd::Here { stepped: Arc::clone(stepped), device: end.map(|end| end.queue_index) }
            }
            _ => RemoteEnd::Elsewhere { event, is_program: peer_rx.is_some() },
        };
        let tx_end = match peer_rx {
            Some(peer_rx) => TxEnd::Pipe(PipeSendEnd::take_up(view(tx)?, view(peer_rx)?)),
            None => TxEnd::Program(ProgramEnd::take_up(view(tx)?, Direction::Tx)),
        };
        let rx_end = ProgramEnd::take_up(view(rx)?, Direction::Rx);
        let kick = events.kick.try_clone().map_err(events_failed)?;
        let tx = TxRing::new(tx_end, other(kick), Arc::clone(binding), identity);
        let rx = RxRing::new(rx_end, other(events.kick), Arc::clone(binding), identity);
        let device = match &mut here {
            Some(EmbeddedEnd { stepped, device: Some(ends) }) => {
                let wake = ends.get_mut(number).and_then(|end| end.wake.take());
                Some(DeviceSleep::new(stepped, wake).map_err(failed)?)
            }
            _ => None,
        };
        queues.push(Queue::new(tx, rx, events.notify, device, binding).map_err(failed)?);
    }
    Ok(queues)
}

/// Identity of a region: two mappings of one region have the same.
fn region_identity(region: &Region) -> Result<(u64, u64), OpenError> {
    let status = rustix::fs::fstat(region)
        .map_err(|errno| OpenError::System { what: "looking at a region", source: errno.into() })?;
    Ok((status.st_dev, status.st_ino))
}
