//! Ports: descriptions, changes and counters.

use crate::action::PortNo;
use crate::text_field::Text;
use crate::wire::{wire_enum, wire_flags, wire_struct};

wire_enum! {
    /// Change of a port.
    pub enum PortStatusReason: u8 {
        /// The port was added.
        Add = 0,
        /// The port was removed.
        Delete = 1,
        /// The port was changed.
        Modify = 2,
    } else REQUEST_BAD_LEN;
}

wire_flags! {
    /// Port settings requested by a controller.
    pub struct PortConfig: u32 {
        /// The port is switched off.
        PORT_DOWN = 1,
        /// Received packets are dropped.
        NO_RECV = 4,
        /// Packets are not sent to the port.
        NO_FWD = 32,
        /// Packets of the port do not go to the controller on a table miss.
        NO_PACKET_IN = 64,
    };

    /// State of a port.
    pub struct PortState: u32 {
        /// The port has no link.
        LINK_DOWN = 1,
        /// A protocol outside of OpenFlow blocks the port.
        BLOCKED = 2,
        /// The port is live: fast failover may choose it.
        LIVE = 4,
    };

    /// Rates and media of a link.
    pub struct PortFeatures: u32 {
        /// 10 Mb/s half duplex.
        HALF_10MB = 1,
        /// 10 Mb/s full duplex.
        FULL_10MB = 2,
        /// 100 Mb/s half duplex.
        HALF_100MB = 4,
        /// 100 Mb/s full duplex.
        FULL_100MB = 8,
        /// 1 Gb/s half duplex.
        HALF_1GB = 16,
        /// 1 Gb/s full duplex.
        FULL_1GB = 32,
        /// 10 Gb/s.
        FULL_10GB = 64,
        /// 40 Gb/s.
        FULL_40GB = 128,
        /// 100 Gb/s.
        FULL_100GB = 256,
        /// 1 Tb/s.
        FULL_1TB = 512,
        /// Another rate.
        OTHER = 1024,
        /// Copper.
        COPPER = 2048,
        /// Fibre.
        FIBER = 4096,
        /// Rates are negotiated.
        AUTONEG = 8192,
        /// Pause frames.
        PAUSE = 16384,
        /// Asymmetric pause frames.
        PAUSE_ASYM = 32768,
    };
}

wire_struct! {
    /// Description of a port.
    pub struct PortDesc {
        pub port: PortNo => 4,
        /// MAC address of the port.
        pub address: [u8; 6] => 2,
        /// Name of the port.
        pub name: Text<16>,
        /// Requested settings.
        pub config: PortConfig,
        pub state: PortState,
        pub current: PortFeatures,
        pub advertised: PortFeatures,
        pub supported: PortFeatures,
        /// Features that the link's peer advertises.
        pub peer: PortFeatures,
        /// Current rate, kbit/s.
        pub current_kbps: u32,
        /// Highest rate, kbit/s.
        pub max_kbps: u32,
    }

    /// A change of a port.
    pub struct PortMod {
        pub port: PortNo => 4,
        /// MAC address of the port, as a safeguard against mistakes.
        pub address: [u8; 6] => 2,
        /// Requested settings, in the bits of the mask.
        pub config: PortConfig,
        /// See `config`.
        pub mask: PortConfig,
        /// Features to advertise; none for no change.
        pub advertise: PortFeatures => 4,
    }

    /// A notification about a port.
    pub struct PortStatus {
        /// Change that happened.
        pub reason: PortStatusReason => 7,
        /// Description of the port as it is, or was.
        pub port: PortDesc,
    }

    /// Requests counters of one port, or of all with [`PortNo::ANY`].
    pub struct PortStatsRequest {
        pub port: PortNo => 4,
    }

    /// Counters of a port; all ones if a value is not counted.
    pub struct PortStats {
        pub port: PortNo => 4,
        /// Number of packets received.
        pub rx_packets: u64,
        /// Number of packets sent.
        pub tx_packets: u64,
        /// Number of bytes received.
        pub rx_bytes: u64,
        /// Number of bytes sent.
        pub tx_bytes: u64,
        /// Number of received packets that were dropped.
        pub rx_dropped: u64,
        /// Number of packets that were dropped before they were sent.
        pub tx_dropped: u64,
        /// Number of receive errors, with the kinds below.
        pub rx_errors: u64,
        /// Number of send errors.
        pub tx_errors: u64,
        /// Number of frame alignment errors.
        pub rx_frame_errors: u64,
        /// Number of packets lost by overruns.
        pub rx_overruns: u64,
        /// Number of checksum errors.
        pub rx_crc_errors: u64,
        pub collisions: u64,
        /// Age of the port, in whole seconds.
        pub duration_s: u32,
        /// Remainder of the age, in nanoseconds.
        pub duration_ns: u32,
    }
}
