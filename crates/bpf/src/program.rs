//! XDP and traffic control programs: their instructions, and loading them.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::error::BpfError;
use crate::instruction::Instruction;
use crate::kernel_function;
use crate::map::XskMap;
use crate::syscall::{Attribute, Command, bpf_descriptor};

const TYPE_SCHED_CLS: u32 = 3;
const TYPE_XDP: u32 = 6;
/// `expected_attach_type` of XDP programs (`BPF_XDP`).
pub(crate) const ATTACH_XDP: u32 = 37;
/// Flag of programs that support frames in several buffers (`BPF_F_XDP_HAS_FRAGS`, Linux 5.18).
const HAS_FRAGMENTS: u32 = 1 << 5;
/// Flag of programs for one interface, which can ask its driver about a frame (`BPF_F_XDP_DEV_BOUND_ONLY`, Linux 6.3).
const FOR_INTERFACE: u32 = 1 << 6;

/// Kernel functions that the programs call (`enum bpf_func_id`).
const REDIRECT: i32 = 23;
const ADJUST_HEAD: i32 = 44;
const REDIRECT_MAP: i32 = 51;
/// `BPF_F_INGRESS` of bpf_redirect().
const REDIRECT_INGRESS: i32 = 1;
/// `XDP_DROP`: the driver drops the frame, and counts it.
const XDP_DROP: i32 = 1;
/// `XDP_PASS`: the frame goes on to the host stack.
const XDP_PASS: i32 = 2;
/// `XDP_REDIRECT`: the frame goes to the socket that bpf_redirect_map() found.
const XDP_REDIRECT: i32 = 4;
/// `TCX_NEXT`: the frame goes on to the next program. After the last program it takes its normal path.
const TCX_NEXT: i32 = -1;
const TCX_DROP: i32 = 2;
/// Offsets of `data`, `data_end` and `rx_queue_index` in `struct xdp_md`.
const XDP_START: i16 = 0;
const XDP_END: i16 = 4;
const XDP_QUEUE: i16 = 16;
/// Offset of `mark` in `struct __sk_buff`.
const SKB_MARK: i16 = 8;

/// Number of instructions that put a VLAN tag back.
const TAG_INSTRUCTIONS: usize = 34;

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

/// Loads a program. `interface` is the interface that it is for, if `flags` has [`FOR_INTERFACE`], else 0.
fn load(
    name: &'static str,
    kind: u32,
    attach_type: u32,
    flags: u32,
    interface: u32,
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
        device: interface,
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
    puts_tags_back: bool,
}

impl XdpProgram {
    /// A program that gives each frame to the socket of its receive queue in `map`, or to the host stack if there is
    /// none. `multi_buffer` requests support of frames in several buffers (Linux 5.18). `tags_of` requests that a VLAN
    /// tag which the driver has received beside a frame is put back into it (Linux 6.8); the program is then for this
    /// interface only. The program is loaded without what the kernel lacks ([`XdpProgram::multi_buffer`],
    /// [`XdpProgram::puts_tags_back`]).
    ///
    /// # Errors
    /// [`BpfError`] if the kernel refuses.
    pub fn to_sockets(map: &XskMap, multi_buffer: bool, tags_of: Option<u32>) -> Result<Self, BpfError> {
        let tags = tags_of.and_then(|interface| Some((interface, kernel_function::vlan_tag_of_frame()?)));
        // Long frames are lost without support of several buffers, so tags are given up first.
        let mut variants = vec![(multi_buffer, tags), (multi_buffer, None), (false, None)];
        variants.dedup();
        let last = variants.pop();
        for (multi_buffer, tags) in variants {
            match Self::load(map, multi_buffer, tags) {
                Err(BpfError::Refused { .. }) => {}
                result => return result,
            }
        }
        let (multi_buffer, tags) = last.unwrap_or_default();
        Self::load(map, multi_buffer, tags)
    }

