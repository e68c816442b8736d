//! `ringroad vm console`.

use clap::Args;
use ringroad_guest::console::{self, Left};
use ringroad_guest::{GuestKind, Registry};

use crate::failure::Failure;
use crate::output::Output;
use crate::run::StopFlag;

/// Join this terminal with a guest's console; Ctrl-] leaves it
///
/// The guest keeps running. One terminal at a time can use a console.
#[derive(Debug, Args)]
pub(super) struct Console {
    /// The guest
    #[arg(value_name = "NAME")]
    name: String,
}

impl Console {
    pub(super) fn run(&self, output: &Output) -> Result<(), Failure> {
        let registry = Registry::of_environment();
        registry.running(&self.name, GuestKind::Vm)?;
        output.note(&format!("the console of {}; Ctrl-] leaves it", self.name));
        let left = console::attach(&registry.folder_of(&self.name), &StopFlag::on_signals()?.shared())?;
        match left {
            Left::Leaving => output.note(&format!("\nleft the console; {} keeps running", self.name)),
            Left::Ended => output.note(&format!("\n{} has ended", self.name)),
        }
        Ok(())
    }
}
