//! The few questions and changes that drivers need of a network interface, by ioctl (netdevice(7)) and one netlink message.
//!
//! The sockets belong to the network namespace of the thread that opened them, and go on asking there from any thread.
#![allow(unsafe_code)]

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Bytes of an interface's name with the closing zero (`IFNAMSIZ`).
const NAME_BYTES: usize = libc::IFNAMSIZ;
/// The request of linux/ethtool.h for the state of the link.
const ETHTOOL_GLINK: u32 = 10;
/// The request of linux/ethtool.h for `struct ethtool_drvinfo`, that structure's length in bytes, and where its driver and
/// bus names lie.
const ETHTOOL_GDRVINFO: u32 = 3;
const DRIVER_INFO_BYTES: usize = 196;
const DRIVER_NAME: std::ops::Range<usize> = 4..36;
const BUS_NAME: std::ops::Range<usize> = 100..132;
/// The request of linux/sockios.h for timestamps of a card, and of linux/net_tstamp.h for all frames.
const SIOCSHWTSTAMP: libc::Ioctl = 0x89b0;
const HWTSTAMP_FILTER_ALL: i32 = 1;
/// `RTM_GETSTATS` and `IFLA_STATS_LINK_64` of linux/rtnetlink.h and linux/if_link.h.
const RTM_GETSTATS: u16 = 94;
const IFLA_STATS_LINK_64: u32 = 1;
/// Where `tx_dropped` lies in an answer: nlmsghdr (16), if_stats_msg (12), nlattr (4), eighth word of rtnl_link_stats64.
const TX_DROPPED: std::ops::Range<usize> = 88..96;

/// `struct ifreq`: a name, and 24 bytes that mean what the request says.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct InterfaceRequest {
    pub(crate) name: [u8; NAME_BYTES],
    pub(crate) value: [u8; 24],
}

impl InterfaceRequest {
    /// A request about `name`.
    ///
    /// # Errors
    /// `InvalidInput` where the name cannot be an interface's.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let bytes = name.as_bytes();
        let odd = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'/' || *byte == b':' || *byte == 0;
        if bytes.len() >= NAME_BYTES || name == "." || name == ".." || bytes.iter().any(odd) {
            let reason =
                format!("{name:?} cannot be an interface's name: at most 15 bytes, without space, / and :");
            return Err(Error::new(ErrorKind::InvalidInput, reason));
        }
        let mut request = Self { name: [0; NAME_BYTES], value: [0; 24] };
        for (to, from) in request.name.iter_mut().zip(bytes) {
            *to = *from;
        }
        Ok(request)
    }

    /// The name as the kernel left it.
    pub(crate) fn name(&self) -> String {
        text(&self.name)
    }

    /// Puts `bytes` at the start of the value.
    pub(crate) fn with(mut self, bytes: &[u8]) -> Self {
        for (to, from) in self.value.iter_mut().zip(bytes) {
            *to = *from;
        }
        self
    }

    fn number(&self) -> i32 {
        let [a, b, c, d, ..] = self.value;
        i32::from_ne_bytes([a, b, c, d])
    }
}

/// Makes an ioctl whose argument is a `struct ifreq`.
pub(crate) fn request(descriptor: &OwnedFd, code: libc::Ioctl, request: &mut InterfaceRequest) -> Result<()> {
    // SAFETY: the requests made in this crate read and write no more than the 40 bytes of a `struct ifreq`.
    checked(unsafe { libc::ioctl(descriptor.as_raw_fd(), code, std::ptr::from_mut(request)) }).map(drop)
}

/// The result of a C call that says -1 for an error.
pub(crate) fn checked(result: libc::c_int) -> Result<libc::c_int> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

/// A descriptor that a C call has just made.
pub(crate) fn owned(result: libc::c_int) -> Result<OwnedFd> {
    let descriptor = checked(result)?;
    // SAFETY: the call succeeded and made a descriptor that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes)).into_owned()
}

/// What an interface is able to do at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Up, with a link.
    Running,
    /// Up, without.
    NoCarrier,
    /// Set down.
    Down,
    /// There is none of that index.
    Gone,
}

/// Asks and changes the interfaces of one network namespace.
#[derive(Debug)]
pub(crate) struct Interfaces {
    socket: OwnedFd,
    netlink: OwnedFd,
}

impl Interfaces {
    /// For the namespace of the calling thread.
    pub(crate) fn of_this_namespace() -> Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: no pointer is passed.
        let socket = owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no pointer is passed.
        let netlink = owned(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
        Ok(Self { socket, netlink })
    }

    fn ask(&self, name: &str, code: libc::Ioctl, value: &[u8]) -> Result<InterfaceRequest> {
        let mut answer = InterfaceRequest::new(name)?.with(value);
        request(&self.socket, code, &mut answer)?;
        Ok(answer)
    }

    /// Its index; `ENODEV` where there is none of that name.
    pub(crate) fn index(&self, name: &str) -> Result<u32> {
        self.ask(name, libc::SIOCGIFINDEX, &[]).map(|answer| answer.number().cast_unsigned())
    }

    /// Its flags (`IFF_UP` and so on).
    pub(crate) fn flags(&self, name: &str) -> Result<i32> {
        let [low, high, ..] = self.ask(name, libc::SIOCGIFFLAGS, &[])?.value;
        Ok(i32::from(u16::from_ne_bytes([low, high])))
    }

