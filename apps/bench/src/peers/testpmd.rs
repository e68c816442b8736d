//! Processes of `dpdk-testpmd`: start, counters, end.
//!
//! Each process shares its forwarding core only with its own idle main thread. It has a private folder for sockets and
//! run-time files (removed with the turn), a file prefix of its own, and anonymous memory (`--in-memory`, or
//! `--no-huge` without huge pages). So it leaves no files in /run, /dev/hugepages or /tmp. It forwards from its start,
//! and ends when its standard input ends.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use ringroad_guest::testpmd::CommandLine;
use ringroad_netdev::Namespace;

use super::telemetry::{PortCounter, Telemetry};
use crate::error::BenchError;
use crate::hugepages::{HugepageReserve, PAGE_BYTES, PeerMemory};
use crate::process::{BenchProcess, EndsBy};
use crate::stop::StopFlag;
use crate::turn::Turn;

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

/// Maximum number of starts of a process. Another program may take free pages of the pool before the process does; the
/// next start reserves other pages.
const STARTS: usize = 5;

/// testpmd as installed on this machine, and the memory for its processes.
#[derive(Debug)]
pub struct Installation {
    program: PathBuf,
    memory: PeerMemory,
}

impl Installation {
    /// Finds testpmd in PATH and arranges memory for two processes of it.
    ///
    /// # Errors
    /// [`BenchError::PeerAbsent`]: testpmd is not installed.
    pub fn find() -> Result<Self, BenchError> {
        Self::find_in(&std::env::var_os("PATH").unwrap_or_default())
    }

    fn find_in(search: &OsStr) -> Result<Self, BenchError> {
        let program = PROGRAMS
            .iter()
            .flat_map(|name| std::env::split_paths(search).map(move |folder| folder.join(name)))
            .find(|candidate| candidate.is_file())
            .ok_or(BenchError::PeerAbsent { program: "dpdk-testpmd", package: PACKAGE })?;
        let pages = PROCESSES * PROCESS_MEBIBYTES * (1 << 20) / PAGE_BYTES;
        Ok(Self { program, memory: PeerMemory::arrange(pages) })
    }

    /// Describes the memory of the processes.
    pub(super) fn memory(&self) -> String {
        self.memory.describe()
    }

    /// Whether the processes have huge pages, which zero-copy modes need.
    pub(super) fn has_hugepages(&self) -> bool {
        matches!(self.memory, PeerMemory::Hugepages { .. })
    }

    /// Starts processes in their order, each ready before the next starts. `counter` of the last that counts on some
    /// ports is the turn's.
    pub(crate) fn start(
        &self,
        launches: &[Launch],
        counter: PortCounter,
        namespace: &Namespace,
        folder: &Path,
        stop: &StopFlag,
    ) -> Result<Turn, BenchError> {
        // Pages are declared before the processes, so that they are returned after the processes have ended.
        let mut pages: Vec<_> = self.memory.lend()?.into_iter().collect();
        let (mut processes, mut counted) = (Vec::new(), None);
        for launch in launches {
            let (process, telemetry) = self.start_one(launch, &mut pages, namespace, folder, stop)?;
            processes.push(process);
            if launch.counted_ports > 0 {
                counted = Some((telemetry, launch.counted_ports));
            }
        }
        let mut processes = processes.into_iter();
        let (Some(first), Some((mut telemetry, ports))) = (processes.next(), counted) else {
            return Err(BenchError::Implausible("the set-up has no process that counts".into()));
        };
        let version = Some(telemetry.version().to_owned());
        let read = move |_: &mut BenchProcess, _: &StopFlag| {
            let readings = (0..ports).map(|port| telemetry.frames(port, counter));
            Ok(readings.collect::<Result<Vec<_>, BenchError>>()?.into())
        };
        Ok(Turn { others: processes.collect(), _pages: pages, version, ..Turn::of(first, Box::new(read)) })
    }

