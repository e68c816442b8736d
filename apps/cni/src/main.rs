//! `ringroad-cni`: the CNI plugin, which puts containers onto a switch (Container Network Interface 1.1.0).
//!
//! A runtime starts it once for each operation, with the operation in the environment and the network's configuration
//! at its standard input. [`request`] reads and checks both, [`attachments`] makes and removes ports, [`addresses`]
//! calls the plugin for addresses, [`answer`] writes the output to the runtime.

use std::io::Write;
use std::process::ExitCode;

use crate::answer::CniError;
use crate::request::{CniRequest, Operation};

mod addresses;
mod answer;
mod attachments;
mod interface;
mod request;

/// Supported versions of the specification.
const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", NEWEST];
const NEWEST: &str = "1.1.0";

fn main() -> ExitCode {
    let (answer, code) = match run() {
        Ok(answer) => (answer, ExitCode::SUCCESS),
        Err(CniError(answer)) => (Some(answer), ExitCode::FAILURE),
    };
    if let Some(answer) = answer {
        // A failure to write is ignored: the runtime does not read the output.
        let _ = writeln!(std::io::stdout(), "{answer}");
    }
    code
}

fn run() -> Result<Option<serde_json::Value>, CniError> {
    let request = CniRequest::read()?;
    match request.operation {
        Operation::Version => Ok(Some(answer::versions())),
        Operation::Add => attachments::add(&request).map(Some),
        Operation::Del => attachments::remove(&request).map(|()| None),
        Operation::Check => attachments::check(&request).map(|()| None),
        Operation::Status => attachments::status(&request).map(|()| None),
        Operation::Gc => attachments::collect_garbage(&request).map(|()| None),
    }
}
