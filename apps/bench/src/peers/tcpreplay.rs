//! tcpreplay: sends a capture from memory repeatedly, with a system call for each frame.

use std::time::Duration;

use ringroad_capture::{CaptureFormat, CaptureWriter};

use super::foreign;
use crate::contestant::ContestantFacts;
use crate::error::BenchError;
use crate::plan::InterfaceWork;
use crate::process::BenchProcess;
use crate::veth::{InterfaceProgram, RunningProgram, Task};
use crate::worker::template;

/// Number of frames in the capture, enough to make the cost of starting it again negligible.
const FRAMES: u64 = 1024;

/// Time between the frames of the capture, ns; no program uses it.
const SPACING_NS: u64 = 1000;

/// tcpreplay with its fastest settings: the capture in memory, no flow statistics.
#[derive(Debug)]
pub(super) struct Tcpreplay {
    command: Option<String>,
    version: Option<String>,
}

impl Tcpreplay {
    /// Finds tcpreplay in PATH.
    pub(super) fn find() -> Result<Self, BenchError> {
        foreign::must_be_installed("tcpreplay", "tcpreplay")?;
        Ok(Self { command: None, version: foreign::version("tcpreplay", "--version", 1) })
    }
}

impl InterfaceProgram for Tcpreplay {
    fn name(&self) -> &str {
        "tcpreplay"
    }

    fn start(&mut self, task: &Task<'_>) -> Result<Box<dyn RunningProgram>, BenchError> {
        let file = task.folder.join("frames.pcap");
        let frame = template(1, 2, task.point.slot_bytes());
        let mut capture = CaptureWriter::create(&file, CaptureFormat::Pcap, 0)?;
        for number in 0..FRAMES {
            capture.write_frame(number * SPACING_NS, &frame, task.point.slot_bytes())?;
        }
        capture.finish()?;
        let interface = task.interfaces.first().copied().unwrap_or_default();
        let file = file.to_string_lossy();
        let words = [
            "tcpreplay",
            "--intf1",
            interface,
            "--topspeed",
            "--loop=0",
            "--preload-pcap",
            "--no-flow-stats",
            &file,
        ];
        let (process, command) = foreign::start(task, &words)?;
        self.command = Some(command);
        Ok(Box::new(RunningTcpreplay(process)))
    }

    fn facts(&self, _flow: InterfaceWork) -> ContestantFacts {
        ContestantFacts {
            name: self.name().into(),
            version: self.version.clone(),
            commands: self.command.clone().into_iter().collect(),
            memory: "the capture, 1024 frames".into(),
            work_per_frame: "the capture's next frame, handed to the kernel with a system call of its own; copied by the kernel",
            counting: "",
        }
    }

    fn start_up(&self) -> Duration {
        Duration::from_millis(100)
    }
}

struct RunningTcpreplay(BenchProcess);

impl RunningProgram for RunningTcpreplay {
    fn process(&mut self) -> &mut BenchProcess {
        &mut self.0
    }
}
