//! TAP interfaces: Ethernet interfaces whose cable ends in this process (linux/if_tun.h, tuntap.txt of the kernel).
//!
//! The port receives the frames that the host's stack sends on the interface, and the stack receives the frames
//! delivered to the port. A frame costs one system call in each direction; TAP has no cheaper way. So offloads decide
//! the speed of TCP: with them the stack leaves checksums partial and segments unsplit, in frames of up to 64 KiB. A
//! virtio-net header in front of each frame names the unfinished work, in both directions.
//!
//! Trust: the bytes come from the host's stack or from a program that writes to the interface; this driver does not
//! read them.
#![allow(unsafe_code)]

mod queue;

use std::io::Error;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use ringroad_netdev::link::check_name;
use ringroad_netdev::link_probe::interface_request;
use ringroad_netdev::{LinkProbe, LinkWatch, NetdevError, link_by_name, link_change};
use ringroad_port::offload::VIRTIO_HEADER_BYTES;
use ringroad_port::port_queue::HandOver;
use ringroad_wire::mac::Mac;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

pub use queue::TapQueue;

use crate::device::DriverError;

/// Maximum length of a frame that a slot can describe, bytes.
const MAX_FRAME_BYTES: usize = 65535;
/// Offloads that the stack may leave to this port: `TUN_F_CSUM`, `TUN_F_TSO4`, `TUN_F_TSO6` and `TUN_F_TSO_ECN` of
/// linux/if_tun.h. UDP segmentation is not among them, because most guests do not support it.
const OFFLOADS: usize = 0x1 | 0x2 | 0x4 | 0x8;
/// Maximum MTU, bytes. With an Ethernet header and a VLAN tag a frame still fits into a slot.
pub const MAX_TAP_MTU: u32 = 65535 - 18;
/// Maximum number of queues of a TAP interface (`MAX_TAP_QUEUES` of the kernel).
pub const MAX_TAP_QUEUES: u16 = 256;

/// Properties of a TAP interface to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapConfig {
    /// Name of the interface, at most 15 bytes. If it contains `%d` or is empty (`tap%d`), the kernel chooses a number.
    pub name: String,
    /// Number of queues, from 1.
    pub queues: u16,
    /// Whether the interface stays when the last queue is closed. An interface that existed before always stays.
    pub persistent: bool,
    /// MTU, bytes, at most [`MAX_TAP_MTU`]; `None` keeps the kernel's.
    pub mtu: Option<u32>,
    /// Ethernet address; `None` keeps the kernel's.
    pub mac: Option<Mac>,
    /// Whether frames may be unfinished, in both directions: checksums, and TCP segmentation.
    pub offloads: bool,
    /// Whether to set the interface up.
    pub up: bool,
}

impl Default for TapConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            queues: 1,
            persistent: false,
            mtu: None,
            mac: None,
            offloads: false,
            up: true,
        }
    }
}

/// An open TAP interface.
#[derive(Debug)]
pub struct TapDevice {
    /// Name of the interface in the kernel.
    pub name: String,
    /// Index of the interface in its namespace.
    pub ifindex: u32,
    /// The requested queues.
    pub queues: Vec<TapQueue>,
    /// Description of the mechanism, as text for users.
    pub mode: String,
    /// Notes for the owner.
    pub notes: Vec<String>,
}

/// Reason why a TAP interface could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapError {
    /// The number of queues is not possible.
    #[error("a TAP interface has 1 to {MAX_TAP_QUEUES} queues, not {0}")]
    Queues(u16),
    /// The MTU is not possible.
    #[error("MTU {0}: a TAP port takes 68 to {MAX_TAP_MTU} bytes")]
    Mtu(u32),
    /// The kernel's TUN/TAP driver cannot be reached.
    #[error(
        "opening /dev/net/tun: {0}; load it with `modprobe tun`, and pass the device into the container if there is one"
    )]
    NoDriver(#[source] Error),
    /// An interface of another kind has that name.
    #[error("{name} is a {kind} interface, not a TAP one; choose another name")]
    NotTap {
        name: String,
        /// Kind of that interface.
        kind: String,
    },
    /// Another program has the interface open.
    #[error("{0} is in use by another program, or was made for another number of queues (see `ip tuntap`)")]
    Busy(String),
    /// A privilege is missing.
    #[error(
        "making {0} needs CAP_NET_ADMIN: run as root, or have it made by `ip tuntap add dev {0} mode tap user $USER`"
    )]
    Privilege(String),
    /// The interface cannot be queried or set.
    #[error(transparent)]
    Netdev(Box<NetdevError>),
    /// The kernel refused another step.
    #[error("{name}: {step}: {source}")]
    Kernel { name: String, step: &'static str, source: Errno },
}

