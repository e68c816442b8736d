//! Errors at a program's end of a control connection.

use std::io;
use std::path::PathBuf;

use crate::codec::EncodeError;
use crate::message::ErrorReply;

/// Reason why a connection was not made or a request not answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// There is no socket, or no daemon listens on it.
    #[error("no daemon listens on {}: start one with `ringroad up`", path.display())]
    DaemonNotRunning {
        /// Path of the socket.
        path: PathBuf,
    },
    /// This user may not use the socket.
    #[error("permission denied on {} ({access}): connect as a user or group that it admits", path.display())]
    PermissionDenied {
        /// Path of the socket.
        path: PathBuf,
        /// Mode and owner of the socket or, where that is hidden, of the directory that hides it.
        access: String,
    },
    /// A daemon of another user listens at the fallback path, where anybody can put a socket.
    #[error("the daemon on {} belongs to user {uid}, not to you or root: remove that directory, or set \
             RINGROAD_SOCKET to the socket that you mean", path.display())]
    ForeignDaemon {
        /// Path of the socket.
        path: PathBuf,
        /// User of the daemon.
        uid: u32,
    },
    /// The connection could not be made for another reason.
    #[error("cannot connect to {}: {source}", path.display())]
    Connect {
        /// Path of the socket.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The daemon ended or dropped the connection before it answered.
    #[error("the daemon on {} went away before it answered: see `ringroad status` and the daemon's log", path.display())]
    DaemonGone {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The daemon did not answer in time. The connection is unusable from then on.
    #[error("the daemon on {} did not answer within {timeout_ms} ms: it may be overloaded or stopped", path.display())]
    Timeout {
        /// Path of the socket.
        path: PathBuf,
        /// Time waited, ms.
        timeout_ms: u128,
    },
    /// The received bytes are not a reply to the request: they violate the protocol, or are a reply of another kind.
    /// The connection is unusable from then on.
    #[error("the daemon broke the protocol ({0}): use a program and a daemon of the same version")]
    ProtocolViolation(String),
    /// The request cannot be sent; no byte was sent.
    #[error("request not sent: {0}")]
    Unsendable(#[from] EncodeError),
    /// An earlier request on this connection failed, so the stream is out of step; or a process that forked this one
    /// made the connection.
    #[error("this connection failed before, or belongs to the process that forked this one: open a new one")]
    ConnectionUnusable,
    /// The daemon refused the request.
    #[error("{0}")]
    Refused(#[source] ErrorReply),
    /// The kernel failed on the socket.
    #[error("control socket {}: {source}", path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}
