//! Starts the daemon when a program needs it, as tmux starts its server.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringroad_control::socket_path::{MANAGED, lock_path};

/// Environment variable that names the daemon's program.
pub const DAEMON_VARIABLE: &str = "RINGROAD_DAEMON";
/// File name of the daemon's program.
const DAEMON_FILE: &str = "ringroadd";

/// Maximum time for which a program waits for a service that is being restarted, and interval between two checks.
const SERVICE_PATIENCE: Duration = Duration::from_secs(5);
const SERVICE_CHECK: Duration = Duration::from_millis(20);

/// Reason why the daemon could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The program was not found.
    #[error(
        "no daemon listens at {socket} and the program ringroadd was not found beside this program or in PATH; \
         install it, or name it in $RINGROAD_DAEMON"
    )]
    NoProgram {
        /// Socket that the program tried.
        socket: String,
    },
    /// The program could not be run.
    #[error("running {program}: {source}")]
    Run {
        /// Path of the program.
        program: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The daemon is a service, which died and was not restarted in time.
    #[error(
        "the daemon at {socket} is a service that does not run; start it again: systemctl restart ringroadd, and see why it \
         ended: journalctl -u ringroadd"
    )]
    ServiceDown {
        /// Socket of the service.
        socket: String,
    },
    /// The daemon ended before it was ready.
    #[error("{program} did not start: {said}")]
    NotReady {
        /// Path of the program.
        program: String,
        /// Output of the program.
        said: String,
    },
}

/// Path of the daemon's program: `$RINGROAD_DAEMON`, else a file beside this program, else in `PATH`.
#[must_use]
pub fn daemon_program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(DAEMON_VARIABLE) {
        return Some(PathBuf::from(named));
    }
    let own = std::env::current_exe().ok();
    // Test programs and examples are one folder below the binaries.
    let folders = own.iter().flat_map(|own| own.ancestors().skip(1).take(2)).map(Path::to_path_buf);
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join(DAEMON_FILE))
        .find(|program| program.is_file())
}

/// Whether a process accepts connections at `socket`.
fn is_listening(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// Starts the daemon at `socket` unless one listens there. Two programs may do so at once: the daemon's own lock lets
/// one daemon win, and both programs find it.
///
/// # Errors
/// [`StartError`].
pub fn ensure_daemon(socket: &Path) -> Result<(), StartError> {
    if is_listening(socket) {
        return Ok(());
    }
    if is_managed(socket) {
        return await_service(socket);
    }
    start_daemon(socket, &["--on-demand"])
}

/// Whether a service manager will restart the daemon at `socket`.
fn is_managed(socket: &Path) -> bool {
    std::fs::read_to_string(lock_path(socket)).is_ok_and(|note| note == MANAGED)
}

/// Waits until the service listens again. Another daemon, started here, would keep the service from coming back.
fn await_service(socket: &Path) -> Result<(), StartError> {
    let end = Instant::now() + SERVICE_PATIENCE;
    while !is_listening(socket) {
        if Instant::now() > end {
            return Err(StartError::ServiceDown { socket: socket.display().to_string() });
        }
        std::thread::sleep(SERVICE_CHECK);
    }
    Ok(())
}

/// Starts the daemon at `socket` in the background with further `arguments`, and waits until it is ready.
///
/// # Errors
/// [`StartError`].
pub fn start_daemon(socket: &Path, arguments: &[&str]) -> Result<(), StartError> {
    let program =
        daemon_program().ok_or_else(|| StartError::NoProgram { socket: socket.display().to_string() })?;
    let name = program.display().to_string();
    let run = |source: std::io::Error| StartError::Run { program: name.clone(), source };
    // The daemon writes "ready" to its standard output when it listens, or an error to its standard error, and then
    // detaches from both.
    let (mut ready, ready_writer) = std::io::pipe().map_err(run)?;
    let (mut errors, errors_writer) = std::io::pipe().map_err(run)?;
    // Libraries preloaded into this program must not be loaded into the daemon.
    let mut child = Command::new(&program)
        .env_remove("LD_PRELOAD")
        .args(["--background", "--socket"])
        .arg(socket)
        .args(arguments)
        // The daemon must not report to the service manager that started this program.
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(OwnedFd::from(ready_writer))
        .stderr(OwnedFd::from(errors_writer))
        .spawn()
        .map_err(run)?;
    let mut said = String::new();
    let _ = ready.read_to_string(&mut said);
    // The child only starts the real daemon, in a session of its own, and ends.
    let status = child.wait().map(|status| status.to_string()).unwrap_or_default();
    if said.starts_with("ready") {
        return Ok(());
    }
    let mut why = String::new();
    let _ = errors.read_to_string(&mut why);
    let why = why.trim();
    let said = if why.is_empty() { format!("it ended with {status} without output") } else { why.to_owned() };
    Err(StartError::NotReady { program: name, said })
}
