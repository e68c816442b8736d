//! Child process of the bench: its lines as events, its last lines for an error, and its end.
//!
//! Children are in their own process group, so that the terminal's Ctrl-C only reaches the bench, which decides when
//! each child ends. If the thread that started a child ends, the kernel kills the child. So the thread that runs the
//! bench starts all children. Each child has the read end of a pipe as standard input; testpmd and Ringroad's workers
//! end when the pipe closes.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use ringroad_guest::process::{end_with_caller, ends_within};
use ringroad_netdev::{Namespace, NamespaceError};

use crate::error::BenchError;
use crate::stop::{STOP_LATENCY, StopFlag};

/// Time limit for a child to end after its input was closed, and again after SIGINT, before it is killed.
const GRACE: Duration = Duration::from_secs(1);

/// Time limit for a child to become ready, to reply or to pass frames on: long, for machines with other load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Number of lines kept of a child's output.
const LAST_WORDS_LINES: usize = 8;

type LastLines = Arc<Mutex<VecDeque<String>>>;

/// Method of requesting a child's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndsBy {
    /// The end of its standard input.
    Input,
    /// SIGINT.
    Signal,
}

/// A running child. Dropping it ends and reaps it.
#[derive(Debug)]
pub(crate) struct BenchProcess {
    name: String,
    command: String,
    ends_by: EndsBy,
    child: Child,
    /// The process whose time is measured, if it is not the child itself.
    worker: Option<Pid>,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    last_words: LastLines,
    readers: Vec<JoinHandle<()>>,
}

