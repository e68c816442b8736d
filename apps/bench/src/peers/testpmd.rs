//! Processes of `dpdk-testpmd`: start, counters, end.
//!
//! Each process shares its forwarding core only with its own idle main thread. It has a private folder for sockets and
//! run-time files (removed with the turn), a file prefix of its own, and anonymous memory (`--in-memory`, or
//! `--no-huge` without huge pages). So it leaves no files in /run, /dev/hugepages or /tmp. It forwards from its start,
//! and ends when its standard input ends.

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::telemetry::{PortCounter, Telemetry};
use ringroad_guest::testpmd::CommandLine;
use ringroad_netdev::Namespace;

use crate::contestant::{Contestant, ContestantFacts, CorePair, Sample};
use crate::error::BenchError;
use crate::hugepages::{HugepageReserve, PAGE_BYTES, PeerMemory};
use crate::plan::{FramePath, Point};
use crate::process::{BenchProcess, EndsBy, command_line, cpu_wait_share};
use crate::reading::{Reading, sample_between};
use crate::sockets::socket_folder;
use crate::stop::StopFlag;

/// Names of the program, newest first.
const PROGRAMS: [&str; 2] = ["dpdk-testpmd", "testpmd"];

/// Debian package of testpmd.
const PACKAGE: &str = "dpdk-dev";

/// Memory of one process, MiB: twice the size of 16384 packet buffers of 2 KiB and the rings.
const PROCESS_MEBIBYTES: u64 = 128;

/// Number of processes in one turn.
const PROCESSES: u64 = 2;

/// Size of each core's buffer cache (DPDK's maximum). With the default of 250, bursts of 256 bypass the cache and use
/// the whole pool in turn: memif and the null ports lose a third of their rate that way.
const BUFFER_CACHE: &str = "512";

/// Time limit for a process to start, or for frames to begin to flow: long, for machines with other load.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Maximum number of starts of a process. Another program may take free pages of the pool before the process does; the
/// next start reserves other pages.
const STARTS: usize = 5;

/// Time between polls of a counter until it begins to increase; there is no event for that.
const FLOW_CHECK: Duration = Duration::from_millis(5);

/// Time between the first frame and the start of a sample.
const SETTLE: Duration = Duration::from_millis(200);

/// testpmd as installed on this machine, and the memory for its processes.
#[derive(Debug)]
pub struct Installation {
    program: PathBuf,
    memory: PeerMemory,
    stop: StopFlag,
    version: OnceCell<String>,
}

impl Installation {
    /// Finds testpmd in PATH and arranges memory for two processes of it.
    ///
    /// # Errors
    /// [`BenchError::PeerAbsent`]: testpmd is not installed.
    pub fn find(stop: &StopFlag) -> Result<Rc<Self>, BenchError> {
        let search = std::env::var_os("PATH").unwrap_or_default();
        Self::find_in(&search, stop)
    }

    fn find_in(search: &OsStr, stop: &StopFlag) -> Result<Rc<Self>, BenchError> {
        let program = PROGRAMS
            .iter()
            .flat_map(|name| std::env::split_paths(search).map(move |folder| folder.join(name)))
            .find(|candidate| candidate.is_file())
            .ok_or(BenchError::PeerAbsent { program: "dpdk-testpmd", package: PACKAGE })?;
        let pages = PROCESSES * PROCESS_MEBIBYTES * (1 << 20) / PAGE_BYTES;
        let memory = PeerMemory::arrange(pages);
        Ok(Rc::new(Self { program, memory, stop: stop.clone(), version: OnceCell::new() }))
    }

    /// Reserves memory for one turn, if a reservation is needed.
    pub(crate) fn lend_memory(&self) -> Result<Option<HugepageReserve>, BenchError> {
        Ok(self.memory.lend()?)
    }

    /// Returns testpmd's version, if known, and memory.
    pub(crate) fn facts(&self) -> ContestantFacts {
        ContestantFacts {
            version: self.version.get().cloned(),
            memory: self.memory.describe(),
            ..ContestantFacts::default()
        }
    }

