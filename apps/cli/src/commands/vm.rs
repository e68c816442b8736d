//! `ringroad vm`: virtual machines as guests of a switch.

mod console;
mod exec;
mod keeper;
mod kernel;
mod list;
mod start;
mod stop;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::verb::MainVerb;

pub(crate) use self::keeper::KeepUmlArgs;

/// Start a small virtual machine on the switch, or control running ones
///
/// Under QEMU, with Debian's kernel (found or fetched) and busybox: nothing is installed or written to a disk. With
/// --kind uml the guest is Linux as a program of this machine (package user-mode-linux), without an emulated processor.
/// Each port becomes an interface eth0, eth1, ... of the guest, by vhost-user. The console is on this terminal, and
/// Ctrl-] ends the guest; with --detach the guest runs in the background. Ports are removed with their guest. Without
/// KVM a guest under QEMU is emulated, and its speed does not show the speed of the switch. See docs/guests.md.
///
/// Exit status: with --run the status of the first script that fails; with exec the command's.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct VmArgs {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    start: Option<start::Start>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the running guests: virtual machines, containers, testpmd
    List(list::VmListArgs),
    /// Join this terminal with a guest's console; Ctrl-] leaves it
    Console(console::Console),
    /// Run a command in a guest's shell
    Exec(exec::Exec),
    /// End a guest and remove its ports
    Stop(stop::Stop),
    /// Find the kernel for guests, or fetch it
    Kernel(kernel::FindKernel),
}

impl MainVerb for VmArgs {
    const EXAMPLES: &str = "\
ringroad vm a --port vale0:a --address 10.0.0.1/24 --detach
ringroad vm exec a -- ping -c 3 10.0.0.2
ringroad vm stop a";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        match (&self.verb, &self.start) {
            (Some(Verb::List(verb)), _) => verb.run(output),
            (Some(Verb::Console(verb)), _) => verb.run(output),
            (Some(Verb::Exec(verb)), _) => verb.run(output),
            (Some(Verb::Stop(verb)), _) => verb.run(output),
            (Some(Verb::Kernel(verb)), _) => verb.run(output),
            (None, Some(start)) => start.run(global, output),
            (None, None) => {
                Err(Failure::usage("a guest needs a name", "such as: ringroad vm a --port vale0:a"))
            }
        }
    }
}