impl BenchProcess {
    /// Starts `command`, program and arguments, with the additional `environment` in a network `namespace`. The words
    /// of `wrapper`, if any, precede it, and are not part of the command in reports.
    pub(crate) fn start(
        namespace: &Namespace,
        name: &str,
        wrapper: &[&str],
        command: &[OsString],
        environment: &[(&str, &OsStr)],
        ends_by: EndsBy,
    ) -> Result<Self, BenchError> {
        let mut words = wrapper.iter().map(OsStr::new).chain(command.iter().map(OsString::as_os_str));
        let mut process = Command::new(words.next().unwrap_or_default());
        process
            .args(words)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        start_in(&mut process, namespace)?;
        end_with_caller(&mut process);
        let command = command_line(command);
        let mut child =
            process.spawn().map_err(|source| BenchError::Start { command: command.clone(), source })?;
        let last_words = LastLines::default();
        let (sender, lines) = channel();
        let mut readers = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            readers.push(read_lines(stdout, Arc::clone(&last_words), sender.clone()));
        }
        if let Some(stderr) = child.stderr.take() {
            readers.push(read_lines(stderr, Arc::clone(&last_words), sender));
        }
        let stdin = child.stdin.take();
        let name = name.into();
        Ok(Self { name, command, ends_by, child, worker: None, stdin, lines, last_words, readers })
    }

    /// Returns the command line as users would type it, for facts.
    pub(crate) fn command(&self) -> &str {
        &self.command
    }

    /// Waits until the child prints a line for which `wanted` returns a value, and returns that value.
    ///
    /// `awaited` completes the sentence "the process did not ... within 60 s".
    pub(crate) fn wait_for_line<T>(
        &mut self,
        awaited: &'static str,
        stop: &StopFlag,
        mut wanted: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, BenchError> {
        let end = Instant::now() + PATIENCE;
        loop {
            if stop.is_raised() {
                return Err(BenchError::Stopped);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.not_ready(awaited));
            }
            match self.lines.recv_timeout(left.min(STOP_LATENCY)) {
                Ok(line) => {
                    if let Some(found) = wanted(&line) {
                        return Ok(found);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.exited()),
            }
        }
    }

    /// Writes one line to the child's standard input.
    pub(crate) fn tell(&mut self, line: &str) -> Result<(), BenchError> {
        let written = self.stdin.as_mut().map(|stdin| writeln!(stdin, "{line}").and_then(|()| stdin.flush()));
        match written {
            Some(Ok(())) => Ok(()),
            _ => Err(self.exited()),
        }
    }

    /// Whether the child has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Makes the error for a state that was not reached within [`PATIENCE`].
    pub(crate) fn not_ready(&self, awaited: &'static str) -> BenchError {
        let (program, last_words) = (self.name.clone(), self.last_words());
        BenchError::NotReady { program, awaited, waited: PATIENCE, last_words }
    }

    /// Makes the error for a child that has ended; ends the child if it is still running.
    pub(crate) fn exited(&mut self) -> BenchError {
        let status = self.end();
        BenchError::Exited {
            program: self.name.clone(),
            status: status.map_or_else(|| "exit status unknown".into(), describe),
            last_words: self.last_words(),
        }
    }

    /// Finds a process called `name` among the child's own children.
    pub(crate) fn child_called(&self, name: &str) -> Option<Pid> {
        let id = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        let is_called = |id: &i32| {
            let found = std::fs::read_to_string(format!("/proc/{id}/comm"));
            found.is_ok_and(|found| found.trim_end() == name)
        };
        children.split_whitespace().filter_map(|id| id.parse().ok()).find(is_called).and_then(Pid::from_raw)
    }

    /// Sets the process whose time is measured instead of the child's.
    pub(crate) fn work_is_done_by(&mut self, process: Pid) {
        self.worker = Some(process);
    }

    fn worker_id(&self) -> u32 {
        self.worker.map_or(self.child.id(), |worker| worker.as_raw_nonzero().get().cast_unsigned())
    }

    /// Reads the scheduler's counters for each thread (schedstat, Documentation/scheduler/sched-stats.rst); none if the
    /// kernel does not count.
    pub(crate) fn thread_times(&self) -> ThreadTimes {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.worker_id())).into_iter().flatten();
        let times = threads.flatten().filter_map(|thread| {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            Some((thread.file_name(), parse_schedstat(&text)?))
        });
        ThreadTimes(times.collect())
    }

    /// Reads the thread times of a process that shares its processor with `companion`, a process of the same
    /// contestant. Time in which the companion runs does not count as waiting.
    pub(crate) fn thread_times_beside(&self, companion: &Self) -> ThreadTimes {
        let own = self.thread_times();
        let companion_ns: u64 = companion.thread_times().run_ns();
        let undisturbed =
            |time: SchedTime| SchedTime { wait_ns: time.wait_ns.saturating_sub(companion_ns), ..time };
        ThreadTimes(own.0.into_iter().map(|(thread, time)| (thread, undisturbed(time))).collect())
    }

    /// Reads the processor time used since the start, the sum of all threads; `None` if the process has ended.
    pub(crate) fn processor_time(&self) -> Option<ProcessorTime> {
        parse_stat(&std::fs::read_to_string(format!("/proc/{}/stat", self.worker_id())).ok()?)
    }

    /// Sends the child SIGUSR1.
    pub(crate) fn signal_user1(&self) {
        self.signal(Signal::USR1);
    }

    fn last_words(&self) -> String {
        let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        words.iter().map(String::as_str).collect::<Vec<_>>().join(" | ")
    }

    /// Requests the child's end without waiting for it.
    ///
    /// Closing the input and a signal are not combined: testpmd would tear itself down twice.
    pub(crate) fn ask_to_end(&mut self) {
        self.stdin = None;
        if self.ends_by == EndsBy::Signal {
            self.interrupt();
        }
    }

    fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    fn signal(&self, signal: Signal) {
        // The child is not reaped yet, so no other process can have its ID.
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Ends and reaps the child: a request, then SIGINT, then SIGKILL, with a grace period after each.
    pub(crate) fn end(&mut self) -> Option<ExitStatus> {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.ask_to_end();
            if !self.ended_within(GRACE) {
                self.interrupt();
                if !self.ended_within(GRACE) {
                    let _ = self.child.kill();
                }
            }
        }
        let status = self.child.wait().ok();
        self.join_readers();
        status
    }

    fn ended_within(&self, grace: Duration) -> bool {
        let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) else { return false };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        ends_within(&pidfd, grace)
    }

    fn join_readers(&mut self) {
        for reader in self.readers.drain(..) {
            // A reader that panicked has no more lines.
            let _ = reader.join();
        }
    }
}

