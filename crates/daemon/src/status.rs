//! Reports about the daemon.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use ringroad_control::codec::encoded_bytes;
use ringroad_control::report::{
    CounterReport, LinkReport, ListReport, MacEntryReport, OpenFlowReport, PeerReport, PortOwner, PortReport,
    PortSettingsReport, SwitchReport, WorkerReport, WorkerState,
};
use ringroad_datapath::fabric::{FabricError, Runner};
use ringroad_drivers::catalogue::port_name::PipeSide;
use ringroad_drivers::device::Device;
use ringroad_drivers::nic::{link_of, reset_fault};
use ringroad_netdev::{LinkState, LinkView};
use ringroad_port::counters::CounterSnapshot;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_index::PortIndex;
use ringroad_port::port_settings::{PortSettings, PortVlans};
use ringroad_port_table::entry::{DevicePort, Occupant, PipePort};
use ringroad_ring::control_block::FillCounts;
use ringroad_switch::MacEntry;
use ringroad_wire::mac::Mac;

use crate::netmap::Netmap;
use crate::port_entries::{Client, Kept};
use crate::ports::Ports;

/// Counters of a program's device: frames from the device and to it, and the drops in both directions.
pub(crate) fn wire_report(program: &CounterSnapshot, device: &CounterSnapshot) -> CounterReport {
    let mut counters = device.clone();
    for (sum, frames) in counters.dropped.iter_mut().zip(&program.dropped) {
        *sum += frames;
    }
    for ((_, sum), (_, count)) in counters.events_mut().zip(program.events()) {
        *sum = count;
    }
    CounterReport::from(&counters)
}

/// Counters of a port between programs: frames that it sent, and frames put into it. The programs write these counts.
pub(crate) fn filled_report(sent: &FillCounts, received: &FillCounts) -> CounterReport {
    let missed = (received.missed > 0).then(|| (DropCause::NoSpace.name().to_owned(), received.missed));
    CounterReport {
        received_frames: sent.frames,
        received_bytes: sent.bytes,
        delivered_frames: received.frames,
        delivered_bytes: received.bytes,
        drops: missed.into_iter().collect(),
        ..CounterReport::default()
    }
}

/// Interface behind a device, and the fault of its card, if there is one.
pub(crate) fn link_and_fault(device: &Device) -> (Option<LinkReport>, Option<String>) {
    let link = link_report(device);
    let fault = device
        .interface
        .as_ref()
        .zip(link.as_ref())
        .and_then(|(interface, link)| reset_fault(interface, link.speed_bps));
    (link, fault)
}

/// Interface behind a device: the state by which frames are sent, and data that only the kernel has.
fn link_report(device: &Device) -> Option<LinkReport> {
    let interface = device.interface.as_ref()?;
    let LinkView { state, mtu, .. } = interface.link.view();
    if state == LinkState::Gone {
        return None;
    }
    let (link, speed_bps) = link_of(interface)?;
    Some(LinkReport {
        interface: link.name,
        netns: interface
            .netns
            .as_ref()
            .filter(|netns| !netns.is_current())
            .map(|netns| netns.label().to_owned()),
        up: state != LinkState::Down,
        running: state == LinkState::Running,
        speed_bps,
        mac: Mac::from(link.mac.unwrap_or_default()).to_string(),
        mtu,
    })
}

/// The program behind a device's socket, as it is now.
pub(crate) fn peer_report(device: &Device) -> Option<PeerReport> {
    let status = device.peer.as_ref()?.status();
    Some(PeerReport {
        connected: status.is_connected,
        connections: status.connections,
        agreed: status.agreed,
        active_queues: status.active_queues,
        address: status.address.map(|address| address.to_string()),
        last_error: status.last_error,
    })
}

/// The settings of a port of a switch, if it has some.
pub(crate) fn settings_report(settings: &PortSettings) -> Option<PortSettingsReport> {
    let (vlan, trunk, native) = match &settings.vlans {
        PortVlans::Unset => (None, None, None),
        PortVlans::Access(vlan) => (Some(*vlan), None, None),
        PortVlans::Trunk { tagged, native } => (None, Some(tagged.to_string()), *native),
    };
    let PortSettings { vlans: _, isolated, storm } = *settings;
    (!settings.is_unset()).then_some(PortSettingsReport { vlan, trunk, native, isolated, storm })
}

pub(crate) fn owner_report(client: &Client) -> PortOwner {
    PortOwner { pid: client.peer.pid, uid: client.peer.uid, program: client.program.clone() }
}

/// Size of the ports in one reply, bytes, from which on no further port is added: far below the limit of a reply, and
/// made in a few milliseconds.
const PAGE_BYTES: usize = 1 << 20;
/// Maximum number of addresses in one reply, which then has about as many bytes as a page of ports.
const PAGE_ADDRESSES: usize = 10_000;

