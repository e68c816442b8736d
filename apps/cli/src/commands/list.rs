//! `ringroad list`.

use std::collections::BTreeMap;

use clap::Args;
use ringroad_control::report::{LinkReport, PeerReport, PortReport};

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::output::rates::grouped;
use crate::output::table::{drops, table};
use crate::verb::MainVerb;

/// List the ports
///
/// "in" are frames that the datapath took from the port, "out" frames that it delivered to the port. Frames on a pipe
/// pass between its two programs, and the daemon does not see them.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {}

impl MainVerb for ListArgs {
    const EXAMPLES: &str = "ringroad list --json";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        output.result(&global.connect()?.list()?, |list| ports_table(&list.ports) + &waiting(&list.waiting))
    }
}

/// Formats a line for each waiting port, with the reason.
pub(super) fn waiting(ports: &BTreeMap<String, String>) -> String {
    let line = |(port, reason): (&String, &String)| format!("\n{port} waits: {reason}");
    ports.iter().map(line).collect()
}

/// Makes the table of ports with their totals.
pub(super) fn ports_table(ports: &[PortReport]) -> String {
    table(
        ports,
        &[
            ("port", |port| port.name.clone()),
            ("kind", |port| port.kind.clone()),
            ("served by", |port| served_by(port)),
            (">frames in", |port| grouped(port.counters.received_frames)),
            (">frames out", |port| grouped(port.counters.delivered_frames)),
            ("drops", |port| drops(&port.counters.drops)),
            ("state", |port| state(port)),
        ],
        "no ports",
    )
}

fn served_by(port: &PortReport) -> String {
    match &port.owner {
        Some(owner) => match owner.pid {
            Some(pid) => format!("{} ({pid})", owner.program),
            None => owner.program.clone(),
        },
        None if port.bound => "the daemon".to_owned(),
        None => "nobody".to_owned(),
    }
}

fn link_state(link: &LinkReport) -> String {
    let state = match (link.up, link.running) {
        (false, _) => "down",
        (true, false) => "no carrier",
        (true, true) => "up",
    };
    match link.speed_bps {
        Some(speed) => format!("{state}, {:.0} Gbit/s", speed as f64 / 1e9),
        None => state.to_owned(),
    }
}

fn peer_state(peer: &PeerReport, queues: u16) -> String {
    match (peer.connected, &peer.last_error) {
        (true, Some(fault)) => format!("peer connected: {fault}"),
        (true, None) if peer.active_queues < queues => {
            format!("peer connected, uses {} of {queues} queues", peer.active_queues)
        }
        (true, None) => "peer connected".to_owned(),
        (false, Some(error)) => format!("no peer: {error}"),
        (false, None) => "no peer".to_owned(),
    }
}

fn state(port: &PortReport) -> String {
    let mut words = Vec::new();
    if let Some(link) = &port.link {
        words.push(link_state(link));
    }
    if let Some(peer) = &port.peer {
        words.push(peer_state(peer, port.queues));
    }
    words.extend(port.settings.as_ref().map(ToString::to_string));
    if port.persistent {
        words.push("attached".to_owned());
    }
    if port.counters.violations > 0 {
        words.push(format!("{} violations", port.counters.violations));
    }
    if let Some(error) = &port.error {
        words.push(error.clone());
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use ringroad_control::report::{PortOwner, PortSettingsReport};

    use super::*;

    pub(crate) fn port(name: &str) -> PortReport {
        PortReport {
            name: name.into(),
            kind: "shm".into(),
            mode: "4 KiB pages".into(),
            switch: Some("vale0".into()),
            index: Some(0),
            persistent: false,
            bound: true,
            owner: Some(PortOwner { pid: Some(42), uid: 0, program: "gen".into() }),
            queues: 1,
            slots: 1024,
            buffer_bytes: 2048,
            ..PortReport::default()
        }
    }

    #[test]
    fn a_port_shows_its_server_counters_and_stop_reason() {
        let mut report = port("vale0:a");
        report.counters.received_frames = 1_000_000;
        report.counters.drops.insert("no_space".into(), 12);
        report.error = Some("head out of range".into());
        let text = ports_table(&[report]);
        let row = text.lines().nth(1).unwrap();
        for part in ["vale0:a", "gen (42)", "1 000 000", "no_space 12", "head out of range"] {
            assert!(row.contains(part), "{text}");
        }
    }

    #[test]
    fn a_socket_port_shows_the_state_of_its_peer() {
        let mut report = port("vale0:a");
        report.queues = 2;
        report.peer = Some(PeerReport {
            connected: true,
            connections: 1,
            agreed: "split rings".into(),
            active_queues: 1,
            address: None,
            last_error: None,
        });
        assert!(ports_table(&[report.clone()]).contains("uses 1 of 2 queues"));
        let peer = report.peer.as_mut().unwrap();
        (peer.connected, peer.last_error) = (false, Some("it spoke garbage".into()));
        assert!(ports_table(&[report]).contains("no peer: it spoke garbage"));
    }

    #[test]
    fn a_port_shows_its_vlans_and_limits() {
        let mut report = port("vale0:a");
        let trunk = Some("10,20-30".to_owned());
        report.settings = Some(PortSettingsReport {
            trunk,
            native: Some(5),
            storm: Some(9),
            ..PortSettingsReport::default()
        });
        assert!(ports_table(&[report.clone()]).contains("trunk=10,20-30,native=5,storm=9"));
        report.settings =
            Some(PortSettingsReport { vlan: Some(10), isolated: true, ..PortSettingsReport::default() });
        assert!(ports_table(&[report]).contains("vlan=10,isolated"));
    }

    #[test]
    fn a_port_without_a_program_is_shown_so() {
        let mut report = port("vale0:a");
        (report.owner, report.bound, report.persistent) = (None, false, true);
        let text = ports_table(&[report]);
        assert!(text.contains("nobody") && text.contains("attached"), "{text}");
    }
}
