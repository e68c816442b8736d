//! The control structures of netmap API 14 as programs lay them out (x86-64 Linux, little endian): the arguments of
//! `ioctl` on a device.
//!
//! Field names give the field's meaning; each structure names its counterpart in the published header. Sizes and
//! offsets are asserted at compile time. A structure is copied out of the program's memory as a whole, so that no field
//! is read twice.

use core::ffi::CStr;
use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use ringroad_control::netmap::PortSizes;
use ringroad_control::netmap::{Pool, Pools};
pub use ringroad_ring::layout::API_VERSION;

/// Largest API version that is accepted.
pub const NEWEST_API_VERSION: u32 = 15;

/// Request `NIOCGINFO`: legacy port information, [`LegacyRequest`].
pub const NIOCGINFO: u32 = 0xC03C_6991;
/// Request `NIOCREGIF`: legacy binding and switch commands, [`LegacyRequest`].
pub const NIOCREGIF: u32 = 0xC03C_6992;
/// Request `NIOCGINFO` of programs of 2012: [`LegacyRequest`], and a spare word.
pub const NIOCGINFO_2012: u32 = 0xC040_6991;
/// Request `NIOCREGIF` of programs of 2012: [`LegacyRequest`], and a spare word.
pub const NIOCREGIF_2012: u32 = 0xC040_6992;
/// Request `NIOCTXSYNC`: no argument.
pub const NIOCTXSYNC: u32 = 0x0000_6994;
/// Request `NIOCRXSYNC`: no argument.
pub const NIOCRXSYNC: u32 = 0x0000_6995;
/// Request `NIOCCONFIG`: for switch modules, [`ConfigRequest`].
pub const NIOCCONFIG: u32 = 0xC110_6996;
/// Request `NIOCCTRL`: all other requests, [`RequestHeader`].
pub const NIOCCTRL: u32 = 0xC058_6997;

/// Whether `request` is one of the above; the upper half may be a sign extension, and is ignored.
#[must_use]
pub fn is_device_request(request: u64) -> bool {
    matches!(
        request as u32,
        NIOCGINFO
            | NIOCREGIF
            | NIOCGINFO_2012
            | NIOCREGIF_2012
            | NIOCTXSYNC
            | NIOCRXSYNC
            | NIOCCONFIG
            | NIOCCTRL
    )
}

/// Types of requests (`NETMAP_REQ_*`).
pub mod request_type {
    /// Binds the device.
    pub const REGISTER: u16 = 1;
    /// Returns the sizes of a port.
    pub const PORT_INFO_GET: u16 = 2;
    /// Plugs an interface into a switch.
    pub const VALE_ATTACH: u16 = 3;
    /// Unplugs an interface from its switch.
    pub const VALE_DETACH: u16 = 4;
    /// Looks up or enumerates ports of switches.
    pub const VALE_LIST: u16 = 5;
    /// Sets the length of a port's virtio-net header.
    pub const PORT_HDR_SET: u16 = 6;
    /// Returns the length of a port's virtio-net header.
    pub const PORT_HDR_GET: u16 = 7;
    /// Makes a persistent port.
    pub const VALE_NEWIF: u16 = 8;
    /// Removes a persistent port.
    pub const VALE_DELIF: u16 = 9;
    /// Starts threads that poll an attached interface.
    pub const VALE_POLLING_ENABLE: u16 = 10;
    /// Ends the threads that poll an attached interface.
    pub const VALE_POLLING_DISABLE: u16 = 11;
    /// Returns the pools of a region.
    pub const POOLS_INFO_GET: u16 = 12;
    /// Runs the sync loop.
    pub const SYNC_KLOOP_START: u16 = 13;
    /// Stops the sync loop.
    pub const SYNC_KLOOP_STOP: u16 = 14;
    /// Exchanges indices in arrays of the program.
    pub const CSB_ENABLE: u16 = 15;
}

/// Type of options (`NETMAP_REQ_OPT_*`).
#[derive(Debug, Clone, Copy)]
pub struct OptionType {
    /// Number of the type in an option's header.
    pub number: u32,
    /// Name of the type in messages.
    pub name: &'static CStr,
    /// Size of the body; `None` if each option's header has the size.
    pub body_bytes: Option<usize>,
}

impl OptionType {
    /// Returns the type with this number.
    #[must_use]
    pub fn of(number: u32) -> Option<&'static Self> {
        OPTION_TYPES.iter().find(|known| known.number == number)
    }
}

