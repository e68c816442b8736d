//! Ports of network interfaces: which mechanism serves one, and what it is told.
//!
//! The mechanisms themselves ([`crate::af_xdp`], [`crate::af_packet`], [`crate::host_rings`], [`crate::tap`]) know nothing of
//! port names or of each other. Everything here runs in the interface's network namespace.

use std::sync::Arc;

use ringroad_bpf::link::{Link, TcxSide};
use ringroad_bpf::program::TcxProgram;
use ringroad_netdev::ethtool::real_queue_count;
use ringroad_netdev::link::{LinkInfo, XdpMode, link_by_name};
use ringroad_netdev::namespace::{HeldNamespace, NamespaceError};
use ringroad_port::device_options::{DeviceOptions, TimestampSource};
use ringroad_port::port_name::Mechanism;
use ringroad_port::port_queue::{Capabilities, PortQueue};
use ringroad_ring::geometry::MAX_QUEUES;

use crate::af_packet::{PacketDevice, PacketWish};
use crate::af_xdp::{DEFAULT_RING_SIZE, XdpDevice, XdpWish};
use crate::device::{Device, DeviceError, DeviceInterface, DevicePlan, InterfaceSide, Role};
use crate::host_rings::{HOST_MARK, HostRings, HostRingsWish, tap_name};
use crate::promiscuous::Promiscuous;
use crate::shm::ShmRegion;
use crate::tap::{TapDevice, TapWish};

/// Ethernet header and one VLAN tag, bytes.
const ETHERNET_OVERHEAD_BYTES: u32 = 18;

/// Runs `f` in `netns`, else here.
pub(crate) fn within<T: Send>(
    netns: Option<&HeldNamespace>,
    f: impl FnOnce() -> Result<T, DeviceError> + Send,
) -> Result<T, DeviceError> {
    match netns {
        Some(netns) => netns.run(f)?,
        None => f(),
    }
}

/// The side of the interface with number `index` that a port is to have.
fn side_of(netns: Option<&HeldNamespace>, index: u32, host: bool) -> Option<InterfaceSide> {
    netns.map(|netns| InterfaceSide { namespace: netns.id(), index, host })
}

/// What a device tells of its interface.
fn device_interface(name: &str, plan: &DevicePlan) -> DeviceInterface {
    DeviceInterface { name: name.to_owned(), netns: plan.netns.clone(), side: plan.side }
}

impl From<NamespaceError> for DeviceError {
    fn from(error: NamespaceError) -> Self {
        Self::Namespace(error)
    }
}

fn boxed<Q: PortQueue + 'static>(queues: Vec<Q>) -> Vec<Box<dyn PortQueue>> {
    queues.into_iter().map(|queue| Box::new(queue) as Box<dyn PortQueue>).collect()
}

/// Looks at what a port of an interface needs.
pub(crate) fn plan_interface(
    interface: &str,
    mechanism: Mechanism,
    options: &DeviceOptions,
    netns: Option<&HeldNamespace>,
    asked: Option<u16>,
) -> Result<DevicePlan, DeviceError> {
    let (index, has) = within(netns, || Ok((link_by_name(interface)?.index, real_queue_count(interface)?)))?;
    let has = u16::try_from(has).unwrap_or(u16::MAX).clamp(1, MAX_QUEUES);
    let queues = asked.unwrap_or(has);
    let region_buffers = match mechanism {
        Mechanism::Packet => 0,
        Mechanism::Best | Mechanism::Xdp => {
            if mechanism == Mechanism::Xdp && queues > has {
                return Err(DeviceError::InterfaceQueues {
                    interface: interface.to_owned(),
                    has,
                    asked: queues,
                });
            }
            u32::from(queues) * 2 * ring_size(options)
        }
    };
    let side = side_of(netns, index, false);
    Ok(DevicePlan { queues, region_buffers, netns: netns.cloned(), side })
}

/// Looks at what a port of the host stack's side of an interface needs.
pub(crate) fn plan_host_stack(
    interface: &str,
    netns: Option<&HeldNamespace>,
    asked: Option<u16>,
) -> Result<DevicePlan, DeviceError> {
    let index = within(netns, || Ok(link_by_name(interface)?.index))?;
    let side = side_of(netns, index, true);
    Ok(DevicePlan { netns: netns.cloned(), side, ..DevicePlan::queues(asked.unwrap_or(1)) })
}

/// Longest frame of an interface whose packets have up to `mtu` bytes.
fn max_frame_bytes(mtu: u32) -> u32 {
    mtu.saturating_add(ETHERNET_OVERHEAD_BYTES)
}

fn ring_size(options: &DeviceOptions) -> u32 {
    options.ring_size.unwrap_or(DEFAULT_RING_SIZE)
}

