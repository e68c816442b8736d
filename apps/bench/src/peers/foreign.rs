//! Foreign programs without support for a bench: search for them, and a start after which they do not outlive the
//! bench.

use std::ffi::OsString;

use ringroad_netdev::Namespace;

use crate::error::BenchError;
use crate::process::{BenchProcess, EndsBy};
use crate::veth::Task;

/// Shell script that replaces itself by the program of its arguments. At the end of standard input it interrupts the
/// program with its child processes. Otherwise the program would outlive a bench that was killed. The watching subshell
/// closes its output, since the bench reads the output to its end.
const ENDS_WITH_INPUT: &str =
    r#"exec 3<&0; (read -r never; kill -INT -$$) <&3 >/dev/null 2>&1 & exec "$@" </dev/null 3<&-"#;

/// Checks that `program` is in PATH. The error names its package.
pub(super) fn must_be_installed(program: &'static str, package: &'static str) -> Result<(), BenchError> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&search).any(|folder| folder.join(program).is_file()) {
        return Ok(());
    }
    Err(BenchError::PeerAbsent { program, package })
}

/// Returns the first `lines` lines that the program prints when it is called with `argument`, for the report.
pub(super) fn version(program: &str, argument: &str, lines: usize) -> Option<String> {
    let output = std::process::Command::new(program).arg(argument).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).lines().take(lines).collect::<Vec<_>>().join(", ");
    (!text.is_empty()).then_some(text)
}

/// Starts `command`, program and arguments, on the task's core and in the namespace of its interfaces. Returns the
/// process with its command line.
pub(super) fn start(task: &Task<'_>, command: &[&str]) -> Result<(BenchProcess, String), BenchError> {
    let cpu = task.cpu.to_string();
    let command: Vec<&str> = ["taskset", "-c", &cpu].into_iter().chain(command.iter().copied()).collect();
    let program = command.get(3).copied().unwrap_or_default();
    let process = start_words(&task.lab.namespace(), program, &command)?;
    Ok((process, command.join(" ")))
}

fn start_words(namespace: &Namespace, name: &str, command: &[&str]) -> Result<BenchProcess, BenchError> {
    let arguments: Vec<OsString> =
        ["-c", ENDS_WITH_INPUT, "sh"].iter().chain(command).map(OsString::from).collect();
    BenchProcess::start(namespace, name, "sh".as_ref(), &arguments, &[], EndsBy::Input)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::stop::StopFlag;

    const LIMIT: Duration = Duration::from_secs(60);

    fn started(script: &str) -> BenchProcess {
        start_words(&Namespace::Current, "sh", &["sh", "-c", script]).unwrap()
    }

    #[test]
    fn a_program_that_ignores_its_input_ends_with_it() {
        let mut process = started("echo up; exec sleep 1000");
        let up = |line: &str| (line == "up").then_some(());
        process.wait_for_line("come up", LIMIT, &StopFlag::new(), up).unwrap();
        process.ask_to_end();
        let error = process.wait_for_line("speak", LIMIT, &StopFlag::new(), |_| Some(())).unwrap_err();
        assert!(matches!(&error, BenchError::Exited { status, .. } if status == "signal 2"), "{error}");
    }

    #[test]
    fn the_processes_that_a_program_made_end_with_it() {
        // The end of the output shows that all processes have ended, since the last process keeps it open.
        let mut process = started("(echo up; sleep 1000); true");
        let up = |line: &str| (line == "up").then_some(());
        process.wait_for_line("come up", LIMIT, &StopFlag::new(), up).unwrap();
        process.ask_to_end();
        let error = process.wait_for_line("end", LIMIT, &StopFlag::new(), |_| None::<()>).unwrap_err();
        assert!(matches!(error, BenchError::Exited { .. }), "{error}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        let error = must_be_installed("no-such-program", "its-package").unwrap_err();
        assert!(error.to_string().contains("apt install its-package"), "{error}");
    }
}
