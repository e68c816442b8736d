//! The listening end of a UNIX socket: a file with exactly the given permissions, and never another user's.
//!
//! Every user who may write to the file may connect. No link to the file is followed. Of the files at the path, only an
//! unserved socket of this user is removed. A user who may write to the file's folder can still replace the socket by
//! another one, as with any path.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// The default mode of a server's socket: only the server's own user can connect.
const DEFAULT_MODE: u32 = 0o600;

/// Reason why a socket could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListeningSocketError {
    /// The path cannot be a socket's.
    #[error("the path of the socket {path} does not fit: a socket's has 107 bytes at most and no NUL")]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// Another program serves the path.
    #[error(
        "a program listens on {path} already: end it, choose another path, or connect to it as its client"
    )]
    Taken {
        /// The path.
        path: PathBuf,
    },
    /// The path has a file that is not a socket.
    #[error("{path} exists and is not a socket: choose another path")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The path has a socket of another user.
    #[error(
        "{path} is a socket that user {uid} left behind: remove it if it is no longer used, or choose another path"
    )]
    NotOurs {
        /// The path.
        path: PathBuf,
        /// Owner of the socket.
        uid: u32,
    },
    /// The kernel refused.
    #[error("{step} {path}: {source}")]
    System {
        /// The step that failed.
        step: &'static str,
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

impl ListeningSocketError {
    fn system(step: &'static str, path: &Path) -> impl FnOnce(Errno) -> Self {
        move |source| Self::System { step, path: path.to_owned(), source: source.into() }
    }
}

/// A socket with its file, which is removed with the socket.
#[derive(Debug)]
pub struct BoundSocket {
    socket: OwnedFd,
    file: SocketFile,
    /// Whether the file stays when the socket is dropped.
    leaves_file: bool,
}

impl BoundSocket {
    /// Makes a socket with a file at `path`, by the same rules as [`ListeningSocket::bind`]. It does not listen: it is
    /// for datagrams.
    ///
    /// # Errors
    /// [`ListeningSocketError`].
    pub fn bind(path: &Path, kind: SocketType, mode: Option<u32>) -> Result<Self, ListeningSocketError> {
        let address = address(path)?;
        let mode = Mode::from_raw_mode(mode.unwrap_or(DEFAULT_MODE));
        let socket = socket(kind).map_err(ListeningSocketError::system("making a socket for", path))?;
        make_way(path, kind)?;

        // The file gets the socket's permissions, less the mask, so that at no time more users can connect than may.
        rustix::fs::fchmod(&socket, mode)
            .map_err(ListeningSocketError::system("setting the permissions of", path))?;
        rustix::net::bind(&socket, &address).map_err(|error| match error {
            Errno::ADDRINUSE => ListeningSocketError::Taken { path: path.to_owned() },
            error => ListeningSocketError::system("binding", path)(error),
        })?;
        let taken = || ListeningSocketError::Taken { path: path.to_owned() };
        let this = Self { socket, file: SocketFile::open(path)?.ok_or_else(taken)?, leaves_file: false };
        this.file.allow(mode)?;
        Ok(this)
    }

    /// Makes the socket listen, with a backlog of `backlog` connections. Before this call no client can connect.
    ///
    /// # Errors
    /// [`ListeningSocketError`].
    pub fn listen(self, backlog: i32) -> Result<ListeningSocket, ListeningSocketError> {
        rustix::net::listen(&self, backlog)
            .map_err(ListeningSocketError::system("listening on", &self.file.path))?;
        Ok(ListeningSocket(self))
    }
}

impl AsFd for BoundSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        if !self.leaves_file {
            let _ = self.file.remove();
        }
    }
}

/// A listening socket with its file, which is removed with the socket.
#[derive(Debug)]
pub struct ListeningSocket(BoundSocket);

impl ListeningSocket {
    /// Resumes the socket at `path` that another process of this user made and left to this process.
    ///
    /// # Errors
    /// [`ListeningSocketError`]: there is another file at the path by now.
    pub fn resume(path: &Path, socket: OwnedFd) -> Result<Self, ListeningSocketError> {
        let taken = || ListeningSocketError::Taken { path: path.to_owned() };
        let file = SocketFile::open(path)?.ok_or_else(taken)?;
        Ok(Self(BoundSocket { socket, file, leaves_file: false }))
    }

    /// Leaves the file at its path when this socket is dropped: it belongs to another process, which has the socket as
    /// well.
    pub fn leave_file(&mut self) {
        self.0.leaves_file = true;
    }

