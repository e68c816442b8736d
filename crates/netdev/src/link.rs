//! The kernel's report of a link: rtnetlink's `RTM_GETLINK` (rtnetlink(7), linux/if_link.h).

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    LinkAttribute, LinkFlags, LinkInfo as LinkKind, LinkLayerType, LinkMessage, LinkXdp, Stats64, XdpAttached,
};
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;

use crate::error::NetdevError;
use crate::namespace::current_in_words;
use crate::netlink::Requests;

/// Maximum length of the name of an interface, bytes (`IFNAMSIZ` of linux/if.h without the final zero).
pub const NAME_BYTES_MAX: usize = 15;

/// State of a link at the time of the query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LinkInfo {
    /// Index of the interface, never 0. It is unique in its namespace.
    pub index: u32,
    pub name: String,
    /// Hardware address; `None` if the link has none, or one that does not have the length of Ethernet's.
    pub mac: Option<[u8; 6]>,
    /// Maximum payload of a frame, bytes, without the Ethernet header.
    pub mtu: u32,
    /// Whether the administrator has set the link up (`IFF_UP`).
    pub up: bool,
    /// Whether the link is up, has carrier, and its queues are open (`IFF_RUNNING`). The kernel sets it shortly after
    /// carrier and drops frames sent before; see [`crate::link_monitor::wait_running`].
    pub running: bool,
    /// Whether the link has carrier. The kernel reports it at once, unlike `running`.
    pub carrier: bool,
    /// Whether the link's frames are Ethernet frames, as those of loopback are.
    pub ethernet: bool,
    /// Number of receive queues that the link was created with. A driver may use fewer:
    /// [`crate::ethtool::real_queue_count`].
    pub queues_rx: u32,
    /// Kind of virtual interface (`veth`, `tun`, `bridge`, ...); `None` for hardware and loopback.
    pub kind: Option<String>,
    /// Whether the link accepts frames to any address, because its administrator or a socket requested this.
    pub promiscuous: bool,
    /// The attached XDP program.
    pub xdp: Option<LinkXdpState>,
    /// The related interface: a veth's other end, or the interface below a VLAN.
    pub peer: Option<LinkPeer>,
    /// Index of the bridge, bond or similar interface that the link is a member of.
    pub controller: Option<u32>,
    /// Counters since the interface was created.
    pub statistics: LinkStatistics,
}

/// An XDP program on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkXdpState {
    /// The kernel's id of the program (`bpftool prog show id`); 0 if unknown.
    pub prog_id: u32,
    /// Mode in which the program runs.
    pub mode: XdpReportedMode,
}

/// Mode in which an XDP program runs (`XDP_ATTACHED_*` of linux/if_link.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum XdpReportedMode {
    /// The program runs in the driver, before a socket buffer is allocated.
    Native,
    /// The program runs in the kernel's stack, on socket buffers. This works with every driver but is slower.
    Generic,
    /// The program runs on the card.
    Offloaded,
    /// Several programs run, in different modes.
    Several,
}

/// The interface that a link is related to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkPeer {
    /// Index of the interface, in its own namespace.
    pub index: u32,
    /// Number of the interface's namespace in the caller's namespace ([`HeldNamespace::number_here`]), if it is another
    /// one, where the index is not valid for the caller.
    ///
    /// [`HeldNamespace::number_here`]: crate::HeldNamespace::number_here
    pub elsewhere: Option<i32>,
}

/// Counters of a link (`struct rtnl_link_stats64` of linux/if_link.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LinkStatistics {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped before transmission.
    pub tx_dropped: u64,
}

/// The link called `name` in the calling thread's network namespace.
///
/// # Errors
/// [`NetdevError::NoInterface`], which lists the existing interfaces; [`NetdevError::BadName`]; others if the kernel
/// cannot be queried.
pub fn link_by_name(name: &str) -> Result<LinkInfo, NetdevError> {
    check_name(name)?;
    let mut request = LinkMessage::default();
    request.attributes.push(LinkAttribute::IfName(name.to_owned()));
    let operation = || format!("read interface {name}");
    let answers = Requests::open(NETLINK_ROUTE)?
        .ask(RouteNetlinkMessage::GetLink(request), 0, &operation)
        .map_err(|error| name_missing(name, error))?;
    the_link(answers, &operation)
}

