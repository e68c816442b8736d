//! Errors of opening an interface through AF_XDP.

use ringroad_bpf::error::BpfError;
use ringroad_netdev::NetdevError;
use rustix::io::Errno;

use crate::device::DriverError;

/// Reason why an interface could not be opened through AF_XDP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XdpError {
    /// The XDP program or its map failed.
    #[error("interface {interface}: {source}")]
    Program {
        interface: String,
        /// The kernel's refusal.
        source: BpfError,
    },
    /// A step of setting up a socket failed.
    #[error("interface {interface}, queue {queue}: {step}: {source}{advice}")]
    Socket {
        interface: String,
        /// Number of the queue.
        queue: u16,
        step: &'static str,
        source: Errno,
        /// Advice to the user, with a leading colon; empty if there is none.
        advice: &'static str,
    },
    /// A query about the interface failed.
    #[error(transparent)]
    Netdev(#[from] NetdevError),
    /// The region's buffers have a size that AF_XDP does not support.
    #[error(
        "buffers of {0} bytes: AF_XDP takes buffers of 2048 or 4096 bytes, choose buf-size=2048 or buf-size=4096"
    )]
    BufferBytes(u32),
    /// A card could write a frame in pieces, and its driver could pass each piece on as a frame.
    #[error(
        "interface {interface}, buffers of {buffer_bytes} bytes: a card may cut frames longer than {whole_bytes} bytes in zero-copy \
         mode, {remedy}"
    )]
    MayCut {
        interface: String,
        /// Size of the region's buffers.
        buffer_bytes: u32,
        /// Maximum length of a frame that no card cuts, bytes without FCS.
        whole_bytes: usize,
        /// Advice to the user.
        remedy: String,
    },
    /// Frames would not come whole, or not at all, in native mode.
    #[error(
        "interface {interface}: {reason}, so native mode does not give whole frames: choose mode=generic"
    )]
    NativeDefect { interface: String, reason: &'static str },
    /// The region is not mapped as a whole.
    #[error("the region's buffer area is not mapped")]
    Unmapped,
    /// The kernel does not support this ring size.
    #[error("rings of {0} descriptors: choose a power of two from 64 to 32768 (ring-size=N)")]
    RingSize(u32),
    /// No queue was requested.
    #[error("interface {interface}: 0 queues: choose at least 1")]
    NoQueues { interface: String },
    /// The lists of buffers do not fit the queues.
    #[error("interface {interface}, queue {queue}: {given} buffers in the region, {needed} needed")]
    Buffers {
        interface: String,
        /// Number of the queue.
        queue: u16,
        /// Number of passed buffers that lie in the region.
        given: usize,
        /// Number of buffers needed.
        needed: usize,
    },
}

impl DriverError for XdpError {
    fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::Program { source: BpfError::Occupied { .. }, .. }
                | Self::Socket { source: Errno::BUSY, .. }
        )
    }
}

impl XdpError {
    /// The kernel's error in a step of setting up the socket of queue `queue`.
    pub(super) fn socket(interface: &str, queue: u16, step: &'static str, source: Errno) -> Self {
        let advice = match (step, source) {
            (_, Errno::PERM | Errno::ACCESS) => ": run as root, or with CAP_NET_RAW and CAP_NET_ADMIN",
            (_, Errno::AFNOSUPPORT) => ": this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)",
            (_, Errno::NOBUFS) => {
                ": the limit for locked memory is too low, raise it (`ulimit -l unlimited`) or add CAP_IPC_LOCK"
            }
            (BIND, Errno::BUSY) => ": another AF_XDP socket holds this queue, end the program that has it",
            (BIND, Errno::INVAL) => ": the interface has fewer queues, or the kernel does not know an option",
            (BIND, Errno::NODEV) => ": the interface is not in this network namespace",
            _ => "",
        };
        Self::Socket { interface: interface.to_owned(), queue, step, source, advice }
    }

    /// Short reason, if another mode may succeed.
    pub(super) fn refusal(&self) -> Option<String> {
        match self {
            Self::Socket { step: BIND, source, .. } if *source != Errno::BUSY => Some(describe(*source)),
            Self::Program { source: BpfError::NotNative { source }, .. } => Some(describe(*source)),
            Self::MayCut { buffer_bytes, .. } => {
                Some(format!("frames may be cut in buffers of {buffer_bytes} bytes"))
            }
            Self::NativeDefect { reason, .. } => Some((*reason).to_owned()),
            _ => None,
        }
    }
}

/// Text for the kernel's answer, without its number.
fn describe(answer: Errno) -> String {
    let text = std::io::Error::from(answer).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Step in which the kernel chooses between zero-copy and copy.
pub(super) const BIND: &str = "binding the AF_XDP socket";
