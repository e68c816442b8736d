//! Writes segments: whole segments of the program, frames one by one or collected, and bursts that the program fills in
//! place.

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use ringroad_sze2::client::channels_of;
use ringroad_sze2::segment::{ALIGNMENT, SegmentHeader, append, parse};

use crate::environment::SZE2_BURST_WRITE_SIZE;
use crate::failure::{CallError, NOT_NOW};
use crate::handle::SzeHandle;

impl SzeHandle {
    /// Makes a segment, which stays until the next is made.
    ///
    /// # Errors
    /// The segment would be too long.
    pub fn prepare(&mut self, metadata: &[u8], frame: &[u8]) -> Result<&mut [u8], CallError> {
        self.prepared.clear();
        if !append(&mut self.prepared, metadata, frame) {
            return Err(too_long(metadata.len(), frame.len()));
        }
        Ok(&mut self.prepared)
    }

    /// Writes whole segments made by the program.
    ///
    /// # Errors
    /// There is no room for all segments, now or ever, or they are invalid.
    pub fn write_segments(&mut self, data: &[u8], channel: u16) -> Result<(), CallError> {
        self.check_unlocked(channel)?;
        let (mut rest, mut segments) = (data, 0);
        while parse(&mut rest).map_err(|error| CallError::invalid(error.to_string()))?.is_some() {
            segments += 1;
        }
        self.flush_channel(channel);
        let writer = self.writer(channel)?;
        let most = writer.memory().buffer_bytes() as usize - ALIGNMENT;
        if data.len() > most {
            let message =
                format!("{} bytes at once: the buffer of transmit channel {channel} has {most}", data.len());
            return Err(CallError::new(libc::EMSGSIZE, message));
        }
        let position = writer.position();
        match writer.skip(data.len()) {
            Ok(true) => writer.memory().data(position, data.len()).write(data),
            Ok(false) => return Err(self.no_room(channel)),
            Err(fault) => return Err(self.transmit_fault(channel, fault)),
        };
        self.counters.transmitted += segments;
        self.card()?.publish_transmitted(channel);
        Ok(())
    }

    /// Makes a segment in the buffer and shows it to the card.
    ///
    /// # Errors
    /// There is no room, now or ever.
    pub fn write_frame(&mut self, metadata: &[u8], frame: &[u8], channel: u16) -> Result<(), CallError> {
        self.put(metadata, frame, channel)?;
        self.flush_channel(channel);
        self.card()?.publish_transmitted(channel);
        Ok(())
    }

    /// Makes a segment in the buffer. The card sees the collected segments once they are `SZE2_BURST_WRITE_SIZE` bytes,
    /// or the buffer is full.
    ///
    /// # Errors
    /// There is no room, now or ever.
    pub fn collect_frame(&mut self, metadata: &[u8], frame: &[u8], channel: u16) -> Result<(), CallError> {
        let put = self.put(metadata, frame, channel);
        if put == Err(NOT_NOW) {
            self.flush_channel(channel);
        }
        let bytes = put?;
        let Some(collected) = self.collected.get_mut(usize::from(channel)) else { return Ok(()) };
        *collected += bytes;
        if *collected >= SZE2_BURST_WRITE_SIZE.load(Ordering::Relaxed) as usize {
            self.flush_channel(channel);
        }
        Ok(())
    }

    /// Writes a segment into the buffer that the card does not see yet. Returns the segment's bytes.
    fn put(&mut self, metadata: &[u8], frame: &[u8], channel: u16) -> Result<usize, CallError> {
        self.check_unlocked(channel)?;
        let Some(header) = SegmentHeader::new(metadata.len(), frame.len()) else {
            return Err(too_long(metadata.len(), frame.len()));
        };
        let writer = self.writer(channel)?;
        match writer.reserve(metadata, frame.len()) {
            Ok(Some(mut target)) => target.write(frame),
            Ok(None) => return Err(self.no_room(channel)),
            Err(fault) => return Err(self.transmit_fault(channel, fault)),
        };
        self.counters.transmitted += 1;
        Ok(header.occupied_bytes())
    }

    /// Shows the card the collected segments of a channel.
    pub fn flush_channel(&mut self, channel: u16) {
        if let Some(collected) = self.collected.get_mut(usize::from(channel))
            && std::mem::take(collected) > 0
            && let Ok(card) = self.card()
        {
            card.publish_transmitted(channel);
        }
    }

    /// Shows the card all collected segments.
    pub fn flush(&mut self) {
        channels_of(u32::MAX).for_each(|channel| self.flush_channel(channel));
    }

    /// Begins segments for frames of these lengths, as many as there is room for. Puts the address of each frame into
    /// `places`; the caller writes the frames there and then commits. Returns the number of segments.
    ///
    /// # Errors
    /// There is no room for the first segment, now or ever.
    #[inline]
    pub fn reserve(
        &mut self,
        channel: u16,
        lengths: &[u32],
        segments: &mut [MaybeUninit<*mut u8>],
    ) -> Result<usize, CallError> {
        self.check_lock(channel)?;
        // Collected segments precede the reserved ones, and are whole.
        self.flush_channel(channel);
        let writer = self.writer(channel)?;
        match (writer.reserve_burst(lengths, segments, |frame| frame.as_ptr()), lengths.first()) {
            (Ok(0), Some(&length)) if SegmentHeader::new(0, length as usize).is_none() => {
                Err(too_long(0, length as usize))
            }
            (Ok(0), Some(_)) => Err(self.no_room(channel)),
            (Ok(reserved), _) => {
                if let Some(count) = self.reserved.get_mut(usize::from(channel)) {
                    *count += reserved as u32;
                }
                Ok(reserved)
            }
            (Err(fault), _) => Err(self.transmit_fault(channel, fault)),
        }
    }

    /// Shows the card all reserved segments.
    ///
    /// # Errors
    /// The channel is not subscribed.
    #[inline]
    pub fn commit(&mut self, channel: u16) -> Result<(), CallError> {
        self.writer(channel)?;
        if let Some(count) = self.reserved.get_mut(usize::from(channel)) {
            self.counters.transmitted += u64::from(std::mem::take(count));
        }
        self.card()?.publish_transmitted(channel);
        Ok(())
    }

    fn check_unlocked(&self, channel: u16) -> Result<(), CallError> {
        self.check_lock(channel)?;
        self.check_unreserved(channel)
    }

    #[inline]
    fn check_lock(&self, channel: u16) -> Result<(), CallError> {
        match self.transmit_lock.held {
            Some((held, _)) if held == channel => Err(busy(channel)),
            _ => Ok(()),
        }
    }

    /// Checks that no segments are reserved. They are not filled yet, so they must be committed before others are
    /// written.
    pub fn check_unreserved(&self, channel: u16) -> Result<(), CallError> {
        match self.reserved.get(usize::from(channel)) {
            Some(&count) if count > 0 => Err(busy(channel)),
            _ => Ok(()),
        }
    }
}

/// Failure because room of the channel is locked or reserved.
#[cold]
pub fn busy(channel: u16) -> CallError {
    CallError::new(libc::EBUSY, format!("room of transmit channel {channel} is locked or reserved"))
}

#[cold]
fn too_long(metadata_bytes: usize, frame_bytes: usize) -> CallError {
    let message = format!(
        "a frame of {frame_bytes} bytes with {metadata_bytes} bytes of metadata: a segment has 65535 at most"
    );
    CallError::new(libc::EMSGSIZE, message)
}
