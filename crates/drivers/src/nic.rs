//! Ports of network interfaces: selection of the mechanism that serves an interface, and its settings.
//!
//! The mechanisms themselves ([`crate::af_xdp`], [`crate::af_packet`], [`crate::host_rings`], [`crate::tap`]) know
//! nothing of port names or of each other. All code of this module runs in the interface's network namespace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringroad_bpf::link::{BpfLink, TcxSide};
use ringroad_bpf::program::TcxProgram;
use ringroad_netdev::LinkWatch;
use ringroad_netdev::ethtool::{link_speed, real_queue_count, rings};
use ringroad_netdev::link::{LinkInfo, XdpReportedMode, link_by_name};
use ringroad_netdev::namespace::HeldNamespace;
use ringroad_netdev::xdp_features::{XdpFeatures, xdp_features};
use ringroad_port::port_queue::HandOver;
use ringroad_ring::geometry::MAX_QUEUES;

use crate::af_packet::{self, Fanout, PacketConfig, TimestampSource};
use crate::af_xdp::{self, DEFAULT_RING_SIZE, Obstacle, XdpConfig, XdpDevice};
use crate::catalogue::port_kind::{
    DeviceName, InterfaceUse, NameTarget, OpenContext, OpenedBy, Planning, PortKind, Spelling,
};
use crate::catalogue::port_option::{OptionValues, PortOption, ValueKind};
use crate::device::{
    Device, DeviceError, DeviceInterface, DevicePlan, DeviceRole, InterfaceSettings, InterfaceSide,
};
use crate::diverted::DivertConfig;
use crate::host_rings::{self, HOST_MARK, tap_name};
use crate::promiscuous::Promiscuous;
use crate::shm::ShmRegion;
use crate::tap::{MAX_TAP_MTU, TapConfig, TapDevice};
use crate::veth;

/// Option `netns=` of every kind of interface.
pub const NETNS: PortOption = PortOption::new(
    "netns",
    ValueKind::Text { most_bytes: 4096 },
    "the program's",
    "network namespace of the interface: a name, a PID or a file; users other than administrators give names only",
);
const MODE: PortOption = PortOption::new(
    "mode",
    ValueKind::Word(&["auto", "zero-copy", "native", "generic"]),
    "auto",
    "mode of AF_XDP; `auto` is the best that works",
);
const MODES: [af_xdp::AfXdpMode; 4] = [
    af_xdp::AfXdpMode::Auto,
    af_xdp::AfXdpMode::ZeroCopy,
    af_xdp::AfXdpMode::Native,
    af_xdp::AfXdpMode::Generic,
];
const RING_SIZE: PortOption = PortOption::new(
    "ring-size",
    ValueKind::PowerOfTwo { least: 64, most: 32768 },
    "2048",
    "descriptors of each of the kernel's rings",
);
const NEED_WAKEUP: PortOption = PortOption::new(
    "need-wakeup",
    ValueKind::Flag,
    "1",
    "0 calls the kernel for every batch, even if AF_XDP does not require it",
);
const BUSY_POLL: PortOption = PortOption::new(
    "busy-poll",
    ValueKind::Number { least: 0, most: i32::MAX as u64 },
    "0: it does not",
    "the kernel polls the interface in the caller's context for this many µs (AF_XDP)",
);
const FORCE: PortOption = PortOption {
    for_administrators: true,
    ..PortOption::new("force", ValueKind::Flag, "0", "replace an XDP program attached by another program")
};
const PROMISC: PortOption =
    PortOption::new("promisc", ValueKind::Flag, "1 on a switch, else 0", "receive frames for other stations");
const TIMESTAMPS: PortOption = PortOption::new(
    "timestamps",
    ValueKind::Word(&["kernel", "hardware"]),
    "kernel, for programs",
    "what notes when a frame came (AF_PACKET)",
);
const TIMESTAMP_SOURCES: [TimestampSource; 2] = [TimestampSource::Kernel, TimestampSource::Hardware];
const FANOUT: PortOption = PortOption::new(
    "fanout",
    ValueKind::Word(&["hash", "cpu", "rr", "queue"]),
    "hash",
    "how AF_PACKET spreads frames over queues; `hash` is by flow",
);
const FANOUTS: [Fanout; 4] = [Fanout::Hash, Fanout::Cpu, Fanout::RoundRobin, Fanout::Queue];
const IMMEDIATE: PortOption = PortOption::new(
    "immediate",
    ValueKind::Flag,
    "0 for programs that open `packet:`, else 1",
    "1 shows each frame at once, in a slot of 2 KiB or more (AF_PACKET). 0 packs many short frames into the same memory, and shows \
     them when a block of it is full, after 4 to 16 ms at most",
);
const PERSIST: PortOption =
    PortOption::new("persist", ValueKind::Flag, "0", "the interface stays when the port goes");
