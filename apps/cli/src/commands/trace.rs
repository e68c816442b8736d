//! `ringroad trace`.

mod words;

use std::time::{Duration, Instant};

use clap::Args;
use ringroad_control::report::TracedFrameReport;
use ringroad_control::{Reply, Request};

use crate::failure::Failure;
use crate::number_parsers::seconds;
use crate::options::{Global, switch_name};
use crate::output::Output;
use crate::run::SignalFlag;
use crate::verb::{MainVerb, request};

/// Time between two requests to the daemon.
const INTERVAL: Duration = Duration::from_millis(50);

/// Show what happens to the next frames of a switch, step by step
///
/// For each frame it shows the port that received the frame, the headers, the entry of the source address, the ports
/// that the switch sent the frame to and why, and the outcome at each port. It ends after --count frames, after
/// --duration, or with Ctrl-C. The datapath is slower meanwhile. Only one trace can run at a time.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Name of the switch, such as vale0
    #[arg(value_name = "SWITCH", value_parser = switch_name)]
    switch: String,
    /// Trace only frames received by this port of the switch
    #[arg(long, value_name = "PORT")]
    from: Option<String>,
    /// Number of frames
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=4096))]
    count: u32,
    /// Show only frames that were dropped somewhere
    #[arg(long)]
    drops: bool,
    /// End after this time, seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    duration: Option<Duration>,
}

impl MainVerb for TraceArgs {
    const EXAMPLES: &str = "\
ringroad trace vale0
# Where frames of one port are dropped
ringroad trace vale0 --from a --count 4096 --drops";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let stop = SignalFlag::on_signals()?;
        let mut daemon = global.connect()?;
        let from = self.from.as_ref().map(|port| port_of(&self.switch, port));
        let request = Request::StartTrace { switch: self.switch.clone(), from, count: self.count };
        request!(daemon, &request, Reply::Done => ())?;
        let begin = Instant::now();
        // Other workers may deliver after the last frame, so the trace is read once more.
        let mut is_last = false;
        let mut shown = 0;
        let report = loop {
            let report = request!(daemon, &Request::Traced, Reply::Traced(report) => report)?;
            if !output.is_json() {
                let until = report.frames.len().saturating_sub(usize::from(!is_last));
                for frame in report.frames.get(shown..until).unwrap_or(&[]) {
                    self.show(output, frame)?;
                }
                shown = shown.max(until);
            }
            if is_last {
                break report;
            }
            is_last = report.left == 0
                || stop.is_set()
                || self.duration.is_some_and(|duration| begin.elapsed() >= duration);
            std::thread::sleep(INTERVAL);
        };
        daemon.request(&Request::StopTrace)?;
        let frames: Vec<_> = report.frames.iter().filter(|frame| self.is_meant(frame)).collect();
        if output.is_json() {
            return output.result(&frames, |_| String::new());
        }
        if report.frames.is_empty() {
            output.note("no frame arrived");
        } else if frames.is_empty() {
            output.note(&format!("none of {} frames was dropped", report.frames.len()));
        }
        Ok(())
    }
}

/// Returns the name of a port without that of its switch, with which it can be given.
fn port_of(switch: &str, port: &str) -> String {
    port.strip_prefix(switch).and_then(|rest| rest.strip_prefix(':')).unwrap_or(port).to_owned()
}

impl TraceArgs {
    fn is_meant(&self, frame: &TracedFrameReport) -> bool {
        !self.drops
            || frame.dropped.is_some()
            || frame.deliveries.iter().any(|delivery| delivery.dropped.is_some())
    }

    fn show(&self, output: &Output, frame: &TracedFrameReport) -> Result<(), Failure> {
        match self.is_meant(frame) {
            true => output.result(frame, words::text),
            false => Ok(()),
        }
    }
}
