//! `ringroad config`: the daemon's configuration, shown, checked, compared, applied and saved.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Subcommand};
use ringroad_control::report::{ConfigDifference, ConfigReport, SaveReport};
use ringroad_control::{Reply, Request};
use serde::Serialize;

use crate::failure::Failure;
use crate::options::{Global, switch_port};
use crate::output::Output;
use crate::verb::{MainVerb, request};

/// Show, check, compare, apply or save the daemon's configuration
///
/// See docs/daemon.md.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the configuration in force, with values for keys that are not in the file
    Show,
    /// Check a configuration file; needs no daemon
    Check {
        /// Configuration file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Show how the daemon differs from a configuration
    ///
    /// Exit status: 0 if it does not differ, 1 if it does.
    Diff {
        /// Configuration file [default: the daemon's own file in its present state]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Make a configuration the daemon's: its file gets this content, and is reloaded
    ///
    /// If that fails, file and daemon stay as they are. The command lists the changes, and the keys that wait for the
    /// daemon's next start.
    Apply {
        /// Configuration file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Only show the changes
        #[arg(long)]
        dry_run: bool,
    },
    /// Write ports into the daemon's file as they are now
    ///
    /// Ports that were attached are added, and ports that were detached are removed. All else in the file stays as it
    /// is, comments included.
    Save {
        /// Names of the ports [default: all]
        #[arg(value_name = "PORT", value_parser = switch_port)]
        ports: Vec<String>,
    },
}

#[derive(Debug, Serialize)]
struct Checked {
    config: String,
    valid: bool,
}

impl MainVerb for ConfigArgs {
    const EXAMPLES: &str = "\
# Keep what was attached in the daemon's configuration
ringroad config save
# Try a changed configuration, and put it in force
ringroad config apply new.toml --dry-run
ringroad config apply new.toml";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        match &self.verb {
            Verb::Show => {
                let report = request!(global.connect()?, &Request::Config, Reply::Config(report) => report)?;
                output.result(&report, shown)
            }
            Verb::Check { file } => check(file, output),
            Verb::Diff { file } => {
                let toml = file.as_deref().map(read).transpose()?;
                let difference = compare(global, toml)?;
                output.result(&difference, |difference| text(difference, "no difference"))?;
                if difference.is_empty() { Ok(()) } else { Err(Failure::status(1)) }
            }
            Verb::Apply { file, dry_run } => {
                let toml = read(file)?;
                if *dry_run {
                    return output
                        .result(&compare(global, Some(toml))?, |it| text(it, "nothing would change"));
                }
                let request = Request::ApplyConfig { toml };
                let changed = request!(global.connect()?, &request, Reply::ConfigDifference(it) => it)?;
                output.result(&changed, |it| text(it, "nothing has changed"))
            }
            Verb::Save { ports } => output.result(&save(global, ports.clone())?, saved),
        }
    }
}

/// Writes ports into the daemon's file.
pub(super) fn save(global: &Global, ports: Vec<String>) -> Result<SaveReport, Failure> {
    request!(global.connect()?, &Request::Save { ports }, Reply::Saved(report) => report)
}

fn read(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| Failure::new(format!("{}: {error}", file.display()), ""))
}

/// The daemon's program checks the file; no running daemon is needed.
fn check(file: &Path, output: &Output) -> Result<(), Failure> {
    let program = ringroad::daemon_program().ok_or_else(|| {
        Failure::new("ringroadd is not installed", "put it beside ringroad, or name it in RINGROAD_DAEMON")
    })?;
    let checked = Command::new(&program).args(["--check", "--config"]).arg(file).output();
    let checked = checked.map_err(|error| Failure::new(format!("{}: {error}", program.display()), ""))?;
    if !checked.status.success() {
        let said = String::from_utf8_lossy(&checked.stderr);
        return Err(Failure::new(said.trim().trim_start_matches("ringroadd: "), ""));
    }
    let checked = Checked { config: file.display().to_string(), valid: true };
    output.result(&checked, |checked| format!("{} is valid", checked.config))
}

fn compare(global: &Global, toml: Option<String>) -> Result<ConfigDifference, Failure> {
    request!(global.connect()?, &Request::CompareConfig { toml }, Reply::ConfigDifference(it) => it)
}

fn shown(report: &ConfigReport) -> String {
    let from = report.config.as_deref().unwrap_or("no file: all values are defaults");
    format!("# {from}\n{}", report.toml)
}

fn saved(report: &SaveReport) -> String {
    let added = report.added.iter().map(|port| format!("\n  + {port}"));
    let changes: String = added.chain(report.removed.iter().map(|port| format!("\n  - {port}"))).collect();
    let what = if changes.is_empty() { ": nothing to save" } else { "" };
    format!("{}{what}{changes}", report.config)
}

fn text(difference: &ConfigDifference, nothing: &str) -> String {
    if difference.is_empty() {
        return nothing.to_owned();
    }
    let keys = difference.keys.iter().map(|key| {
        let when = if key.at_next_start { " (at the next start)" } else { "" };
        format!("{}: {} -> {}{when}", key.key, key.in_force, key.configured)
    });
    let attached = difference.only_attached.iter().map(|port| format!("{port}: attached, not configured"));
    let configured =
        difference.only_configured.iter().map(|port| format!("{port}: configured, not attached"));
    keys.chain(attached).chain(configured).collect::<Vec<_>>().join("\n")
}