    /// Loads the program. `tags`: the interface whose tags are put back, and the number of the function for that.
    fn load(map: &XskMap, multi_buffer: bool, tags: Option<(u32, i32)>) -> Result<Self, BpfError> {
        let [set_map, set_map_rest] = Instruction::set_map(1, map.as_fd().as_raw_fd());
        let redirect = [
            Instruction::load_32(2, 1, XDP_QUEUE),
            set_map,
            set_map_rest,
            // Linux 5.3 takes the lower bits of the flags as the verdict if the map has no entry.
            Instruction::set(3, XDP_PASS),
            Instruction::call(REDIRECT_MAP),
        ];
        let mut program = redirect.to_vec();
        if let Some((_, tag_function)) = tags {
            program.insert(0, Instruction::copy(6, 1));
            program.extend(put_tag_back(tag_function));
        }
        program.push(Instruction::exit());
        let fragments = if multi_buffer { HAS_FRAGMENTS } else { 0 };
        let (bound, interface) = tags.map_or((0, 0), |(interface, _)| (FOR_INTERFACE, interface));
        let descriptor =
            load("ringroad_to_xsk", TYPE_XDP, ATTACH_XDP, fragments | bound, interface, &program)?;
        Ok(Self { descriptor, multi_buffer, puts_tags_back: tags.is_some() })
    }

    /// Whether the program accepts frames that lie in several buffers.
    #[must_use]
    pub fn multi_buffer(&self) -> bool {
        self.multi_buffer
    }

    /// Whether the program puts VLAN tags back that lie beside frames.
    #[must_use]
    pub fn puts_tags_back(&self) -> bool {
        self.puts_tags_back
    }
}

/// Instructions between the redirection and the end that put the VLAN tag of a frame back into it, if it lies beside the
/// frame and the frame goes to a socket: the host stack finds the tag where it lies. Register 6 has the context, register
/// 0 the verdict before and after. A frame without room for its tag is dropped: without the tag it would be in another
/// VLAN.
fn put_tag_back(tag_function: i32) -> [Instruction; TAG_INSTRUCTIONS] {
    // Place of the tag on the stack: EtherType in network byte order, then the control information.
    const TAG: i16 = -4;
    let skip_rest_after = |number: i16| TAG_INSTRUCTIONS as i16 - 1 - number;
    [
        Instruction::skip_unless_equal_32(0, XDP_REDIRECT.cast_unsigned(), skip_rest_after(0)),
        Instruction::store_value_32(10, TAG, 0),
        Instruction::copy(1, 6),
        Instruction::copy(2, 10),
        Instruction::add(2, TAG.into()),
        Instruction::copy(3, 10),
        Instruction::add(3, i32::from(TAG) + 2),
        Instruction::call_by_type(tag_function),
        Instruction::copy(7, 0),
        Instruction::set(0, XDP_REDIRECT),
        // The function fails if no tag lies beside the frame.
        Instruction::skip_unless_equal_32(7, 0, skip_rest_after(10)),
        Instruction::copy(1, 6),
        Instruction::set(2, -4),
        Instruction::call(ADJUST_HEAD),
        Instruction::copy(7, 0),
        Instruction::set(0, XDP_DROP),
        Instruction::skip_unless_equal_32(7, 0, skip_rest_after(16)),
        Instruction::load_32(1, 6, XDP_START),
        Instruction::load_32(2, 6, XDP_END),
        Instruction::copy(3, 1),
        Instruction::add(3, 16),
        Instruction::skip_if_above(3, 2, skip_rest_after(21)),
        // The addresses move to the new start of the frame, and the tag follows them.
        Instruction::load_32(2, 1, 4),
        Instruction::store_32(1, 0, 2),
        Instruction::load_32(2, 1, 8),
        Instruction::store_32(1, 4, 2),
        Instruction::load_32(2, 1, 12),
        Instruction::store_32(1, 8, 2),
        Instruction::load_16(2, 10, TAG),
        Instruction::store_16(1, 12, 2),
        Instruction::load_16(2, 10, TAG + 2),
        Instruction::to_network_order_16(2),
        Instruction::store_16(1, 14, 2),
        Instruction::set(0, XDP_REDIRECT),
    ]
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
        Ok(Self { descriptor: load(name, TYPE_SCHED_CLS, 0, 0, 0, program)? })
    }
}

impl AsFd for TcxProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
