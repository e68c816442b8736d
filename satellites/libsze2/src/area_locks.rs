//! Locks parts of buffers for a program: data that it reads itself, or room that it fills itself.

use std::ptr;
use std::sync::Arc;

use ringroad_sze2::client::channels_of;
use ringroad_sze2::memory::ChannelMemory;
use ringroad_sze2::segment::align;

use crate::abi::LockedArea;
use crate::failure::{CallError, NOT_NOW};
use crate::handle::{AreaLock, SzeHandle};
use crate::reading::locked;
use crate::writing::busy;

impl AreaLock {
    /// Locks the `bytes` bytes of `memory` from `position` on. They are one piece, or two if they continue at the start
    /// of the buffer.
    fn hold(
        &mut self,
        channel: u16,
        memory: &ChannelMemory,
        position: u64,
        bytes: usize,
    ) -> *const LockedArea {
        let base = memory.data(0, 0).as_ptr();
        let first = bytes.min((memory.buffer_bytes() - position) as usize);
        let area = |start: *mut u8, len: usize, next| LockedArea {
            start: start.cast(),
            len: len as u32,
            area: channel as u8,
            next,
        };
        let [one, other] = self.areas.as_mut();
        *other = area(base, bytes - first, ptr::null());
        let next: *const LockedArea = if first < bytes { other } else { ptr::null() };
        *one = area(base.wrapping_add(position as usize), first, next);
        self.held = Some((channel, bytes));
        one
    }

    /// Ends the lock. Returns the channel and the number of bytes that were locked.
    fn end(&mut self, lock: *const LockedArea) -> Result<(u16, usize), CallError> {
        if !ptr::eq(lock, &raw const self.areas[0]) {
            return Err(CallError::invalid("the lock is not one of this handle"));
        }
        self.held.take().ok_or_else(|| CallError::invalid("nothing is locked"))
    }
}

impl SzeHandle {
    /// Locks all data of one of `channels`. The channels take turns.
    ///
    /// # Errors
    /// There are no data, data are locked already, or a buffer is faulty.
    pub fn lock_received(&mut self, channels: u32) -> Result<*const LockedArea, CallError> {
        if let Some((channel, _)) = self.receive_lock.held {
            return Err(locked(channel));
        }
        let channels = self.readable()? & channels;
        let last = self.locked_last;
        let turns =
            channels_of(channels).filter(|&c| c > last).chain(channels_of(channels).filter(|&c| c <= last));
        for channel in turns {
            if self.taken.get(usize::from(channel)).is_none_or(|&taken| taken > 0) {
                continue;
            }
            self.end_reading(channel);
            self.leave_empty_buffer(channel)?;
            let reader = self.reader(channel)?;
            let bytes = match reader.available() {
                Ok(0) => continue,
                Ok(bytes) => bytes,
                Err(fault) => return Err(self.stop_reading(channel, fault)),
            };
            let (memory, position) = (Arc::clone(reader.memory()), reader.position());
            self.locked_last = channel;
            return Ok(self.receive_lock.hold(channel, &memory, position, bytes));
        }
        Err(NOT_NOW)
    }

    /// Gives the locked data back to the card.
    ///
    /// # Errors
    /// The data are not locked.
    pub fn unlock_received(&mut self, lock: *const LockedArea) -> Result<(), CallError> {
        let (channel, bytes) = self.receive_lock.end(lock)?;
        let reader = self.reader(channel)?;
        reader.skip(bytes);
        reader.release_all();
        self.card()?.publish_received(channel);
        Ok(())
    }

    /// Locks room for up to `bytes` bytes.
    ///
    /// # Errors
    /// There is no room, or room is locked already.
    pub fn lock_transmit(&mut self, bytes: u32, channel: u16) -> Result<*const LockedArea, CallError> {
        if bytes == 0 {
            return Err(CallError::invalid("no room is requested: the size is 0"));
        }
        if let Some((held, _)) = self.transmit_lock.held {
            return Err(busy(held));
        }
        self.check_unreserved(channel)?;
        // Collected segments precede the room, so the card must see them first.
        self.flush_channel(channel);
        let wanted = align(bytes as usize);
        let writer = self.writer(channel)?;
        let room = match writer.room(wanted) {
            Ok(0) => return Err(self.no_room(channel)),
            Ok(room) => room.min(wanted),
            Err(fault) => return Err(self.transmit_fault(channel, fault)),
        };
        let (memory, position) = (Arc::clone(writer.memory()), writer.position());
        Ok(self.transmit_lock.hold(channel, &memory, position, room))
    }

    /// Shows the card the first `bytes` bytes of the locked room, which must be whole segments.
    ///
    /// # Errors
    /// The room is not locked, or is shorter than `bytes` and then stays locked.
    pub fn unlock_transmit(&mut self, lock: *const LockedArea, bytes: u32) -> Result<(), CallError> {
        let bytes = bytes as usize;
        if let Some((_, room)) = self.transmit_lock.held
            && (bytes > room || align(bytes) != bytes)
        {
            return Err(CallError::invalid(format!("{bytes} bytes: choose a multiple of 8, {room} at most")));
        }
        let (channel, _) = self.transmit_lock.end(lock)?;
        let writer = self.writer(channel)?;
        if let Err(fault) = writer.skip(bytes) {
            return Err(self.transmit_fault(channel, fault));
        }
        self.card()?.publish_transmitted(channel);
        Ok(())
    }
}
