//! `ringroad bench` and its worker processes.

mod sze2;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ringroad_bench::worker::{self, WorkerOptions};
use ringroad_bench::{BenchPlan, BenchSession, FramePath, RunEvent, StopFlag, chart};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::verb::MainVerb;

/// Measure Ringroad beside its peers, in turn on the same cores
///
/// Paths: null (the cost of the library itself), pipe (program to program, against DPDK's memif and vhost-user pairs),
/// switch (program to switch to program, against testpmd between two vhost-user ports) and veth (sending, receiving and
/// forwarding on virtual network interfaces, against testpmd's AF_XDP and AF_PACKET drivers and tcpdump; needs root,
/// and makes its interfaces in its own network namespaces), gen (the generator, with signatures and without, against
/// testpmd's txonly and flowgen, trafgen and tcpreplay), pcap (a program that sends, receives or forwards over libpcap,
/// with Ringroad's object and without; needs root), netmap (a program written for netmap beside the native one, over a
/// pipe and over a switch), cores (the same on one to four cores, each with a pipe of its own), and send (one frame's
/// send step by step, beside system calls on sockets; needs root). Ratios come first; absolute figures mean something
/// only beside them. Peers need the Debian packages dpdk, dpdk-dev, tcpdump, netsniff-ng and tcpreplay.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    comparison: Option<OtherComparison>,
    /// Measure only the decisive points, in about a quarter of an hour (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Measure all sizes and bursts, which takes long; an estimate is printed first
    #[arg(long)]
    full: bool,
    /// Measure only these paths
    #[arg(long, value_enum, value_name = "PATH")]
    path: Vec<Path>,
    /// Frame sizes, FCS included, on each path [default: as --quick]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', conflicts_with = "full")]
    #[arg(value_parser = clap::value_parser!(u32).range(64..=1518))]
    size: Vec<u32>,
    /// Bursts: frames handed over at once, on each path [default: as --quick]
    #[arg(long, value_name = "FRAMES", value_delimiter = ',', conflicts_with = "full")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=512))]
    burst: Vec<u32>,
    /// Rounds that count; each measures every contestant once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Write the JSON report to this file as well
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Draw the rates as SVG into this file: by size, by burst, or by the number of cores
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
}

/// Comparison that is not one with peers on a path.
#[derive(Debug, Subcommand)]
enum OtherComparison {
    /// Compare DPDK's drivers over a capture card
    Sze2(sze2::BenchSze2),
}

/// A path through Ringroad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Path {
    Null,
    Pipe,
    Switch,
    Veth,
    /// The part of veth over AF_XDP
    VethXdp,
    /// The part of veth over AF_PACKET
    VethPacket,
    /// Generators over AF_XDP, over AF_PACKET and into a null port
    Gen,
    GenXdp,
    GenPacket,
    GenNull,
    /// A program over libpcap, with Ringroad's object and with the system's library alone
    Pcap,
    /// A program written for netmap, with Ringroad's object, and the native one
    Netmap,
    /// The part of netmap over a pipe
    NetmapPipe,
    /// The part of netmap over a switch
    NetmapSwitch,
    /// Programs written for netmap and native ones, on one to four cores
    Cores,
    /// A frame's send, step by step
    Send,
}

impl MainVerb for BenchArgs {
    const EXAMPLES: &str = "\
ringroad bench
ringroad bench --path pipe --json
ringroad bench --path netmap-pipe --burst 1,2,4,8,16,32,64,128,256 --chart bursts.svg";

    fn run(&self, _: &Global, output: &Output) -> Result<(), Failure> {
        if let Some(OtherComparison::Sze2(sze2)) = &self.comparison {
            return sze2.run(output);
        }
        let paths: Vec<_> = self.path.iter().filter_map(ValueEnum::to_possible_value).collect();
        let plan = if self.full { BenchPlan::full() } else { BenchPlan::quick() };
        let is_wanted = |path: FramePath| paths.iter().any(|wanted| path.is_in(wanted.get_name()));
        let mut plan = plan.only(|path| paths.is_empty() || is_wanted(path));
        if !self.size.is_empty() || !self.burst.is_empty() {
            plan = plan.at(&self.size, &self.burst);
        }
        if let Some(rounds) = self.rounds {
            plan.rounds = rounds;
        }
        let stop = stop_by_signal()?;
        let program = std::env::current_exe()
            .map_err(|error| Failure::new(format!("finding this program: {error}"), ""))?;
        let session = BenchSession::prepare(plan, Some(&program), &stop)
            .map_err(|error| Failure::new(error.to_string(), ""))?;
        output.note(&format!(
            "{} points of {} rounds: about {} s",
            session.plan().points.len(),
            session.plan().rounds,
            session.estimate().as_secs()
        ));
        let report = session.run(&mut |progress| {
            if matches!(progress, RunEvent::Point { .. }) || output.is_watched() {
                output.note(&progress.to_string());
            }
        });
        let table = || report.to_table(None);
        show(output, self.report.as_deref(), || report.to_json(), table)?;
        match &self.chart {
            Some(path) => chart::draw(&report, path)
                .map_err(|error| Failure::new(error.to_string(), "choose another --chart")),
            None => Ok(()),
        }
    }
}

/// Returns a flag that is set by SIGINT or SIGTERM.
fn stop_by_signal() -> Result<StopFlag, Failure> {
    let stop = StopFlag::default();
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.shared())
            .map_err(|error| Failure::new(format!("watching for signals: {error}"), ""))?;
    }
    Ok(stop)
}

/// Writes the report to the requested file and to the output.
fn show(
    output: &Output,
    path: Option<&std::path::Path>,
    json: impl Fn() -> serde_json::Result<String>,
    table: impl Fn() -> String,
) -> Result<(), Failure> {
    let json = || json().map_err(|error| Failure::new(format!("writing the report: {error}"), ""));
    if let Some(path) = path {
        std::fs::write(path, json()?).map_err(|error| {
            Failure::new(format!("writing {}: {error}", path.display()), "choose another --report")
        })?;
    }
    output.line(&if output.is_json() { json()? } else { table() })
}

/// Worker process that the benchmark starts
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct BenchWorkerArgs {
    #[command(flatten)]
    options: WorkerOptions,
}

impl MainVerb for BenchWorkerArgs {
    const EXAMPLES: &str = "";

    fn run(&self, _: &Global, _: &Output) -> Result<(), Failure> {
        let input = std::io::BufReader::new(std::io::stdin());
        worker::run(&self.options, input, &mut std::io::stdout())
            .map_err(|error| Failure::new(error.to_string(), ""))
    }
}
