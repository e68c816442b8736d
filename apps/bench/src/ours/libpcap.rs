//! A program over libpcap on network interfaces: with the system's library, and with Ringroad's object before it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use super::{Programs, WorkerProcess, start_daemon};
use crate::contestant::ContestantFacts;
use crate::error::BenchError;
use crate::plan::InterfaceWork;
use crate::process::{BenchProcess, ThreadTimes};
use crate::reading::Reading;
use crate::stop::StopFlag;
use crate::veth::{InterfaceProgram, RunningProgram, Task};
use crate::worker::{WorkerOptions, WorkerRole};

/// Object that `ringroad run` preloads into a program over libpcap.
pub(super) const OBJECT: &str = "libringroad_preload_pcap.so";

/// Program over libpcap, with one of the two libraries.
#[derive(Debug)]
pub(crate) struct LibpcapProgram {
    programs: Programs,
    /// Path of Ringroad's object; `None` uses the system's library alone.
    object: Option<PathBuf>,
    commands: Vec<String>,
}

impl LibpcapProgram {
    /// Makes the program with the system's libpcap, or with an object before it.
    pub(crate) fn new(programs: &Programs, object: Option<PathBuf>) -> Self {
        Self { programs: programs.clone(), object, commands: Vec::new() }
    }
}

impl InterfaceProgram for LibpcapProgram {
    fn name(&self) -> &str {
        if self.object.is_some() { "Ringroad (libpcap program)" } else { "libpcap" }
    }

    fn start(&mut self, task: &Task<'_>) -> Result<Box<dyn RunningProgram>, BenchError> {
        self.commands.clear();
        let interface = task.interfaces.first().copied().unwrap_or_default();
        let (device, daemon) = match self.object {
            Some(_) => {
                let namespace = task.lab.namespace();
                // The daemon of a receiver runs on the receiver's processor, since the source uses the second
                // processor.
                let cpu = (task.flow == InterfaceWork::Rx).then_some(task.cpu);
                let daemon = start_daemon(&self.programs, &namespace, task.folder, cpu, task.stop)?;
                self.commands.push(daemon.command);
                (format!("xdp:{interface}"), Some((daemon.process, cpu.is_some())))
            }
            None => (interface.to_owned(), None),
        };
        let options = WorkerOptions {
            role: if task.flow == InterfaceWork::Tx { WorkerRole::PcapSend } else { WorkerRole::PcapReceive },
            ports: vec![device],
            frame_bytes: task.point.frame_bytes,
            burst_frames: task.point.burst_frames,
            cpu: task.cpu,
            interval: Duration::ZERO,
        };
        let socket = super::socket(task.folder);
        let mut environment = vec![("RINGROAD_SOCKET", socket.as_os_str())];
        environment.extend(self.object.iter().map(|object| ("LD_PRELOAD", OsStr::new(object))));
        let namespace = task.lab.namespace();
        let started = WorkerProcess::start(&self.programs, &namespace, &options, &environment, task.stop)?;
        self.commands.push(started.command);
        Ok(Box::new(RunningLibpcap { worker: started.worker, daemon }))
    }

    fn facts(&self, flow: InterfaceWork) -> ContestantFacts {
        ContestantFacts {
            name: self.name().into(),
            version: None,
            commands: self.commands.clone(),
            memory: match self.object {
                Some(_) => {
                    "rings of 4096 slots, AF_XDP rings of 8192 descriptors, the object's own choice".into()
                }
                None => "a ring of 2 MiB, libpcap's default".into(),
            },
            work_per_frame: match flow {
                InterfaceWork::Tx => "one frame handed to pcap_inject over and over",
                _ => "a callback of pcap_dispatch counts it, unread",
            },
            counting: "",
        }
    }

    fn start_up(&self) -> Duration {
        Duration::from_millis(150)
    }
}

/// Program, and the daemon that serves it. The program ends first.
struct RunningLibpcap {
    worker: WorkerProcess,
    /// Daemon, and whether it runs on the program's processor.
    daemon: Option<(BenchProcess, bool)>,
}

impl RunningProgram for RunningLibpcap {
    fn begin(&mut self) -> Result<(), BenchError> {
        self.worker.begin()
    }

    fn process(&mut self) -> &mut BenchProcess {
        self.worker.process()
    }

    fn thread_times(&mut self) -> ThreadTimes {
        match &self.daemon {
            Some((daemon, true)) => self.worker.process.thread_times_beside(daemon),
            _ => self.worker.process.thread_times(),
        }
    }

    fn received(&mut self, stop: &StopFlag) -> Result<Reading, BenchError> {
        self.worker.received(stop)
    }
}
