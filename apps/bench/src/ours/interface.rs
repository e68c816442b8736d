//! Ringroad on network interfaces: one process that opens them itself and steps the datapath on its own thread.

use std::time::Duration;

use super::{LIMIT, Programs, Signing, WorkerProcess};
use crate::contestant::ContestantFacts;
use crate::error::BenchError;
use crate::plan::{InterfaceWork, Mechanism};
use crate::process::BenchProcess;
use crate::reading::Reading;
use crate::stop::StopFlag;
use crate::veth::{InterfaceProgram, RunningProgram, Task};
use crate::worker::{COUNT, GO, WorkerLine, WorkerOptions, WorkerRole};

/// Program that opens interfaces with Ringroad.
#[derive(Debug)]
pub(crate) struct RingroadInterface {
    programs: Programs,
    /// Kind of the generator, if this is one of several generators.
    signing: Option<Signing>,
    command: Option<String>,
    mode: Option<String>,
}

impl RingroadInterface {
    /// Makes the program with the worker of `programs`.
    pub(crate) fn new(programs: &Programs) -> Self {
        Self { programs: programs.clone(), signing: None, command: None, mode: None }
    }

    /// Makes the program as one of several generators.
    pub(crate) fn generating(signing: Signing, programs: &Programs) -> Self {
        Self { signing: Some(signing), ..Self::new(programs) }
    }
}

/// Returns the ports of a task. The sending port shares the other port's region, so that buffers can be exchanged.
fn ports(task: &Task<'_>) -> Vec<String> {
    let port = |interface: &&str| match task.mechanism {
        Mechanism::Xdp | Mechanism::Pcap => format!("xdp:{interface}"),
        // Immediate mode, since a forwarder must not wait for a block of frames.
        Mechanism::Packet if task.flow == InterfaceWork::Io => format!("packet:{interface}@immediate=1"),
        Mechanism::Packet => format!("packet:{interface}"),
    };
    let mut ports: Vec<String> = task.interfaces.iter().map(port).collect();
    if let [first, second] = ports.as_mut_slice() {
        let name = first.split('@').next().unwrap_or_default();
        second.push_str("@share=");
        second.push_str(name);
    }
    ports
}

impl InterfaceProgram for RingroadInterface {
    fn name(&self) -> &str {
        self.signing.map_or("Ringroad", Signing::name)
    }

    fn start(&mut self, task: &Task<'_>) -> Result<Box<dyn RunningProgram>, BenchError> {
        let options = WorkerOptions {
            role: match task.flow {
                InterfaceWork::Tx => WorkerRole::Send,
                InterfaceWork::Gen => self.signing.unwrap_or(Signing::Signed).role(),
                InterfaceWork::Rx => WorkerRole::Receive,
                InterfaceWork::Io => WorkerRole::Forward,
            },
            ports: ports(task),
            frame_bytes: task.point.frame_bytes,
            burst_frames: task.point.burst_frames,
            cpu: task.cpu,
            // The worker has no interval of its own: it reports counts on request.
            interval: Duration::ZERO,
        };
        let started = WorkerProcess::start(&self.programs, &task.lab.namespace(), &options, &[], task.stop)?;
        self.command = Some(started.command);
        self.mode = Some(started.mode);
        Ok(Box::new(started.worker))
    }

    fn facts(&self, flow: InterfaceWork) -> ContestantFacts {
        ContestantFacts {
            name: self.name().into(),
            version: Some(concat!("Ringroad ", env!("CARGO_PKG_VERSION")).into()),
            commands: self.command.clone().into_iter().collect(),
            memory: self.mode.clone().unwrap_or_else(|| "not measured".into()),
            work_per_frame: match flow {
                InterfaceWork::Gen => self.signing.map_or("", Signing::work_per_frame),
                InterfaceWork::Tx => {
                    "42 header bytes written into the slot, payload left as it was; copied by the kernel, over AF_PACKET into its \
                     ring as well"
                }
                InterfaceWork::Rx => {
                    "copied by the kernel, over AF_PACKET out of its ring as well; dropped unread"
                }
                InterfaceWork::Io => {
                    "copied by the kernel twice, in and out; the buffer changes hands, over AF_PACKET it is copied out of one ring \
                     and into the other"
                }
            },
            counting: "",
        }
    }

    fn start_up(&self) -> Duration {
        Duration::from_millis(150)
    }
}

impl RunningProgram for WorkerProcess {
    fn begin(&mut self) -> Result<(), BenchError> {
        self.process.tell(GO)
    }

    fn process(&mut self) -> &mut BenchProcess {
        &mut self.process
    }

    fn received(&mut self, stop: &StopFlag) -> Result<Reading, BenchError> {
        Reading::of(|| {
            self.process.tell(COUNT)?;
            self.answer("report its count of received frames", LIMIT, stop, |line| match line {
                WorkerLine::SoFar { so_far_frames } => Some(so_far_frames),
                _ => None,
            })
        })
    }
}
