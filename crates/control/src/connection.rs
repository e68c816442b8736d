//! A program's end of a control connection: one request, one reply, within a timeout. The daemon may need more time for
//! some requests, since a card takes seconds to make its queues: the program waits longer for these, and reports the
//! wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringroad_ring::fork::WithheldFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::codec::{FrameDecoder, MAX_REPLY_BYTES, decode_reply, encode_request};
use crate::error::ControlError;
use crate::fd_passing::{MAX_DESCRIPTORS, receive, send};
use crate::message::{ErrorKind, ErrorReply, PROTOCOL_VERSION, Reply, Request};
use crate::peer::PeerCredentials;
use crate::report::{ListReport, MacEntryReport, PortReport, StartedBy, StatusReport};
use crate::socket_path::fallback_socket_path;

/// Time for which [`Connection`] waits for the daemon by default.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that the daemon may need for a request that changes interfaces ([`Request::may_take_long`]). The daemon carries
/// such a request out even if no program waits for the reply.
pub const LONG_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum number of bytes read from the socket at once.
const RECEIVE_BYTES: usize = 64 << 10;

/// A connection to the daemon. Dropping the connection closes the ports that were opened through it.
///
/// A connection is withheld from children of the process ([`ringroad_ring::fork`]): it ends with the process, and is
/// unusable in a child.
#[derive(Debug)]
pub struct Connection {
    socket: WithheldFd,
    path: PathBuf,
    timeout: Duration,
    report_wait: Option<fn(Duration)>,
    daemon: PeerCredentials,
    unusable: bool,
}

/// Timeout of one request.
struct RequestTimeout {
    began: Instant,
    /// Interval after which a report says that the wait goes on.
    each: Duration,
    most: Duration,
}

impl RequestTimeout {
    /// Time until the next report, or the end.
    fn next(&self) -> Duration {
        let waited = self.began.elapsed();
        let turns = waited.as_nanos().checked_div(self.each.as_nanos()).unwrap_or(0) + 1;
        let turn_end = u32::try_from(turns).ok().and_then(|turns| self.each.checked_mul(turns));
        turn_end.unwrap_or(self.most).min(self.most).saturating_sub(waited)
    }

    fn is_over(&self) -> bool {
        self.began.elapsed() >= self.most
    }
}

/// Identity of a daemon, as its `Hello` reply states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Introduction {
    /// Version of the daemon's program, such as `0.1.0`.
    pub version: String,
    /// Number that distinguishes the daemon from earlier daemons at the socket.
    pub instance: u64,
    /// Party that started the daemon.
    pub started: StartedBy,
}

impl Connection {
    /// Connects to the daemon that listens on `path`, within [`DEFAULT_TIMEOUT`].
    ///
    /// # Errors
    /// [`ControlError::DaemonNotRunning`], [`ControlError::PermissionDenied`], [`ControlError::ForeignDaemon`],
    /// [`ControlError::Timeout`] and [`ControlError::Connect`].
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, ControlError> {
        Self::connect_within(path, DEFAULT_TIMEOUT)
    }

