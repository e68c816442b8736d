//! `ringroad vm stop`.

use clap::Args;
use ringroad_guest::virtual_machine::end_detached;
use ringroad_guest::{GuestKind, GuestRegistry};

use crate::commands::guests::release;
use crate::failure::Failure;
use crate::output::Output;

/// End a guest and remove its ports
#[derive(Debug, Args)]
pub(super) struct Stop {
    /// Name of the guest
    #[arg(value_name = "NAME")]
    name: String,
}

impl Stop {
    pub(super) fn run(&self, output: &Output) -> Result<(), Failure> {
        let registry = GuestRegistry::of_environment();
        let lock = registry.lock()?;
        let record = registry.running(&self.name, GuestKind::Vm)?;
        let ended = end_detached(record.process);
        release(&registry, &self.name, &record)?;
        drop(lock);
        ended?;
        output.note(&format!("{} has ended", self.name));
        Ok(())
    }
}
