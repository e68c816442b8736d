//! A virtual machine: start, wait until it is up, end.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Serialize;

use crate::busybox::Busybox;
use crate::command_channel::CommandChannel;
use crate::error::GuestError;
use crate::initramfs;
pub use crate::initramfs::NetworkAddress;
use crate::kernel::Kernel;
use crate::process::{ProcessIdentity, in_own_session, signal_at_callers_end};
use crate::program::{self, last_lines};
use crate::record::check_socket_path;
use crate::{qemu, uml};

/// Names of the console's socket and log in a guest's folder.
pub(crate) const CONSOLE_SOCKET: &str = "console.sock";
pub(crate) const CONSOLE_LOG: &str = "console.log";
/// Name of the log of the machine's output.
const MACHINE_LOG: &str = "machine.log";

/// Time limit for a machine to end after the request.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// Polling interval for changes without an event.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Returns the path of a guest's command socket.
pub(crate) fn command_socket(folder: &Path) -> PathBuf {
    folder.join("command.sock")
}

/// The program that is the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineKind {
    /// QEMU, which emulates a machine or runs it with KVM.
    #[default]
    Qemu,
    /// User-mode Linux: Linux as a program, without an emulated processor.
    Uml,
}

impl MachineKind {
    /// Returns the program's name, for users.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::Qemu => "QEMU",
            Self::Uml => "user-mode Linux",
        }
    }

    /// Returns the signal at the end of the thread that started the machine. A keeper has processes to end.
    const fn end_signal(self) -> Signal {
        match self {
            Self::Qemu => Signal::KILL,
            Self::Uml => Signal::TERM,
        }
    }
}

/// Accelerator of the guest's processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Accelerator {
    /// KVM if the machine can run a guest with it, else emulation.
    #[default]
    Auto,
    /// Processor of the machine itself (KVM).
    Kvm,
    /// Emulation (TCG), which works everywhere and is slow.
    Tcg,
}

impl Accelerator {
    /// Decides between KVM and emulation. On a processor without virtualisation extensions, /dev/kvm belongs to an
    /// implementation that only runs kernels made for it.
    fn chosen(self) -> Self {
        if self != Self::Auto {
            return self;
        }
        let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let has_kvm = OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok()
            && flags.split_whitespace().any(|flag| flag == "vmx" || flag == "svm");
        if has_kvm { Self::Kvm } else { Self::Tcg }
    }
}

/// An interface of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkDevice {
    /// Socket of the vhost-user port that serves the interface; it must have a listener.
    pub socket: PathBuf,
    /// Hardware address of the interface.
    pub mac: [u8; 6],
    /// IP address of the interface, if any.
    pub address: Option<NetworkAddress>,
}

/// A card that QEMU emulates. A hub is its cable to the other cards with the same hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmulatedCard {
    /// QEMU's name of the card, with options: `igb`, or `virtio-net-pci,queue_reset=off`.
    pub model: String,
    /// Whether the card is one for PCI Express, else for PCI.
    pub is_express: bool,
    /// Hardware address of the card.
    pub mac: [u8; 6],
    /// Number of the hub.
    pub hub: u16,
}

/// Contents of a guest besides busybox, and what they need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuestContents {
    /// Programs of this machine, which the guest has in `/opt`, with their libraries where this machine has them.
    pub programs: Vec<PathBuf>,
    /// Kernel modules that are loaded at the start, besides those of the interfaces.
    pub modules: Vec<String>,
}

/// A QEMU that is not the machine's own, such as one that was unpacked from its packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpackedQemu {
    /// Its program `qemu-system-x86_64`.
    pub program: PathBuf,
    /// Folders of its firmware and other data.
    pub data: Vec<PathBuf>,
}

/// Settings of a guest that is to be started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VmConfig {
    /// Name of the guest, which is its host name too.
    pub name: String,
    /// The program that is the machine.
    pub kind: MachineKind,
    /// Folder of the guest, which must exist.
    pub folder: PathBuf,
    /// Interfaces, `eth0` first.
    pub devices: Vec<NetworkDevice>,
    /// Cards that QEMU emulates, after the interfaces. The guest leaves them as its kernel makes them.
    pub cards: Vec<EmulatedCard>,
    /// Contents besides busybox.
    pub contents: GuestContents,
    /// The QEMU to use; `None` is the machine's own.
    pub qemu: Option<UnpackedQemu>,
    /// Whether to join the first two interfaces in a bridge, which has the first interface's address.
    pub bridge: bool,
    /// Memory, MiB.
    pub memory_mib: u32,
    /// Number of processors. User-mode Linux has one.
    pub cpus: u16,
    /// Queue pairs of each interface, for QEMU. User-mode Linux uses those of the port.
    pub queues: u16,
    /// Whether QEMU offers packed rings (virtio 1.1).
    pub packed: bool,
    /// Accelerator of the processors of a guest under QEMU.
    pub accelerator: Accelerator,
}

/// A running virtual machine. Dropping it ends the machine, unless it was detached.
#[derive(Debug)]
pub struct VirtualMachine {
    child: Child,
    kind: MachineKind,
    /// Process of the machine: QEMU, or the keeper of user-mode Linux.
    pub process: ProcessIdentity,
    folder: PathBuf,
    /// Accelerator of the guest's processors, KVM or emulation; `None` if they are this machine's.
    pub accelerator: Option<Accelerator>,
    let_go: bool,
}

