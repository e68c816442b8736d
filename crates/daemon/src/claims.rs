//! Claims on the sides of network interfaces. Only one port has a side, by any mechanism. Otherwise two ports would
//! receive its frames, or frames would leave by the interface that they came from. Interfaces belong to the machine, so
//! the process has one list, and other daemons see its claims as locked files in [`FOLDER`].

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use ringroad_control::message::ErrorKind;
use ringroad_control::printable::printable;
use ringroad_drivers::device::{Device, InterfaceSide};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::listen::is_at;
use crate::refusal::{Refusal, refuse};

/// Folder of the files. A daemon that may not write there is not seen by others, and sees none: it is not root's, or
/// in a container of its own.
const FOLDER: &str = "/run/ringroad-interfaces";
/// Maximum length of a file, bytes.
const MOST_BYTES: u64 = 4096;
/// Longest name that is quoted to people, characters.
const MOST_CHARS: usize = 200;

static CLAIMS: Mutex<BTreeMap<InterfaceSide, HeldSide>> = Mutex::new(BTreeMap::new());
/// Socket of this daemon, for other daemons' messages.
static SOCKET: OnceLock<PathBuf> = OnceLock::new();

fn claims() -> MutexGuard<'static, BTreeMap<InterfaceSide, HeldSide>> {
    CLAIMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names the socket of this daemon in its claims.
pub fn name_daemon(socket: &Path) {
    let _ = SOCKET.set(socket.to_owned());
}

#[derive(Debug)]
struct HeldSide {
    /// Name of a port, and of its program if it has one.
    holder: String,
    /// The file for other daemons. It is missing if it cannot be made, or as long as the daemon that hands over to this
    /// one has it.
    file: Option<ClaimFile>,
}

/// Claim on a side of an interface, which ends when it is dropped; a device without an interface claims nothing.
#[derive(Debug)]
pub(crate) struct Claim(Option<InterfaceSide>);

impl Claim {
    /// Claims `side` for `holder`, which names a port and its program, if it has one.
    ///
    /// # Errors
    /// Another port has the side, of this daemon or of another one.
    pub(crate) fn take(side: Option<InterfaceSide>, holder: &str) -> Result<Self, Refusal> {
        if let Some(side) = side {
            let mut claims = claims();
            if let Some(other) = claims.get(&side) {
                return Err(refuse(
                    ErrorKind::PortTaken,
                    format!("{holder}: the interface is taken already, by {}", other.holder),
                    "one port has it at a time: take that one off (ringroad detach), or end its program",
                ));
            }
            let file = ClaimFile::take(Path::new(FOLDER), side, holder);
            let file = file.map_err(|other| other.refusal(holder))?;
            claims.insert(side, HeldSide { holder: holder.to_owned(), file });
        }
        Ok(Self(side))
    }

    /// Moves the claim into `device` for the device's lifetime.
    pub(crate) fn give_to(self, device: &mut Device) {
        device.keep = Some(Box::new((device.keep.take(), self)));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(side) = self.0 {
            claims().remove(&side);
        }
    }
}

/// Holder of `side`.
pub(crate) fn holder_of(side: InterfaceSide) -> Option<String> {
    claims().get(&side).map(|holding| holding.holder.clone())
}

/// Takes the files of the claims that a daemon which has ended by now handed over to this one.
pub(crate) fn take_over_files() {
    for (side, holding) in claims().iter_mut().filter(|(_, holding)| holding.file.is_none()) {
        holding.file = ClaimFile::take(Path::new(FOLDER), *side, &holding.holder).unwrap_or_default();
    }
}

/// A locked file, which stands for a claim and is removed with it. A killed daemon leaves it unlocked.
#[derive(Debug)]
struct ClaimFile {
    path: PathBuf,
    _file: File,
}

/// Another daemon that has an interface.
#[derive(Debug, PartialEq, Eq)]
struct OtherDaemon {
    /// Process id, as the other daemon sees it.
    process: Option<Pid>,
    socket: String,
    holder: String,
}

