//! The UNIX socket by which a port and its peer find each other, again and again.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringroad_ring::eventfd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// How long a client waits before it tries again to reach a server that is not there.
const RETRY: Duration = Duration::from_millis(200);
/// Who may connect to a server where its name does not say: the user that it runs as.
const DEFAULT_MODE: u32 = 0o600;

/// Why a port's socket cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerSocketError {
    /// Its path cannot be a socket's.
    #[error("the path of the socket {path} does not fit: a socket's has 107 bytes at most and no NUL")]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// Another program serves it.
    #[error(
        "a program listens on {path} already: end it, choose another path, or connect to it with role=client"
    )]
    Taken {
        /// The path.
        path: PathBuf,
    },
    /// Something else is there.
    #[error("{path} is there and is no socket: choose another path")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("{step} {path}: {source}")]
    System {
        /// What was tried.
        step: &'static str,
        /// The path.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

impl PeerSocketError {
    fn system(step: &'static str, path: &Path) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |source| Self::System { step, path: path.to_owned(), source: source.into() }
    }
}

/// A listening socket; its file goes when it does.
#[derive(Debug)]
pub(crate) struct PeerListener {
    socket: OwnedFd,
    path: PathBuf,
}

impl PeerListener {
    /// Listens at `path`. A socket file that nobody serves any more is replaced. `mode` are the permissions of the file.
    ///
    /// # Errors
    /// [`PeerSocketError`].
    pub(crate) fn bind(path: &Path, kind: SocketType, mode: Option<u32>) -> Result<Self, PeerSocketError> {
        let address = address(path)?;
        let socket = socket(kind).map_err(PeerSocketError::system("making a socket for", path))?;
        make_way(path, kind)?;

        rustix::net::bind(&socket, &address).map_err(PeerSocketError::system("binding", path))?;
        let this = Self { socket, path: path.to_owned() };
        let permissions = std::fs::Permissions::from_mode(mode.unwrap_or(DEFAULT_MODE));
        std::fs::set_permissions(path, permissions).map_err(|source| PeerSocketError::System {
            step: "setting the permissions of",
            path: path.to_owned(),
            source,
        })?;
        // Nobody can connect before this.
        rustix::net::listen(&this.socket, 16).map_err(PeerSocketError::system("listening on", path))?;
        Ok(this)
    }

    /// A connection that waits, if one does.
    ///
    /// # Errors
    /// The kernel's (out of descriptors).
    pub(crate) fn accept(&self) -> std::io::Result<Option<OwnedFd>> {
        match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
            Ok(connection) => Ok(Some(connection)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for PeerListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for PeerListener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn address(path: &Path) -> Result<SocketAddrUnix, PeerSocketError> {
    SocketAddrUnix::new(path).map_err(|_| PeerSocketError::Path { path: path.to_owned() })
}

fn socket(kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)
}

/// Removes the socket file of a server that has ended.
fn make_way(path: &Path, kind: SocketType) -> Result<(), PeerSocketError> {
    let there = match std::fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(PeerSocketError::System { step: "looking at", path: path.to_owned(), source });
        }
    };
    if !there.file_type().is_socket() {
        return Err(PeerSocketError::NotASocket { path: path.to_owned() });
    }
    match connect(path, kind) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        // One of another kind answers, or a busy one.
        _ => return Err(PeerSocketError::Taken { path: path.to_owned() }),
    }
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(PeerSocketError::System { step: "removing", path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Connects to the server at `path`.
///
/// # Errors
/// The kernel's; `NotFound` and `ConnectionRefused` where there is none.
pub(crate) fn connect(path: &Path, kind: SocketType) -> std::io::Result<OwnedFd> {
    let address = address(path).map_err(std::io::Error::other)?;
    let socket = socket(kind)?;
    rustix::net::connect(&socket, &address)?;
    // Connected at once or not at all; from here on a thread of its own waits on it.
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

/// How a port's thread learns that the port ends: an eventfd that it waits for beside all else.
#[derive(Debug, Clone)]
pub(crate) struct StopBell(Arc<OwnedFd>);

impl StopBell {
    /// One that has not been rung.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        Ok(Self(Arc::new(eventfd::create()?)))
    }

    /// Ends whoever waits, now and from now on.
    pub(crate) fn ring(&self) {
        eventfd::ring_own(&*self.0);
    }

    /// Waits until one of `descriptors` has something to say, or `timeout` is over. Says which have; `None` when it was rung.
    pub(crate) fn wait<const N: usize>(
        &self,
        descriptors: [BorrowedFd<'_>; N],
        timeout: Option<Duration>,
    ) -> Option<[bool; N]> {
        self.wait_for_any(&descriptors, timeout)?.try_into().ok()
    }

    /// As [`Self::wait`], for any number of them.
    pub(crate) fn wait_for_any(
        &self,
        descriptors: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Option<Vec<bool>> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut waits: Vec<PollFd<'_>> = std::iter::once(self.0.as_fd())
            .chain(descriptors.iter().copied())
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        loop {
            match poll(&mut waits, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                // Nothing can be waited for, so nothing will be served: as good as the end.
                Err(_) => return None,
                Ok(_) => break,
            }
        }
        let mut ready = waits.iter().map(|wait| !wait.revents().is_empty());
        if ready.next() == Some(true) {
            return None;
        }
        Some(ready.collect())
    }

    /// Connects to the server at `path` as soon as it is there; `failed` is told why it is not, each time. `None` when the bell was rung.
    pub(crate) fn await_server(
        &self,
        path: &Path,
        kind: SocketType,
        mut failed: impl FnMut(String),
    ) -> Option<OwnedFd> {
        loop {
            match connect(path, kind) {
                Ok(socket) => return Some(socket),
                Err(error) => failed(format!("connecting to {}: {error}", path.display())),
            }
            self.wait([], Some(RETRY))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        // What a killed server leaves.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = PeerListener::bind(&path, SocketType::STREAM, None).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let taken = PeerListener::bind(&path, SocketType::STREAM, None);
        assert!(matches!(taken, Err(PeerSocketError::Taken { .. })));
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "mine").unwrap();
        let other = PeerListener::bind(&path, SocketType::STREAM, None);
        assert!(matches!(other, Err(PeerSocketError::NotASocket { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        let long = folder.path().join("x".repeat(120));
        assert!(matches!(
            PeerListener::bind(&long, SocketType::STREAM, None),
            Err(PeerSocketError::Path { .. })
        ));
    }

    #[test]
    fn a_client_finds_a_server_that_comes_later_and_ends_when_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let stop = StopBell::new().unwrap();
        let (failures, failed) = std::sync::mpsc::channel();
        let thread = std::thread::spawn({
            let (stop, path) = (stop.clone(), path.clone());
            move || {
                let mut told = |why| failures.send(why).unwrap();
                let found = stop.await_server(&path, SocketType::SEQPACKET, &mut told).is_some();
                found && stop.await_server(Path::new("/nowhere/s"), SocketType::STREAM, told).is_none()
            }
        });
        assert!(failed.recv().unwrap().contains("No such file"));
        let listener = PeerListener::bind(&path, SocketType::SEQPACKET, Some(0o660)).unwrap();
        assert_eq!(stop.wait([listener.as_fd()], None), Some([true]));
        assert!(listener.accept().unwrap().is_some());
        assert!(listener.accept().unwrap().is_none());
        while !failed.recv().unwrap().contains("nowhere") {}
        stop.ring();
        assert!(thread.join().unwrap());
    }
}
