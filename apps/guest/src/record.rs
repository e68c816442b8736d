//! Records of running guests: a later command finds a guest by its name, and cleans up after a killed guest.
//!
//! Each guest has a folder, which only its user can enter, below the runtime directory. The folder contains the record,
//! the sockets and the logs. A record whose process has ended is stale: the guest's ports were not removed.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use ringroad_control::socket_path::socket_path;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::GuestError;
use crate::process::ProcessIdentity;

/// Environment variable that names the runtime directory.
pub const RUNTIME_VARIABLE: &str = "RINGROAD_RUNTIME_DIR";

/// Name of the record's file in a guest's folder.
const RECORD_FILE: &str = "guest.json";
/// Longest name of a guest, bytes.
const NAME_BYTES_MAX: usize = 32;
/// Longest path of a socket, bytes (unix(7), less the final zero).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The kind of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GuestKind {
    /// A virtual machine.
    Vm,
    /// A network namespace.
    Container,
    /// DPDK's testpmd.
    Testpmd,
}

impl GuestKind {
    /// Returns the kind in one word, for users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Container => "container",
            Self::Testpmd => "testpmd",
        }
    }
}

/// The record of a running guest, with the resources to remove at its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestRecord {
    pub kind: GuestKind,
    /// Process whose end is the end of the guest.
    pub process: ProcessIdentity,
    /// Socket of the daemon that serves the guest's ports.
    pub daemon_socket: PathBuf,
    /// Process of that daemon; `None` if it is not visible.
    pub daemon: Option<ProcessIdentity>,
    /// Ports attached for the guest: name and number.
    pub ports: Vec<(String, u64)>,
    /// Network namespace made for the guest.
    pub namespace: Option<String>,
    /// Interface made for the guest in the daemon's network namespace.
    pub interface: Option<String>,
    /// Interface made for the guest in an existing network namespace: that namespace, and the interface.
    #[serde(default)]
    pub lent_interface: Option<(String, String)>,
    /// Addresses of the guest's interfaces, in order, such as `10.0.0.1/24`.
    pub addresses: Vec<String>,
}

/// Folder with the records of all guests.
#[derive(Debug, Clone)]
pub struct GuestRegistry {
    folder: PathBuf,
}

/// Lock that keeps other processes from claiming names and cleaning up while it exists.
#[derive(Debug)]
pub struct RegistryLock {
    _folder: File,
}

impl GuestRegistry {
    /// Returns the registry of this process: in `$RINGROAD_RUNTIME_DIR`, else in the folder of the daemon's default
    /// socket.
    #[must_use]
    pub fn of_environment() -> Self {
        let runtime = match std::env::var_os(RUNTIME_VARIABLE).filter(|folder| !folder.is_empty()) {
            Some(folder) => PathBuf::from(folder),
            None => {
                let (xdg, uid) = (std::env::var_os("XDG_RUNTIME_DIR"), rustix::process::geteuid().as_raw());
                let socket = socket_path(None, xdg.as_deref(), uid);
                socket.parent().map(Path::to_owned).unwrap_or_default()
            }
        };
        Self { folder: std::path::absolute(&runtime).unwrap_or(runtime).join("guests") }
    }

