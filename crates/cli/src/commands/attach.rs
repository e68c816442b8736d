//! `ringroad attach`: a port that stays.

use clap::Args;
use ringroad_control::Request;

use crate::arguments::{Global, PortSizes};
use crate::failure::Failure;
use crate::output::Output;

/// Make a port that stays until it is detached
///
/// On a switch the port is served by the daemon itself: `ringroad attach vale0:in --driver pcap:FILE`. A port without a
/// driver waits for a program to open it. The daemon is started where none runs.
#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// Name of the port, such as vale0:a
    #[arg(value_name = "PORT")]
    name: String,
    /// What serves the port, such as null:size=60 or pcap:FILE [default: a program that opens it]
    #[arg(long, value_name = "DRIVER")]
    driver: Option<String>,
    #[command(flatten)]
    sizes: PortSizes,
}

impl Attach {
    pub(crate) fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        ringroad::ensure_daemon(&global.socket_path())?;
        let request =
            Request::Attach { name: self.name.clone(), driver: self.driver.clone(), wish: self.sizes.wish() };
        super::ask(global, output, &request, "attached", Some(&self.name))
    }
}
