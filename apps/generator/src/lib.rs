//! Generator, receiver, trials and scripts over any port.
//!
//! A [`TestPlan`] names ports and the loads between them. A [`TestSession`] opens the ports, gives each queue a thread
//! that sends and receives, starts and stops loads together, and ends with a [`SessionReport`]: the offered and the
//! intended load, the accuracy of the sender's timing, and for each stream the frames that arrived, were lost,
//! duplicated, late, reordered or damaged. A [`TrialPlan`] runs one trial of RFC 2544 that way and gives a verdict. A
//! script is a Lua program that makes and reads the frames itself.
//!
//! The pure parts (frames, signatures, schedules, counting) are in `ringroad-traffic`; threads, rings and the [`clock`]
//! are here.

pub mod affinity;
pub mod clock;
mod control;
mod error;
mod learning;
mod lineup;
mod open_port;
pub mod plan;
mod queue_task;
mod receiver;
pub mod report;
#[cfg(feature = "scripts")]
pub mod script;
mod sender;
pub mod series;
pub mod session;
mod shared;
mod totals;
pub mod trial;

pub use crate::clock::SessionClock;
pub use crate::error::SessionError;
pub use crate::learning::announce_receivers;
pub use crate::open_port::KeptPorts;
pub use crate::plan::{Load, PlannedPort, TestPlan, TestPlanError};
pub use crate::report::SessionReport;
pub use crate::session::{SessionOptions, SessionResult, TestSession, Threads};
pub use crate::shared::FrameCount;
pub use crate::trial::{TrialPlan, TrialReport, TrialVerdict};
