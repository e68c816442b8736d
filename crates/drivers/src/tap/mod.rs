//! TAP interfaces: Ethernet interfaces whose cable ends in this process (linux/if_tun.h, tuntap.txt of the kernel).
//!
//! What the host's stack sends on the interface is received here; what is delivered here the stack takes as received.
//! Offloads are off, so every frame comes whole and with its checksums; with the virtio-net header (for guests that expect
//! one) it is zero in both directions. A frame costs one system call each way: that is what TAP is.
//!
//! Trust: the bytes come from the host's stack or from who writes to the interface; nothing here looks into them.
#![allow(unsafe_code)]

mod queue;

use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use crate::interface::{InterfaceRequest, Interfaces, checked, request};

pub use queue::TapQueue;

/// Bytes of `struct virtio_net_hdr_mrg_rxbuf`, the header of virtio 1.0 and later.
const VNET_HEADER_BYTES: usize = 12;
/// Largest MTU, bytes: with an Ethernet header and a VLAN tag a frame still fits into a slot.
pub const MAX_TAP_MTU: u32 = 65535 - 18;
/// Most queues of a TAP interface (`MAX_TAP_QUEUES` of the kernel).
pub const MAX_TAP_QUEUES: u16 = 256;

/// What is asked of a TAP interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapWish {
    /// Its name, at most 15 bytes. With `%d` in it, or empty (`tap%d`), the kernel chooses a number.
    pub name: String,
    /// Number of queues, from 1.
    pub queues: u16,
    /// Whether it stays when the last queue is closed. One that existed before always does.
    pub persistent: bool,
    /// MTU, bytes, at most [`MAX_TAP_MTU`]; `None` leaves the kernel's.
    pub mtu: Option<u32>,
    /// Ethernet address; `None` leaves the kernel's.
    pub mac: Option<[u8; 6]>,
    /// Whether frames carry a virtio-net header of 12 bytes between kernel and driver. It is skipped, and zero where sent.
    pub vnet_hdr: bool,
    /// Whether to set it up.
    pub up: bool,
}

impl Default for TapWish {
    fn default() -> Self {
        Self {
            name: String::new(),
            queues: 1,
            persistent: false,
            mtu: None,
            mac: None,
            vnet_hdr: false,
            up: true,
        }
    }
}

/// A TAP interface, opened.
#[derive(Debug)]
pub struct TapDevice {
    /// Its name, as the kernel has it.
    pub name: String,
    /// Its index in the namespace.
    pub ifindex: u32,
    /// One per queue asked for.
    pub queues: Vec<TapQueue>,
    /// What it is, in words for people.
    pub mode: String,
    /// What the owner should know.
    pub notes: Vec<String>,
}

/// Why a TAP interface cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapError {
    /// Number of queues.
    #[error("a TAP interface has 1 to {MAX_TAP_QUEUES} queues, not {0}")]
    Queues(u16),
    /// MTU.
    #[error("MTU {0}: a TAP port takes 68 to {MAX_TAP_MTU} bytes")]
    Mtu(u32),
    /// The kernel's TUN/TAP driver cannot be reached.
    #[error(
        "opening /dev/net/tun: {0}; load it with `modprobe tun`, and pass the device into the container if there is one"
    )]
    NoDriver(#[source] Error),
    /// There is an interface of that name, and it is of another kind.
    #[error("{name} is a {kind} interface, not a TAP one; choose another name")]
    NotTap {
        /// Its name.
        name: String,
        /// Its driver.
        kind: String,
    },
    /// A program has it open.
    #[error("{0} is in use by another program, or was made for another number of queues (`ip tuntap` tells)")]
    Busy(String),
    /// A privilege is missing.
    #[error(
        "making {0} needs CAP_NET_ADMIN: run as root, or have it made by `ip tuntap add dev {0} mode tap user $USER`"
    )]
    Privilege(String),
    /// The kernel refused something else.
    #[error("{name}: {step}: {source}")]
    Kernel {
        /// Which interface.
        name: String,
        /// What was tried.
        step: &'static str,
        /// The kernel's answer.
        source: Error,
    },
}