impl DriverError for TapError {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Busy(_))
    }
}

impl From<NetdevError> for TapError {
    fn from(error: NetdevError) -> Self {
        Self::Netdev(Box::new(error))
    }
}

impl TapDevice {
    /// Creates the interface, or opens a persistent one of that name, in the network namespace of the calling thread.
    /// If another process leaves queues in `left` ([`Upgrade::hand_over`](ringroad_port::port_queue::Upgrade::hand_over)),
    /// takes over their interface unchanged.
    ///
    /// # Errors
    /// [`TapError`]. No new interface is left behind then.
    pub fn open(config: &TapConfig, left: Vec<HandOver>) -> Result<Self, TapError> {
        let descriptors: Vec<OwnedFd> = left.into_iter().flat_map(|queue| queue.descriptors).collect();
        match descriptors.first() {
            Some(first) => {
                let name = name_of(first).map_err(|source| TapError::Kernel {
                    name: config.name.clone(),
                    step: "querying its name",
                    source,
                })?;
                Self::of_queues(config, name, descriptors, Vec::new())
            }
            None => Self::make(config),
        }
    }

    fn make(config: &TapConfig) -> Result<Self, TapError> {
        if config.queues == 0 || config.queues > MAX_TAP_QUEUES {
            return Err(TapError::Queues(config.queues));
        }
        if let Some(mtu) = config.mtu
            && !(68..=MAX_TAP_MTU).contains(&mtu)
        {
            return Err(TapError::Mtu(mtu));
        }
        let asked = if config.name.is_empty() { "tap%d" } else { &config.name };
        // The kernel puts a number in place of the pattern.
        check_name(&asked.replace("%d", "00"))?;
        let existed = link_by_name(asked).is_ok();

        let (first, name) = attach(asked, config)?;
        let mut descriptors = vec![first];
        for _ in 1..config.queues {
            descriptors.push(attach(&name, config)?.0);
        }
        if let Some(mac) = config.mac {
            link_change::set_mac(&name, mac)?;
        }
        if let Some(mtu) = config.mtu {
            link_change::set_mtu(&name, mtu)?;
        }
        // The limit lets a slot describe every frame.
        if config.offloads {
            link_change::set_gso_max_bytes(&name, MAX_FRAME_BYTES as u32)?;
        }
        if config.up {
            link_change::set_up(&name, true)?;
        }
        // The interface becomes persistent last, so that an earlier failure leaves no interface behind.
        if config.persistent
            && let Some(descriptor) = descriptors.first()
        {
            let refused =
                |source| TapError::Kernel { name: name.clone(), step: "making it persistent", source };
            tun(descriptor, libc::TUNSETPERSIST, 1).map_err(refused)?;
        }

        let mut notes = Vec::new();
        if existed {
            notes.push(format!("{name} existed already and stays when it is closed"));
        }
        Self::of_queues(config, name, descriptors, notes)
    }

