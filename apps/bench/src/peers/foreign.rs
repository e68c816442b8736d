//! Foreign programs without support for a bench: tcpdump, trafgen and tcpreplay, which start such that they do not
//! outlive the bench.

use std::ffi::OsString;
use std::time::Duration;

use ringroad_capture::{CaptureFormat, CaptureWriter};
use ringroad_netdev::Namespace;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::contestant::ContestantFacts;
use crate::error::BenchError;
use crate::ours::{self, Programs};
use crate::plan::{FramePath, InterfaceWork, Mechanism};
use crate::process::{BenchProcess, EndsBy};
use crate::reading::{PathCounts, Reading};
use crate::stop::StopFlag;
use crate::turn::{ProgramContestant, Task, Turn};
use crate::worker::template;

/// Shell script that replaces itself by the program of its arguments. At the end of standard input it interrupts the
/// program with its child processes. Otherwise the program would outlive a bench that was killed. The watching subshell
/// closes its output, since the bench reads the output to its end.
const ENDS_WITH_INPUT: &str =
    r#"exec 3<&0; (read -r never; kill -INT -$$) <&3 >/dev/null 2>&1 & exec "$@" </dev/null 3<&-"#;

/// Number of frames in the capture for tcpreplay, enough to make the cost of starting it again negligible.
const CAPTURED_FRAMES: u64 = 1024;

/// Time between the frames of the capture, ns; no program uses it.
const SPACING_NS: u64 = 1000;

/// A foreign program on interfaces over AF_PACKET.
pub(super) struct ForeignProgram {
    /// Name in tables.
    pub name: &'static str,
    program: &'static str,
    /// Debian package of the program.
    package: &'static str,
    flow: InterfaceWork,
    /// Number of lines of `--version` that make the version.
    version_lines: usize,
    memory: &'static str,
    work_per_frame: &'static str,
    /// Starts the program, and waits until it works.
    start: fn(&Task<'_>) -> Result<BenchProcess, BenchError>,
}

/// The foreign programs: tcpdump with libpcap's own choice of rings and buffers, trafgen of the netsniff-ng tools with
/// its own choice of ring and one sending process, tcpreplay with its fastest settings.
pub(super) const FOREIGN_PROGRAMS: [ForeignProgram; 3] = [
    ForeignProgram {
        name: "libpcap (tcpdump)",
        program: "tcpdump",
        package: "tcpdump",
        flow: InterfaceWork::Rx,
        version_lines: 2,
        memory: "a ring of 2 MiB, libpcap's default",
        work_per_frame: "copied by the kernel, written to /dev/null with its header in blocks of stdio",
        start: start_tcpdump,
    },
    ForeignProgram {
        name: "trafgen",
        program: "trafgen",
        package: "netsniff-ng",
        flow: InterfaceWork::Gen,
        version_lines: 1,
        memory: "an AF_PACKET transmit ring, trafgen's default",
        work_per_frame: "the same frame each time, copied into the ring, and by the kernel",
        start: start_trafgen,
    },
    ForeignProgram {
        name: "tcpreplay",
        program: "tcpreplay",
        package: "tcpreplay",
        flow: InterfaceWork::Gen,
        version_lines: 1,
        memory: "the capture, 1024 frames",
        work_per_frame: "the capture's next frame, handed to the kernel with a system call of its own; copied by the kernel",
        start: start_tcpreplay,
    },
];

impl ForeignProgram {
    /// Makes the contestant, if the program is in PATH. The error names its package.
    pub(super) fn contestant(&self, source: &Programs) -> Result<ProgramContestant, BenchError> {
        must_be_installed(self.program, self.package)?;
        let (path, start) = (FramePath::Veth(Mechanism::Packet, self.flow), self.start);
        Ok(ProgramContestant {
            name: self.name,
            path,
            facts: ContestantFacts {
                name: format!("{} ({path})", self.name),
                version: version(self.program, self.version_lines),
                memory: self.memory.into(),
                work_per_frame: self.work_per_frame,
                ..ContestantFacts::default()
            },
            // Of these programs only tcpdump receives.
            start: Box::new(move |task| Ok(Turn::of(start(task)?, Box::new(tcpdump_count)))),
            start_up: Duration::from_millis(100),
            source: ours::source(source),
        })
    }
}

/// Checks that `program` is in PATH. The error names its package.
fn must_be_installed(program: &'static str, package: &'static str) -> Result<(), BenchError> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&search).any(|folder| folder.join(program).is_file()) {
        return Ok(());
    }
    Err(BenchError::PeerAbsent { program, package })
}

/// Returns the first `lines` lines of the program's version, for the report.
fn version(program: &str, lines: usize) -> Option<String> {
    let output = std::process::Command::new(program).arg("--version").output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).lines().take(lines).collect::<Vec<_>>().join(", ");
    (!text.is_empty()).then_some(text)
}

/// Starts `command`, program and arguments, on the task's core and in the namespace of its interfaces.
fn start(task: &Task<'_>, command: &[&str]) -> Result<BenchProcess, BenchError> {
    let cpu = task.cpu.to_string();
    start_words(
        task.namespace,
        command.first().unwrap_or(&""),
        &[&["taskset", "-c", &cpu][..], command].concat(),
    )
}