impl TapDevice {
    /// Makes the interface, or opens a persistent one of that name, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`TapError`]. Nothing is left behind then.
    pub fn open(wish: &TapWish) -> Result<Self, TapError> {
        if wish.queues == 0 || wish.queues > MAX_TAP_QUEUES {
            return Err(TapError::Queues(wish.queues));
        }
        if let Some(mtu) = wish.mtu
            && !(68..=MAX_TAP_MTU).contains(&mtu)
        {
            return Err(TapError::Mtu(mtu));
        }
        let asked = if wish.name.is_empty() { "tap%d" } else { &wish.name };
        let kernel = |step| move |source| TapError::Kernel { name: asked.to_owned(), step, source };
        let interfaces = Interfaces::of_this_namespace().map_err(kernel("asking for interfaces"))?;
        let existed = interfaces.index(asked).is_ok();

        let (first, name) = attach(&interfaces, asked, wish)?;
        let mut descriptors = vec![first];
        for _ in 1..wish.queues {
            descriptors.push(attach(&interfaces, &name, wish)?.0);
        }
        let ifindex = interfaces.index(&name).map_err(kernel("finding its index"))?;
        if let Some(mac) = wish.mac {
            interfaces.set_mac(&name, mac).map_err(kernel("setting the Ethernet address"))?;
        }
        if let Some(mtu) = wish.mtu {
            interfaces.set_mtu(&name, mtu).map_err(kernel("setting the MTU"))?;
        }
        if wish.up {
            interfaces.set_up(&name).map_err(kernel("setting it up"))?;
        }
        // Last, so that a failure before it leaves nothing behind.
        if wish.persistent
            && let Some(descriptor) = descriptors.first()
        {
            set_number(descriptor, libc::TUNSETPERSIST, 1).map_err(kernel("making it persistent"))?;
        }

        let mut notes = Vec::new();
        if existed {
            notes.push(format!("{name} existed already and stays when it is closed"));
        }
        let header_bytes = if wish.vnet_hdr { VNET_HEADER_BYTES } else { 0 };
        if wish.vnet_hdr {
            notes.push(format!(
                "{name}: the virtio-net header is zero both ways; offloads are off, so that frames are whole"
            ));
        }
        let interfaces = Arc::new(interfaces);
        let queues: Vec<TapQueue> = descriptors
            .into_iter()
            .enumerate()
            .map(|(number, descriptor)| {
                // What the kernel drops it counts for the interface: the first queue accounts for it.
                let account = (number == 0).then(|| Arc::clone(&interfaces));
                TapQueue::new(descriptor, name.clone(), ifindex, header_bytes, account)
            })
            .collect();
        let header = if wish.vnet_hdr { ", virtio-net header" } else { "" };
        let mode = format!("TAP {name}, {} queue(s){header}", wish.queues);
        Ok(Self { name, ifindex, queues, mode, notes })
    }

    /// Takes away what keeps a persistent interface alive: it vanishes with its last queue.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn forget(&self) -> Result<(), Error> {
        self.queues.first().map_or(Ok(()), |queue| set_number(queue.descriptor(), libc::TUNSETPERSIST, 0))
    }
}

/// One more queue of interface `name`, which is made where there is none; the name as the kernel has it.
fn attach(interfaces: &Interfaces, name: &str, wish: &TapWish) -> Result<(OwnedFd, String), TapError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let descriptor = rustix::fs::open("/dev/net/tun", flags, Mode::empty())
        .map_err(|errno| TapError::NoDriver(errno.into()))?;
    let kernel = |step| move |source| TapError::Kernel { name: name.to_owned(), step, source };
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI;
    if wish.queues > 1 {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    if wish.vnet_hdr {
        flags |= libc::IFF_VNET_HDR;
    }
    let flags = flags as u16;
    let mut answer =
        InterfaceRequest::new(name).map_err(kernel("checking the name"))?.with(&flags.to_ne_bytes());
    request(&descriptor, libc::TUNSETIFF, &mut answer).map_err(|error| refusal(interfaces, name, error))?;
    if wish.vnet_hdr {
        set_number(&descriptor, libc::TUNSETVNETHDRSZ, VNET_HEADER_BYTES as i32)
            .map_err(kernel("setting the length of the virtio-net header"))?;
    }
    // A persistent interface may remember offloads of its last user.
    // SAFETY: the argument of this request is a number.
    checked(unsafe { libc::ioctl(descriptor.as_raw_fd(), libc::TUNSETOFFLOAD, 0) })
        .map_err(kernel("switching offloads off"))?;
    Ok((descriptor, answer.name()))
}

/// Makes an ioctl whose argument is an `int`: by value for `TUNSETPERSIST`, by address for the others.
fn set_number(descriptor: &OwnedFd, code: libc::Ioctl, number: i32) -> Result<(), Error> {
    let descriptor = descriptor.as_raw_fd();
    let result = if code == libc::TUNSETPERSIST {
        // SAFETY: the argument of this request is a number.
        unsafe { libc::ioctl(descriptor, code, libc::c_long::from(number)) }
    } else {
        // SAFETY: the requests made with it read one `int`.
        unsafe { libc::ioctl(descriptor, code, std::ptr::from_ref(&number)) }
    };
    checked(result).map(drop)
}

/// What the kernel's refusal to attach to `name` means.
fn refusal(interfaces: &Interfaces, name: &str, error: Error) -> TapError {
    match (error.kind(), error.raw_os_error()) {
        (ErrorKind::PermissionDenied, _) => TapError::Privilege(name.to_owned()),
        (_, Some(libc::EBUSY)) => TapError::Busy(name.to_owned()),
        // Said of interfaces of another kind, and of those made with or without IFF_MULTI_QUEUE.
        (_, Some(libc::EINVAL)) => match interfaces.driver(name) {
            Ok((driver, bus)) if (driver.as_str(), bus.as_str()) == ("tun", "tap") => {
                TapError::Busy(name.to_owned())
            }
            Ok((driver, bus)) if driver == "tun" => TapError::NotTap { name: name.to_owned(), kind: bus },
            Ok((driver, _)) => TapError::NotTap { name: name.to_owned(), kind: driver },
            Err(_) if interfaces.index(name).is_ok() => {
                TapError::NotTap { name: name.to_owned(), kind: "foreign".to_owned() }
            }
            Err(_) => TapError::Kernel { name: name.to_owned(), step: "making it", source: error },
        },
        _ => TapError::Kernel { name: name.to_owned(), step: "making it", source: error },
    }
}

#[cfg(test)]
mod tests;
