//! testpmd on network interfaces, over its AF_XDP and AF_PACKET drivers.

use std::rc::Rc;
use std::time::Duration;

use super::telemetry::PortCounter;
use super::testpmd::{Generator, Installation, Launch, Testpmd};
use crate::contestant::ContestantFacts;
use crate::error::BenchError;
use crate::hugepages::HugepageReserve;
use crate::plan::{InterfaceWork, Mechanism};
use crate::process::BenchProcess;
use crate::reading::Reading;
use crate::stop::StopFlag;
use crate::veth::{InterfaceProgram, RunningProgram, Task};

/// testpmd with the usual settings for interfaces.
#[derive(Debug)]
pub(super) struct TestpmdInterface {
    mechanism: Mechanism,
    /// Kind of frame generation, if this is one of several generators.
    generator: Option<Generator>,
    installation: Rc<Installation>,
    command: Option<String>,
}

impl TestpmdInterface {
    /// Makes a testpmd with `mechanism`'s driver.
    pub(super) fn new(mechanism: Mechanism, installation: &Rc<Installation>) -> Self {
        Self { mechanism, generator: None, installation: Rc::clone(installation), command: None }
    }

    /// Makes a testpmd that is one of several generators.
    pub(super) fn generating(
        mechanism: Mechanism,
        generator: Generator,
        installation: &Rc<Installation>,
    ) -> Self {
        Self { generator: Some(generator), ..Self::new(mechanism, installation) }
    }
}

/// Returns a device with its driver, for `--vdev`. It bypasses the queueing discipline, as Ringroad does.
fn device(mechanism: Mechanism, number: usize, interface: &str) -> String {
    match mechanism {
        Mechanism::Xdp => format!("net_af_xdp{number},iface={interface}"),
        Mechanism::Packet | Mechanism::Pcap => {
            format!("net_af_packet{number},iface={interface},qdisc_bypass=1")
        }
    }
}

impl InterfaceProgram for TestpmdInterface {
    fn name(&self) -> &str {
        match (self.generator, self.mechanism) {
            (Some(generator), _) => generator.name(),
            (None, Mechanism::Xdp) => "DPDK net_af_xdp",
            (None, Mechanism::Packet | Mechanism::Pcap) => "DPDK net_af_packet",
        }
    }

    fn start(&mut self, task: &Task<'_>) -> Result<Box<dyn RunningProgram>, BenchError> {
        let pages = self.installation.lend_memory()?;
        let mode = match task.flow {
            InterfaceWork::Tx | InterfaceWork::Gen => {
                self.generator.unwrap_or(Generator::TxOnly).mode(task.point)
            }
            InterfaceWork::Rx => vec!["--forward-mode=rxonly".into()],
            InterfaceWork::Io => vec!["--forward-mode=io".into()],
        };
        let devices = task.interfaces.iter().enumerate();
        let launch = Launch {
            role: "interface",
            cpu: task.cpu,
            plugin: None,
            devices: devices
                .map(|(number, interface)| device(task.mechanism, number, interface).into())
                .collect(),
            burst_frames: task.point.burst_frames,
            mode,
        };
        let (testpmd, command) =
            Testpmd::start(&self.installation, &task.lab.namespace(), &launch, task.folder)?;
        self.command = Some(command);
        Ok(Box::new(RunningTestpmd { testpmd, _pages: pages }))
    }

    fn facts(&self, flow: InterfaceWork) -> ContestantFacts {
        ContestantFacts {
            name: self.name().into(),
            commands: self.command.clone().into_iter().collect(),
            work_per_frame: match (self.mechanism, flow) {
                (_, InterfaceWork::Gen) => self.generator.map_or("", Generator::work_per_frame),
                (Mechanism::Xdp, InterfaceWork::Tx) => {
                    "buffer allocated, 42 header bytes written, payload left as it was; copied by the kernel"
                }
                (Mechanism::Packet | Mechanism::Pcap, InterfaceWork::Tx) => {
                    "buffer allocated, 42 header bytes written, payload left as it was; copied into the ring, and by the kernel"
                }
                (Mechanism::Xdp, InterfaceWork::Rx) => "copied by the kernel; freed unread",
                (Mechanism::Packet | Mechanism::Pcap, InterfaceWork::Rx) => {
                    "copied by the kernel, and out of the ring; freed unread"
                }
                (Mechanism::Xdp, InterfaceWork::Io) => {
                    "copied by the kernel twice, in and out; the buffer changes hands"
                }
                (Mechanism::Packet | Mechanism::Pcap, InterfaceWork::Io) => {
                    "copied by the kernel, out of the ring, into the other ring, and by the kernel"
                }
            },
            ..self.installation.facts()
        }
    }

    fn start_up(&self) -> Duration {
        Duration::from_millis(700)
    }
}

/// Running testpmd process, and its huge pages.
struct RunningTestpmd {
    testpmd: Testpmd,
    /// Huge pages, which are returned after the process has ended.
    _pages: Option<HugepageReserve>,
}

impl RunningProgram for RunningTestpmd {
    fn process(&mut self) -> &mut BenchProcess {
        &mut self.testpmd.process
    }

    fn received(&mut self, _stop: &StopFlag) -> Result<Reading, BenchError> {
        self.testpmd.telemetry.frames(0, PortCounter::Received)
    }
}
