//! `ringroad trial`: one trial of RFC 2544.

use clap::Args;
use ringroad_generator::{Load, PlannedPort, TestPlan, TrialPlan, TrialVerdict};
use ringroad_traffic::definition::StreamDefinition;
use ringroad_traffic::pacing::{DEFAULT_CATCH_UP_FRAMES, LoadShape, RateSpec};

use crate::failure::{Failure, VERDICT_FAIL, VERDICT_INVALID};
use crate::frame_options::FrameOptions;
use crate::number_parsers::seconds_or_none;
use crate::options::{Global, PortSizeArgs, refuse_one_port_twice};
use crate::output::{Output, json};
use crate::run::SignalFlag;
use crate::session_arguments::SessionArguments;
use crate::verb::MainVerb;

/// Run one trial of RFC 2544 and print its result as JSON
///
/// Steps: learning frames from the receiving side, a wait, the load for its duration, a wait for the last frames, and
/// the verdict: pass, fail, or invalid if the generator could not carry the load.
///
/// Exit status: 0 pass, 3 fail, 4 invalid; 1 if the trial could not be run.
#[derive(Debug, Args)]
pub(crate) struct TrialArgs {
    /// Port to send from
    #[arg(value_name = "FROM")]
    from: String,
    /// Port where the frames should arrive
    #[arg(value_name = "TO")]
    to: String,
    /// Offered rate of each direction: max, 1Mpps, 10Gbit, 1GbitL2, 50%@10G
    #[arg(long, default_value = "max")]
    rate: RateSpec,
    /// Spacing of frames in time: constant, poisson[:SEED], bursts:FRAMES[:GAP], ramp:RATE:TIME
    #[arg(long, default_value = "constant")]
    shape: LoadShape,
    /// Duration of the load, s
    #[arg(long, value_name = "S", default_value_t = 60.0, value_parser = above_nothing)]
    duration: f64,
    /// Send in both directions at once
    #[arg(long)]
    bidirectional: bool,
    /// Greatest acceptable loss, in percent of the frames
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    acceptable_loss: f64,
    /// Greatest shortfall of the generated load, in percent, before the trial is invalid
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1, value_parser = percent)]
    tolerance: f64,
    /// Send no learning frames
    #[arg(long)]
    no_learning: bool,
    /// Wait between the learning frames and the load, s
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds_or_none)]
    settle: f64,
    /// Wait for the last frames, s
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds_or_none)]
    drain: f64,
    /// Maximum number of frames that a late sender catches up
    #[arg(long, value_name = "N", default_value_t = DEFAULT_CATCH_UP_FRAMES)]
    catch_up: u32,
    #[command(flatten)]
    frames: FrameOptions,
    #[command(flatten)]
    session: SessionArguments,
    /// CPUs for the threads, one thread for each queue of each port; in turn
    #[arg(long, value_name = "N", value_delimiter = ',')]
    cpu: Vec<usize>,
    #[command(flatten)]
    sizes: PortSizeArgs,
}

impl MainVerb for TrialArgs {
    const EXAMPLES: &str = "ringroad trial vale0:a vale0:b --rate 500kpps --size 64 --duration 10";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let (from, to) = (self.sizes.device(&self.from), self.sizes.device(&self.to));
        refuse_one_port_twice(
            [&*from, &*to],
            "name the port that sends, and another one where the frames should arrive",
        )?;
        let streams = self.frames.streams()?;
        let load = |from: &str, to: &str, streams| Load {
            rate: self.rate,
            shape: self.shape,
            catch_up_frames: self.catch_up,
            ..Load::new(from, &[to], streams)
        };
        let mut loads = vec![load(&from, &to, streams.clone())];
        if self.bidirectional {
            loads.push(load(&to, &from, streams.iter().map(StreamDefinition::reversed).collect()));
        }
        let ports = [&from, &to].map(|name| PlannedPort::new(name)).to_vec();
        let trial = TrialPlan {
            learning: !self.no_learning,
            settle_s: self.settle,
            drain_s: self.drain,
            acceptable_loss_ratio: self.acceptable_loss / 100.0,
            tolerance_ratio: self.tolerance / 100.0,
            ..TrialPlan::new(TestPlan { ports, loads }, self.duration)
        };
        let options = self.session.options(&self.cpu);
        let stop = SignalFlag::on_signals()?;
        let report = trial.run(&self.sizes.open_options(global), &options, &|| stop.is_set())?;
        output.line(&json::line(&report)?)?;
        match report.verdict {
            TrialVerdict::Pass => Ok(()),
            TrialVerdict::Fail => Err(Failure::status(VERDICT_FAIL)),
            TrialVerdict::Invalid => Err(Failure::status(VERDICT_INVALID)),
        }
    }
}

fn above_nothing(text: &str) -> Result<f64, String> {
    seconds_or_none(text).and_then(|seconds| {
        if seconds > 0.0 { Ok(seconds) } else { Err("give seconds above 0, like 60 or 0.5".to_owned()) }
    })
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').parse().ok();
    number.filter(|percent| (0.0..=100.0).contains(percent)).ok_or_else(|| "give 0 to 100".to_owned())
}
