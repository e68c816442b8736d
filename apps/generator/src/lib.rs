//! Generator, receiver, trials and scripts over any port.
//!
//! A [`Plan`] names ports and the loads between them. A [`Session`] opens the ports, gives each queue a thread that
//! sends and receives, starts and stops loads together, and ends with a [`Report`]: the load offered beside the one
//! intended, what the sender's timing was worth, and for each stream what came, was lost, came twice, late, out of
//! order or damaged. A [`TrialPlan`] runs one trial of RFC 2544 that way and gives a verdict. A [`script`] is a Lua
//! program that makes and reads the frames itself.
//!
//! What is pure in this (frames, signatures, schedules, counting) is in `ringroad-traffic`; here are threads, rings and
//! the [`clock`].

mod account;
pub mod affinity;
pub mod clock;
mod control;
mod error;
mod lineup;
mod open_port;
pub mod plan;
mod queue_task;
mod receiver;
pub mod report;
pub mod script;
mod sender;
pub mod series;
pub mod session;
mod shared;
pub mod trial;

pub use crate::clock::Clock;
pub use crate::error::SessionError;
pub use crate::open_port::KeptPorts;
pub use crate::plan::{Load, Plan, PlanError, PlannedPort};
pub use crate::report::Report;
pub use crate::session::{Ended, Session, SessionOptions, Threads};
pub use crate::shared::FrameCount;
pub use crate::trial::{TrialPlan, TrialReport, Verdict};
