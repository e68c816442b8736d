//! SZE2: the interface by which a streaming capture card and its programs pass frames, through one large circular
//! buffer per channel.
//!
//! - [`segment`]: a frame in a buffer, as published; [`segments`]: segments in memory; [`descriptors`]: table of the
//!   buffer's blocks for the card, as published.
//! - [`memory`]: a channel's memory; [`writer`] and [`reader`]: its two ends, for card and program, neither of which
//!   trusts the other ([`fault`]).
//! - [`card`]: rules for the frames that the card lets in, and for their channels.
//! - [`message`]: the messages between card and program over the card's socket; [`client`]: the whole program's side.
//!
//! The card itself is a driver (`drivers::sze2`): its network side is a port.

pub mod card;
pub mod client;
mod control_page;
pub mod descriptors;
pub mod fault;
pub mod memory;
pub mod message;
pub mod reader;
pub mod segment;
pub mod segments;
pub mod writer;

pub use control_page::ChannelState;