/// The link with index `index` in the calling thread's network namespace.
///
/// # Errors
/// [`NetdevError`], for example [`NetdevError::Refused`] if there is none.
pub fn link_by_index(index: u32) -> Result<LinkInfo, NetdevError> {
    query(&mut Requests::open(NETLINK_ROUTE)?, index)
}

/// Queries the link with index `index` through an open socket.
pub(crate) fn query(requests: &mut Requests, index: u32) -> Result<LinkInfo, NetdevError> {
    let mut request = LinkMessage::default();
    request.header.index = index;
    let operation = || format!("read interface number {index}");
    the_link(requests.ask(RouteNetlinkMessage::GetLink(request), 0, &operation)?, &operation)
}

/// The one link in the kernel's replies to `operation`.
fn the_link(
    answers: Vec<RouteNetlinkMessage>,
    operation: &dyn Fn() -> String,
) -> Result<LinkInfo, NetdevError> {
    answers.into_iter().find_map(link_of).ok_or_else(|| NetdevError::Answer {
        operation: operation(),
        reason: "it acknowledges the request without an answer".to_owned(),
    })
}

/// All links of the calling thread's network namespace, sorted by index.
///
/// # Errors
/// [`NetdevError`] if the kernel cannot be queried.
pub fn links() -> Result<Vec<LinkInfo>, NetdevError> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let answers =
        Requests::open(NETLINK_ROUTE)?.ask(request, NLM_F_DUMP, &|| "list the interfaces".to_owned())?;
    let mut links: Vec<_> = answers.into_iter().filter_map(link_of).collect();
    links.sort_by_key(|link| link.index);
    Ok(links)
}

/// Whether `name` can be an interface's name (`dev_valid_name` of the kernel, without patterns such as `veth%d`).
///
/// # Errors
/// [`NetdevError::BadName`].
pub fn check_name(name: &str) -> Result<(), NetdevError> {
    let reason = match name {
        "" => "it is empty",
        "." | ".." => "it is a directory's",
        _ if name.len() > NAME_BYTES_MAX => "it is too long",
        _ if name
            .bytes()
            .any(|byte| byte.is_ascii_whitespace() || matches!(byte, b'/' | b':' | b'%' | 0 | 0x0b)) =>
        {
            "it has a character that none may have"
        }
        _ => return Ok(()),
    };
    Err(NetdevError::BadName { name: name.to_owned(), reason })
}

/// Turns the kernel's "no such device" into an error that lists the existing interfaces.
pub(crate) fn name_missing(name: &str, error: NetdevError) -> NetdevError {
    if !matches!(error, NetdevError::Refused { source: Errno::NODEV, .. }) {
        return error;
    }
    let existing = links().unwrap_or_default().into_iter().map(|link| link.name).collect();
    NetdevError::NoInterface {
        name: name.to_owned(),
        namespace: current_in_words().map(String::into_boxed_str),
        existing,
    }
}

fn link_of(message: RouteNetlinkMessage) -> Option<LinkInfo> {
    match message {
        RouteNetlinkMessage::NewLink(message) => Some(message.into()),
        _ => None,
    }
}