const OFFLOADS: PortOption = PortOption::new(
    "offloads",
    ValueKind::Flag,
    "1 on a switch, else 0",
    "checksum and TCP segmentation offloads: the host's stack sends and takes unfinished frames",
);
const MTU: PortOption = PortOption::new(
    "mtu",
    ValueKind::Number { least: 68, most: 65521 },
    "the kernel's",
    "MTU of the interface, bytes",
);
const MAC: PortOption = PortOption::new("mac", ValueKind::Mac, "the kernel's", "address of the interface");

/// Ports of network interfaces, of their host stacks and of TAPs.
pub(crate) const KINDS: &[PortKind] = &[
    PortKind {
        driver: "af_xdp or af_packet",
        spelling: Spelling::Bare,
        form: "eth0",
        about: "a network interface by the best mechanism that works: AF_XDP (zero-copy, native, generic), else AF_PACKET",
        page: None,
        target: NameTarget::Interface(InterfaceUse::Wire),
        options: &[
            &NETNS,
            &MODE,
            &RING_SIZE,
            &NEED_WAKEUP,
            &BUSY_POLL,
            &FORCE,
            &PROMISC,
            &TIMESTAMPS,
            &FANOUT,
            &IMMEDIATE,
        ],
        access: OpenedBy::Daemon,
        plan: plan_xdp_or_packet,
        open: |context| open_interface(context, InterfaceMechanism::Best),
    },
    PortKind {
        driver: "af_xdp",
        spelling: Spelling::Scheme("xdp"),
        form: "xdp:eth0",
        about: "the same by AF_XDP or not at all",
        page: None,
        target: NameTarget::Interface(InterfaceUse::Wire),
        options: &[&NETNS, &MODE, &RING_SIZE, &NEED_WAKEUP, &BUSY_POLL, &FORCE, &PROMISC],
        access: OpenedBy::Daemon,
        plan: plan_xdp,
        open: |context| open_interface(context, InterfaceMechanism::Xdp),
    },
    PortKind {
        driver: "af_packet",
        spelling: Spelling::Scheme("packet"),
        form: "packet:eth0",
        about: "the same by AF_PACKET: the host stack gets the frames too",
        page: None,
        target: NameTarget::Interface(InterfaceUse::Copies),
        options: &[&NETNS, &RING_SIZE, &PROMISC, &TIMESTAMPS, &FANOUT, &IMMEDIATE],
        access: OpenedBy::Daemon,
        plan: plan_packet,
        open: |context| open_interface(context, InterfaceMechanism::Packet),
    },
    PortKind {
        driver: "host",
        spelling: Spelling::Suffix('^'),
        form: "eth0^",
        about: "the host stack's side of an interface: what the host sends there, and frames that it takes as received there",
        page: None,
        target: NameTarget::Interface(InterfaceUse::HostStack),
        options: &[&NETNS, &OFFLOADS],
        access: OpenedBy::Daemon,
        plan: |planning| Ok(plan_existing(planning, true)?.1),
        open: |context| {
            open_diverted(context, |config, left| match is_generic(&config.interface)? {
                true => Err(generic_xdp(&config.interface)),
                false => Ok(host_rings::open(config, left)?),
            })
        },
    },
    PortKind {
        driver: "veth",
        spelling: Spelling::Scheme("veth"),
        form: "veth:rrc0",
        about: "the outer end of a veth pair, whose inner end is in a container: TCP segments pass whole, and frames between two such \
                ports of a switch pass within the kernel",
        page: None,
        target: NameTarget::Interface(InterfaceUse::Wire),
        options: &[&NETNS, &OFFLOADS],
        access: OpenedBy::Daemon,
        plan: plan_veth,
        open: |context| open_diverted(context, |config, left| Ok(veth::open(config, left)?)),
    },
    PortKind {
        driver: "tap",
        spelling: Spelling::Scheme("tap"),
        form: "tap:t0",
        about: "a TAP interface, made with the port; `tap:` lets the kernel choose a name",
        page: None,
        target: NameTarget::NewInterface,
        options: &[&NETNS, &PERSIST, &OFFLOADS, &MTU, &MAC],
        access: OpenedBy::Daemon,
        plan: |planning| Ok(DevicePlan { netns: planning.netns.cloned(), ..planning.any_queues()? }),
        open: open_tap,
    },
];

