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

/// How long a program waits for a service that is being started again, and how often it looks.
const SERVICE_PATIENCE: Duration = Duration::from_secs(5);
const SERVICE_CHECK: Duration = Duration::from_millis(20);

/// Why the daemon could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The program is nowhere to be found.
    #[error(
        "no daemon listens at {socket} and the program ringroadd was not found beside this program or in PATH; \
         install it, or name it in $RINGROAD_DAEMON"
    )]
    NoProgram {
        /// Socket that was tried.
        socket: String,
    },
    /// It could not be run.
    #[error("running {program}: {source}")]
    Run {
        /// The program.
        program: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// A service manager's daemon died, and has not come back.
    #[error(
        "the daemon at {socket} is a service that does not run; start it again: systemctl restart ringroadd, and see why it \
         ended: journalctl -u ringroadd"
    )]
    ServiceDown {
        /// Its socket.
        socket: String,
    },
    /// It ended before it was ready.
    #[error("{program} did not start: {said}")]
    NotReady {
        /// The program.
        program: String,
        /// Its output.
        said: String,
    },
}

/// The daemon's program: `$RINGROAD_DAEMON`, else beside this program, else in `PATH`.
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

/// Whether something accepts connections at `socket`.
fn is_listening(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// Starts the daemon at `socket` unless one listens there. Two programs may do so at once: the daemon's own lock lets
/// one win, and both find it.
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

/// Whether a service manager will start the daemon at `socket` again.
fn is_managed(socket: &Path) -> bool {
    std::fs::read_to_string(lock_path(socket)).is_ok_and(|note| note == MANAGED)
}

/// Waits until the service is there again. A daemon started in its place would keep it from coming back.
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

/// Starts the daemon at `socket` in the background with more `arguments`, and waits until it is ready.
///
/// # Errors
/// [`StartError`].
pub fn start_daemon(socket: &Path, arguments: &[&str]) -> Result<(), StartError> {
    let program =
        daemon_program().ok_or_else(|| StartError::NoProgram { socket: socket.display().to_string() })?;
    let name = program.display().to_string();
    let run = |source: std::io::Error| StartError::Run { program: name.clone(), source };
    // The daemon writes "ready" into its standard output when it listens, or what went wrong into its standard error,
    // and then detaches from both.
    let (mut ready, ready_writer) = std::io::pipe().map_err(run)?;
    let (mut errors, errors_writer) = std::io::pipe().map_err(run)?;
    // Libraries preloaded into this program are not for the daemon.
    let mut child = Command::new(&program)
        .env_remove("LD_PRELOAD")
        .args(["--background", "--socket"])
        .arg(socket)
        .args(arguments)
        // Nor is the service manager that started this program.
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(OwnedFd::from(ready_writer))
        .stderr(OwnedFd::from(errors_writer))
        .spawn()
        .map_err(run)?;
    let mut said = String::new();
    let _ = ready.read_to_string(&mut said);
    // The program started here only starts the real one, in a session of its own, and ends.
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
