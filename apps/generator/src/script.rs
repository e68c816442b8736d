//! Traffic scripts in Lua: they build and change the frames of a batch, and set when and how fast they are sent.
//!
//! A script is written as for MoonGen: `configure(parser)` describes its arguments, `master(args)` opens ports and
//! starts tasks, and each task is a global function that runs in its own thread and Lua state. The work for each frame
//! happens in code that LuaJIT compiles, over frames in memory of the task; Rust is called once per batch, to sign,
//! compute checksums, wait for the times of the frames and copy them into slots. `docs/scripts.md` is the manual.
//!
//! | module | content |
//! |---|---|
//! | `prelude/*.lua` | what `require` gives a script: packets, pools, counters, arguments |
//! | `state` | the Lua state of a task, and the functions behind the prelude |
//! | `task`, `run`, `transfer` | threads, what they share, values between them |
//! | `device`, `sender`, `receiver`, `load`, `meter` | ports, batches, rates, what became of signed frames |
//! | `buffers`, `memory`, `checksum`, `histogram` | frames in memory, what is written into them, numbers |

mod buffers;
mod checksum;
mod context;
mod device;
mod error;
mod histogram;
mod load;
mod memory;
mod meter;
mod receiver;
mod report;
mod run;
mod sender;
mod state;
mod task;
mod transfer;

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringroad::{OpenError, Port, PortInfo};

pub use self::error::ScriptError;
pub use self::report::{DeviceReport, QueueReport, ScriptReport};

use self::context::MASTER;
use self::run::Run;
use self::task::run_master;

/// The source of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptSource {
    /// Name of the script in messages.
    pub name: String,
    /// Lua text.
    pub source: String,
    /// File of the script. `require` searches its folder first, and never takes the script itself for a module.
    pub file: Option<PathBuf>,
}

impl ScriptSource {
    /// Reads a script from a file.
    ///
    /// # Errors
    /// [`ScriptError::Read`].
    pub fn read(path: &Path) -> Result<Self, ScriptError> {
        let source = std::fs::read_to_string(path)
            .map_err(|source| ScriptError::Read { path: path.to_owned(), source })?;
        Ok(Self { name: path.display().to_string(), source, file: Some(path.to_owned()) })
    }
}

/// Default output format of counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StatsFormat {
    /// Lines for users.
    #[default]
    Plain,
    /// A JSON object a line.
    Json,
}

impl StatsFormat {
    fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Json => "json",
        }
    }
}

/// Opens a port by its name, with a number of queues.
pub type PortOpener = dyn Fn(&str, u16) -> Result<Port, OpenError> + Send + Sync;
/// Receives a message: level (`debug`, `info`, `warn`, `error`), task, text.
pub type LogSink = dyn Fn(&str, &str, &str) + Send + Sync;
/// Called once when the ports are open and traffic can start.
pub type ReadySink = dyn Fn(&[&PortInfo]) -> io::Result<()> + Send + Sync;

/// The options of a script's run.
#[derive(Clone)]
pub struct ScriptOptions {
    /// Opens the ports that the script names.
    pub open: Arc<PortOpener>,
    /// Receives the script's output.
    pub output: Arc<Mutex<dyn Write + Send>>,
    /// Receives the script's messages.
    pub log: Arc<LogSink>,
    /// Called when the script's ports are open: at the first task, or at `device.waitForLinks()`.
    pub ready: Arc<ReadySink>,
    /// Flag that ends the run. A signal handler sets it, and so does the run.
    pub stop: Arc<AtomicBool>,
    /// Time after which the run ends.
    pub duration: Option<Duration>,
    /// Longest time without progress while the other sides take the last frames.
    pub drain: Duration,
    /// Processors of the tasks, in the order in which they start.
    pub cpus: Vec<usize>,
    /// Output format of counters.
    pub stats_format: StatsFormat,
}

impl Default for ScriptOptions {
    /// Default options: ports as [`Port::open_with`] opens them, output to standard output, messages to standard error.
    fn default() -> Self {
        Self {
            open: Arc::new(|name, queues| {
                let options = ringroad::OpenOptions { queues: Some(queues), ..Default::default() };
                Port::open_with(name, &options)
            }),
            output: Arc::new(Mutex::new(io::stdout())),
            log: Arc::new(|level, task, text| {
                // A message that cannot be written is dropped: it changes no result.
                let _ = writeln!(io::stderr(), "[{level}] {task}: {text}");
            }),
            ready: Arc::new(|_| Ok(())),
            stop: Arc::default(),
            duration: None,
            drain: Duration::from_secs(1),
            cpus: Vec::new(),
            stats_format: StatsFormat::default(),
        }
    }
}

impl fmt::Debug for ScriptOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptOptions")
            .field("duration", &self.duration)
            .field("cpus", &self.cpus)
            .field("stats_format", &self.stats_format)
            .finish_non_exhaustive()
    }
}

/// Runs `script` with `arguments` until master and all tasks have returned, hands over the frames still in their ports,
/// and closes them. `None`: the arguments requested help, which was printed.
///
/// # Errors
/// [`ScriptError`]: the first error of any task, which ends the other tasks.
pub fn run_script(
    script: ScriptSource,
    arguments: &[String],
    options: ScriptOptions,
) -> Result<Option<ScriptReport>, ScriptError> {
    let run = Arc::new(Run::new(script, arguments.to_vec(), options));
    let watch = {
        let run = Arc::clone(&run);
        std::thread::Builder::new().name("time limit".into()).spawn(move || run.watch_time_limit())
    };
    let watch = watch.map_err(ScriptError::Thread)?;
    let mut clock = run.clock.reader();
    let start_ns = clock.now_ns();
    let has_run = run_master(&run).unwrap_or_else(|error| {
        run.fail(error);
        true
    });
    run.join_threads();
    let seconds = (clock.now_ns() - start_ns) as f64 / 1e9;
    run.end_watch();
    // The thread only waits. A panic there would be a defect of this program and changes no result.
    let _ = watch.join();
    if let Some(error) = run.take_error() {
        return Err(error);
    }
    if !has_run {
        return Ok(None);
    }
    let devices = std::mem::take(&mut *run.devices());
    for device in &devices {
        device
            .drain(&run)
            .map_err(|error| ScriptError::in_task(MASTER, format!("{}: {error}", device.name)))?;
    }
    let sent = devices.iter().flat_map(|device| device.streams()).collect();
    let devices = devices.iter().map(|device| device.report(&sent)).collect();
    Ok(Some(ScriptReport { seconds, devices }))
}

#[cfg(test)]
mod tests;
