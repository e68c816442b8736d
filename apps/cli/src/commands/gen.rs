//! `ringroad gen`: a generator, and meters at the receiving ports.

mod flooding;
mod live;
mod losses;
pub(super) mod summary;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::UnknownArgumentValueParser;
use ringroad::{OpenOptions, PortInfo};
use ringroad_generator::{
    KeptPorts, Load, PlannedPort, SessionReport, SessionResult, TestPlan, TestSession, announce_receivers,
};
use ringroad_traffic::pacing::{DEFAULT_CATCH_UP_FRAMES, LoadShape, RateSpec};
use serde::Serialize;

use self::live::LiveTable;
use self::losses::{DropWatch, Losses};
use self::summary::text;
use crate::failure::Failure;
use crate::frame_options::{FrameOptions, with_template};
use crate::number_parsers::{count, seconds_or_none};
use crate::options::{Global, PortSizeArgs, RunLimits, refuse_one_port_twice};
use crate::output::{Output, json};
use crate::run::{SignalFlag, as_ns};
use crate::session_arguments::SessionArguments;
use crate::text_files::read_text;
use crate::verb::MainVerb;

/// Longest wait between two checks of the stop flag.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Time between two drawings of the live table.
const LIVE_INTERVAL_NS: u64 = 1_000_000_000;
/// Default time limit for the last frames to arrive, s.
const DRAIN_S: f64 = 0.5;

/// Send frames at full speed or at a given rate, and measure what arrives
///
/// Frames carry right checksums and, in their last bytes, a signature: stream, number, time, and the signature's
/// checksum. With --to the command receives too, and reports loss, duplicates, reordering, damage, latency and jitter;
/// `ringroad recv --check` is a separate receiver. The ports of --to announce their addresses first, so that switches
/// need not flood. A frame size includes the 4 bytes of FCS, as in standards, although ports of memory carry no FCS: a
/// frame of 64 bytes takes 60 in its slot. Rates in bit/s count L1 bits, as line rate does: frame with FCS, preamble
/// and gap, 84 bytes for a frame of 64; write L2 for frames with FCS alone.
#[derive(Debug, Args)]
pub(crate) struct GenArgs {
    /// Port to send from
    #[arg(value_name = "PORT", required_unless_present = "plan")]
    port: Option<String>,
    /// Port where the frames should arrive; may be given several times
    #[arg(long, value_name = "PORT")]
    to: Vec<String>,
    /// Send also from each port of --to back to PORT, with the addresses exchanged
    #[arg(long, requires = "to")]
    bidirectional: bool,
    /// Run the plan in this TOML file: any number of ports and loads; `ringroad gen --show-plan` writes one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["port", "to", "bidirectional", "show_plan"])]
    plan: Option<PathBuf>,
    /// Print the plan that the arguments make, as TOML, and send nothing
    #[arg(long)]
    show_plan: bool,
    /// Offered rate of each direction: max, 1Mpps, 10Gbit, 1GbitL2, 50%@10G
    #[arg(long, default_value = "max", help_heading = "Load")]
    rate: RateSpec,
    /// Shape of the load in time: constant, poisson[:SEED], bursts:FRAMES[:GAP], ramp:RATE:TIME
    #[arg(long, default_value = "constant", help_heading = "Load")]
    shape: LoadShape,
    /// End after this many frames, such as 1000000 or 1M
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Load")]
    count: Option<u64>,
    // The name of this option in plans and in scripts.
    #[arg(long = "frames", hide = true, value_parser = UnknownArgumentValueParser::suggest_arg("--count"))]
    _frames: Option<String>,
    /// Maximum number of frames that a late sender catches up; further frames are skipped
    #[arg(long, value_name = "N", default_value_t = DEFAULT_CATCH_UP_FRAMES, help_heading = "Load")]
    catch_up: u32,
    /// Send no learning frames from the ports of --to first
    #[arg(long, help_heading = "Load")]
    no_learning: bool,
    /// Send even if a switch floods the frames to network interfaces
    #[arg(long, help_heading = "Load")]
    flood: bool,
    /// Time limit for the last frames to arrive, s
    #[arg(long, value_name = "S", default_value_t = DRAIN_S, value_parser = seconds_or_none, help_heading = "Load")]
    drain: f64,
    #[command(flatten)]
    frames: FrameOptions,
    #[command(flatten)]
    session: SessionArguments,
    #[command(flatten)]
    sizes: PortSizeArgs,
    #[command(flatten)]
    limits: RunLimits,
}

/// Results, and the reasons for lost frames, if any were lost.
#[derive(Serialize)]
struct Results {
    #[serde(flatten)]
    report: SessionReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    losses: Option<Losses>,
}

