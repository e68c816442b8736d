//! `ringroad up`.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use ringroad_control::ControlError;
use ringroad_control::report::StatusReport;
use serde::Serialize;

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::verb::MainVerb;

/// Start the daemon
///
/// Returns when the daemon is ready. If a daemon is running already, the command leaves it unchanged and succeeds,
/// unless --foreground or a configuration that differs from the daemon's is given. Programs that need the daemon start
/// it themselves; a daemon started by this command runs until `ringroad down`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Configuration of switches, ports, workers and permissions (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Become the daemon instead of starting it in the background
    #[arg(long)]
    foreground: bool,
}

#[derive(Debug, Serialize)]
struct UpReport {
    already_running: bool,
    pid: u32,
    version: String,
    socket: String,
}

impl MainVerb for UpArgs {
    const EXAMPLES: &str = "\
ringroad up
ringroad up --config /etc/ringroad/ringroadd.toml";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let socket = global.socket_path();
        let already_running = match ringroad_control::Connection::connect(&socket) {
            Ok(_) => true,
            Err(ControlError::DaemonNotRunning { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        if !already_running && self.foreground {
            return Err(self.become_daemon(&socket));
        }
        if !already_running {
            let config = self.config.as_ref().map(std::path::absolute).transpose().map_err(|error| {
                Failure::new(format!("finding the configuration file: {error}"), "give a path that exists")
            })?;
            let config = config.map(|path| path.display().to_string());
            let arguments: Vec<&str> = config.iter().flat_map(|path| ["--config", path.as_str()]).collect();
            ringroad::start_daemon(&socket, &arguments)?;
        }
        let status = global.connect()?.status()?;
        if already_running {
            self.check_running(&status, output)?;
        }
        let running =
            UpReport { already_running, pid: status.pid, version: status.version, socket: status.socket };
        output.result(&running, |running| {
            let state = if already_running { "runs already" } else { "runs" };
            format!(
                "ringroadd {} {state}: process {}, socket {}",
                running.version, running.pid, running.socket
            )
        })
    }
}

impl UpArgs {
    /// Checks that the running daemon is the requested daemon.
    fn check_running(&self, status: &StatusReport, output: &Output) -> Result<(), Failure> {
        let runs = format!("the daemon runs already, as process {}", status.pid);
        if self.foreground {
            return Err(Failure::new(runs, "stop it first: ringroad down"));
        }
        let Some(wanted) = &self.config else { return Ok(()) };
        let file = std::fs::canonicalize(wanted).map_err(|error| {
            Failure::new(format!("finding the configuration file {}: {error}", wanted.display()), "")
        })?;
        let own = status.config.as_deref();
        if own.is_some_and(|own| std::fs::canonicalize(own).is_ok_and(|own| own == file)) {
            output.note(&format!("{runs}; if its configuration has changed: ringroad reload"));
            return Ok(());
        }
        let own = own.map_or("without a configuration file".to_owned(), |own| format!("with {own}"));
        Err(Failure::new(
            format!("{runs}, {own}, and does not read {}", wanted.display()),
            "stop it first: ringroad down",
        ))
    }

    /// Replaces this process with the daemon; returns only on failure.
    fn become_daemon(&self, socket: &std::path::Path) -> Failure {
        let Some(program) = ringroad::daemon_program() else {
            return ringroad::StartError::NoProgram { socket: socket.display().to_string() }.into();
        };
        let mut command = Command::new(&program);
        command.arg("--socket").arg(socket);
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        let error = command.exec();
        Failure::new(format!("running {}: {error}", program.display()), "")
    }
}
