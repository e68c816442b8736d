//! `ringroad keep-uml`: the process behind a guest that is user-mode Linux.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use ringroad_guest::uml;

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::run::SignalFlag;
use crate::verb::MainVerb;

/// Keeper of a guest that is user-mode Linux
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct KeepUmlArgs {
    /// Folder of the guest
    folder: PathBuf,
    /// Command line of Linux, without its consoles
    #[arg(last = true, required = true)]
    linux: Vec<OsString>,
}

impl MainVerb for KeepUmlArgs {
    const EXAMPLES: &str = "";

    fn run(&self, _: &Global, _: &Output) -> Result<(), Failure> {
        let stop = SignalFlag::on_signals()?;
        Ok(uml::keep(&self.folder, &self.linux, &stop.shared())?)
    }
}