impl DeviceName {
    /// Name of the port for the host stack's side of an interface.
    #[must_use]
    pub fn host_stack_of(interface: &str) -> Option<Self> {
        let kind = KINDS.iter().find(|kind| kind.target == NameTarget::Interface(InterfaceUse::HostStack))?;
        Some(Self { kind, target: interface.to_owned() })
    }
}

/// Error of an interface whose host side cannot be opened, because generic XDP takes the interface's frames.
fn generic_xdp(interface: &str) -> DeviceError {
    DeviceError::Refused(format!(
        "{interface}^: an XDP program in generic mode is attached to {interface} and would take the frames meant for the host \
         stack too; use packet:{interface}@immediate=1 beside {interface}^, or an interface whose driver has native XDP"
    ))
}

/// Mechanism that gives access to the frames of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InterfaceMechanism {
    /// AF_XDP if it is possible, otherwise AF_PACKET.
    Best,
    Xdp,
    Packet,
}

/// Runs `f` in `netns`, or in the present namespace if that is `None`.
pub(crate) fn within<T: Send>(
    netns: Option<&HeldNamespace>,
    f: impl FnOnce() -> Result<T, DeviceError> + Send,
) -> Result<T, DeviceError> {
    match netns {
        Some(netns) => netns.run(f)?,
        None => f(),
    }
}

/// Queries a device's interface, and its speed in bit/s if it has one. `None` if the interface is gone.
#[must_use]
pub fn link_of(interface: &DeviceInterface) -> Option<(LinkInfo, Option<u64>)> {
    let probe = || {
        let link = link_by_name(&interface.name)?;
        let speed = speed_here(&interface.name);
        interface.had_speed.fetch_or(speed.is_some(), Ordering::Relaxed);
        Ok((link, speed))
    };
    within(interface.netns.as_ref(), probe).ok()
}

/// Speed of an interface of the present namespace, bit/s, if it has one.
fn speed_here(interface: &str) -> Option<u64> {
    link_speed(interface).ok().flatten()
}

/// Fault of a card that may pass no frames although its link seems to run, with the remedy. A driver that is not
/// notified of its card's reset continues as before, but the card no longer reports the speed. `speed_bps` is the speed
/// from [`link_of`].
#[must_use]
pub fn reset_fault(interface: &DeviceInterface, speed_bps: Option<u64>) -> Option<String> {
    let is_suspect =
        speed_bps.is_none() && interface.link.is_running() && interface.had_speed.load(Ordering::Relaxed);
    is_suspect.then(|| {
        let name = &interface.name;
        format!(
            "interface {name}: its driver no longer knows the speed of the link, which is up, as after a reset of the \
             card: {}",
            set_up_again(name)
        )
    })
}

/// Remedy for a card that was reset below its driver.
pub(crate) fn set_up_again(interface: &str) -> String {
    format!("`ip link set dev {interface} down`, then `up`, sets it up again")
}

/// Present settings of the interface with this name; `None` if there is none.
#[must_use]
pub fn settings_of(interface: &DeviceInterface) -> Option<InterfaceSettings> {
    within(interface.netns.as_ref(), || settings_here(&link_by_name(&interface.name)?)).ok()
}

fn settings_here(link: &LinkInfo) -> Result<InterfaceSettings, DeviceError> {
    Ok(InterfaceSettings {
        index: link.index,
        mtu: link.mtu,
        queues: real_queue_count(&link.name)?,
        rings: rings(&link.name).ok(),
    })
}

/// Interface of an open device.
fn device_interface(link: &LinkInfo, plan: &DevicePlan) -> Result<DeviceInterface, DeviceError> {
    Ok(DeviceInterface {
        // The settings are read last, because a driver may change settings when the device is opened.
        opened_for: Some(settings_here(link)?),
        had_speed: Arc::new(AtomicBool::new(speed_here(&link.name).is_some())),
        ..own_interface(link, plan)?
    })
}

