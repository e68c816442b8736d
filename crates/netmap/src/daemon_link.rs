//! Connection of this process to the daemon, for requests about devices.
//!
//! Each process has one: a forked child makes its own, since two processes that read replies from one connection would
//! take each other's replies.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use ringroad::ensure_daemon;
use ringroad_control::Connection;
use ringroad_control::error::ControlError;
use ringroad_control::message::{ErrorKind, Reply, Request};
use ringroad_control::netmap::{Badge, NetmapReply, NetmapRequest};
use ringroad_control::socket_path::default_socket_path;
use rustix::io::Errno;

use crate::private_descriptors::{self, PrivateDescriptor};

#[derive(Debug)]
struct Link {
    connection: Connection,
}

/// Link of a process, and its lock.
#[derive(Debug)]
struct ProcessLink {
    process: u32,
    link: Mutex<Option<Link>>,
}

impl Drop for Link {
    fn drop(&mut self) {
        private_descriptors::forget(self.connection.as_fd());
    }
}

/// Link of this process; never freed, since threads may use it.
static LINK: AtomicPtr<ProcessLink> = AtomicPtr::new(std::ptr::null_mut());

/// Link of this process. A child does not use its parent's lock: the thread that held it at the fork does not run in
/// the child.
fn own_link() -> &'static Mutex<Option<Link>> {
    let process = std::process::id();
    loop {
        let current = LINK.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or was made below and is never freed once it is in `LINK`.
        let known = unsafe { current.as_ref() };
        if let Some(own) = known.filter(|known| known.process == process) {
            return &own.link;
        }
        let new = Box::into_raw(Box::new(ProcessLink { process, link: Mutex::new(None) }));
        if LINK.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: the link was made here, and no other code has seen it.
            drop(unsafe { Box::from_raw(new) });
        } else if let Some(mut inherited) = known.and_then(|parent| parent.link.try_lock().ok()) {
            // The parent's connection is not usable here. If the parent was using it, its copy stays open until exec or
            // exit.
            *inherited = None;
        }
    }
}

fn connect() -> Result<Connection, Errno> {
    let socket = default_socket_path();
    // The program may run where no daemon can be started; a running daemon is then sufficient.
    let _ = ensure_daemon(&socket);
    let mut connection = Connection::connect(&socket).map_err(|error| errno_of(&error))?;
    connection.hello(program_name()).map_err(|error| errno_of(&error))?;
    Ok(connection)
}

fn program_name() -> String {
    let arguments = std::env::args_os().next().unwrap_or_default();
    let path = std::path::Path::new(&arguments);
    path.file_name().map_or_else(|| "unknown".into(), |name| name.to_string_lossy().into_owned())
}

fn errno_of(error: &ControlError) -> Errno {
    match error {
        ControlError::DaemonNotRunning { .. } => Errno::NOENT,
        ControlError::PermissionDenied { .. } => Errno::ACCESS,
        ControlError::Refused(refusal) => match refusal.kind {
            ErrorKind::PermissionDenied => Errno::ACCESS,
            ErrorKind::OutOfMemory | ErrorKind::TooManyPorts => Errno::NOMEM,
            _ => Errno::INVAL,
        },
        _ => Errno::IO,
    }
}

/// Opens a device: returns its descriptor, close-on-exec, and its badge, which can then be read from the descriptor.
pub(crate) fn open_device() -> Result<(OwnedFd, Badge), Errno> {
    let mut connection = connect()?;
    let (reply, _) = connection.request(&Request::NetmapOpen).map_err(|error| errno_of(&error))?;
    let Reply::NetmapDevice(badge) = reply else { return Err(Errno::IO) };
    let socket = OwnedFd::from(connection);
    // A process that gets a copy of the descriptor must find the badge there.
    let mut set = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::IN)];
    while let Err(Errno::INTR) = rustix::event::poll(&mut set, None) {}
    Ok((socket, badge))
}

/// Sends a request to the daemon.
pub(crate) fn ask(
    device: Option<Badge>,
    request: NetmapRequest,
) -> Result<(NetmapReply, Vec<OwnedFd>), Errno> {
    let request = Request::Netmap { device, request };
    let mut link = own_link().lock().unwrap_or_else(PoisonError::into_inner);
    // The link is made again once, if the program has closed its connection.
    for attempt in 0..2 {
        if link.is_none() {
            let connection = connect()?.relocated(private_descriptors::hide);
            *link = Some(Link { connection });
        }
        let Some(current) = link.as_mut() else { return Err(Errno::IO) };
        match current.connection.request(&request) {
            Ok((Reply::Netmap(NetmapReply::Failed { errno, .. }), _)) => {
                return Err(Errno::from_raw_os_error(errno));
            }
            Ok((Reply::Netmap(reply), descriptors)) => return Ok((reply, descriptors)),
            Ok(_) => return Err(Errno::IO),
            Err(ControlError::Refused(refusal)) => {
                return Err(errno_of(&ControlError::Refused(refusal)));
            }
            Err(_) if attempt == 0 => *link = None,
            Err(error) => return Err(errno_of(&error)),
        }
    }
    Err(Errno::IO)
}

/// The badge in a descriptor, if it is a device; the badge stays in the descriptor.
pub(crate) fn badge_in(descriptor: BorrowedFd<'_>) -> Option<Badge> {
    use rustix::net::sockopt::{socket_domain, socket_type};
    use rustix::net::{AddressFamily, RecvFlags, SocketType, recv};
    if socket_domain(descriptor).ok()? != AddressFamily::UNIX
        || socket_type(descriptor).ok()? != SocketType::STREAM
    {
        return None;
    }
    let mut bytes = [0; ringroad_control::netmap::BADGE_BYTES];
    let received = recv(descriptor, &mut bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT).ok()?;
    if received.1 != bytes.len() {
        return None;
    }
    Badge::from_bytes(&bytes)
}

/// Waits until the daemon has taken back the devices that were closed before, so that a program finds the same state as
/// after a system call. Does nothing if this process has no link, or if this call has interrupted a use of the link.
pub(crate) fn settle() {
    let Ok(mut link) = own_link().try_lock() else { return };
    if let Some(current) = link.as_mut() {
        let request = Request::Netmap { device: None, request: NetmapRequest::Settle };
        if !matches!(current.connection.request(&request), Ok(_) | Err(ControlError::Refused(_))) {
            *link = None;
        }
    }
}

/// Handle on this process's link, which shows the end of the daemon.
pub(crate) fn lifeline() -> Option<PrivateDescriptor> {
    let link = own_link().try_lock().ok()?;
    PrivateDescriptor::duplicate(link.as_ref()?.connection.as_fd()).ok()
}

/// Whether the daemon at the other end of a lifeline has ended.
pub(crate) fn is_hung_up(lifeline: &PrivateDescriptor) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut set = [PollFd::new(lifeline, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut set, Some(&now)), Ok(ready) if ready > 0)
}
