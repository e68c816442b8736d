//! Taking the control socket: one daemon per path, stale sockets cleared, the folder safe.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};

/// Why the socket cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// A daemon listens there already.
    #[error("a daemon listens at {0} already")]
    AlreadyRunning(String),
    /// Somebody else could put a socket of his own there.
    #[error(
        "the folder {0} can be written by others; choose another socket with --socket or $RINGROAD_SOCKET"
    )]
    UnsafeFolder(String),
    /// The kernel refused.
    #[error("{step} {path}: {source}")]
    System {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ListenError {
    let path = path.display().to_string();
    move |source| ListenError::System { step, path, source }
}

/// Listens at `path` with permission bits `mode`. The check for another daemon, the clearing of what a dead one left
/// and the binding happen under a lock, so that of two daemons started at once one wins and the other finds it.
///
/// # Errors
/// [`ListenError`].
pub fn listen(path: &Path, mode: u32, gid: Option<u32>) -> Result<UnixListener, ListenError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    };
    // Others must be able to pass where the socket's mode lets them in.
    let folder_mode = if mode & 0o077 == 0 { 0o700 } else { 0o755 };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(folder_mode)
        .create(&folder)
        .map_err(failed("making the folder", &folder))?;
    check_folder(&folder)?;

    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let lock_path = PathBuf::from(lock_path);
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = rustix::fs::open(&lock_path, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| failed("opening the lock", &lock_path)(errno.into()))?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)
        .map_err(|errno| failed("locking", &lock_path)(errno.into()))?;

    if UnixStream::connect(path).is_ok() {
        return Err(ListenError::AlreadyRunning(path.display().to_string()));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed("removing the stale socket", path)(error));
        }
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(failed("listening at", path))?;
    listener.set_nonblocking(true).map_err(failed("listening at", path))?;
    set_access(path, mode, gid)?;
    Ok(listener)
}

/// Sets permission bits and group of the socket.
///
/// # Errors
/// [`ListenError::System`].
pub fn set_access(path: &Path, mode: u32, gid: Option<u32>) -> Result<(), ListenError> {
    if gid.is_some() {
        std::os::unix::fs::chown(path, None, gid).map_err(failed("changing the group of", path))?;
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .map_err(failed("setting the mode of", path))
}

/// A folder in which another user can replace the socket is refused, unless the sticky bit keeps him from it.
fn check_folder(folder: &Path) -> Result<(), ListenError> {
    let status = std::fs::metadata(folder).map_err(failed("looking at", folder))?;
    let own = rustix::process::geteuid().as_raw();
    let safe_owner = status.uid() == own || status.uid() == 0;
    let writable = status.mode() & 0o022 != 0 && status.mode() & 0o1000 == 0;
    if !safe_owner || writable {
        return Err(ListenError::UnsafeFolder(folder.display().to_string()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_finds_the_first_and_a_dead_one_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/r.sock");
        let first = listen(&path, 0o600, None).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(listen(&path, 0o600, None), Err(ListenError::AlreadyRunning(_))));
        drop(first);
        listen(&path, 0o600, None).unwrap();
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = listen(&folder.path().join("r.sock"), 0o600, None);
        assert!(matches!(refused, Err(ListenError::UnsafeFolder(_))));
    }
}