impl ClaimFile {
    /// Makes and locks the file for `side` in `folder`. `None`: there is no folder in which this daemon may do that, or
    /// the daemon that hands over to this one has the file.
    ///
    /// # Errors
    /// The daemon that has the side.
    fn take(folder: &Path, side: InterfaceSide, holder: &str) -> Result<Option<Self>, OtherDaemon> {
        if !is_own_folder(folder) {
            return Ok(None);
        }
        let InterfaceSide { namespace, index, host } = side;
        let host = if host { "^" } else { "" };
        let path = folder.join(format!("{}-{index}{host}", namespace.inode()));
        loop {
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let Ok(file) = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) else { return Ok(None) };
            let mut file = File::from(file);
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => {
                    let other = OtherDaemon::of(&file);
                    // A daemon that hands over to this one is this one's parent, and keeps its claims until it ends.
                    let hands_over = other.process.is_some() && other.process == rustix::process::getppid();
                    return if hands_over { Ok(None) } else { Err(other) };
                }
                Err(_) => return Ok(None),
                Ok(()) => {}
            }
            // The daemon before may have removed the file before this one locked it.
            if is_at(&path, &file) {
                let socket = SOCKET.get().map(|socket| socket.display().to_string()).unwrap_or_default();
                let text = format!("{}\n{socket}\n{holder}\n", std::process::id());
                // Without its text, the claim holds nevertheless.
                let _ = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
                return Ok(Some(Self { path, _file: file }));
            }
        }
    }
}

impl Drop for ClaimFile {
    fn drop(&mut self) {
        // The file is still locked.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl OtherDaemon {
    /// The daemon that wrote a file, which may not be complete.
    fn of(file: &File) -> Self {
        let mut text = String::new();
        let _ = file.take(MOST_BYTES).read_to_string(&mut text);
        let mut lines = text.lines();
        let process = lines.next().and_then(|line| Pid::from_raw(line.parse().ok()?));
        let mut next = || printable(lines.next().unwrap_or_default(), MOST_CHARS);
        Self { process, socket: next(), holder: next() }
    }

    /// Refusal for `asking`, a port that needs the interface.
    fn refusal(&self, asking: &str) -> Refusal {
        let Self { process, socket, holder } = self;
        let process = process.map(|process| format!(" (process {process})")).unwrap_or_default();
        refuse(
            ErrorKind::Busy,
            format!(
                "{asking}: another daemon has the interface, as {holder}: ringroadd at {socket}{process}"
            ),
            format!(
                "one port has it at a time: take it off there (ringroad --socket {socket} list), or use that daemon"
            ),
        )
    }
}

/// Makes the folder if it is missing. Returns whether only this user can write there.
fn is_own_folder(folder: &Path) -> bool {
    let _ = std::fs::DirBuilder::new().mode(0o700).create(folder);
    let own = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(folder)
        .is_ok_and(|status| status.is_dir() && status.uid() == own && status.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use ringroad_netdev::Namespace;

    use super::*;

    fn side(index: u32) -> InterfaceSide {
        InterfaceSide { namespace: Namespace::Current.hold().unwrap().id(), index, host: false }
    }

    #[test]
    fn an_interface_of_another_daemon_is_refused_with_the_daemons_name_until_it_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("claims");
        let take = |side, holder| ClaimFile::take(&folder, side, holder);
        let first = take(side(7), "vale0:up").unwrap().unwrap();
        // Another opened file stands for another daemon.
        let other = take(side(7), "vale1:b").unwrap_err();
        assert_eq!((other.process, other.holder.as_str()), (Some(rustix::process::getpid()), "vale0:up"));
        let refusal = other.refusal("vale1:b");
        assert_eq!(refusal.kind, ErrorKind::Busy);
        assert!(refusal.message.contains("another daemon has the interface, as vale0:up"), "{refusal}");
        for free in [side(8), side(7).other()] {
            take(free, "vale1:b").unwrap().unwrap();
        }
        drop(first);
        drop(take(side(7), "vale1:b").unwrap().unwrap());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn a_daemon_hands_its_claims_over_to_its_child() {
        let folder = tempfile::tempdir().unwrap();
        let held = ClaimFile::take(folder.path(), side(7), "vale0:up").unwrap().unwrap();
        let parent = rustix::process::getppid().unwrap();
        std::fs::write(&held.path, format!("{parent}\n/s\nvale0:up\n")).unwrap();
        assert!(ClaimFile::take(folder.path(), side(7), "vale0:up").unwrap().is_none());
    }

    #[test]
    fn a_folder_that_others_can_write_holds_no_claims() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(ClaimFile::take(folder.path(), side(7), "vale0:up").unwrap().is_none());
        assert!(ClaimFile::take(Path::new("/proc/nowhere"), side(7), "vale0:up").unwrap().is_none());
    }
}
