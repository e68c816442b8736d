//! The datapath: takes batches from ports, decides, and delivers them. It knows the port contract and the switch's
//! decisions, and no driver.
//!
//! - [`engine`]: one worker's share of the ports and one step of its work; embedded programs step it themselves.
//! - [`forwarding`]: where the frames of a queue go (a switch, a wire, nowhere) and the switch's shared state.
//! - [`grouping`]: a batch's verdicts turned into one list of frames per destination.
//! - [`exchange`]: frames for a queue that another worker serves, handed over without a lock and without a copy.
//! - [`worker`]: an engine on a thread, with commands, spinning and sleep.
//! - [`fabric`]: which ports exist and where; the one place that changes all of the above.

pub mod engine;
pub mod exchange;
pub mod fabric;
pub mod forwarding;
pub mod grouping;
pub mod worker;
