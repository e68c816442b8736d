//! Network namespaces by name, process or file, and functions that run in one of them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::{NetdevError, list_of};
use crate::netlink::Requests;
use crate::new_namespace::unshare_network;

/// Directory in which `ip netns add` keeps namespaces by name (ip-netns(8)).
const NAMED_DIRECTORY: &str = "/run/netns";
/// Magic number of the file system that contains namespaces (linux/magic.h).
const NSFS_MAGIC: rustix::fs::FsWord = 0x6e73_6673;

/// A network namespace.
///
/// Its text is a name of `ip netns list`, the id of a process, or a path with a `/`. Empty text is the current
/// namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Namespace {
    /// The namespace of the calling thread.
    #[default]
    Current,
    /// The namespace of `/run/netns/NAME`.
    Named(String),
    /// The namespace of the process with this id.
    OfProcess(u32),
    /// The namespace of a file, e.g. `/proc/PID/ns/net`.
    File(PathBuf),
}

/// Reason why a namespace cannot be entered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// The text does not name a namespace.
    #[error(
        "\"{0}\" does not name a network namespace: give a name from ip netns list, a process number, or a file"
    )]
    BadName(String),
    /// There is no namespace of that name.
    #[error("there is no network namespace {name} in {NAMED_DIRECTORY}; there are: {}; ip netns add {name} makes it", list_of(.existing))]
    NoSuchName {
        name: String,
        /// Names that exist.
        existing: Vec<String>,
    },
    /// No process has that id.
    #[error("there is no process {0} whose network namespace could be entered")]
    NoSuchProcess(u32),
    /// No file has that path.
    #[error("there is no file {} for a network namespace", .0.display())]
    NoSuchFile(PathBuf),
    /// The file is not a namespace.
    #[error("{} is not a network namespace; remove a stale name with ip netns delete", .0.display())]
    NotANamespace(PathBuf),
    /// This process lacks the permission.
    #[error("may not enter {namespace}: it needs root, or CAP_SYS_ADMIN here and in that namespace's owner")]
    NotPermitted {
        /// The namespace, as text.
        namespace: String,
    },
    /// Another operation failed.
    #[error("cannot enter {namespace}: {source}")]
    Failed {
        /// The namespace, as text.
        namespace: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Namespace {
    /// Path of the namespace's file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Current => PathBuf::from("/proc/thread-self/ns/net"),
            Self::Named(name) => Path::new(NAMED_DIRECTORY).join(name),
            Self::OfProcess(process) => PathBuf::from(format!("/proc/{process}/ns/net")),
            Self::File(path) => path.clone(),
        }
    }

    /// Opens the namespace, close-on-exec. The descriptor keeps it alive, and interfaces can be moved into it.
    ///
    /// Files other than namespaces are not opened, so the call neither waits at a pipe nor starts a device of that
    /// path. Only entering the namespace shows whether it is a network namespace.
    ///
    /// # Errors
    /// [`NamespaceError`] if it does not exist, is not a namespace, or is not permitted.
    pub fn open(&self) -> Result<OwnedFd, NamespaceError> {
        let path = self.path();
        let failed = |errno: Errno| match (errno, self) {
            (Errno::NOENT, Self::Named(name)) => {
                NamespaceError::NoSuchName { name: name.clone(), existing: named() }
            }
            (Errno::NOENT | Errno::SRCH, Self::OfProcess(process)) => NamespaceError::NoSuchProcess(*process),
            (Errno::NOENT | Errno::NOTDIR, _) => NamespaceError::NoSuchFile(path.clone()),
            (Errno::ACCESS | Errno::PERM, _) => NamespaceError::NotPermitted { namespace: self.to_string() },
            _ => NamespaceError::Failed { namespace: self.to_string(), source: errno.into() },
        };
        // O_PATH opens only the location, which is enough to find the kind of file.
        let path_fd =
            rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        if rustix::fs::fstatfs(&path_fd).map_err(failed)?.f_type != NSFS_MAGIC {
            return Err(NamespaceError::NotANamespace(path));
        }
        let fd_path = format!("/proc/thread-self/fd/{}", path_fd.as_raw_fd());
        rustix::fs::open(fd_path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)
    }

    /// Opens the namespace and keeps it open.
    ///
    /// # Errors
    /// As [`Namespace::open`].
    pub fn hold(&self) -> Result<HeldNamespace, NamespaceError> {
        let file = self.open()?;
        let stat = rustix::fs::fstat(&file)
            .map_err(|errno| NamespaceError::Failed { namespace: self.to_string(), source: errno.into() })?;
        let id = NamespaceId { device: stat.st_dev, inode: stat.st_ino };
        let label = match self {
            Self::Named(name) => name.clone(),
            _ => id.in_words(),
        };
        Ok(HeldNamespace { id, file: Arc::new(file), label })
    }
}

