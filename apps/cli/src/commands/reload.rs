//! `ringroad reload`.

use clap::Args;
use ringroad_control::report::ReloadReport;
use ringroad_control::{Reply, Request};

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::verb::{MainVerb, request};

/// Let the daemon read its configuration again
///
/// The daemon also reopens its log file, for programs that rotate log files. The command lists the keys whose changes
/// take effect at the daemon's next start only.
#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {}

impl MainVerb for ReloadArgs {
    const EXAMPLES: &str = "ringroad reload";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let report = request!(global.connect()?, &Request::Reload, Reply::Reloaded(report) => report)?;
        output.result(&report, text)
    }
}

fn text(report: &ReloadReport) -> String {
    let read = match &report.config {
        Some(path) => format!("reloaded {path}"),
        None => "opened the log again; the daemon was started without a configuration file".to_owned(),
    };
    let waiting: String = report.at_next_start.iter().map(|key| format!("\n  {key}")).collect();
    match waiting.is_empty() {
        true => read,
        false => format!("{read}; these keys take effect at the next start of the daemon:{waiting}"),
    }
}
