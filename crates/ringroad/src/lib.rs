//! Ringroad: packet I/O around the kernel's network stack, in netmap's programming model.
//!
//! Packets enter and leave by a [`Port`], which is opened by name. It has one or more [`Queue`]s, each a transmit and a
//! receive ring of slots; a slot names a buffer in shared memory. The program owns the slots between head and tail,
//! fills or reads their buffers in place, and hands them over in batches with `sync`.
//!
//! ```
//! use ringroad::Embedded;
//!
//! let switch = Embedded::new();
//! let mut a = switch.open("vale0:a")?;
//! let mut b = switch.open("vale0:b")?;
//!
//! // Addressed to no station that the switch has learned, so it is flooded to every other port.
//! a.tx().send(&[0xFF; 60])?;
//! a.tx().sync()?;
//!
//! assert_eq!(b.rx().sync()?, 1);
//! let mut frame = [0; 60];
//! b.rx().frame(0).read(&mut frame);
//! assert_eq!(frame, [0xFF; 60]);
//! b.rx().release(1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same two ports in two programs: `Port::open("vale0:a")` attaches to the daemon, and starts one if none runs.
//!
//! | name | port |
//! |---|---|
//! | `vale0:a` | port `a` of the learning switch `vale0` |
//! | `x{1`, `x}1` | the two ends of a pipe between programs |
//! | `null:size=60` | frames without end, to measure overhead |
//! | `pcap:FILE` | the frames of a capture file |
//! | `virtio-user:PATH` | a virtio network card for the vhost-user switch that serves the socket |
//!
//! Threads: a `Port` splits into its queues ([`Port::into_queues`]), each of which may move to a thread of its own.
//! One thread on several ports: [`wait_any`]. Event loops: see [`Queue::arm`]; a queue and a port are
//! [`AsFd`](std::os::fd::AsFd).

#![deny(missing_docs)]
mod attach;
mod daemon_start;
mod embedded;
mod error;
mod port;
mod queue;
mod renewal;
mod ring;
mod stepped;
mod waiter;

pub use daemon_start::{DAEMON_VARIABLE, StartError, daemon_program, ensure_daemon, start_daemon};
pub use embedded::{Embedded, EmbeddedThread};
pub use error::{OpenError, PortError};
pub use port::{OpenOptions, Port, PortInfo, Reconnections};
pub use queue::{Interest, Queue};
pub use ring::{Forwarded, Mapping, RxFrame, RxRing, TxRing};
pub use waiter::{Wait, wait_any};

pub use ringroad_control as control;

/// Kinds of port, as their drivers describe them.
pub mod catalogue {
    pub use ringroad_drivers::catalogue::port_kind::{
        DeviceName, InterfaceUse, NameTarget, OpenedBy, PortKind, Spelling,
    };
    pub use ringroad_drivers::catalogue::port_name::COMMON_OPTIONS;
    pub use ringroad_drivers::catalogue::port_option::{OptionValues, PortOption, ValueKind};
    pub use ringroad_drivers::catalogue::switch_port::SWITCH_PORT_OPTIONS;
    pub use ringroad_drivers::catalogue::{NETNS, kinds};
}

/// Mechanisms that serve network interfaces.
pub mod interface {
    pub use ringroad_drivers::af_xdp::Obstacle;
    pub use ringroad_drivers::nic::{MechanismForecast, mechanisms};
}

pub use ringroad_drivers::catalogue::port_name::{PortBase, PortName, PortNameError};
pub use ringroad_port::clock::{Clock, monotonic_ns};
pub use ringroad_port::drop_cause::DropCause;
pub use ringroad_port::impairment;
pub use ringroad_ring::core_sharing::CoreSharing;
pub use ringroad_ring::fork::ProcessMark;
pub use ringroad_ring::layout::{Slot, slot_flags};
pub use ringroad_ring::program_window::FreeSlot;
pub use ringroad_ring::region::HugePages;
pub use ringroad_ring::shared::{SharedBytes, prefetch_read, prefetch_write};
pub use ringroad_ring::violation::RingViolation;

// Runs the code on the package's page as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
