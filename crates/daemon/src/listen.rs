//! Binding of the control socket: one daemon per path, stale sockets cleared, the folder safe. A path that cannot be a
//! socket's is refused before anything is made, and what a failed start has made is removed.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ringroad_control::listening_socket::{self, BoundSocket, ListeningSocket};
use ringroad_control::socket_path::{MANAGED, lock_path};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
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

/// The folders and the lock file of a start. What the start has made of them is removed when this value is dropped,
/// unless the start was successful ([`Self::keep`]). It must be dropped after the socket.
#[derive(Debug, Default)]
pub struct StartFiles {
    /// Folders that were made, each before those in it.
    folders: Vec<PathBuf>,
    lock: Option<StartLock>,
}

#[derive(Debug)]
struct StartLock {
    /// Path of the socket.
    socket: PathBuf,
    file: OwnedFd,
    is_new: bool,
}

impl StartFiles {
    /// Leaves the files where they are.
    pub fn keep(mut self) {
        (self.folders, self.lock) = (Vec::new(), None);
    }

    fn make_folder(&mut self, folder: &Path, mode: u32) -> Result<(), ListenError> {
        if folder.as_os_str().is_empty() || folder.exists() {
            return Ok(());
        }
        if let Some(parent) = folder.parent() {
            self.make_folder(parent, mode)?;
        }
        match std::fs::DirBuilder::new().mode(mode).create(folder) {
            Ok(()) => self.folders.push(folder.to_owned()),
            // Another process was quicker.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("making the folder", folder)(error)),
        }
        Ok(())
    }

    /// Locks the lock file of `socket`, which is made if it does not exist.
    fn lock(&mut self, socket: &Path) -> Result<&StartLock, ListenError> {
        let path = lock_path(socket);
        let open = |more| {
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            rustix::fs::open(&path, flags | more, Mode::RUSR | Mode::WUSR)
        };
        loop {
            let (opened, is_new) = match open(OFlags::CREATE | OFlags::EXCL) {
                Err(Errno::EXIST) => (open(OFlags::empty()), false),
                opened => (opened, true),
            };
            let file = match opened {
                Err(Errno::NOENT) if !is_new => continue,
                opened => opened.map_err(failed("opening the lock", &path))?,
            };
            // Another user could have put the lock file into a folder like /tmp, and hold its lock for ever.
            let status = rustix::fs::fstat(&file).map_err(failed("checking", &path))?;
            if !is_safe_owner(status.st_uid) {
                return Err(ListenError::ForeignLock(path.display().to_string()));
            }
            rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(failed("locking", &path))?;
            // A start that failed may have removed the file meanwhile.
            if is_at(&path, &file) {
                return Ok(self.lock.insert(StartLock { socket: socket.to_owned(), file, is_new }));
            }
        }
    }
}

impl StartLock {
    /// Notes in the file whether a service manager restarts the daemon, and unlocks the file.
    fn release(&self, managed: bool) -> Result<(), ListenError> {
        let note = if managed { MANAGED } else { "" };
        rustix::fs::ftruncate(&self.file, 0)
            .and_then(|()| rustix::io::pwrite(&self.file, note.as_bytes(), 0))
            .and_then(|_| rustix::fs::flock(&self.file, FlockOperation::Unlock))
            .map_err(failed("writing", &lock_path(&self.socket)))
    }