/// Opens an interface.
pub(crate) fn open_interface(
    interface: &str,
    mechanism: Mechanism,
    options: &DeviceOptions,
    plan: DevicePlan,
    role: Role,
    home: Option<&Arc<ShmRegion>>,
) -> Result<Device, DeviceError> {
    within(plan.netns.as_ref(), || {
        let link = link_by_name(interface)?;
        let mut device = match mechanism {
            Mechanism::Xdp => open_xdp(&link, options, &plan, role, home)?,
            Mechanism::Packet => open_packet(&link, options, &plan, role, false)?,
            Mechanism::Best => match open_xdp(&link, options, &plan, role, home) {
                Ok(device) => device,
                Err(refused) => {
                    let mut device = open_packet(&link, options, &plan, role, true)?;
                    device.notes.insert(0, format!("AF_XDP is not to be had: {refused}"));
                    device
                }
            },
        };
        if !link.up {
            device.notes.push(format!("{interface} is down: `ip link set {interface} up`, where it is"));
        }
        device.interface = Some(device_interface(interface, &plan));
        Ok(device)
    })
}

fn open_xdp(
    link: &LinkInfo,
    options: &DeviceOptions,
    plan: &DevicePlan,
    role: Role,
    home: Option<&Arc<ShmRegion>>,
) -> Result<Device, DeviceError> {
    let Some(home) = home else { return Err(DeviceError::NoRegion(link.name.clone())) };
    let has = real_queue_count(&link.name)?;
    let wish = XdpWish {
        interface: link.name.clone(),
        ifindex: link.index,
        mtu: link.mtu,
        queues: plan.queues,
        mode: options.mode.unwrap_or_default(),
        ring_size: ring_size(options),
        need_wakeup: options.need_wakeup.unwrap_or(true),
        busy_poll_us: options.busy_poll_us.unwrap_or(0),
        force: options.force.unwrap_or(false),
        multi_buffer: true,
    };
    let each = wish.buffers_per_queue();
    let buffers = home.reserve(u32::from(plan.queues) * each as u32)?;
    let buffers = buffers.chunks(each).map(<[u32]>::to_vec).collect();
    let promiscuous = promiscuity(link, options, role)?;
    let mut xdp = XdpDevice::open(&wish, home.region(), buffers)?;
    if is_generic(&link.name)? && link_by_name(&tap_name(link.index)).is_ok() {
        return Err(DeviceError::GenericXdp(link.name.clone()));
    }
    if u32::from(plan.queues) < has {
        xdp.notes.push(format!(
            "frames of {} of the {has} queues of {} go to the host stack",
            has - u32::from(plan.queues),
            link.name
        ));
    }
    Ok(Device {
        peer: None,
        queues: boxed(xdp.queues),
        capabilities: Capabilities {
            driver: "af_xdp",
            mode: xdp.mode,
            max_frame_bytes: max_frame_bytes(link.mtu),
        },
        interface: None,
        notes: xdp.notes,
        keep: promiscuous.map(|socket| Box::new(socket) as _),
    })
}

/// Whether an XDP program sees the interface's frames in generic mode. That comes after the place where host rings give
/// frames to the host stack: these would come back by the interface.
fn is_generic(interface: &str) -> Result<bool, DeviceError> {
    Ok(link_by_name(interface)?.xdp.is_some_and(|xdp| xdp.mode == XdpMode::Generic))
}

/// A port of a switch hears all stations, unless it is told otherwise.
fn promiscuity(
    link: &LinkInfo,
    options: &DeviceOptions,
    role: Role,
) -> Result<Option<Promiscuous>, DeviceError> {
    if !options.promiscuous.unwrap_or(role == Role::SwitchPort) {
        return Ok(None);
    }
    Ok(Some(Promiscuous::set(&link.name, link.index)?))
}

/// `alone`: the host stack is to get none of the frames.
fn open_packet(
    link: &LinkInfo,
    options: &DeviceOptions,
    plan: &DevicePlan,
    role: Role,
    alone: bool,
) -> Result<Device, DeviceError> {
    let wish = PacketWish {
        interface: link.name.clone(),
        ifindex: link.index,
        mtu: link.mtu,
        queues: plan.queues,
        slots: ring_size(options),
        // Who passes frames on, or answers, has no use for the kernel's waiting; who looks on has one for its packing.
        immediate: options.immediate.unwrap_or(role == Role::SwitchPort || alone),
        // A switch has no use for them.
        timestamps: options.timestamps.or((role == Role::Program).then_some(TimestampSource::Kernel)),
        fanout: options.fanout.unwrap_or_default(),
        ignore_marked: Some(HOST_MARK),
    };
    // First of all the sockets: they say best what is missing.
    let mut packet = PacketDevice::open(&wish)?;
    let promiscuous = promiscuity(link, options, role)?;
    let mut barrier = None;
    if alone {
        let attached = TcxProgram::drop_unless_marked(HOST_MARK)
            .and_then(|program| Link::attach_tcx(&program, link.index, TcxSide::Ingress));
        match attached {
            Ok(attached) => barrier = Some(attached),
            Err(refused) => {
                packet.notes.push(format!("the host stack gets the frames of {} too: {refused}", link.name));
            }
        }
    }
    Ok(Device {
        peer: None,
        queues: boxed(packet.queues),
        capabilities: Capabilities {
            driver: "af_packet",
            mode: packet.mode,
            max_frame_bytes: max_frame_bytes(link.mtu),
        },
        interface: None,
        notes: packet.notes,
        keep: Some(Box::new((promiscuous, barrier))),
    })
}

