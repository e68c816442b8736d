//! `ringroad completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::failure::Failure;

/// Print a completion script for a shell
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "ringroad", &mut script);
        std::io::Write::write_all(&mut std::io::stdout(), &script).map_err(|error| Failure::output(&error))
    }
}
