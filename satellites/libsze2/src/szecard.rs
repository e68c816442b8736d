//! Functions beyond the published ones (`szecard_*`): bursts without copies, and the card's counters and settings. The
//! header has the contract of each.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::mem::MaybeUninit;
use std::slice;
use std::sync::Arc;

use ringroad_sze2::card::counters::RuleCounters;
use ringroad_sze2::card::settings::{AddressCheck, IbufSettings};
use ringroad_sze2::memory::ChannelMemory;
use ringroad_sze2::message::{CardRequest, CardStatus, ChannelStatus};

use crate::abi::{
    HandleCounters, MAX_ADDRESSES, MAX_CHANNELS, SzecardChannel, SzecardDesign, SzecardFrame, SzecardIbuf,
    SzecardInfo, SzecardStatus,
};
use crate::failure::{CallError, answer, last_message, number_of, of_card, status_of};
use crate::handle::SzeHandle;
use crate::szedata::{address_of, exports, handle, put};

/// `szecard_error`.
#[unsafe(no_mangle)]
pub extern "C" fn szecard_error() -> *const c_char {
    last_message()
}

/// `szecard_end_hold`.
///
/// # Safety
/// `hold` is NULL or a result of [`szecard_hold`] that was not ended, and no frame of its buffer is used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn szecard_end_hold(hold: *const ChannelMemory) {
    status_of(|| {
        if !hold.is_null() {
            // SAFETY: the pointer is not NULL, so `Arc::into_raw` made it, and it is ended for the first time.
            drop(unsafe { Arc::from_raw(hold) });
        }
        Ok(())
    });
}

