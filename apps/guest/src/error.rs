//! Errors of guests. A text names the fault, then, behind a semicolon, the remedy.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a guest was not started, reached or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestError {
    /// A program is not installed.
    #[error("{program} is not installed; on Debian: apt-get install {package}")]
    ProgramMissing {
        program: &'static str,
        /// Its Debian package.
        package: &'static str,
    },
    /// A file or folder could not be used.
    #[error("cannot {action} {}: {source}", .path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    /// A program could not be started.
    #[error("cannot start {program}: {source}")]
    Start { program: String, source: io::Error },
    /// A program failed.
    #[error("{command} failed: {said}")]
    Failed {
        command: String,
        /// Its last message.
        said: String,
    },
    /// A folder has no kernel.
    #[error("{} has no boot/vmlinuz-VERSION with its lib/modules/VERSION; name a folder into which a linux-image package was \
             unpacked (dpkg-deb -x)", .0.display())]
    NoKernel(PathBuf),
    /// No package of a kernel is known.
    #[error(
        "no kernel: /boot has none that can be read, and apt has no package {package} ({said}); run apt-get update, or name a folder into \
             which a linux-image package was unpacked with --kernel"
    )]
    NoKernelPackage {
        /// The package.
        package: &'static str,
        /// apt's message.
        said: String,
    },
    /// A kernel lacks a module.
    #[error("kernel {version} has no module {module}; choose another kernel with --kernel")]
    NoModule {
        /// Version of the kernel.
        version: String,
        /// The module.
        module: String,
    },
    /// A module's file is not a module.
    #[error("{} is not a kernel module: {reason}", .path.display())]
    BadModule { path: PathBuf, reason: String },
    /// The machine is of another kind.
    #[error("guests are x86_64 machines made from this machine's programs, but this machine is {0}")]
    Architecture(&'static str),
    /// A socket's path does not fit its address.
    #[error("the path {} is too long for a socket ({} bytes, 107 at most); set RINGROAD_RUNTIME_DIR to a shorter folder", .0.display(), .0.as_os_str().len())]
    PathTooLong(PathBuf),
    /// Not a name for a guest.
    #[error(
        "\"{0}\" is not a name for a guest; use letters, digits, _ . and -, 32 at most, with a letter or digit first"
    )]
    BadName(String),
    /// A guest of that name runs.
    #[error("a guest {name} runs already ({kind}, process {pid}); choose another name, or end it first")]
    NameTaken {
        name: String,
        kind: &'static str,
        /// Its process.
        pid: u32,
    },
    /// No guest of that name runs.
    #[error("no virtual machine {name} runs; there are: {}", list_of(.existing))]
    NoSuchGuest {
        name: String,
        /// Those that run.
        existing: Vec<String>,
    },
    /// A record of a guest cannot be read.
    #[error("{} is not a guest's record ({reason}); remove its folder if no such guest runs", .path.display())]
    BadRecord {
        /// The record.
        path: PathBuf,
        reason: String,
    },
    /// The guest's machine ended before the guest was up.
    #[error("QEMU ended before the guest was up: {last_words}")]
    EndedEarly {
        /// QEMU's output, and the console's last lines.
        last_words: String,
    },
    /// The guest did not boot.
    #[error("the guest was not up within {} s: {last_words}", .waited.as_secs())]
    NotUp {
        /// How long was waited.
        waited: Duration,
        /// QEMU's output, and the console's last lines.
        last_words: String,
    },
    /// The guest's machine does not end.
    #[error("process {pid} did not end within {} s after SIGTERM, and was killed", .waited.as_secs())]
    Killed {
        /// The process.
        pid: u32,
        /// How long was waited.
        waited: Duration,
    },
    /// The guest ended while a command ran in it.
    #[error("the guest ended before the command did")]
    GuestGone,
    /// The guest did not begin with a command.
    #[error("the guest did not begin with the command within {} s; check its console", .0.as_secs())]
    NoAnswer(Duration),
    /// A command is too long for the channel.
    #[error("the command has {bytes} bytes and the channel takes {most}; send long files over the network")]
    CommandTooLong {
        /// Its length.
        bytes: usize,
        /// The longest.
        most: usize,
    },
    /// A signal arrived.
    #[error("interrupted")]
    Interrupted,
}

impl GuestError {
    /// Makes an error of `action` ("read", "make", ...) on `path`.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }
}

fn list_of(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
