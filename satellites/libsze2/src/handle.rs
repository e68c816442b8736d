//! The content of a handle (`struct szedata`, opaque to programs).

use std::ffi::c_int;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringroad_sze2::ChannelState;
use ringroad_sze2::client::{CardClient, CardError, Wanted};
use ringroad_sze2::fault::ChannelFault;
use ringroad_sze2::memory::ChannelMemory;
use ringroad_sze2::reader::SegmentReader;
use ringroad_sze2::segment::align;
use ringroad_sze2::writer::SegmentWriter;

use crate::abi::{HandleCounters, LockedArea, MAX_CHANNELS, Sze2Dir};
use crate::failure::{CallError, NOT_NOW, of_card};

/// Room that `szedata_poll` waits for, bytes: enough for any segment.
const ANY_SEGMENT_BYTES: usize = align(u16::MAX as usize);

/// Function that selects the segments that `szedata_read_next` skips, by their metadata.
pub type SegmentFilter = unsafe extern "C" fn(u16, *mut u8) -> c_int;

/// A locked part of a channel's buffer, as at most two pieces. Programs hold the address of the first piece, so the
/// pieces stay in their box.
#[derive(Debug)]
pub struct AreaLock {
    /// The pieces. The address of the first identifies the lock.
    pub areas: Box<[LockedArea; 2]>,
    /// Channel and number of locked bytes; `None` if nothing is locked.
    pub held: Option<(u16, usize)>,
}

impl AreaLock {
    fn new() -> Self {
        Self { areas: Box::new([LockedArea::empty(), LockedArea::empty()]), held: None }
    }
}

/// A program's handle of a card.
#[derive(Debug)]
pub struct SzeHandle {
    /// The card; `None` in a handle without a card, which can only make and decode segments.
    card: Option<CardClient>,
    /// Mask of receive channels with faulty buffers, which are no longer read.
    pub faulty: u32,
    /// The counters of this handle.
    pub counters: HandleCounters,
    /// Lock of `szedata_rx_lock_data`.
    pub receive_lock: AreaLock,
    /// Lock of `szedata_tx_lock_data`.
    pub transmit_lock: AreaLock,
    /// Receive channel that `szedata_read_next` reads.
    pub reading: u16,
    /// Bytes that `szedata_read_next` has read there and has not reported to the card.
    pub read_bytes: u64,
    /// Filter of `szedata_read_next`, which selects the skipped segments.
    pub filter: Option<SegmentFilter>,
    /// Channel of which `szedata_rx_lock_data` last locked data.
    pub locked_last: u16,
    /// Frames taken without a copy and not given back, by channel.
    pub taken: [u32; MAX_CHANNELS],
    /// Frames reserved and not committed, by channel.
    pub reserved: [u32; MAX_CHANNELS],
    /// Bytes that `szedata_burst_write_next` collected, by channel.
    pub collected: [usize; MAX_CHANNELS],
    /// The last segment of `szedata_prepare_packet`.
    pub prepared: Vec<u8>,
}

impl SzeHandle {
    /// A handle without a card.
    #[must_use]
    pub fn dummy() -> Self {
        Self {
            card: None,
            faulty: 0,
            counters: HandleCounters::default(),
            receive_lock: AreaLock::new(),
            transmit_lock: AreaLock::new(),
            reading: 0,
            read_bytes: 0,
            filter: None,
            locked_last: 0,
            taken: [0; MAX_CHANNELS],
            reserved: [0; MAX_CHANNELS],
            collected: [0; MAX_CHANNELS],
            prepared: Vec::new(),
        }
    }

    /// Opens a handle of the card at `path`.
    ///
    /// # Errors
    /// There is no card at `path`, or it refuses.
    pub fn open(path: &Path) -> Result<Self, CallError> {
        let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let card = CardClient::open(path, program.trim_end()).map_err(of_card)?;
        Ok(Self { card: Some(card), ..Self::dummy() })
    }

    /// The card.
    ///
    /// # Errors
    /// There is no card.
    #[inline]
    pub fn card(&mut self) -> Result<&mut CardClient, CallError> {
        self.card.as_mut().ok_or_else(no_card)
    }

    /// Fails in a child of the process that opened the card.
    ///
    /// # Errors
    /// `EBADF`.
    #[inline]
    pub fn expect_own_process(&self) -> Result<(), CallError> {
        match &self.card {
            Some(card) if !card.is_own_process() => Err(other_process(card)),
            _ => Ok(()),
        }
    }

    /// Subscribes channels. Returns the masks of those that were free.
    ///
    /// # Errors
    /// No channel is named, or the card fails.
    pub fn subscribe(&mut self, receive: u32, transmit: u32) -> Result<(u32, u32), CallError> {
        if receive == 0 && transmit == 0 {
            return Err(CallError::invalid("no channel is named: both masks are 0"));
        }
        self.card()?.subscribe(receive, transmit).map_err(of_card)
    }

    /// Number of channels.
    ///
    /// # Errors
    /// There is no card.
    pub fn channels(&mut self, direction: Sze2Dir) -> Result<u16, CallError> {
        let info = self.card()?.info();
        Ok(match direction {
            Sze2Dir::Receive => info.receive_channels,
            Sze2Dir::Transmit => info.transmit_channels,
            Sze2Dir::Both => info.receive_channels.saturating_add(info.transmit_channels),
        })
    }

