//! A device as the library and the daemon see it: its needs, its queues, and the reasons why it cannot be opened.

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
use crate::shortcut::Shortcut;

/// Reason why a device cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The kernel refuses asynchronous I/O, so other programs cannot be woken safely.
    #[error(
        "the kernel refuses asynchronous I/O, which wakes other programs: {0}; raise the sysctl fs.aio-max-nr"
    )]
    NoWaking(Errno),
    /// The region that the device shares could not be made or used.
    #[error(transparent)]
    Region(#[from] RegionError),
    #[error(transparent)]
    Netdev(#[from] NetdevError),
    /// The network namespace of the device's interface cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The socket for a foreign program cannot be opened.
    #[error(transparent)]
    PeerSocket(#[from] ListeningSocketError),
    /// The kernel has no descriptors or threads left for the connection of a socket.
    #[error("making the threads and descriptors of {name}: {source}")]
    Connection { name: String, source: std::io::Error },
    /// The name is not the name of a device.
    #[error(
        "{0} is not a device: devices are {forms}", forms = crate::catalogue::forms()
    )]
    NotADevice(String),
    /// The driver does not support this number of queues.
    #[error("a {driver} port has at most {most} queue(s), not {asked}")]
    Queues {
        driver: &'static str,
        /// Maximum number of queues.
        most: u16,
        /// Requested number of queues.
        asked: u16,
    },
    /// A driver cannot open the port as requested, for the reason in the text.
    #[error("{0}")]
    Refused(String),
    /// An error that only this driver reports.
    #[error(transparent)]
    Driver(DriverFailure),
}

/// An error of one driver, whose text states what failed, where, and the remedy. A driver's `open` returns it by `?`.
pub trait DriverError: Error + Send + Sync + 'static {
    /// Whether another program has the device, as in [`DeviceError::is_busy`].
    fn is_busy(&self) -> bool {
        false
    }
}

/// Error of any driver.
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
    /// Whether the cause is that the interface, or its namespace, does not exist, or no longer exists.
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

    /// Whether the cause is that another program has the device. A retry can help, because that program may end. It can
    /// be a killed daemon that still exits.
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
    /// The device serves one program and is wired to the program's rings.
    Program,
    /// The device is a port of a switch.
    SwitchPort,
}

/// The needs of a device, known before it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevicePlan {
    /// Number of queues that the device will have. A program's port has the same number.
    pub queues: u16,
    /// Number of buffers that all queues together need in the region; 0 if the device needs no region.
    pub region_buffers: u32,
    /// Default size of the buffers in the device's region, bytes, if it cannot use buffers of the usual size.
    pub buffer_bytes: Option<u32>,
    /// Namespace of the device's interface, if that is another than the thread's.
    pub netns: Option<HeldNamespace>,
    /// Side of the interface that the device will use, if the namespace is held.
    pub side: Option<InterfaceSide>,
}

impl DevicePlan {
    pub(crate) fn queues(queues: u16) -> Self {
        Self { queues, region_buffers: 0, buffer_bytes: None, netns: None, side: None }
    }
}

/// One side of a network interface of this machine. Only one port can have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceSide {
    /// Network namespace of the interface.
    pub namespace: NamespaceId,
    /// Index of the interface in that namespace.
    pub index: u32,
    /// Whether this is the host stack's side (`eth0^`), and not the wire's.
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
    /// The queues, in their order.
    pub queues: Vec<Box<dyn PortQueue>>,
    pub capabilities: PortCapabilities,
    /// Interface of the device, with name and namespace, if it has one.
    pub interface: Option<DeviceInterface>,
    /// The program at the other end of the device's socket, if it has one.
    pub peer: Option<Arc<PeerWatch>>,
    /// Control of the path within the kernel, for the owner of the device's switch.
    pub shortcut: Option<Arc<Shortcut>>,
    /// Notes for the user, such as the reason why a better mechanism failed.
    pub notes: Vec<String>,
    /// Values that must live while the device is in use.
    pub keep: Option<Box<dyn Any + Send + Sync>>,
}

/// Location and state of a device's interface.
#[derive(Debug, Clone)]
pub struct DeviceInterface {
    pub name: String,
    /// Network namespace; `None` is that of the opening process.
    pub netns: Option<HeldNamespace>,
    /// Side of the interface that the device uses.
    pub side: Option<InterfaceSide>,
    /// State of the interface's link.
    pub link: Arc<LinkWatch>,
    /// Settings for which the device was opened; `None` if the device created the interface.
    pub opened_for: Option<InterfaceSettings>,
    /// Whether the interface's driver has reported the speed of the link since the device was opened.
    pub had_speed: Arc<AtomicBool>,
}

/// Settings of an interface for which a device is opened. After a change of any of them only a new device serves the
/// whole interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceSettings {
    /// Index of the interface. A new interface with the same name has another one.
    pub index: u32,
    /// Maximum payload of a frame, bytes.
    pub mtu: u32,
    /// Number of receive queues in use.
    pub queues: u32,
    /// Sizes of the driver's rings; `None` if it has none.
    pub rings: Option<RingParams>,
}

impl InterfaceSettings {
    /// Differences from the settings `before`, as text for users.
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

/// Bytes of an Ethernet header and one VLAN tag.
const ETHERNET_OVERHEAD_BYTES: u32 = 18;

impl Device {
    /// Device of the driver `driver` at an interface whose packets have up to `mtu` bytes.
    pub(crate) fn of_interface<Q: PortQueue + 'static>(
        driver: &'static str,
        queues: Vec<Q>,
        mode: String,
        mtu: u32,
        notes: Vec<String>,
    ) -> Self {
        let queues = queues.into_iter().map(|queue| Box::new(queue) as _).collect();
        let max_frame_bytes = mtu.saturating_add(ETHERNET_OVERHEAD_BYTES);
        Self { notes, ..Self::new(queues, PortCapabilities { driver, mode, max_frame_bytes }) }
    }

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