/// Identity of a network namespace, independent of its names. No other namespace has the same identity while this one
/// is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceId {
    device: u64,
    inode: u64,
}

impl NamespaceId {
    /// The kernel's number of the namespace. After the namespace's end another namespace may get the same number.
    #[must_use]
    pub fn inode(self) -> u64 {
        self.inode
    }

    /// Identity of the namespace of the file at `path`.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|file| Self { device: file.dev(), inode: file.ino() })
    }

    /// Name of the namespace, or the kernel's number if it has none.
    fn in_words(self) -> String {
        let is_it = |name: &String| Self::of(&Namespace::Named(name.clone()).path()) == Some(self);
        named().into_iter().find(is_it).unwrap_or_else(|| format!("net:[{}]", self.inode))
    }
}

/// A network namespace that is held open. It outlives its name and the processes in it.
#[derive(Debug, Clone)]
pub struct HeldNamespace {
    id: NamespaceId,
    file: Arc<OwnedFd>,
    label: String,
}

impl PartialEq for HeldNamespace {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for HeldNamespace {}

impl HeldNamespace {
    /// The namespace of a process: `pidfd` refers to the process, and `process` is its id in this process namespace.
    ///
    /// # Errors
    /// As [`Namespace::open`]; [`NamespaceError::NoSuchProcess`] if the process has ended, so that another process may
    /// have its id.
    pub fn of_process(process: u32, pidfd: impl AsFd) -> Result<Self, NamespaceError> {
        let held = Namespace::OfProcess(process).hold()?;
        // The check comes after opening: a process that still exists has existed all the time.
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&now)) {
            Ok(0) => Ok(held),
            _ => Err(NamespaceError::NoSuchProcess(process)),
        }
    }

    /// Makes a namespace without a name. It ends with the last value, process or file that has it, and its interfaces
    /// with it.
    ///
    /// # Errors
    /// [`NamespaceError::NotPermitted`], [`NamespaceError::Failed`].
    pub fn unnamed() -> Result<Self, NamespaceError> {
        let namespace = || "a new network namespace".to_owned();
        let failed = |source: io::Error| NamespaceError::Failed { namespace: namespace(), source };
        let made = || {
            unshare_network().map_err(|errno| match errno {
                Errno::PERM => NamespaceError::NotPermitted { namespace: namespace() },
                other => failed(other.into()),
            })?;
            Namespace::Current.hold()
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("namespace".to_owned());
            let thread = thread.spawn_scoped(scope, made).map_err(failed)?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Opens the namespace with this number ([`NamespaceId::inode`]), if it is the current one, has a name, or contains
    /// a process.
    ///
    /// # Errors
    /// As [`Namespace::open`]; [`NamespaceError::NoSuchFile`] if no name and no process leads to it.
    pub fn numbered(inode: u64) -> Result<Self, NamespaceError> {
        let is_it =
            |namespace: &Namespace| NamespaceId::of(&namespace.path()).is_some_and(|id| id.inode == inode);
        let found = every_name()
            .find(is_it)
            .ok_or_else(|| NamespaceError::NoSuchFile(format!("net:[{inode}]").into()))?;
        let held = found.hold()?;
        // The process may have ended meanwhile, and another one may have its id.
        if held.id.inode == inode { Ok(held) } else { Self::numbered(inode) }
    }

    /// Identity of the namespace.
    #[must_use]
    pub fn id(&self) -> NamespaceId {
        self.id
    }

    /// Name for users: the name that opened the namespace, or one from `ip netns list`, or else the kernel's
    /// `net:[...]`.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Whether this is the namespace of the calling thread.
    #[must_use]
    pub fn is_current(&self) -> bool {
        NamespaceId::of(&Namespace::Current.path()) == Some(self.id)
    }

    /// Number by which links of the calling thread's namespace name this one ([`LinkPeer::elsewhere`]); `None` if no
    /// link there leads here (`RTM_GETNSID`).
    ///
    /// [`LinkPeer::elsewhere`]: crate::link::LinkPeer::elsewhere
    ///
    /// # Errors
    /// [`NetdevError`]: the kernel does not answer.
    pub fn number_here(&self) -> Result<Option<i32>, NetdevError> {
        let mut request = NsidMessage::default();
        request.attributes.push(NsidAttribute::Fd(self.file.as_raw_fd() as u32));
        let operation = || format!("number {self}");
        let answers =
            Requests::open(NETLINK_ROUTE)?.ask(RouteNetlinkMessage::GetNsId(request), 0, &operation)?;
        Ok(answers.into_iter().find_map(|answer| {
            let RouteNetlinkMessage::NewNsId(answer) = answer else { return None };
            answer.attributes.into_iter().find_map(|attribute| match attribute {
                NsidAttribute::Id(number) if number >= 0 => Some(number),
                _ => None,
            })
        }))
    }

    /// Runs `f` in the namespace, as [`in_namespace`] does.
    ///
    /// # Errors
    /// [`NamespaceError`] if it cannot be entered; `f` has not run then.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        if self.is_current() {
            return Ok(f());
        }
        let failed = |source: io::Error| NamespaceError::Failed { namespace: self.to_string(), source };
        let entered = || {
            move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(
                |errno| match errno {
                    Errno::PERM => NamespaceError::NotPermitted { namespace: self.to_string() },
                    Errno::INVAL => NamespaceError::NotANamespace(PathBuf::from(&self.label)),
                    other => failed(other.into()),
                },
            )?;
            Ok(f())
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("namespace".to_owned())
                .spawn_scoped(scope, entered)
                .map_err(failed)?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl AsFd for HeldNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl fmt::Display for HeldNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network namespace {}", self.label)
    }
}