/// Interface that a device has created.
fn own_interface(link: &LinkInfo, plan: &DevicePlan) -> Result<DeviceInterface, DeviceError> {
    Ok(DeviceInterface {
        name: link.name.clone(),
        netns: plan.netns.clone(),
        side: plan.side,
        link: Arc::new(LinkWatch::open(link.index)?),
        opened_for: None,
        had_speed: Arc::default(),
    })
}

/// The interface of a port, and the plan of the port. `host`: the port uses the host stack's side.
fn plan_existing(planning: &Planning<'_>, host: bool) -> Result<(LinkInfo, DevicePlan), DeviceError> {
    let netns = planning.netns;
    let link = within(netns, || Ok(link_by_name(planning.target)?))?;
    let side = netns.map(|netns| InterfaceSide { namespace: netns.id(), index: link.index, host });
    Ok((link, DevicePlan { netns: netns.cloned(), side, ..planning.any_queues()? }))
}

fn plan_packet(planning: &Planning<'_>) -> Result<DevicePlan, DeviceError> {
    let (link, plan) = plan_existing(planning, false)?;
    let has = within(planning.netns, || Ok(real_queue_count(&link.name)?))?;
    let has = u16::try_from(has).unwrap_or(u16::MAX).clamp(1, MAX_QUEUES);
    Ok(DevicePlan { queues: planning.queues.unwrap_or(has), ..plan })
}

fn plan_xdp_or_packet(planning: &Planning<'_>) -> Result<DevicePlan, DeviceError> {
    let plan = plan_packet(planning)?;
    let region_buffers = u32::from(plan.queues) * 2 * ring_size(&planning.options.device);
    let mode = planning.options.device.word(&MODE, &MODES).unwrap_or_default();
    let is_copied = match mode {
        af_xdp::AfXdpMode::Native | af_xdp::AfXdpMode::Generic => true,
        af_xdp::AfXdpMode::ZeroCopy => false,
        af_xdp::AfXdpMode::Auto => !within(planning.netns, || {
            let link = link_by_name(planning.target)?;
            Ok(may_zero_copy(&link, xdp_features(link.index)?))
        })?,
    };
    let buffer_bytes = if is_copied { af_xdp::COPY_CHUNK_BYTES } else { af_xdp::ZERO_COPY_CHUNK_BYTES };
    Ok(DevicePlan { region_buffers, buffer_bytes: Some(buffer_bytes), ..plan })
}

/// Whether the driver of an interface may support AF_XDP's zero copy. Kernels before 6.3 do not report its features;
/// their virtual interfaces had no zero copy.
fn may_zero_copy(link: &LinkInfo, features: Option<XdpFeatures>) -> bool {
    features.map_or(link.kind.is_none(), XdpFeatures::has_zero_copy)
}

/// Whether frames may leave an interface by AF_XDP with open checksums. Only a veth's other end knows then that they are
/// open. Virtio-net ignored the requests before Linux 6.18, and no other driver was tested. Frames of a program are
/// sent as it wrote them.
fn leaves_checksums(link: &LinkInfo, role: DeviceRole) -> bool {
    role == DeviceRole::SwitchPort && link.kind.as_deref() == Some("veth")
}

/// A mechanism that can serve an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MechanismForecast {
    /// Name, with which the mode of a port begins: `AF_XDP zero-copy`.
    pub name: String,
    /// Reason why the interface is not served so, if one is known.
    pub obstacle: Option<Obstacle>,
}

/// The mechanisms for `interface`, a name in the calling thread's network namespace, in the order in which a port of the
/// bare name tries them. The interface is not touched: a driver can refuse a mechanism for a reason that it does not
/// report.
///
/// # Errors
/// [`DeviceError`], for example if there is no such interface.
pub fn mechanisms(interface: &str) -> Result<Vec<MechanismForecast>, DeviceError> {
    let link = link_by_name(interface)?;
    let mut mechanisms = Vec::new();
    if let Some(program) = link.xdp {
        let reason = format!("XDP program {} is attached to it", program.prog_id);
        let remedy = format!("`ip link set dev {interface} xdp off`, or the option force, takes it off");
        let obstacle = Some(Obstacle { reason, remedy });
        mechanisms.push(MechanismForecast { name: "AF_XDP".to_owned(), obstacle });
    } else {
        let modes = af_xdp::obstacles(&link, xdp_features(link.index)?);
        mechanisms.extend(
            modes.map(|(mode, obstacle)| MechanismForecast { name: format!("AF_XDP {mode}"), obstacle }),
        );
    }
    mechanisms.push(MechanismForecast { name: "AF_PACKET".to_owned(), obstacle: None });
    Ok(mechanisms)
}

