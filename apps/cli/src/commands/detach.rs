//! `ringroad detach`.

use clap::Args;
use ringroad_control::Request;

use crate::commands::config::save;
use crate::failure::Failure;
use crate::options::{Global, switch_port};
use crate::output::Output;
use crate::verb::{MainVerb, ask};

/// Remove an attached port
#[derive(Debug, Args)]
pub(crate) struct DetachArgs {
    /// Name with which the port was attached
    #[arg(value_name = "PORT", value_parser = switch_port)]
    name: String,
    /// Remove a port that a program has open, and take it from that program
    #[arg(long)]
    take: bool,
    /// Remove the port from the daemon's configuration file too
    #[arg(long)]
    save: bool,
}

impl MainVerb for DetachArgs {
    const EXAMPLES: &str = "ringroad detach vale0:eth0";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let request = Request::Detach { name: self.name.clone(), take: self.take, number: None };
        ask(global, output, &request, "detached", Some(&self.name))?;
        if self.save {
            let report = save(global, vec![self.name.clone()])
                .map_err(|failure| failure.after("the port is detached, but still in the file"))?;
            output.note(&format!("removed from {}", report.config));
        }
        Ok(())
    }
}