/// Ports of one reply.
#[derive(Debug, Default)]
struct Page {
    ports: Vec<PortReport>,
    bytes: usize,
    next: Option<String>,
}

impl Page {
    /// Whether there is room for one more port; if not, the port is the first of the next reply.
    fn has_room(&mut self, section: Section, key: &str) -> bool {
        if self.bytes >= PAGE_BYTES && self.next.is_none() {
            self.next = Some(format!("{}{key}", section as u8));
        }
        self.next.is_none()
    }

    fn push(&mut self, port: PortReport) {
        self.bytes += encoded_bytes(&port);
        self.ports.push(port);
    }
}

/// The kinds of port in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    OnSwitches,
    Devices,
    Pipes,
    Netmap,
}

/// Position of a reply's first port, as [`Page::has_room`] writes it.
struct ListCursor<'a> {
    section: u8,
    key: &'a str,
}

impl<'a> ListCursor<'a> {
    fn parse(text: Option<&'a str>) -> Self {
        let split = text.and_then(|text| Some((text.get(..1)?.parse().ok()?, text.get(1..)?)));
        let (section, key) = split.unwrap_or((0, ""));
        Self { section, key }
    }

    /// Key with which a section begins; `None` if an earlier reply had the section.
    fn first_of(&self, section: Section) -> Option<&'a str> {
        match self.section.cmp(&(section as u8)) {
            Ordering::Less => Some(""),
            Ordering::Equal => Some(self.key),
            Ordering::Greater => None,
        }
    }
}

/// Ports from `cursor` on, which is an earlier reply's [`ListReport::next`], as many as belong into one reply.
///
/// # Errors
/// [`FabricError`] if a worker is gone.
pub fn list(ports: &Ports, netmap: &Netmap, cursor: Option<&str>) -> Result<ListReport, FabricError> {
    let is_first = cursor.is_none();
    if is_first {
        ports.table.fabric().count_missed()?;
    }
    let cursor = ListCursor::parse(cursor);
    let mut page = Page::default();
    if let Some(first) = cursor.first_of(Section::OnSwitches) {
        list_switch_ports(ports, first, &mut page)?;
    }
    if let Some(first) = cursor.first_of(Section::Devices) {
        let devices = ports.table.devices().range::<str, _>((Bound::Included(first), Bound::Unbounded));
        for (name, port) in devices {
            if !page.has_room(Section::Devices, name) {
                break;
            }
            page.push(device_port_report(ports, name, port)?);
        }
    }
    if let Some(first) = cursor.first_of(Section::Pipes) {
        let (parent, id) = first.split_once('{').unwrap_or_default();
        for ((parent, id), pipe) in ports.table.pipes().range((parent.to_owned(), id.to_owned())..) {
            if !page.has_room(Section::Pipes, &format!("{parent}{{{id}")) {
                break;
            }
            for (side, brace) in [(PipeSide::Master, '{'), (PipeSide::Slave, '}')] {
                page.push(pipe_end_report(format!("{parent}{brace}{id}"), pipe, side));
            }
        }
    }
    if let Some(first) = cursor.first_of(Section::Netmap) {
        for (key, report) in netmap.reports(ports, first) {
            if !page.has_room(Section::Netmap, &key) {
                break;
            }
            report?.into_iter().for_each(|port| page.push(port));
        }
    }
    let waiting = if is_first { ports.waiting_ports() } else { BTreeMap::new() };
    Ok(ListReport { ports: page.ports, next: page.next, waiting })
}

fn list_switch_ports(ports: &Ports, first: &str, page: &mut Page) -> Result<(), FabricError> {
    let mut names = Vec::new();
    for (name, port) in ports.table.on_switches().range::<str, _>((Bound::Included(first), Bound::Unbounded))
    {
        if !page.has_room(Section::OnSwitches, name) {
            break;
        }
        let occupant = &port.occupant;
        let (link, card_error) = occupant.device().map(link_and_fault).unwrap_or_default();
        let fabric = ports.table.fabric();
        let counters = fabric.port_counters(&port.switch, &port.port).unwrap_or_default();
        let queues = fabric.queue_counters(&port.switch, &port.port).map(|queue| CounterReport::from(&queue));
        let queue_counters = if port.shape.queues > 1 { queues.collect() } else { Vec::new() };
        let is_blocked = fabric.is_blocked(&port.switch, PortIndex(port.index));
        let blocked =
            is_blocked.then(|| "a loop is behind this port: flooded frames do not pass it".to_owned());
        names.push((port.switch.as_str(), port.port.as_str()));
        page.push(PortReport {
            name: name.clone(),
            kind: occupant.driver().to_owned(),
            mode: occupant.mode().to_owned(),
            switch: Some(port.switch.clone()),
            index: Some(port.index),
            persistent: port.is_persistent,
            bound: !matches!(occupant, Occupant::Nobody),
            owner: occupant.owner().map(owner_report),
            queues: port.shape.queues,
            slots: port.shape.slots,
            buffer_bytes: port.shape.buffer_bytes,
            settings: settings_report(&port.settings),
            counters: CounterReport::from(&counters),
            queue_counters,
            error: card_error.or(blocked),
            notes: occupant.notes().to_vec(),
            link,
            peer: occupant.device().and_then(peer_report),
        });
    }
    let faults = ports.table.fabric().port_faults(&names)?;
    for (report, fault) in page.ports.iter_mut().zip(faults) {
        report.error = fault.or(report.error.take());
    }
    Ok(())
}