fn plan_xdp(planning: &Planning<'_>) -> Result<DevicePlan, DeviceError> {
    let has = plan_packet(&Planning { queues: None, ..*planning })?.queues;
    match planning.queues {
        Some(asked) if asked > has => {
            let name = planning.target;
            Err(DeviceError::Refused(format!(
                "{name} has {has} queue(s), not {asked}: `ethtool -L {name} combined {asked}` may give it more"
            )))
        }
        _ => plan_xdp_or_packet(planning),
    }
}

fn plan_veth(planning: &Planning<'_>) -> Result<DevicePlan, DeviceError> {
    let (link, plan) = plan_existing(planning, false)?;
    match link.kind {
        Some(kind) if kind == "veth" => Ok(plan),
        kind => {
            let kind = kind.unwrap_or_else(|| "hardware".to_owned());
            Err(DeviceError::Refused(format!(
                "{} is a {kind} interface, not an end of a veth pair; name it without `veth:`",
                link.name
            )))
        }
    }
}

fn ring_size(options: &OptionValues) -> u32 {
    options.number(&RING_SIZE).unwrap_or(DEFAULT_RING_SIZE)
}

fn open_interface(context: OpenContext<'_>, mechanism: InterfaceMechanism) -> Result<Device, DeviceError> {
    let OpenContext { target: interface, options, plan, role, home, .. } = context;
    let options = &options.device;
    within(plan.netns.as_ref(), || {
        let link = link_by_name(interface)?;
        let mut device = match mechanism {
            InterfaceMechanism::Xdp => open_xdp(&link, options, &plan, role, home)?,
            InterfaceMechanism::Packet => open_packet(&link, options, &plan, role, false)?,
            InterfaceMechanism::Best => match open_xdp(&link, options, &plan, role, home) {
                Ok(device) => device,
                Err(refused) => {
                    let mut device = open_packet(&link, options, &plan, role, true)?;
                    device.notes.insert(0, format!("AF_XDP is not available: {refused}"));
                    device
                }
            },
        };
        if !link.up {
            device.notes.push(format!("{interface} is down: `ip link set {interface} up`, where it is"));
        }
        device.interface = Some(device_interface(&link, &plan)?);
        Ok(device)
    })
}

fn open_xdp(
    link: &LinkInfo,
    options: &OptionValues,
    plan: &DevicePlan,
    role: DeviceRole,
    home: Option<&Arc<ShmRegion>>,
) -> Result<Device, DeviceError> {
    let home = home.ok_or_else(|| DeviceError::Refused(format!("{}: AF_XDP needs a region", link.name)))?;
    let has = real_queue_count(&link.name)?;
    let features = xdp_features(link.index)?;
    let config = XdpConfig {
        interface: link.name.clone(),
        ifindex: link.index,
        mtu: link.mtu,
        queues: plan.queues,
        mode: options.word(&MODE, &MODES).unwrap_or_default(),
        ring_size: ring_size(options),
        need_wakeup: options.flag(&NEED_WAKEUP).unwrap_or(true),
        busy_poll_us: options.number(&BUSY_POLL).unwrap_or(0),
        force: options.flag(&FORCE).unwrap_or(false),
        may_zero_copy: may_zero_copy(link, features),
        native_defect: af_xdp::native_defect(link),
        multi_buffer: true,
        leaves_checksums: leaves_checksums(link, role),
        has_vlan_tags: features.is_some_and(XdpFeatures::has_vlan_tag),
    };
    let each = config.buffers_per_queue();
    let buffers = home.reserve(u32::from(plan.queues) * each as u32)?;
    let buffers = buffers.chunks(each).map(<[u32]>::to_vec).collect();
    let promiscuous = promiscuity(link, options, role)?;
    let mut xdp = XdpDevice::open(&config, home.region(), buffers)?;
    if is_generic(&link.name)? && link_by_name(&tap_name(link.index)).is_ok() {
        return Err(generic_xdp(&link.name));
    }
    if u32::from(plan.queues) < has {
        xdp.notes.push(format!(
            "frames of {} of the {has} queues of {} go to the host stack",
            has - u32::from(plan.queues),
            link.name
        ));
    }
    let keep = promiscuous.map(|socket| Box::new(socket) as _);
    Ok(Device { keep, ..Device::of_interface("af_xdp", xdp.queues, xdp.mode, link.mtu, xdp.notes) })
}

