//! Turn of one driver at one point: starts testpmd, counts its frames and the cycles of its calls, and ends it.

use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

use ringroad_netdev::Namespace;
use ringroad_sze2::client::{CardClient, CardError};
use ringroad_sze2::message::CardStatus;
use serde::Serialize;

use super::plan::{ForwardMode, Sze2Point};
use super::{Driver, Sze2Session};
use crate::error::BenchError;
use crate::peers::telemetry::{CallCounts, PortCounter};
use crate::peers::testpmd::{Installation, Launch};
use crate::plan::FCS_BYTES;
use crate::process::{BenchProcess, EndsBy};
use crate::sockets::socket_folder;
use crate::turn::DaemonPart;

/// Role of testpmd in a turn.
const ROLE: &str = "sze2";

/// Frames per second that the card counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CardRates {
    /// Frames that reached the card from its network.
    pub offered: f64,
    /// Frames of these that it could not put into a channel.
    pub lost: f64,
    /// Frames that it sent to its network.
    pub sent: f64,
}

impl CardRates {
    fn between(start: &(Instant, CardStatus), end: &(Instant, CardStatus)) -> Self {
        let seconds = (end.0 - start.0).as_secs_f64();
        let rate =
            |count: fn(&CardStatus) -> u64| count(&end.1).saturating_sub(count(&start.1)) as f64 / seconds;
        Self {
            offered: rate(|card| card.ibuf_counters.total()),
            lost: rate(|card| card.ibuf_counters.total() - card.ibuf_counters.frames),
            sent: rate(|card| card.obuf_counters.frames),
        }
    }
}

/// Result of a turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TurnOutcome {
    /// Frames per second: received, or sent if no frames are received.
    pub frames_per_s: f64,
    /// Ticks of the time-stamp counter per frame in the driver's receive and transmit calls, whichever the mode has:
    /// medians over the frames, of receive calls that returned frames and of transmit calls that took all.
    pub cycles_per_frame: f64,
    /// Mean number of frames that a receive call returned, or a transmit call took.
    pub frames_per_call: f64,
    /// Share of the frames offered to the transmit call that it refused, because the channel was full.
    pub refused_percent: Option<f64>,
    /// Ticks per frame of testpmd's loop, by its own count: with its work on mbufs and headers, and with calls that
    /// refused frames.
    pub loop_cycles_per_frame: Option<f64>,
    /// Rate of the time-stamp counter, as testpmd reports it.
    pub tsc_mhz: Option<u32>,
    /// Share of the time in which other programs used the forwarding processor.
    pub cpu_wait: Option<f64>,
    /// The card's own counts.
    pub card: Option<CardRates>,
    /// Commands that the turn ran, testpmd's and the card's.
    pub commands: Vec<String>,
}

impl Sze2Session {
    /// Measures `driver` at `point`, with a forwarding thread on each of `cpus`.
    pub(super) fn measure(
        &self,
        driver: Driver,
        point: &Sze2Point,
        cpus: &[usize],
    ) -> Result<TurnOutcome, BenchError> {
        if driver == Driver::Memcpy {
            return self.measure_copy(point);
        }
        let folder = socket_folder()?;
        let card_path = folder.path().join("card");
        let card = match driver {
            Driver::Szedata2 { .. } => Some((self.start_card(&card_path, point)?, DaemonPart::None)),
            Driver::Null { .. } | Driver::Memcpy => None,
        };
        let client = card.is_some().then(|| CardClient::open(&card_path, "ringroad bench")).transpose()?;
        let counter = match point.mode {
            ForwardMode::TxOnly => PortCounter::Sent,
            ForwardMode::RxOnly | ForwardMode::Io => PortCounter::Received,
        };
        let launch = self.launch(driver, point, &card_path, cpus);
        let namespace = &Namespace::Current;
        let mut turn = self.installation.start(&[launch], counter, namespace, folder.path(), &self.stop)?;
        turn.daemon = card;
        let commands = turn.commands();
        let mut telemetry = Installation::telemetry(ROLE, folder.path())?;
        let read_card =
            || client.as_ref().map(|card| Ok::<_, CardError>((Instant::now(), card.status()?))).transpose();
        turn.settle(&self.stop)?;
        let start: (CallCounts, Option<_>) = (telemetry.calls()?, read_card().map_err(BenchError::Card)?);
        let sample = turn.sample(self.plan.interval, &self.stop)?;
        let calls = telemetry.calls()?.since(&start.0);
        let card = start.1.zip(read_card().map_err(BenchError::Card)?);
        turn.first.ask_to_end();
        let (loop_cycles, tsc_mhz) =
            turn.first.wait_for_line("print its cycles", &self.stop, parse_cycles)?;
        if sample.frames == 0 {
            return Err(BenchError::Implausible("no frame was counted in the interval".into()));
        }
        let (cycles_per_frame, frames_per_call) = of_calls(point.mode, &calls).ok_or_else(|| {
            BenchError::Implausible("no call of the driver took a whole burst in the interval".into())
        })?;
        Ok(TurnOutcome {
            frames_per_s: sample.frames_per_second,
            cycles_per_frame,
            frames_per_call,
            refused_percent: (calls.tx_offered > 0)
                .then(|| calls.tx_refused as f64 / calls.tx_offered as f64 * 100.0),
            loop_cycles_per_frame: Some(loop_cycles),
            tsc_mhz: Some(tsc_mhz),
            cpu_wait: sample.cpu_wait,
            card: card.map(|(start, end)| CardRates::between(&start, &end)),
            commands,
        })
    }