impl Drop for BenchProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// Makes the process of `command` enter `namespace` before it executes its program. If a thread of the bench entered
/// the namespace instead, the child would be killed at the end of that thread.
#[allow(unsafe_code)]
fn start_in(command: &mut Command, namespace: &Namespace) -> Result<(), NamespaceError> {
    if *namespace != Namespace::Current {
        let target = namespace.open()?;
        let enter = move || Ok(move_into_link_name_space(target.as_fd(), Some(LinkNameSpaceType::Network))?);
        // SAFETY: between fork and exec the closure makes one system call; it neither allocates nor takes a lock.
        unsafe { command.pre_exec(enter) };
    }
    Ok(())
}

/// Processor time of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ProcessorTime {
    /// Time in the program itself, s.
    pub user_seconds: f64,
    /// Time in the kernel for the program, including interrupts meanwhile, s.
    pub kernel_seconds: f64,
}

/// Parses fields 14 and 15 of `/proc/PID/stat` (proc_pid_stat(5)). They are counted after the name, which can contain
/// any character.
fn parse_stat(text: &str) -> Option<ProcessorTime> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map_while(|field| field.parse::<u64>().ok());
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
    let mut next = || Some(times.next()? as f64 / ticks_per_second);
    Some(ProcessorTime { user_seconds: next()?, kernel_seconds: next()? })
}

/// Time since a thread's start in which it ran, and in which it was ready to run but did not have its CPU, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SchedTime {
    run_ns: u64,
    wait_ns: u64,
}

/// Times of a process' threads, by thread ID.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadTimes(HashMap<OsString, SchedTime>);

impl ThreadTimes {
    /// Returns the time that all threads together have run, ns.
    pub(crate) fn run_ns(&self) -> u64 {
        self.0.values().map(|time| time.run_ns).sum()
    }

    /// Returns how long the thread that has run most since `before` has waited since then. The thread is chosen by the
    /// difference: a program may do its set-up in one thread and its work in another.
    fn wait_since(&self, before: &Self) -> Option<u64> {
        let since = |(thread, now): (&OsString, &SchedTime)| {
            let then = before.0.get(thread).copied().unwrap_or_default();
            (now.run_ns.saturating_sub(then.run_ns), now.wait_ns.saturating_sub(then.wait_ns))
        };
        let busiest = self.0.iter().map(since).max();
        busiest.filter(|(run_ns, _)| *run_ns > 0).map(|(_, wait_ns)| wait_ns)
    }
}

/// Returns the largest share of the time since `before` that any of the processes waited for its CPU. `before` and
/// `after` are [`BenchProcess::thread_times`] of the same processes.
pub(crate) fn cpu_wait_share(
    before: &[ThreadTimes],
    after: &[ThreadTimes],
    elapsed: Duration,
) -> Option<f64> {
    let waits = before.iter().zip(after).filter_map(|(before, after)| after.wait_since(before));
    Some(waits.max()? as f64 / elapsed.as_nanos().max(1) as f64)
}

fn parse_schedstat(text: &str) -> Option<SchedTime> {
    let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
    Some(SchedTime { run_ns: numbers.next()?, wait_ns: numbers.next()? })
}

fn command_line(words: &[OsString]) -> String {
    let quoted = |word: &OsString| {
        let word = word.to_string_lossy();
        if word.contains(|c: char| c.is_whitespace() || c == '\'') {
            format!("{word:?}")
        } else {
            word.into_owned()
        }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown status".into(),
    }
}