    /// Whether the socket's file is still at its path.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.0.file.is_at(&self.0.file.path)
    }

    /// Listens at `path`. An unserved socket file of this user is replaced; any other file stays as it is. `mode` are
    /// the permissions of the file, independent of the process's umask.
    ///
    /// # Errors
    /// [`ListeningSocketError`].
    pub fn bind(path: &Path, kind: SocketType, mode: Option<u32>) -> Result<Self, ListeningSocketError> {
        BoundSocket::bind(path, kind, mode)?.listen(16)
    }

    /// Checks that a socket can be made at `path`, as far as that is known without a change of any file.
    ///
    /// # Errors
    /// [`ListeningSocketError`].
    pub fn check(path: &Path, kind: SocketType) -> Result<(), ListeningSocketError> {
        address(path)?;
        unserved(path, kind).map(drop)
    }

    /// Accepts a waiting connection, if there is one.
    ///
    /// # Errors
    /// The kernel's (out of descriptors).
    pub fn accept(&self) -> io::Result<Option<OwnedFd>> {
        match rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC) {
            Ok(connection) => Ok(Some(connection)),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for ListeningSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The file of a socket. While it is held, no other file can have its inode number, so that a replaced file is
/// detected.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    file: OwnedFd,
}

impl SocketFile {
    /// Opens the file at `path`, never the target of a link there; `None` if there is no file.
    fn open(path: &Path) -> Result<Option<Self>, ListeningSocketError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            file => file.map_err(ListeningSocketError::system("checking", path))?,
        };
        let this = Self { path: path.to_owned(), file };
        if FileType::from_raw_mode(this.status()?.st_mode) == FileType::Socket {
            Ok(Some(this))
        } else {
            Err(ListeningSocketError::NotASocket { path: this.path })
        }
    }

    fn status(&self) -> Result<Stat, ListeningSocketError> {
        rustix::fs::fstat(&self.file).map_err(ListeningSocketError::system("checking", &self.path))
    }

    /// Path to this file and no other, wherever the socket's path leads by now.
    fn handle(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// Restores the permissions that the process's mask removed.
    fn allow(&self, mode: Mode) -> Result<(), ListeningSocketError> {
        let status = self.status()?;
        let taken = || ListeningSocketError::Taken { path: self.path.clone() };
        // A user with write access to the folder may have replaced the bound socket.
        if status.st_uid != rustix::process::geteuid().as_raw() {
            return Err(taken());
        }
        if Mode::from_raw_mode(status.st_mode) != mode {
            rustix::fs::chmod(self.handle(), mode)
                .map_err(ListeningSocketError::system("setting the permissions of", &self.path))?;
        }
        Ok(())
    }

    fn is_at(&self, path: &Path) -> bool {
        match (rustix::fs::lstat(path), rustix::fs::fstat(&self.file)) {
            (Ok(there), Ok(own)) => (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino),
            _ => false,
        }
    }

    /// Removes the file if it is still at its path.
    fn remove(&self) -> rustix::io::Result<()> {
        if self.is_at(&self.path) { self.take_away() } else { Ok(()) }
    }

    /// Moves the file at the path aside and removes it, or puts it back if it is another file: the file at a path can
    /// change between a check and the removal.
    fn take_away(&self) -> rustix::io::Result<()> {
        let mut number = [0; 8];
        rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
        let mut name = OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(format!(".{:016x}", u64::from_ne_bytes(number)));
        let aside = self.path.with_file_name(name);
        rustix::fs::rename(&self.path, &aside)?;
        if self.is_at(&aside) {
            rustix::fs::unlink(&aside)
        } else {
            rustix::fs::renameat_with(CWD, &aside, CWD, &self.path, RenameFlags::NOREPLACE)
        }
    }
}

fn address(path: &Path) -> Result<SocketAddrUnix, ListeningSocketError> {
    SocketAddrUnix::new(path).map_err(|_| ListeningSocketError::Path { path: path.to_owned() })
}

fn socket(kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)
}

/// Removes the socket file that a server of this user left behind.
fn make_way(path: &Path, kind: SocketType) -> Result<(), ListeningSocketError> {
    let left = unserved(path, kind)?;
    left.map_or(Ok(()), |there| there.remove()).map_err(ListeningSocketError::system("removing", path))
}

/// The socket file that a server of this user left behind, if there is one at `path`.
fn unserved(path: &Path, kind: SocketType) -> Result<Option<SocketFile>, ListeningSocketError> {
    let Some(there) = SocketFile::open(path)? else { return Ok(None) };
    match connect(&there.handle(), kind) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
        // A server answers, even if only that it is busy or of another kind; or the kernel does not report whether a
        // server exists.
        _ => return Err(ListeningSocketError::Taken { path: path.to_owned() }),
    }
    let uid = there.status()?.st_uid;
    if uid != rustix::process::geteuid().as_raw() {
        return Err(ListeningSocketError::NotOurs { path: path.to_owned(), uid });
    }
    Ok(Some(there))
}

