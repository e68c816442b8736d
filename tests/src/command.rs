//! Runs commands to their end or beside the test, and reads their output. Each command has a time limit.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;

use crate::daemon::PATIENCE;
use crate::service::Service;

/// Starts a command that has the option `--json`, and waits for its line that reports open ports.
///
/// # Panics
/// If the command prints no such line.
#[must_use]
pub fn start(command: Command) -> Service {
    let mut service = Service::start(command);
    service.await_line("\"ready\":true");
    service
}

/// Waits for the end of a started command, which must succeed. Its summary is the last JSON object that it prints.
///
/// # Panics
/// If the command fails, does not end or prints no object.
#[must_use]
pub fn summary(service: &mut Service) -> Value {
    let (status, printed) = service.await_end();
    assert!(status.success(), "{status}: {printed}");
    last_object(&printed)
}

/// Returns the last JSON object among printed lines.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn last_object(printed: &str) -> Value {
    let last = printed.lines().rfind(|line| line.starts_with('{'));
    serde_json::from_str(last.unwrap_or_else(|| panic!("no object: {printed}"))).unwrap()
}

/// Runs a command to its end.
///
/// # Panics
/// If the command cannot be started, or takes too long.
#[must_use]
pub fn run(mut command: Command) -> Output {
    output(&mut command)
}

/// Runs a command to its end, as [`run`] does.
pub(crate) fn output(command: &mut Command) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (gather(child.stdout.take()), gather(child.stderr.take()));
    let status = end_within(&mut child, PATIENCE.unwrap());
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let output = [stdout, stderr].map(|reader| reader.join().unwrap());
    let Some(status) = status else {
        panic!(
            "{command:?} does not end: {:#?}",
            output.each_ref().map(|bytes| String::from_utf8_lossy(bytes))
        );
    };
    let [stdout, stderr] = output;
    Output { status, stdout, stderr }
}

fn gather(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Read errors are ignored: the bytes read before the error are shown.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        bytes
    })
}

/// Waits for a process's end; `None` if the process has not ended within `limit`.
///
/// # Panics
/// If the kernel refuses.
#[must_use]
pub fn end_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    if let Some(status) = child.try_wait().unwrap() {
        return Some(status);
    }
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
    let end = Instant::now() + limit;
    loop {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap();
        match poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => {
                ready.unwrap();
                return child.try_wait().unwrap();
            }
        }
    }
}

/// A command's output on standard error.
#[must_use]
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