    /// Connects like [`Self::connect`], with another timeout, which applies to requests too.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_within(path: impl AsRef<Path>, timeout: Duration) -> Result<Self, ControlError> {
        let path = path.as_ref();
        let socket = open_socket(path, timeout).map_err(|error| connect_error(path, timeout, error))?;
        let daemon = PeerCredentials::of(&socket)
            .map_err(|source| ControlError::Connect { path: path.to_owned(), source })?;
        if !is_trusted(path, daemon.uid, rustix::process::geteuid().as_raw()) {
            return Err(ControlError::ForeignDaemon { path: path.to_owned(), uid: daemon.uid });
        }
        let socket = WithheldFd::from(socket);
        Ok(Self { socket, path: path.to_owned(), timeout, report_wait: None, daemon, unusable: false })
    }

    /// Introduces this program and checks that the daemon speaks its protocol.
    ///
    /// # Errors
    /// As [`Self::request`]; [`ControlError::Refused`] with [`ErrorKind::VersionMismatch`] for another protocol.
    pub fn hello(&mut self, program: impl Into<String>) -> Result<Introduction, ControlError> {
        let request = Request::Hello { protocol: PROTOCOL_VERSION, program: program.into() };
        match self.request(&request)?.0 {
            Reply::Hello { protocol: PROTOCOL_VERSION, version, instance, started, .. } => {
                Ok(Introduction { version, instance, started })
            }
            Reply::Hello { protocol, version, .. } => Err(ControlError::Refused(ErrorReply::new(
                ErrorKind::VersionMismatch,
                format!("daemon {version} speaks protocol {protocol}, this program {PROTOCOL_VERSION}"),
                "use a program and a daemon of the same version",
            ))),
            _ => Err(ControlError::ProtocolViolation("no hello for a hello".to_owned())),
        }
    }

    /// Requests the daemon's whole state, with all ports.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn status(&mut self) -> Result<StatusReport, ControlError> {
        let Reply::Status(mut status) = self.request(&Request::Status)?.0 else {
            return Err(ControlError::ProtocolViolation("no status for a status".to_owned()));
        };
        status.ports.extend(self.list_from(status.next.take())?);
        Ok(status)
    }

    /// Requests all ports.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn list(&mut self) -> Result<ListReport, ControlError> {
        let mut list = self.page(&Request::List)?;
        list.ports.extend(self.list_from(list.next.take())?);
        Ok(list)
    }

    /// Requests the ports that follow `next`.
    fn list_from(&mut self, mut next: Option<String>) -> Result<Vec<PortReport>, ControlError> {
        let mut ports = Vec::new();
        while let Some(cursor) = next {
            let page = self.page(&Request::ListFrom { from: cursor })?;
            // A page without ports ends the list, since a daemon could promise further pages for ever.
            next = page.next.filter(|_| !page.ports.is_empty());
            ports.extend(page.ports);
        }
        Ok(ports)
    }

    fn page(&mut self, request: &Request) -> Result<ListReport, ControlError> {
        match self.request(request)?.0 {
            Reply::List(list) => Ok(list),
            _ => Err(ControlError::ProtocolViolation("no list for a list".to_owned())),
        }
    }

    /// Requests all learned addresses of a switch, which come in the table's order.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn mac_table(&mut self, switch: &str) -> Result<Vec<MacEntryReport>, ControlError> {
        let mut entries: Vec<MacEntryReport> = Vec::new();
        loop {
            let last = entries.last();
            let (after, after_vlan) = (last.map(|last| last.mac.clone()), last.and_then(|last| last.vlan));
            let request = Request::MacTable { switch: switch.to_owned(), after, after_vlan };
            let key = |entry: &MacEntryReport| (entry.mac.clone(), entry.vlan);
            let Reply::MacTable(more) = self.request(&request)?.0 else {
                return Err(ControlError::ProtocolViolation("no table for a table".to_owned()));
            };
            let is_behind = |last| entries.last().is_none_or(|entry| key(entry) < key(last));
            if !more.last().is_some_and(is_behind) {
                return Ok(entries);
            }
            entries.extend(more);
        }
    }

    /// Sends a request and waits for the reply. [`Reply::descriptor_count`] gives the number of descriptors: they are
    /// close-on-exec, in the order that [`crate::message::OpenedPort`] documents.
    ///
    /// # Errors
    /// [`ControlError::Refused`] with the daemon's [`Reply::Error`], or [`ControlError::Unsendable`]: both leave the
    /// connection usable. After any other error the connection is unusable.
    pub fn request(&mut self, request: &Request) -> Result<(Reply, Vec<OwnedFd>), ControlError> {
        if self.unusable || !self.socket.is_own_process() {
            return Err(ControlError::ConnectionUnusable);
        }
        let frame = encode_request(request)?;
        // The connection is usable again only after a whole reply.
        self.unusable = true;
        let most = if request.may_take_long() { self.timeout.max(LONG_TIMEOUT) } else { self.timeout };
        let patience = RequestTimeout { began: Instant::now(), each: self.timeout, most };
        self.send_frame(&frame, &patience)?;
        let (body, descriptors) = self.receive_frame(&patience)?;
        let reply = decode_reply(&body).map_err(ControlError::ProtocolViolation)?;
        if descriptors.len() != reply.descriptor_count() {
            return Err(ControlError::ProtocolViolation(format!(
                "{} descriptors came instead of {}",
                descriptors.len(),
                reply.descriptor_count()
            )));
        }
        self.unusable = false;
        match reply {
            Reply::Error(error) => Err(ControlError::Refused(error)),
            reply => Ok((reply, descriptors)),
        }
    }

    /// Moves the connection's socket to the descriptor that `target` returns.
    #[must_use]
    pub fn relocated(mut self, relocate: impl FnOnce(OwnedFd) -> OwnedFd) -> Self {
        self.socket = relocate(self.socket.into()).into();
        self
    }

    /// Calls `report`, with the time waited so far, at the end of each timeout while the program waits for the reply of
    /// a long request ([`Request::may_take_long`]).
    pub fn report_waits(&mut self, report: fn(Duration)) {
        self.report_wait = Some(report);
    }

    /// Path of the daemon's socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Credentials of the process that made the daemon's socket listen: the daemon itself, or its service manager.
    #[must_use]
    pub fn daemon(&self) -> PeerCredentials {
        self.daemon
    }

    fn send_frame(&self, mut frame: &[u8], patience: &RequestTimeout) -> Result<(), ControlError> {
        while !frame.is_empty() {
            match send(&self.socket, frame, &[]) {
                Ok(sent) => frame = frame.get(sent..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::OUT, patience)?
                }
                // The daemon may have sent the reason before it hung up: read on.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(self.socket_error(error)),
            }
        }
        Ok(())
    }

    /// Reads one frame and not a byte more, so that received descriptors belong to this frame.
    fn receive_frame(&self, patience: &RequestTimeout) -> Result<(Vec<u8>, Vec<OwnedFd>), ControlError> {
        let mut decoder = FrameDecoder::new(MAX_REPLY_BYTES);
        let mut descriptors = Vec::new();
        let mut buffer = vec![0; RECEIVE_BYTES];
        loop {
            let wanted = decoder.wanted_bytes().min(buffer.len());
            let room = buffer.get_mut(..wanted).unwrap_or_default();
            let received = match receive(&self.socket, room, &mut descriptors) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::IN, patience)?;
                    continue;
                }
                Err(error) => return Err(self.socket_error(error)),
            };
            if received.descriptors_lost || descriptors.len() > MAX_DESCRIPTORS {
                return Err(ControlError::ProtocolViolation(
                    "more descriptors came than fit; the limit of open files may be too low (`ulimit -n`)"
                        .to_owned(),
                ));
            }
            if received.bytes == 0 {
                return Err(ControlError::DaemonGone { path: self.path.clone() });
            }
            let mut input = buffer.get(..received.bytes).unwrap_or_default();
            let frame = decoder
                .take_frame(&mut input)
                .map_err(|error| ControlError::ProtocolViolation(error.to_string()))?;
            if let Some(body) = frame {
                return Ok((body, descriptors));
            }
        }
    }

    /// Waits until the socket is ready for `flags`, or has failed.
    fn wait(&self, flags: PollFlags, patience: &RequestTimeout) -> Result<(), ControlError> {
        loop {
            // A time too long for the kernel counts as no timeout.
            let left = Timespec::try_from(patience.next()).ok();
            match poll(&mut [PollFd::new(&self.socket, flags)], left.as_ref()) {
                Ok(0) if patience.is_over() => return Err(timeout(&self.path, patience.most)),
                Ok(0) => self.report_wait.into_iter().for_each(|report| report(patience.began.elapsed())),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.socket_error(error.into())),
            }
        }
    }

    fn socket_error(&self, source: io::Error) -> ControlError {
        let path = self.path.clone();
        match source.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => ControlError::DaemonGone { path },
            _ => ControlError::Socket { path, source },
        }
    }
}