/// Whether an XDP program sees the interface's frames in generic mode. Generic XDP comes after the point at which host
/// rings give frames to the host stack, so these frames would come back through the interface.
fn is_generic(interface: &str) -> Result<bool, DeviceError> {
    Ok(link_by_name(interface)?.xdp.is_some_and(|xdp| xdp.mode == XdpReportedMode::Generic))
}

/// Makes the interface of a switch's port promiscuous, unless configured otherwise.
fn promiscuity(
    link: &LinkInfo,
    options: &OptionValues,
    role: DeviceRole,
) -> Result<Option<Promiscuous>, DeviceError> {
    if !options.flag(&PROMISC).unwrap_or(role == DeviceRole::SwitchPort) {
        return Ok(None);
    }
    Ok(Some(Promiscuous::set(&link.name, link.index)?))
}

/// Opens an interface through AF_PACKET. `alone`: the host stack receives none of the frames.
fn open_packet(
    link: &LinkInfo,
    options: &OptionValues,
    plan: &DevicePlan,
    role: DeviceRole,
    alone: bool,
) -> Result<Device, DeviceError> {
    let config = PacketConfig {
        interface: link.name.clone(),
        ifindex: link.index,
        mtu: link.mtu,
        queues: plan.queues,
        slots: ring_size(options),
        // Forwarders and responders need each frame at once; monitors benefit from the kernel's blocks.
        immediate: options.flag(&IMMEDIATE).unwrap_or(role == DeviceRole::SwitchPort || alone),
        // A switch does not use timestamps.
        timestamps: options
            .word(&TIMESTAMPS, &TIMESTAMP_SOURCES)
            .or((role == DeviceRole::Program).then_some(TimestampSource::Kernel)),
        fanout: options.word(&FANOUT, &FANOUTS).unwrap_or_default(),
        ignore_marked: Some(HOST_MARK),
    };
    // The sockets are opened first, because their errors are the most specific.
    let mut device = af_packet::open(&config)?;
    let promiscuous = promiscuity(link, options, role)?;
    let mut barrier = None;
    if alone {
        let attached = TcxProgram::drop_unless_marked(HOST_MARK)
            .and_then(|program| BpfLink::attach_tcx(&program, link.index, TcxSide::Ingress));
        match attached {
            Ok(attached) => barrier = Some(attached),
            Err(refused) => {
                device.notes.push(format!("the host stack gets the frames of {} too: {refused}", link.name));
            }
        }
    }
    device.keep = Some(Box::new((promiscuous, barrier)));
    Ok(device)
}

/// Opens the port of an interface whose frames `open` redirects.
fn open_diverted(
    context: OpenContext<'_>,
    open: fn(&DivertConfig, Vec<HandOver>) -> Result<Device, DeviceError>,
) -> Result<Device, DeviceError> {
    let OpenContext { target: interface, options, plan, role, inherited, .. } = context;
    within(plan.netns.as_ref(), || {
        let link = link_by_name(interface)?;
        let config = DivertConfig {
            interface: link.name.clone(),
            ifindex: link.index,
            mtu: link.mtu,
            queues: plan.queues,
            offloads: takes_offloads(&options.device, role),
        };
        let device = open(&config, inherited)?;
        Ok(Device { interface: Some(device_interface(&link, &plan)?), ..device })
    })
}

/// Whether the port of a host's stack has offloads. A program needs frames as they are on a wire.
fn takes_offloads(options: &OptionValues, role: DeviceRole) -> bool {
    options.flag(&OFFLOADS).unwrap_or(role == DeviceRole::SwitchPort)
}