    /// Starts a process and waits until it forwards. More `pages` are lent to it if another program takes free pages of
    /// the pool first.
    fn start_one(
        &self,
        launch: &Launch,
        pages: &mut Vec<HugepageReserve>,
        namespace: &Namespace,
        folder: &Path,
        stop: &StopFlag,
    ) -> Result<(BenchProcess, Telemetry), BenchError> {
        let prefix = prefix_of(launch.role);
        let mut command = vec![self.program.clone().into()];
        command.extend(self.arguments(launch, &prefix));
        let environment = [("RUNTIME_DIRECTORY", folder.as_os_str())];
        let name = name_of(launch.role);
        let start = || {
            // Line-buffered output, even into a pipe: the line that reports forwarding is the awaited event.
            let wrapper = ["stdbuf", "-oL"];
            let mut process =
                BenchProcess::start(namespace, &name, &wrapper, &command, &environment, EndsBy::Input)?;
            process.wait_for_line("start forwarding", stop, |line| {
                line.contains("Press enter to exit").then_some(())
            })?;
            Ok(process)
        };
        let mut starts = 1;
        let process = loop {
            match start() {
                Err(error) if lacks_memory(&error) && starts < STARTS => {
                    pages.push(self.memory.lend()?.ok_or(error)?);
                    starts += 1;
                }
                started => break started?,
            }
        };
        Ok((process, Self::telemetry(launch.role, folder)?))
    }

    /// Opens another connection to the telemetry of the process with this role in the turn of `folder`.
    pub(crate) fn telemetry(role: &str, folder: &Path) -> Result<Telemetry, BenchError> {
        let socket = folder.join("dpdk").join(prefix_of(role)).join("dpdk_telemetry.v2");
        Telemetry::connect(&name_of(role), &socket)
    }

    fn arguments(&self, launch: &Launch, prefix: &str) -> Vec<OsString> {
        let own = [format!("--mbcache={BUFFER_CACHE}"), format!("--burst={}", launch.burst_frames)];
        let line = CommandLine {
            // The main thread has the first CPU, too.
            cores: launch.cpus.first().into_iter().chain(&launch.cpus).copied().collect(),
            mebibytes: PROCESS_MEBIBYTES,
            huge_pages: self.has_hugepages(),
            prefix: prefix.into(),
            plugins: launch.plugin.iter().cloned().collect(),
            devices: launch.devices.clone(),
            options: own.iter().chain(&launch.mode).map(OsString::from).collect(),
        };
        line.arguments()
    }
}

/// Prefix of the files of the process with this role.
fn prefix_of(role: &str) -> String {
    format!("rr{}{role}", std::process::id())
}

/// Name of the process with this role, for errors.
fn name_of(role: &str) -> String {
    format!("testpmd ({role})")
}

/// Whether a process has ended because it found too few pages.
fn lacks_memory(error: &BenchError) -> bool {
    matches!(error, BenchError::Exited { last_words, .. } if last_words.contains("Cannot allocate memory"))
}

/// Settings of one process of a set-up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Launch {
    /// Role in this set-up, in one word.
    pub role: &'static str,
    /// CPUs for forwarding.
    pub cpus: Vec<usize>,
    /// Path of a driver that is not part of the installed DPDK.
    pub plugin: Option<PathBuf>,
    /// Devices, as arguments of `--vdev`.
    pub devices: Vec<OsString>,
    /// Number of frames per burst.
    pub burst_frames: u32,
    /// Forwarding mode and its options.
    pub mode: Vec<String>,
    /// Number of ports whose frames count, if the process counts.
    pub counted_ports: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_testpmd_is_an_error_that_names_the_debian_package() {
        let error = Installation::find_in("/nonexistent".as_ref()).unwrap_err();
        assert!(error.to_string().contains("apt install dpdk-dev"), "{error}");
    }

    #[test]
    fn without_huge_pages_the_process_has_no_in_memory_option() {
        let installation = Installation {
            program: "testpmd".into(),
            memory: PeerMemory::OrdinaryPages { reason: String::new() },
        };
        let devices = vec!["net_null0".into()];
        let launch = Launch { role: "null", cpus: vec![3], devices, burst_frames: 8, ..Launch::default() };
        let arguments = installation.arguments(&launch, "p");
        assert!(arguments.contains(&"--no-huge".into()));
        assert!(!arguments.contains(&"--in-memory".into()));
        assert!(arguments.contains(&"0@3,1@3".into()));
        assert!(arguments.contains(&"--burst=8".into()));
    }
}