exports! {
    /// `szecard_take`.
    number_of fn szecard_take(sze, channel: c_uint, frames: *mut SzecardFrame, count: c_uint) -> c_int {
        if frames.is_null() {
            return Err(CallError::null("the array of frames"));
        }
        let count = count.min(i32::MAX as c_uint) as usize;
        // SAFETY: the pointer is not NULL, so it has room for `count` frames. None is read.
        let frames = unsafe { slice::from_raw_parts_mut(frames.cast::<MaybeUninit<SzecardFrame>>(), count) };
        Ok(sze.take(number(channel)?, frames)? as c_int)
    }

    /// `szecard_give_back`.
    status_of fn szecard_give_back(sze, channel: c_uint, count: c_uint) -> c_int {
        sze.give_back(number(channel)?, count)
    }

    /// `szecard_give_back_before`.
    status_of fn szecard_give_back_before(
        sze, channel: c_uint, first: *const SzecardFrame, left: c_uint
    ) -> c_int {
        // SAFETY: as the caller promises.
        let first = unsafe { first.as_ref() }.map(|first| first.metadata.cast_const());
        sze.give_back_before(number(channel)?, first, left)
    }

    /// `szecard_hold`.
    address_of fn szecard_hold(sze, channel: c_uint) -> *const ChannelMemory {
        Ok(Arc::into_raw(sze.hold(number(channel)?)?))
    }

    /// `szecard_renew`.
    status_of fn szecard_renew(sze, channel: c_uint) -> c_int {
        sze.renew(number(channel)?)
    }

    /// `szecard_reserve`.
    number_or_0_of fn szecard_reserve(
        sze, channel: c_uint, lengths: *const u32, segments: *mut *mut u8, count: c_uint
    ) -> c_int {
        if lengths.is_null() || segments.is_null() {
            return Err(CallError::null("an array"));
        }
        let count = count.min(i32::MAX as c_uint) as usize;
        // SAFETY: the pointer is not NULL, so it has `count` lengths.
        let lengths = unsafe { slice::from_raw_parts(lengths, count) };
        // SAFETY: the pointer is not NULL, so it has room for `count` addresses. None is read.
        let segments = unsafe { slice::from_raw_parts_mut(segments.cast::<MaybeUninit<*mut u8>>(), count) };
        Ok(sze.reserve(number(channel)?, lengths, segments)? as c_int)
    }

    /// `szecard_commit`.
    status_of fn szecard_commit(sze, channel: c_uint) -> c_int {
        sze.commit(number(channel)?)
    }

    /// `szecard_flush`.
    status_of fn szecard_flush(sze) -> c_int {
        sze.flush();
        Ok(())
    }

    /// `szecard_get_info`.
    status_of fn szecard_get_info(sze, info: *mut SzecardInfo) -> c_int {
        let card = sze.card()?.info();
        let info_of = SzecardInfo {
            name: c_text(&card.name),
            receive_buffer: card.receive_buffer_bytes,
            transmit_buffer: card.transmit_buffer_bytes,
            receive_channels: card.receive_channels,
            transmit_channels: card.transmit_channels,
            address: card.address,
        };
        // SAFETY: as the caller promises.
        unsafe { put(info, info_of, "the information") }
    }

    /// `szecard_get_design`.
    status_of fn szecard_get_design(sze, design: *mut SzecardDesign) -> c_int {
        let loaded = sze.card()?.design().map_err(of_card)?;
        let design_of = SzecardDesign {
            name: c_text(&loaded.name),
            version: c_text(loaded.version.as_deref().unwrap_or_default()),
        };
        // SAFETY: as the caller promises.
        unsafe { put(design, design_of, "the design") }
    }

    /// `szecard_get_status`.
    status_of fn szecard_get_status(sze, status: *mut SzecardStatus) -> c_int {
        let card = sze.card()?.status().map_err(of_card)?;
        // SAFETY: as the caller promises.
        unsafe { put(status, status_of_card(&card), "the status") }
    }

    /// `szecard_has_timestamps`.
    number_of fn szecard_has_timestamps(sze) -> c_int {
        Ok(sze.card()?.status().map_err(of_card)?.timestamps.into())
    }

    /// `szecard_set_ibuf`.
    status_of fn szecard_set_ibuf(sze, ibuf: *const SzecardIbuf) -> c_int {
        // SAFETY: as the caller promises.
        let ibuf = unsafe { ibuf.as_ref() }.ok_or_else(|| CallError::null("the settings"))?;
        let settings = settings_of(ibuf)?;
        sze.card()?.set(&CardRequest::SetIbuf { ibuf: settings }).map_err(of_card)
    }

    /// `szecard_set_obuf`.
    status_of fn szecard_set_obuf(sze, enabled: c_int) -> c_int {
        sze.card()?.set(&CardRequest::SetObuf { enabled: enabled != 0 }).map_err(of_card)
    }

    /// `szecard_check_rule`.
    status_of fn szecard_check_rule(sze, rule: *const c_char) -> c_int {
        // SAFETY: as the caller promises.
        let rule = unsafe { text(rule) }?;
        sze.card()?.check_rule(rule).map_err(of_card)
    }

    /// `szecard_add_rule`.
    status_of fn szecard_add_rule(
        sze, rule: *const c_char, priority: u32, counts: c_int, number: *mut u64
    ) -> c_int {
        if number.is_null() {
            return Err(CallError::null("the number"));
        }
        // SAFETY: as the caller promises.
        let rule = unsafe { text(rule) }?;
        let added = sze.card()?.add_rule(rule, priority, counts != 0).map_err(of_card)?;
        // SAFETY: as the caller promises.
        unsafe { put(number, added, "the number") }
    }

    /// `szecard_remove_rule`.
    status_of fn szecard_remove_rule(sze, number: u64, counters: *mut RuleCounters) -> c_int {
        let last = sze.card()?.remove_rule(number).map_err(of_card)?;
        if counters.is_null() {
            return Ok(());
        }
        // SAFETY: as the caller promises.
        unsafe { put(counters, last, "the counters") }
    }

    /// `szecard_get_rule_counters`.
    status_of fn szecard_get_rule_counters(sze, number: u64, counters: *mut RuleCounters) -> c_int {
        let present = sze.card()?.rule_counters(number).map_err(of_card)?;
        // SAFETY: as the caller promises.
        unsafe { put(counters, present, "the counters") }
    }

    /// `szecard_clear_counters`.
    status_of fn szecard_clear_counters(sze) -> c_int {
        sze.card()?.set(&CardRequest::ClearCounters).map_err(of_card)
    }

    /// `szecard_get_handle_counters`.
    status_of fn szecard_get_handle_counters(sze, counters: *mut HandleCounters) -> c_int {
        // SAFETY: as the caller promises.
        unsafe { put(counters, sze.counters, "the counters") }
    }
}