impl MainVerb for GenArgs {
    const EXAMPLES: &str = "\
# Loss, latency and jitter of a million flows between two ports
ringroad gen vale0:a --to vale0:b --rate 100kpps --size imix --flows 1M --duration 5
# Both ways over two interfaces, at half of their rate
ringroad gen eth0 --to eth1 --bidirectional --rate 50%@10G --size imix";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let plan = match &self.plan {
            Some(file) => read_plan(file)?,
            None => self.planned()?,
        };
        if self.show_plan {
            let text = toml::to_string(&plan)
                .map_err(|error| Failure::new(format!("writing the plan: {error}"), ""))?;
            return output.line(text.trim_end());
        }
        let options = self.session.options(&self.limits.cpu);
        let stop = SignalFlag::on_signals()?;
        let is_paced = plan.loads.iter().all(|load| load.rate != RateSpec::Max);
        // Full speed is faster with the default rings, which stay in the caches.
        let sizes = if is_paced { &self.sizes.deep() } else { &self.sizes };
        let ports = OpenOptions { reconnect: self.limits.reconnect, ..sizes.open_options(global) };
        let mut kept = match self.no_learning {
            true => KeptPorts::default(),
            false => announce_receivers(&plan, &ports, &options, &|| stop.is_set())?,
        };
        if !self.flood {
            flooding::refuse(global, &plan)?;
        }
        let mut session = TestSession::open_keeping(plan, &mut kept, &ports, &options)?;
        let infos: Vec<&PortInfo> = session.ports().iter().collect();
        output.ready(&infos)?;
        let drop_watch = DropWatch::start(global);
        session.start();
        let told = self.watch(&mut session, &stop, output);
        // Without a port that should receive frames, no wait is needed.
        let expects = session.plan().loads.iter().any(|load| !load.to.is_empty());
        let drain = if expects { Duration::from_secs_f64(self.drain) } else { Duration::ZERO };
        // The ports stay open until their counters are read.
        let SessionResult { report, ports, outcome } = session.end(drain);
        let losses = drop_watch.map_or(Ok(None), |watch| watch.end(&report)).unwrap_or_else(|error| {
            output.note(&format!("why frames were lost is not known: {error}"));
            None
        });
        drop(ports);
        let results = Results { report, losses };
        output.result(&results, |results| {
            let losses = results.losses.as_ref().map(|losses| format!("\n{}", losses.text()));
            text(&results.report) + losses.as_deref().unwrap_or_default()
        })?;
        told.and(outcome.map_err(Failure::from))?;
        results.losses.as_ref().map_or(Ok(()), Losses::refuse_too_long)
    }
}

impl GenArgs {
    /// Waits until all frames are sent, and reports progress meanwhile.
    fn watch(&self, session: &mut TestSession, stop: &SignalFlag, output: &Output) -> Result<(), Failure> {
        let mut live = (self.limits.interval.is_none() && output.is_watched()).then(LiveTable::default);
        let limit_ns = self.limits.duration.map_or(u64::MAX, as_ns);
        let interval_ns = match self.limits.interval {
            Some(interval) => as_ns(interval),
            None if live.is_some() => LIVE_INTERVAL_NS,
            None => u64::MAX,
        };
        let mut next_ns = interval_ns;
        while !session.wait_sent(CHECK_INTERVAL) && !stop.is_set() {
            let now_ns = session.elapsed_ns();
            // The duration is checked here since a plan's loads may have no end.
            if now_ns >= limit_ns {
                break;
            }
            if now_ns < next_ns {
                continue;
            }
            next_ns = next_ns.saturating_add(interval_ns);
            match &mut live {
                Some(live) => live.draw(session.interval()),
                None => tell(session, output)?,
            }
        }
        if let Some(live) = &mut live {
            live.clear();
        }
        // Reports the rest of the last interval.
        if self.limits.interval.is_some() { tell(session, output) } else { Ok(()) }
    }

    /// Returns the plan for the arguments.
    fn planned(&self) -> Result<TestPlan, Failure> {
        let Some(port) = self.port.as_deref().map(|port| self.sizes.device(port)) else {
            return Err(Failure::usage("no port is given", "name the port to send from"));
        };
        let to: Vec<String> = self.to.iter().map(|port| self.sizes.device(port)).collect();
        refuse_one_port_twice(
            std::iter::once(&port).chain(&to).map(String::as_str),
            "name the port that sends, and with each --to another one where the frames should arrive",
        )?;
        let streams = self.frames.streams()?;
        let receivers: Vec<&str> = to.iter().map(String::as_str).collect();
        let load = |from: &str, to: &[&str], streams| Load {
            rate: self.rate,
            shape: self.shape,
            frames: self.count,
            duration: self.limits.duration.map(|duration| duration.as_secs_f64()),
            catch_up_frames: self.catch_up,
            ..Load::new(from, to, streams)
        };
        let mut loads = vec![load(&port, &receivers, streams.clone())];
        if self.bidirectional {
            let back: Vec<_> =
                streams.iter().map(ringroad_traffic::definition::StreamDefinition::reversed).collect();
            loads.extend(receivers.iter().map(|from| load(from, &[&port], back.clone())));
        }
        let ports = std::iter::once(&port).chain(&to).map(|name| PlannedPort::new(name)).collect();
        Ok(TestPlan { ports, loads })
    }
}

/// Prints one interval in a line.
fn tell(session: &mut TestSession, output: &Output) -> Result<(), Failure> {
    let interval = session.interval();
    if output.is_json() {
        return output.line(&json::line(&json::IntervalLine { interval })?);
    }
    output.note(&summary::interval(interval));
    Ok(())
}

fn read_plan(file: &Path) -> Result<TestPlan, Failure> {
    let advice = "see docs/generator.md for how plans are written";
    let mut plan = TestPlan::from_toml(&read_text(file)?)
        .map_err(|error| Failure::new(format!("{}: {error}", file.display()), advice))?;
    for load in &mut plan.loads {
        for stream in &mut load.streams {
            *stream = with_template(std::mem::take(stream))?;
        }
    }
    Ok(plan)
}
