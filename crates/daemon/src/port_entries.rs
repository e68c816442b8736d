//! What the daemon keeps of each port: whose it is, what serves it, where it lies.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ringroad_control::message::{AttachedPort, OpenedPort};
use ringroad_control::peer::PeerCredentials;
use ringroad_datapath::fabric::{QueueParts, Share, WireId};
use ringroad_drivers::device::Device;
use ringroad_drivers::pipe::Pipe;
use ringroad_drivers::shm::{PortShape, QueueEvents, ShmPort, ShmRegion};
use ringroad_port::counters::QueueCounters;
use ringroad_ring::region::Region;

use crate::config::StaticPort;
use crate::quotas::Holding;
use crate::refusal::{Refusal, region_refusal};

/// Number of a client connection.
pub type ClientId = u64;

/// Who asks.
#[derive(Debug, Clone)]
pub struct Client {
    /// The connection: a port lives as long as it.
    pub id: ClientId,
    /// The kernel's word on the process.
    pub peer: PeerCredentials,
    /// What the program calls itself.
    pub program: String,
}

impl Client {
    /// In whose share of the workers' time its ports are served.
    pub(crate) fn share(&self) -> Share {
        Share::Program { user: self.peer.uid, program: self.peer.pid.unwrap_or(0) }
    }
}

impl std::fmt::Display for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.peer.pid {
            Some(pid) => write!(f, "{} (pid {pid}, uid {})", self.program, self.peer.uid),
            None => write!(f, "{} (uid {})", self.program, self.peer.uid),
        }
    }
}

/// Where a port came from, which decides who may take it away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A program opened it; it goes with the program.
    Program,
    /// `ringroad attach`.
    Command,
    /// The configuration.
    Config(StaticPort),
}

/// A port on a switch.
#[derive(Debug)]
pub struct SwitchPort {
    pub(crate) switch: String,
    pub(crate) port: String,
    pub(crate) index: u8,
    pub(crate) driver: &'static str,
    pub(crate) mode: String,
    pub(crate) origin: Origin,
    pub(crate) sizes: PortShape,
    pub(crate) owner: Option<Client>,
    pub(crate) shm: Option<ShmPort>,
    /// What the device keeps while it is in use.
    pub(crate) device: Option<Device>,
    /// The device's region.
    pub(crate) home: Option<Arc<ShmRegion>>,
    /// What it takes of its user's share; nothing where an administrator made it.
    pub(crate) _holding: Holding,
}

impl SwitchPort {
    /// What is told of it when it was attached.
    pub(crate) fn told(&self) -> AttachedPort {
        AttachedPort {
            name: format!("{}:{}", self.switch, self.port),
            driver: self.driver.to_owned(),
            mode: self.mode.clone(),
            notes: self.device.as_ref().map(|device| device.notes.clone()).unwrap_or_default(),
        }
    }
}

/// A pipe with its two ends.
#[derive(Debug)]
pub struct PipeEntry {
    pub(crate) pipe: Pipe,
    pub(crate) sizes: PortShape,
    /// The user who made it, whose memory both ends lie in.
    pub(crate) uid: u32,
    pub(crate) owners: [Option<Client>; 2],
    /// What it takes of the share of whoever made it.
    pub(crate) _holding: Holding,
}

/// A device that a program has open.
#[derive(Debug)]
pub struct DevicePort {
    pub(crate) wire: WireId,
    pub(crate) device: Device,
    pub(crate) sizes: PortShape,
    pub(crate) owner: Client,
    pub(crate) shm: ShmPort,
    /// What it takes of the owner's share.
    pub(crate) _holding: Holding,
}

/// An answer to an open request with the descriptors that go with it.
#[derive(Debug)]
pub struct Opened {
    /// The answer.
    pub reply: OpenedPort,
    region: Arc<Region>,
    events: Vec<QueueEvents>,
}

impl Opened {
    pub(crate) fn new(reply: OpenedPort, region: Arc<Region>, events: Vec<QueueEvents>) -> Self {
        Self { reply, region, events }
    }

    /// The region's memfd, then kick and notify of each queue.
    #[must_use]
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let events = self.events.iter().flat_map(|events| [events.kick.as_fd(), events.notify.as_fd()]);
        std::iter::once(self.region.as_fd()).chain(events).collect()
    }
}

/// A port laid out in `home`, and the datapath's side of it.
pub(crate) fn place(home: &Arc<ShmRegion>, name: &str) -> Result<(ShmPort, Vec<QueueParts>), Refusal> {
    let shm = home.place(name).map_err(region_refusal)?;
    let mut queues = Vec::new();
    for queue in 0..shm.placement().tx_rings.len() as u16 {
        let counters = Arc::<QueueCounters>::default();
        let port = shm.queue(queue, Arc::clone(&counters)).map_err(region_refusal)?;
        queues.push(QueueParts { port: Box::new(port), counters });
    }
    Ok((shm, queues))
}
