//! trafgen of the netsniff-ng tools: frames from a description, through an AF_PACKET transmit ring.

use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};

use super::foreign;
use crate::contestant::ContestantFacts;
use crate::error::BenchError;
use crate::plan::InterfaceWork;
use crate::process::BenchProcess;
use crate::veth::{InterfaceProgram, RunningProgram, Task};
use crate::worker::template;

/// Time limit to read the description and open the interface.
const LIMIT: Duration = Duration::from_secs(60);

/// trafgen with its own choice of ring, and one sending process.
#[derive(Debug)]
pub(super) struct Trafgen {
    command: Option<String>,
    version: Option<String>,
}

impl Trafgen {
    /// Finds trafgen in PATH.
    pub(super) fn find() -> Result<Self, BenchError> {
        foreign::must_be_installed("trafgen", "netsniff-ng")?;
        Ok(Self { command: None, version: foreign::version("trafgen", "--version", 1) })
    }
}

/// Returns a description of `frame`, byte by byte.
fn description(frame: &[u8]) -> String {
    let bytes: Vec<String> = frame.iter().map(|byte| format!("0x{byte:02x}")).collect();
    format!("{{ {} }}\n", bytes.join(", "))
}

impl InterfaceProgram for Trafgen {
    fn name(&self) -> &str {
        "trafgen"
    }

    fn start(&mut self, task: &Task<'_>) -> Result<Box<dyn RunningProgram>, BenchError> {
        let file = task.folder.join("frame.trafgen");
        std::fs::write(&file, description(&template(1, 2, task.point.slot_bytes())))
            .map_err(BenchError::TemporaryDirectory)?;
        let interface = task.interfaces.first().copied().unwrap_or_default();
        let file = file.to_string_lossy();
        // The last two options keep trafgen from changing limits and interrupts of the whole machine.
        let words =
            ["trafgen", "--dev", interface, "--conf", &file, "--cpus", "1", "--no-sock-mem", "--notouch-irq"];
        let (mut process, command) = foreign::start(task, &words)?;
        self.command = Some(command);
        process.wait_for_line("start sending", LIMIT, task.stop, |line| {
            line.starts_with("Running!").then_some(())
        })?;
        // The first process waits for a second process, which sends, and has moved itself to CPU 0 by now.
        let sender = process.child_called("trafgen").ok_or_else(|| process.exited())?;
        let mut cpus = CpuSet::new();
        cpus.set(task.cpu);
        if sched_setaffinity(Some(sender), &cpus).is_err() {
            return Err(process.exited());
        }
        process.work_is_done_by(sender);
        Ok(Box::new(RunningTrafgen(process)))
    }

    fn facts(&self, _flow: InterfaceWork) -> ContestantFacts {
        ContestantFacts {
            name: self.name().into(),
            version: self.version.clone(),
            commands: self.command.clone().into_iter().collect(),
            memory: "an AF_PACKET transmit ring, trafgen's default".into(),
            work_per_frame: "the same frame each time, copied into the ring, and by the kernel",
            counting: "",
        }
    }

    fn start_up(&self) -> Duration {
        Duration::from_millis(100)
    }
}

struct RunningTrafgen(BenchProcess);

impl RunningProgram for RunningTrafgen {
    fn process(&mut self) -> &mut BenchProcess {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_has_every_byte_in_order() {
        assert_eq!(description(&[0, 0x1f, 255]), "{ 0x00, 0x1f, 0xff }\n");
    }
}
