//! Errors of interfaces: each names the operation, the interface, the cause and a remedy.

use std::time::Duration;

use rustix::io::Errno;

/// Reason why an interface could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetdevError {
    /// No interface of that name in the namespace of the calling thread.
    #[error("there is no interface {name}{}; {}there are: {}", in_words(.namespace), meant(.name, .existing), list_of(.existing))]
    NoInterface {
        /// The requested name.
        name: String,
        /// The namespace that was searched. `None` for the namespace in which this process started.
        namespace: Option<Box<str>>,
        /// Interfaces that exist in that namespace.
        existing: Box<[String]>,
    },
    /// No interface can have that name.
    #[error(
        "\"{name}\" cannot be an interface's name: {reason}; a name has 1 to 15 bytes, without space, /, : and %, and is not . or .."
    )]
    BadName { name: String, reason: &'static str },
    #[error("cannot {operation}: {source}{}; {}", said(.kernel_message), advice(*.source))]
    Refused {
        /// The operation, with the interface's name, as words after "cannot".
        operation: String,
        /// The kernel's error.
        source: Errno,
        /// The kernel's own explanation (extended acknowledgement), if there is one.
        kernel_message: Option<String>,
    },
    /// The interface's driver has no such capability.
    #[error("{interface} has no {what}: its driver (or a kernel before 5.8) does not support that")]
    Unsupported { interface: String, what: &'static str },
    /// The kernel has no ethtool interface over netlink.
    #[error(
        "this kernel has no ethtool over netlink: it needs Linux 5.6 or newer with CONFIG_ETHTOOL_NETLINK"
    )]
    NoEthtool,
    /// An interface did not become ready to carry frames in the given time.
    #[error(
        "{interface} carries no frames after {} s: {}", .waited.as_secs_f32(),
        if *.up { "it has no carrier; check the cable, or set a veth's other end up" } else { "it is down; set it up first" }
    )]
    NotRunning {
        interface: String,
        /// Whether the interface is set up.
        up: bool,
        /// Time that the caller waited.
        waited: Duration,
    },
    /// A netlink socket failed, so the kernel cannot be queried.
    #[error(
        "cannot {operation} a netlink socket: {source}; check the limit of open files and any system call filter"
    )]
    Socket {
        /// The operation on the socket.
        operation: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The kernel's answer differs from its documentation, or is newer than this program.
    #[error(
        "cannot {operation}: the kernel's answer cannot be read ({reason}); the kernel may be newer than this program"
    )]
    Answer {
        /// Description of the operation, as words after "cannot".
        operation: String,
        /// Reason why the answer is invalid.
        reason: String,
    },
}

impl NetdevError {
    /// Whether the cause is that the interface does not exist, or no longer exists.
    #[must_use]
    pub fn is_no_interface(&self) -> bool {
        matches!(self, Self::NoInterface { .. } | Self::Refused { source: Errno::NODEV, .. })
    }
}

/// The existing name that is likely meant by `name`, as a question: one letter in three may be wrong.
fn meant(name: &str, existing: &[String]) -> String {
    let distance = |other: &&String| strsim::osa_distance(name, other);
    let nearest = existing.iter().min_by_key(distance);
    let likely = nearest.filter(|other| distance(other) * 3 <= name.len());
    likely.map(|other| format!("did you mean {other}? ")).unwrap_or_default()
}

fn in_words(namespace: &Option<Box<str>>) -> String {
    namespace.as_ref().map(|name| format!(" in network namespace {name}")).unwrap_or_default()
}

pub(crate) fn list_of(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn said(kernel_message: &Option<String>) -> String {
    kernel_message.as_ref().map(|text| format!(" (the kernel reports: {text})")).unwrap_or_default()
}

fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::PERM | Errno::ACCESS => "it needs root, or CAP_NET_ADMIN in that network namespace",
        Errno::EXIST => "it exists already: choose another name or address, or delete the old one first",
        Errno::BUSY => "something uses it: set the interface down, or stop the program that holds it",
        Errno::NODEV => "the interface has gone meanwhile: check with ip link",
        Errno::OPNOTSUPP => "the interface's driver, or this kernel, does not support it",
        Errno::INVAL | Errno::RANGE => "the value is outside the driver's limits: ip -d link shows them",
        Errno::ADDRNOTAVAIL => "an interface cannot have this address: it must be unicast and not zero",
        _ => "ip link and the kernel's log (dmesg) may give details",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_interface_is_suggested_and_another_one_is_not() {
        let existing = ["lo", "eth0", "enp3s0f1"].map(str::to_owned);
        for (name, likely) in [
            ("eht0", "did you mean eth0? "),
            ("eth00", "did you mean eth0? "),
            ("ep3s0f1", "did you mean enp3s0f1? "),
            ("wlan0", ""),
            ("l", ""),
        ] {
            assert_eq!(meant(name, &existing), likely, "{name}");
        }
        assert_eq!(meant("eth0", &[]), "");
    }
}
