//! `ringroad vm console`.

use clap::Args;
use ringroad_guest::console::{self, ConsoleExit};
use ringroad_guest::{GuestKind, GuestRegistry};

use crate::failure::Failure;
use crate::output::Output;
use crate::run::SignalFlag;

/// Join this terminal with a guest's console; Ctrl-] leaves it
///
/// The guest keeps running. One terminal at a time can use a console.
#[derive(Debug, Args)]
pub(super) struct Console {
    /// Name of the guest
    #[arg(value_name = "NAME")]
    name: String,
}

impl Console {
    pub(super) fn run(&self, output: &Output) -> Result<(), Failure> {
        let registry = GuestRegistry::of_environment();
        registry.running(&self.name, GuestKind::Vm)?;
        output.note(&format!("the console of {}; Ctrl-] leaves it", self.name));
        let left = console::attach(&registry.folder_of(&self.name), &SignalFlag::on_signals()?.shared())?;
        match left {
            ConsoleExit::Leaving => output.note(&format!("\nleft the console; {} keeps running", self.name)),
            ConsoleExit::Ended => output.note(&format!("\n{} has ended", self.name)),
        }
        Ok(())
    }
}
