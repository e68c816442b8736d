//! tcpdump: a plain program on libpcap, which captures and discards.
//!
//! On SIGUSR1 it prints how many packets it has captured (tcpdump(1)).

use std::time::Duration;

use super::foreign;
use crate::contestant::ContestantFacts;
use crate::error::BenchError;
use crate::plan::InterfaceWork;
use crate::process::BenchProcess;
use crate::reading::Reading;
use crate::stop::StopFlag;
use crate::veth::{InterfaceProgram, RunningProgram, Task};

/// Time limit to open the interface, or to reply.
const LIMIT: Duration = Duration::from_secs(60);

/// tcpdump with libpcap's own choice of rings and buffers.
#[derive(Debug)]
pub(super) struct Tcpdump {
    command: Option<String>,
    version: Option<String>,
}

impl Tcpdump {
    /// Finds tcpdump in PATH.
    pub(super) fn find() -> Result<Self, BenchError> {
        foreign::must_be_installed("tcpdump", "tcpdump")?;
        Ok(Self { command: None, version: foreign::version("tcpdump", "--version", 2) })
    }
}

impl InterfaceProgram for Tcpdump {
    fn name(&self) -> &str {
        "libpcap (tcpdump)"
    }

    fn start(&mut self, task: &Task<'_>) -> Result<Box<dyn RunningProgram>, BenchError> {
        let interface = task.interfaces.first().copied().unwrap_or_default();
        let words = ["tcpdump", "-i", interface, "-n", "-w", "/dev/null"];
        let (mut process, command) = foreign::start(task, &words)?;
        self.command = Some(command);
        process.wait_for_line("open the interface", LIMIT, task.stop, |line| {
            line.contains("listening on").then_some(())
        })?;
        Ok(Box::new(RunningTcpdump(process)))
    }

    fn facts(&self, _flow: InterfaceWork) -> ContestantFacts {
        ContestantFacts {
            name: self.name().into(),
            version: self.version.clone(),
            commands: self.command.clone().into_iter().collect(),
            memory: "a ring of 2 MiB, libpcap's default".into(),
            work_per_frame: "copied by the kernel, written to /dev/null with its header in blocks of stdio",
            counting: "",
        }
    }

    fn start_up(&self) -> Duration {
        Duration::from_millis(100)
    }
}

struct RunningTcpdump(BenchProcess);

impl RunningProgram for RunningTcpdump {
    fn process(&mut self) -> &mut BenchProcess {
        &mut self.0
    }

    fn received(&mut self, stop: &StopFlag) -> Result<Reading, BenchError> {
        Reading::of(|| {
            self.0.signal_user1();
            self.0.wait_for_line("report its captured packets", LIMIT, stop, captured)
        })
    }
}

/// Parses the number of frames in the line `tcpdump: 12 packets captured, 14 packets received by filter, 0 packets
/// dropped by kernel`.
fn captured(line: &str) -> Option<u64> {
    let (before, _) = line.split_once(" packet")?;
    line.contains(" captured,").then(|| before.rsplit(' ').next()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_signal_differs_from_the_final_summary() {
        assert_eq!(
            captured(
                "tcpdump: 968392 packets captured, 970859 packets received by filter, 0 packets dropped by kernel"
            ),
            Some(968_392)
        );
        assert_eq!(captured("tcpdump: 1 packet captured, 1 packet received by filter"), Some(1));
        for line in ["7 packets captured", "9 packets received by filter", "tcpdump: listening on vb", ""] {
            assert_eq!(captured(line), None, "{line}");
        }
    }
}
