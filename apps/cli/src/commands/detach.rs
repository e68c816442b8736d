//! `ringroad detach`.

use clap::Args;
use ringroad_control::Request;

use crate::arguments::Global;
use crate::failure::Failure;
use crate::output::Output;

/// Remove an attached port
#[derive(Debug, Args)]
pub(crate) struct Detach {
    /// Name of the port as it was attached
    #[arg(value_name = "PORT")]
    name: String,
    /// Remove a port that a program has open, and take it from that program
    #[arg(long)]
    take: bool,
}

impl Detach {
    pub(crate) fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let request = Request::Detach { name: self.name.clone(), take: self.take, number: None };
        super::ask(global, output, &request, "detached", Some(&self.name))
    }
}
