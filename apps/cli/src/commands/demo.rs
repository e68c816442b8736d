//! `ringroad demo`: traffic through a whole switch, from a real capture, with every byte compared.

mod station_program;
mod stations;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use ringroad::slot_flags::NO_LEARN;
use ringroad::{Interest, OpenOptions, Port};
use ringroad_capture::CaptureReader;
use ringroad_control::report::CounterReport;
use ringroad_control::{Connection, Request};
use serde::Serialize;

use crate::commands::demo::stations::{Expectation, StationPlan};
use crate::commands::status::unaccounted;
use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::output::rates::grouped;
use crate::verb::MainVerb;

/// Send a real capture through a switch and compare what arrives, byte by byte
///
/// Starts a daemon of its own, attaches three programs to a switch, and replays the capture into the port of the first.
/// The other two have announced half of the capture's stations each, so the switch knows where every frame belongs. The
/// recording of each program is compared with the capture. The report has the switch's sum of frames in, out and
/// dropped, and the rates.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Ethernet capture with stations that talk to each other [default: a capture of eight stations, part of this
    /// program]
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Duration of the replay, seconds: the capture's own timing is scaled to it
    #[arg(long, value_name = "S", default_value_t = 5)]
    seconds: u64,
    /// Run as one of the programs instead
    #[arg(long, hide = true, value_name = "PORT")]
    station_program: Option<String>,
    /// The file in which that program records
    #[arg(long, hide = true, value_name = "FILE", requires = "station_program")]
    record: Option<PathBuf>,
    /// The stations of that program
    #[arg(long, hide = true, value_name = "MAC")]
    station: Vec<String>,
}

/// Capture of real programs of eight stations, recorded by `scripts/record-demo-capture`.
const SHIPPED_CAPTURE: &[u8] = include_bytes!("../../../../examples/captures/stations.pcap");

#[derive(Debug, Serialize)]
struct DemoReport {
    frames_replayed: u64,
    replay_seconds: f64,
    programs: Vec<Expectation>,
    switch: CounterReport,
    replicated_frames: u64,
    unaccounted_frames: i128,
    speed: Vec<Speed>,
}

#[derive(Debug, Serialize)]
struct Speed {
    path: &'static str,
    frame_bytes: u32,
    frames: u64,
    frames_per_second: f64,
}

impl MainVerb for DemoArgs {
    const EXAMPLES: &str = "ringroad demo --capture capture.pcap";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        if let (Some(port), Some(record)) = (&self.station_program, &self.record) {
            return station_program::run(port, record, &self.station, global);
        }
        let folder = tempfile::Builder::new()
            .prefix("ringroad-demo-")
            .tempdir()
            .map_err(|error| Failure::new(format!("making a folder for the demo: {error}"), "set $TMPDIR"))?;
        let report = self.run_in(folder.path(), output)?;
        output.result(&report, text)?;
        if report.unaccounted_frames != 0 || report.programs.iter().any(|program| !program.identical) {
            return Err(Failure::new("the frames that arrived differ from the capture", "see the table"));
        }
        Ok(())
    }
}