    /// Whether the processes have huge pages, which zero-copy modes need.
    pub(super) fn has_hugepages(&self) -> bool {
        matches!(self.memory, PeerMemory::Hugepages { .. })
    }
}

/// Settings of one process of a set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    /// Role in this set-up, in one word.
    pub role: &'static str,
    /// CPU for forwarding.
    pub cpu: usize,
    /// Path of a driver that is not part of the installed DPDK.
    pub plugin: Option<PathBuf>,
    /// Devices, as arguments of `--vdev`.
    pub devices: Vec<OsString>,
    /// Number of frames per burst.
    pub burst_frames: u32,
    /// Forwarding mode and its options.
    pub mode: Vec<String>,
}

/// Kind of frame generation of a testpmd that only sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generator {
    /// The same frame each time, with the headers written into each buffer.
    TxOnly,
    /// New headers for each frame, with the flow's address and checksum. There is one flow, as for all contestants.
    FlowGen,
}

impl Generator {
    /// Returns the name in tables.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::TxOnly => "DPDK txonly",
            Self::FlowGen => "DPDK flowgen",
        }
    }

    /// Describes the work on each frame before the driver gets it.
    pub(super) const fn work_per_frame(self) -> &'static str {
        match self {
            Self::TxOnly => "buffer allocated, 42 header bytes written, payload left as it was",
            Self::FlowGen => {
                "buffer allocated, 42 header bytes computed and written with the IPv4 checksum, payload left as it was"
            }
        }
    }

    /// Returns the mode and its options.
    pub(super) fn mode(self, point: &Point) -> Vec<String> {
        let size = format!("--txpkts={}", point.slot_bytes());
        match self {
            Self::TxOnly => vec!["--forward-mode=txonly".into(), size],
            Self::FlowGen => vec!["--forward-mode=flowgen".into(), "--flowgen-flows=1".into(), size],
        }
    }
}

/// A peer that consists of testpmd processes.
pub(super) trait Setup {
    /// Returns the name in tables.
    fn name(&self) -> &'static str;
    /// Returns the path of the set-up.
    fn path(&self) -> FramePath;
    /// Describes the work on each frame.
    fn work_per_frame(&self) -> &'static str;
    /// Returns the processes in the order of starting, each ready before the next starts. Sockets are in `folder`.
    fn launches(&self, folder: &Path, point: &Point, cores: CorePair) -> Vec<Launch>;
    /// Returns the number of ports, of the first or last process, whose frames count.
    fn counted_ports(&self) -> u16 {
        1
    }
    /// Returns the counter of these ports that counts.
    fn counter(&self) -> PortCounter {
        PortCounter::Received
    }
    /// Whether the process started first counts, or else the last.
    fn first_process_counts(&self) -> bool {
        true
    }
}

/// Contestant made of a set-up of testpmd processes.
#[derive(Debug)]
pub(super) struct TestpmdPeer<S> {
    setup: S,
    installation: Rc<Installation>,
    cores: CorePair,
    commands: Vec<String>,
}

impl<S: Setup> TestpmdPeer<S> {
    /// Makes a contestant of the set-up on these cores.
    pub(super) fn new(setup: S, installation: Rc<Installation>, cores: CorePair) -> Self {
        Self { setup, installation, cores, commands: Vec::new() }
    }
}

impl<S: Setup> Contestant for TestpmdPeer<S> {
    fn name(&self) -> &str {
        self.setup.name()
    }

