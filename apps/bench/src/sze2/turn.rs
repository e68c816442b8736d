//! Turn of one driver at one point: starts testpmd, counts its frames, ends it, and reads its cycles.

use std::ffi::OsString;
use std::path::Path;

use ringroad_netdev::Namespace;
use serde::Serialize;

use super::plan::{ForwardMode, Sze2Point};
use super::{Driver, Sze2Session};
use crate::error::BenchError;
use crate::peers::telemetry::PortCounter;
use crate::peers::testpmd::Launch;
use crate::plan::FCS_BYTES;
use crate::process::{BenchProcess, EndsBy};
use crate::sockets::socket_folder;
use crate::turn::DaemonPart;

/// Result of a turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TurnOutcome {
    /// Frames per second: received, or sent if no frames are received.
    pub frames_per_s: f64,
    /// Cycles of the time-stamp counter per frame, in calls that returned frames, by testpmd's own count.
    pub cycles_per_frame: f64,
    /// Rate of the time-stamp counter, as testpmd reports it.
    pub tsc_mhz: u32,
    /// Share of the time in which other programs used the forwarding processor.
    pub cpu_wait: Option<f64>,
    /// Commands that the turn ran, testpmd's and the card's.
    pub commands: Vec<String>,
}

impl Sze2Session {
    /// Measures `driver` at `point`.
    pub(super) fn measure(&self, driver: Driver, point: &Sze2Point) -> Result<TurnOutcome, BenchError> {
        let folder = socket_folder()?;
        let card_path = folder.path().join("card");
        let card = match driver {
            Driver::Szedata2 { .. } => Some((self.start_card(&card_path, point)?, DaemonPart::None)),
            Driver::Null { .. } => None,
        };
        let counter = match point.mode {
            ForwardMode::TxOnly => PortCounter::Sent,
            ForwardMode::RxOnly | ForwardMode::Io => PortCounter::Received,
        };
        let launch = self.launch(driver, point, &card_path);
        let namespace = &Namespace::Current;
        let mut turn = self.installation.start(&[launch], counter, namespace, folder.path(), &self.stop)?;
        turn.daemon = card;
        let commands = turn.commands();
        let sample = turn.measure(self.plan.interval, &self.stop)?;
        turn.first.ask_to_end();
        let (cycles_per_frame, tsc_mhz) =
            turn.first.wait_for_line("print its cycles", &self.stop, parse_cycles)?;
        if sample.frames == 0 {
            return Err(BenchError::Implausible("no frame was counted in the interval".into()));
        }
        let frames_per_s = sample.frames_per_second;
        Ok(TurnOutcome { frames_per_s, cycles_per_frame, tsc_mhz, cpu_wait: sample.cpu_wait, commands })
    }

    /// Starts a card on the first core that receives or sends frames as fast as possible: its other end is wired to a
    /// null port.
    fn start_card(&self, path: &Path, point: &Sze2Point) -> Result<BenchProcess, BenchError> {
        let no_rx = if point.mode == ForwardMode::TxOnly { ",no-rx=1" } else { "" };
        let mut device = OsString::from("sze2:");
        device.push(path);
        device.push(format!("@channels={}", point.queues));
        let command: [OsString; 7] = [
            self.program.clone().into(),
            "--json".into(),
            "fwd".into(),
            format!("null:size={}{no_rx}", point.frame_bytes - FCS_BYTES).into(),
            device,
            "--cpu".into(),
            self.cores.first.to_string().into(),
        ];
        let mut process =
            BenchProcess::start(&Namespace::Current, "the card", &[], &command, &[], EndsBy::Signal)?;
        process
            .wait_for_line("make its card", &self.stop, |line| line.contains("\"ready\"").then_some(()))?;
        Ok(process)
    }

    fn launch(&self, driver: Driver, point: &Sze2Point, card: &Path) -> Launch {
        let bytes = point.frame_bytes - FCS_BYTES;
        let (plugin, device) = match driver {
            Driver::Szedata2 { copy } => {
                let mut device = OsString::from("net_szedata2_0,dev_path=");
                device.push(card);
                device.push(format!(",copy={}", u8::from(copy)));
                (Some(self.plugin.to_owned()), device)
            }
            Driver::Null { copy } => (None, format!("net_null0,size={bytes},copy={}", u8::from(copy)).into()),
        };
        let mut mode = vec![
            format!("--forward-mode={}", point.mode.name()),
            format!("--rxq={}", point.queues),
            format!("--txq={}", point.queues),
            "--port-topology=chained".to_owned(),
            "--record-core-cycles".to_owned(),
        ];
        if point.mode == ForwardMode::TxOnly {
            mode.push(format!("--txpkts={bytes}"));
        }
        Launch {
            role: "sze2",
            cpu: self.cores.second,
            plugin,
            devices: vec![device],
            burst_frames: point.burst_frames,
            mode,
            counted_ports: 1,
        }
    }
}

/// Parses testpmd's output at its end: `CPU cycles/packet=52.31 (total cycles=... ) at 2600 MHz Clock`.
fn parse_cycles(line: &str) -> Option<(f64, u32)> {
    let (_, rest) = line.split_once("CPU cycles/packet=")?;
    let cycles = rest.split_whitespace().next()?.parse().ok()?;
    let (_, rate) = rest.rsplit_once(" at ")?;
    Some((cycles, rate.split_whitespace().next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_cycles_is_understood() {
        let line = "  CPU cycles/packet=189.56 (total cycles=4407930434 / total rxonly packets=23253760) at 2450 MHz Clock";
        assert_eq!(parse_cycles(line), Some((189.56, 2450)));
        assert_eq!(parse_cycles("  RX-packets: 23253760"), None);
        assert_eq!(parse_cycles("CPU cycles/packet=nan"), None);
    }
}