fn device_port_report(
    ports: &Ports,
    name: &str,
    port: &DevicePort<Client, Kept>,
) -> Result<PortReport, FabricError> {
    let [program, device] = ports.table.fabric().wire_counters(port.wire).unwrap_or_default();
    let (link, card_error) = link_and_fault(&port.device);
    let shape = port.shm.home().shape();
    Ok(PortReport {
        name: name.to_owned(),
        kind: port.device.capabilities.driver.to_owned(),
        mode: port.device.capabilities.mode.clone(),
        bound: true,
        owner: Some(owner_report(&port.owner)),
        queues: shape.queues,
        slots: shape.slots,
        buffer_bytes: shape.buffer_bytes,
        counters: wire_report(&program, &device),
        error: ports.table.fabric().wire_fault(port.wire)?.or(card_error),
        notes: port.device.notes.clone(),
        link,
        peer: peer_report(&port.device),
        ..PortReport::default()
    })
}

fn pipe_end_report(name: String, pipe: &PipePort<Client, Kept>, side: PipeSide) -> PortReport {
    let owner = pipe.owners[side as usize].as_ref();
    PortReport {
        name,
        kind: "pipe".to_owned(),
        mode: "frames pass between the programs, not through the daemon".to_owned(),
        bound: owner.is_some(),
        owner: owner.map(owner_report),
        queues: pipe.shape.queues,
        slots: pipe.shape.slots,
        buffer_bytes: pipe.shape.buffer_bytes,
        counters: filled_report(&pipe.pipe.filled(side.other()), &pipe.pipe.filled(side)),
        ..PortReport::default()
    }
}

/// Reports of all switches.
#[must_use]
pub fn switches(ports: &Ports) -> Vec<SwitchReport> {
    let mut openflow: BTreeMap<String, OpenFlowReport> =
        ports.openflow_report().into_iter().map(|report| (report.settings.switch.clone(), report)).collect();
    let names = ports.table.fabric().switch_names();
    names
        .filter_map(|name| {
            let totals = ports.table.fabric().switch_totals(name)?;
            Some(SwitchReport {
                name: name.to_owned(),
                // The controllers' port is not a user's port.
                ports: totals.ports as u32 - u32::from(ports.openflow.has(name)),
                macs: totals.macs as u32,
                evictions: totals.evictions,
                refused_moves: totals.refused_moves,
                replicated_frames: totals.totals.replicated_frames,
                totals: CounterReport::from(&totals.totals),
                openflow: openflow.remove(name),
            })
        })
        .collect()
}

/// Reports of all workers.
#[must_use]
pub fn workers(ports: &Ports) -> Vec<WorkerReport> {
    use std::sync::atomic::Ordering::Relaxed;
    let runners = ports.table.fabric().runners().iter();
    let report = |runner: &Runner| {
        let Runner::Thread(worker) = runner else { return None };
        let stats = worker.stats();
        Some(WorkerReport {
            index: u32::from(worker.config().index),
            cpu: worker.config().cpu,
            loops: stats.loops.load(Relaxed),
            busy_loops: stats.busy_loops.load(Relaxed),
            busy_ns: stats.busy_time.ns(),
            frames: stats.frames.load(Relaxed),
            turn_frames: stats.turn_frames.iter().map(|requests| requests.load(Relaxed)).collect(),
            sleeps: stats.sleeps.load(Relaxed),
            kicks_received: stats.kicks_received.load(Relaxed),
            cpu_time_ns: thread_cpu_ns(stats.thread_id.load(Relaxed)),
            state: match (worker.is_alive(), stats.is_sleeping()) {
                (false, _) => WorkerState::Stopped,
                (true, true) => WorkerState::Sleeping,
                (true, false) => WorkerState::Running,
            },
        })
    };
    runners.filter_map(report).collect()
}

