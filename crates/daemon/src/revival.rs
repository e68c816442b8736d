//! Ports that commands attached come back after a daemon that was killed.
//!
//! The daemon keeps a list of them in a file beside its socket, and removes the file when it ends regularly. A daemon
//! that finds the file therefore follows one that was killed, and attaches the ports again. Learned addresses and
//! counters are lost.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind as IoErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ringroad_control::guarded_file::{self, GuardedFileError};
use ringroad_control::message::{ErrorKind, PortWish};
use ringroad_control::socket_path::attached_ports_path;
use ringroad_drivers::catalogue::port_name::PortName;
use ringroad_netdev::namespace::HeldNamespace;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::devices::NamedDevice;
use crate::port_entries::Origin;
use crate::ports::{Attachment, Ports, ServedBy};
use crate::whereabouts::Whereabouts;

/// Longest list that is read, bytes: many more than those of all ports that there can be.
const MOST_BYTES: u64 = 64 << 20;

/// The request with which a command attached a port, with all that another daemon needs to carry it out again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandPort {
    /// As it was typed, with options.
    pub(crate) name: String,
    /// `None` if a program must open the port.
    pub(crate) driver: Option<String>,
    pub(crate) host: bool,
    pub(crate) wish: PortWish,
    /// The kernel's number of the network namespace in which the interface is.
    pub(crate) netns: Option<u64>,
    /// [`AttachedPort::number`](ringroad_control::message::AttachedPort): the time of the request, ns since the Unix
    /// epoch, or more where two would have the same. 0 until the request is carried out.
    pub(crate) number: u64,
}

/// The list as it is in the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct List {
    /// The kernel's number for its own start: namespaces have other numbers after the next one.
    boot: String,
    ports: Vec<CommandPort>,
}

/// What is kept of ports that commands attached.
#[derive(Debug, Default)]
pub struct Revival {
    /// `None`: nothing is kept.
    file: Option<PathBuf>,
    /// Of a daemon before this one, and not attached yet.
    waiting: Vec<CommandPort>,
    last_number: u64,
    /// Why ports are not attached yet, by port.
    reasons: BTreeMap<String, String>,
    is_broken: bool,
}

impl CommandPort {
    /// The request to attach `name`, as it was typed.
    #[must_use]
    pub fn new(name: &str, attachment: Attachment<'_>) -> Self {
        let (host, wish) = (attachment.host, attachment.wish.clone());
        Self { name: name.to_owned(), driver: None, host, wish, netns: None, number: 0 }
    }

    /// The request of a program for a device.
    pub(crate) fn for_program(device: &NamedDevice, wish: &PortWish) -> Self {
        Self {
            name: device.spelled.clone(),
            driver: None,
            host: false,
            wish: wish.clone(),
            netns: device.netns.as_ref().map(|netns| netns.id().inode()),
            number: 0,
        }
    }

    /// Whether it requests the port `key`.
    pub(crate) fn is_called(&self, key: &str) -> bool {
        self.name.parse().is_ok_and(|name: PortName| name.base.to_string() == key)
    }
}

impl Revival {
    /// Keeps the list in the file beside `socket`, and takes from it what a daemon before this one left there.
    ///
    /// # Errors
    /// The file of another user, or no list.
    pub fn beside(socket: &Path) -> (Self, Option<Error>) {
        let file = attached_ports_path(socket);
        let (list, problem) = match take(&file) {
            Ok(list) => (list, None),
            Err(error) if error.kind() == IoErrorKind::NotFound => (List::default(), None),
            Err(error) => {
                (List::default(), Some(Error::new(error.kind(), format!("{}: {error}", file.display()))))
            }
        };
        let waiting = if list.boot == boot() { list.ports } else { Vec::new() };
        let last_number = waiting.iter().map(|port| port.number).max().unwrap_or(0);
        (Self { file: Some(file), waiting, last_number, ..Self::default() }, problem)
    }
}

impl Revival {
    /// Resumes the list of another daemon at `socket` that hands over to this one.
    pub(crate) fn resume(socket: &Path, waiting: Vec<CommandPort>, last_number: u64) -> Self {
        Self { file: Some(attached_ports_path(socket)), waiting, last_number, ..Self::default() }
    }

    /// The ports to retry.
    pub(crate) fn waiting(&self) -> &[CommandPort] {
        &self.waiting
    }

    /// The number given last.
    pub(crate) fn last_number(&self) -> u64 {
        self.last_number
    }

    /// Whether a port will be retried.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The ports to retry, and why they are missing.
    pub(crate) fn waiting_ports(&self) -> impl Iterator<Item = (String, String)> {
        let reason = |port: &CommandPort| self.reasons.get(&port.name).cloned().unwrap_or_default();
        self.waiting.iter().map(move |port| (port.name.clone(), reason(port)))
    }

