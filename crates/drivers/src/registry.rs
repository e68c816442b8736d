//! The drivers by name: the only place that lists them. Composition roots ask here; nobody else names a driver.

use std::path::PathBuf;
use std::sync::Arc;

use ringroad_netdev::ethtool::link_speed;
use ringroad_netdev::link::{LinkInfo, link_by_name};
use ringroad_netdev::namespace::{HeldNamespace, Namespace};
use ringroad_port::port_name::{PortBase, PortName, SocketProtocol};
use ringroad_port::port_queue::{Capabilities, PortQueue};
use ringroad_ring::eventfd;

use crate::device::{Device, DeviceError, DeviceInterface, DevicePlan, Role};
use crate::memif;
use crate::nic;
use crate::null::NullQueue;
use crate::pcap_file::PcapQueue;
use crate::shm::ShmRegion;
use crate::sze2;
use crate::szedata;
use crate::vhost_user;
use crate::virtio_user;

/// A driver's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverEntry {
    /// Name in reports and metrics.
    pub name: &'static str,
    /// How its port names look.
    pub names: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
}

/// All drivers of this build.
pub const DRIVERS: &[DriverEntry] = &[
    DriverEntry { name: "shm", names: "vale0:a", about: "a program's rings in shared memory, on a switch" },
    DriverEntry { name: "pipe", names: "x{1 and x}1", about: "two programs joined directly" },
    DriverEntry {
        name: "null",
        names: "null:size=60,copy=0",
        about: "frames without end, the overhead floor",
    },
    DriverEntry { name: "pcap", names: "pcap:FILE", about: "frames of a capture file, or into one" },
    DriverEntry {
        name: "af_xdp",
        names: "eth0 and xdp:eth0",
        about: "a network interface, its frames taken past the host stack",
    },
    DriverEntry {
        name: "af_packet",
        names: "packet:eth0",
        about: "a network interface, its frames shared with the host stack",
    },
    DriverEntry { name: "host", names: "eth0^", about: "the host stack's side of a network interface" },
    DriverEntry { name: "vhost_user", names: "vhost-user:SOCKET", about: "a guest's virtio-net card" },
    DriverEntry { name: "tap", names: "tap:t0", about: "a TAP interface, made with the port" },
    DriverEntry {
        name: "memif",
        names: "memif:SOCKET",
        about: "a program that speaks memif: DPDK, VPP, libmemif",
    },
    DriverEntry {
        name: "virtio_user",
        names: "virtio-user:PATH",
        about: "a virtio network card for a vhost-user back end",
    },
    DriverEntry { name: "sze2", names: "sze2:SOCKET", about: "an SZE2 capture card in software" },
    DriverEntry { name: "szedata", names: "szedata:SOCKET", about: "channels of an SZE2 capture card" },
];

/// Whether `base` names a port that a driver of the datapath itself serves, with no program at its rings.
#[must_use]
pub fn is_device(base: &PortBase) -> bool {
    !matches!(base, PortBase::Switch { .. } | PortBase::Pipe { .. })
}

/// Whether `base` names a device that a program opens in itself: it needs no privilege and nobody else has a use for it.
#[must_use]
pub fn is_own_device(base: &PortBase) -> bool {
    matches!(base, PortBase::Null { .. } | PortBase::Pcap { .. } | PortBase::Socket { .. })
}

/// Whether `base` names a network interface, one side of it, or a TAP: a name that means another thing in each network namespace.
#[must_use]
pub fn is_of_a_namespace(base: &PortBase) -> bool {
    matches!(base, PortBase::Interface { .. } | PortBase::HostStack { .. } | PortBase::Tap { .. })
}

/// Looks at a device's interface, and at its speed in bit/s where it has one; `None` where the interface is gone.
#[must_use]
pub fn link_of(interface: &DeviceInterface) -> Option<(LinkInfo, Option<u64>)> {
    let look = || {
        let link = link_by_name(&interface.name)?;
        let speed = link_speed(&interface.name).ok().and_then(|speed| speed.bits_per_s);
        Ok((link, speed))
    };
    nic::within(interface.netns.as_ref(), look).ok()
}

/// Looks at what the device that `name` names needs, an interface being found where its name says, else here. `queues` is how many are
/// wished for where the name does not say.
///
/// # Errors
/// [`DeviceError`] where it is plain now that it cannot be opened.
pub fn plan_device(name: &PortName, queues: Option<u16>) -> Result<DevicePlan, DeviceError> {
    let named = name.options.device.netns.as_ref();
    let netns = named.map(|text| text.parse::<Namespace>()?.hold()).transpose()?;
    plan_device_in(netns.as_ref(), name, queues)
}

