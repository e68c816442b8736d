//! The process that keeps a container's network namespace: it makes the namespace, and removes the namespace when the
//! container's command ends for any reason, a kill included.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use clap::Args;
use ringroad_guest::GuestRegistry;
use ringroad_guest::process::{ends_within, in_own_session};
use ringroad_netdev::Namespace;

use crate::commands::guests::foreground::HeldSignals;
use crate::commands::guests::{clean_stale, ip};
use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::verb::MainVerb;

/// Line that the keeper writes once the namespace exists.
const MADE: &str = "made\n";
/// Line that the keeper reads if the namespace stays.
const KEEP: &str = "keep\n";
/// Time limit for the end of a killed command whose descriptors are closed already.
const END_PATIENCE: Duration = Duration::from_secs(30);

/// A namespace's keeper, as the container's command has it. The namespace ends when the value is dropped.
#[derive(Debug)]
pub(super) struct NamespaceKeeper {
    process: Child,
    input: ChildStdin,
}

impl NamespaceKeeper {
    /// Makes the namespace `name`.
    ///
    /// # Errors
    /// [`Failure`]: the namespace cannot be made. The keeper has told the user why.
    pub(super) fn start(name: &str, global: &Global) -> Result<Self, Failure> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["keep-namespace", name]);
        command.args(global.json.then_some("--json")).args(global.quiet.then_some("--quiet"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // The keys of a terminal end the command, not its keeper.
        in_own_session(&mut command);
        let failed = |error| Failure::new(format!("starting the keeper of namespace {name}: {error}"), "");
        let mut process = command.spawn().map_err(failed)?;
        let (Some(input), Some(told)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(failed(std::io::ErrorKind::BrokenPipe.into()));
        };
        let mut line = String::new();
        BufReader::new(told).read_line(&mut line).map_err(failed)?;
        if line != MADE {
            let status = process.wait().map_err(failed)?.code();
            return Err(Failure::status(status.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)));
        }
        Ok(Self { process, input })
    }

    /// Leaves the namespace to the user.
    pub(super) fn let_go(mut self) -> Result<(), Failure> {
        let told = self.input.write_all(KEEP.as_bytes());
        drop(self.input);
        told.and_then(|()| self.process.wait().map(drop))
            .map_err(|error| Failure::new(format!("telling the namespace's keeper: {error}"), ""))
    }
}

/// Keeper of a container's network namespace
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct KeepNamespaceArgs {
    /// Name of the namespace, and of the container
    name: String,
}

impl MainVerb for KeepNamespaceArgs {
    const EXAMPLES: &str = "";

    fn run(&self, _: &Global, output: &Output) -> Result<(), Failure> {
        let _signals = HeldSignals::hold()?;
        ip(&["netns", "add", &self.name])?;
        let namespace = Namespace::Named(self.name.clone());
        let made = namespace.hold().inspect_err(|_| drop(ip(&["netns", "delete", &self.name])))?;
        let mut told = String::new();
        // A command that was killed neither reads nor writes; its input has ended.
        let _ = std::io::stdout().write_all(MADE.as_bytes());
        let _ = std::io::stdin().read_to_string(&mut told);
        if told == KEEP {
            return Ok(());
        }
        let registry = GuestRegistry::of_environment();
        if let Ok(record) = registry.read(&self.name)
            && let Some(process) = record.process.descriptor()
        {
            // A command that is still running removes its own resources.
            let _ = ends_within(&process, END_PATIENCE);
        }
        clean_stale(&registry, &registry.lock()?, output);
        // The name may belong to another namespace by now.
        if namespace.hold().is_ok_and(|now| now == made) {
            ip(&["netns", "delete", &self.name])?;
        }
        Ok(())
    }
}