impl FromStr for Namespace {
    type Err = NamespaceError;

    fn from_str(text: &str) -> Result<Self, NamespaceError> {
        let bad = || NamespaceError::BadName(text.to_owned());
        match text {
            "" => Ok(Self::Current),
            "." | ".." => Err(bad()),
            _ if text.contains('\0') => Err(bad()),
            _ if text.contains('/') => Ok(Self::File(text.into())),
            _ if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                text.parse().map(Self::OfProcess).map_err(|_| bad())
            }
            _ => Ok(Self::Named(text.to_owned())),
        }
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current => f.write_str("the current network namespace"),
            Self::Named(name) => write!(f, "network namespace {name}"),
            Self::OfProcess(process) => write!(f, "the network namespace of process {process}"),
            Self::File(path) => write!(f, "network namespace {}", path.display()),
        }
    }
}

/// Runs `f` in `namespace` and returns its result. Sockets and devices that `f` opens stay in that namespace wherever
/// they are used afterwards. `/sys` still shows the namespace in which it was mounted.
///
/// The calling thread stays in its namespace: `f` runs on a new thread that enters the other one (setns(2)). For
/// [`Namespace::Current`] `f` is called directly. A panic in `f` continues in the caller.
///
/// # Errors
/// [`NamespaceError`] if the namespace cannot be entered; `f` has not run then.
pub fn in_namespace<T: Send>(
    namespace: &Namespace,
    f: impl FnOnce() -> T + Send,
) -> Result<T, NamespaceError> {
    match namespace {
        Namespace::Current => Ok(f()),
        other => other.hold()?.run(f),
    }
}

/// The namespaces that have a name or contain a process, each once; those that cannot be opened are left out.
#[must_use]
pub fn all_namespaces() -> Vec<HeldNamespace> {
    let mut found: BTreeMap<NamespaceId, HeldNamespace> = BTreeMap::new();
    for name in every_name() {
        if NamespaceId::of(&name.path()).is_some_and(|id| !found.contains_key(&id))
            && let Ok(held) = name.hold()
        {
            found.insert(held.id(), held);
        }
    }
    found.into_values().collect()
}

/// All names of namespaces: the current one, those with names, and those of processes.
fn every_name() -> impl Iterator<Item = Namespace> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    std::iter::once(Namespace::Current)
        .chain(named().into_iter().map(Namespace::Named))
        .chain(processes.map(Namespace::OfProcess))
}

