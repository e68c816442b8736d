//! Data of the daemon for each port of the table: its owner, its origin, its reservation.

use std::os::fd::{AsFd, BorrowedFd};

use ringroad_control::message::{OpenedPort, PortBackend, PortSpec};
use ringroad_control::peer::PeerCredentials;
use ringroad_datapath::fabric::Share;
use ringroad_drivers::catalogue::port_name::{PortName, text_with_settings};
use ringroad_port::port_settings::PortSettings;
use ringroad_port_table::entry::{SwitchPort, pages};
use ringroad_port_table::opening::{Opener, ProgramSide};
use ringroad_port_table::table::PortTable;
use serde::{Deserialize, Serialize};

use crate::attaching::PortRecord;
use crate::quotas::Holding;

/// Number of a client connection.
pub type ClientId = u64;

/// The requester.
#[derive(Debug, Clone)]
pub struct Client {
    /// The connection: a port exists while it is open.
    pub id: ClientId,
    /// Credentials of the process, from the kernel.
    pub peer: PeerCredentials,
    /// The name that the program gives itself.
    pub program: String,
}

impl Client {
    /// Owner whose share of the workers' time serves the client's ports.
    pub(crate) fn share(&self) -> Share {
        Share::Program { user: self.peer.uid, program: self.peer.pid.unwrap_or(0) }
    }

    /// Opener of the client's port, which takes `holding` of the client's share.
    pub(crate) fn opener(&self, holding: Holding) -> Opener<'static, Self, Kept> {
        Opener { owner: self.clone(), kept: Kept::of_program(self, holding), share: self.share(), wrap: None }
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

/// Origin of a port, which decides who may remove it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortOrigin {
    /// A program of this user opened the port, which goes with the program.
    Program {
        /// The user.
        uid: u32,
    },
    /// A command made the port: `ringroad attach`, or a netmap program's request.
    Command {
        /// [`AttachedPort::number`](ringroad_control::message::AttachedPort).
        number: u64,
    },
    /// The configuration has the port.
    Config,
}

impl PortOrigin {
    /// Number under which a command attached the port, else 0.
    pub(crate) fn number(&self) -> u64 {
        match self {
            Self::Command { number } => *number,
            Self::Program { .. } | Self::Config => 0,
        }
    }
}

/// Data of the daemon for a port, from its creation to its end.
#[derive(Debug)]
pub struct Kept {
    pub(crate) origin: PortOrigin,
    /// Description from which the port was made, if it outlives programs or has a device.
    pub(crate) spec: Option<PortSpec>,
    /// Settings requested last, by the port's name or by a later change.
    pub(crate) asked: PortSettings,
    /// Part of its maker's share that the port takes; none if an administrator made it.
    pub(crate) _holding: Holding,
}

impl Kept {
    /// Creates the data of a port with this origin.
    pub(crate) fn new(origin: PortOrigin, holding: Holding) -> Self {
        Self { origin, spec: None, asked: PortSettings::default(), _holding: holding }
    }

    /// Creates the data of a port that a program makes.
    pub(crate) fn of_program(client: &Client, holding: Holding) -> Self {
        Self::new(PortOrigin::Program { uid: client.peer.uid }, holding)
    }

    /// User whose program made the port; the user's memory holds the port.
    pub(crate) fn user(&self) -> Option<u32> {
        match self.origin {
            PortOrigin::Program { uid } => Some(uid),
            PortOrigin::Command { .. } | PortOrigin::Config => None,
        }
    }

    /// Description from which the port can be made with its present settings.
    pub(crate) fn spec_now(&self) -> Option<PortSpec> {
        let spec = self.spec.clone()?;
        let is_as_made = spec.name.parse().is_ok_and(|name: PortName| name.options.settings == self.asked);
        let name = if is_as_made { spec.name } else { text_with_settings(&spec.name, &self.asked) };
        Some(PortSpec { name, ..spec })
    }
}

/// Ports of the daemon.
pub(crate) type DaemonPortTable = PortTable<Client, Kept>;

/// Record of a port of a switch; `None` if the port goes with its program.
pub(crate) fn record_of(port: &SwitchPort<Client, Kept>) -> Option<PortRecord> {
    let Kept { origin, spec, asked, .. } = &port.kept;
    let (spec, asked, origin) = (spec.clone()?, asked.clone(), origin.clone());
    Some(PortRecord { spec, asked, origin, index: Some(port.index) })
}

/// Reply to an open request, with its descriptors.
#[derive(Debug)]
pub struct OpenReply {
    /// Reply to send.
    pub reply: OpenedPort,
    side: ProgramSide,
}

impl OpenReply {
    pub(crate) fn new(name: &str, kind: PortBackend, side: ProgramSide) -> Self {
        let reply = OpenedPort {
            name: name.to_owned(),
            kind,
            mode: pages(&side.region).to_owned(),
            driver: None,
            max_frame_bytes: None,
            notes: Vec::new(),
            geometry: *side.region.geometry(),
            queue_count: side.placement.tx_rings.len() as u16,
            placement: side.placement.clone(),
            peer_placement: side.peer.clone(),
            switch: None,
            switch_index: None,
        };
        Self { reply, side }
    }

    /// Descriptors of the reply: the region's memfd, then kick and notify of each queue.
    #[must_use]
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let events = self.side.events.iter().flat_map(|events| [events.kick.as_fd(), events.notify.as_fd()]);
        std::iter::once(self.side.region.as_fd()).chain(events).collect()
    }
}
