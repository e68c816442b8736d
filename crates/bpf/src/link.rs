//! Links: attachments that live as long as their descriptor.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::error::BpfError;
use crate::program::{ATTACH_XDP, TcxProgram, XdpProgram};
use crate::syscall::{Attribute, Command, bpf, bpf_descriptor};

const ATTACH_TCX_INGRESS: u32 = 46;
const ATTACH_TCX_EGRESS: u32 = 47;
/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE` of `linux/if_link.h`.
const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_NATIVE: u32 = 1 << 2;
/// `BPF_F_BEFORE`: without a named program, before all attached programs.
const FLAG_BEFORE: u32 = 1 << 3;

/// Mode in which an XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpAttachMode {
    /// Runs in the interface's driver, on its receive buffers.
    Native,
    /// Runs in the stack, on frames already in kernel buffers. Every interface supports this mode, but it is slower.
    Generic,
}

/// Direction of the frames that a tcx program sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcxSide {
    /// Frames that the interface received.
    Ingress,
    /// Frames that the host stack sends through the interface.
    Egress,
}

impl TcxSide {
    fn attach_type(self) -> u32 {
        match self {
            Self::Ingress => ATTACH_TCX_INGRESS,
            Self::Egress => ATTACH_TCX_EGRESS,
        }
    }
}

#[repr(C)]
struct Create {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
    relative: u32,
    padding: u32,
    expected_revision: u64,
}
// SAFETY: repr(C), integers without hidden padding, no addresses.
unsafe impl Attribute for Create {}

/// The kernel's report of a link (`struct bpf_link_info` with the union's fields for XDP and tcx).
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
struct Info {
    kind: u32,
    id: u32,
    program: u32,
    padding: u32,
    interface: u32,
    attach_type: u32,
    rest: [u64; 6],
}

#[repr(C)]
struct InfoQuery {
    descriptor: u32,
    bytes: u32,
    info: u64,
}
// SAFETY: repr(C), integers without padding; `link_info` passes the address and size of its own `Info`.
unsafe impl Attribute for InfoQuery {}

#[repr(C)]
struct Identity {
    id: u32,
    next: u32,
    flags: u32,
}
// SAFETY: repr(C), integers without padding, no addresses.
unsafe impl Attribute for Identity {}

#[repr(C)]
struct Detach {
    link: u32,
}
// SAFETY: an integer.
unsafe impl Attribute for Detach {}

/// A program attached to an interface. Dropping it detaches, even if a child process has the descriptor between fork
/// and exec. Every end of the process detaches it too.
#[derive(Debug)]
pub struct BpfLink {
    descriptor: OwnedFd,
}

impl BpfLink {
    /// Attaches `program` to interface `interface`.
    ///
    /// # Errors
    /// [`BpfError::Occupied`] if the interface has another XDP program; [`BpfError::NotNative`] if the driver cannot
    /// run it; [`BpfError::Unsupported`] before Linux 5.9, which has no XDP links.
    pub fn attach_xdp(program: &XdpProgram, interface: u32, mode: XdpAttachMode) -> Result<Self, BpfError> {
        let (flags, step) = match mode {
            XdpAttachMode::Native => (FLAG_NATIVE, "attaching an XDP program natively"),
            XdpAttachMode::Generic => (FLAG_GENERIC, "attaching an XDP program in generic mode"),
        };
        let created = create(program.as_fd(), interface, ATTACH_XDP, flags);
        created.map(|descriptor| Self { descriptor }).map_err(|source| match source {
            Errno::BUSY | Errno::EXIST => {
                let interface = interface_name(interface).unwrap_or_else(|| format!("#{interface}"));
                BpfError::Occupied { interface, source }
            }
            // The kernel reports an unknown interface as an invalid argument.
            Errno::INVAL | Errno::NODEV if interface_name(interface).is_none() => {
                BpfError::NoInterface { step, interface }
            }
            Errno::PERM | Errno::ACCESS => BpfError::NotPermitted { step },
            source if mode == XdpAttachMode::Native => BpfError::NotNative { source },
            Errno::INVAL => BpfError::Unsupported { step, needs: "5.9", source },
            source => BpfError::System { step, source },
        })
    }

    /// Attaches `program` to interface `interface`, before all programs already attached.
    ///
    /// # Errors
    /// [`BpfError::Unsupported`] before Linux 6.6, otherwise the kernel's error.
    pub fn attach_tcx(program: &TcxProgram, interface: u32, side: TcxSide) -> Result<Self, BpfError> {
        const STEP: &str = "attaching a tcx program";
        let created = create(program.as_fd(), interface, side.attach_type(), FLAG_BEFORE);
        created.map(|descriptor| Self { descriptor }).map_err(|source| match source {
            Errno::INVAL | Errno::NOSYS => BpfError::Unsupported { step: STEP, needs: "6.6", source },
            Errno::NODEV => BpfError::NoInterface { step: STEP, interface },
            source => BpfError::new(STEP, source),
        })
    }
}

impl Drop for BpfLink {
    fn drop(&mut self) {
        // Detaching fails if the program is detached already, or before Linux 5.9. Closing the descriptor detaches it
        // then.
        let _ = detach(self.descriptor.as_fd());
    }
}

impl AsFd for BpfLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Detaches the link through which XDP program `program` is on interface `interface`. Returns whether there was one.
pub(crate) fn detach_xdp_link(program: u32, interface: u32) -> Result<bool, Errno> {
    let mut identity = Identity { id: 0, next: 0, flags: 0 };
    while bpf(Command::LinkNextId, &mut identity).is_ok() {
        identity.id = identity.next;
        let mut wanted = Identity { id: identity.id, next: 0, flags: 0 };
        // A link may vanish between the two calls.
        let Ok(descriptor) = bpf_descriptor(Command::LinkDescriptorById, &mut wanted) else { continue };
        let Ok(info) = link_info(descriptor.as_fd()) else { continue };
        const KIND_XDP: u32 = 6;
        if info.kind == KIND_XDP && info.program == program && info.interface == interface {
            return detach(descriptor.as_fd()).map(|()| true);
        }
    }
    Ok(false)
}

fn detach(link: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut attribute = Detach { link: link.as_raw_fd().cast_unsigned() };
    bpf(Command::LinkDetach, &mut attribute).map(drop)
}

fn create(program: BorrowedFd<'_>, interface: u32, attach_type: u32, flags: u32) -> Result<OwnedFd, Errno> {
    let mut attribute = Create {
        program: program.as_raw_fd().cast_unsigned(),
        interface,
        attach_type,
        flags,
        relative: 0,
        padding: 0,
        expected_revision: 0,
    };
    bpf_descriptor(Command::LinkCreate, &mut attribute)
}

fn link_info(link: BorrowedFd<'_>) -> Result<Info, Errno> {
    let mut info = Info::default();
    let mut query = InfoQuery {
        descriptor: link.as_raw_fd().cast_unsigned(),
        bytes: size_of::<Info>() as u32,
        info: std::ptr::from_mut(&mut info) as u64,
    };
    bpf(Command::InfoByDescriptor, &mut query)?;
    Ok(info)
}

/// Name of an interface in this network namespace; `None` if there is no such interface.
fn interface_name(interface: u32) -> Option<String> {
    let any =
        rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::DGRAM, None).ok()?;
    rustix::net::netdevice::index_to_name(any, interface).ok()
}
