//! Generator and meter over any port: frames to send, their times, and measurement of arrivals.
//!
//! Everything here is arithmetic over bytes, counters and nanoseconds that the caller hands in: no port, no clock, no
//! thread. [`definition`] defines streams, [`frame_source`] makes the frames of a stream, and [`stream_mix`] those of
//! several streams. [`pacing`] computes how many frames are due, [`line_rate`] converts between frames per second and
//! bits per second, [`rate_meter`] turns counters into rates, [`sequence`] derives loss, duplication and reordering
//! from the frames' numbers, [`signature`] encodes these numbers in frames, and [`meter`] counts and measures all of
//! that per stream.
//!
//! Two lengths are never mixed: a *frame size* counts the FCS, as the RFCs do ([`line_rate::FrameSize`]); bytes in a
//! slot and in the ports' counters do not count it.

pub mod definition;
pub mod frame_size_mix;
pub mod frame_source;
pub mod header;
pub mod line_rate;
pub mod meter;
pub mod modifier;
pub mod pacing;
pub mod payload;
pub mod random;
pub mod rate_meter;
pub mod rewrite;
mod rotation;
pub mod sequence;
pub mod signature;
pub mod stream_mix;