fn start_words(namespace: &Namespace, name: &str, command: &[&str]) -> Result<BenchProcess, BenchError> {
    let command: Vec<OsString> = command.iter().map(OsString::from).collect();
    BenchProcess::start(namespace, name, &["sh", "-c", ENDS_WITH_INPUT, "sh"], &command, &[], EndsBy::Input)
}

fn start_tcpdump(task: &Task<'_>) -> Result<BenchProcess, BenchError> {
    // Without -Z it gives the written file, a device here, to its own user.
    let command = ["tcpdump", "-i", task.interface(), "-n", "-Z", "root", "-w", "/dev/null"];
    let mut process = start(task, &command)?;
    process
        .wait_for_line("open the interface", task.stop, |line| line.contains("listening on").then_some(()))?;
    Ok(process)
}

fn tcpdump_count(process: &mut BenchProcess, stop: &StopFlag) -> Result<PathCounts, BenchError> {
    let reading = Reading::of(|| {
        process.signal_user1();
        process.wait_for_line("report its captured packets", stop, captured)
    })?;
    Ok(vec![reading].into())
}

/// Parses the number of frames in the line `tcpdump: 12 packets captured, 14 packets received by filter, 0 packets
/// dropped by kernel`.
fn captured(line: &str) -> Option<u64> {
    let (before, _) = line.split_once(" packet")?;
    line.contains(" captured,").then(|| before.rsplit(' ').next()?.parse().ok())?
}

fn start_trafgen(task: &Task<'_>) -> Result<BenchProcess, BenchError> {
    let file = task.folder.join("frame.trafgen");
    std::fs::write(&file, description(&template(1, 2, task.point.slot_bytes())))
        .map_err(BenchError::TemporaryDirectory)?;
    let file = file.to_string_lossy();
    // The last two options keep trafgen from changing limits and interrupts of the whole machine.
    let options = ["--conf", &file, "--cpus", "1", "--no-sock-mem", "--notouch-irq"];
    let mut process = start(task, &[&["trafgen", "--dev", task.interface()][..], &options].concat())?;
    process.wait_for_line("start sending", task.stop, |line| line.starts_with("Running!").then_some(()))?;
    // The first process waits for a second process, which sends, and has moved itself to CPU 0 by now.
    let sender = process.child_called("trafgen").ok_or_else(|| process.exited())?;
    let mut cpus = CpuSet::new();
    cpus.set(task.cpu);
    if sched_setaffinity(Some(sender), &cpus).is_err() {
        return Err(process.exited());
    }
    process.work_is_done_by(sender);
    Ok(process)
}

/// Returns a description of `frame`, byte by byte.
fn description(frame: &[u8]) -> String {
    let bytes: Vec<String> = frame.iter().map(|byte| format!("0x{byte:02x}")).collect();
    format!("{{ {} }}\n", bytes.join(", "))
}

fn start_tcpreplay(task: &Task<'_>) -> Result<BenchProcess, BenchError> {
    let file = task.folder.join("frames.pcap");
    let frame = template(1, 2, task.point.slot_bytes());
    let mut capture = CaptureWriter::create(&file, CaptureFormat::Pcap, 0)?;
    for number in 0..CAPTURED_FRAMES {
        capture.write_frame(number * SPACING_NS, &frame, task.point.slot_bytes())?;
    }
    capture.finish()?;
    let options = ["--topspeed", "--loop=0", "--preload-pcap", "--no-flow-stats", &file.to_string_lossy()];
    start(task, &[&["tcpreplay", "--intf1", task.interface()][..], &options].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(script: &str) -> BenchProcess {
        start_words(&Namespace::Current, "sh", &["sh", "-c", script]).unwrap()
    }

    #[test]
    fn a_program_that_ignores_its_input_ends_with_it() {
        let mut process = started("echo up; exec sleep 1000");
        let up = |line: &str| (line == "up").then_some(());
        process.wait_for_line("come up", &StopFlag::default(), up).unwrap();
        process.ask_to_end();
        let error = process.wait_for_line("speak", &StopFlag::default(), |_| Some(())).unwrap_err();
        assert!(matches!(&error, BenchError::Exited { status, .. } if status == "signal 2"), "{error}");
    }

    #[test]
    fn the_processes_that_a_program_made_end_with_it() {
        // The end of the output shows that all processes have ended, since the last process keeps it open.
        let mut process = started("(echo up; sleep 1000); true");
        let up = |line: &str| (line == "up").then_some(());
        process.wait_for_line("come up", &StopFlag::default(), up).unwrap();
        process.ask_to_end();
        let error = process.wait_for_line("end", &StopFlag::default(), |_| None::<()>).unwrap_err();
        assert!(matches!(error, BenchError::Exited { .. }), "{error}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        let error = must_be_installed("no-such-program", "its-package").unwrap_err();
        assert!(error.to_string().contains("apt install its-package"), "{error}");
    }

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

    #[test]
    fn a_description_has_every_byte_in_order() {
        assert_eq!(description(&[0, 0x1f, 255]), "{ 0x00, 0x1f, 0xff }\n");
    }
}
