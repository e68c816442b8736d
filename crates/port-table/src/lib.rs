//! The ports of one datapath: on switches, of devices that programs have open, and pipes. The daemon and embedded mode
//! keep one [`table::Table`] each, and it alone changes which ports there are.
//!
//! The table lays ports out, joins them to the [`Fabric`](ringroad_datapath::fabric::Fabric) and takes them away. Who may
//! have a port, and what it costs, its callers decide before they ask.
//!
//! [`table`]: opening, attaching, closing; [`entry`]: what is kept of each port; [`opening`]: what a port is opened with, and what
//! its program is given; [`error`].

pub mod entry;
pub mod error;
pub mod opening;
pub mod table;
#[cfg(test)]
mod tests;