impl From<LinkMessage> for LinkInfo {
    fn from(message: LinkMessage) -> Self {
        let flags = message.header.flags;
        let mut link = Self {
            index: message.header.index,
            up: flags.contains(LinkFlags::Up),
            running: flags.contains(LinkFlags::Running),
            promiscuous: flags.contains(LinkFlags::Promisc),
            ethernet: matches!(
                message.header.link_layer_type,
                LinkLayerType::Ether | LinkLayerType::Loopback
            ),
            ..Self::default()
        };
        let mut peer_index = None;
        let mut elsewhere = None;
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::Address(bytes) => link.mac = bytes.try_into().ok(),
                LinkAttribute::Mtu(bytes) => link.mtu = bytes,
                LinkAttribute::Carrier(carrier) => link.carrier = carrier != 0,
                LinkAttribute::NumRxQueues(queues) => link.queues_rx = queues,
                // `IFF_PROMISC` shows only the administrator's setting. This counter includes the requests of sockets.
                LinkAttribute::Promiscuity(counter) => link.promiscuous |= counter > 0,
                LinkAttribute::LinkInfo(parts) => {
                    link.kind = parts.into_iter().find_map(|part| match part {
                        LinkKind::Kind(kind) => Some(kind.to_string()),
                        _ => None,
                    });
                }
                LinkAttribute::Xdp(parts) => link.xdp = attached_xdp(&parts),
                LinkAttribute::Controller(index) => link.controller = Some(index).filter(|&index| index != 0),
                LinkAttribute::Link(index) => peer_index = Some(index),
                LinkAttribute::LinkNetNsId(number) => elsewhere = Some(number),
                LinkAttribute::Stats64(Stats64 { rx_packets, tx_packets, tx_dropped, .. }) => {
                    link.statistics = LinkStatistics { rx_packets, tx_packets, tx_dropped };
                }
                _ => {}
            }
        }
        link.peer = peer_index.filter(|&index| index != 0).map(|index| LinkPeer { index, elsewhere });
        link
    }
}

fn attached_xdp(parts: &[LinkXdp]) -> Option<LinkXdpState> {
    let mut mode = None;
    let mut prog_id = 0;
    for part in parts {
        match part {
            LinkXdp::Attached(XdpAttached::Driver) => mode = Some(XdpReportedMode::Native),
            LinkXdp::Attached(XdpAttached::SocketBuffer) => mode = Some(XdpReportedMode::Generic),
            LinkXdp::Attached(XdpAttached::Hardware) => mode = Some(XdpReportedMode::Offloaded),
            LinkXdp::Attached(XdpAttached::Multiple) => mode = Some(XdpReportedMode::Several),
            LinkXdp::ProgId(id) => prog_id = *id,
            // Attribute of links with several programs, for which the kernel reports only these. The one in the driver
            // sees frames first.
            LinkXdp::DrvProgId(id) => prog_id = *id,
            LinkXdp::SkbProgId(id) | LinkXdp::HwProgId(id) if prog_id == 0 => prog_id = *id,
            _ => {}
        }
    }
    mode.map(|mode| LinkXdpState { prog_id, mode })
}

#[cfg(test)]
mod tests {
    #![allow(unsafe_code)]

    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::process::Command;

    use super::*;
    use crate::ethtool::real_queue_count;
    use crate::link_change::{VethEnd, create_veth, detach_xdp, set_mtu};
    use crate::link_monitor::{LinkEvent, LinkMonitor};
    use crate::test_namespace::{in_new_namespace, without_rights};

    fn ip(arguments: &str) {
        let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
        assert!(status.success(), "ip {arguments}");
    }

    /// A loaded XDP program that lets every frame pass (bpf(2), `BPF_PROG_LOAD`).
    fn pass_program() -> OwnedFd {
        /// The first fields of `union bpf_attr` for this command.
        #[repr(C)]
        struct LinkXdpAttr {
            kind: u32,
            instruction_count: u32,
            instructions: u64,
            license: u64,
            unused: [u64; 4],
        }
        let instructions: [u64; 2] = [0x0000_0002_0000_00b7, 0x95].map(u64::from_le);
        let load = LinkXdpAttr {
            kind: 6,
            instruction_count: 2,
            instructions: instructions.as_ptr() as u64,
            license: c"GPL".as_ptr() as u64,
            unused: [0; 4],
        };
        // SAFETY: `load` and what it points to live through the call, and the given size is that of `load`.
        let fd = unsafe { libc::syscall(libc::SYS_bpf, 5, &raw const load, size_of::<LinkXdpAttr>()) };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the kernel has just created this descriptor for this call.
        unsafe { OwnedFd::from_raw_fd(fd as i32) }
    }