impl DemoArgs {
    fn run_in(&self, folder: &Path, output: &Output) -> Result<DemoReport, Failure> {
        let shipped = folder.join("stations.pcap");
        let capture = match &self.capture {
            Some(capture) => capture,
            None => {
                std::fs::write(&shipped, SHIPPED_CAPTURE).map_err(|error| {
                    Failure::new(format!("writing {}: {error}", shipped.display()), "set $TMPDIR")
                })?;
                &shipped
            }
        };
        let socket = folder.join("demo.sock");
        let global = Global { socket: Some(socket.clone()), ..Global::default() };
        let plan = StationPlan::read(capture)?;
        ringroad::start_daemon(&socket, &["--on-demand"])?;
        let _daemon = DaemonGuard(global.clone());
        let mut programs = Vec::new();
        for letter in ['b', 'c'] {
            let record = folder.join(format!("{letter}.pcap"));
            programs.push((letter, StationProgram::start(letter, record, &plan.of(letter), &global)?));
        }
        let options = OpenOptions { socket: Some(socket), ..OpenOptions::default() };
        let mut source = Port::open_with("vale0:a", &options)?;
        output.note(&format!(
            "capture: {} frames of {} stations; program b has announced {} of them on vale0:b, c {} on vale0:c",
            grouped(plan.frames),
            plan.stations.len(),
            plan.of('b').len(),
            plan.of('c').len()
        ));
        output.note(&format!(
            "replaying {:.0} s of capture into vale0:a in {} s",
            plan.seconds(),
            self.seconds
        ));
        let begin = Instant::now();
        let frames_replayed = replay(&plan, capture, &mut source, Duration::from_secs(self.seconds))?;
        let replay_seconds = begin.elapsed().as_secs_f64();
        let mut compared = Vec::new();
        for (letter, program) in programs {
            compared.push(plan.compare(letter, capture, &program.finish()?)?);
        }
        let status = global.connect()?.status()?;
        let switch = status.switches.into_iter().find(|switch| switch.name == "vale0");
        let switch = switch.ok_or_else(|| Failure::new("the switch is gone", ""))?;
        drop(source);
        output.note("speed: frames of 64 B (with FCS), two seconds each");
        let speed = vec![
            measure(&global, "program to switch to program", "vale1:x", "vale1:y")?,
            measure(&global, "program to program (pipe)", "x{1", "x}1")?,
        ];
        Ok(DemoReport {
            frames_replayed,
            replay_seconds,
            programs: compared,
            replicated_frames: switch.replicated_frames,
            unaccounted_frames: unaccounted(&switch),
            switch: switch.totals,
            speed,
        })
    }
}

/// Sends the capture with its timing scaled to `duration`. The stations are on other ports of the switch, so the frames
/// are marked not to be learned at this port.
fn replay(plan: &StationPlan, capture: &Path, source: &mut Port, duration: Duration) -> Result<u64, Failure> {
    let mut reader = CaptureReader::open(capture)?;
    let scale = duration.as_secs_f64() / plan.seconds().max(1e-9);
    let begin = Instant::now();
    let mut frames = 0;
    while let Some(frame) = reader.next_frame()? {
        let due =
            Duration::from_nanos(((frame.timestamp_ns.saturating_sub(plan.first_ns)) as f64 * scale) as u64);
        while begin.elapsed() < due {
            source.tx().sync()?;
            // Received frames are flooded by the other programs, and are dropped.
            let waiting = source.rx().available();
            source.rx().release(waiting);
            source.wait(Interest::Rx, Some(due.saturating_sub(begin.elapsed())))?;
        }
        while source.tx().available() == 0 {
            source.wait(Interest::Tx, None)?;
        }
        let tx = source.tx();
        let len = tx.buffer(0).write(frame.bytes);
        if len < frame.bytes.len() {
            let most = tx.buffer_bytes();
            return Err(Failure::new(
                format!("the capture has frames longer than {most} bytes"),
                "choose another",
            ));
        }
        tx.set(0, len as u16, NO_LEARN);
        tx.advance(1);
        frames += 1;
    }
    while source.tx().pending() > 0 {
        source.tx().sync()?;
        source.wait(Interest::Tx, Some(Duration::from_millis(10)))?;
    }
    Ok(frames)
}

/// Guard that ends the demo's daemon, however the demo ends.
struct DaemonGuard(Global);

impl Drop for DaemonGuard {
    fn drop(&mut self) {
        if let Ok(mut connection) = Connection::connect(self.0.socket_path()) {
            let _ = connection.request(&Request::Stop);
        }
    }
}

fn own_command(global: &Global) -> Result<Command, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(format!("finding this program: {error}"), ""))?;
    let mut command = Command::new(program);
    command.arg("--socket").arg(global.socket_path()).args(["--json", "--quiet"]);
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    Ok(command)
}

/// One of the demo's programs, in its own process and at its own port.
struct StationProgram {
    child: Child,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
    record: PathBuf,
}

