//! A driver's description of a kind of port. Names, help, documentation and checks follow from it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringroad_netdev::namespace::HeldNamespace;
use ringroad_port::port_queue::HandOver;

use super::port_name::PortOptions;
use super::port_option::PortOption;
use crate::device::{Device, DeviceError, DevicePlan, DeviceRole};
use crate::pcap_file::NamedFiles;
use crate::shm::ShmRegion;

/// Maximum length of an interface's name, bytes (IFNAMSIZ without its NUL, linux/if.h).
pub const MAX_INTERFACE_BYTES: usize = 15;

/// A kind of port that a device serves. Each driver has one for each way to name its ports.
pub struct PortKind {
    /// Name of the driver in reports and metrics.
    pub driver: &'static str,
    /// Mark of the kind's names.
    pub spelling: Spelling,
    /// Form of the kind's names, such as `memif:SOCKET`.
    pub form: &'static str,
    /// Description, in one line.
    pub about: &'static str,
    /// Page of the documentation, below `docs/`.
    pub page: Option<&'static str>,
    /// Target of the kind's names.
    pub target: NameTarget,
    /// Options of the kind beside those of every port.
    pub options: &'static [&'static PortOption],
    /// Process that opens ports of the kind.
    pub access: OpenedBy,
    /// Checks what a port needs.
    pub(crate) plan: fn(&Planning<'_>) -> Result<DevicePlan, DeviceError>,
    /// Opens a port as planned.
    pub(crate) open: fn(OpenContext<'_>) -> Result<Device, DeviceError>,
}

/// The mark of a kind's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// The target follows a scheme and a colon.
    Scheme(&'static str),
    /// The name is the target alone.
    Bare,
    /// A character follows the target.
    Suffix(char),
}

/// The target of a kind's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameTarget {
    /// No object outside of the program: the name has settings of the kind in place of a target.
    Settings,
    /// Capture files.
    CaptureFiles,
    /// A network interface that exists.
    Interface(InterfaceUse),
    /// A network interface that is created with the port. Without a name the kernel chooses one.
    NewInterface,
    /// The path of a UNIX socket.
    Socket,
}

/// Frames of an interface that a port takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterfaceUse {
    /// Copies of frames; the host stack keeps the interface.
    Copies,
    /// The frames from the wire, which the host stack no longer receives.
    Wire,
    /// The frames that the host stack sends and receives.
    HostStack,
}

/// Process that opens the ports of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenedBy {
    /// The program that uses the port: it needs no privilege, and other programs cannot use the port.
    Program,
    /// The daemon, for permitted users.
    Daemon,
}

/// The input for a driver's plan of a port.
pub(crate) struct Planning<'a> {
    pub(crate) target: &'a str,
    pub(crate) options: &'a PortOptions,
    /// Namespace in which an interface is looked up; `None` for that of this thread.
    pub(crate) netns: Option<&'a HeldNamespace>,
    /// Requested number of queues, if any.
    pub(crate) queues: Option<u16>,
}

impl Planning<'_> {
    /// Plan of a port with the requested number of queues, or one queue without a request.
    pub(crate) fn any_queues(&self) -> Result<DevicePlan, DeviceError> {
        Ok(DevicePlan::queues(self.queues.unwrap_or(1)))
    }

    /// Plan as of [`Self::any_queues`], for a driver that supports up to `most` queues.
    pub(crate) fn queues_up_to(&self, most: u16, driver: &'static str) -> Result<DevicePlan, DeviceError> {
        match self.queues.unwrap_or(1) {
            queues if (1..=most).contains(&queues) => Ok(DevicePlan::queues(queues)),
            asked => Err(DeviceError::Queues { driver, most, asked }),
        }
    }
}

/// The input of a driver that opens a port.
pub(crate) struct OpenContext<'a> {
    pub(crate) target: &'a str,
    pub(crate) options: &'a PortOptions,
    pub(crate) plan: DevicePlan,
    pub(crate) role: DeviceRole,
    /// The region that the device shares with its program or with others.
    pub(crate) home: Option<&'a Arc<ShmRegion>>,
    /// The state that another process leaves of the same port, queue by queue; empty for a new port.
    pub(crate) inherited: Vec<HandOver>,
}

impl PortKind {
    /// Whether ports of the kind have the option `key` beside those of every port.
    #[must_use]
    pub fn has_option(&self, key: &str) -> bool {
        self.options.iter().any(|option| option.key == key)
    }

