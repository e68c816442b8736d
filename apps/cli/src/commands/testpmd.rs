//! `ringroad testpmd`: DPDK's testpmd as a guest of a switch.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use clap::Args;
use ringroad_guest::GuestKind;
use ringroad_guest::process::end_with_caller;
use ringroad_guest::testpmd::{self, CommandLine, TestpmdTransport};
use serde::Serialize;

use crate::commands::guests::Guest;
use crate::commands::guests::foreground::{HeldSignals, Keys, exit_status};
use crate::failure::Failure;
use crate::options::{Choice, Global, one_of, switch_port};
use crate::output::Output;
use crate::verb::MainVerb;

/// Run DPDK's testpmd on ports of the switch
///
/// Attaches each port by vhost-user or memif, starts dpdk-testpmd with a virtio-user or memif device for each, and
/// removes the ports when it ends: at Ctrl-C, or at enter if it prints a prompt for that. testpmd uses 2 MiB pages if
/// enough are free (256 MiB), else ordinary pages. Arguments after -- are passed to testpmd unchanged, such as
/// --stats-period=1 or --txpkts=64.
#[derive(Debug, Args)]
pub(crate) struct TestpmdArgs {
    /// Port of a switch; may be given several times
    #[arg(long = "port", value_name = "PORT", value_parser = switch_port, required = true)]
    ports: Vec<String>,
    /// Protocol between testpmd's ports and the switch's ports
    #[arg(long, value_name = "HOW", default_value = "vhost-user", value_parser = one_of(&TRANSPORTS))]
    via: TestpmdTransport,
    /// Forwarding mode: io, mac, macswap, rxonly, txonly, flowgen, icmpecho, csum, noisy, ...
    #[arg(long, value_name = "MODE", default_value = "io")]
    forward: String,
    /// Processors: the first for the main thread, the others for forwarding [default: the first and the last allowed]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    cores: Vec<usize>,
    /// Queue pairs of each port
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    queues: u16,
    /// Use ordinary pages even if 2 MiB pages are free
    #[arg(long)]
    no_huge: bool,
    /// Use virtio's packed rings
    #[arg(long)]
    packed: bool,
    /// Further arguments for testpmd; -i opens testpmd's own command line
    #[arg(last = true, value_name = "EXTRA")]
    extra: Vec<OsString>,
}

const TRANSPORTS: [Choice<TestpmdTransport>; 2] = [
    ("vhost-user", "virtio-user in testpmd, vhost-user in the daemon", TestpmdTransport::VhostUser),
    ("memif", "memif in both", TestpmdTransport::Memif),
];

#[derive(Debug, Serialize)]
struct StartedTestpmd {
    started: bool,
    pid: u32,
    ports: Vec<String>,
    command: Vec<String>,
}

impl MainVerb for TestpmdArgs {
    const EXAMPLES: &str = "ringroad testpmd --port vale0:a --port vale0:b --forward macswap";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        if self.packed && self.via == TestpmdTransport::Memif {
            return Err(Failure::usage(
                "memif has no packed rings",
                "leave out --packed, or use --via vhost-user",
            ));
        }
        let program = testpmd::find()?;
        let signals = HeldSignals::hold()?;
        let name = format!("testpmd-{}", std::process::id());
        let mut guest = Guest::claim(global, output, &name, GuestKind::Testpmd)?;
        let mut devices = Vec::new();
        for (number, port) in self.ports.iter().enumerate() {
            let scheme = match self.via {
                TestpmdTransport::VhostUser => "vhost-user",
                TestpmdTransport::Memif => "memif",
            };
            let socket = guest.attach_socket(port, scheme, self.queues, &[])?;
            devices.push(testpmd::device(self.via, number, &socket, self.queues, self.packed));
        }
        let line = CommandLine {
            cores: if self.cores.is_empty() { outermost_processors() } else { self.cores.clone() },
            mebibytes: testpmd::MEBIBYTES,
            huge_pages: !self.no_huge && testpmd::has_huge_pages(),
            prefix: name,
            plugins: Vec::new(),
            devices,
            options: [testpmd::options(&self.forward, self.queues), self.extra.clone()].concat(),
        };
        // Line-buffered output, even into a pipe, since the reader waits for lines.
        let mut words: Vec<OsString> = vec!["-oL".into(), program.into()];
        words.extend(line.arguments());
        let mut command = Command::new("stdbuf");
        // testpmd's runtime files go to the folder of its sockets.
        command.args(&words).env("RUNTIME_DIRECTORY", guest.folder());
        let keys = if io::stdin().is_terminal() { Keys::Shared } else { Keys::PassedOn };
        if keys == Keys::PassedOn {
            // testpmd ends when its input ends, so it gets an input that stays open until this process ends.
            command.process_group(0).stdin(Stdio::piped());
        }
        if output.is_json() {
            let stderr = io::stderr().as_fd().try_clone_to_owned();
            command.stdout(stderr.map_err(|error| Failure::new(format!("standard error: {error}"), ""))?);
        }
        end_with_caller(&mut command);
        let mut child = command.spawn().map_err(|error| {
            Failure::not_found(format!("running stdbuf: {error}"), "on Debian: apt-get install coreutils")
        })?;
        if output.is_json() {
            let command = words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
            let started =
                StartedTestpmd { started: true, pid: child.id(), ports: self.ports.clone(), command };
            output.result(&started, |_| String::new())?;
        }
        // Taking the input keeps `wait` from closing it.
        let input = child.stdin.take();
        let ended = signals.wait_for(&mut child, keys)?;
        drop(input);
        guest.end()?;
        match exit_status(ended.status) {
            0 => Ok(()),
            // A requested end can have the status of the signal.
            _ if ended.asked_to => Ok(()),
            status => Err(Failure::new(
                format!("dpdk-testpmd ended with status {status}"),
                "see its output above; ringroad testpmd -- --help shows its options",
            )),
        }
    }
}

/// Returns the first and the last processor that this process may run on.
fn outermost_processors() -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).ok();
    let allowed = |cpu: &usize| allowed.as_ref().is_none_or(|set| set.is_set(*cpu));
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(allowed);
    match (cpus.next(), cpus.next_back()) {
        (Some(first), Some(last)) => vec![first, last],
        (first, _) => first.into_iter().collect(),
    }
}
