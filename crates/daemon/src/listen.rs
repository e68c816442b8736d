//! Binding of the control socket: one daemon per path, stale sockets cleared, the folder safe.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ringroad_control::listening_socket::{self, BoundSocket, ListeningSocket};
use ringroad_control::socket_path::{MANAGED, lock_path};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::net::SocketType;

/// Backlog of the socket. The backlog is first come, first served, and a user who connects and closes without end fills
/// it. A short one serves new clients sooner: a client beyond it waits in the kernel, where each process has one
/// position.
pub(crate) const BACKLOG: i32 = 128;

/// Reason why the socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A daemon listens on the path already, or another file is in the way.
    #[error(transparent)]
    Socket(#[from] listening_socket::ListeningSocketError),
    /// Another user could replace the socket by one of their own.
    #[error(
        "the folder {0} can be written by others; choose another socket with --socket or $RINGROAD_SOCKET"
    )]
    UnsafeFolder(String),
    /// Another user owns the lock file of the socket.
    #[error("the lock {0} belongs to another user; remove it, or choose another socket with --socket")]
    ForeignLock(String),
    #[error("{step} {path}: {source}")]
    System {
        step: &'static str,
        /// Path of the file.
        path: String,
        source: std::io::Error,
    },
}

fn failed<E: Into<std::io::Error>>(step: &'static str, path: &Path) -> impl FnOnce(E) -> ListenError {
    let path = path.display().to_string();
    move |source| ListenError::System { step, path, source: source.into() }
}

/// Listens at `path` with permission bits `mode`; the socket's file is removed with the returned value. The check for
/// another daemon, the removal of a dead daemon's socket and the binding happen under a lock. So of two daemons started
/// at the same time one wins, and the other reports it.
///
/// If the daemon is `managed` by a service manager that restarts it when it dies, the lock file states that. Programs
/// that find no daemon then wait for the restart instead of starting another daemon.
///
/// # Errors
/// [`ListenError`].
pub fn listen(
    path: &Path,
    mode: u32,
    gid: Option<u32>,
    managed: bool,
) -> Result<ListeningSocket, ListenError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    };
    // Permissions of the folder let all users pass whom the socket's mode lets in.
    let folder_mode = if mode & 0o077 == 0 { 0o700 } else { 0o755 };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(folder_mode)
        .create(&folder)
        .map_err(failed("making the folder", &folder))?;
    check_folder(&folder)?;

    let lock_path = lock_path(path);
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let lock = rustix::fs::open(&lock_path, flags, Mode::RUSR | Mode::WUSR)
        .map_err(failed("opening the lock", &lock_path))?;
    // Another user could have put the lock file into a folder like /tmp, and hold its lock for ever.
    let lock_status = rustix::fs::fstat(&lock).map_err(failed("checking", &lock_path))?;
    if !is_safe_owner(lock_status.st_uid) {
        return Err(ListenError::ForeignLock(lock_path.display().to_string()));
    }
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(failed("locking", &lock_path))?;

    // Clients cannot connect before group and mode are set, so a client that finds the socket ready is accepted by its
    // mode.
    let socket = BoundSocket::bind(path, SocketType::STREAM, Some(mode & 0o600))?;
    let note = if managed { MANAGED } else { "" };
    let noted = rustix::fs::ftruncate(&lock, 0).and_then(|()| rustix::io::pwrite(&lock, note.as_bytes(), 0));
    noted.map_err(failed("writing", &lock_path))?;
    set_access(path, mode, gid)?;
    Ok(socket.listen(BACKLOG)?)
}

/// Sets permission bits and group of the socket.
///
/// # Errors
/// [`ListenError::System`].
pub fn set_access(path: &Path, mode: u32, gid: Option<u32>) -> Result<(), ListenError> {
    if gid.is_some() {
        std::os::unix::fs::lchown(path, None, gid).map_err(failed("changing the group of", path))?;
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .map_err(failed("setting the mode of", path))
}

/// Whether the owner is root or the daemon's own user.
fn is_safe_owner(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Refuses a folder in which another user can replace the socket. The sticky bit prevents this.
fn check_folder(folder: &Path) -> Result<(), ListenError> {
    let status = std::fs::metadata(folder).map_err(failed("checking", folder))?;
    let writable = status.mode() & 0o022 != 0 && status.mode() & 0o1000 == 0;
    if !is_safe_owner(status.uid()) || writable {
        return Err(ListenError::UnsafeFolder(folder.display().to_string()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_running(listened: Result<ListeningSocket, ListenError>) -> bool {
        matches!(listened, Err(ListenError::Socket(listening_socket::ListeningSocketError::Taken { .. })))
    }

    #[test]
    fn a_second_daemon_finds_the_first_and_a_dead_one_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/r.sock");
        let first = listen(&path, 0o600, None, false).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(is_running(listen(&path, 0o600, None, false)));
        drop(first);
        listen(&path, 0o600, None, false).unwrap();
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = listen(&folder.path().join("r.sock"), 0o600, None, false);
        assert!(matches!(refused, Err(ListenError::UnsafeFolder(_))));
    }

    #[test]
    fn a_lock_of_another_user_is_refused_instead_of_waited_for() {
        if !ringroad_test_needs::is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let lock = folder.path().join("r.sock.lock");
        let held = std::fs::File::create(&lock).unwrap();
        std::os::unix::fs::chown(&lock, Some(12345), None).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        let refused = listen(&folder.path().join("r.sock"), 0o600, None, false);
        assert!(matches!(refused, Err(ListenError::ForeignLock(_))), "{refused:?}");
    }

    #[test]
    fn a_daemon_that_is_behind_with_accepting_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.sock");
        let first = listen(&path, 0o600, None, false).unwrap();
        rustix::net::listen(&first, 0).unwrap();
        let waiting: Vec<_> =
            std::iter::from_fn(|| listening_socket::connect(&path, SocketType::STREAM).ok()).collect();
        assert!(!waiting.is_empty());
        assert!(is_running(listen(&path, 0o600, None, false)));
    }
}