    /// Keys of the kind's options, as text for users.
    pub(crate) fn option_keys(&self) -> String {
        let keys: Vec<_> = self.options.iter().map(|option| option.key).collect();
        if keys.is_empty() { "none of its own".to_owned() } else { keys.join(", ") }
    }

    /// Word for a port of this kind in messages.
    pub(crate) fn noun(&self) -> String {
        match self.spelling {
            Spelling::Scheme(scheme) => format!("{scheme} port"),
            Spelling::Bare | Spelling::Suffix(_) => format!("port like {}", self.form),
        }
    }
}

impl PartialEq for PortKind {
    fn eq(&self, other: &Self) -> bool {
        self.spelling == other.spelling
    }
}

impl Eq for PortKind {}

impl fmt::Debug for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.form)
    }
}

impl NameTarget {
    /// Checks the target in a name, and returns the target in canonical form.
    pub(crate) fn read(self, text: &str) -> Result<String, String> {
        match self {
            Self::CaptureFiles => return Ok(NamedFiles::read(text)?.to_string()),
            Self::Interface(_) => check_interface_name(text)?,
            Self::NewInterface if !text.is_empty() => check_interface_name(text)?,
            Self::Socket if text.is_empty() => return Err("the path of the socket is missing".into()),
            // Settings are parsed as options.
            Self::Settings | Self::NewInterface | Self::Socket => {}
        }
        Ok(text.to_owned())
    }

    /// Whether the target is an interface, whose name means another interface in each network namespace.
    #[must_use]
    pub fn is_of_a_namespace(self) -> bool {
        matches!(self, Self::Interface(_) | Self::NewInterface)
    }
}

/// A name of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceName {
    /// Kind of the port.
    pub kind: &'static PortKind,
    /// Target, as [`PortKind::target`] describes it.
    pub target: String,
}

impl DeviceName {
    /// Existing interface that the name refers to, if its kind has one.
    #[must_use]
    pub fn interface(&self) -> Option<(&str, InterfaceUse)> {
        match self.kind.target {
            NameTarget::Interface(of_it) => Some((&self.target, of_it)),
            _ => None,
        }
    }

    /// Paths of the files and sockets in the name.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        match self.kind.target {
            NameTarget::Socket => vec![self.target.clone().into()],
            NameTarget::CaptureFiles => {
                let files = NamedFiles::read(&self.target).unwrap_or_default();
                files.input.into_iter().chain(files.output).collect()
            }
            NameTarget::Settings | NameTarget::Interface(_) | NameTarget::NewInterface => Vec::new(),
        }
    }

    /// Returns the name with absolute paths. Relative paths are resolved from `folder`.
    #[must_use]
    pub fn with_absolute_paths(&self, folder: &Path) -> Self {
        let target = match self.kind.target {
            NameTarget::Socket => folder.join(&self.target).display().to_string(),
            NameTarget::CaptureFiles => {
                NamedFiles::read(&self.target).unwrap_or_default().map(|path| folder.join(path)).to_string()
            }
            NameTarget::Settings | NameTarget::Interface(_) | NameTarget::NewInterface => self.target.clone(),
        };
        Self { kind: self.kind, target }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.spelling {
            Spelling::Scheme(scheme) => write!(f, "{scheme}:{}", self.target),
            Spelling::Bare => f.write_str(&self.target),
            Spelling::Suffix(suffix) => write!(f, "{}{suffix}", self.target),
        }
    }
}

/// Checks that `name` is possible for an interface, by the kernel's rule (`dev_valid_name`), and has no characters with
/// a meaning in port names.
///
/// # Errors
/// The problem, as text for users.
pub fn check_interface_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("the interface is missing".into());
    }
    if name.len() > MAX_INTERFACE_BYTES {
        return Err(format!("the interface {name:?} is longer than {MAX_INTERFACE_BYTES} bytes"));
    }
    if name == "." || name == ".." {
        return Err(format!("no interface can be called {name:?}"));
    }
    match name.chars().find(|&c| c.is_whitespace() || c.is_control() || "/:@{}^*".contains(c)) {
        Some(odd) => Err(format!("the interface {name:?} holds {odd:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_impossible_for_an_interface_are_refused() {
        for name in ["", "..", "a b", "a/b", "abcdefghijklmnop", "x^"] {
            assert!(check_interface_name(name).is_err(), "{name:?}");
        }
        assert_eq!(check_interface_name("enp3s0f1np1.100"), Ok(()));
    }
}
