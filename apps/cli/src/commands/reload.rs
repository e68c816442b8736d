//! `ringroad reload`.

use clap::Args;
use ringroad_control::Request;

use crate::arguments::Global;
use crate::failure::Failure;
use crate::output::Output;

/// Let the daemon read its configuration again
#[derive(Debug, Args)]
pub(crate) struct Reload {}

impl Reload {
    pub(crate) fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        super::ask(global, output, &Request::Reload, "reloaded", None)
    }
}
