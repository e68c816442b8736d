//! Errors of eBPF, each with a remedy.

use rustix::io::Errno;

/// Reason why a map, program or attachment could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BpfError {
    /// The kernel requires a privilege.
    #[error(
        "{step}: not permitted: run as root or with CAP_BPF and CAP_NET_ADMIN (before Linux 5.11 also raise \
         the locked memory limit, `ulimit -l`)"
    )]
    NotPermitted { step: &'static str },
    /// The kernel is too old or built without the feature.
    #[error("{step}: this kernel does not offer it ({source}): it needs Linux {needs} or later")]
    Unsupported {
        step: &'static str,
        /// First kernel that supports it.
        needs: &'static str,
        source: Errno,
    },
    /// Another program's XDP program is on the interface.
    #[error(
        "another XDP program is attached to interface {interface} ({source}): detach it with `ip link set dev {interface} xdp off` \
         (or end the program that holds it), or use force=1 to take its place"
    )]
    Occupied {
        /// Name of the interface, or `#INDEX` where it has none.
        interface: String,
        source: Errno,
    },
    /// The interface's driver does not run the program.
    #[error(
        "the driver of the interface does not take an XDP program ({source}): it has no native XDP, or the MTU or receive offloads \
         (LRO) stand in its way, or the kernel is older than 5.9; use mode=generic"
    )]
    NotNative { source: Errno },
    /// The verifier did not accept the program: a fault of this crate or of the kernel.
    #[error("the kernel's verifier refused the program {program} ({source}): {log}")]
    Refused {
        /// Name of the program.
        program: &'static str,
        /// The verifier's log.
        log: String,
        source: Errno,
    },
    /// There is no such interface in this network namespace.
    #[error("{step}: there is no interface with index {interface} in this network namespace")]
    NoInterface {
        step: &'static str,
        /// The requested index.
        interface: u32,
    },
    /// Any other error.
    #[error("{step}: {source}")]
    System { step: &'static str, source: Errno },
}

impl BpfError {
    /// The kernel's answer to `step` as an error that states a remedy.
    pub(crate) fn new(step: &'static str, source: Errno) -> Self {
        match source {
            Errno::PERM | Errno::ACCESS => Self::NotPermitted { step },
            source => Self::System { step, source },
        }
    }
}
