//! `ringroad run`: unmodified programs with ports as their devices.

mod executable;
mod preloaded;

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use ringroad::{DAEMON_VARIABLE, daemon_program};
use ringroad_control::socket_path::SOCKET_VARIABLE;

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::verb::MainVerb;
use preloaded::{NETMAP, PCAP};

/// The dynamic linker's variable for preloaded libraries.
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// Run a program written for netmap or libpcap, with ports as its devices
///
/// The program is not changed: libraries preloaded before the C library and libpcap serve devices named like ports
/// (vale0:1, x{1, xdp:eth0), and pass on everything else. See docs/pcap.md. Programs that are statically linked, or
/// that run with another user's rights, cannot be served.
///
/// Exit status: the program's; 127 if it is not found, 126 if it cannot be run.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Do not serve programs' use of netmap
    #[arg(long)]
    no_netmap: bool,
    /// Do not serve programs' use of libpcap
    #[arg(long)]
    no_pcap: bool,
    /// Program to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

impl MainVerb for RunArgs {
    const EXAMPLES: &str = "\
# Programs over libpcap and netmap, as they are
ringroad run -- tcpdump -i vale0:1 -n udp
ringroad run -- pkt-gen -i vale0:2 -f tx";

    fn run(&self, global: &Global, _: &Output) -> Result<(), Failure> {
        let Some((name, arguments)) = self.command.split_first() else {
            return Err(Failure::usage(
                "there is no program to run",
                "name one: ringroad run -- tcpdump -i vale0:1",
            ));
        };
        let wanted = [(!self.no_netmap).then_some(NETMAP), (!self.no_pcap).then_some(PCAP)];
        let objects = preloaded::find(wanted.into_iter().flatten())?;
        let program = executable::find(name)?;
        executable::check(&program)?;
        let mut command = Command::new(&program);
        command.arg0(name).args(arguments);
        command.env(
            PRELOAD_VARIABLE,
            preloaded::before(&objects, std::env::var_os(PRELOAD_VARIABLE).as_deref()),
        );
        if let Some(socket) = &global.socket {
            // An absolute path, since the program may change its working directory.
            command.env(SOCKET_VARIABLE, std::path::absolute(socket).unwrap_or_else(|_| socket.clone()));
        }
        // The daemon's program is in this program's folder, not in the folder of the program to run.
        if let Some(daemon) = daemon_program() {
            command.env(DAEMON_VARIABLE, daemon);
        }
        let error = command.exec();
        let message = format!("running {}: {error}", OsStr::display(program.as_os_str()));
        Err(if error.kind() == ErrorKind::NotFound {
            // The program was found just before, so its interpreter is missing.
            Failure::not_found(
                message,
                "see that its interpreter (the first line, or PT_INTERP) is installed",
            )
        } else {
            Failure::not_executable(message, "choose a program for this machine")
        })
    }
}
