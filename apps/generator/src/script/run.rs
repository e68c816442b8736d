//! Shared state of a script's tasks: the end of the run, its ports, its output, its first error.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::device::ScriptDevice;
use super::error::ScriptError;
use super::transfer::Transfer;
use super::{ScriptOptions, ScriptSource};
use crate::clock::SessionClock;

/// Longest sleep between two checks of the flag that ends the run: a signal handler can set it, but cannot wake
/// threads.
pub(super) const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// One run of a script.
pub(super) struct Run {
    pub(super) script: ScriptSource,
    pub(super) arguments: Vec<String>,
    pub(super) options: ScriptOptions,
    pub(super) clock: SessionClock,
    pub(super) stop: Arc<AtomicBool>,
    /// Time at which the end was first seen, ns of the clock; 0 before.
    stopped_ns: AtomicU64,
    time_limit: Mutex<ScriptTimeLimit>,
    time_limit_changed: Condvar,
    devices: Mutex<Vec<Arc<ScriptDevice>>>,
    tasks: Mutex<Tasks>,
    task_ended: Condvar,
    first_error: Mutex<Option<ScriptError>>,
    /// The queue that numbers the frames of each stream.
    streams: Mutex<HashMap<u16, String>>,
    announced: AtomicBool,
}

#[derive(Default)]
struct ScriptTimeLimit {
    end_ns: Option<u64>,
    over: bool,
}

#[derive(Default)]
struct Tasks {
    records: Vec<TaskRecord>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct TaskRecord {
    ended: bool,
    /// Result of the function, until it is taken.
    returned: Option<Vec<Transfer>>,
}

/// Locks `mutex`. The locks guard plain values that are consistent at each step, so they can be used after a thread
/// panicked.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    pub(super) fn new(script: ScriptSource, arguments: Vec<String>, options: ScriptOptions) -> Self {
        let clock = SessionClock::new();
        let end_ns = options.duration.map(|duration| {
            clock.reader().now_ns().saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
        });
        Self {
            script,
            arguments,
            stop: Arc::clone(&options.stop),
            options,
            clock,
            stopped_ns: AtomicU64::new(0),
            time_limit: Mutex::new(ScriptTimeLimit { end_ns, over: false }),
            time_limit_changed: Condvar::new(),
            devices: Mutex::default(),
            tasks: Mutex::default(),
            task_ended: Condvar::new(),
            first_error: Mutex::default(),
            streams: Mutex::default(),
            announced: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the run continues, or ended less than `extra_ns` before `now_ns`.
    pub(super) fn is_within(&self, extra_ns: u64, now_ns: u64) -> bool {
        if !self.is_over() {
            return true;
        }
        let first = self.stopped_ns.compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed);
        now_ns.saturating_sub(first.err().unwrap_or(now_ns)) < extra_ns
    }

    /// Ends the run at `end_ns`.
    pub(super) fn set_time_limit(&self, end_ns: u64) {
        lock(&self.time_limit).end_ns = Some(end_ns);
        self.time_limit_changed.notify_all();
    }

