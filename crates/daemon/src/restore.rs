//! Restore of ports, static addresses, mirrors and OpenFlow that commands set, after a daemon was killed.
//!
//! The daemon keeps a list of them in a file beside its socket, and removes the file when it ends regularly. A daemon
//! that finds the file therefore follows one that was killed, and restores the listed items. Learned addresses, flows
//! and counters are lost.

mod version_0_1_0;

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind as IoErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ringroad_control::guarded_file::{self, GuardedFileError};
use ringroad_control::message::{ErrorKind, PortSpec};
use ringroad_control::socket_path::attached_ports_path;
use ringroad_datapath::fabric::FabricError;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::attaching::{PortRecord, is_host_side_of};
use crate::config::Config;
use crate::port_entries::{PortOrigin, record_of};
use crate::ports::Ports;
use crate::refusal::Refusal;
use crate::switch_settings::SwitchSettings;

/// Maximum length of a list, bytes: far more than the list of the maximum number of ports.
const MOST_BYTES: u64 = 64 << 20;

/// List in the file.
#[derive(Debug, Default, Serialize)]
struct List {
    /// Boot id of the kernel: after the next boot, namespaces have other numbers.
    boot: String,
    ports: Vec<PortRecord>,
    /// Settings of switches that commands made and the configuration does not have.
    settings: SwitchSettings,
}

/// List as any version since 0.1.0 wrote it.
#[derive(Debug, Deserialize)]
struct WrittenList {
    boot: String,
    ports: Vec<WrittenEntry>,
    #[serde(default)]
    settings: SwitchSettings,
}

/// An entry of a [`WrittenList`].
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum WrittenEntry {
    Record(PortRecord),
    OfVersion010(version_0_1_0::OldEntry),
}

impl From<WrittenList> for List {
    fn from(list: WrittenList) -> Self {
        let mut ports = Vec::new();
        for entry in list.ports {
            match entry {
                WrittenEntry::Record(record) => ports.push(record),
                WrittenEntry::OfVersion010(entry) => ports.extend(entry.into_records()),
            }
        }
        Self { boot: list.boot, ports, settings: list.settings }
    }
}

/// List of the ports that commands attached, and state of its restore.
#[derive(Debug, Default)]
pub struct RestoreFile {
    /// File of the list; `None` if no list is kept.
    file: Option<PathBuf>,
    /// Ports of an earlier daemon that are not attached yet.
    pub(crate) waiting: Vec<PortRecord>,
    /// Settings that commands made before this daemon started, and that are not in force yet.
    settings: SwitchSettings,
    /// Settings that the configuration has.
    configured: SwitchSettings,
    /// Number of the last attached port.
    pub(crate) last_number: u64,
    /// Reasons why ports are not attached yet, by port.
    reasons: BTreeMap<String, String>,
    is_broken: bool,
}

impl RestoreFile {
    /// Keeps the list in the file beside `socket`, and reads the list that an earlier daemon left there.
    ///
    /// # Errors
    /// The file belongs to another user, or holds no list.
    pub fn beside(socket: &Path) -> (Self, Option<Error>) {
        let file = attached_ports_path(socket);
        let (list, problem) = match take(&file) {
            Err(error) if error.kind() != IoErrorKind::NotFound => {
                (List::default(), Some(Error::new(error.kind(), format!("{}: {error}", file.display()))))
            }
            list => (list.unwrap_or_default(), None),
        };
        let list = if list.boot == boot() { list } else { List::default() };
        let (waiting, settings) = (list.ports, list.settings);
        let last_number = waiting.iter().map(|port| port.origin.number()).max().unwrap_or(0);
        (Self { file: Some(file), waiting, settings, last_number, ..Self::default() }, problem)
    }

    /// Resumes the list of another daemon at `socket` that hands over to this daemon.
    pub(crate) fn resume(socket: &Path, waiting: Vec<PortRecord>, last_number: u64) -> Self {
        Self { file: Some(attached_ports_path(socket)), waiting, last_number, ..Self::default() }
    }

    /// Creates a number that no port had before: the time, ns since the Unix epoch, or the last number plus 1 if that
    /// is greater.
    pub(crate) fn new_number(&mut self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.last_number = (self.last_number + 1).max(now.as_nanos() as u64);
        self.last_number
    }

    /// Ports to retry, each with the reason why it is missing.
    pub(crate) fn waiting_ports(&self) -> impl Iterator<Item = (String, String)> {
        let reason = |name: &String| self.reasons.get(name).cloned().unwrap_or_default();
        self.waiting.iter().map(move |port| (port.spec.name.clone(), reason(&port.spec.name)))
    }

    /// Whether the port `key` that was attached under this number will be retried.
    pub(crate) fn awaits(&self, key: &str, number: u64) -> bool {
        self.waiting.iter().any(|port| port.key() == key && port.origin.number() == number)
    }

    /// Gives up a waiting port, and with an interface its host stack's side. Returns the port's description, or `None`
    /// if there is no waiting port of that name.
    pub(crate) fn give_up(&mut self, key: &str) -> Option<PortSpec> {
        let at = self.waiting.iter().position(|port| port.key() == key)?;
        let spec = self.waiting.remove(at).spec;
        self.waiting.retain(|port| !is_host_side_of(&port.spec, &spec));
        Some(spec)
    }

