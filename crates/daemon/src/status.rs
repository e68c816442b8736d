//! What the daemon tells about itself.

use std::collections::BTreeMap;

use ringroad_control::report::{
    CounterReport, LinkReport, ListReport, MacEntryReport, Owner, PeerReport, PortReport, SwitchReport,
    WorkerReport, WorkerState,
};
use ringroad_datapath::fabric::{FabricError, Runner};
use ringroad_drivers::device::Device;
use ringroad_drivers::registry;
use ringroad_port::counters::CounterSnapshot;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_name::PipeSide;

use crate::netmap::Netmap;
use crate::port_entries::{Client, Origin};
use crate::ports::Ports;

/// The counters of a port as they are reported.
#[must_use]
pub fn counter_report(counters: &CounterSnapshot) -> CounterReport {
    let drops: BTreeMap<String, u64> = DropCause::ALL
        .into_iter()
        .map(|cause| (cause.name().to_owned(), counters.dropped_for(cause)))
        .filter(|(_, frames)| *frames > 0)
        .collect();
    CounterReport {
        received_frames: counters.received_frames,
        received_bytes: counters.received_bytes,
        delivered_frames: counters.delivered_frames,
        delivered_bytes: counters.delivered_bytes,
        drops,
        violations: counters.violations,
        wakeups: counters.wakeups,
    }
}

/// The account of a program's device: what came from the device and went into it, and the drops on both ways.
pub(crate) fn wire_report(program: &CounterSnapshot, device: &CounterSnapshot) -> CounterReport {
    let mut account = device.clone();
    for (sum, frames) in account.dropped.iter_mut().zip(&program.dropped) {
        *sum += frames;
    }
    (account.violations, account.wakeups) = (program.violations, program.wakeups);
    counter_report(&account)
}

/// The interface behind a device, as it is now.
pub(crate) fn link_report(device: &Device) -> Option<LinkReport> {
    let interface = device.interface.as_ref()?;
    let (link, speed_bps) = registry::link_of(interface)?;
    Some(LinkReport {
        interface: link.name,
        netns: interface.netns.clone(),
        up: link.up,
        running: link.running,
        speed_bps,
        mac: link.mac.unwrap_or_default().map(|byte| format!("{byte:02x}")).join(":"),
        mtu: link.mtu,
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
        last_error: status.last_error,
    })
}

pub(crate) fn owner_report(client: &Client) -> Owner {
    Owner { pid: client.peer.pid, uid: client.peer.uid, program: client.program.clone() }
}

/// All ports.
///
/// # Errors
/// [`FabricError`] where a worker is gone.
pub fn list(ports: &Ports, netmap: &Netmap) -> Result<ListReport, FabricError> {
    ports.fabric.count_missed()?;
    let mut reports = Vec::new();
    for (name, port) in &ports.on_switches {
        let counters = ports.fabric.port_counters(&port.switch, &port.port).unwrap_or_default();
        reports.push(PortReport {
            name: name.clone(),
            kind: port.driver.to_owned(),
            mode: port.mode.clone(),
            switch: Some(port.switch.clone()),
            index: Some(port.index),
            persistent: port.origin != Origin::Program,
            bound: port.owner.is_some() || port.driver != "shm",
            owner: port.owner.as_ref().map(owner_report),
            queues: port.sizes.queues,
            slots: port.sizes.slots,
            buffer_bytes: port.sizes.buffer_bytes,
            counters: counter_report(&counters),
            error: ports.fabric.port_fault(&port.switch, &port.port)?,
            notes: port.device.as_ref().map(|device| device.notes.clone()).unwrap_or_default(),
            link: port.device.as_ref().and_then(link_report),
            peer: port.device.as_ref().and_then(peer_report),
        });
    }
    for (name, port) in &ports.devices {
        let [program, device] = ports.fabric.wire_counters(port.wire).unwrap_or_default();
        reports.push(PortReport {
            name: name.clone(),
            kind: port.device.capabilities.driver.to_owned(),
            mode: port.device.capabilities.mode.clone(),
            switch: None,
            index: None,
            persistent: false,
            bound: true,
            owner: Some(owner_report(&port.owner)),
            queues: port.sizes.queues,
            slots: port.sizes.slots,
            buffer_bytes: port.sizes.buffer_bytes,
            counters: wire_report(&program, &device),
            error: ports.fabric.wire_fault(port.wire)?,
            notes: port.device.notes.clone(),
            link: link_report(&port.device),
            peer: peer_report(&port.device),
        });
    }
    for ((parent, id), pipe) in &ports.pipes {
        for (side, brace) in [(PipeSide::Master, '{'), (PipeSide::Slave, '}')] {
            let owner = pipe.owners[side as usize].as_ref();
            reports.push(PortReport {
                name: format!("{parent}{brace}{id}"),
                kind: "pipe".to_owned(),
                mode: "frames pass between the programs, not through the daemon".to_owned(),
                switch: None,
                index: None,
                persistent: false,
                bound: owner.is_some(),
                owner: owner.map(owner_report),
                queues: pipe.sizes.queues,
                slots: pipe.sizes.slots,
                buffer_bytes: pipe.sizes.buffer_bytes,
                counters: CounterReport::default(),
                error: None,
                notes: Vec::new(),
                link: None,
                peer: None,
            });
        }
    }
    reports.extend(netmap.reports(ports)?);
    Ok(ListReport { ports: reports })
}