    /// Mask of the subscribed receive channels whose buffers are not faulty.
    ///
    /// # Errors
    /// No receive channel is subscribed, or all are faulty.
    pub fn readable(&mut self) -> Result<u32, CallError> {
        let faulty = self.faulty;
        let (subscribed, _) = self.card()?.subscribed();
        match subscribed & !faulty {
            0 if subscribed == 0 => Err(CallError::invalid("no receive channel is subscribed")),
            0 => Err(CallError::new(libc::EBADMSG, "the buffers of all receive channels are out of order")),
            channels => Ok(channels),
        }
    }

    /// The reader of a channel.
    ///
    /// # Errors
    /// The channel is faulty or not subscribed.
    #[inline]
    pub fn reader(&mut self, channel: u16) -> Result<&mut SegmentReader, CallError> {
        if self.faulty.checked_shr(channel.into()).unwrap_or(0) & 1 == 1 {
            return Err(out_of_order(channel));
        }
        self.card()?.reader(channel).ok_or_else(|| not_subscribed("receive", channel))
    }

    /// The writer of a channel.
    ///
    /// # Errors
    /// The channel is not subscribed.
    #[inline]
    pub fn writer(&mut self, channel: u16) -> Result<&mut SegmentWriter, CallError> {
        self.card()?.writer(channel).ok_or_else(|| not_subscribed("transmit", channel))
    }

    /// Memory of a channel.
    ///
    /// # Errors
    /// The channel is not subscribed or faulty, or `direction` is both.
    pub fn memory(&mut self, direction: Sze2Dir, channel: u16) -> Result<Arc<ChannelMemory>, CallError> {
        match direction {
            Sze2Dir::Receive => Ok(Arc::clone(self.reader(channel)?.memory())),
            Sze2Dir::Transmit => Ok(Arc::clone(self.writer(channel)?.memory())),
            Sze2Dir::Both => {
                Err(CallError::invalid("a channel is of one direction: SZE2_DIR_RX or SZE2_DIR_TX"))
            }
        }
    }

    /// Counts the fault of a receive buffer, and stops reading it.
    #[cold]
    pub fn stop_reading(&mut self, channel: u16, fault: ChannelFault) -> CallError {
        self.give_up(channel);
        of_card(CardError::Fault { channel, fault })
    }

    /// Stops reading a channel, and counts that.
    #[cold]
    pub fn give_up(&mut self, channel: u16) {
        self.faulty |= 1_u32.checked_shl(channel.into()).unwrap_or(0);
        self.counters.faults += 1;
    }

    /// Reason why a transmit channel has no room: the card may have stopped it.
    #[cold]
    pub fn no_room(&mut self, channel: u16) -> CallError {
        match self.card.as_ref().and_then(|card| card.transmit_state(channel)) {
            Some(ChannelState::Faulty) => of_card(CardError::Stopped(channel)),
            Some(ChannelState::Gone) => CallError::new(libc::ENODEV, "the card has gone"),
            _ => NOT_NOW,
        }
    }

    /// Counts the fault of a transmit buffer whose other side broke a rule.
    #[cold]
    pub fn transmit_fault(&mut self, channel: u16, fault: ChannelFault) -> CallError {
        self.counters.faults += 1;
        of_card(CardError::Fault { channel, fault })
    }

    /// Waits for data, or for room for any segment, in the channels of the requested directions. Returns whether there
    /// are data, and whether there is room.
    ///
    /// # Errors
    /// No such channel is subscribed, a buffer is faulty, or the card has gone.
    pub fn wait(
        &mut self,
        receive: bool,
        transmit: bool,
        timeout: Option<Duration>,
    ) -> Result<(bool, bool), CallError> {
        let receive = if receive { self.readable()? } else { 0 };
        let transmit = if transmit { self.card()?.subscribed().1 } else { 0 };
        if receive == 0 && transmit == 0 {
            return Err(CallError::invalid(
                "there is nothing to wait for: no channel of that direction is subscribed",
            ));
        }
        let wanted = Wanted { receive, transmit, transmit_bytes: ANY_SEGMENT_BYTES };
        match self.card()?.wait(&wanted, timeout) {
            Ok((data, room)) => Ok((data != 0, room != 0)),
            // The fault is in a receive channel, or in the transmit channel of the same number: another check shows in
            // which.
            Err(CardError::Fault { channel, fault }) => {
                match self.reader(channel).map(SegmentReader::available) {
                    Ok(Err(_)) => Err(self.stop_reading(channel, fault)),
                    _ => Err(self.transmit_fault(channel, fault)),
                }
            }
            Err(error) => Err(of_card(error)),
        }
    }

    /// Shows the card the collected segments, waits for their transmission, and ends all subscriptions. A child's copy
    /// of the handle does none of this.
    pub fn close(mut self) {
        self.flush();
        if let Some(card) = &mut self.card {
            // A card that has gone has already ended the subscriptions, and those of a parent go on.
            let _ = card.stop();
        }
    }
}

#[cold]
fn other_process(card: &CardClient) -> CallError {
    of_card(card.other_process())
}

#[cold]
fn no_card() -> CallError {
    CallError::new(libc::ENODEV, "the handle was opened without a card")
}

#[cold]
fn out_of_order(channel: u16) -> CallError {
    CallError::new(libc::EBADMSG, format!("the buffer of receive channel {channel} is out of order"))
}

#[cold]
fn not_subscribed(direction: &str, channel: u16) -> CallError {
    CallError::invalid(format!("{direction} channel {channel} is not subscribed"))
}

/// Timeout of `milliseconds`, where a negative number is endless.
#[must_use]
pub fn timeout_of(milliseconds: c_int) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}
