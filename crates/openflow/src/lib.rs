//! OpenFlow 1.3 (1.3.5) as bytes and as text: the messages between a controller, or a tool, and a switch.
//!
//! A controller or a tool sends a [`ControllerMessage`], a switch a [`SwitchMessage`]. Both are read from whole
//! messages and appended to bytes. [`text`] has flows in the syntax of Open vSwitch's `ovs-ofctl`.
//! There is no input or output here, no clock and no state: the owner of a connection splits it into messages
//! ([`first_message`]), and joins the parts of a multipart request.
//!
//! Bytes and text come from untrusted peers. For any input, reading ends without a panic, and its time and memory are
//! bounded by the input's length. An invalid message results in an [`ErrorCode`], which a switch sends back
//! ([`ErrorMessage::about`]). Padding is ignored. Extra bytes at the end of a message, or of a part of it, are refused.

#![forbid(unsafe_code)]

pub mod action;
pub mod error;
pub mod instruction;
pub mod message;
pub mod oxm;
pub mod text;
pub mod text_field;
mod wire;

#[cfg(test)]
mod tests;

pub use action::{Action, Effect, PortNo, WHOLE_PACKET};
pub use error::{ErrorCode, TooLong};
pub use instruction::Instructions;
pub use message::{ControllerMessage, ErrorMessage, MessageHeader, SwitchMessage, first_message};
pub use oxm::{FieldMatch, FieldValue, Match, OxmField};
pub use text_field::Text;

/// Numbers of groups.
pub mod group_id {
    /// Highest number that a group can have.
    pub const MAX: u32 = 0xffff_ff00;
    /// All groups.
    pub const ALL: u32 = 0xffff_fffc;
    /// Number for any group, in requests that choose flows.
    pub const ANY: u32 = 0xffff_ffff;
}

/// Numbers of flow tables.
pub mod table_id {
    /// Highest number that a table can have.
    pub const MAX: u8 = 0xfe;
    /// All tables.
    pub const ALL: u8 = 0xff;
}

/// Numbers of meters.
pub mod meter_id {
    /// Highest number of a meter that flow entries can use; the lowest is 1.
    pub const MAX: u32 = 0xffff_0000;
    /// Virtual meter of packets on the slow path.
    pub const SLOWPATH: u32 = 0xffff_fffd;
    /// Virtual meter of packets to the controllers.
    pub const CONTROLLER: u32 = 0xffff_fffe;
    /// The virtual meters. No flow entry uses them: each applies to all packets of its kind.
    pub const VIRTUAL: [u32; 2] = [SLOWPATH, CONTROLLER];
    /// All meters.
    pub const ALL: u32 = 0xffff_ffff;
}
