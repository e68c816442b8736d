//! The datapath: takes batches from ports, has plans made of them, and executes these. It knows the contracts of ports and of plans, and
//! neither a driver nor why a frame goes where it goes.
//!
//! - [`engine`]: one worker's share of the ports and one step of its work; embedded programs step it themselves.
//! - [`engine_queue`]: a queue in an engine, with its account and the slots that others still borrow.
//! - [`forwarding`]: where the frames of a queue go (a switch, a wire, nowhere) and the map from a switch's ports to queues.
//! - `execution`: a plan executed; `copies`: one in which frames leave as several copies or with other heads.
//! - [`grouping`]: a batch's fates turned into one list of frames per destination.
//! - [`exchange`]: frames for a queue that another worker serves, handed over without a lock and without a copy.
//! - [`finishing`]: frames that their sender left to a card, finished for ports that take only finished ones.
//! - [`rota`]: whose turn it is, so that nobody's queues take the time of others'.
//! - [`worker`]: an engine on a thread, with commands, spinning and sleep.
//! - [`fabric`]: which ports exist and where; the one place that changes all of the above.

mod copies;
pub mod engine;
pub mod engine_queue;
pub mod exchange;
mod execution;
pub mod fabric;
pub mod finishing;
pub mod forwarding;
pub mod grouping;
pub mod rota;
pub mod worker;