impl StationProgram {
    fn start(letter: char, record: PathBuf, stations: &[String], global: &Global) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("starting program {letter}: {error}"), "");
        let mut command = own_command(global)?;
        command.args(["demo", "--station-program", &format!("vale0:{letter}"), "--record"]).arg(&record);
        for station in stations {
            command.args(["--station", station]);
        }
        let mut child = command.stdin(Stdio::piped()).spawn().map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new(format!("program {letter} has no pipes"), ""));
        };
        let mut lines = BufReader::new(output);
        let mut ready = String::new();
        lines.read_line(&mut ready).map_err(failed)?;
        if !ready.starts_with("ready") {
            return Err(Failure::new(format!("program {letter} did not attach"), "see its message above"));
        }
        Ok(Self { child, input, lines, record })
    }

    /// Makes the program receive the remaining frames and end. Returns its recording.
    fn finish(mut self) -> Result<PathBuf, Failure> {
        let _ = self.input.write_all(b"finish\n");
        drop(self.input);
        drop(self.lines);
        let status = self.child.wait().map_err(|error| Failure::new(format!("a program: {error}"), ""))?;
        if status.success() {
            Ok(self.record)
        } else {
            Err(Failure::new("a program failed", "see its message above"))
        }
    }
}

/// Measures a generator at one port and a receiver at the other, for two seconds.
fn measure(global: &Global, path: &'static str, from: &str, to: &str) -> Result<Speed, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("measuring: {error}"), "");
    let mut receiver = own_command(global)?.args(["recv", to, "--idle-exit", "1"]).spawn().map_err(failed)?;
    let Some(output) = receiver.stdout.take() else { return Err(Failure::new("measuring: no output", "")) };
    let mut lines = BufReader::new(output).lines();
    // The receiver's first line reports that it is attached.
    lines.next().transpose().map_err(failed)?;
    let mut generator = own_command(global)?
        .args(["gen", from, "--duration", "2"])
        .stdout(Stdio::null())
        .spawn()
        .map_err(failed)?;
    generator.wait().map_err(failed)?;
    let last = lines.last().transpose().map_err(failed)?.unwrap_or_default();
    receiver.wait().map_err(failed)?;
    let summary: serde_json::Value = serde_json::from_str(&last)
        .map_err(|error| Failure::new(format!("measuring: the receiver wrote {last:?}: {error}"), ""))?;
    let frames = summary.get("frames").and_then(serde_json::Value::as_u64).unwrap_or(0);
    Ok(Speed { path, frame_bytes: 64, frames, frames_per_second: frames as f64 / 2.0 })
}

fn text(report: &DemoReport) -> String {
    let mut lines = vec![format!(
        "replayed {} frames in {:.1} s ({:.0} frames/s)",
        grouped(report.frames_replayed),
        report.replay_seconds,
        report.frames_replayed as f64 / report.replay_seconds
    )];
    for program in &report.programs {
        lines.push(format!(
            "program {}: {} frames expected ({} for its stations alone, {} to all), {} recorded: {}",
            program.program,
            grouped(program.expected_frames),
            grouped(program.own_frames),
            grouped(program.expected_frames - program.own_frames),
            grouped(program.recorded_frames),
            if program.identical { "identical, byte by byte" } else { "DIFFERENT" }
        ));
    }
    let totals = &report.switch;
    let drops: u64 = totals.drops.values().sum();
    lines.push(format!(
        "conservation: {} received + {} replicated = {} delivered + {} dropped{}",
        grouped(totals.received_frames),
        grouped(report.replicated_frames),
        grouped(totals.delivered_frames),
        grouped(drops),
        if report.unaccounted_frames == 0 { ", exact" } else { ": NOT EXACT" }
    ));
    for (cause, frames) in &totals.drops {
        lines.push(format!("  dropped {cause}: {}", grouped(*frames)));
    }
    for speed in &report.speed {
        lines.push(format!("{}: {:.2} Mpps received", speed.path, speed.frames_per_second / 1e6));
    }
    lines.join("\n")
}