/// Calls a function that returns a number, 0 also if there is no room yet (`errno` is `EAGAIN`), or -1.
#[inline]
fn number_or_0_of(call: impl FnOnce() -> Result<c_int, CallError>) -> c_int {
    answer(|errno| if errno == libc::EAGAIN { 0 } else { -1 }, call)
}

/// A text for C, cut off if it is too long.
fn c_text<const BYTES: usize>(text: &str) -> [c_char; BYTES] {
    let mut characters = [0; BYTES];
    let bytes = text.bytes().take_while(|&byte| byte != 0).take(BYTES - 1);
    for (target, byte) in characters.iter_mut().zip(bytes) {
        *target = byte as c_char;
    }
    characters
}

/// The text of a rule.
///
/// # Safety
/// `rule` is NULL or a C string that does not change during the call.
unsafe fn text<'call>(rule: *const c_char) -> Result<&'call str, CallError> {
    if rule.is_null() {
        return Err(CallError::null("the rule"));
    }
    // SAFETY: the pointer is not NULL, so it is a C string.
    let rule = unsafe { CStr::from_ptr(rule) };
    rule.to_str().map_err(|_| CallError::invalid("the rule is not UTF-8"))
}

fn number(channel: c_uint) -> Result<u16, CallError> {
    match u16::try_from(channel) {
        Ok(channel) if usize::from(channel) < MAX_CHANNELS => Ok(channel),
        _ => Err(CallError::invalid(format!("channel {channel}: there are {MAX_CHANNELS} at most"))),
    }
}

fn settings_of(ibuf: &SzecardIbuf) -> Result<IbufSettings, CallError> {
    let address_check = AddressCheck::ALL.get(ibuf.address_check as usize).ok_or_else(|| {
        CallError::invalid(format!("address check {}: choose SZECARD_CHECK_*", ibuf.address_check))
    })?;
    let addresses = ibuf.addresses.get(..ibuf.nr_addresses as usize).ok_or_else(|| {
        CallError::invalid(format!("{} addresses: {MAX_ADDRESSES} is the most", ibuf.nr_addresses))
    })?;
    let settings = IbufSettings {
        enabled: ibuf.enabled != 0,
        address_check: *address_check,
        addresses: addresses.to_vec(),
        min_frame_bytes: ibuf.min_length,
        max_frame_bytes: ibuf.max_length,
    };
    settings.check().map_err(CallError::invalid)?;
    Ok(settings)
}

fn status_of_card(card: &CardStatus) -> SzecardStatus {
    let ibuf = &card.ibuf;
    let mut addresses = [[0; 6]; MAX_ADDRESSES];
    for (target, address) in addresses.iter_mut().zip(&ibuf.addresses) {
        *target = *address;
    }
    let check = AddressCheck::ALL.iter().position(|check| *check == ibuf.address_check);
    SzecardStatus {
        ibuf: SzecardIbuf {
            enabled: ibuf.enabled.into(),
            address_check: check.unwrap_or_default() as c_uint,
            min_length: ibuf.min_frame_bytes,
            max_length: ibuf.max_frame_bytes,
            nr_addresses: ibuf.addresses.len().min(MAX_ADDRESSES) as c_uint,
            addresses,
        },
        obuf_enabled: card.obuf_enabled.into(),
        ibuf_counters: card.ibuf_counters,
        obuf_counters: card.obuf_counters,
        receive: channels_of_card(&card.receive),
        transmit: channels_of_card(&card.transmit),
    }
}

fn channels_of_card(channels: &[ChannelStatus]) -> [SzecardChannel; MAX_CHANNELS] {
    let mut all = [SzecardChannel::default(); MAX_CHANNELS];
    for (target, channel) in all.iter_mut().zip(channels) {
        *target = SzecardChannel {
            frames: channel.counters.frames,
            bytes: channel.counters.bytes,
            overflow: channel.counters.overflow,
            used: channel.used_bytes,
            faults: channel.faults,
            running: channel.running.into(),
            pid: channel.subscriber.as_ref().and_then(|subscriber| subscriber.pid).unwrap_or(0),
        };
    }
    all
}