    fn attach(name: &str, program: i32, flags: u32) {
        let mut request = LinkMessage::default();
        request.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Xdp(vec![LinkXdp::Fd(program), LinkXdp::Flags(flags)]),
        ];
        let mut requests = Requests::open(NETLINK_ROUTE).unwrap();
        requests.ask(RouteNetlinkMessage::SetLink(request), 0, &|| "attach".to_owned()).unwrap();
    }

    #[test]
    fn an_attached_xdp_program_has_its_number_and_mode() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            let program = pass_program();
            let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).unwrap();
            let id = told.lines().find_map(|line| line.strip_prefix("prog_id:")).unwrap().trim();
            let prog_id = id.parse().unwrap();
            // XDP_FLAGS_SKB_MODE and XDP_FLAGS_DRV_MODE of linux/if_link.h.
            for (flags, mode) in [(2, XdpReportedMode::Generic), (4, XdpReportedMode::Native)] {
                attach("va", program.as_raw_fd(), flags);
                assert_eq!(link_by_name("va").unwrap().xdp, Some(LinkXdpState { prog_id, mode }));
                assert_eq!(link_by_name("vb").unwrap().xdp, None);
                detach_xdp(link_by_name("va").unwrap().index, mode).unwrap();
                assert_eq!(link_by_name("va").unwrap().xdp, None);
            }
        });
    }

    #[test]
    fn promiscuity_is_seen_and_a_bridge_differs_from_its_link() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            ip("link set va promisc on");
            assert!(link_by_name("va").unwrap().promiscuous);
            ip("link set va promisc off");
            assert!(!link_by_name("va").unwrap().promiscuous);

            ip("link add name br0 type bridge");
            let mut monitor = LinkMonitor::open().unwrap();
            ip("link set va master br0");
            assert!(link_by_name("va").unwrap().promiscuous, "a bridge receives everything");
            ip("link set va nomaster");
            assert!(!link_by_name("va").unwrap().promiscuous);
            let mut gone = Vec::new();
            monitor
                .events(|event| {
                    if !matches!(event, LinkEvent::Changed(_)) {
                        gone.push(event);
                    }
                })
                .unwrap();
            assert_eq!(gone, [], "leaving a bridge is not leaving");
        });
    }

    #[test]
    fn an_unheld_tap_has_its_kind_and_at_least_one_queue() {
        in_new_namespace(|| {
            ip("tuntap add mode tap name tap0");
            let tap = link_by_name("tap0").unwrap();
            assert_eq!(tap.kind.as_deref(), Some("tun"));
            assert!(!tap.running);
            assert_eq!(real_queue_count("tap0").unwrap(), tap.queues_rx.max(1));
        });
    }

    #[test]
    fn many_links_are_listed_in_order() {
        in_new_namespace(|| {
            for pair in 0..100 {
                let (a, b) = (format!("va{pair}"), format!("vb{pair}"));
                create_veth(VethEnd::here(&a), VethEnd::here(&b)).unwrap();
            }
            let links = links().unwrap();
            assert_eq!(links.len(), 201);
            assert!(links.is_sorted_by(|one, next| one.index < next.index));
            let again = link_by_name(&links[150].name).unwrap();
            assert_eq!(again, links[150]);
        });
    }

    #[test]
    fn without_rights_changes_are_refused_with_the_needed_right() {
        in_new_namespace(|| {
            without_rights(|| {
                assert_eq!(link_by_name("lo").unwrap().index, 1);
                let text = set_mtu("lo", 1500).unwrap_err().to_string();
                assert!(text.contains("cannot set the MTU of lo to 1500"), "{text}");
                assert!(text.contains("CAP_NET_ADMIN"), "{text}");
            });
        });
    }
}
