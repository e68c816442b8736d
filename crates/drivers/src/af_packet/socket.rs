//! Packet sockets and their options (packet(7), linux/if_packet.h, linux/filter.h).
#![allow(unsafe_code)]

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Option of packet(7) that some versions of the libc crate lack.
const PACKET_COPY_THRESH: libc::c_int = 7;
/// Offsets at which a filter finds the kernel's data about a packet (`SKF_AD_OFF` and its fields).
const PACKET_TYPE: u32 = 0xffff_f000 + 4;
const PACKET_MARK: u32 = 0xffff_f000 + 20;
/// Instructions of a filter: load a word, jump if equal, return.
const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// Maximum number of bytes of long frames that wait beside a ring.
const LONG_FRAME_BYTES: usize = 32 << 20;

/// The result of a C call that returns -1 on error.
fn checked(result: libc::c_int) -> Result<()> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// Sets an option of level `SOL_PACKET`.
pub(crate) fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> Result<()> {
    set_at(socket, libc::SOL_PACKET, option, value)
}

pub(crate) fn set_at<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> Result<()> {
    let (value, size) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads no more than `size` bytes of the value.
    checked(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, size) })
}

fn get<T>(socket: &OwnedFd, option: libc::c_int, value: &mut T) -> Result<()> {
    let mut size = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_mut(value).cast();
    // SAFETY: the kernel writes no more than `size` bytes to the value, which is made of integers.
    checked(unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, value, &raw mut size) })
}

/// A packet socket that receives nothing yet.
pub(crate) fn open() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?)
}

/// Binds `socket` to interface `ifindex`. From then on it receives frames of `protocol`, or none if that is 0.
pub(crate) fn bind(socket: &OwnedFd, ifindex: u32, protocol: libc::c_int) -> Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (protocol as u16).to_be(),
        sll_ifindex: ifindex.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address has the stated size.
    checked(unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), size) })
}

/// Sets the options that a ring of slots needs before it exists: its version, and room for frames too long for a slot.
pub(super) fn prepare_slots(socket: &OwnedFd) -> Result<()> {
    set(socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
    set(socket, PACKET_COPY_THRESH, &1i32)?;
    // The forced option exceeds the system's limit, if that is permitted.
    rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, LONG_FRAME_BYTES)
        .or_else(|_| rustix::net::sockopt::set_socket_recv_buffer_size(socket, LONG_FRAME_BYTES))?;
    prepare_ring(socket)
}

/// Sets the options that a ring of blocks needs before it exists.
pub(super) fn prepare_blocks(socket: &OwnedFd) -> Result<()> {
    set(socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as libc::c_int))?;
    prepare_ring(socket)
}

fn prepare_ring(socket: &OwnedFd) -> Result<()> {
    set(socket, libc::PACKET_VNET_HDR, &1i32)?;
    // The filter drops outgoing frames in any case. This option saves the work, from Linux 4.20 on.
    let _ = set(socket, libc::PACKET_IGNORE_OUTGOING, &1i32);
    Ok(())
}

/// Sets a filter that drops frames going out on the interface and frames with the mark.
pub(super) fn hear(socket: &OwnedFd, ignore_marked: Option<u32>) -> Result<()> {
    let outgoing = u32::from(libc::PACKET_OUTGOING);
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // Frames that are not received jump to the last instruction.
    let mut program = vec![
        instruction(LOAD, 0, 0, PACKET_TYPE),
        instruction(JUMP_EQUAL, if ignore_marked.is_some() { 3 } else { 1 }, 0, outgoing),
    ];
    if let Some(mark) = ignore_marked {
        program.extend([instruction(LOAD, 0, 0, PACKET_MARK), instruction(JUMP_EQUAL, 1, 0, mark)]);
    }
    program.extend([instruction(RETURN, 0, 0, u32::MAX), instruction(RETURN, 0, 0, 0)]);
    attach(socket, &mut program)
}

/// Sets a filter that drops all frames, until [`hear`] replaces it.
pub(super) fn hear_nothing(socket: &OwnedFd) -> Result<()> {
    attach(socket, &mut [libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: 0 }])
}

fn attach(socket: &OwnedFd, program: &mut [libc::sock_filter]) -> Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    set_at(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Joins group `group` of sockets that share the frames by `mode`, or creates a new group. Returns the group's number.
pub(super) fn join_fanout(socket: &OwnedFd, group: Option<u16>, mode: u32) -> Result<u16> {
    let argument = |flags: u32| u32::from(group.unwrap_or(0)) | (mode | flags) << 16;
    let unique = if group.is_none() { libc::PACKET_FANOUT_FLAG_UNIQUEID } else { 0 };
    // The filter drops outgoing frames in any case. This flag saves the work, in kernels that know it.
    let sparing = unique | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
    if set(socket, libc::PACKET_FANOUT, &argument(sparing)).is_err() {
        set(socket, libc::PACKET_FANOUT, &argument(unique))?;
    }
    let mut joined = 0u32;
    get(socket, libc::PACKET_FANOUT, &mut joined)?;
    Ok(joined as u16)
}

/// Number of frames dropped for lack of room in the ring since the last call.
pub(super) fn take_drops(socket: &OwnedFd) -> Result<u64> {
    let mut packets_and_drops = [0u32; 2];
    get(socket, libc::PACKET_STATISTICS, &mut packets_and_drops)?;
    let [_, drops] = packets_and_drops;
    Ok(u64::from(drops))
}

/// Requests hardware timestamps of the card.
pub(super) fn use_hardware_time(socket: &OwnedFd) -> Result<()> {
    set(socket, libc::PACKET_TIMESTAMP, &libc::SOF_TIMESTAMPING_RAW_HARDWARE)
}
