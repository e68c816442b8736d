//! `ringroad`, the command.
//!
//! Exit status: 0 done, 1 failed with one message on standard error, 2 used wrongly. A reader of standard output that
//! goes away is success. SIGINT and SIGTERM end traffic commands with their summary and status 0; a second one ends
//! them at once.
//!
//! With `--json` results are JSON on standard output, one value per line, and a failure is one object on standard
//! error: `{"error": "...", "advice": "..."}`. Commands that take or give traffic print `{"ready": true, ...}` first, as
//! soon as their ports are open, and their summary last.

mod arguments;
mod commands;
mod failure;
mod forwarder;
mod frame_options;
mod output;
mod port_argument;
mod port_wait;
mod receiver;
mod run;
mod session_arguments;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = arguments::Arguments::parse();
    let output = output::Output::new(&arguments.global);
    match commands::run(&arguments, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure.is_worth_telling() {
                output.failure(&failure);
            }
            ExitCode::from(failure.exit_status())
        }
    }
}
