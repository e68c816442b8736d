//! The table's entry of each port. `O` names the owner that has a port open; `K` is the callers' data, which the entry
//! keeps from the port's making to its end.

use std::fmt;
use std::sync::Arc;

use ringroad_datapath::fabric::WireId;
use ringroad_drivers::device::Device;
use ringroad_drivers::pipe::Pipe;
use ringroad_drivers::shm::{PortShape, ShmPort, ShmRegion};
use ringroad_port::port_settings::PortSettings;
use ringroad_ring::region::Region;

/// Position on a switch: `vale0:a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchPortName<'a> {
    pub switch: &'a str,
    pub port: &'a str,
}

impl fmt::Display for SwitchPortName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.switch, self.port)
    }
}

/// A port on a switch.
#[derive(Debug)]
pub struct SwitchPort<O, K> {
    pub switch: String,
    pub port: String,
    /// Index of the port on the switch.
    pub index: u8,
    pub shape: PortShape,
    /// VLANs and limits of the port in force.
    pub settings: PortSettings,
    pub occupant: Occupant<O>,
    /// Whether the port stays when its program ends.
    pub is_persistent: bool,
    pub kept: K,
}

impl<O, K> SwitchPort<O, K> {
    /// Creates a port that is on no switch yet, and goes with its program.
    pub(crate) fn new(
        name: SwitchPortName<'_>,
        (shape, settings): (PortShape, PortSettings),
        occupant: Occupant<O>,
        kept: K,
    ) -> Self {
        let (switch, port) = (name.switch.to_owned(), name.port.to_owned());
        Self { switch, port, index: 0, shape, settings, occupant, is_persistent: false, kept }
    }

    /// Position of the port on its switch.
    #[must_use]
    pub fn name(&self) -> SwitchPortName<'_> {
        SwitchPortName { switch: &self.switch, port: &self.port }
    }
}

/// A device that a program has open: its queues are wired to the program's rings.
#[derive(Debug)]
pub struct DevicePort<O, K> {
    pub wire: WireId,
    pub device: Device,
    pub shm: ShmPort,
    pub owner: O,
    pub kept: K,
}

/// A pipe with its two ends, at least one of which is open.
#[derive(Debug)]
pub struct PipePort<O, K> {
    pub pipe: Pipe,
    pub shape: PortShape,
    /// Owners of the master's end and of the slave's end.
    pub owners: [Option<O>; 2],
    pub kept: K,
}

/// Server of a port of a switch.
#[derive(Debug)]
pub enum Occupant<O> {
    /// No server: the port waits for a program.
    Nobody,
    /// A program at its rings.
    Program {
        /// Rings of the program.
        shm: ShmPort,
        /// The program's owner.
        owner: O,
    },
    /// A device.
    Device {
        /// The device, whose queues are in the datapath.
        device: Box<Device>,
        /// Region of the device's buffers, if it has one.
        home: Option<Arc<ShmRegion>>,
    },
    /// Programs at netmap's rings, which the netmap service keeps.
    Netmap {
        /// Owner of the first program.
        owner: O,
    },
}

impl<O> Occupant<O> {
    /// Owner of the program, or of the first of several, if there is one.
    #[must_use]
    pub fn owner(&self) -> Option<&O> {
        match self {
            Self::Program { owner, .. } | Self::Netmap { owner } => Some(owner),
            Self::Nobody | Self::Device { .. } => None,
        }
    }

    /// Device that serves the port, if one does.
    #[must_use]
    pub fn device(&self) -> Option<&Device> {
        match self {
            Self::Device { device, .. } => Some(device),
            _ => None,
        }
    }

    /// Region that the table keeps for the port, if there is one.
    #[must_use]
    pub fn home(&self) -> Option<&Arc<ShmRegion>> {
        match self {
            Self::Program { shm, .. } => Some(shm.home()),
            Self::Device { home, .. } => home.as_ref(),
            Self::Nobody | Self::Netmap { .. } => None,
        }
    }

    /// Name of the driver, for people.
    #[must_use]
    pub fn driver(&self) -> &'static str {
        match self {
            Self::Nobody | Self::Program { .. } => "shm",
            Self::Device { device, .. } => device.capabilities.driver,
            Self::Netmap { .. } => "netmap",
        }
    }

    /// The mechanism in use, in words for people.
    #[must_use]
    pub fn mode(&self) -> &str {
        match self {
            Self::Nobody => "waits for a program",
            Self::Program { shm, .. } => pages(shm.region()),
            Self::Device { device, .. } => &device.capabilities.mode,
            Self::Netmap { .. } => SMALL_PAGES,
        }
    }

    /// Notes for the user.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        self.device().map_or(&[], |device| &device.notes)
    }
}

const SMALL_PAGES: &str = "shared memory, 4 KiB pages";

/// The pages of a region, in words for people.
#[must_use]
pub fn pages(region: &Region) -> &'static str {
    if region.is_huge() { "shared memory, 2 MiB pages" } else { SMALL_PAGES }
}