/// Names that `ip netns list` shows.
fn named() -> Vec<String> {
    let entries = std::fs::read_dir(NAMED_DIRECTORY).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Text for the calling thread's namespace in a message; `None` if this process started in it.
pub(crate) fn current_in_words() -> Option<String> {
    let here = NamespaceId::of(&Namespace::Current.path())?;
    (NamespaceId::of(Path::new("/proc/self/ns/net")) != Some(here)).then(|| here.in_words())
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::link::{link_by_name, links};
    use crate::link_change::{VethEnd, create_veth};
    use crate::test_namespace::{in_new_namespace, without_rights};

    /// A namespace of `ip netns`, which is deleted on drop.
    struct Named(String);

    impl Named {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let name = format!("rrnd{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            assert!(Command::new("ip").args(["netns", "add", &name]).status().unwrap().success());
            Self(name)
        }
    }

    impl Drop for Named {
        fn drop(&mut self) {
            let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
        }
    }

    #[test]
    fn text_names_a_namespace_by_name_process_or_file() {
        let parsed = |text: &str| text.parse::<Namespace>().unwrap();
        assert_eq!(parsed(""), Namespace::Current);
        assert_eq!(parsed("blue"), Namespace::Named("blue".into()));
        assert_eq!(parsed("4 2"), Namespace::Named("4 2".into()));
        assert_eq!(parsed("42"), Namespace::OfProcess(42));
        assert_eq!(parsed("/proc/1/ns/net"), Namespace::File("/proc/1/ns/net".into()));
        for text in [".", "..", "a\0b", "4294967296"] {
            assert!(matches!(text.parse::<Namespace>(), Err(NamespaceError::BadName(_))), "{text:?}");
        }
    }

    #[test]
    fn a_named_namespace_is_entered_and_named_in_errors() {
        in_new_namespace(|| {
            let named = Named::new();
            let namespace: Namespace = named.0.parse().unwrap();
            let fd = namespace.open().unwrap();
            create_veth(VethEnd::here("va"), VethEnd::within("vb", fd.as_fd())).unwrap();
            let (inside, missing) = in_namespace(&namespace, || {
                (links().unwrap().into_iter().map(|link| link.name).collect::<Vec<_>>(), link_by_name("va"))
            })
            .unwrap();
            assert_eq!(inside, ["lo", "vb"]);
            let text = missing.unwrap_err().to_string();
            assert_eq!(
                text,
                format!("there is no interface va in network namespace {}; there are: lo, vb", named.0)
            );
            assert!(link_by_name("va").is_ok(), "the calling thread stays where it is");
        });
    }

    #[test]
    fn other_files_than_namespaces_are_refused_with_a_reason() {
        in_new_namespace(|| {
            let refused = |text: &str| in_namespace(&text.parse().unwrap(), || ()).unwrap_err();
            let text = refused("rr-none").to_string();
            assert!(text.starts_with("there is no network namespace rr-none in /run/netns"), "{text}");
            assert!(matches!(refused("4194305"), NamespaceError::NoSuchProcess(4194305)));
            assert!(matches!(refused("/nowhere/x"), NamespaceError::NoSuchFile(_)));
            assert!(matches!(refused("/proc/self/cmdline"), NamespaceError::NotANamespace(_)));
            assert!(matches!(refused("/proc/self/ns/mnt"), NamespaceError::NotANamespace(_)));
            assert!(in_namespace(&Namespace::OfProcess(std::process::id()), || ()).is_ok());
        });
    }

    #[test]
    fn a_pipe_in_place_of_a_namespace_is_refused_at_once() {
        let path = std::env::temp_dir().join(format!("rrnd-pipe-{}", std::process::id()));
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let refused = Namespace::File(path.clone()).open().unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(refused, NamespaceError::NotANamespace(_)), "{refused}");
    }

    #[test]
    fn a_held_namespace_outlives_all_its_names() {
        in_new_namespace(|| {
            let named = Named::new();
            let held = Namespace::Named(named.0.clone()).hold().unwrap();
            let by_file = Namespace::File(Path::new(NAMED_DIRECTORY).join(&named.0)).hold().unwrap();
            assert_eq!((held.id(), held.label()), (by_file.id(), by_file.label()));
            assert!(!held.is_current());
            assert_ne!(held.id(), Namespace::Current.hold().unwrap().id());
            drop(named);
            assert_eq!(held.run(|| links().unwrap().len()).unwrap(), 1);
        });
    }

    #[test]
    fn an_ended_process_has_no_namespace_even_if_its_pid_is_reused() {
        in_new_namespace(|| {
            let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
            let pid = rustix::process::Pid::from_child(&child);
            let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
            assert!(HeldNamespace::of_process(child.id(), &pidfd).is_ok());
            drop(child.stdin.take());
            child.wait().unwrap();
            // This process plays one that got the id of the ended process.
            let refused = HeldNamespace::of_process(std::process::id(), &pidfd).unwrap_err();
            assert!(matches!(refused, NamespaceError::NoSuchProcess(_)), "{refused}");
        });
    }

    #[test]
    fn without_rights_a_namespace_is_not_entered() {
        in_new_namespace(|| {
            let named = Named::new();
            let readable = Namespace::Named(named.0.clone());
            without_rights(|| {
                for namespace in [&readable, &Namespace::OfProcess(1)] {
                    let refused = in_namespace(namespace, || ()).unwrap_err();
                    assert!(matches!(refused, NamespaceError::NotPermitted { .. }), "{refused}");
                }
            });
        });
    }

    #[test]
    fn a_panic_inside_continues_in_the_caller() {
        in_new_namespace(|| {
            let itself = Namespace::OfProcess(std::process::id());
            let caught = std::panic::catch_unwind(|| in_namespace(&itself, || panic!("from within")));
            assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "from within");
        });
    }
}
