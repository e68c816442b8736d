//! A new port: the parts that its program brings, the parts that the program gets, and the parts that the datapath
//! gets.

use std::sync::Arc;

use ringroad_datapath::fabric::{QueueParts, Share};
use ringroad_drivers::absent::AbsentQueue;
use ringroad_drivers::catalogue::port_name::PipeSide;
use ringroad_drivers::device::{Device, DevicePlan};
use ringroad_drivers::pipe::Pipe;
use ringroad_drivers::shm::{PortShape, QueueEvents, ShmPort, ShmRegion};
use ringroad_port::counters::QueueCounters;
use ringroad_port::port_queue::PortQueue;
use ringroad_ring::geometry::PortPlacement;
use ringroad_ring::ledger::ChargedUser;
use ringroad_ring::region::{Region, RegionError};

use crate::error::TableError;

/// Function that puts another queue in front of a queue which joins the datapath, with the same counters.
pub type Wrap<'a> = &'a mut dyn FnMut(Box<dyn PortQueue>, Arc<QueueCounters>) -> Box<dyn PortQueue>;

/// The caller that opens a port.
pub struct Opener<'a, O, K> {
    pub owner: O,
    /// The callers' data for the entry, if this request makes the port.
    pub kept: K,
    /// Owner whose share of the workers' time serves the port.
    pub share: Share,
    /// Function that makes the queue in front of each of the port's queues in the datapath, if there is one.
    pub wrap: Option<Wrap<'a>>,
}

/// A port as its program gets it.
#[derive(Debug)]
pub struct ProgramSide {
    /// Region that the port lies in.
    pub region: Arc<Region>,
    /// Objects of the port in the region.
    pub placement: PortPlacement,
    /// Objects of a pipe's other end, for an end of a pipe.
    pub peer: Option<PortPlacement>,
    /// The eventfds of each queue.
    pub events: Vec<QueueEvents>,
}

impl ProgramSide {
    pub(crate) fn of(shm: &ShmPort) -> Result<Self, RegionError> {
        Ok(Self {
            region: Arc::clone(shm.region()),
            placement: shm.placement().clone(),
            peer: None,
            events: shm.clone_events()?,
        })
    }

    pub(crate) fn of_pipe(pipe: &Pipe, side: PipeSide) -> Result<Self, RegionError> {
        Ok(Self {
            region: Arc::clone(pipe.region()),
            placement: pipe.placement(side).clone(),
            peer: Some(pipe.placement(side.other()).clone()),
            events: pipe.clone_events(side)?,
        })
    }
}

/// Makes the queues of a port that no program has open.
#[must_use]
pub fn unbound(queues: u16) -> Vec<QueueParts> {
    (0..queues).map(|_| QueueParts::new(Box::new(AbsentQueue::unbound()))).collect()
}

/// Takes a device's queues out of it.
#[must_use]
pub fn take_queues(device: &mut Device) -> Vec<QueueParts> {
    std::mem::take(&mut device.queues).into_iter().map(QueueParts::new).collect()
}

/// Region of a device that a program opens: the `shared` region, or a new one for ports of this shape with the queues
/// and buffers of the device.
///
/// # Errors
/// [`TableError::SharedQueues`], [`TableError::Region`].
pub fn device_home(
    shared: Option<Arc<ShmRegion>>,
    plan: &DevicePlan,
    shape: PortShape,
    charged: Option<&ChargedUser>,
) -> Result<Arc<ShmRegion>, TableError> {
    match shared {
        Some(home) if home.shape().queues == plan.queues => Ok(home),
        Some(home) => Err(TableError::SharedQueues { asked: plan.queues, has: home.shape().queues }),
        None => Ok(ShmRegion::create(shape.for_device(plan), charged)?),
    }
}

/// Lays out a port in `home`; also returns the datapath's side of the port.
pub(crate) fn lay_out(
    home: &Arc<ShmRegion>,
    name: &str,
    mut wrap: Option<Wrap<'_>>,
) -> Result<(ShmPort, Vec<QueueParts>), RegionError> {
    let shm = home.lay_out_next(name)?;
    let mut queues = Vec::new();
    for queue in 0..home.shape().queues {
        let counters = Arc::<QueueCounters>::default();
        let mut port: Box<dyn PortQueue> = Box::new(shm.queue(queue, Arc::clone(&counters))?);
        if let Some(wrap) = &mut wrap {
            port = wrap(port, Arc::clone(&counters));
        }
        queues.push(QueueParts { port, counters });
    }
    Ok((shm, queues))
}