    /// Records that a port could not be attached. Returns whether the port will be retried: a description that has
    /// become meaningless, such as one with a network namespace that is gone, is not retried.
    pub(crate) fn note_refusal(&mut self, port: PortRecord, refusal: Refusal) -> bool {
        let (name, reason) = (port.spec.name.clone(), refusal.message);
        let waits = refusal.kind != ErrorKind::BadName;
        // Each reason is logged once, not at each retry.
        if self.reasons.get(&name) != Some(&reason) {
            let then = if waits { "; it is tried again every second" } else { "" };
            warn!(port = %name, %reason, "a port of the daemon before this one is not attached{then}");
        }
        if waits {
            self.reasons.insert(name, reason);
            self.waiting.push(port);
        }
        waits
    }
}

/// Removes the list, because the daemon at `socket` ends regularly.
pub fn forget(socket: &Path) {
    let _ = std::fs::remove_file(attached_ports_path(socket));
}

/// Reads the list and removes it, so that a port that crashes the daemon is not attached again and again.
fn take(file: &Path) -> Result<List, Error> {
    let opened =
        guarded_file::open(file, guarded_file::FilePurpose::ReadOwn).map_err(|error| match error {
            GuardedFileError::System(errno) => errno.into(),
            other => Error::other(other),
        })?;
    let mut text = Vec::new();
    if opened.take(MOST_BYTES + 1).read_to_end(&mut text)? as u64 > MOST_BYTES {
        return Err(Error::other(format!("it has more than {} MiB; remove it", MOST_BYTES >> 20)));
    }
    let list: WrittenList = serde_json::from_slice(&text)?;
    std::fs::remove_file(file)?;
    Ok(list.into())
}

fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

impl Ports {
    /// Records the settings of the configuration: the list has the other settings, which commands made.
    pub(crate) fn keep_to(&mut self, config: &Config) {
        self.restore.configured = SwitchSettings::of(config);
        self.keep_list();
    }

    /// Restores the ports and settings that commands of an earlier daemon made, besides `config`, which is in force.
    /// Returns the settings that are retried.
    ///
    /// # Errors
    /// A worker that is gone.
    pub fn restore(&mut self, config: &Config) -> Result<Vec<String>, FabricError> {
        self.restore.configured = SwitchSettings::of(config);
        let settings = std::mem::take(&mut self.restore.settings);
        let problems = settings.apply(self, &SwitchSettings::default())?;
        self.attach_waiting();
        if settings != SwitchSettings::default() {
            self.keep_list();
        }
        Ok(problems)
    }

    /// Writes the list of ports and settings that commands made. A failure to write is logged once.
    pub(crate) fn keep_list(&mut self) {
        let Some(file) = &self.restore.file else { return };
        let attached = self.table.on_switches().values();
        let attached = attached.filter(|port| matches!(port.kept.origin, PortOrigin::Command { .. }));
        let attached = attached.filter_map(record_of);
        let mut ports: Vec<_> = attached.chain(self.restore.waiting.iter().cloned()).collect();
        // An interface comes before its host stack's side.
        ports.sort_by_key(|port| port.origin.number());
        let settings = SwitchSettings::in_force(self).without(&self.restore.configured);
        let written = write(file, &List { boot: boot(), ports, settings });
        if let Err(error) = &written
            && !self.restore.is_broken
        {
            warn!(file = %file.display(), %error, "attached ports will not come back after a crash");
        }
        self.restore.is_broken = written.is_err();
    }

    /// Attaches ports of an earlier daemon whose devices exist.
    pub(crate) fn attach_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.restore.waiting);
        if waiting.is_empty() {
            return;
        }
        for (port, attached) in self.attach_each(waiting) {
            match attached {
                Ok(port) => {
                    info!(port = %port.name, driver = %port.driver, mode = %port.mode, "attached again")
                }
                Err(refusal) => {
                    self.restore.note_refusal(port, refusal);
                }
            }
        }
        self.keep_list();
    }
}

/// Writes the list in one step: another daemon finds either the old list or the new one.
fn write(file: &Path, list: &List) -> Result<(), Error> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    // Temporary file that only this user can read.
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut new, list)?;
    new.flush()?;
    new.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_version_0_1_0_attached_with_its_host_gets_its_host_back() {
        let list = include_str!("../../../tests/written-by-0.1.0/r.sock.ports");
        let list: List = serde_json::from_str::<WrittenList>(list).unwrap().into();
        let of = |record: &PortRecord| (record.spec.name.clone(), record.spec.driver.clone());
        let [.., interface, host] = &list.ports[..] else { panic!("{list:?}") };
        let port = |name: &str, driver: &str| (name.to_owned(), Some(driver.to_owned()));
        assert_eq!(of(interface), port("vale1:up", "outer0"));
        assert_eq!(of(host), port("vale1:up^", "outer0^"));
        assert!(is_host_side_of(&host.spec, &interface.spec));
        assert_eq!(host.origin, interface.origin);
    }

    #[test]
    fn a_list_longer_than_any_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("r.sock");
        let file = attached_ports_path(&socket);
        let list = serde_json::to_string(&List { boot: boot(), ..List::default() }).unwrap();
        std::fs::write(&file, format!("{list}{}", " ".repeat(1 << 20))).unwrap();
        let (_, problem) = RestoreFile::beside(&socket);
        assert!(problem.is_none() && !file.exists(), "{problem:?}");
        std::fs::write(&file, list).unwrap();
        std::fs::File::options().write(true).open(&file).unwrap().set_len(MOST_BYTES + 1).unwrap();
        let (_, problem) = RestoreFile::beside(&socket);
        assert!(problem.unwrap().to_string().contains("more than 64 MiB"));
        assert!(file.exists());
    }
}
