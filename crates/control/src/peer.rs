//! The user and process at the other end of a control connection.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Credentials of a peer, taken by the kernel when it connected (`SO_PEERCRED`, unix(7)); the peer cannot forge them.
///
/// At the client's end these are the credentials of the process that called `listen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process id; `None` if the peer is in a PID namespace that this process does not see (the kernel then reports 0).
    pub pid: Option<u32>,
    /// Effective user id; 65534 (overflow) if the user has no number in this user namespace.
    pub uid: u32,
    /// Effective group id, with the same exception.
    pub gid: u32,
}

impl PeerCredentials {
    /// Queries the kernel for the process at the other end of `socket`.
    ///
    /// # Errors
    /// The error of getsockopt(2): `socket` is not a connected UNIX socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        // rustix does not fit: its type for a process id cannot be 0, and a peer in another PID namespace has the id 0.
        let credentials = getsockopt(&socket, sockopt::PeerCredentials)?;
        Ok(Self { pid: visible_pid(credentials.pid()), uid: credentials.uid(), gid: credentials.gid() })
    }
}

/// Process that connected, also after its number is reused.
///
/// The kernel keeps the process with the socket and returns it on request (`SO_PEERPIDFD`, Linux 6.5). On older kernels
/// it must be looked up by its process id at once, before the id is reused.
#[derive(Debug)]
pub(crate) enum PeerProcess {
    /// Queried when it is needed.
    InSocket,
    /// Looked up when the connection was accepted.
    Found(io::Result<OwnedFd>),
}

impl PeerProcess {
    /// The process at the other end of `socket`, which was accepted just now.
    pub(crate) fn of(socket: impl AsFd, peer: PeerCredentials) -> Self {
        // Kernels before 6.5 do not keep the process. A query creates a descriptor, so this process queries the kernel
        // once.
        static IS_IN_SOCKETS: OnceLock<bool> = OnceLock::new();
        let ask = || !matches!(getsockopt(&socket, sockopt::PeerPidfd), Err(Errno::ENOPROTOOPT));
        if *IS_IN_SOCKETS.get_or_init(ask) { Self::InSocket } else { Self::Found(found(peer)) }
    }

    /// Descriptor of the process (pidfd).
    pub(crate) fn descriptor(&self, socket: impl AsFd) -> io::Result<OwnedFd> {
        match self {
            Self::InSocket => Ok(getsockopt(&socket, sockopt::PeerPidfd)?),
            Self::Found(Ok(found)) => found.try_clone(),
            Self::Found(Err(error)) => Err(error.kind().into()),
        }
    }
}

fn found(peer: PeerCredentials) -> io::Result<OwnedFd> {
    let pid = peer.pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    Ok(pidfd_open(pid.ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?)
}

fn visible_pid(pid: i32) -> Option<u32> {
    u32::try_from(pid).ok().filter(|&pid| pid != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_pair_is_connected_to_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = PeerCredentials::of(&one).unwrap();
        assert_eq!(peer.pid, Some(std::process::id()));
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.gid, rustix::process::getegid().as_raw());
    }

    #[test]
    fn both_ways_to_find_the_peer_process_agree() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = PeerCredentials::of(&one).unwrap();
        let number = |process: OwnedFd| {
            let path = format!("/proc/self/fdinfo/{}", std::os::fd::AsRawFd::as_raw_fd(&process));
            let told = std::fs::read_to_string(path).unwrap();
            told.lines().find_map(|line| line.strip_prefix("Pid:\t")).unwrap().to_owned()
        };
        let own = std::process::id().to_string();
        assert_eq!(number(found(peer).unwrap()), own);
        assert_eq!(number(PeerProcess::of(&one, peer).descriptor(&one).unwrap()), own);
        assert!(found(PeerCredentials { pid: None, ..peer }).is_err());
    }

    #[test]
    fn a_process_of_a_foreign_namespace_has_no_number() {
        assert_eq!(visible_pid(0), None);
        assert_eq!(visible_pid(7), Some(7));
    }

    #[test]
    fn another_file_than_a_socket_has_no_peer() {
        assert!(PeerCredentials::of(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