    /// Starts a card on the first core that receives or sends frames as fast as possible: a program forwards between
    /// its network side and a null port, so the core copies each frame several times.
    fn start_card(&self, path: &Path, point: &Sze2Point) -> Result<BenchProcess, BenchError> {
        let no_rx = if point.mode == ForwardMode::TxOnly { ",no-rx=1" } else { "" };
        let mut device = OsString::from("sze2:");
        device.push(path);
        device.push(format!("@channels={}", point.layout.queues));
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

    fn launch(&self, driver: Driver, point: &Sze2Point, card: &Path, cpus: &[usize]) -> Launch {
        let bytes = point.frame_bytes - FCS_BYTES;
        let (name, device) = match driver {
            Driver::Szedata2 { copy } => {
                let mut device = OsString::from("net_szedata2_0,dev_path=");
                device.push(card);
                device.push(format!(",copy={}", u8::from(copy)));
                ("net_szedata2_0", device)
            }
            Driver::Null { .. } | Driver::Memcpy => {
                let copy = u8::from(driver == Driver::Null { copy: true });
                ("net_null0", format!("net_null0,size={bytes},copy={copy}").into())
            }
        };
        let queues = point.layout.queues;
        let mut mode = vec![
            format!("--forward-mode={}", point.mode.name()),
            format!("--rxq={queues}"),
            format!("--txq={queues}"),
            "--port-topology=chained".to_owned(),
            "--record-core-cycles".to_owned(),
        ];
        if point.mode == ForwardMode::TxOnly {
            mode.push(format!("--txpkts={bytes}"));
        }
        Launch {
            role: ROLE,
            cpus: cpus.to_vec(),
            plugin: Some(self.plugin.clone()),
            devices: vec![device, format!("ringroad_call_timer,port={name}").into()],
            burst_frames: point.burst_frames,
            mode,
            counted_ports: 1,
        }
    }
}

/// Returns the cycles for a frame and the frames of a call; `None` if no call is counted.
fn of_calls(mode: ForwardMode, calls: &CallCounts) -> Option<(f64, f64)> {
    let (receives, sends) = (mode != ForwardMode::TxOnly, mode != ForwardMode::RxOnly);
    if (receives && calls.rx_frames == 0) || (sends && calls.tx_frames == 0) {
        return None;
    }
    let half_cycles =
        if receives { calls.rx_half_cycles } else { 0 } + if sends { calls.tx_half_cycles } else { 0 };
    let (frames, count) =
        if receives { (calls.rx_frames, calls.rx_calls) } else { (calls.tx_frames, calls.tx_calls) };
    Some((half_cycles as f64 / 2.0, frames as f64 / count.max(1) as f64))
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
    fn a_mode_is_charged_with_its_own_calls() {
        let calls = CallCounts {
            rx_calls: 2,
            rx_frames: 256,
            rx_half_cycles: 60,
            tx_calls: 1,
            tx_frames: 128,
            tx_half_cycles: 51,
            ..CallCounts::default()
        };
        assert_eq!(of_calls(ForwardMode::RxOnly, &calls), Some((30.0, 128.0)));
        assert_eq!(of_calls(ForwardMode::TxOnly, &calls), Some((25.5, 128.0)));
        assert_eq!(of_calls(ForwardMode::Io, &calls), Some((55.5, 128.0)));
        let refused = CallCounts { tx_frames: 0, ..calls };
        assert_eq!(of_calls(ForwardMode::Io, &refused), None);
        assert!(of_calls(ForwardMode::RxOnly, &refused).is_some());
    }

    #[test]
    fn the_line_of_cycles_is_understood() {
        let line = "  CPU cycles/packet=189.56 (total cycles=4407930434 / total rxonly packets=23253760) at 2450 MHz Clock";
        assert_eq!(parse_cycles(line), Some((189.56, 2450)));
        assert_eq!(parse_cycles("  RX-packets: 23253760"), None);
        assert_eq!(parse_cycles("CPU cycles/packet=nan"), None);
    }
}
