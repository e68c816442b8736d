//! XDP and traffic control programs: their instructions, and loading them.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::error::BpfError;
use crate::instruction::Instruction;
use crate::map::XskMap;
use crate::syscall::{Attribute, Command, bpf_descriptor};

const TYPE_SCHED_CLS: u32 = 3;
const TYPE_XDP: u32 = 6;
/// `expected_attach_type` of XDP programs (`BPF_XDP`).
pub(crate) const ATTACH_XDP: u32 = 37;
/// Flag of programs that support frames in several buffers (`BPF_F_XDP_HAS_FRAGS`, Linux 5.18).
const HAS_FRAGMENTS: u32 = 1 << 5;

/// Kernel functions that the programs call (`enum bpf_func_id`).
const REDIRECT: i32 = 23;
const REDIRECT_MAP: i32 = 51;
/// `BPF_F_INGRESS` of bpf_redirect().
const REDIRECT_INGRESS: i32 = 1;
/// `XDP_PASS`: the frame goes on to the host stack.
const XDP_PASS: i32 = 2;
/// `TCX_NEXT`: the frame goes on to the next program. After the last program it takes its normal path.
const TCX_NEXT: i32 = -1;
const TCX_DROP: i32 = 2;
/// Offset of `rx_queue_index` in `struct xdp_md`.
const XDP_QUEUE: i16 = 16;
/// Offset of `mark` in `struct __sk_buff`.
const SKB_MARK: i16 = 8;

/// Room for the verifier's log, bytes.
const LOG_BYTES: usize = 16 << 10;

#[repr(C)]
struct ProgLoadAttr {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    device: u32,
    attach_type: u32,
}
// SAFETY: repr(C), integers without padding; `load` fills in addresses of buffers with their true sizes.
unsafe impl Attribute for ProgLoadAttr {}

fn load(
    name: &'static str,
    kind: u32,
    attach_type: u32,
    flags: u32,
    instructions: &[Instruction],
) -> Result<OwnedFd, BpfError> {
    let mut short_name = [0; 16];
    for (to, from) in short_name[..15].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    let mut attribute = ProgLoadAttr {
        kind,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags,
        name: short_name,
        device: 0,
        attach_type,
    };
    let source = match bpf_descriptor(Command::ProgramLoad, &mut attribute) {
        Ok(descriptor) => return Ok(descriptor),
        Err(Errno::PERM) => return Err(BpfError::NotPermitted { step: "loading an eBPF program" }),
        Err(Errno::NOSYS) => {
            return Err(BpfError::Unsupported {
                step: "loading an eBPF program",
                needs: "4.18 (CONFIG_BPF_SYSCALL)",
                source: Errno::NOSYS,
            });
        }
        Err(source) => source,
    };
    // The log is requested only now: a log that does not fit would itself be an error.
    let mut log = vec![0_u8; LOG_BYTES];
    attribute.log_level = 1;
    attribute.log_bytes = LOG_BYTES as u32;
    attribute.log = log.as_mut_ptr() as u64;
    match bpf_descriptor(Command::ProgramLoad, &mut attribute) {
        Ok(descriptor) => Ok(descriptor),
        Err(_) => {
            let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
            let log = match String::from_utf8_lossy(text).trim() {
                "" => "it gave no reason".to_owned(),
                text => text.to_owned(),
            };
            Err(BpfError::Refused { program: name, log, source })
        }
    }
}

/// An XDP program. It decides about each frame that an interface receives, before the host stack sees it.
#[derive(Debug)]
pub struct XdpProgram {
    descriptor: OwnedFd,
    multi_buffer: bool,
}

impl XdpProgram {
    /// A program that gives each frame to the socket of its receive queue in `map`, or to the host stack if there is
    /// none. `multi_buffer` requests support of frames in several buffers (Linux 5.18). If the kernel lacks it, the
    /// program is loaded without ([`XdpProgram::multi_buffer`]).
    ///
    /// # Errors
    /// [`BpfError`] if the kernel refuses.
    pub fn to_sockets(map: &XskMap, multi_buffer: bool) -> Result<Self, BpfError> {
        let [set_map, set_map_rest] = Instruction::set_map(1, map.as_fd().as_raw_fd());
        let program = [
            Instruction::load_32(2, 1, XDP_QUEUE),
            set_map,
            set_map_rest,
            // Linux 5.3 takes the lower bits of the flags as the verdict if the map has no entry.
            Instruction::set(3, XDP_PASS),
            Instruction::call(REDIRECT_MAP),
            Instruction::exit(),
        ];
        let name = "ringroad_to_xsk";
        if multi_buffer {
            match load(name, TYPE_XDP, ATTACH_XDP, HAS_FRAGMENTS, &program) {
                Ok(descriptor) => return Ok(Self { descriptor, multi_buffer }),
                Err(BpfError::Refused { source: Errno::INVAL, .. }) => {}
                Err(other) => return Err(other),
            }
        }
        let descriptor = load(name, TYPE_XDP, ATTACH_XDP, 0, &program)?;
        Ok(Self { descriptor, multi_buffer: false })
    }

    /// Whether the program accepts frames that lie in several buffers.
    #[must_use]
    pub fn multi_buffer(&self) -> bool {
        self.multi_buffer
    }
}

impl AsFd for XdpProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Point at which a redirected frame enters the target interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectPath {
    /// The frame continues as if the interface had received it.
    Ingress,
    /// The frame continues as if the host stack had sent it through the interface.
    Egress,
}

/// A traffic control program. It decides about each frame on its way into or out of the host stack.
#[derive(Debug)]
pub struct TcxProgram {
    descriptor: OwnedFd,
}

impl TcxProgram {
    /// A program that sends every frame to interface `interface`. If `mark` is given, it sets the frame's mark before.
    /// A frame keeps its mark within this network namespace.
    ///
    /// # Errors
    /// [`BpfError`] if the kernel refuses.
    pub fn redirect(interface: u32, entrance: RedirectPath, mark: Option<u32>) -> Result<Self, BpfError> {
        let flags = match entrance {
            RedirectPath::Ingress => REDIRECT_INGRESS,
            RedirectPath::Egress => 0,
        };
        let mut program = Vec::with_capacity(6);
        if let Some(mark) = mark {
            program.push(Instruction::set_32(2, mark));
            program.push(Instruction::store_32(1, SKB_MARK, 2));
        }
        program.extend([
            Instruction::set_32(1, interface),
            Instruction::set(2, flags),
            Instruction::call(REDIRECT),
            Instruction::exit(),
        ]);
        Self::load("ringroad_redir", &program)
    }

    /// A program that drops every frame without this mark and passes the others unchanged.
    ///
    /// # Errors
    /// [`BpfError`] if the kernel refuses.
    pub fn drop_unless_marked(mark: u32) -> Result<Self, BpfError> {
        let program = [
            Instruction::load_32(2, 1, SKB_MARK),
            Instruction::set(0, TCX_NEXT),
            Instruction::skip_if_equal_32(2, mark, 1),
            Instruction::set(0, TCX_DROP),
            Instruction::exit(),
        ];
        Self::load("ringroad_steal", &program)
    }

    pub(crate) fn load(name: &'static str, program: &[Instruction]) -> Result<Self, BpfError> {
        Ok(Self { descriptor: load(name, TYPE_SCHED_CLS, 0, 0, program)? })
    }
}

impl AsFd for TcxProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