    fn measure(&mut self, point: &Point, duration: Duration) -> Result<Sample, BenchError> {
        if point.path != self.setup.path() {
            return Err(BenchError::WrongPath { contestant: self.name().into(), path: point.path });
        }
        // Pages are declared before the processes, so that they are returned after the processes have ended.
        let _pages = self.installation.lend_memory()?;
        let folder = socket_folder()?;
        let stop = &self.installation.stop;
        self.commands.clear();
        let mut processes = Vec::new();
        for launch in self.setup.launches(folder.path(), point, self.cores) {
            let (process, command) =
                Testpmd::start(&self.installation, &Namespace::Current, &launch, folder.path())?;
            self.commands.push(command);
            processes.push(process);
        }
        let counting = if self.setup.first_process_counts() { 0 } else { processes.len().saturating_sub(1) };
        let counted = (self.setup.counted_ports(), self.setup.counter());
        let sample = count(&mut processes, counting, counted, duration, stop);
        // All processes get the request first, so that they end together and not one grace period after another.
        processes.iter_mut().for_each(|process| process.process.ask_to_end());
        sample?.checked(duration)
    }

    fn facts(&self) -> ContestantFacts {
        ContestantFacts {
            name: self.name().into(),
            commands: self.commands.clone(),
            work_per_frame: self.setup.work_per_frame(),
            counting: match self.setup.counter() {
                PortCounter::Received => {
                    "the receiving ports' own counters, read over DPDK's telemetry socket at both ends of the interval"
                }
                PortCounter::Sent => {
                    "the sending ports' own counters, read over DPDK's telemetry socket at both ends of the interval"
                }
            },
            ..self.installation.facts()
        }
    }

    fn turn_overhead(&self) -> Duration {
        // Measured start-up times: 0.3 s for one process, 0.9 s more for a process with virtio-user, then the time
        // until the first frame and the settling time.
        let one_process = matches!(self.setup.path(), FramePath::Null | FramePath::GenNull);
        let start = if one_process { 400 } else { 1300 };
        SETTLE + Duration::from_millis(start)
    }
}

/// A running testpmd process.
#[derive(Debug)]
pub(crate) struct Testpmd {
    pub(super) telemetry: Telemetry,
    pub process: BenchProcess,
    /// Huge pages, which are returned after the process has ended.
    _pages: Vec<HugepageReserve>,
}

impl Testpmd {
    /// Starts a process in a network `namespace` and waits until it forwards. Returns the process with its command
    /// line.
    pub(crate) fn start(
        installation: &Installation,
        namespace: &Namespace,
        launch: &Launch,
        folder: &Path,
    ) -> Result<(Self, String), BenchError> {
        let prefix = format!("rr{}{}", std::process::id(), launch.role);
        let arguments = arguments(installation, launch, &prefix);
        // Line-buffered output, even into a pipe: the line that reports forwarding is the awaited event.
        let mut command: Vec<OsString> = vec!["-oL".into(), installation.program.clone().into()];
        command.extend(arguments.iter().cloned());
        let environment = [("RUNTIME_DIRECTORY", folder.as_os_str())];
        let name = format!("testpmd ({})", launch.role);
        let start = || {
            let program = "stdbuf".as_ref();
            let mut process =
                BenchProcess::start(namespace, &name, program, &command, &environment, EndsBy::Input)?;
            process.wait_for_line("start forwarding", START_LIMIT, &installation.stop, |line| {
                line.contains("Press enter to exit").then_some(())
            })?;
            Ok(process)
        };
        let mut pages = Vec::new();
        let process = loop {
            match start() {
                Err(error) if lacks_memory(&error) && pages.len() + 1 < STARTS => {
                    match installation.lend_memory()? {
                        Some(reserve) => pages.push(reserve),
                        None => return Err(error),
                    }
                }
                started => break started?,
            }
        };
        let telemetry =
            Telemetry::connect(&name, &folder.join("dpdk").join(&prefix).join("dpdk_telemetry.v2"))?;
        let _ = installation.version.set(telemetry.version().to_owned());
        Ok((
            Self { telemetry, process, _pages: pages },
            command_line(installation.program.as_os_str(), &arguments),
        ))
    }

    /// Returns the number of frames that ports `0..ports` have sent since the start.
    pub(crate) fn sent(&mut self, ports: u16) -> Result<u64, BenchError> {
        self.total((ports, PortCounter::Sent))
    }

