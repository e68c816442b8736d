//! Errors of guests. A text names the fault, then, after a semicolon, the remedy.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Reasons why a guest was not started, reached or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestError {
    /// A program is not installed.
    #[error("{program} is not installed; on Debian: apt-get install {package}")]
    ProgramMissing {
        program: &'static str,
        /// Debian package of the program.
        package: &'static str,
    },
    /// A file or folder could not be used.
    #[error("cannot {action} {}: {source}", .path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    /// A program could not be started.
    #[error("cannot start {program}: {source}")]
    Start { program: String, source: io::Error },
    #[error("{command} failed: {said}")]
    Failed {
        command: String,
        /// Last lines of the program's output.
        said: String,
    },
    /// A folder has no kernel.
    #[error("{} has no boot/vmlinuz-VERSION with its lib/modules/VERSION; name a folder into which a linux-image package was \
             unpacked (dpkg-deb -x)", .0.display())]
    NoKernel(PathBuf),
    /// No package of a kernel is known to apt.
    #[error(
        "no kernel: /boot has none that can be read, and apt has no package {package} ({said}); run apt-get update, or name a folder into \
             which a linux-image package was unpacked with --kernel"
    )]
    NoKernelPackage {
        /// Name of the package.
        package: &'static str,
        /// Message of apt.
        said: String,
    },
    /// A kernel lacks a module.
    #[error("kernel {version} has no module {module}; choose another kernel with --kernel")]
    NoModule {
        /// Version of the kernel.
        version: String,
        module: String,
    },
    /// A file of a module is not a module.
    #[error("{} is not a kernel module: {reason}", .path.display())]
    BadModule { path: PathBuf, reason: String },
    /// The machine's architecture is not supported.
    #[error("guests are x86_64 machines made from this machine's programs, but this machine is {0}")]
    Architecture(&'static str),
    /// The path of a socket is too long for a socket's address.
    #[error("the path {} is too long for a socket ({} bytes, 107 at most); set RINGROAD_RUNTIME_DIR to a shorter folder", .0.display(), .0.as_os_str().len())]
    PathTooLong(PathBuf),
    /// A name for a guest is invalid.
    #[error(
        "\"{0}\" is not a name for a guest; use letters, digits, _ . and -, 32 at most, with a letter or digit first"
    )]
    BadName(String),
    /// A guest with that name is running.
    #[error("a guest {name} runs already ({kind}, process {pid}); choose another name, or end it first")]
    NameTaken {
        name: String,
        kind: &'static str,
        /// Process ID of that guest.
        pid: u32,
    },
    /// No guest with that name is running.
    #[error("no virtual machine {name} runs; there are: {}", list_of(.existing))]
    NoSuchGuest {
        name: String,
        /// Names of the running guests.
        existing: Vec<String>,
    },
    /// A record of a guest cannot be read.
    #[error("{} is not a guest's record ({reason}); remove its folder if no such guest runs", .path.display())]
    BadRecord {
        /// Path of the record.
        path: PathBuf,
        reason: String,
    },
    /// User-mode Linux, or its modules, are not where they should be.
    #[error("{} is not user-mode Linux with its modules in ../lib/uml/modules; on Debian: apt-get install user-mode-linux, \
             or name a folder into which this package was unpacked (dpkg-deb -x) with --kernel", .0.display())]
    NoUserModeLinux(PathBuf),
    /// User-mode Linux cannot be given a path.
    #[error("user-mode Linux reads the path {} as several words; set RINGROAD_RUNTIME_DIR to a folder without \
             blanks, quotes, colons and commas", .0.display())]
    OddPath(PathBuf),
    /// The virtual machine ended before the guest was up.
    #[error("{program} ended before the guest was up: {last_words}")]
    EndedEarly {
        /// Program that is the machine.
        program: &'static str,
        /// Last lines of the machine's output and of the console.
        last_words: String,
    },
    /// The guest did not boot within the time limit.
    #[error("the guest was not up within {} s: {last_words}", .waited.as_secs())]
    NotUp {
        /// Time limit that passed.
        waited: Duration,
        /// Last lines of the machine's output and of the console.
        last_words: String,
    },
    /// A process did not end on request, and was killed.
    #[error("process {pid} did not end within {} s after SIGTERM, and was killed", .waited.as_secs())]
    Killed {
        /// Process ID.
        pid: u32,
        /// Time limit that passed.
        waited: Duration,
    },
    /// The guest ended while a command was running in it.
    #[error("the guest ended before the command did")]
    GuestGone,
    /// The guest did not begin with a command.
    #[error("the guest did not begin with the command within {} s; check its console", .0.as_secs())]
    NoAnswer(Duration),
    /// A command is too long for the channel.
    #[error("the command has {bytes} bytes and the channel takes {most}; send long files over the network")]
    CommandTooLong {
        /// Length of the command, bytes.
        bytes: usize,
        /// Longest allowed command, bytes.
        most: usize,
    },
    /// A signal arrived.
    #[error("interrupted")]
    Interrupted,
}

impl GuestError {
    /// Makes a function that converts an I/O error of `action` ("read", "make", ...) on `path`.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }
}

fn list_of(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
