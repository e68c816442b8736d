//! `ringroad completions`, and the requests of shells: the command itself completes its line, so that it can offer the
//! ports and switches of the running daemon.

use std::ffi::OsStr;
use std::time::Duration;

use clap::{Args, CommandFactory};
use clap_complete::aot::Shell;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use ringroad::catalogue::{Spelling, kinds};
use ringroad_control::{Connection, socket_path};

use crate::command_line::Arguments;
use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::verb::MainVerb;

/// Environment variable that the completion scripts set when they request words.
const VARIABLE: &str = "RINGROAD_COMPLETE";
/// Time limit for the daemon's reply after the user has pressed Tab.
const PATIENCE: Duration = Duration::from_millis(300);

/// Print a completion script for a shell
///
/// The script calls ringroad itself for the words, so it also offers the ports and switches of the running daemon.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct CompletionsArgs {
    /// Shell
    shell: Shell,
}

impl MainVerb for CompletionsArgs {
    const EXAMPLES: &str = "";

    fn run(&self, _: &Global, _: &Output) -> Result<(), Failure> {
        let shells = Shells::builtins();
        let completer = shells.completer(&self.shell.to_string());
        let completer = completer.ok_or_else(|| Failure::new("there is no script for this shell", ""))?;
        let mut script = Vec::new();
        if self.shell == Shell::Bash {
            // Bash splits vale0:a into three words unless the colon is removed here.
            script.extend(b"COMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n");
        }
        completer
            .write_registration(VARIABLE, "ringroad", "ringroad", "ringroad", &mut script)
            .and_then(|()| std::io::Write::write_all(&mut std::io::stdout(), &script))
            .map_err(|error| Failure::output(&error))
    }
}

/// Answers a shell that requests words, then ends the process. Does nothing otherwise.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(|| with_names(Arguments::command())).var(VARIABLE).complete();
}

/// Adds the names of ports and switches to the command as possible words.
fn with_names(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let names: Vec<String> =
            arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
        match names.first().map(String::as_str) {
            Some("PORT" | "FROM" | "TO") => arg.add(completer(true, false)),
            Some("SWITCH") => arg.add(completer(false, true)),
            Some("PORT|SWITCH") => arg.add(completer(true, true)),
            Some("A" | "B" | "DRIVER") => arg.add(ArgValueCandidates::new(schemes)),
            _ => arg,
        }
    });
    command.mut_subcommands(with_names)
}

/// Returns the schemes of port names, each with the kind of port.
fn schemes() -> Vec<CompletionCandidate> {
    let candidates = kinds().filter_map(|kind| match kind.spelling {
        Spelling::Scheme(scheme) => {
            Some(CompletionCandidate::new(format!("{scheme}:")).help(Some(kind.about.into())))
        }
        Spelling::Bare | Spelling::Suffix(_) => None,
    });
    candidates.collect()
}

fn completer(with_ports: bool, with_switches: bool) -> ArgValueCompleter {
    ArgValueCompleter::new(move |begun: &OsStr| names(begun, with_ports, with_switches))
}

/// Returns names of the running daemon that begin with `begun`; none if no daemon answers soon.
fn names(begun: &OsStr, with_ports: bool, with_switches: bool) -> Vec<CompletionCandidate> {
    let Some(begun) = begun.to_str() else { return Vec::new() };
    let status = Connection::connect_within(socket_path::default_socket_path(), PATIENCE)
        .and_then(|mut daemon| daemon.status());
    let Ok(status) = status else { return Vec::new() };
    let ports = status.ports.into_iter().filter(|_| with_ports).map(|port| port.name);
    let switches = status.switches.into_iter().filter(|_| with_switches).map(|switch| switch.name);
    ports.chain(switches).filter(|name| name.starts_with(begun)).map(CompletionCandidate::new).collect()
}
