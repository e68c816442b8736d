//! A virtual machine: started, awaited, ended.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::busybox::Busybox;
use crate::command_channel::CommandChannel;
use crate::error::GuestError;
pub use crate::initramfs::NetworkAddress;
use crate::initramfs::{self, NetworkSetup};
use crate::kernel::Kernel;
use crate::process::{ProcessIdentity, end_with_caller, in_own_session};
use crate::program::{self, last_lines};
use crate::qemu;
use crate::record::check_socket_path;

/// The console's socket and log in a guest's folder.
pub(crate) const CONSOLE_SOCKET: &str = "console.sock";
pub(crate) const CONSOLE_LOG: &str = "console.log";
/// Log of QEMU's output.
const QEMU_LOG: &str = "qemu.log";

/// Time limit for QEMU to end after the request.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// Polling interval for changes without an event.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The socket of the channel for commands in a guest's folder.
pub(crate) fn command_socket(folder: &Path) -> PathBuf {
    folder.join("command.sock")
}

/// How the guest's processor is provided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Accelerator {
    /// KVM if it can run a guest, else emulation.
    #[default]
    Auto,
    /// By the machine's own processor.
    Kvm,
    /// Emulated (TCG): works everywhere and is slow.
    Tcg,
}

impl Accelerator {
    /// Whether it is KVM. If the processor has no extension for virtual machines, /dev/kvm belongs to an implementation
    /// that only runs kernels made for it.
    fn is_kvm(self) -> bool {
        match self {
            Self::Kvm => true,
            Self::Tcg => false,
            Self::Auto => {
                let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
                OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok()
                    && flags.split_whitespace().any(|flag| flag == "vmx" || flag == "svm")
            }
        }
    }
}

/// An interface of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkDevice {
    /// Socket of the vhost-user port that serves it; it must have a listener.
    pub socket: PathBuf,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Its address, if any.
    pub address: Option<NetworkAddress>,
}

/// A guest to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmConfig {
    /// Its name, which is its host name too.
    pub name: String,
    /// Its folder, which is there.
    pub folder: PathBuf,
    /// Its interfaces, `eth0` first.
    pub devices: Vec<NetworkDevice>,
    /// Join the first two in a bridge, which has the first one's address.
    pub bridge: bool,
    /// Memory, MiB.
    pub memory_mib: u32,
    /// Processors.
    pub cpus: u16,
    /// Queue pairs of each interface.
    pub queues: u16,
    /// Offer packed rings (virtio 1.1).
    pub packed: bool,
    /// How its processors are provided.
    pub accelerator: Accelerator,
}

/// How a started guest's processors are provided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Acceleration {
    /// KVM.
    Kvm,
    /// Emulation.
    Tcg,
}

/// A running machine; dropping it ends it, unless it was detached.
#[derive(Debug)]
pub struct VirtualMachine {
    qemu: Child,
    process: ProcessIdentity,
    folder: PathBuf,
    acceleration: Acceleration,
    let_go: bool,
}

