//! The destination of a queue's frames, and the map from the ports of a switch to queues.

use std::sync::Arc;

use ringroad_port::counters::QueueCounters;
use ringroad_port::forwarding_plane::ForwardingPlane;
use ringroad_port::port_index::{MAX_PORTS, PortIndex, PortMask};

/// A queue, named by the worker that serves it and its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueueRef {
    /// Index of the worker.
    pub worker: u16,
    /// Cost of a frame delivered to the queue ([`ringroad_port::port_queue::QueueProperties::frame_cost`]).
    pub frame_cost: u16,
    /// Index of the queue in the worker's engine.
    pub index: u32,
}

/// Number of a switch within one datapath.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SwitchId(pub u16);

/// Queues of the ports of a switch. Replaced as a whole when a port comes or goes.
#[derive(Debug, Clone)]
pub struct Topology {
    queues: Vec<Vec<QueueRef>>,
}

impl Default for Topology {
    fn default() -> Self {
        Self { queues: vec![Vec::new(); MAX_PORTS] }
    }
}

impl Topology {
    /// Sets the queues of a port; an empty vector removes the port.
    pub fn set(&mut self, port: PortIndex, queues: Vec<QueueRef>) {
        if let Some(entry) = self.queues.get_mut(usize::from(port.0)) {
            *entry = queues;
        }
    }

    /// The queue of `port` that takes unicast frames from a source's queue number `queue`: as in VALE, the ring index
    /// stays, modulo the receiver's number of queues.
    #[inline]
    #[must_use]
    pub fn queue(&self, port: PortIndex, queue: u16) -> Option<QueueRef> {
        let queues = self.queues.get(usize::from(port.0))?;
        match queues.len() {
            0 => None,
            1 => queues.first().copied(),
            count => queues.get(usize::from(queue) % count).copied(),
        }
    }

    /// The queue of each port but `from` that takes flooded frames: ring 0, as in VALE.
    pub fn flood(&self, from: PortIndex) -> impl Iterator<Item = (PortIndex, QueueRef)> + '_ {
        (0u8..)
            .zip(&self.queues)
            .filter(move |(port, _)| *port != from.0)
            .filter_map(|(port, queues)| queues.first().map(|&queue| (PortIndex(port), queue)))
    }

    /// First queues of the ports in `ports`, which take flooded frames.
    pub fn first_queues(&self, ports: PortMask) -> impl Iterator<Item = (PortIndex, QueueRef)> + '_ {
        let first = |port: PortIndex| self.queues.get(usize::from(port.0))?.first().copied();
        ports.iter().filter_map(move |port| Some((port, first(port)?)))
    }
}

/// A switch as one worker sees it.
#[derive(Debug)]
pub struct SwitchView {
    /// Forwarding plane, which decides about frames.
    pub decide: Box<dyn ForwardingPlane>,
    /// Map of ports that was in force at the worker's last check.
    pub topology: Arc<Topology>,
    /// Counters of floods that this worker carries out for other workers: copies beyond the first, and frames for ports
    /// that left meanwhile.
    pub counters: Arc<QueueCounters>,
}

/// Forwarding of the frames of a queue.
#[derive(Debug, Clone, Copy)]
pub enum Forwarding {
    /// Forwarded as the switch decides.
    Switch {
        /// Number of the switch.
        switch: SwitchId,
        /// Port that the queue belongs to.
        port: PortIndex,
        /// Index of the queue in its port.
        queue: u16,
    },
    /// Forwarded to one queue of the same worker.
    Wire(u32),
    /// No forwarding: frames stay in the queue.
    Hold,
}