/// Connects to the server at `path`.
///
/// # Errors
/// The kernel's; `NotFound` and `ConnectionRefused` if there is no server.
pub fn connect(path: &Path, kind: SocketType) -> io::Result<OwnedFd> {
    connect_prepared(path, kind, |_| ())
}

/// Connects as [`connect`] does. `prepare` gets the socket before the server can use it.
///
/// # Errors
/// As [`connect`].
pub fn connect_prepared(
    path: &Path,
    kind: SocketType,
    prepare: impl FnOnce(BorrowedFd<'_>),
) -> io::Result<OwnedFd> {
    let address = address(path).map_err(io::Error::other)?;
    let socket = socket(kind)?;
    prepare(socket.as_fd());
    rustix::net::connect(&socket, &address)?;
    // The connection is made at once or not at all; afterwards a thread of its own waits on it.
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn permissions(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        // A socket file, as a killed server leaves it.
        drop(UnixListener::bind(&path).unwrap());
        let listener = ListeningSocket::bind(&path, SocketType::STREAM, None).unwrap();
        assert_eq!(permissions(&path), 0o600);
        let taken = ListeningSocket::bind(&path, SocketType::STREAM, None);
        assert!(matches!(taken, Err(ListeningSocketError::Taken { .. })));
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "mine").unwrap();
        let other = ListeningSocket::bind(&path, SocketType::STREAM, None);
        assert!(matches!(other, Err(ListeningSocketError::NotASocket { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        let long = folder.path().join("x".repeat(120));
        assert!(matches!(
            ListeningSocket::bind(&long, SocketType::STREAM, None),
            Err(ListeningSocketError::Path { .. })
        ));
    }

    #[test]
    fn a_socket_file_never_has_more_than_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        for mode in [0o600, 0o660, 0o666] {
            let path = folder.path().join(format!("{mode:o}"));
            // Permissions before `allow` restores the mask's part.
            let socket = socket(SocketType::STREAM).unwrap();
            rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode)).unwrap();
            rustix::net::bind(&socket, &address(&path).unwrap()).unwrap();
            assert_eq!(permissions(&path) & !mode, 0, "{mode:o}");
            drop(socket);
            let listener = ListeningSocket::bind(&path, SocketType::STREAM, Some(mode)).unwrap();
            assert_eq!(permissions(&path), mode);
            drop(listener);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn no_link_is_followed_and_its_target_stays_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let (path, target) = (folder.path().join("s"), folder.path().join("target"));
        // Functions that make a file, a socket without a server, and nothing.
        let make: [fn(&Path); 3] = [
            |target| std::fs::write(target, "mine").unwrap(),
            |target| drop(UnixListener::bind(target).unwrap()),
            |_| {},
        ];
        for make in make {
            make(&target);
            let before = std::fs::symlink_metadata(&target).ok().map(|target| target.permissions());
            std::os::unix::fs::symlink(&target, &path).unwrap();
            let refused = ListeningSocket::bind(&path, SocketType::STREAM, Some(0o666));
            assert!(matches!(refused, Err(ListeningSocketError::NotASocket { .. })), "{refused:?}");
            let after = std::fs::symlink_metadata(&target).ok().map(|target| target.permissions());
            assert_eq!(before, after);
            std::fs::remove_file(&path).unwrap();
            let _ = std::fs::remove_file(&target);
        }
    }

    #[test]
    fn a_file_that_replaced_a_socket_stays_when_the_socket_closes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = ListeningSocket::bind(&path, SocketType::STREAM, None).unwrap();
        std::fs::remove_file(&path).unwrap();
        let successor = UnixListener::bind(&path).unwrap();
        drop(listener);
        assert!(path.exists());
        // A file that appears between the last check and the removal stays, too.
        let gone = SocketFile { path: path.clone(), file: tempfile::tempfile().unwrap().into() };
        gone.take_away().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(path.exists());
        drop(successor);
        drop(ListeningSocket::bind(&path, SocketType::STREAM, None).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn the_socket_of_another_user_is_not_removed() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        let refused = ListeningSocket::bind(&path, SocketType::STREAM, None);
        assert!(matches!(refused, Err(ListeningSocketError::NotOurs { uid: 65534, .. })), "{refused:?}");
        assert!(path.exists());
    }
}