    /// Ends the run at its time limit. Returns when the limit no longer matters.
    pub(super) fn watch_time_limit(&self) {
        let mut clock = self.clock.reader();
        let mut limit = lock(&self.time_limit);
        while !limit.over {
            let left_ns = limit.end_ns.map(|end_ns| end_ns.saturating_sub(clock.now_ns()));
            limit = match left_ns {
                Some(0) => {
                    self.end();
                    limit.end_ns = None;
                    limit
                }
                Some(left_ns) => {
                    let span = Duration::from_nanos(left_ns);
                    let waited = self.time_limit_changed.wait_timeout(limit, span);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.time_limit_changed.wait(limit).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Makes `watch_time_limit` return.
    pub(super) fn end_watch(&self) {
        lock(&self.time_limit).over = true;
        self.time_limit_changed.notify_all();
    }

    /// Records an error and ends the run. Only the first error is kept: it is the cause of the others.
    pub(super) fn fail(&self, error: ScriptError) {
        lock(&self.first_error).get_or_insert(error);
        self.end();
    }

    pub(super) fn take_error(&self) -> Option<ScriptError> {
        lock(&self.first_error).take()
    }

    /// Writes a line of results.
    pub(super) fn write_line(&self, text: &[u8]) -> Result<(), mlua::Error> {
        let mut output = lock(&self.options.output);
        let written =
            output.write_all(text).and_then(|()| output.write_all(b"\n")).and_then(|()| output.flush());
        drop(output);
        written.map_err(|error| self.output_failed(error))
    }

    /// Writes results.
    pub(super) fn write(&self, text: &[u8]) -> Result<(), mlua::Error> {
        lock(&self.options.output).write_all(text).map_err(|error| self.output_failed(error))
    }

    fn output_failed(&self, error: io::Error) -> mlua::Error {
        let words = mlua::Error::runtime(format!("writing the output: {error}"));
        self.fail(ScriptError::Output(error));
        words
    }

    /// The devices opened so far.
    pub(super) fn devices(&self) -> MutexGuard<'_, Vec<Arc<ScriptDevice>>> {
        lock(&self.devices)
    }

    /// Reports once that ports are open and traffic can start.
    pub(super) fn announce(&self) -> Result<(), mlua::Error> {
        if self.announced.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let devices = self.devices().clone();
        let infos: Vec<_> = devices.iter().map(|device| device.info()).collect();
        (self.options.ready)(&infos).map_err(|error| self.output_failed(error))
    }

    /// Makes `queue` number the frames of `stream`, unless another queue does so.
    pub(super) fn claim_stream(&self, stream: u16, queue: &str) -> Result<(), String> {
        let mut streams = lock(&self.streams);
        match streams.get(&stream) {
            Some(owner) if owner != queue => Err(format!(
                "sign: stream {stream} is numbered by {owner} already: give each signing queue its own stream"
            )),
            Some(_) => Ok(()),
            None => {
                streams.insert(stream, queue.to_owned());
                Ok(())
            }
        }
    }

    /// Adds a record for the task that begins, and returns its number.
    pub(super) fn add_task(&self) -> usize {
        let mut tasks = lock(&self.tasks);
        tasks.records.push(TaskRecord::default());
        tasks.records.len() - 1
    }

    pub(super) fn add_thread(&self, thread: JoinHandle<()>) {
        lock(&self.tasks).threads.push(thread);
    }

    /// Records that a task has ended, with its result.
    pub(super) fn end_task(&self, number: usize, returned: Option<Vec<Transfer>>) {
        if let Some(record) = lock(&self.tasks).records.get_mut(number) {
            record.ended = true;
            record.returned = returned.or(record.returned.take());
        }
        self.task_ended.notify_all();
    }

    pub(super) fn is_task_running(&self, number: usize) -> bool {
        lock(&self.tasks).records.get(number).is_some_and(|record| !record.ended)
    }

    /// Waits until the task has ended. Returns the task's result, unless an earlier call took it.
    pub(super) fn wait_for_task(&self, number: usize) -> Vec<Transfer> {
        let mut tasks = lock(&self.tasks);
        while tasks.records.get(number).is_some_and(|record| !record.ended) {
            tasks = self.task_ended.wait(tasks).unwrap_or_else(PoisonError::into_inner);
        }
        tasks.records.get_mut(number).and_then(|record| record.returned.take()).unwrap_or_default()
    }

    /// Waits until all tasks have ended.
    pub(super) fn wait_for_tasks(&self) {
        let mut tasks = lock(&self.tasks);
        while tasks.records.iter().any(|record| !record.ended) {
            tasks = self.task_ended.wait(tasks).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the threads, which have the ports open.
    pub(super) fn join_threads(&self) {
        let threads = std::mem::take(&mut lock(&self.tasks).threads);
        for thread in threads {
            // A panic is not reported here: it was recorded as the task's error when it happened.
            let _ = thread.join();
        }
    }
}
