//! SZE2: how a streaming capture card and its programs pass frames, through one large circular buffer per channel.
//!
//! - [`segment`]: a frame in a buffer; [`segments`]: where they lie; [`descriptors`]: how the card finds the buffer's
//!   blocks; both bit by bit as published.
//! - [`memory`]: a channel's memory; [`writer`] and [`reader`]: its two ends, the same for card and program, neither of
//!   which trusts the other ([`fault`]).
//! - [`card`]: which frames the card lets in, and their channels.
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
