//! `ringroad vm exec`.

use std::io;
use std::time::Duration;

use clap::Args;
use ringroad_guest::command_channel::{CommandChannel, quoted};
use ringroad_guest::{GuestKind, GuestRegistry};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;
use crate::run::SignalFlag;

/// Time limit for a guest to begin with a command.
pub(super) const BEGIN_PATIENCE: Duration = Duration::from_secs(30);

/// Run a command in a guest's shell
///
/// A single word is a line for the shell: ringroad vm exec a 'ping -c 1 10.0.0.2 && echo yes'. Several words are a
/// program and its arguments. Standard error is merged into standard output; there is no input. One command runs at a
/// time, and others wait; Ctrl-C ends it. Redirect the output of programs in the background (>/dev/null 2>&1 &).
///
/// Exit status: the command's.
#[derive(Debug, Args)]
pub(super) struct Exec {
    /// Name of the guest
    #[arg(value_name = "NAME")]
    name: String,
    /// Command: a line for the shell, or a program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The result of a script or command.
#[derive(Debug, Serialize)]
pub(super) struct ScriptResult {
    pub(super) status: u8,
    pub(super) output: String,
}

impl Exec {
    pub(super) fn run(&self, output: &Output) -> Result<(), Failure> {
        let registry = GuestRegistry::of_environment();
        registry.running(&self.name, GuestKind::Vm)?;
        let stop = SignalFlag::on_signals()?;
        let script = match self.command.as_slice() {
            [line] => line.clone(),
            words => quoted(words),
        };
        let mut channel = CommandChannel::connect(&registry.folder_of(&self.name), &stop.shared())?;
        let status = run_script(&mut channel, &script, output, &stop)?;
        if status == 0 { Ok(()) } else { Err(Failure::status(status)) }
    }
}

/// Runs a script. Passes on its output during the run, or prints the result as JSON at the end.
pub(super) fn run_script(
    channel: &mut CommandChannel,
    script: &str,
    output: &Output,
    stop: &SignalFlag,
) -> Result<u8, Failure> {
    if !output.is_json() {
        return Ok(channel.run(script, &mut io::stdout().lock(), BEGIN_PATIENCE, &stop.shared())?);
    }
    let mut written = Vec::new();
    let status = channel.run(script, &mut written, BEGIN_PATIENCE, &stop.shared())?;
    let result = ScriptResult { status, output: String::from_utf8_lossy(&written).into_owned() };
    output.result(&result, |result| result.output.clone())?;
    Ok(status)
}
