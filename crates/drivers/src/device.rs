//! A device as the composition roots hold it: its needs, its queues, and the reasons why it cannot be opened.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ringroad_control::listening_socket::ListeningSocketError;
use ringroad_netdev::LinkWatch;
use ringroad_netdev::error::NetdevError;
use ringroad_netdev::ethtool::RingParams;
use ringroad_netdev::namespace::{HeldNamespace, NamespaceError, NamespaceId};
use ringroad_port::port_queue::{PortCapabilities, PortQueue};
use ringroad_ring::region::RegionError;
use rustix::io::Errno;

use crate::peer::watch::PeerWatch;
use crate::veth::shortcut::Shortcut;

/// Why a device cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Other programs cannot be woken safely.
    #[error(
        "the kernel refuses asynchronous I/O, which wakes other programs: {0}; raise the sysctl fs.aio-max-nr"
    )]
    NoWaking(Errno),
    /// The region that the device shares.
    #[error(transparent)]
    Region(#[from] RegionError),
    #[error(transparent)]
    Netdev(#[from] NetdevError),
    /// Its network namespace.
    #[error(transparent)]
    Namespace(NamespaceError),
    /// The socket of a foreign program.
    #[error(transparent)]
    PeerSocket(#[from] ListeningSocketError),
    /// The kernel has no descriptors or threads left for the connection of a socket.
    #[error("making the threads and descriptors of {name}: {source}")]
    Connection { name: String, source: std::io::Error },
    /// The name is not a device's.
    #[error(
        "{0} is not a device: devices are {forms}", forms = crate::catalogue::forms()
    )]
    NotADevice(String),
    /// The driver has no such number of queues.
    #[error("a {driver} port has at most {most} queue(s), not {asked}")]
    Queues {
        driver: &'static str,
        /// Queues it can have.
        most: u16,
        /// Requested queues.
        asked: u16,
    },
    /// An error that only this driver reports.
    #[error(transparent)]
    Driver(DriverFailure),
}

/// An error of one driver, whose text states what failed, where, and the remedy. A driver's `open` returns it by `?`.
pub trait DriverError: Error + Send + Sync + 'static {
    /// As [`DeviceError::is_busy`].
    fn is_busy(&self) -> bool {
        false
    }
}

/// Any driver's error.
#[derive(Debug)]
pub struct DriverFailure(Box<dyn DriverError>);

impl fmt::Display for DriverFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for DriverFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl<E: DriverError> From<E> for DeviceError {
    fn from(error: E) -> Self {
        Self::Driver(DriverFailure(Box::new(error)))
    }
}

impl DeviceError {
    /// Whether the cause is that the interface, or its namespace, does not exist (any more).
    #[must_use]
    pub fn is_absence(&self) -> bool {
        match self {
            Self::Netdev(error) => error.is_no_interface(),
            Self::Namespace(error) => matches!(
                error,
                NamespaceError::NoSuchName { .. }
                    | NamespaceError::NoSuchProcess(_)
                    | NamespaceError::NoSuchFile(_)
            ),
            _ => false,
        }
    }

    /// Whether the cause is that another program has the device. A retry can help: the program may end; it can be a
    /// killed daemon that is not completely gone.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Driver(failure) => failure.0.is_busy(),
            _ => false,
        }
    }
}

/// The use of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceRole {
    /// For one program, whose rings it is wired to.
    Program,
    /// As a port of a switch.
    SwitchPort,
}

/// The needs of a device, known before it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevicePlan {
    /// Queues it will have; a program's port has as many.
    pub queues: u16,
    /// Buffers it needs in the region, all queues together; 0 where it needs no region.
    pub region_buffers: u32,
    /// Default size of the buffers in its region, bytes, where it cannot use the usual ones.
    pub buffer_bytes: Option<u32>,
    /// The namespace of its interface, if it has one in another namespace.
    pub netns: Option<HeldNamespace>,
    /// The side of the interface that it will use, if the namespace is held.
    pub side: Option<InterfaceSide>,
}

impl DevicePlan {
    pub(crate) fn queues(queues: u16) -> Self {
        Self { queues, region_buffers: 0, buffer_bytes: None, netns: None, side: None }
    }
}

/// One side of a network interface of this machine, which only one port can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceSide {
    /// The network namespace that it is in.
    pub namespace: NamespaceId,
    /// Its number there.
    pub index: u32,
    /// Whether it is the host stack's side (`eth0^`), not the wire's.
    pub host: bool,
}

impl InterfaceSide {
    /// The other side of the same interface.
    #[must_use]
    pub fn other(self) -> Self {
        Self { host: !self.host, ..self }
    }
}

/// An open device: its queues, and its abilities.
pub struct Device {
    /// One per queue.
    pub queues: Vec<Box<dyn PortQueue>>,
    pub capabilities: PortCapabilities,
    /// Its interface, with name and namespace, if it has one.
    pub interface: Option<DeviceInterface>,
    /// The program at the other side of its socket, if it has one.
    pub peer: Option<Arc<PeerWatch>>,
    /// Its place on the way within the kernel, for the owner of its switch.
    pub shortcut: Option<Arc<Shortcut>>,
    /// A note for the user, such as the reason why a better mechanism failed.
    pub notes: Vec<String>,
    /// Values that must live while the device is in use.
    pub keep: Option<Box<dyn Any + Send + Sync>>,
}

/// Where a device's interface is found, and its state.
#[derive(Debug, Clone)]
pub struct DeviceInterface {
    pub name: String,
    /// The network namespace; `None` is the opening process's.
    pub netns: Option<HeldNamespace>,
    /// The side that the device uses.
    pub side: Option<InterfaceSide>,
    /// The state of its link.
    pub link: Arc<LinkWatch>,
    /// What the device was opened for; `None` if it made its interface itself.
    pub opened_for: Option<InterfaceSettings>,
    /// Whether its driver has told the speed of the link since the device was opened.
    pub had_speed: Arc<AtomicBool>,
}

/// What a device is opened for: where one of these differs, only another one serves the whole interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceSettings {
    /// Its number, which is another one for an interface that only has the same name.
    pub index: u32,
    /// The longest payload of a frame, bytes.
    pub mtu: u32,
    /// The receive queues in use.
    pub queues: u32,
    /// The driver's rings; `None` if it has none.
    pub rings: Option<RingParams>,
}

impl InterfaceSettings {
    /// How they differ from those `before`, for users.
    #[must_use]
    pub fn changes_since(&self, before: &Self) -> String {
        let changed = [
            (self.index != before.index).then(|| "it is another one of this name".to_owned()),
            (self.queues != before.queues)
                .then(|| format!("{} queue(s), before {}", self.queues, before.queues)),
            (self.mtu != before.mtu).then(|| format!("MTU {}, before {}", self.mtu, before.mtu)),
            (self.rings != before.rings).then(|| "rings of other lengths".to_owned()),
        ];
        changed.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("capabilities", &self.capabilities).finish_non_exhaustive()
    }
}

impl Device {
    pub(crate) fn new(queues: Vec<Box<dyn PortQueue>>, capabilities: PortCapabilities) -> Self {
        Self {
            queues,
            capabilities,
            interface: None,
            peer: None,
            shortcut: None,
            notes: Vec::new(),
            keep: None,
        }
    }
}