fn open_tap(context: OpenContext<'_>) -> Result<Device, DeviceError> {
    let OpenContext { target: interface, options, plan, role, inherited, .. } = context;
    let options = &options.device;
    let config = TapConfig {
        name: interface.to_owned(),
        queues: plan.queues,
        persistent: options.flag(&PERSIST).unwrap_or(false),
        mtu: options.number(&MTU),
        mac: options.mac(&MAC),
        offloads: takes_offloads(options, role),
        up: true,
    };
    within(plan.netns.as_ref(), || {
        let tap = TapDevice::open(&config, inherited)?;
        let interface = Some(own_interface(&link_by_name(&tap.name)?, &plan)?);
        Ok(Device { interface, ..Device::of_interface("tap", tap.queues, tap.mode, MAX_TAP_MTU, tap.notes) })
    })
}

#[cfg(test)]
mod tests {
    use crate::catalogue::port_name::PortName;
    use crate::catalogue::{open_device, plan_device};
    use crate::test_network::{in_own_namespace, ip, until};

    use super::*;

    fn open(name: &str, role: DeviceRole) -> Device {
        let name: PortName = name.parse().unwrap();
        open_device(&name, plan_device(&name, None).unwrap(), role, None).unwrap()
    }

    #[test]
    fn monitors_get_blocks_and_forwarders_get_each_frame_at_once() {
        in_own_namespace(|| {
            ip("link add rrn0 type veth peer name rrn1");
            for (name, role, version) in [
                ("packet:rrn0", DeviceRole::Program, "TPACKET_V3"),
                ("packet:rrn0", DeviceRole::SwitchPort, "TPACKET_V2 (immediate)"),
                ("packet:rrn0@immediate=1", DeviceRole::Program, "TPACKET_V2 (immediate)"),
                ("packet:rrn0@immediate=0", DeviceRole::SwitchPort, "TPACKET_V3"),
                // AF_XDP is not possible without a region.
                ("rrn0", DeviceRole::Program, "TPACKET_V2 (immediate)"),
            ] {
                let mode = open(name, role).capabilities.mode;
                assert!(mode.starts_with(&format!("AF_PACKET, {version},")), "{name}: {mode}");
            }
        });
    }

    #[test]
    fn buffers_are_of_4096_bytes_only_where_a_card_may_write_into_them() {
        in_own_namespace(|| {
            ip("link add rrn0 type veth peer name rrn1");
            for (name, bytes) in [
                ("rrn0", Some(2048)),
                ("xdp:rrn0", Some(2048)),
                ("xdp:rrn0@mode=zero-copy", Some(4096)),
                ("xdp:rrn0@mode=generic", Some(2048)),
                ("packet:rrn0", None),
            ] {
                assert_eq!(plan_device(&name.parse().unwrap(), None).unwrap().buffer_bytes, bytes, "{name}");
            }
            // The loopback's driver has no zero copy, but loopback is of no virtual kind. So the result is open if the
            // kernel does not report it.
            let loopback = link_by_name("lo").unwrap();
            let told = xdp_features(loopback.index).unwrap();
            assert_eq!(may_zero_copy(&loopback, told), told.is_none());
        });
    }

    #[test]
    fn only_a_veth_on_a_switch_leaves_checksums_open() {
        in_own_namespace(|| {
            ip("link add rrn0 type veth peer name rrn1");
            ip("link add rrn2 type bridge");
            let leaves = |name, role| leaves_checksums(&link_by_name(name).unwrap(), role);
            assert!(leaves("rrn0", DeviceRole::SwitchPort) && !leaves("rrn0", DeviceRole::Program));
            assert!(!leaves("rrn2", DeviceRole::SwitchPort) && !leaves("lo", DeviceRole::SwitchPort));
        });
    }

    #[test]
    fn a_switch_port_keeps_its_interface_promiscuous_while_it_is_open() {
        in_own_namespace(|| {
            ip("link add rrn0 type veth peer name rrn1");
            let is_promiscuous = || link_by_name("rrn0").unwrap().promiscuous;
            for (name, role, promiscuous) in [
                ("packet:rrn0", DeviceRole::Program, false),
                ("packet:rrn0", DeviceRole::SwitchPort, true),
                ("packet:rrn0@promisc=0", DeviceRole::SwitchPort, false),
                ("packet:rrn0@promisc", DeviceRole::Program, true),
            ] {
                let device = open(name, role);
                assert_eq!(is_promiscuous(), promiscuous, "{name}");
                drop(device);
                until(|| !is_promiscuous());
            }
        });
    }
}
