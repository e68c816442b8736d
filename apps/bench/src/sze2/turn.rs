//! Turn of one driver at one point: starts testpmd, counts its frames, ends it, and reads its cycles.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use ringroad_netdev::Namespace;
use serde::Serialize;

use super::plan::{ForwardMode, Sze2Point};
use super::{Driver, TurnEnvironment};
use crate::error::BenchError;
use crate::peers::testpmd::{Launch, Testpmd};
use crate::plan::FCS_BYTES;
use crate::process::{BenchProcess, EndsBy, command_line, cpu_wait_share};
use crate::sockets::socket_folder;

/// Time limit for the card to appear, for frames to begin to flow, or for testpmd to end.
const LIMIT: Duration = Duration::from_secs(60);
/// Time between polls of a counter until it begins to increase; there is no event for that.
const CHECK: Duration = Duration::from_millis(5);
/// Time between the first frame and the measurement.
const SETTLE: Duration = Duration::from_millis(200);

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

/// Measures `driver` at `point`.
pub(super) fn measure(
    driver: Driver,
    point: &Sze2Point,
    interval: Duration,
    ground: &TurnEnvironment<'_>,
) -> Result<TurnOutcome, BenchError> {
    let _pages = ground.installation.lend_memory()?;
    let folder = socket_folder()?;
    let card = folder.path().join("card");
    let mut commands = Vec::new();
    let _card = match driver {
        Driver::Szedata2 { .. } => {
            let (process, command) = start_card(&card, point, ground)?;
            commands.push(command);
            Some(process)
        }
        Driver::Null { .. } => None,
    };
    let launch = launch(driver, point, &card, ground);
    let (mut testpmd, command) =
        Testpmd::start(ground.installation, &Namespace::Current, &launch, folder.path())?;
    commands.push(command);
    let count = |testpmd: &mut Testpmd| match point.mode {
        ForwardMode::TxOnly => testpmd.sent(1),
        ForwardMode::RxOnly | ForwardMode::Io => testpmd.received(1),
    };
    let began = Instant::now();
    while count(&mut testpmd)? == 0 {
        if began.elapsed() > LIMIT {
            return Err(testpmd.process.not_ready("count a frame", LIMIT));
        }
        ground.stop.pass(CHECK)?;
    }
    ground.stop.pass(SETTLE)?;
    let times_before = vec![testpmd.process.thread_times()];
    let (began, before) = (Instant::now(), count(&mut testpmd)?);
    ground.stop.pass(interval)?;
    let (frames, elapsed) = (count(&mut testpmd)?.saturating_sub(before), began.elapsed());
    let cpu_wait = cpu_wait_share(&times_before, &[testpmd.process.thread_times()], elapsed);
    testpmd.process.ask_to_end();
    let (cycles_per_frame, tsc_mhz) =
        testpmd.process.wait_for_line("print its cycles", LIMIT, ground.stop, parse_cycles)?;
    if frames == 0 {
        return Err(BenchError::Implausible("no frame was counted in the interval".into()));
    }
    let frames_per_s = frames as f64 / elapsed.as_secs_f64();
    Ok(TurnOutcome { frames_per_s, cycles_per_frame, tsc_mhz, cpu_wait, commands })
}

/// Starts a card on the first core that receives or sends frames as fast as possible: its other end is wired to a null
/// port.
fn start_card(
    path: &Path,
    point: &Sze2Point,
    ground: &TurnEnvironment<'_>,
) -> Result<(BenchProcess, String), BenchError> {
    let no_rx = if point.mode == ForwardMode::TxOnly { ",no-rx=1" } else { "" };
    let mut device = OsString::from("sze2:");
    device.push(path);
    device.push(format!("@channels={}", point.queues));
    let arguments: Vec<OsString> = vec![
        "--json".into(),
        "fwd".into(),
        format!("null:size={}{no_rx}", point.frame_bytes - FCS_BYTES).into(),
        device,
        "--cpu".into(),
        ground.cores.first.to_string().into(),
    ];
    let program = ground.program.as_os_str();
    let mut process =
        BenchProcess::start(&Namespace::Current, "the card", program, &arguments, &[], EndsBy::Signal)?;
    process.wait_for_line("make its card", LIMIT, ground.stop, |line| {
        line.contains("\"ready\"").then_some(())
    })?;
    Ok((process, command_line(program, &arguments)))
}

fn launch(driver: Driver, point: &Sze2Point, card: &Path, ground: &TurnEnvironment<'_>) -> Launch {
    let bytes = point.frame_bytes - FCS_BYTES;
    let (plugin, device) = match driver {
        Driver::Szedata2 { copy } => {
            let mut device = OsString::from("net_szedata2_0,dev_path=");
            device.push(card);
            device.push(format!(",copy={}", u8::from(copy)));
            (Some(ground.plugin.to_owned()), device)
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
        cpu: ground.cores.second,
        plugin,
        devices: vec![device],
        burst_frames: point.burst_frames,
        mode,
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