    /// Returns the folder of a guest.
    #[must_use]
    pub fn folder_of(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes the registry's folder, and locks it until the returned lock is dropped.
    ///
    /// # Errors
    /// [`GuestError::File`]: the folder cannot be made or locked, or belongs to another user.
    pub fn lock(&self) -> Result<RegistryLock, GuestError> {
        // The parent is the folder of the daemon's socket, which may be open to other users too.
        let runtime = self.folder.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(runtime).map_err(GuestError::file("make", runtime))?;
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(GuestError::file("make", &self.folder)(error));
            }
            _ => {}
        }
        let folder = File::open(&self.folder).map_err(GuestError::file("open", &self.folder))?;
        // The owner is checked since any user can make such a folder in /tmp first.
        for path in [runtime, &self.folder] {
            let owner = fs::metadata(path).map_err(GuestError::file("examine", path))?.uid();
            if owner != 0 && owner != rustix::process::geteuid().as_raw() {
                let foreign = io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user");
                return Err(GuestError::file("use", path)(foreign));
            }
        }
        rustix::io::retry_on_intr(|| flock(&folder, FlockOperation::LockExclusive))
            .map_err(|errno| GuestError::file("lock", &self.folder)(errno.into()))?;
        Ok(RegistryLock { _folder: folder })
    }

    /// Makes a guest's folder with its record. Stale records must have been removed.
    ///
    /// # Errors
    /// [`GuestError`]: the name is invalid or taken.
    pub fn claim(
        &self,
        _lock: &RegistryLock,
        name: &str,
        record: &GuestRecord,
    ) -> Result<PathBuf, GuestError> {
        check_name(name)?;
        let folder = self.folder_of(name);
        match DirBuilder::new().mode(0o700).create(&folder) {
            // A folder without a record is left by a process that ended before there was anything to clean up.
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists && folder.join(RECORD_FILE).exists() =>
            {
                let taken = self.read(name)?;
                let (kind, pid) = (taken.kind.name(), taken.process.pid);
                return Err(GuestError::NameTaken { name: name.to_owned(), kind, pid });
            }
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(GuestError::file("make", &folder)(error));
            }
            _ => {}
        }
        self.write(name, record)?;
        Ok(folder)
    }

    /// Replaces a guest's record.
    ///
    /// # Errors
    /// [`GuestError::File`]: the record cannot be written.
    pub fn write(&self, name: &str, record: &GuestRecord) -> Result<(), GuestError> {
        let (file, new) = (self.folder_of(name).join(RECORD_FILE), self.folder_of(name).join("guest.new"));
        let text =
            serde_json::to_vec(record).map_err(|error| GuestError::file("write", &new)(error.into()))?;
        fs::write(&new, text).map_err(GuestError::file("write", &new))?;
        fs::rename(&new, &file).map_err(GuestError::file("replace", &file))
    }

    /// Reads a guest's record.
    ///
    /// # Errors
    /// [`GuestError::BadRecord`]: the record is missing or invalid.
    pub fn read(&self, name: &str) -> Result<GuestRecord, GuestError> {
        let path = self.folder_of(name).join(RECORD_FILE);
        let bad = |reason: String| GuestError::BadRecord { path: path.clone(), reason };
        let text = fs::read(&path).map_err(|error| bad(error.to_string()))?;
        serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))
    }

    /// Returns the names of all guests in order, stale ones included.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Returns all guests with a readable record by name, stale ones included.
    #[must_use]
    pub fn guests(&self) -> Vec<(String, GuestRecord)> {
        let guests = self.names().into_iter().filter_map(|name| {
            let record = self.read(&name).ok()?;
            Some((name, record))
        });
        guests.collect()
    }

    /// Returns the record of a running guest of kind `kind`.
    ///
    /// # Errors
    /// [`GuestError::NoSuchGuest`]: no such guest is running.
    pub fn running(&self, name: &str, kind: GuestKind) -> Result<GuestRecord, GuestError> {
        let mut running = self.guests();
        running.retain(|(_, record)| record.kind == kind && record.process.is_running());
        match running.iter().position(|(other, _)| other == name) {
            Some(at) => Ok(running.swap_remove(at).1),
            None => {
                let existing = running.into_iter().map(|(name, _)| name).collect();
                Err(GuestError::NoSuchGuest { name: name.to_owned(), existing })
            }
        }
    }

    /// Removes a guest's folder.
    ///
    /// # Errors
    /// [`GuestError::File`]: the folder cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), GuestError> {
        let folder = self.folder_of(name);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(GuestError::file("remove", &folder)(error))
            }
            _ => Ok(()),
        }
    }
}