/// The same, an interface being found in `netns` whatever its name says.
///
/// # Errors
/// As [`plan_device`].
pub fn plan_device_in(
    netns: Option<&HeldNamespace>,
    name: &PortName,
    queues: Option<u16>,
) -> Result<DevicePlan, DeviceError> {
    let asked = name.options.queues.or(queues);
    match &name.base {
        PortBase::Null { .. } => Ok(DevicePlan::queues(asked.unwrap_or(1))),
        PortBase::Pcap { .. } => match asked {
            None | Some(1) => Ok(DevicePlan::queues(1)),
            Some(asked) => Err(DeviceError::Queues { driver: "pcap", most: 1, asked }),
        },
        PortBase::Socket { protocol: SocketProtocol::Memif, .. } => match asked.unwrap_or(1) {
            queues @ 1..=memif::MAX_QUEUES => Ok(DevicePlan::queues(queues)),
            asked => Err(DeviceError::Queues { driver: "memif", most: memif::MAX_QUEUES, asked }),
        },
        PortBase::Tap { .. } => {
            Ok(DevicePlan { netns: netns.cloned(), ..DevicePlan::queues(asked.unwrap_or(1)) })
        }
        PortBase::HostStack { interface } => nic::plan_host_stack(interface, netns, asked),
        PortBase::Socket { protocol: SocketProtocol::VirtioUser, .. } => {
            if name.options.device.packed == Some(true) {
                return Err(DeviceError::NotDone {
                    name: name.base.to_string(),
                    what: "packed rings; leave packed=1 out for split ones",
                });
            }
            Ok(DevicePlan::queues(asked.unwrap_or(1)))
        }
        PortBase::Socket { .. } => Ok(DevicePlan::queues(asked.unwrap_or(1))),
        PortBase::Interface { interface, mechanism } => {
            nic::plan_interface(interface, *mechanism, &name.options.device, netns, asked)
        }
        other => Err(DeviceError::NotADevice(other.to_string())),
    }
}

/// Opens the device that `name` names, as planned; `home` is the region that it shares with its program or with others.
///
/// # Errors
/// [`DeviceError`].
pub fn open_device(
    name: &PortName,
    plan: DevicePlan,
    role: Role,
    home: Option<&Arc<ShmRegion>>,
) -> Result<Device, DeviceError> {
    if matches!(name.base, PortBase::Socket { .. }) {
        eventfd::prepare().map_err(DeviceError::NoWaking)?;
    }
    match &name.base {
        PortBase::Null { size_bytes, copy, no_rx } => Ok(Device::new(
            (0..plan.queues)
                .map(|_| Box::new(NullQueue::new(*size_bytes, *copy, *no_rx)) as Box<dyn PortQueue>)
                .collect(),
            Capabilities {
                driver: "null",
                mode: format!("null, {size_bytes} B frames, {}", if *copy { "copied" } else { "not copied" }),
                max_frame_bytes: 65535,
            },
        )),
        PortBase::Pcap { input, output } => {
            let queue = PcapQueue::open(input.as_deref(), output.as_deref())?;
            let part = |word: &str, path: &Option<PathBuf>| {
                path.as_ref().map(|path| format!("{word} {}", path.display())).unwrap_or_default()
            };
            Ok(Device::new(
                vec![Box::new(queue)],
                Capabilities {
                    driver: "pcap",
                    mode: format!("{} {}", part("from", input), part("to", output)).trim().to_owned(),
                    max_frame_bytes: 65535,
                },
            ))
        }
        PortBase::HostStack { interface } => nic::open_host_stack(interface, plan),
        PortBase::Socket { protocol: SocketProtocol::VhostUser, path } => {
            vhost_user::open(path, &name.options.device, plan.queues)
        }
        PortBase::Socket { protocol: SocketProtocol::Memif, path } => {
            memif::open(path, &name.options, plan.queues)
        }
        PortBase::Tap { interface } => nic::open_tap(interface, &name.options.device, plan),
        PortBase::Socket { protocol: SocketProtocol::VirtioUser, path } => {
            virtio_user::open(path, &name.options.device, plan.queues)
        }
        PortBase::Socket { protocol: SocketProtocol::Sze2, path } => {
            sze2::open(path, &name.options.device, plan.queues)
        }
        PortBase::Socket { protocol: SocketProtocol::Szedata, path } => {
            szedata::open(path, &name.options.device, plan.queues)
        }
        PortBase::Interface { interface, mechanism } => {
            nic::open_interface(interface, *mechanism, &name.options.device, plan, role, home)
        }
        other => Err(DeviceError::NotADevice(other.to_string())),
    }
}