    /// Its name by its index; `ENODEV` where there is none.
    fn name(&self, index: u32) -> Result<String> {
        let mut answer = InterfaceRequest::new("")?.with(&index.to_ne_bytes());
        request(&self.socket, libc::SIOCGIFNAME, &mut answer)?;
        Ok(answer.name())
    }

    /// Whether the interface of that index is there and up. Waits for no lock of the kernel, unlike [`Interfaces::state`].
    pub(crate) fn is_up(&self, index: u32) -> bool {
        self.name(index).and_then(|name| self.flags(&name)).is_ok_and(|flags| flags & libc::IFF_UP != 0)
    }

    /// What the interface of that index is able to do.
    pub(crate) fn state(&self, index: u32) -> LinkState {
        match self.name(index).and_then(|name| self.flags(&name)) {
            Ok(flags) if flags & libc::IFF_UP == 0 => LinkState::Down,
            Ok(flags) if flags & libc::IFF_RUNNING == 0 => LinkState::NoCarrier,
            Ok(_) if self.has_carrier(index) == Some(false) => LinkState::NoCarrier,
            Ok(_) => LinkState::Running,
            Err(_) => LinkState::Gone,
        }
    }

    /// Whether it has a link at this moment, while its flags may lag by a second; `None` where its driver does not say.
    fn has_carrier(&self, index: u32) -> Option<bool> {
        // struct ethtool_value: command, answer.
        let mut value = [ETHTOOL_GLINK, 0u32];
        let address = value.as_mut_ptr().expose_provenance();
        self.ask(&self.name(index).ok()?, libc::SIOCETHTOOL, &address.to_ne_bytes()).ok()?;
        let [_, answer] = value;
        Some(answer != 0)
    }

    /// Whether the interface of that index carries Ethernet frames.
    pub(crate) fn is_ethernet(&self, index: u32) -> Result<bool> {
        let [low, high, ..] = self.ask(&self.name(index)?, libc::SIOCGIFHWADDR, &[])?.value;
        Ok([libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&u16::from_ne_bytes([low, high])))
    }

    /// Makes the card note when each frame came, by its own clock.
    pub(crate) fn stamp_all_frames(&self, name: &str) -> Result<()> {
        // struct hwtstamp_config: flags, none sent stamped, all received.
        let wish: [i32; 3] = [0, 0, HWTSTAMP_FILTER_ALL];
        self.ask(name, SIOCSHWTSTAMP, &wish.as_ptr().expose_provenance().to_ne_bytes()).map(drop)
    }

    /// Sets it up.
    pub(crate) fn set_up(&self, name: &str) -> Result<()> {
        let flags = (self.flags(name)? | libc::IFF_UP) as u16;
        self.ask(name, libc::SIOCSIFFLAGS, &flags.to_ne_bytes()).map(drop)
    }

    /// Sets its MTU, bytes without Ethernet header.
    pub(crate) fn set_mtu(&self, name: &str, mtu: u32) -> Result<()> {
        self.ask(name, libc::SIOCSIFMTU, &mtu.to_ne_bytes()).map(drop)
    }

    /// Sets its Ethernet address.
    pub(crate) fn set_mac(&self, name: &str, mac: [u8; 6]) -> Result<()> {
        let [low, high] = libc::ARPHRD_ETHER.to_ne_bytes();
        let [a, b, c, d, e, f] = mac;
        self.ask(name, libc::SIOCSIFHWADDR, &[low, high, a, b, c, d, e, f]).map(drop)
    }

    /// Names of its driver and bus: a TAP interface says `tun` and `tap`.
    pub(crate) fn driver(&self, name: &str) -> Result<(String, String)> {
        let mut info = [0u8; DRIVER_INFO_BYTES];
        for (to, from) in info.iter_mut().zip(ETHTOOL_GDRVINFO.to_ne_bytes()) {
            *to = from;
        }
        self.ask(name, libc::SIOCETHTOOL, &info.as_mut_ptr().expose_provenance().to_ne_bytes())?;
        let part = |range| text(info.get(range).unwrap_or(&[]));
        Ok((part(DRIVER_NAME), part(BUS_NAME)))
    }

    /// Frames that it dropped on the way out, since it was made.
    pub(crate) fn tx_dropped(&self, index: u32) -> Result<u64> {
        // nlmsghdr: length, type, flags, sequence, port; if_stats_msg: family and padding, index, mask of groups.
        let mut message = Vec::with_capacity(28);
        message.extend_from_slice(&28u32.to_ne_bytes());
        message.extend_from_slice(&RTM_GETSTATS.to_ne_bytes());
        message.extend_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
        message.extend_from_slice(&[0; 12]);
        message.extend_from_slice(&index.to_ne_bytes());
        message.extend_from_slice(&IFLA_STATS_LINK_64.to_ne_bytes());
        let no_flags = rustix::net::SendFlags::empty();
        rustix::net::send(&self.netlink, &message, no_flags)?;
        let mut answer = [0u8; 1024];
        let (_, len) =
            rustix::net::recv(&self.netlink, answer.as_mut_slice(), rustix::net::RecvFlags::DONTWAIT)?;
        let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
        let count = answer.get(TX_DROPPED).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
        match count {
            Some(count) if len >= TX_DROPPED.end && kind != Some(libc::NLMSG_ERROR as u16) => Ok(count),
            _ => Err(Error::new(ErrorKind::NotFound, "the kernel has no statistics of the interface")),
        }
    }
}
