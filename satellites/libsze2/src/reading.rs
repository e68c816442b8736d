//! Reads segments one by one, or bursts of frames in place.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringroad_ring::shared::SharedBytes;
use ringroad_sze2::client::CardError;
use ringroad_sze2::fault::ChannelFault;
use ringroad_sze2::memory::ChannelMemory;
use ringroad_sze2::reader::SegmentReader;
use ringroad_sze2::segments::SegmentRef;

use crate::abi::{MAX_CHANNELS, SzecardFrame};
use crate::environment::SZE2_RX_POLL_TIMEOUT;
use crate::failure::{CallError, NOT_NOW, of_card};
use crate::handle::{SzeHandle, timeout_of};

/// A segment as `szedata_read_next` returns it: from its header to the end of its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentText {
    /// Address of the first byte of the header.
    pub start: *mut u8,
    /// Length, bytes.
    pub length: u32,
}

impl SzeHandle {
    /// The next segment of any receive channel that `skips` does not skip by its metadata. Waits for at most
    /// `SZE2_RX_POLL_TIMEOUT`.
    ///
    /// # Errors
    /// No segment came, or a buffer is faulty.
    pub fn read_next(&mut self, skips: impl Fn(SharedBytes<'_>) -> bool) -> Result<SegmentText, CallError> {
        let now = self.read_next_noblock(&skips);
        if now != Err(NOT_NOW) {
            return now;
        }
        self.wait(true, false, timeout_of(SZE2_RX_POLL_TIMEOUT.load(Ordering::Relaxed)))?;
        self.read_next_noblock(&skips)
    }

    /// The next segment of any receive channel, without a wait.
    ///
    /// # Errors
    /// There is no segment, or a buffer is faulty.
    pub fn read_next_noblock(
        &mut self,
        skips: impl Fn(SharedBytes<'_>) -> bool,
    ) -> Result<SegmentText, CallError> {
        if let Some((channel, _)) = self.receive_lock.held {
            return Err(locked(channel));
        }
        let readable = self.readable()?;
        let first = self.reading;
        loop {
            if readable >> self.reading & 1 == 1 && self.taken_of(self.reading) == 0 {
                match self.read_of(self.reading, &skips) {
                    Ok(Some(segment)) => return Ok(segment),
                    Ok(None) => self.leave_empty_buffer(self.reading)?,
                    Err(fault) => return Err(self.stop_reading(self.reading, fault)),
                }
            }
            self.reading = (self.reading + 1) % MAX_CHANNELS as u16;
            if self.reading == first {
                return Err(NOT_NOW);
            }
        }
    }

    /// The next segment of a channel that is not skipped. Releases the segments read before. The card gets them back
    /// when they are an eighth of the buffer, or when there are no more segments.
    fn read_of(
        &mut self,
        channel: u16,
        skips: &impl Fn(SharedBytes<'_>) -> bool,
    ) -> Result<Option<SegmentText>, ChannelFault> {
        let Ok(reader) = self.reader(channel) else { return Ok(None) };
        reader.release_all();
        let most = reader.memory().buffer_bytes() / 8;
        let mut filtered = 0;
        let mut read_bytes = 0;
        let found = loop {
            let segment = match reader.take() {
                Ok(Some(segment)) => segment,
                Ok(None) => break Ok(None),
                Err(fault) => break Err(fault),
            };
            let whole = SegmentText { start: segment.whole().as_ptr(), length: segment.whole().len() as u32 };
            read_bytes += segment.occupied_bytes() as u64;
            if !skips(segment.metadata()) {
                break Ok(Some(whole));
            }
            filtered += 1;
            reader.release_all();
        };
        self.counters.filtered += filtered;
        self.read_bytes += read_bytes;
        let is_found = matches!(found, Ok(Some(_)));
        self.counters.received += u64::from(is_found);
        if !is_found || self.read_bytes > most {
            self.read_bytes = 0;
            if let Ok(card) = self.card() {
                card.publish_received(channel);
            }
        }
        found
    }

    /// Releases the last segment of [`Self::read_next`], before another function reads the channel.
    pub fn end_reading(&mut self, channel: u16) {
        if self.taken_of(channel) > 0 {
            return;
        }
        if let Ok(reader) = self.reader(channel) {
            reader.release_all();
        }
    }

    fn taken_of(&self, channel: u16) -> u32 {
        self.taken.get(usize::from(channel)).copied().unwrap_or(0)
    }

    /// Takes the next frames of a channel in place, as many as there are and `frames` has room for. Each is checked.
    /// The frames stay until they are given back.
    ///
    /// # Errors
    /// The channel is not subscribed, is locked, or is faulty with no frame left before the fault.
    #[inline]
    pub fn take(
        &mut self,
        channel: u16,
        frames: &mut [MaybeUninit<SzecardFrame>],
    ) -> Result<usize, CallError> {
        if self.receive_lock.held.is_some_and(|(held, _)| held == channel) {
            return Err(locked(channel));
        }
        let is_first = self.taken_of(channel) == 0;
        let reader = self.reader(channel)?;
        if is_first {
            // Taking frames releases the segments that were read in other ways.
            reader.release_all();
        }
        match reader.take_burst(frames, frame_of) {
            Ok(0) => {
                self.leave_empty_buffer(channel)?;
                Ok(0)
            }
            Ok(taken) => {
                self.count_taken(channel, taken as u32);
                Ok(taken)
            }
            Err(fault) => Err(self.stop_reading(channel, fault)),
        }
    }

    fn count_taken(&mut self, channel: u16, taken: u32) {
        if let Some(count) = self.taken.get_mut(usize::from(channel)) {
            *count += taken;
        }
        self.counters.received += u64::from(taken);
    }

    /// Gives back the first `count` of the frames taken from a channel. The others will be taken again.
    ///
    /// # Errors
    /// The channel is not subscribed, or is faulty.
    #[inline]
    pub fn give_back(&mut self, channel: u16, count: u32) -> Result<(), CallError> {
        let taken = self.taken_of(channel);
        let reader = self.reader(channel)?;
        if count >= taken {
            reader.release_all();
        } else if let Err(fault) = pass(reader, count) {
            return Err(self.stop_reading(channel, fault));
        }
        // The card needs no wake-up: it does not wait for room, but drops frames.
        let _ = reader.publish();
        self.counters.received -= u64::from(taken.saturating_sub(count));
        self.set_taken(channel, 0);
        Ok(())
    }
}

impl SzeHandle {
    /// Gives back the frames taken from a channel before the one with the metadata `first`. This one and those after
    /// it, `left` frames, stay taken; all are given back if `left` is 0.
    ///
    /// # Errors
    /// The channel is not subscribed, is faulty, or fewer frames are taken, or none of them is at `first`.
    #[inline]
    pub fn give_back_before(
        &mut self,
        channel: u16,
        first: Option<*const u8>,
        left: u32,
    ) -> Result<(), CallError> {
        let taken = self.taken_of(channel);
        let reader = self.reader(channel)?;
        if left == 0 {
            reader.release_all();
        } else if left > taken || !first.is_some_and(|first| reader.release_before(first)) {
            return Err(CallError::invalid(format!(
                "these {left} frames of channel {channel} are not taken"
            )));
        }
        // The card needs no wake-up: it does not wait for room, but drops frames.
        let _ = reader.publish();
        self.set_taken(channel, left);
        Ok(())
    }

    fn set_taken(&mut self, channel: u16, taken: u32) {
        if let Some(target) = self.taken.get_mut(usize::from(channel)) {
            *target = taken;
        }
    }

    /// The memory of a receive channel's buffer, which stays mapped as long as the result.
    ///
    /// # Errors
    /// The channel is not subscribed, or is faulty.
    pub fn hold(&mut self, channel: u16) -> Result<Arc<ChannelMemory>, CallError> {
        Ok(Arc::clone(self.reader(channel)?.memory()))
    }

    /// Gives a receive channel a new buffer. Frames that are left in the old one are taken first. All frames taken so
    /// far are given back.
    ///
    /// # Errors
    /// The channel is not running or is faulty, has a new buffer already, or the card refuses. If the new buffer cannot
    /// be mapped, the channel is faulty from then on.
    pub fn renew(&mut self, channel: u16) -> Result<(), CallError> {
        if self.receive_lock.held.is_some_and(|(held, _)| held == channel) {
            return Err(locked(channel));
        }
        self.reader(channel)?;
        let card = self.card()?;
        if card.is_renewed(channel) {
            return Err(CallError::new(
                libc::EBUSY,
                format!("receive channel {channel} has frames left in the buffer before this one"),
            ));
        }
        if let Err(error) = card.renew(channel) {
            if matches!(error, CardError::Memory(_)) {
                // The card fills the new buffer, which this process cannot map.
                self.give_up(channel);
            }
            return Err(of_card(error));
        }
        self.reader(channel)?.release_all();
        self.set_taken(channel, 0);
        Ok(())
    }

    /// Goes on to the new buffer of a renewed channel, if the old one is empty.
    ///
    /// # Errors
    /// A buffer is faulty.
    #[inline]
    pub fn leave_empty_buffer(&mut self, channel: u16) -> Result<(), CallError> {
        match self.card()?.leave_empty_buffer(channel) {
            Ok(false) => Ok(()),
            Ok(true) => {
                self.set_taken(channel, 0);
                Ok(())
            }
            Err(fault) => Err(self.stop_reading(channel, fault)),
        }
    }
}

/// Reads `count` segments again and gives them back.
fn pass(reader: &mut SegmentReader, count: u32) -> Result<(), ChannelFault> {
    reader.rewind();
    for _ in 0..count {
        reader.take()?;
    }
    reader.release_all();
    Ok(())
}

#[inline]
fn frame_of(segment: &SegmentRef<'_>) -> SzecardFrame {
    let (frame, metadata) = (segment.frame(), segment.metadata());
    SzecardFrame {
        data: frame.as_ptr(),
        metadata: metadata.as_ptr(),
        length: frame.len() as u32,
        metadata_length: metadata.len() as u32,
    }
}

/// Failure because data of the channel are locked.
#[cold]
pub fn locked(channel: u16) -> CallError {
    CallError::new(libc::EBUSY, format!("data of receive channel {channel} are locked"))
}
