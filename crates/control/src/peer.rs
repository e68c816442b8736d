//! Who is at the other end of a control connection.

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt};

/// Credentials of a peer, taken by the kernel when it connected (`SO_PEERCRED`, unix(7)); the peer cannot forge them.
///
/// At the client's end they are those of the process that called `listen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process; `None` where it lives in a PID namespace that this process does not see (the kernel then says 0).
    pub pid: Option<u32>,
    /// Effective user; 65534 (overflow) where it has no number in this user namespace.
    pub uid: u32,
    /// Effective group, with the same exception.
    pub gid: u32,
}

impl PeerCredentials {
    /// Asks the kernel who is at the other end of `socket`.
    ///
    /// # Errors
    /// That of getsockopt(2): `socket` is not a connected UNIX socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        // Not rustix: its type for a process cannot be 0, and any peer in another PID namespace makes it so.
        let credentials = getsockopt(&socket, sockopt::PeerCredentials)?;
        Ok(Self { pid: visible_pid(credentials.pid()), uid: credentials.uid(), gid: credentials.gid() })
    }
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
    fn a_process_of_a_foreign_namespace_has_no_number() {
        assert_eq!(visible_pid(0), None);
        assert_eq!(visible_pid(7), Some(7));
    }

    #[test]
    fn what_is_no_socket_has_no_peer() {
        assert!(PeerCredentials::of(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
