//! The datapath: takes batches from ports, has a plan made of each, and executes the plan. The datapath knows the
//! contracts of ports and of plans, but no driver, and no reason for a frame's destination.
//!
//! - [`engine`]: one worker's share of the ports and one step of its work; embedded programs step it themselves.
//! - [`forwarding`]: the destination of a queue's frames (a switch, a wire, nowhere), and the map from a switch's ports
//!   to queues.
//! - `execution`: executes plans; `copies`: executes plans in which frames leave as several copies or with rewritten
//!   headers.
//! - [`grouping`]: a batch's outcomes turned into one list of frames per destination.
//! - [`exchange`]: frames for a queue that another worker serves, handed over without a lock and without a copy.
//! - [`finishing`]: frames that their sender left to a card, finished for ports that take only finished ones.
//! - [`scheduler`]: the order of turns, so that no owner's queues take the time of others.
//! - [`worker`]: an engine on a thread, with commands, spinning and sleep.
//! - [`fabric`]: the ports and their indexes; only the fabric changes all of the above.

pub mod busy_time;
mod copies;
pub mod engine;
pub mod engine_queue;
pub mod exchange;
mod execution;
pub mod fabric;
pub mod finishing;
pub mod forwarding;
pub mod grouping;
pub mod scheduler;
pub mod worker;