    /// Waits until all ports `0..counted.0` count frames, and for a settling time.
    fn await_flow(&mut self, counted: (u16, PortCounter), stop: &StopFlag) -> Result<(), BenchError> {
        let began = Instant::now();
        while self.read(counted)?.iter().any(|reading| reading.frames == 0) {
            if began.elapsed() > START_LIMIT {
                return Err(self.process.not_ready("count a frame on every port", START_LIMIT));
            }
            stop.pass(FLOW_CHECK)?;
        }
        stop.pass(SETTLE)
    }

    /// Returns the number of frames that ports `0..ports` have received since the start.
    pub(crate) fn received(&mut self, ports: u16) -> Result<u64, BenchError> {
        self.total((ports, PortCounter::Received))
    }

    fn total(&mut self, counted: (u16, PortCounter)) -> Result<u64, BenchError> {
        Ok(self.read(counted)?.iter().map(|reading| reading.frames).sum())
    }

    fn read(&mut self, (ports, counter): (u16, PortCounter)) -> Result<Vec<Reading>, BenchError> {
        (0..ports).map(|port| self.telemetry.frames(port, counter)).collect()
    }
}

/// Counts the frames of process `counting` on ports `0..counted.0` for `duration`.
fn count(
    processes: &mut [Testpmd],
    counting: usize,
    counted: (u16, PortCounter),
    duration: Duration,
    stop: &StopFlag,
) -> Result<Sample, BenchError> {
    let waits =
        |processes: &[Testpmd]| processes.iter().map(|one| one.process.thread_times()).collect::<Vec<_>>();
    let counter = |processes: &mut [Testpmd]| match processes.get_mut(counting) {
        Some(process) => process.read(counted),
        None => Err(BenchError::Implausible("the set-up has no processes".into())),
    };
    if let Some(process) = processes.get_mut(counting) {
        process.await_flow(counted, stop)?;
    }
    let waits_before = waits(processes);
    let began = Instant::now();
    let start = counter(processes)?;
    stop.pass(duration)?;
    let end = counter(processes)?;
    let cpu_wait = cpu_wait_share(&waits_before, &waits(processes), began.elapsed());
    Ok(Sample { cpu_wait, ..sample_between(&start, &end) })
}

/// Whether a process has ended because it found too few pages.
fn lacks_memory(error: &BenchError) -> bool {
    matches!(error, BenchError::Exited { last_words, .. } if last_words.contains("Cannot allocate memory"))
}

fn arguments(installation: &Installation, launch: &Launch, prefix: &str) -> Vec<OsString> {
    let own = [format!("--mbcache={BUFFER_CACHE}"), format!("--burst={}", launch.burst_frames)];
    let line = CommandLine {
        cores: vec![launch.cpu],
        mebibytes: PROCESS_MEBIBYTES,
        huge_pages: installation.has_hugepages(),
        prefix: prefix.into(),
        plugins: launch.plugin.iter().cloned().collect(),
        devices: launch.devices.clone(),
        options: own.iter().chain(&launch.mode).map(OsString::from).collect(),
    };
    line.arguments()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_testpmd_is_an_error_that_names_the_debian_package() {
        let error = Installation::find_in("/nonexistent".as_ref(), &StopFlag::new()).unwrap_err();
        assert!(error.to_string().contains("apt install dpdk-dev"), "{error}");
    }

    #[test]
    fn without_huge_pages_the_process_has_no_in_memory_option() {
        let installation = Installation {
            program: "testpmd".into(),
            memory: PeerMemory::OrdinaryPages { reason: String::new() },
            stop: StopFlag::new(),
            version: OnceCell::new(),
        };
        let launch = Launch {
            role: "null",
            cpu: 3,
            plugin: None,
            devices: vec!["net_null0".into()],
            burst_frames: 8,
            mode: vec![],
        };
        let arguments = arguments(&installation, &launch, "p");
        assert!(arguments.contains(&"--no-huge".into()));
        assert!(!arguments.contains(&"--in-memory".into()));
        assert!(arguments.contains(&"0@3,1@3".into()));
        assert!(arguments.contains(&"--burst=8".into()));
    }
}