/// Checks whether `path` fits a socket's address.
///
/// # Errors
/// [`GuestError::PathTooLong`]: the path is too long.
pub fn check_socket_path(path: &Path) -> Result<(), GuestError> {
    if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return Err(GuestError::PathTooLong(path.to_owned()));
    }
    Ok(())
}

/// Checks whether a guest can be called `name`.
///
/// # Errors
/// [`GuestError::BadName`].
pub fn check_name(name: &str) -> Result<(), GuestError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let good = name.len() <= NAME_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(plain);
    if good { Ok(()) } else { Err(GuestError::BadName(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(process: ProcessIdentity) -> GuestRecord {
        GuestRecord {
            kind: GuestKind::Vm,
            process,
            daemon_socket: "/run/r.sock".into(),
            daemon: None,
            ports: vec![("vale0:a".into(), 7)],
            namespace: None,
            interface: None,
            lent_interface: None,
            addresses: Vec::new(),
        }
    }

    fn registry() -> (tempfile::TempDir, GuestRegistry) {
        let folder = tempfile::tempdir().unwrap();
        let registry = GuestRegistry { folder: folder.path().join("guests") };
        (folder, registry)
    }

    #[test]
    fn a_name_is_claimed_once_and_its_record_read_again() {
        let (_folder, registry) = registry();
        let own = record(ProcessIdentity::own());
        let lock = registry.lock().unwrap();
        let folder = registry.claim(&lock, "a", &own).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        assert_eq!(registry.running("a", GuestKind::Vm).unwrap(), own);
        let taken = registry.claim(&lock, "a", &own).unwrap_err().to_string();
        assert!(taken.starts_with("a guest a runs already (vm, process"), "{taken}");
        let other = registry.running("b", GuestKind::Vm).unwrap_err().to_string();
        assert_eq!(other, "no virtual machine b runs; there are: a");
        registry.remove("a").unwrap();
        assert!(registry.names().is_empty());
    }

    #[test]
    fn a_record_of_an_ended_process_is_not_a_running_guest() {
        let (_folder, registry) = registry();
        let own = ProcessIdentity::own();
        let gone = record(ProcessIdentity { start_ticks: own.start_ticks + 1, ..own });
        registry.claim(&registry.lock().unwrap(), "a", &gone).unwrap();
        assert!(registry.running("a", GuestKind::Vm).is_err());
        assert_eq!(registry.guests(), [("a".to_owned(), gone)]);
    }

    #[test]
    fn a_folder_without_a_record_is_taken_over() {
        let (_folder, registry) = registry();
        let lock = registry.lock().unwrap();
        fs::create_dir(registry.folder_of("a")).unwrap();
        registry.claim(&lock, "a", &record(ProcessIdentity::own())).unwrap();
        assert_eq!(registry.guests().len(), 1);
    }

    #[test]
    fn an_invalid_record_is_reported_and_is_not_a_guest() {
        let (_folder, registry) = registry();
        let lock = registry.lock().unwrap();
        registry.claim(&lock, "a", &record(ProcessIdentity::own())).unwrap();
        fs::write(registry.folder_of("a").join(RECORD_FILE), "{\"kind\":").unwrap();
        assert!(registry.guests().is_empty());
        assert!(matches!(
            registry.claim(&lock, "a", &record(ProcessIdentity::own())),
            Err(GuestError::BadRecord { .. })
        ));
    }

    #[test]
    fn guest_names_are_plain_file_names() {
        for name in ["a", "web-1", "0.b_c"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", ".", "..", ".a", "-a", "a/b", "a b", "ä", &"x".repeat(33)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_socket_path_must_fit_its_address() {
        assert!(check_socket_path(Path::new(&"x".repeat(107))).is_ok());
        assert!(matches!(check_socket_path(Path::new(&"x".repeat(108))), Err(GuestError::PathTooLong(_))));
    }
}