impl VirtualMachine {
    /// Starts QEMU. Unless the guest may `outlive` this process, it ends with the calling thread.
    ///
    /// # Errors
    /// [`GuestError`]: something is not installed, or QEMU cannot be started.
    pub fn start(plan: &VmConfig, kernel: &Kernel, outlive: bool) -> Result<Self, GuestError> {
        if std::env::consts::ARCH != "x86_64" {
            return Err(GuestError::Architecture(std::env::consts::ARCH));
        }
        let program = program::find("qemu-system-x86_64", "qemu-system-x86")?;
        let network = NetworkSetup {
            host: &plan.name,
            addresses: plan.devices.iter().map(|device| device.address).collect(),
            bridge: plan.bridge,
        };
        let archive = initramfs::build(kernel, &Busybox::find()?, &network)?;
        let initramfs = plan.folder.join("initramfs");
        fs::write(&initramfs, archive).map_err(GuestError::file("write", &initramfs))?;
        let log = plan.folder.join(QEMU_LOG);
        let log_file = File::create(&log).map_err(GuestError::file("make", &log))?;
        for socket in [CONSOLE_SOCKET, "command.sock"] {
            check_socket_path(&plan.folder.join(socket))?;
        }
        let kvm = plan.accelerator.is_kvm();
        let mut command = Command::new(&program);
        command.args(qemu::arguments(plan, kvm, kernel, &initramfs));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log_file);
        in_own_session(&mut command);
        if !outlive {
            end_with_caller(&mut command);
        }
        let start = |source| GuestError::Start { program: program.display().to_string(), source };
        let qemu = command.spawn().map_err(start)?;
        let pid = qemu.id();
        let process = ProcessIdentity::of(pid).unwrap_or(ProcessIdentity { pid, start_ticks: 0 });
        let acceleration = if kvm { Acceleration::Kvm } else { Acceleration::Tcg };
        Ok(Self { qemu, process, folder: plan.folder.clone(), acceleration, let_go: false })
    }

    /// QEMU's process.
    #[must_use]
    pub fn process(&self) -> ProcessIdentity {
        self.process
    }

    /// How its processors are provided.
    #[must_use]
    pub fn acceleration(&self) -> Acceleration {
        self.acceleration
    }

    /// Waits until the guest is up with its network configured, and returns the channel for commands.
    ///
    /// # Errors
    /// [`GuestError`]: QEMU ended, `limit` passed, or `stop` was set. The error has the last output of QEMU and the
    /// console.
    pub fn await_up(&mut self, limit: Duration, stop: &AtomicBool) -> Result<CommandChannel, GuestError> {
        let end = Instant::now() + limit;
        let mut channel = None;
        // QEMU makes the socket some time before it listens on it.
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
        let last_words = self.last_words();
        match up {
            Err(GuestError::Interrupted) => Err(GuestError::Interrupted),
            Err(_) => Err(GuestError::EndedEarly { last_words }),
            Ok(_) if !self.process.is_running() => Err(GuestError::EndedEarly { last_words }),
            Ok(_) => Err(GuestError::NotUp { waited: limit, last_words }),
        }
    }

    /// Whether the machine has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.qemu.try_wait(), Ok(None))
    }

    /// Ends the machine.
    ///
    /// # Errors
    /// [`GuestError::Killed`].
    pub fn end(mut self) -> Result<(), GuestError> {
        self.end_now()
    }

    /// Leaves the machine running without this process.
    pub fn let_go(mut self) {
        self.let_go = true;
    }

    fn end_now(&mut self) -> Result<(), GuestError> {
        self.let_go = true;
        let ended = self.process.end(END_PATIENCE);
        // It has ended or was killed.
        let _ = self.qemu.wait();
        ended
    }

    /// Last output of QEMU and the console.
    fn last_words(&self) -> String {
        let read = |file: &str| {
            let bytes = fs::read(self.folder.join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let words =
            [("QEMU", last_lines(&read(QEMU_LOG), 3)), ("the console", last_lines(&read(CONSOLE_LOG), 6))];
        let said = words.into_iter().filter(|(_, said)| !said.is_empty());
        let text = said.map(|(who, said)| format!("{who} printed: {said}")).collect::<Vec<_>>().join(", ");
        if text.is_empty() { "neither QEMU nor the console printed anything".to_owned() } else { text }
    }
}

impl Drop for VirtualMachine {
    fn drop(&mut self) {
        if !self.let_go {
            // No caller can get this error.
            let _ = self.end_now();
        }
    }
}

/// Ends a detached machine.
///
/// # Errors
/// [`GuestError::Killed`].
pub fn end_detached(process: ProcessIdentity) -> Result<(), GuestError> {
    process.end(END_PATIENCE)
}

/// Polls until `done`, `end` or `stop`; returns whether it is done.
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
