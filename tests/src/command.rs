//! Running the command and reading what it prints.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

/// Starts a command that was given `--json` and waits for its first line, which reports that its ports are open.
///
/// # Panics
/// If it prints something else.
#[must_use]
pub fn start(mut command: Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut ready = String::new();
    lines.read_line(&mut ready).unwrap();
    assert!(ready.contains("\"ready\":true"), "{ready}");
    (child, lines)
}

/// The summary of a started command: the last line that is not empty.
///
/// # Panics
/// If that is not JSON.
#[must_use]
pub fn summary(lines: BufReader<ChildStdout>) -> Value {
    let last = lines.lines().map(Result::unwrap).filter(|line| !line.is_empty()).last().unwrap();
    serde_json::from_str(&last).unwrap()
}

/// Runs a command to its end.
///
/// # Panics
/// If it cannot be started.
#[must_use]
pub fn run(mut command: Command) -> Output {
    command.output().unwrap()
}

/// A command's output on standard error.
#[must_use]
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
