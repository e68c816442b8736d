//! `ringroad upgrade`.

use std::time::Duration;

use clap::Args;
use ringroad_control::report::UpgradeReport;
use ringroad_control::{Reply, Request};

use crate::failure::{Failure, VERDICT_FAIL};
use crate::options::Global;
use crate::output::Output;
use crate::verb::{MainVerb, request};

/// Replace the running daemon by the installed program
///
/// A new process continues where the running process stops: programs keep their ports and connections, containers and
/// guests their links, switches their learned addresses and counters. The report shows how long frames waited. Ports
/// that the report lists as opened anew were closed for that time. If the new process cannot take over, or a port would
/// be lost, the running process continues, and the command fails. The exit status is 3 if the new process runs and the
/// report lists missing ports, or a problem. The new process reads the configuration: this is the way to change keys
/// that a reload cannot change.
#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    /// Upgrade even if ports are lost, such as those of netmap programs
    #[arg(long)]
    anyway: bool,
}

impl MainVerb for UpgradeArgs {
    const EXAMPLES: &str = "\
# After `apt upgrade`, or `make install`:
ringroad upgrade";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let request = Request::Upgrade { anyway: self.anyway };
        let report = request!(global.connect()?, &request, Reply::Upgraded(report) => report)?;
        output.result(&report, text)?;
        let is_whole = report.waiting.is_empty() && report.lost.is_empty() && report.problem.is_empty();
        if is_whole { Ok(()) } else { Err(Failure::status(VERDICT_FAIL)) }
    }
}

fn text(report: &UpgradeReport) -> String {
    let UpgradeReport { from, to, pid, pause_ns, kept, reopened, waiting, lost, problem } = report;
    let pause = Duration::from_nanos(*pause_ns);
    let mut text =
        format!("ringroadd {from} was replaced by {to} (pid {pid}); {kept} ports waited for {pause:.1?}");
    for (what, names) in [("opened anew", reopened), ("lost", lost)] {
        if !names.is_empty() {
            text += &format!("\n{what}: {}", names.join(", "));
        }
    }
    for (port, reason) in waiting {
        text += &format!("\nnot opened yet, and tried again every second: {port}: {reason}");
    }
    if !problem.is_empty() {
        text += &format!("\nproblem: {problem}");
    }
    text
}
