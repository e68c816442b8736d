//! The definition of the command line. Help, completions and manual pages are generated from it.

use clap::Parser;

use crate::commands::Command;
use crate::options::Global;

/// Packets around the kernel: ports, switches and traffic in shared memory.
///
/// A port is named vale0:a (port a of the learning switch vale0), x{1 and x}1 (the two ends of a pipe), eth0 (a network
/// interface), eth0^ (its host stack), or by a scheme, as in memif:SOCKET: `ringroad kinds` shows all. Commands that
/// need the daemon start it.
///
/// Numbers: k, M, G and T are powers of 1000; for memory (buffer=32M) of 1024. A rate needs its unit: 1Mpps, 10Gbit.
///
/// Exit status: 0 done, 1 failed, 2 wrong usage; 3 and 4 a result that is not good (trial, recv --check); the program's
/// own status with run, container and vm exec. With --json a failure is an object {"error", "advice"} on standard
/// error, with a "kind" where the usage is wrong.
#[derive(Debug, Parser)]
#[command(name = "ringroad", version, max_term_width = 100, propagate_version = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_argument_definitions_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn global_options_may_follow_the_verb() {
        let arguments = Arguments::parse_from(["ringroad", "list", "--json", "--socket", "s"]);
        assert!(arguments.global.json);
        assert_eq!(arguments.global.socket_path(), PathBuf::from("s"));
    }
}