    fn of_queues(
        config: &TapConfig,
        name: String,
        descriptors: Vec<OwnedFd>,
        notes: Vec<String>,
    ) -> Result<Self, TapError> {
        let ifindex = link_by_name(&name)?.index;
        // The kernel counts drops per interface, so only the first queue reports them.
        let mut probe = Some(LinkProbe::open(ifindex)?);
        let link = Arc::new(LinkWatch::open(ifindex)?);
        let queues = descriptors
            .into_iter()
            .map(|descriptor| {
                let link = (Arc::clone(&link), probe.take());
                TapQueue::new(descriptor, name.clone(), config.offloads, link)
            })
            .collect::<rustix::io::Result<Vec<TapQueue>>>()
            .map_err(|source| TapError::Kernel { name: name.clone(), step: "watching it", source })?;
        let offloads = if config.offloads { ", checksum and TCP segmentation offload" } else { "" };
        let mode = format!("TAP {name}, {} queue(s){offloads}", queues.len());
        Ok(Self { name, ifindex, queues, mode, notes })
    }
}

/// Opens one more queue of interface `name`, which is created if needed. Also returns the name in the kernel.
fn attach(name: &str, config: &TapConfig) -> Result<(OwnedFd, String), TapError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let descriptor = rustix::fs::open("/dev/net/tun", flags, Mode::empty())
        .map_err(|errno| TapError::NoDriver(errno.into()))?;
    let kernel = |step| move |source| TapError::Kernel { name: name.to_owned(), step, source };
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if config.queues > 1 {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    let value = libc::__c_anonymous_ifr_ifru { ifru_flags: flags as libc::c_short };
    let mut request = interface_request(name, value);
    tun(&descriptor, libc::TUNSETIFF, (&raw mut request).expose_provenance())
        .map_err(|errno| refusal(name, errno))?;
    // A persistent interface keeps the header length and offloads of its last user.
    let bytes = VIRTIO_HEADER_BYTES as libc::c_int;
    tun(&descriptor, libc::TUNSETVNETHDRSZ, (&raw const bytes).expose_provenance())
        .map_err(kernel("setting the length of the virtio-net header"))?;
    tun(&descriptor, libc::TUNSETOFFLOAD, if config.offloads { OFFLOADS } else { 0 })
        .map_err(kernel("setting offloads"))?;
    Ok((descriptor, name_in(&request).unwrap_or_else(|_| name.to_owned())))
}

/// Name of the interface of a queue.
fn name_of(descriptor: &OwnedFd) -> rustix::io::Result<String> {
    let mut request = interface_request("", libc::__c_anonymous_ifr_ifru { ifru_flags: 0 });
    tun(descriptor, libc::TUNGETIFF, (&raw mut request).expose_provenance())?;
    name_in(&request)
}

fn name_in(request: &libc::ifreq) -> rustix::io::Result<String> {
    let name = request.ifr_name.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8).collect();
    String::from_utf8(name).map_err(|_| Errno::INVAL)
}

/// Makes a request of the kernel's TUN/TAP driver. `argument` is a number, or the address of the data that the request
/// reads and writes.
fn tun(descriptor: &OwnedFd, code: libc::Ioctl, argument: usize) -> rustix::io::Result<()> {
    // SAFETY: each call in this file passes the argument that its request expects, and memory passed by address lives
    // across the call.
    let result = unsafe { libc::ioctl(descriptor.as_raw_fd(), code, argument) };
    if result < 0 { Err(Errno::from_io_error(&Error::last_os_error()).unwrap_or(Errno::IO)) } else { Ok(()) }
}

/// Error for the kernel's refusal to attach to `name`.
fn refusal(name: &str, source: Errno) -> TapError {
    match source {
        Errno::PERM | Errno::ACCESS => TapError::Privilege(name.to_owned()),
        Errno::BUSY => TapError::Busy(name.to_owned()),
        // The error for interfaces of another kind, and for those made with or without IFF_MULTI_QUEUE.
        Errno::INVAL if let Ok(link) = link_by_name(name) => match link.kind {
            Some(kind) if kind == "tun" && link.ethernet => TapError::Busy(name.to_owned()),
            kind => {
                let kind = kind.unwrap_or_else(|| "hardware".to_owned());
                TapError::NotTap { name: name.to_owned(), kind }
            }
        },
        _ => TapError::Kernel { name: name.to_owned(), step: "making it", source },
    }
}

#[cfg(test)]
mod tests;