fn read_lines(
    stream: impl Read + Send + 'static,
    last_words: LastLines,
    sender: Sender<String>,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        // Invalid UTF-8 is accepted, since a program may print anything. A read error is the end of its output.
        while matches!(stream.read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if text.is_empty() {
                continue;
            }
            let mut words = last_words.lock().unwrap_or_else(PoisonError::into_inner);
            if words.len() == LAST_WORDS_LINES {
                words.pop_front();
            }
            words.push_back(text.clone());
            drop(words);
            // The bench may have stopped listening, but the pipe must still be drained.
            let _ = sender.send(text);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> BenchProcess {
        let command = ["sh", "-c", script].map(OsString::from);
        BenchProcess::start(&Namespace::Current, "shell", &[], &command, &[], EndsBy::Input).unwrap()
    }

    fn answer(process: &mut BenchProcess, word: &str) -> Result<String, BenchError> {
        process.wait_for_line("answer", &StopFlag::default(), |line| {
            line.contains(word).then(|| line.to_owned())
        })
    }

    #[test]
    fn lines_are_exchanged_with_a_child() {
        let mut process = shell("echo noise; read line; echo heard $line; read never");
        process.tell("go").unwrap();
        assert_eq!(answer(&mut process, "heard").unwrap(), "heard go");
    }

    #[test]
    fn a_child_that_dies_leaves_its_status_and_last_words() {
        let mut process = shell("echo cannot find my keys >&2; exit 3");
        let error = answer(&mut process, "ready").unwrap_err();
        let BenchError::Exited { status, last_words, .. } = error else { panic!("{error}") };
        assert_eq!(status, "exit code 3");
        assert_eq!(last_words, "cannot find my keys");
    }

    #[test]
    fn a_raised_flag_ends_the_wait_for_a_silent_child() {
        let mut process = shell("read never");
        let stop = StopFlag::default();
        stop.raise();
        let error = process.wait_for_line("speak", &stop, |_| Some(())).unwrap_err();
        assert!(matches!(error, BenchError::Stopped));
    }

    #[test]
    fn a_child_that_ignores_the_request_is_killed_and_reaped() {
        let mut process = shell("trap '' INT; echo up; while :; do read never || :; done 2>/dev/null");
        answer(&mut process, "up").unwrap();
        assert_eq!(process.end().and_then(|status| status.signal()), Some(9));
    }

    #[test]
    fn a_child_is_killed_when_the_thread_that_started_it_has_ended() {
        let mut process = std::thread::spawn(|| shell("exec sleep 1000")).join().unwrap();
        assert!(process.ended_within(Duration::from_secs(20)));
        assert_eq!(process.end().and_then(|status| status.signal()), Some(9));
    }

    #[test]
    fn a_childs_error_stream_is_read_too() {
        let mut process = shell("echo counted 7 >&2; read never");
        assert_eq!(answer(&mut process, "counted").unwrap(), "counted 7");
    }

    #[test]
    fn processor_time_is_found_behind_a_name_with_anything_in_it() {
        let text = "42 (a) b) R 1 42 42 0 -1 4194304 100 0 0 0 250 750 3 4 20 0 1 0";
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        let time = parse_stat(text).unwrap();
        assert_eq!((time.user_seconds * per_second, time.kernel_seconds * per_second), (250.0, 750.0));
        assert_eq!(parse_stat("42 (a) R 1"), None);
        assert!(shell("read never").processor_time().is_some());
    }

    fn times(threads: &[(&str, u64, u64)]) -> ThreadTimes {
        let time = |(thread, run_ns, wait_ns): &(&str, u64, u64)| {
            (OsString::from(thread), SchedTime { run_ns: *run_ns, wait_ns: *wait_ns })
        };
        ThreadTimes(threads.iter().map(time).collect())
    }

    #[test]
    fn the_wait_share_is_the_largest_of_all_processes() {
        let before = [times(&[("1", 5, 100)]), times(&[]), times(&[("2", 5, 0)])];
        let after = [times(&[("1", 6, 200)]), times(&[]), times(&[("2", 6, 400)])];
        assert_eq!(cpu_wait_share(&before, &after, Duration::from_nanos(1000)), Some(0.4));
        assert_eq!(cpu_wait_share(&before[1..2], &after[1..2], Duration::from_secs(1)), None);
        let parsed = SchedTime { run_ns: 464_431_222, wait_ns: 611_645_016 };
        assert_eq!(parse_schedstat("464431222 611645016 121"), Some(parsed));
        assert_eq!(parse_schedstat("4"), None);
    }

    #[test]
    fn the_thread_that_worked_counts_and_not_the_one_that_set_it_up() {
        let before = times(&[("main", 900, 10), ("worker", 100, 50)]);
        let after = times(&[("main", 901, 20), ("worker", 500, 650), ("late", 5, 900)]);
        assert_eq!(after.wait_since(&before), Some(600));
        assert_eq!(before.wait_since(&before), None, "no thread ran");
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let command = ["/nonexistent/x", "-v"].map(OsString::from);
        let started = BenchProcess::start(&Namespace::Current, "x", &[], &command, &[], EndsBy::Input);
        let error = started.unwrap_err();
        assert_eq!(error.to_string(), "cannot start `/nonexistent/x -v`");
    }
}
