//! `ringroad bench sze2`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ringroad_bench::sze2::{ForwardMode, QueueLayout, Sze2Plan, Sze2Session, chart};

use super::{show, stop_by_signal};
use crate::failure::Failure;
use crate::output::Output;

/// File name of the driver.
const PLUGIN: &str = "librte_net_szedata2.so";
/// Folders of the driver, relative to the folder of this program: when installed, and when built by `make
/// dpdk-szedata2`.
const PLUGIN_FOLDERS: [&str; 2] = ["../lib/ringroad", "dpdk-szedata2"];

/// Measure DPDK over an SZE2 card in software, beside DPDK's null driver
///
/// Measures as described in the documents of the szedata2 driver: testpmd receives, sends, or does both, with and
/// without the copy between buffer and mbuf. The report has the cycles for each frame in the driver's calls, Mpps,
/// Gbit/s and share of 100G line rate, beside the published figures of the card. The card runs on the first core,
/// testpmd on the others. Needs root and the Debian package dpdk.
#[derive(Debug, Args)]
pub(super) struct BenchSze2 {
    /// Measure all sizes, bursts of 32 and 128, and all published numbers of cores; takes an hour per round
    #[arg(long, conflicts_with_all = ["size", "burst", "queues", "cores"])]
    full: bool,
    /// Receive frames of 64 to 512 bytes in steps of 2, with the driver's copy and without, as section 5.6 of the
    /// thesis; takes twenty minutes per round
    #[arg(long, conflicts_with_all = ["full", "mode", "size", "burst"])]
    multiread: bool,
    /// Forwarding mode of testpmd
    #[arg(long, value_name = "MODE", value_delimiter = ',', value_parser = ForwardMode::ALL.map(ForwardMode::name))]
    mode: Vec<String>,
    /// Frame sizes, FCS included [default: 64,1518]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(64..=1518))]
    size: Vec<u32>,
    /// Burst: frames per call [default: 128]
    #[arg(long, value_name = "FRAMES", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=512))]
    burst: Vec<u32>,
    /// Cores and threads of each, with a queue for each thread: projected where the machine has too few
    #[arg(long, value_name = "CORES", value_delimiter = ',', conflicts_with = "queues", value_parser = parse_layout)]
    cores: Vec<QueueLayout>,
    /// Number of queues of one thread, each on its own channel [default: 1]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=16))]
    queues: Vec<u16>,
    /// Number of turns of each driver at each point
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Length of a turn's measurement, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    /// File of the driver librte_net_szedata2.so [default: the installed or built file]
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// Draw cycles, rates and data rates as SVG into this file
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// Write the JSON report to this file as well
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl BenchSze2 {
    pub(super) fn run(&self, output: &Output) -> Result<(), Failure> {
        let interval = Duration::try_from_secs_f64(self.interval)
            .ok()
            .filter(|interval| (0.01..=60.0).contains(&interval.as_secs_f64()))
            .ok_or_else(|| {
                Failure::usage(format!("--interval {}: choose from 0.01 to 60", self.interval), "")
            })?;
        let mut plan = match (self.full, self.multiread) {
            (true, _) => Sze2Plan::full(),
            (_, true) => Sze2Plan::multiread(),
            _ => Sze2Plan::default(),
        };
        plan.interval = interval;
        plan.repeat = self.repeat;
        if !self.mode.is_empty() {
            let mode = |name: &String| ForwardMode::ALL.into_iter().find(|mode| mode.name() == name);
            plan.modes = self.mode.iter().filter_map(mode).collect();
        }
        if !self.size.is_empty() {
            plan.sizes_bytes.clone_from(&self.size);
        }
        if !self.burst.is_empty() {
            plan.bursts_frames.clone_from(&self.burst);
        }
        if !self.queues.is_empty() {
            plan.layouts = self.queues.iter().map(|&queues| QueueLayout::one_thread(queues)).collect();
        }
        if !self.cores.is_empty() {
            plan.layouts.clone_from(&self.cores);
        }
        let program = std::env::current_exe()
            .map_err(|error| Failure::new(format!("finding this program: {error}"), ""))?;
        let plugin = self.plugin.clone().map_or_else(|| find_plugin(&program), Ok)?;
        let stop = stop_by_signal()?;
        let session = Sze2Session::prepare(plan, &program, &plugin, &stop)
            .map_err(|error| Failure::new(error.to_string(), ""))?;
        let report = session.run(&mut |line| output.note(line));
        show(output, self.report.as_deref(), || report.to_json(), || report.to_table())?;
        match &self.chart {
            Some(path) => chart::draw(&report, path)
                .map_err(|error| Failure::new(error.to_string(), "choose another --chart")),
            None => Ok(()),
        }
    }
}

/// Parses a layout of the documents, as `4C/2T`.
fn parse_layout(text: &str) -> Result<QueueLayout, String> {
    let known = || QueueLayout::PUBLISHED.into_iter();
    let names = || known().map(QueueLayout::name).collect::<Vec<_>>().join(", ");
    known().find(|layout| layout.name() == text).ok_or_else(|| format!("choose from {}", names()))
}

fn find_plugin(program: &Path) -> Result<PathBuf, Failure> {
    let folder = program.parent().unwrap_or(Path::new("/"));
    let folders = PLUGIN_FOLDERS.iter().map(|plugin_folder| folder.join(plugin_folder).join(PLUGIN));
    folders.filter_map(|path| path.canonicalize().ok()).next().ok_or_else(|| {
        let folders = PLUGIN_FOLDERS.map(|plugin_folder| folder.join(plugin_folder).display().to_string());
        Failure::new(
            format!("{PLUGIN} is not in {}", folders.join(" or in ")),
            "make dpdk-szedata2 builds it, --plugin sets another path",
        )
    })
}