    /// Whether the port `key` that was attached under this number will be retried.
    pub(crate) fn awaits(&self, key: &str, number: u64) -> bool {
        self.waiting.iter().any(|port| port.is_called(key) && port.number == number)
    }

    /// Gives up a waiting port. `false`: there is none of that name.
    pub(crate) fn give_up(&mut self, key: &str) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|port| !port.is_called(key));
        self.waiting.len() != before
    }
}

/// Removes the list: the daemon at `socket` ends in order.
pub fn forget(socket: &Path) {
    let _ = std::fs::remove_file(attached_ports_path(socket));
}

/// Reads the list and removes it, so that a port that ends the daemon is not attached again and again.
fn take(file: &Path) -> Result<List, Error> {
    let opened = guarded_file::open(file, guarded_file::Purpose::ReadOwn).map_err(|error| match error {
        GuardedFileError::System(errno) => errno.into(),
        other => Error::other(other),
    })?;
    let list = serde_json::from_reader(std::io::Read::take(opened, MOST_BYTES))?;
    std::fs::remove_file(file)?;
    Ok(list)
}

fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

impl Ports {
    /// Completes the origin of a port that gets this device.
    pub(crate) fn complete(&mut self, origin: &mut Origin, device: Option<&NamedDevice>) {
        let Origin::Command(port) = origin else { return };
        port.driver = device.map(|device| device.spelled.clone());
        port.netns = device.and_then(|device| device.netns.as_ref()).map(|netns| netns.id().inode());
        if port.number == 0 {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            self.revival.last_number = (self.revival.last_number + 1).max(now.as_nanos() as u64);
            port.number = self.revival.last_number;
        }
    }

    /// Writes the list of ports that commands attached. A list that cannot be written is logged once.
    pub(crate) fn keep_list(&mut self) {
        let Some(file) = &self.revival.file else { return };
        let attached = self.table.on_switches().values().filter_map(|port| match &port.kept.origin {
            Origin::Command(port) => Some(port),
            _ => None,
        });
        let mut ports: Vec<_> = attached.chain(&self.revival.waiting).cloned().collect();
        ports.sort_by_key(|port| port.number);
        // An interface and its host stack's side have one request.
        ports.dedup();
        let written = write(file, &List { boot: boot(), ports });
        if let Err(error) = &written
            && !self.revival.is_broken
        {
            warn!(file = %file.display(), %error, "attached ports will not come back after a crash");
        }
        self.revival.is_broken = written.is_err();
    }

    /// Attaches ports of a daemon before this one, as far as their devices are there.
    pub fn revive(&mut self) {
        let waiting = std::mem::take(&mut self.revival.waiting);
        if waiting.is_empty() {
            return;
        }
        for port in waiting {
            let Err((kind, reason)) = self.revive_one(&port) else { continue };
            let waits = matches!(kind, ErrorKind::NoSuchPort | ErrorKind::Busy);
            if self.revival.reasons.get(&port.name) != Some(&reason) {
                let then = if waits { "; it is tried again every second" } else { "" };
                warn!(port = %port.name, %reason, "a port of the daemon before this one is not attached{then}");
            }
            if waits {
                self.revival.reasons.insert(port.name.clone(), reason);
                self.revival.waiting.push(port);
            }
        }
        self.keep_list();
    }

    fn revive_one(&mut self, port: &CommandPort) -> Result<(), (ErrorKind, String)> {
        let bad = |error: &dyn std::fmt::Display| (ErrorKind::BadName, error.to_string());
        let name: PortName = port.name.parse().map_err(|error| bad(&error))?;
        let netns = match port.netns {
            Some(number) => Some(HeldNamespace::numbered(number).map_err(|error| bad(&error))?),
            None => None,
        };
        let served_by = port.driver.as_deref().map_or(ServedBy::Program, ServedBy::Device);
        // The command that attached it stated its user's intent.
        let attachment = Attachment { served_by, host: port.host, take: true, wish: &port.wish };
        let place = Whereabouts::within(netns.as_ref());
        let attached = self
            .attach(&name, attachment, place, Origin::Command(port.clone()))
            .map_err(|refusal| (refusal.kind, refusal.message))?;
        for port in attached {
            info!(port = %port.name, driver = %port.driver, mode = %port.mode, "attached again");
        }
        Ok(())
    }
}

/// Writes the list in one step: another daemon finds the one before or this one.
fn write(file: &Path, list: &List) -> Result<(), Error> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    // Only for this user.
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut new, list)?;
    new.flush()?;
    new.persist(file)?;
    Ok(())
}
