//! Ports: what they are, their changes and counters.

use crate::action::PortNo;
use crate::text_field::Text;
use crate::wire::{wire_enum, wire_flags, wire_struct};

wire_enum! {
    /// What happened to a port.
    pub enum PortStatusReason: u8 {
        /// It came.
        Add = 0,
        /// It went.
        Delete = 1,
        /// It changed.
        Modify = 2,
    } else REQUEST_BAD_LEN;
}

wire_flags! {
    /// Port settings requested by a controller.
    pub struct PortConfig: u32 {
        /// It is switched off.
        PORT_DOWN = 1,
        /// What it receives is dropped.
        NO_RECV = 4,
        /// Nothing is sent to it.
        NO_FWD = 32,
        /// Table misses of its packets do not go to the controller.
        NO_PACKET_IN = 64,
    };

    /// How a port is.
    pub struct PortState: u32 {
        /// It has no link.
        LINK_DOWN = 1,
        /// A protocol outside of OpenFlow blocks it.
        BLOCKED = 2,
        /// Fast failover may choose it.
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
    /// A port.
    pub struct PortDesc {
        /// Its number.
        pub port: PortNo => 4,
        /// Its MAC address.
        pub address: [u8; 6] => 2,
        /// Its name.
        pub name: Text<16>,
        /// Requested settings.
        pub config: PortConfig,
        /// How it is.
        pub state: PortState,
        /// What it does now.
        pub current: PortFeatures,
        /// What it advertises.
        pub advertised: PortFeatures,
        /// What it could do.
        pub supported: PortFeatures,
        /// What its peer advertises.
        pub peer: PortFeatures,
        /// Its rate in kb/s.
        pub current_kbps: u32,
        /// Its highest rate in kb/s.
        pub max_kbps: u32,
    }

    /// A change of a port.
    pub struct PortMod {
        /// Its number.
        pub port: PortNo => 4,
        /// Its MAC address, against mistakes.
        pub address: [u8; 6] => 2,
        /// Requested settings, where the mask is one.
        pub config: PortConfig,
        /// See `config`.
        pub mask: PortConfig,
        /// What it should advertise; none for no change.
        pub advertise: PortFeatures => 4,
    }

    /// What a [`PortStatus`] begins with is its reason.
    pub struct PortStatus {
        /// What happened.
        pub reason: PortStatusReason => 7,
        /// The port as it is, or was.
        pub port: PortDesc,
    }

    /// Requests counters of one port, or of all with [`PortNo::ANY`].
    pub struct PortStatsRequest {
        /// The port.
        pub port: PortNo => 4,
    }

    /// The counters of a port; all ones is for what is not counted.
    pub struct PortStats {
        /// The port.
        pub port: PortNo => 4,
        /// Packets received.
        pub rx_packets: u64,
        /// Packets sent.
        pub tx_packets: u64,
        /// Bytes received.
        pub rx_bytes: u64,
        /// Bytes sent.
        pub tx_bytes: u64,
        /// Packets dropped on the way in.
        pub rx_dropped: u64,
        /// Packets dropped on the way out.
        pub tx_dropped: u64,
        /// Errors on the way in, those below among them.
        pub rx_errors: u64,
        /// Errors on the way out.
        pub tx_errors: u64,
        /// Errors of alignment.
        pub rx_frame_errors: u64,
        /// Overruns.
        pub rx_overruns: u64,
        /// Errors of checksums.
        pub rx_crc_errors: u64,
        /// Collisions.
        pub collisions: u64,
        /// How long the port is there, in whole seconds.
        pub duration_s: u32,
        /// And nanoseconds beyond.
        pub duration_ns: u32,
    }
}