/// All switches.
#[must_use]
pub fn switches(ports: &Ports) -> Vec<SwitchReport> {
    let names = ports.fabric.switch_names();
    names
        .filter_map(|name| {
            let totals = ports.fabric.switch_totals(name)?;
            Some(SwitchReport {
                name: name.to_owned(),
                ports: totals.ports as u32,
                macs: totals.macs as u32,
                replicated_frames: totals.totals.replicated_frames,
                totals: counter_report(&totals.totals),
            })
        })
        .collect()
}

/// All workers.
#[must_use]
pub fn workers(ports: &Ports) -> Vec<WorkerReport> {
    use std::sync::atomic::Ordering::Relaxed;
    let runners = ports.fabric.runners().iter();
    runners
        .filter_map(|runner| match runner {
            Runner::Thread(worker) => Some(worker),
            Runner::Stepped(_) => None,
        })
        .map(|worker| {
            let stats = worker.stats();
            WorkerReport {
                index: u32::from(worker.config().index),
                cpu: worker.config().cpu,
                loops: stats.loops.load(Relaxed),
                busy_loops: stats.busy_loops.load(Relaxed),
                sleeps: stats.sleeps.load(Relaxed),
                kicks_received: stats.kicks_received.load(Relaxed),
                cpu_time_ns: thread_cpu_ns(stats.thread_id.load(Relaxed)),
                state: match (worker.is_alive(), stats.is_sleeping()) {
                    (false, _) => WorkerState::Stopped,
                    (true, true) => WorkerState::Sleeping,
                    (true, false) => WorkerState::Running,
                },
            }
        })
        .collect()
}

/// Processor time of a thread of this process, from the kernel's scheduler statistics; 0 where it tells none.
fn thread_cpu_ns(thread: u32) -> u64 {
    std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"))
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// The learned addresses of a switch; `tick_s` is the length of an ageing tick in seconds.
#[must_use]
pub fn mac_table(ports: &Ports, switch: &str, tick_s: f64) -> Option<Vec<MacEntryReport>> {
    let entries = ports.fabric.mac_table(switch)?;
    Some(
        entries
            .into_iter()
            .map(|entry| MacEntryReport {
                mac: entry.mac.to_string(),
                port: match ports.fabric.port_name(switch, entry.port) {
                    Some(port) => format!("{switch}:{port}"),
                    None => format!("{switch}: index {}", entry.port.0),
                },
                age_s: (f64::from(entry.age_ticks) * tick_s) as u64,
            })
            .collect(),
    )
}
