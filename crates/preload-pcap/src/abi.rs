//! Structures and numbers of libpcap, as `pcap/pcap.h` and `pcap/bpf.h` define them.

use libc::{c_char, c_int, c_uint, sockaddr, timeval};

/// A `pcap_t`, opaque to programs: for Ringroad's handles the address of an entry of the registry.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Pcap {
    _private: [u8; 0],
}

/// A `pcap_dumper_t`, opaque here.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Dumper {
    _private: [u8; 0],
}

/// `struct pcap_pkthdr`: the header of each frame.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct PacketHeader {
    /// Arrival time; `tv_usec` holds nanoseconds if these were requested.
    pub(crate) stamp: timeval,
    /// Number of bytes that can be read.
    pub(crate) captured: u32,
    /// Length of the frame, bytes.
    pub(crate) len: u32,
}

/// `pcap_handler`.
pub(crate) type Callback = unsafe extern "C" fn(*mut u8, *const PacketHeader, *const u8);

/// `struct bpf_insn`, which Linux has under another name.
pub(crate) use libc::sock_filter as Instruction;

/// `struct bpf_program`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct BpfProgram {
    pub(crate) len: c_uint,
    pub(crate) instructions: *mut Instruction,
}

/// `struct pcap_stat`, as on systems other than Windows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Statistics {
    /// Number of frames that passed the filter.
    pub(crate) received: c_uint,
    /// Number of frames dropped for lack of room.
    pub(crate) dropped: c_uint,
    /// Number of frames dropped by the interface.
    pub(crate) interface_dropped: c_uint,
}

/// `struct pcap_if`: a device of a listing.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct PcapIf {
    pub(crate) next: *mut PcapIf,
    pub(crate) name: *mut c_char,
    pub(crate) description: *mut c_char,
    pub(crate) addresses: *mut DeviceAddress,
    pub(crate) flags: u32,
}

/// `struct pcap_addr`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct DeviceAddress {
    pub(crate) next: *mut DeviceAddress,
    pub(crate) address: *mut sockaddr,
    pub(crate) netmask: *mut sockaddr,
    pub(crate) broadcast: *mut sockaddr,
    pub(crate) destination: *mut sockaddr,
}

/// Bytes of a caller's buffer for an error text, with its NUL.
pub(crate) const ERROR_TEXT_BYTES: usize = 256;
/// Maximum number of captured bytes of a frame, as in libpcap.
pub(crate) const MOST_SNAPLEN: c_int = 262_144;
/// Link type Ethernet, the only one here.
pub(crate) const DLT_EN10MB: c_int = 1;
/// Version of the capture files that libpcap writes, which live handles report too.
pub(crate) const FILE_VERSION: (c_int, c_int) = (2, 4);

/// Error without a number of its own; the handle has the text.
pub(crate) const PCAP_ERROR: c_int = -1;
/// `pcap_breakloop` ended the loop.
pub(crate) const PCAP_ERROR_BREAK: c_int = -2;
/// The handle is not activated yet.
pub(crate) const PCAP_ERROR_NOT_ACTIVATED: c_int = -3;
/// The handle is activated already.
pub(crate) const PCAP_ERROR_ACTIVATED: c_int = -4;
/// The device does not exist.
pub(crate) const PCAP_ERROR_NO_SUCH_DEVICE: c_int = -5;
/// The device has no monitor mode.
pub(crate) const PCAP_ERROR_RFMON_NOTSUP: c_int = -6;
/// This user has no permission.
pub(crate) const PCAP_ERROR_PERM_DENIED: c_int = -8;
/// Time stamps of that precision are not available.
pub(crate) const PCAP_ERROR_TSTAMP_PRECISION_NOTSUP: c_int = -12;
/// Time stamps of that type are not available: a warning.
pub(crate) const PCAP_WARNING_TSTAMP_TYPE_NOTSUP: c_int = 3;

/// Time stamps come from this machine.
pub(crate) const PCAP_TSTAMP_HOST: c_int = 0;
/// Precision of a microsecond.
pub(crate) const PCAP_TSTAMP_PRECISION_MICRO: c_int = 0;
/// Precision of a nanosecond.
pub(crate) const PCAP_TSTAMP_PRECISION_NANO: c_int = 1;

/// Direction for `pcap_setdirection`: both.
pub(crate) const PCAP_D_INOUT: c_int = 0;
/// Direction for `pcap_setdirection`: received frames only.
pub(crate) const PCAP_D_IN: c_int = 1;

/// Flag of a listed device: it is up.
pub(crate) const PCAP_IF_UP: u32 = 0x2;
/// Flag of a listed device: it is running.
pub(crate) const PCAP_IF_RUNNING: u32 = 0x4;
/// Flag of a listed device: it has no connection status.
pub(crate) const PCAP_IF_CONNECTION_STATUS_NOT_APPLICABLE: u32 = 0x30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_headers() {
        assert_eq!(size_of::<PacketHeader>(), 24);
        assert_eq!(size_of::<Instruction>(), 8);
        assert_eq!(size_of::<BpfProgram>(), 16);
        assert_eq!(size_of::<Statistics>(), 12);
        assert_eq!(size_of::<PcapIf>(), 40);
        assert_eq!(size_of::<DeviceAddress>(), 40);
    }
}
