//! A program that runs beside the test, and ends with the test even if the test fails.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::command::end_within;
use crate::daemon::PATIENCE;

/// Time limit for reading the last lines of a program that has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Time that a program has to end after SIGTERM before it is killed. No test result depends on it.
const GRACE: Duration = Duration::from_secs(10);

/// A running program, and the lines that it writes to its two outputs.
#[derive(Debug)]
pub struct Service {
    child: Child,
    input: Option<ChildStdin>,
    what: String,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Service {
    /// Starts the program.
    ///
    /// # Panics
    /// If the program cannot be started.
    #[must_use]
    pub fn start(command: Command) -> Self {
        Self::start_with(command, Stdio::null())
    }

    /// Starts the program with its standard input open for commands ([`Self::tell`]).
    ///
    /// # Panics
    /// If the program cannot be started.
    #[must_use]
    pub fn start_interactive(command: Command) -> Self {
        Self::start_with(command, Stdio::piped())
    }

    fn start_with(mut command: Command, input: Stdio) -> Self {
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let what = format!("{command:?}");
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{what}: {error}"));
        let (sender, lines) = channel();
        read(child.stdout.take().unwrap(), sender.clone());
        read(child.stderr.take().unwrap(), sender);
        Self { input: child.stdin.take(), child, what, lines, seen: Vec::new() }
    }

    /// Writes a line to the program's standard input.
    ///
    /// # Panics
    /// If the program has ended, or was not started with an input.
    pub fn tell(&mut self, line: &str) {
        let written = self.input.as_mut().map(|input| writeln!(input, "{line}"));
        assert!(matches!(written, Some(Ok(()))), "{} does not read its input: {written:?}", self.what);
    }

    /// Waits until the program writes a line that contains `part`. Returns this line.
    ///
    /// # Panics
    /// If the program ends, or writes no such line within the time limit.
    pub fn await_line(&mut self, part: &str) -> String {
        self.await_line_or_end(part)
            .unwrap_or_else(|| panic!("{} did not write {part:?}: {:#?}", self.what, self.seen))
    }

    /// Waits until the program writes a line that contains `part`. Returns this line, or `None` if the program ends
    /// first.
    ///
    /// # Panics
    /// If the program neither ends nor writes such a line within the time limit.
    pub fn await_line_or_end(&mut self, part: &str) -> Option<String> {
        loop {
            let line = match self.lines.recv_timeout(PATIENCE.unwrap()) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(timeout) => panic!("{} does not write {part:?}: {timeout}: {:#?}", self.what, self.seen),
            };
            self.seen.push(line.clone());
            if line.contains(part) {
                return Some(line);
            }
        }
    }

    /// Whether a line that was read contains `part`.
    #[must_use]
    pub fn has_written(&self, part: &str) -> bool {
        self.seen.iter().any(|line| line.contains(part))
    }

    /// Waits for the program's end. Returns its status and all its output.
    ///
    /// # Panics
    /// If the program runs without output for longer than the time limit.
    pub fn await_end(&mut self) -> (ExitStatus, String) {
        loop {
            match self.lines.recv_timeout(PATIENCE.unwrap()) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(timeout) => panic!("{} does not end: {timeout}: {:#?}", self.what, self.seen),
            }
        }
        let status = end_within(&mut self.child, PATIENCE.unwrap());
        let status = status.unwrap_or_else(|| panic!("{} does not end: {:#?}", self.what, self.seen));
        (status, self.seen.join("\n"))
    }

    /// Whether the program still runs.
    ///
    /// # Panics
    /// If the kernel does not report it.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Process ID of the program.
    #[must_use]
    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Kills the program, and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal to the program unless the program has ended.
    pub fn signal(&mut self, signal: rustix::process::Signal) {
        // Another process may have the PID of a program that has ended and was waited for.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = rustix::process::kill_process(self.pid(), signal);
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // SIGTERM is the signal that timeout(1), which runs commands in namespaces, passes on. SIGCONT is for a program
        // that the test has stopped.
        self.signal(rustix::process::Signal::TERM);
        self.signal(rustix::process::Signal::CONT);
        if end_within(&mut self.child, GRACE).is_none() {
            self.kill();
        }
        if std::thread::panicking() {
            // Children of the program may hold its output open.
            self.seen.extend(std::iter::from_fn(|| self.lines.recv_timeout(LAST_WORDS).ok()));
            eprintln!("{} wrote:\n{}", self.what, self.seen.join("\n"));
        }
    }
}

fn read(output: impl Read + Send + 'static, sender: Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
}