/// Opens the host stack's side of an interface.
pub(crate) fn open_host_stack(interface: &str, plan: DevicePlan) -> Result<Device, DeviceError> {
    within(plan.netns.as_ref(), || {
        let link = link_by_name(interface)?;
        if is_generic(interface)? {
            return Err(DeviceError::GenericXdp(interface.to_owned()));
        }
        let wish =
            HostRingsWish { interface: link.name, ifindex: link.index, mtu: link.mtu, queues: plan.queues };
        let host = HostRings::open(&wish)?;
        Ok(Device {
            peer: None,
            queues: boxed(host.queues),
            capabilities: Capabilities {
                driver: "host",
                mode: host.mode,
                max_frame_bytes: max_frame_bytes(link.mtu),
            },
            interface: Some(device_interface(interface, &plan)),
            notes: host.notes,
            keep: None,
        })
    })
}

/// Opens a TAP.
pub(crate) fn open_tap(
    interface: &str,
    options: &DeviceOptions,
    plan: DevicePlan,
) -> Result<Device, DeviceError> {
    let wish = TapWish {
        name: interface.to_owned(),
        queues: plan.queues,
        persistent: options.persistent.unwrap_or(false),
        mtu: options.mtu,
        mac: options.mac,
        vnet_hdr: options.vnet_hdr.unwrap_or(false),
        up: true,
    };
    let tap = within(plan.netns.as_ref(), || Ok(TapDevice::open(&wish)?))?;
    Ok(Device {
        peer: None,
        queues: boxed(tap.queues),
        capabilities: Capabilities { driver: "tap", mode: tap.mode, max_frame_bytes: 65535 },
        interface: Some(device_interface(&tap.name, &plan)),
        notes: tap.notes,
        keep: None,
    })
}

#[cfg(test)]
mod tests {
    use ringroad_port::port_name::PortName;

    use crate::registry::{open_device, plan_device};
    use crate::test_network::{in_own_namespace, ip, until};

    use super::*;

    fn open(name: &str, role: Role) -> Device {
        let name: PortName = name.parse().unwrap();
        open_device(&name, plan_device(&name, None).unwrap(), role, None).unwrap()
    }

    #[test]
    fn who_looks_on_gets_blocks_and_who_passes_on_gets_each_frame_at_once() {
        in_own_namespace(|| {
            ip("link add rrn0 type veth peer name rrn1");
            for (name, role, version) in [
                ("packet:rrn0", Role::Program, "TPACKET_V3"),
                ("packet:rrn0", Role::SwitchPort, "TPACKET_V2 (immediate)"),
                ("packet:rrn0@immediate=1", Role::Program, "TPACKET_V2 (immediate)"),
                ("packet:rrn0@immediate=0", Role::SwitchPort, "TPACKET_V3"),
                // Without a region there is no AF_XDP.
                ("rrn0", Role::Program, "TPACKET_V2 (immediate)"),
            ] {
                let mode = open(name, role).capabilities.mode;
                assert!(mode.starts_with(&format!("AF_PACKET, {version},")), "{name}: {mode}");
            }
        });
    }

    #[test]
    fn a_switch_hears_all_stations_as_long_as_the_port_is_open() {
        in_own_namespace(|| {
            ip("link add rrn0 type veth peer name rrn1");
            let is_promiscuous = || link_by_name("rrn0").unwrap().promiscuous;
            for (name, role, promiscuous) in [
                ("packet:rrn0", Role::Program, false),
                ("packet:rrn0", Role::SwitchPort, true),
                ("packet:rrn0@promisc=0", Role::SwitchPort, false),
                ("packet:rrn0@promisc", Role::Program, true),
            ] {
                let device = open(name, role);
                assert_eq!(is_promiscuous(), promiscuous, "{name}");
                drop(device);
                until(|| !is_promiscuous());
            }
        });
    }
}