impl VirtualMachine {
    /// Starts the machine. The guest ends with the calling thread, unless it may `outlive` this process.
    ///
    /// # Errors
    /// [`GuestError`]: a program is not installed, or cannot be started.
    pub fn start(plan: &VmConfig, kernel: &Kernel, outlive: bool) -> Result<Self, GuestError> {
        if std::env::consts::ARCH != "x86_64" {
            return Err(GuestError::Architecture(std::env::consts::ARCH));
        }
        let qemu = match (plan.kind, &plan.qemu) {
            (MachineKind::Qemu, Some(unpacked)) => Some(unpacked.program.clone()),
            (MachineKind::Qemu, None) => Some(program::find("qemu-system-x86_64", "qemu-system-x86")?),
            (MachineKind::Uml, _) => None,
        };
        let archive = initramfs::build(kernel, &Busybox::find()?, plan)?;
        let initramfs = plan.folder.join("initramfs");
        fs::write(&initramfs, archive).map_err(GuestError::file("write", &initramfs))?;
        let log = plan.folder.join(MACHINE_LOG);
        let log_file = File::create(&log).map_err(GuestError::file("make", &log))?;
        for socket in [CONSOLE_SOCKET, "command.sock"] {
            check_socket_path(&plan.folder.join(socket))?;
        }
        let (mut command, accelerator) = match qemu {
            Some(program) => {
                let accelerator = plan.accelerator.chosen();
                let mut command = Command::new(program);
                command.args(qemu::arguments(plan, accelerator == Accelerator::Kvm, kernel, &initramfs));
                (command, Some(accelerator))
            }
            None => (uml::keeper_command(plan, kernel, &initramfs)?, None),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log_file);
        in_own_session(&mut command);
        if !outlive {
            signal_at_callers_end(&mut command, plan.kind.end_signal());
        }
        let start = |source| GuestError::Start { program: plan.kind.program().to_owned(), source };
        let child = command.spawn().map_err(start)?;
        let pid = child.id();
        let process = ProcessIdentity::of(pid).unwrap_or(ProcessIdentity { pid, start_ticks: 0 });
        let (kind, folder) = (plan.kind, plan.folder.clone());
        Ok(Self { child, kind, process, folder, accelerator, let_go: false })
    }

    /// Waits until the guest is up with its network configured, and returns the channel for commands.
    ///
    /// # Errors
    /// [`GuestError`]: the machine ended, `limit` passed, or `stop` was set. The error has the last output of the
    /// machine and the console.
    pub fn await_up(&mut self, limit: Duration, stop: &AtomicBool) -> Result<CommandChannel, GuestError> {
        let end = Instant::now() + limit;
        let mut channel = None;
        // A socket's file is made before its program listens.
        until(stop, Some(end), || {
            channel = CommandChannel::connect(&self.folder, stop).ok();
            channel.is_some() || !self.process.is_running()
        })?;
        let up = match channel {
            Some(mut channel) => match channel.await_ready(end, stop) {
                Ok(true) => return Ok(channel),
                other => other,
            },
            None => Ok(false),
        };
        let (program, last_words) = (self.kind.program(), self.last_words());
        match up {
            Err(GuestError::Interrupted) => Err(GuestError::Interrupted),
            Err(_) => Err(GuestError::EndedEarly { program, last_words }),
            Ok(_) if !self.process.is_running() => Err(GuestError::EndedEarly { program, last_words }),
            Ok(_) => Err(GuestError::NotUp { waited: limit, last_words }),
        }
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends the machine.
    ///
    /// # Errors
    /// [`GuestError::Killed`]: the machine did not end on request.
    pub fn end(mut self) -> Result<(), GuestError> {
        self.end_now()
    }

    /// Detaches the machine, which keeps running without this process.
    pub fn let_go(mut self) {
        self.let_go = true;
    }

    fn end_now(&mut self) -> Result<(), GuestError> {
        self.let_go = true;
        let ended = self.process.end(END_PATIENCE);
        // The process has ended or was killed, so this wait is short.
        let _ = self.child.wait();
        ended
    }

    /// Returns the last lines of the machine's output and of the console.
    #[must_use]
    pub fn last_words(&self) -> String {
        let read = |file: &str| {
            let bytes = fs::read(self.folder.join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let program = self.kind.program();
        let words = [
            (program, last_lines(&read(MACHINE_LOG), 3)),
            ("the console", last_lines(&read(CONSOLE_LOG), 6)),
        ];
        let said = words.into_iter().filter(|(_, said)| !said.is_empty());
        let text = said.map(|(who, said)| format!("{who} printed: {said}")).collect::<Vec<_>>().join(", ");
        if text.is_empty() { format!("neither {program} nor the console printed anything") } else { text }
    }
}

impl Drop for VirtualMachine {
    fn drop(&mut self) {
        if !self.let_go {
            // A destructor cannot report this error.
            let _ = self.end_now();
        }
    }
}

/// Ends a detached machine.
///
/// # Errors
/// [`GuestError::Killed`]: the machine did not end on request.
pub fn end_detached(process: ProcessIdentity) -> Result<(), GuestError> {
    process.end(END_PATIENCE)
}

/// Polls until `done`, `end` or `stop`. Returns whether `done` was reached.
pub(crate) fn until(
    stop: &AtomicBool,
    end: Option<Instant>,
    mut done: impl FnMut() -> bool,
) -> Result<bool, GuestError> {
    loop {
        if done() {
            return Ok(true);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(GuestError::Interrupted);
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Ok(false);
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}