/// Processor time of a thread of this process, from the kernel's scheduler statistics; 0 if it reports none.
fn thread_cpu_ns(thread: u32) -> u64 {
    std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"))
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// Learned addresses of a switch after `after`, in their order, as many as fit in one reply; `tick_s` is the length of
/// an ageing tick in seconds.
#[must_use]
pub fn mac_table(
    ports: &Ports,
    switch: &str,
    after: Option<(&str, u16)>,
    tick_s: f64,
) -> Option<Vec<MacEntryReport>> {
    let entries = address_page(ports.table.fabric().mac_table(switch)?, after);
    let mut names: BTreeMap<u8, String> = BTreeMap::new();
    let name_of = |port: PortIndex| match ports.table.fabric().port_name(switch, port) {
        Some(name) => format!("{switch}:{name}"),
        None => format!("{switch}: index {}", port.0),
    };
    let reports = entries.into_iter().map(|entry| MacEntryReport {
        mac: entry.mac.to_string(),
        vlan: Some(entry.vlan).filter(|&vlan| vlan != 0),
        port: names.entry(entry.port.0).or_insert_with(|| name_of(entry.port)).clone(),
        age_s: (f64::from(entry.age_ticks) * tick_s) as u64,
        is_static: entry.is_static,
    });
    Some(reports.collect())
}

/// First addresses of `entries` after the address `after` in its VLAN, in their order.
fn address_page(mut entries: Vec<MacEntry>, after: Option<(&str, u16)>) -> Vec<MacEntry> {
    if let Some((mac, vlan)) = after {
        // Addresses are ordered as they are printed.
        entries.retain(|entry| (&*entry.mac.to_string(), entry.vlan) > (mac, vlan));
    }
    let key = |entry: &MacEntry| (entry.mac, entry.vlan);
    if entries.len() > PAGE_ADDRESSES {
        entries.select_nth_unstable_by_key(PAGE_ADDRESSES, key);
        entries.truncate(PAGE_ADDRESSES);
    }
    entries.sort_unstable_by_key(key);
    entries
}

#[cfg(test)]
mod tests {
    use ringroad_control::Reply;
    use ringroad_control::codec::MAX_REPLY_BYTES;
    use ringroad_control::message::PortSpec;
    use ringroad_datapath::fabric::Fabric;
    use ringroad_switch::MacTableConfig;

    use super::*;
    use crate::config::LimitsConfig;
    use crate::quotas::Quotas;

    #[test]
    fn ports_that_exceed_one_reply_come_once_each_in_several() {
        let (fabric, _engine) = Fabric::stepped(MacTableConfig { entries: 16, ..MacTableConfig::new(0) });
        let mut ports = Ports::new(fabric, Quotas::new(&LimitsConfig::default(), 0)).unwrap();
        let mut names = Vec::new();
        for (switch, port) in (0..12).flat_map(|switch| (0..254).map(move |port| (switch, port))) {
            let name = format!("valeABCDEF{switch:02}:abcdefghijkl{port:03}");
            ports.attach(vec![PortSpec::for_program(&name)], false).unwrap();
            names.push(name);
        }
        let netmap = Netmap::default();
        let (mut listed, mut answers, mut cursor) = (Vec::new(), 0, None);
        loop {
            let page = list(&ports, &netmap, cursor.as_deref()).unwrap();
            let next = page.next.clone();
            listed.extend(page.ports.iter().map(|port| port.name.clone()));
            assert!(encoded_bytes(&Reply::List(page)) < MAX_REPLY_BYTES / 4);
            answers += 1;
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        assert!(answers > 1, "all fitted into one answer");
        assert_eq!(listed, names);
        // An invalid position means the beginning; the position of a port that has gone means the next port.
        assert_eq!(list(&ports, &netmap, Some("é")).unwrap().ports[0].name, names[0]);
        let gone = format!("0{}-", names[5]);
        assert_eq!(list(&ports, &netmap, Some(&gone)).unwrap().ports[0].name, names[6]);
    }

    #[test]
    fn addresses_that_exceed_one_reply_come_in_several_in_order() {
        let entry = |number: u32| {
            // Each address is in three VLANs.
            let [a, b, c, d] = (number / 3).to_be_bytes();
            MacEntry {
                mac: Mac::from_octets([2, 0, a, b, c, d]),
                vlan: (number % 3) as u16,
                port: PortIndex(0),
                age_ticks: 0,
                is_static: false,
            }
        };
        let count = 2 * PAGE_ADDRESSES as u32 + 5;
        let all: Vec<MacEntry> = (0..count).rev().map(entry).collect();
        let (mut seen, mut after) = (Vec::new(), None::<(String, u16)>);
        loop {
            let last = after.as_ref().map(|(mac, vlan)| (mac.as_str(), *vlan));
            let page = address_page(all.clone(), last);
            assert!(page.len() <= PAGE_ADDRESSES);
            let Some(last) = page.last() else { break };
            after = Some((last.mac.to_string(), last.vlan));
            seen.extend(page);
        }
        assert_eq!(seen, (0..count).map(entry).collect::<Vec<_>>());
    }
}
