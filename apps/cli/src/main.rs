//! `ringroad`, the command.
//!
//! Exit status: 0 done, 1 failed with one message on standard error, 2 wrong usage, 3 and 4 a result that is not good.
//! A closed reader of standard output is not a failure. SIGINT and SIGTERM end traffic commands with their summary and
//! status 0; a second signal ends them immediately.
//!
//! With `--json` results are JSON on standard output, one value per line, and a failure is one object on standard
//! error: `{"error": "...", "advice": "..."}`. If the parser refuses the command line, the object has a `"kind"` too.
//! Commands that receive or send traffic print `{"ready": true, ...}` first, as soon as their ports are open, and their
//! summary last.

mod command_line;
mod commands;
mod failure;
mod flow_client;
mod forwarder;
mod frame_options;
mod habits;
mod number_parsers;
mod options;
mod output;
mod port_drops;
mod port_wait;
mod receiver;
mod run;
mod session_arguments;
mod text_files;
mod usage_error;
mod verb;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    commands::completions::answer_shell();
    let arguments = match command_line::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(mut error) => {
            habits::advise(&mut error, std::env::args_os());
            if error.use_stderr() && usage_error::wants_json(std::env::args_os()) {
                let refused = usage_error::UsageError::new(&error);
                eprintln!("{}", serde_json::json!(refused));
                return ExitCode::from(failure::USAGE);
            }
            error.exit()
        }
    };
    let output = output::Output::new(&arguments.global);
    match arguments.command.run(&arguments.global, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure.is_worth_telling {
                output.failure(&failure);
            }
            ExitCode::from(failure.exit_status)
        }
    }
}