impl From<Connection> for OwnedFd {
    fn from(connection: Connection) -> Self {
        connection.socket.into()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open_socket(path: &Path, timeout: Duration) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The send timeout bounds connect, too, which waits while the daemon is behind with accepting; 0 would mean no
    // timeout.
    set_socket_timeout(&socket, Timeout::Send, Some(timeout.max(Duration::from_millis(1))))?;
    rustix::io::retry_on_intr(|| connect(&socket, &address))?;
    Ok(socket)
}

fn connect_error(path: &Path, waited: Duration, error: Errno) -> ControlError {
    match error {
        Errno::NOENT | Errno::CONNREFUSED => ControlError::DaemonNotRunning { path: path.to_owned() },
        Errno::ACCESS | Errno::PERM => {
            ControlError::PermissionDenied { path: path.to_owned(), access: access_of(path) }
        }
        Errno::AGAIN => timeout(path, waited),
        error => ControlError::Connect { path: path.to_owned(), source: error.into() },
    }
}

fn timeout(path: &Path, waited: Duration) -> ControlError {
    ControlError::Timeout { path: path.to_owned(), timeout_ms: waited.as_millis() }
}

/// Mode and owner of `path` or, if this user cannot see it, of its nearest visible parent directory.
fn access_of(path: &Path) -> String {
    path.ancestors()
        .find_map(|existing| Some((existing, std::fs::metadata(existing).ok()?)))
        .map(|(existing, metadata)| {
            let subject = if existing == path { String::new() } else { format!("{}: ", existing.display()) };
            let (mode, uid, gid) = (metadata.mode() & 0o7777, metadata.uid(), metadata.gid());
            format!("{subject}mode {mode:04o}, user {uid}, group {gid}")
        })
        .unwrap_or_else(|| "mode and owner unknown".to_owned())
}

/// Whether the daemon may be trusted. Anybody can make the directory of the fallback socket, so a daemon there must be
/// root's or the user's own.
fn is_trusted(path: &Path, daemon_uid: u32, own_uid: u32) -> bool {
    path != fallback_socket_path(own_uid) || daemon_uid == 0 || daemon_uid == own_uid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_users_daemon_in_a_shared_directory_is_refused() {
        let fallback = fallback_socket_path(1000);
        assert!(!is_trusted(&fallback, 1001, 1000));
        assert!(is_trusted(&fallback, 1000, 1000));
        assert!(is_trusted(&fallback, 0, 1000));
        assert!(is_trusted(Path::new("/run/ringroad/ringroad.sock"), 1001, 1000));
    }

    #[test]
    fn a_refused_permission_names_mode_and_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        std::fs::write(&path, "").unwrap();
        rustix::fs::chmod(&path, rustix::fs::Mode::from_raw_mode(0o640)).unwrap();
        let text = connect_error(&path, DEFAULT_TIMEOUT, Errno::ACCESS).to_string();
        let owner = rustix::process::geteuid().as_raw();
        assert!(text.contains(&path.display().to_string()), "{text}");
        assert!(text.contains(&format!("mode 0640, user {owner}")), "{text}");
    }

    #[test]
    fn a_hidden_socket_is_explained_by_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let text = access_of(&directory.path().join("hidden"));
        assert!(text.starts_with(&format!("{}: mode ", directory.path().display())), "{text}");
    }
}
