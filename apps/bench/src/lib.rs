//! The side-by-side benchmark.
//!
//! Every figure of this crate is from a run in which Ringroad and a peer take turns on the same cores: a *round*
//! measures each contestant once, the next round in the opposite order, and the ratio is taken inside the round. So a
//! machine that slows down slows both contestants. Absolute figures are shown only beside the ratio.
//!
//! * [`plan`] defines the measurements: path, frame size, burst.
//! * [`contestant`] does the measurements: Ringroad in [`ours`], other programs in [`peers`].
//! * `turn` starts a contestant's programs and counts their frames; `veth` has the network interfaces of a turn.
//! * [`session`] is a whole run; [`runner`] takes turns; [`ratio`] is the arithmetic; [`report`] is the table and the
//!   JSON; [`chart`] draws it.
//! * [`sze2`] is another kind of comparison: DPDK's drivers over a capture card, by cycles per frame.
//! * [`cost`] counts instructions, without a comparison to peers.
//! * [`facts`] describes the machine; [`hugepages`] enlarges its pool of huge pages for a turn of a peer and restores
//!   it.
//!
//! Conventions: a rate is frames per second *received* at the end of the path, never frames offered; a frame size
//! includes the 4 bytes of FCS, as in RFC 2544, although software ports carry no FCS ([`plan::Point::slot_bytes`]); a
//! failed sample is *invalid* and has a reason; it never counts as zero.

pub mod chart;
pub mod chart_file;
pub mod contestant;
pub mod contestants;
pub mod cost;
mod error;
pub mod facts;
pub mod hugepages;
pub mod ours;
pub mod peers;
pub mod plan;
mod process;
pub mod ratio;
mod reading;
pub mod report;
pub mod runner;
pub mod session;
mod sockets;
mod stop;
pub mod sze2;
mod turn;
pub mod veth;
pub mod worker;

pub use contestant::{Contestant, ContestantFacts, CorePair, CpuCost, Sample};
pub use contestants::Contestants;
pub use error::BenchError;
pub use plan::{BenchPlan, FramePath, InterfaceWork, Mechanism, Point};
pub use report::{BenchReport, PointReport};
pub use runner::{ContestantOutcome, RunEvent, run};
pub use session::BenchSession;
pub use stop::StopFlag;
