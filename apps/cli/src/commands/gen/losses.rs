//! Frames dropped while a generator ran: where and why.

use std::collections::BTreeMap;

use ringroad_control::Connection;
use ringroad_control::report::StatusReport;
use ringroad_generator::SessionReport;
use serde::Serialize;

use crate::failure::Failure;
use crate::options::Global;
use crate::output::rates::grouped;
use crate::output::table;
use crate::port_drops::{Causes, growth, less};

/// Connection to the daemon, and its drop counters before a run.
pub(super) struct DropWatch {
    connection: Connection,
    before: StatusReport,
}

/// The drops during a run in which frames were lost, or dropped at the device that was to send them.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Losses {
    /// Number of lost frames, summed over loads and receiving ports.
    lost_frames: u64,
    /// Frames dropped during the run, the run's ports first. Frames of other programs are included.
    drops: Vec<PortDrops>,
    /// Minimum number of frames lost outside the daemon's counters: in programs, guests, on wires.
    lost_elsewhere_frames: u64,
}

/// Frames dropped at a port, or at ports that left their switch.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct PortDrops {
    /// Name of the port, or of the switch.
    name: String,
    role: Role,
    /// Whether the port is a device that sends for the run.
    #[serde(skip)]
    is_sending_device: bool,
    by_cause: Causes,
}

/// Role of a port in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    Sends,
    Receives,
    SendsAndReceives,
    /// Port between the run's ports, or unrelated to them.
    Other,
    /// Ports that left this switch during the run.
    Left,
}

impl Role {
    fn words(self) -> &'static str {
        match self {
            Self::Sends => " (sends)",
            Self::Receives => " (receives)",
            Self::SendsAndReceives => " (sends and receives)",
            Self::Other => "",
            Self::Left => " (ports that left)",
        }
    }
}

impl DropWatch {
    /// Reads the counters before a run; `None` if no daemon runs, since then the program itself has all ports.
    pub(super) fn start(global: &Global) -> Option<Self> {
        let mut connection = global.connect().ok()?;
        let before = connection.status().ok()?;
        Some(Self { connection, before })
    }

    /// Returns the daemon's drops since the start, if `report` has lost frames, or a device that sends for the run
    /// dropped frames. The run's ports must still be open.
    pub(super) fn end(mut self, report: &SessionReport) -> Result<Option<Losses>, Failure> {
        let lost_frames =
            report.loads.iter().flat_map(|load| &load.arrivals).map(|arrival| arrival.stream.lost).sum();
        let after = self.connection.status()?;
        let losses = losses(lost_frames, &self.before, &after, |name: &str| role(report, name));
        Ok((lost_frames > 0 || losses.are_of_a_sending_device()).then_some(losses))
    }
}

impl Losses {
    /// Whether a device that sends for the run dropped frames: these are the run's own, since the device has one user.
    fn are_of_a_sending_device(&self) -> bool {
        self.drops.iter().any(|port| port.is_sending_device)
    }

    /// Fails if a device that sends for the run dropped frames as too long: it would never have sent them.
    pub(super) fn refuse_too_long(&self) -> Result<(), Failure> {
        let too_long = |port: &&PortDrops| port.is_sending_device && port.by_cause.contains_key("too_long");
        let Some(port) = self.drops.iter().find(too_long) else { return Ok(()) };
        Err(Failure::new(
            format!(
                "{} frames are longer than {} can send, and were not sent",
                grouped(port.by_cause["too_long"]),
                port.name
            ),
            "choose a smaller --size (without a VLAN tag, an interface sends its MTU and 14 bytes), or raise the MTU: ip \
             link set DEVICE mtu BYTES",
        ))
    }

    /// Formats the losses with a line for each port.
    pub(super) fn text(&self) -> String {
        let mut lines = vec!["dropped during the run, including frames of other programs:".to_owned()];
        if self.drops.is_empty() {
            lines.push("  nothing, at any port of the daemon".to_owned());
        }
        for port in &self.drops {
            lines.push(format!("  {}{}: {}", port.name, port.role.words(), table::drops(&port.by_cause)));
        }
        if self.lost_elsewhere_frames > 0 {
            lines.push(format!(
                "  at least {} of the lost frames were dropped at no port of the daemon: a program, guest or wire lost \
                 them, or they came after --drain",
                grouped(self.lost_elsewhere_frames)
            ));
        }
        lines.join("\n")
    }
}

fn role(report: &SessionReport, name: &str) -> Role {
    let Some(port) = report.ports.iter().find(|port| port.name == name) else { return Role::Other };
    let sends = report.loads.iter().any(|load| load.from == port.port);
    let receives =
        report.loads.iter().any(|load| load.arrivals.iter().any(|arrival| arrival.port == port.port));
    match (sends, receives) {
        (true, true) => Role::SendsAndReceives,
        (true, false) => Role::Sends,
        (false, true) => Role::Receives,
        (false, false) => Role::Other,
    }
}