/// Makes [`option_type`] and [`OPTION_TYPES`] from a row for each type of options.
macro_rules! options {
    ($($(#[$about:meta])* $constant:ident = $number:literal, $name:literal, $body_bytes:expr;)*) => {
        /// Types of options (`NETMAP_REQ_OPT_*`).
        pub mod option_type {
            $($(#[$about])* pub const $constant: u32 = $number;)*
        }

        /// All types of options.
        pub const OPTION_TYPES: [OptionType; [$($number),*].len()] = [$(
            OptionType { number: $number, name: $name, body_bytes: $body_bytes },
        )*];
    };
}

options! {
    /// Program's memory for the region, [`super::ExternalMemoryOption`].
    EXTMEM = 1, c"extmem", Some(size_of::<ExternalMemoryOption>());
    /// Pairs of eventfds after the header, [`super::EventPair`].
    SYNC_KLOOP_EVENTFDS = 2, c"sync-kloop-eventfds", None;
    /// Arrays for indices, [`super::CsbOption`].
    CSB = 3, c"csb", Some(size_of::<CsbOption>());
    /// Mode of the sync loop, [`super::LoopModeOption`].
    SYNC_KLOOP_MODE = 4, c"sync-kloop-mode", Some(size_of::<LoopModeOption>());
    /// Offsets in buffers, [`super::OffsetsOption`].
    OFFSETS = 5, c"offsets", Some(size_of::<OffsetsOption>());
}

/// Modes of a binding (`NR_REG_*`).
pub mod mode {
    /// All rings except the host's.
    pub const ALL_NIC: u32 = 1;
    /// Host rings.
    pub const SOFTWARE: u32 = 2;
    /// All rings, the host's included.
    pub const NIC_AND_SOFTWARE: u32 = 3;
    /// One pair of rings.
    pub const ONE_NIC: u32 = 4;
    /// Legacy: master end of a pipe.
    pub const PIPE_MASTER: u32 = 5;
    /// Legacy: slave end of a pipe.
    pub const PIPE_SLAVE: u32 = 6;
}

/// Flags of a binding that the translation of legacy requests sets.
pub mod register_flag {
    /// Flag `NR_DO_RX_POLL`.
    pub const DO_RX_POLL: u64 = 0x1_0000;
    /// Flag `NR_NO_TX_POLL`.
    pub const NO_TX_POLL: u64 = 0x2_0000;
    /// No flag of netmap: the program moves only `cur`, and reads `avail`, as in 2012.
    pub const OF_2012: u64 = 1 << 63;
}

/// Commands of legacy requests (`nr_cmd`).
pub mod legacy_command {
    /// Plain binding.
    pub const NONE: u16 = 0;
    /// `NETMAP_BDG_ATTACH`.
    pub const ATTACH: u16 = 1;
    /// `NETMAP_BDG_DETACH`.
    pub const DETACH: u16 = 2;
    /// `NETMAP_BDG_LIST`.
    pub const LIST: u16 = 4;
    /// `NETMAP_BDG_VNET_HDR`.
    pub const HEADER_SET: u16 = 5;
    /// `NETMAP_BDG_NEWIF`.
    pub const NEW_INTERFACE: u16 = 6;
    /// `NETMAP_BDG_DELIF`.
    pub const DELETE_INTERFACE: u16 = 7;
    /// `NETMAP_BDG_POLLING_ON`.
    pub const POLLING_ON: u16 = 10;
    /// `NETMAP_BDG_POLLING_OFF`.
    pub const POLLING_OFF: u16 = 11;
    /// `NETMAP_VNET_HDR_GET`.
    pub const HEADER_GET: u16 = 12;
}

/// Bits of a legacy request's `nr_ringid`.
pub mod legacy_ring {
    /// Number of the ring.
    pub const NUMBER: u16 = 0x0FFF;
    /// Polling sends no frames.
    pub const NO_TX_POLL: u16 = 0x1000;
    /// Host rings, if no mode is given.
    pub const SOFTWARE: u16 = 0x2000;
    /// One pair of rings, if no mode is given.
    pub const HARDWARE: u16 = 0x4000;
    /// Polling for sending also receives.
    pub const DO_RX_POLL: u16 = 0x8000;
}

/// Defines structures of an ABI by their sizes and the offsets of their fields.
#[macro_export]
macro_rules! structures {
    ($(
        $(#[$about:meta])*
        $name:ident: $size:literal { $($(#[$field_about:meta])* $field:ident @ $offset:literal: $type:ty,)+ }
    )+) => {$(
        $(#[$about])*
        #[repr(C)]
        pub struct $name {
            $($(#[$field_about])* pub $field: $type,)+
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(::core::mem::offset_of!($name, $field) == $offset);)+
        };
    )+};
}

/// Defines structures as [`structures`], with the traits that are needed to copy them.
macro_rules! copied_structures {
    ($($(#[$about:meta])* $name:ident: $size:literal $fields:tt)+) => {
        structures! {$(
            $(#[$about])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            $name: $size $fields
        )+}

        $(impl Default for $name {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        })+
    };
}

copied_structures! {
    /// Layout of `struct nmreq_header`: the argument of NIOCCTRL.
    RequestHeader: 88 {
        /// API version of the program.
        version @ 0: u16,
        /// Type, one of [`request_type`].
        request_type @ 2: u16,
        /// Reserved, must be 0.
        reserved @ 4: u32,
        /// Name of the port, NUL-terminated.
        name @ 8: [u8; 64],
        /// Address of the first option's header; 0: none.
        options @ 72: u64,
        /// Address of the body; 0 exactly if the type has no body.
        body @ 80: u64,
    }

    /// Layout of `struct nmreq_register`.
    RegisterBody: 56 {
        /// Out: offset of the `netmap_if`, bytes from the start of the mapping.
        offset @ 0: u64,
        /// Out: bytes to map.
        memory_bytes @ 8: u64,
        /// In: requested sizes, 0 for the default; out: sizes.
        sizes @ 16: PortSizes,
        mem_id @ 32: u16,
        /// In: number of the ring, for the modes that name one.
        ring_id @ 34: u16,
        /// Mode, one of [`mode`].
        mode @ 36: u32,
        /// Number of extra buffers.
        extra_buffers @ 40: u32,
        padding @ 44: u32,
        /// Flags: `NR_*`.
        flags @ 48: u64,
    }

    /// Layout of `struct nmreq_port_info_get`.
    PortInfoBody: 32 {
        /// Out: bytes to map.
        memory_bytes @ 0: u64,
        /// In and out: sizes, as in [`RegisterBody`].
        sizes @ 8: PortSizes,
        mem_id @ 24: u16,
        padding @ 26: [u16; 3],
    }

    /// Layout of `struct nmreq_vale_attach`.
    AttachBody: 64 {
        /// Binding of the interface.
        register @ 0: RegisterBody,
        /// Out: index on the switch.
        port_index @ 56: u32,
        padding @ 60: u32,
    }

    /// Layout of `struct nmreq_vale_detach`.
    DetachBody: 8 {
        /// Out: index that the port had.
        port_index @ 0: u32,
        padding @ 4: u32,
    }

    /// Layout of `struct nmreq_vale_list`.
    ListBody: 8 {
        /// Index of the switch.
        switch_index @ 0: u16,
        padding @ 2: u16,
        /// Index of the port.
        port_index @ 4: u32,
    }

    /// Layout of `struct nmreq_port_hdr`.
    PortHeaderBody: 8 {
        /// Length of the virtio-net header, bytes.
        bytes @ 0: u32,
        padding @ 4: u32,
    }

    /// Layout of `struct nmreq_vale_newif`.
    NewInterfaceBody: 16 {
        /// Slots per tx ring.
        tx_slots @ 0: u32,
        /// Slots per rx ring.
        rx_slots @ 4: u32,
        tx_rings @ 8: u16,
        rx_rings @ 10: u16,
        mem_id @ 12: u16,
        padding @ 14: u16,
    }

    /// Layout of `struct nmreq_vale_polling`.
    PollingBody: 16 {
        /// Mode: 1 for one processor, 2 for one per ring.
        mode @ 0: u32,
        /// First processor.
        first_cpu @ 4: u32,
        /// Number of processors.
        cpus @ 8: u32,
        padding @ 12: u32,
    }

    /// Layout of `struct nmreq_pools_info`.
    PoolsBody: 64 {
        /// Bytes to map.
        memory_bytes @ 0: u64,
        mem_id @ 8: u16,
        padding @ 10: [u16; 3],
        /// `netmap_if` objects.
        interfaces @ 16: Pool,
        /// Rings.
        rings @ 32: Pool,
        /// Buffers.
        buffers @ 48: Pool,
    }

    /// Layout of `struct nmreq_sync_kloop_start`.
    LoopStartBody: 8 {
        /// Sleep between rounds, µs.
        sleep_us @ 0: u32,
        padding @ 4: u32,
    }

    /// Layout of `struct nmreq_option`: an option's header; its body follows.
    OptionHeader: 24 {
        /// Address of the next option's header; 0: none.
        next @ 0: u64,
        /// Type, one of [`option_type`].
        option_type @ 8: u32,
        /// Out: 0 or an errno value.
        status @ 12: u32,
        /// Size of the option with this header, bytes, for types without a fixed size.
        bytes @ 16: u64,
    }

    /// Body of `struct nmreq_opt_extmem`.
    ExternalMemoryOption: 72 {
        /// Address of the program's memory.
        address @ 0: u64,
        /// Geometry. In: as requested; out: as granted.
        pools @ 8: PoolsBody,
    }

    /// One ring's eventfds in `struct nmreq_opt_sync_kloop_eventfds`.
    EventPair: 8 {
        /// Eventfd that wakes the loop.
        kick @ 0: i32,
        /// Eventfd that wakes the program.
        interrupt @ 4: i32,
    }

    /// Body of `struct nmreq_opt_csb`: addresses of arrays with 64 bytes per bound ring, tx rings first.
    CsbOption: 16 {
        /// Address of the array that the program writes.
        to_provider @ 0: u64,
        /// Address of the array that the provider writes.
        to_program @ 8: u64,
    }

    /// Body of `struct nmreq_opt_sync_kloop_mode`.
    LoopModeOption: 8 {
        /// Mode bits. 1: direct tx, 2: direct rx.
        mode @ 0: u32,
        padding @ 4: u32,
    }

    /// Body of `struct nmreq_opt_offsets`.
    OffsetsOption: 32 {
        /// Largest offset, bytes.
        max @ 0: u64,
        /// Offset in every slot at first, bytes.
        initial @ 8: u64,
        /// Number of bits of `slot.ptr` for the offset; 0 stands for 64.
        bits @ 16: u32,
        /// Requested alignment, bytes.
        tx_align @ 20: u32,
        /// Requested smallest gap between offsets, bytes.
        min_gap @ 24: u64,
    }

    /// Layout of `struct nmreq`: legacy requests.
    LegacyRequest: 60 {
        /// Name of the port, NUL-terminated.
        name @ 0: [u8; 16],
        /// API version of the program.
        version @ 16: u32,
        /// Out: offset of the `netmap_if`, bytes.
        offset @ 20: u32,
        /// Out: bytes to map.
        memory_bytes @ 24: u32,
        /// Slots per tx ring.
        tx_slots @ 28: u32,
        /// Slots per rx ring.
        rx_slots @ 32: u32,
        tx_rings @ 36: u16,
        rx_rings @ 38: u16,
        /// Number of a ring and bits of [`legacy_ring`].
        ring_id @ 40: u16,
        /// Command, one of [`legacy_command`].
        command @ 42: u16,
        /// Argument that depends on the command.
        argument_1 @ 44: u16,
        /// Memory id; depends on the command.
        argument_2 @ 46: u16,
        /// Number of extra buffers.
        argument_3 @ 48: u32,
        /// Mode in the low four bits, flags above.
        flags @ 52: u32,
        spare @ 56: u32,
    }

    /// Layout of `struct nm_ifreq`.
    ConfigRequest: 272 {
        /// Name of the switch.
        name @ 0: [u8; 16],
        /// Data that only the switch's module knows.
        data @ 16: [u8; 256],
    }
}

impl RequestHeader {
    /// A request of this type without name, options or body.
    #[must_use]
    pub fn new(request_type: u16) -> Self {
        Self { version: API_VERSION as u16, request_type, ..Self::default() }
    }

    /// Sets the name, cut if it is too long.
    pub fn set_name(&mut self, name: &[u8]) {
        self.name = name_field(name);
    }

    /// The name up to its NUL.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.name.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

/// `text` as a NUL-terminated name, cut if it is too long.
pub(crate) fn name_field<const BYTES: usize>(text: &[u8]) -> [u8; BYTES] {
    let mut field = [0; BYTES];
    for (to, from) in field.iter_mut().take(BYTES - 1).zip(text) {
        *to = *from;
    }
    field
}

impl From<Pools> for PoolsBody {
    fn from(Pools { memory_bytes, mem_id, interfaces, rings, buffers }: Pools) -> Self {
        Self { memory_bytes, mem_id, padding: [0; 3], interfaces, rings, buffers }
    }
}

impl From<PoolsBody> for Pools {
    fn from(PoolsBody { memory_bytes, mem_id, interfaces, rings, buffers, .. }: PoolsBody) -> Self {
        Self { memory_bytes, mem_id, interfaces, rings, buffers }
    }
}

/// Option in the layout of programs, such as `struct nmreq_opt_csb`: the header, then the body.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct ListedOption<Body> {
    /// Header, which every option has.
    pub header: OptionHeader,
    /// Body, which depends on the type.
    pub body: Body,
}

impl<Body> ListedOption<Body> {
    /// An option of this type, in no list.
    pub fn new(option_type: u32, body: Body) -> Self {
        Self { header: OptionHeader { option_type, ..OptionHeader::default() }, body }
    }
}