    /// Removes the file, unless another daemon uses it.
    fn remove(&self) {
        let path = lock_path(&self.socket);
        if rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && is_at(&path, &self.file)
            && ListeningSocket::check(&self.socket, SocketType::STREAM).is_ok()
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for StartFiles {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.as_ref().filter(|lock| lock.is_new) {
            lock.remove();
        }
        for folder in self.folders.iter().rev() {
            // A folder that has files by now stays.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// Whether the open file is the one at `path`.
pub(crate) fn is_at(path: &Path, file: impl AsFd) -> bool {
    match (rustix::fs::lstat(path), rustix::fs::fstat(file)) {
        (Ok(there), Ok(own)) => (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino),
        _ => false,
    }
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
    files: &mut StartFiles,
) -> Result<ListeningSocket, ListenError> {
    ListeningSocket::check(path, SocketType::STREAM)?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    };
    // Permissions of the folder let all users pass whom the socket's mode lets in.
    let folder_mode = if mode & 0o077 == 0 { 0o700 } else { 0o755 };
    files.make_folder(&folder, folder_mode)?;
    check_folder(&folder)?;
    let lock = files.lock(path)?;
    // Clients cannot connect before group and mode are set, so a client that finds the socket ready is accepted by its
    // mode.
    let socket = BoundSocket::bind(path, SocketType::STREAM, Some(mode & 0o600))?;
    set_access(path, mode, gid)?;
    let socket = socket.listen(BACKLOG)?;
    lock.release(managed)?;
    Ok(socket)
}

/// Notes in the lock file of the socket at `path`, after an upgrade, whether a service manager restarts the daemon: an
/// earlier version has a lock file of another name.
///
/// # Errors
/// [`ListenError`].
pub fn take_over_lock(path: &Path, managed: bool) -> Result<(), ListenError> {
    let mut files = StartFiles::default();
    let noted = files.lock(path)?.release(managed);
    files.keep();
    noted
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
pub(crate) fn is_safe_owner(uid: u32) -> bool {
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

    /// Listens as a daemon whose start is successful.
    fn listen_at(path: &Path) -> Result<ListeningSocket, ListenError> {
        let mut files = StartFiles::default();
        let listened = listen(path, 0o600, None, false, &mut files);
        if listened.is_ok() {
            files.keep();
        }
        listened
    }

    fn is_running(listened: Result<ListeningSocket, ListenError>) -> bool {
        matches!(listened, Err(ListenError::Socket(listening_socket::ListeningSocketError::Taken { .. })))
    }

    fn is_empty(folder: &tempfile::TempDir) -> bool {
        std::fs::read_dir(folder.path()).unwrap().next().is_none()
    }

    #[test]
    fn a_second_daemon_finds_the_first_and_a_dead_one_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/r.sock");
        let first = listen_at(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(is_running(listen_at(&path)));
        drop(first);
        drop(listen_at(&path).unwrap());
        // A start that fails removes nothing that was there before it.
        let mut files = StartFiles::default();
        drop(listen(&path, 0o600, None, false, &mut files).unwrap());
        drop(files);
        assert!(lock_path(&path).exists());
    }

    #[test]
    fn a_start_that_fails_leaves_no_file_and_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("a").join("x".repeat(120));
        assert!(matches!(listen_at(&long), Err(ListenError::Socket(_))));
        assert!(is_empty(&folder));
        // A step after the socket fails.
        let path = folder.path().join("a/b/r.sock");
        let mut files = StartFiles::default();
        let socket = listen(&path, 0o600, None, false, &mut files).unwrap();
        assert!(lock_path(&path).exists());
        drop(socket);
        drop(files);
        assert!(is_empty(&folder));
    }

    #[test]
    fn a_path_of_another_file_is_refused_before_anything_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwd");
        std::fs::write(&path, "mine").unwrap();
        let refused = listen_at(&path).unwrap_err();
        let expected = listening_socket::ListeningSocketError::NotASocket { path: path.clone() };
        assert_eq!(refused.to_string(), expected.to_string());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        assert!(listen_at(&path.join("r.sock")).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_start_that_fails_leaves_the_lock_to_the_start_that_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.sock");
        let mut failing = StartFiles::default();
        failing.lock(&path).unwrap();
        let waiting = std::thread::spawn({
            let path = path.clone();
            move || listen_at(&path)
        });
        drop(failing);
        let _socket = waiting.join().unwrap().unwrap();
        assert!(lock_path(&path).exists());
        // It lost the race for the socket after it had made the lock file.
        let mut late = StartFiles::default();
        std::fs::remove_file(lock_path(&path)).unwrap();
        late.lock(&path).unwrap();
        drop(late);
        assert!(lock_path(&path).exists());
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = listen_at(&folder.path().join("r.sock"));
        assert!(matches!(refused, Err(ListenError::UnsafeFolder(_))));
        assert!(is_empty(&folder));
    }

    #[test]
    fn a_lock_of_another_user_is_refused_instead_of_waited_for() {
        if !ringroad_test_needs::is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.sock");
        let held = std::fs::File::create(lock_path(&path)).unwrap();
        std::os::unix::fs::chown(lock_path(&path), Some(12345), None).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        let refused = listen_at(&path);
        assert!(matches!(refused, Err(ListenError::ForeignLock(_))), "{refused:?}");
    }

    #[test]
    fn a_daemon_that_is_behind_with_accepting_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.sock");
        let first = listen_at(&path).unwrap();
        rustix::net::listen(&first, 0).unwrap();
        let waiting: Vec<_> =
            std::iter::from_fn(|| listening_socket::connect(&path, SocketType::STREAM).ok()).collect();
        assert!(!waiting.is_empty());
        assert!(is_running(listen_at(&path)));
    }
}
