//! Generator and meter over any port: what is sent, when, and what arrived.
//!
//! Everything here is arithmetic over bytes, counters and nanoseconds that the caller hands in: no port, no clock, no
//! thread. [`definition`] says what streams are, [`frame_source`] makes their frames, [`stream_mix`] those of several
//! streams. [`pacing`] says how many are due, [`line_rate`] converts between frames per
//! second and bits per second, [`rate_meter`] turns counters into rates, [`sequence`] tells loss, duplication and
//! reordering from the numbers that the frames carry, [`signature`] is how they carry them, [`meter`] counts and
//! measures all of that per stream, [`mac_address`] is how people write addresses.
//!
//! Two lengths are never mixed: a *frame size* counts the FCS, as the RFCs do ([`line_rate::FrameSize`]); the bytes in
//! a slot and in the ports' counters do not.

pub mod definition;
pub mod frame_size_mix;
pub mod frame_source;
pub mod header;
pub mod line_rate;
pub mod mac_address;
pub mod meter;
pub mod modifier;
mod ones_complement;
pub mod pacing;
pub mod payload;
pub mod random;
pub mod rate_meter;
pub mod rewrite;
mod rotation;
pub mod sequence;
pub mod signature;
pub mod stream_mix;