fn losses(
    lost_frames: u64,
    before: &StatusReport,
    after: &StatusReport,
    role: impl Fn(&str) -> Role,
) -> Losses {
    let ports_before: BTreeMap<&str, &Causes> =
        before.ports.iter().map(|port| (port.name.as_str(), &port.counters.drops)).collect();
    let nothing = Causes::new();
    let mut of_switches: BTreeMap<&str, Causes> = BTreeMap::new();
    let mut drops = Vec::new();
    for port in &after.ports {
        let earlier = ports_before.get(port.name.as_str()).copied().unwrap_or(&nothing);
        let by_cause = growth(earlier, &port.counters.drops);
        if let Some(switch) = &port.switch {
            add(of_switches.entry(switch).or_default(), &by_cause);
        }
        let (name, role) = (port.name.clone(), role(&port.name));
        let sends = matches!(role, Role::Sends | Role::SendsAndReceives);
        let is_sending_device = sends && port.switch.is_none();
        drops.push(PortDrops { name, role, is_sending_device, by_cause });
    }
    for switch in &after.switches {
        let earlier = before.switches.iter().find(|earlier| earlier.name == switch.name);
        let all = growth(earlier.map_or(&nothing, |earlier| &earlier.totals.drops), &switch.totals.drops);
        let by_cause = less(&all, of_switches.get(switch.name.as_str()).unwrap_or(&nothing));
        let (name, role) = (switch.name.clone(), Role::Left);
        drops.push(PortDrops { name, role, is_sending_device: false, by_cause });
    }
    drops.retain(|port| !port.by_cause.is_empty());
    drops.sort_by(|a, b| a.role.cmp(&b.role).then_with(|| a.name.cmp(&b.name)));
    let dropped: u64 = drops.iter().flat_map(|port| port.by_cause.values()).sum();
    Losses { lost_frames, drops, lost_elsewhere_frames: lost_frames.saturating_sub(dropped) }
}

fn add(sum: &mut Causes, more: &Causes) {
    for (cause, frames) in more {
        *sum.entry(cause.clone()).or_default() += frames;
    }
}

#[cfg(test)]
mod tests {
    use ringroad_control::report::{CounterReport, PortReport, StartedBy, SwitchReport};

    use super::*;

    fn causes(causes: &[(&str, u64)]) -> Causes {
        causes.iter().map(|(cause, frames)| ((*cause).to_owned(), *frames)).collect()
    }

    fn counters(drops: &[(&str, u64)]) -> CounterReport {
        CounterReport { drops: causes(drops), ..CounterReport::default() }
    }

    type Drops<'a> = &'a [(&'a str, u64)];

    fn counts(ports: &[(&str, Drops<'_>)], switch: Drops<'_>) -> StatusReport {
        let port = |(name, drops): &(&str, Drops<'_>)| PortReport {
            name: (*name).to_owned(),
            switch: Some("vale0".to_owned()),
            counters: counters(drops),
            ..PortReport::default()
        };
        let switch = SwitchReport {
            name: "vale0".to_owned(),
            ports: 0,
            macs: 0,
            evictions: 0,
            refused_moves: 0,
            replicated_frames: 0,
            totals: counters(switch),
            openflow: None,
        };
        StatusReport {
            version: String::new(),
            pid: 1,
            uptime_s: 0,
            socket: String::new(),
            config: None,
            started: StartedBy::Command,
            workers: Vec::new(),
            switches: vec![switch],
            ports: ports.iter().map(port).collect(),
            next: None,
            shared_memory_bytes: 0,
            shared_memory_by_user: BTreeMap::new(),
            huge_page_bytes: 0,
            waiting: BTreeMap::new(),
            rejected_requests: 0,
        }
    }

    #[test]
    fn only_drops_during_the_run_are_listed_with_its_own_ports_first() {
        let before = counts(&[("vale0:b", &[("no_space", 5)])], &[("no_space", 5)]);
        let after = counts(
            &[
                ("vale0:0", &[("not_bound", 1)]),
                ("vale0:b", &[("no_space", 9), ("too_long", 0)]),
                ("vale0:z", &[]),
            ],
            &[("no_space", 11), ("not_bound", 1)],
        );
        let role = |name: &str| if name == "vale0:b" { Role::Receives } else { Role::Other };
        let losses = losses(10, &before, &after, role);
        let drops = |name: &str, role, by_cause| PortDrops {
            name: name.into(),
            role,
            is_sending_device: false,
            by_cause,
        };
        assert_eq!(
            losses.drops,
            [
                drops("vale0:b", Role::Receives, causes(&[("no_space", 4)])),
                drops("vale0:0", Role::Other, causes(&[("not_bound", 1)])),
                drops("vale0", Role::Left, causes(&[("no_space", 2)])),
            ]
        );
        assert_eq!(losses.lost_elsewhere_frames, 3);
        let text = losses.text();
        assert!(!losses.are_of_a_sending_device(), "a switch's port counts frames to it");
        for part in
            ["  vale0:b (receives): no_space 4", "  vale0 (ports that left): no_space 2", "at least 3 of"]
        {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn drops_at_a_device_that_sends_are_the_runs_own_though_no_loss_was_measured() {
        let device = |drops: Drops<'_>| {
            let mut status = counts(&[("packet:eth0", drops)], &[]);
            status.ports.iter_mut().for_each(|port| port.switch = None);
            status
        };
        let (before, after) = (device(&[("too_long", 1)]), device(&[("too_long", 11)]));
        for (role, own) in [(Role::Sends, true), (Role::Receives, false), (Role::Other, false)] {
            let losses = losses(0, &before, &after, |_| role);
            assert_eq!(losses.are_of_a_sending_device(), own, "{role:?}");
            assert_eq!(losses.refuse_too_long().is_err(), own, "{role:?}");
        }
        assert!(!losses(0, &after, &after, |_| Role::Sends).are_of_a_sending_device());
    }
}
