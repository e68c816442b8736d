//! Published functions (`szedata_*`). The header has the contract of each.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_char, c_int, c_short, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::slice;

use ringroad_ring::shared::SharedBytes;
use ringroad_sze2::segment::{HEADER_BYTES, SegmentHeader};

use crate::abi::{LockedArea, Sze2Dir};
use crate::environment;
use crate::failure::{CallError, answer, errno_of, number_of, of_card, status_of};
use crate::handle::{SegmentFilter, SzeHandle, timeout_of};
use crate::reading::SegmentText;

/// Flag of get_mempolicy(2) that requests the node instead of the policy. The libc crate does not have it.
const MPOL_F_NODE: usize = 1;
/// Flag of get_mempolicy(2) for the memory at an address.
const MPOL_F_ADDR: usize = 2;

/// The handle behind `sze`. Fails in a child of the process that opened it.
///
/// # Safety
/// `sze` is NULL or a handle that was not closed, and no other thread uses it.
pub unsafe fn handle<'handle>(sze: *mut SzeHandle) -> Result<&'handle mut SzeHandle, CallError> {
    // SAFETY: the pointer is not NULL, so it is a handle that this library made, and only this call uses it.
    let handle = unsafe { sze.as_mut() }.ok_or_else(|| CallError::null("the handle"))?;
    handle.expect_own_process()?;
    Ok(handle)
}

/// Writes `value` to an address that C passed.
///
/// # Safety
/// `target` is NULL or may be written.
pub unsafe fn put<T>(target: *mut T, value: T, what: &str) -> Result<(), CallError> {
    if target.is_null() {
        return Err(CallError::null(what));
    }
    // SAFETY: the pointer is not NULL, so it belongs to the caller, as the header requires.
    unsafe { target.write(value) };
    Ok(())
}

/// The `len` bytes at `start`, which may be NULL only if `len` is 0.
///
/// # Safety
/// `start` is NULL or has `len` bytes.
unsafe fn bytes<'call>(start: *const u8, len: c_uint, what: &str) -> Result<&'call [u8], CallError> {
    match (start.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(CallError::null(what)),
        // SAFETY: the pointer is not NULL, so it has `len` bytes of the caller, which do not change during the call.
        (false, len) => Ok(unsafe { slice::from_raw_parts(start, len as usize) }),
    }
}

/// The metadata and the frame. Either may be NULL if its length is 0.
///
/// # Safety
/// The data have the stated lengths.
unsafe fn parts<'call>(
    hw_data: *const u8,
    hw_data_len: c_uint,
    sw_data: *const u8,
    sw_data_len: c_uint,
) -> Result<(&'call [u8], &'call [u8]), CallError> {
    // SAFETY: as the caller promises.
    let metadata = unsafe { bytes(hw_data, hw_data_len, "hw_data") }?;
    // SAFETY: as the caller promises.
    let frame = unsafe { bytes(sw_data, sw_data_len, "sw_data") }?;
    Ok((metadata, frame))
}

/// Result 0, 1 if there is no room yet (`errno` is `EAGAIN`), or -1.
fn sent(call: impl FnOnce() -> Result<(), CallError>) -> c_int {
    answer(|errno| if errno == libc::EAGAIN { 1 } else { -1 }, || call().map(|()| 0))
}

/// Result of `call`, or NULL.
pub fn address_of<T>(call: impl FnOnce() -> Result<*const T, CallError>) -> *const T {
    answer(|_| ptr::null(), call)
}

/// Exports functions for C whose first argument is a handle. The word before `fn` names the function that turns the
/// result of the body into the one for C.
macro_rules! exports {
    ($(
        $(#[$documentation:meta])*
        $answer:ident fn $name:ident($handle:ident $(, $argument:ident: $type:ty)*) -> $result:ty $body:block
    )*) => {$(
        $(#[$documentation])*
        ///
        /// # Safety
        /// The handle is NULL or was opened and not closed. The other pointers are as the header requires.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($handle: *mut SzeHandle $(, $argument: $type)*) -> $result {
            $answer(|| {
                // SAFETY: as the caller promises.
                let $handle = unsafe { handle($handle) }?;
                $body
            })
        }
    )*};
}
pub(crate) use exports;

/// `szedata_open`.
///
/// # Safety
/// `node` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn szedata_open(node: *const c_char) -> *mut SzeHandle {
    answer(
        |_| ptr::null_mut(),
        || {
            if node.is_null() {
                return Err(CallError::null("the node"));
            }
            // SAFETY: the pointer is not NULL, so it is a C string.
            let node = unsafe { CStr::from_ptr(node) };
            environment::read();
            let handle = SzeHandle::open(Path::new(OsStr::from_bytes(node.to_bytes())))?;
            Ok(Box::into_raw(Box::new(handle)))
        },
    )
}

/// `szedata_open_dummy`.
#[unsafe(no_mangle)]
pub extern "C" fn szedata_open_dummy() -> *mut SzeHandle {
    answer(|_| ptr::null_mut(), || Ok(Box::into_raw(Box::new(SzeHandle::dummy()))))
}

/// `szedata_close`.
///
/// # Safety
/// `sze` is NULL or a handle that was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn szedata_close(sze: *mut SzeHandle) {
    status_of(|| {
        if !sze.is_null() {
            // SAFETY: the pointer is not NULL, so it was made by `Box::into_raw`, and is closed for the first time.
            unsafe { Box::from_raw(sze) }.close();
        }
        Ok(())
    });
}

/// `szedata_close_dummy`.
///
/// # Safety
/// `sze` is NULL or a handle that was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn szedata_close_dummy(sze: *mut SzeHandle) {
    // SAFETY: as the caller promises.
    unsafe { szedata_close(sze) }
}

/// `szedata_subscribe3`.
///
/// # Safety
/// `sze` is NULL or a handle, `rx` and `tx` are NULL or may be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn szedata_subscribe3(sze: *mut SzeHandle, rx: *mut u32, tx: *mut u32) -> c_int {
    errno_of(|| {
        // SAFETY: as the caller promises.
        let handle = unsafe { handle(sze) }?;
        // SAFETY: as the caller promises.
        let rx = unsafe { rx.as_mut() }.ok_or_else(|| CallError::null("the mask of receive channels"))?;
        // SAFETY: as the caller promises.
        let tx = unsafe { tx.as_mut() }.ok_or_else(|| CallError::null("the mask of transmit channels"))?;
        (*rx, *tx) = handle.subscribe(*rx, *tx)?;
        Ok(())
    })
}

/// `szedata_subscribe`.
///
/// # Safety
/// `sze` is NULL or a handle, `rx` and `tx` are NULL or may be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn szedata_subscribe(
    sze: *mut SzeHandle,
    rx: *mut u32,
    tx: *mut u32,
    _rx_poll_thresh: c_uint,
    _tx_poll_thresh: c_uint,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { szedata_subscribe3(sze, rx, tx) }
}

exports! {
    /// `szedata_start`.
    errno_of fn szedata_start(sze) -> c_int {
        sze.card()?.start().map_err(of_card)
    }

    /// `szedata_ifaces_available`.
    number_of fn szedata_ifaces_available(sze, direction: c_int) -> c_int {
        Ok(sze.channels(Sze2Dir::from_number(direction)?)?.into())
    }

    /// `szedata_poll`.
    number_of fn szedata_poll(sze, events: *mut c_short, timeout: c_int) -> c_int {
        // SAFETY: as the caller promises.
        let events = unsafe { events.as_mut() }.ok_or_else(|| CallError::null("events"))?;
        let wanted = |event| *events & event != 0;
        if *events & !(libc::POLLIN | libc::POLLOUT) != 0 {
            return Err(CallError::invalid(format!("events {events:#x}: choose of SZEDATA_POLLRX and _POLLTX")));
        }
        sze.flush();
        let (data, room) = sze.wait(wanted(libc::POLLIN), wanted(libc::POLLOUT), timeout_of(timeout))?;
        let mask = |is_ready, event| if is_ready { event } else { 0 };
        *events = mask(data, libc::POLLIN) | mask(room, libc::POLLOUT);
        Ok((data || room).into())
    }

    /// `szedata_rx_lock_data`.
    address_of fn szedata_rx_lock_data(sze, areas: u32) -> *const LockedArea {
        sze.lock_received(areas)
    }

    /// `szedata_rx_unlock_data`. `lock` is only compared.
    errno_of fn szedata_rx_unlock_data(sze, lock: *const LockedArea) -> c_int {
        sze.unlock_received(lock)
    }

    /// `szedata_tx_lock_data`.
    address_of fn szedata_tx_lock_data(sze, size: u32, area: u8) -> *const LockedArea {
        sze.lock_transmit(size, area.into())
    }

    /// `szedata_tx_unlock_data`. `lock` is only compared.
    errno_of fn szedata_tx_unlock_data(sze, lock: *const LockedArea, size: u32) -> c_int {
        sze.unlock_transmit(lock, size)
    }

    /// `szedata_set_filter`.
    status_of fn szedata_set_filter(sze, filter: Option<SegmentFilter>) -> c_int {
        sze.filter = Some(filter.ok_or_else(|| CallError::null("the filter"))?);
        Ok(())
    }

    /// `szedata_prepare_and_try_write_next`.
    sent fn szedata_prepare_and_try_write_next(
        sze, hw_data: *const u8, hw_data_len: c_uint, sw_data: *const u8, sw_data_len: c_uint, iface: u16
    ) -> c_int {
        // SAFETY: as the caller promises.
        let (metadata, frame) = unsafe { parts(hw_data, hw_data_len, sw_data, sw_data_len) }?;
        sze.write_frame(metadata, frame, iface)
    }

    /// `szedata_burst_write_next`.
    sent fn szedata_burst_write_next(
        sze, hw_data: *const u8, hw_data_len: c_uint, sw_data: *const u8, sw_data_len: c_uint, iface: u16
    ) -> c_int {
        // SAFETY: as the caller promises.
        let (metadata, frame) = unsafe { parts(hw_data, hw_data_len, sw_data, sw_data_len) }?;
        sze.collect_frame(metadata, frame, iface)
    }

    /// `szedata_get_area_size`.
    errno_of fn szedata_get_area_size(sze, space: u8, area: u8, size: *mut u32) -> c_int {
        let direction = Sze2Dir::from_number(space.into())?;
        if u16::from(area) >= sze.channels(direction)? {
            return Err(CallError::invalid(format!("there is no channel {area}")));
        }
        let info = sze.card()?.info();
        let bytes = match direction {
            Sze2Dir::Receive => info.receive_buffer_bytes,
            Sze2Dir::Transmit => info.transmit_buffer_bytes,
            Sze2Dir::Both => return Err(CallError::invalid("a channel is of one direction")),
        };
        let bytes = u32::try_from(bytes).map_err(|_| {
            CallError::new(libc::EOVERFLOW, format!("a buffer of {bytes} bytes does not fit in 32 bits"))
        })?;
        // SAFETY: as the caller promises.
        unsafe { put(size, bytes, "the size") }
    }

    /// `szedata_get_area_numa_node`.
    number_of fn szedata_get_area_numa_node(sze, direction: c_int, area: u32) -> c_int {
        let channel =
            u16::try_from(area).map_err(|_| CallError::invalid(format!("there is no channel {area}")))?;
        let memory = sze.memory(Sze2Dir::from_number(direction)?, channel)?;
        let address: *mut c_void = memory.data(0, 8).as_ptr().cast();
        let mut node: c_int = -1;
        let none = ptr::null_mut::<c_void>();
        let flags = MPOL_F_NODE | MPOL_F_ADDR;
        // SAFETY: the call writes one int, to `node`, and only reads the address.
        let result = unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut node, none, 0_usize, address, flags) };
        match result {
            0 => Ok(node),
            _ => Err(CallError::of_system("which NUMA node the buffer is on")),
        }
    }
}

/// Calls the handle's filter, if it has one.
fn skips(filter: Option<SegmentFilter>) -> impl Fn(SharedBytes<'_>) -> bool {
    move |metadata| {
        let (length, start) = (metadata.len() as u16, metadata.as_ptr());
        // SAFETY: the program's function is made for metadata, which stay in the buffer during the call.
        filter.is_some_and(|filter| unsafe { filter(length, start) } != 0)
    }
}

/// Returns the segment to C, or NULL and the length 0.
///
/// # Safety
/// `sze` is NULL or a handle, `len` is NULL or may be written.
unsafe fn segment(
    sze: *mut SzeHandle,
    len: *mut c_uint,
    read: impl FnOnce(&mut SzeHandle) -> Result<SegmentText, CallError>,
) -> *mut u8 {
    answer(
        |_| ptr::null_mut(),
        || {
            // SAFETY: as the caller promises.
            unsafe { put(len, 0, "the length") }?;
            // SAFETY: as the caller promises.
            let segment = read(unsafe { handle(sze) }?)?;
            // SAFETY: as the caller promises.
            unsafe { put(len, segment.length, "the length") }?;
            Ok(segment.start)
        },
    )
}

/// `szedata_read_next`.
///
/// # Safety
/// `sze` is NULL or a handle, `len` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn szedata_read_next(sze: *mut SzeHandle, len: *mut c_uint) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe { segment(sze, len, |handle| handle.read_next(skips(handle.filter))) }
}

/// `szedata_read_next_noblock`.
///
/// # Safety
/// `sze` is NULL or a handle, `len` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn szedata_read_next_noblock(sze: *mut SzeHandle, len: *mut c_uint) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe { segment(sze, len, |handle| handle.read_next_noblock(skips(handle.filter))) }
}

/// `szedata_decode_packet`.
///
/// # Safety
/// `contents` is NULL or a segment, the others are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn szedata_decode_packet(
    contents: *mut u8,
    data: *mut *mut u8,
    hw_data: *mut *mut u8,
    data_len: *mut c_uint,
    hw_data_len: *mut c_uint,
) -> c_uint {
    answer(
        |_| 0,
        || {
            if contents.is_null() {
                return Err(CallError::null("the segment"));
            }
            // SAFETY: the pointer is not NULL, so it is a segment, which has a header.
            let header =
                SegmentHeader::from_bytes(unsafe { contents.cast::<[u8; HEADER_BYTES]>().read_unaligned() });
            let layout = header
                .layout(usize::MAX)
                .map_err(|error| CallError::new(libc::EBADMSG, error.to_string()))?;
            // SAFETY: as the caller promises.
            unsafe { put(data, contents.wrapping_add(layout.frame_offset), "data") }?;
            // SAFETY: as the caller promises.
            unsafe { put(hw_data, contents.wrapping_add(HEADER_BYTES), "hw_data") }?;
            // SAFETY: as the caller promises.
            unsafe { put(data_len, layout.frame_bytes as c_uint, "data_len") }?;
            // SAFETY: as the caller promises.
            unsafe { put(hw_data_len, layout.metadata_bytes.into(), "hw_data_len") }?;
            Ok(header.segment_bytes.into())
        },
    )
}

/// `szedata_prepare_packet`.
///
/// # Safety
/// `sze` is NULL or a handle, the data have the stated length, `len` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn szedata_prepare_packet(
    sze: *mut SzeHandle,
    hw_data: *const u8,
    hw_data_len: c_uint,
    sw_data: *const u8,
    sw_data_len: c_uint,
    len: *mut c_uint,
) -> *mut u8 {
    answer(
        |_| ptr::null_mut(),
        || {
            // SAFETY: as the caller promises.
            unsafe { put(len, 0, "the length") }?;
            // SAFETY: as the caller promises.
            let (metadata, frame) = unsafe { parts(hw_data, hw_data_len, sw_data, sw_data_len) }?;
            // SAFETY: as the caller promises.
            let segment = unsafe { handle(sze) }?.prepare(metadata, frame)?;
            // SAFETY: as the caller promises.
            unsafe { put(len, segment.len() as c_uint, "the length") }?;
            Ok(segment.as_mut_ptr())
        },
    )
}

/// `szedata_try_write_next`.
///
/// # Safety
/// `sze` is NULL or a handle, `data` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn szedata_try_write_next(
    sze: *mut SzeHandle,
    data: *const u8,
    len: c_uint,
    iface: u16,
) -> c_int {
    let is_whole = len.is_multiple_of(8);
    let otherwise = |errno| match errno {
        libc::EAGAIN => 1,
        _ if is_whole => -1,
        _ => -2,
    };
    answer(otherwise, || {
        if !is_whole {
            return Err(CallError::invalid(format!(
                "{len} bytes of segments: whole ones are a multiple of 8"
            )));
        }
        // SAFETY: as the caller promises.
        let data = unsafe { bytes(data, len, "the data") }?;
        // SAFETY: as the caller promises.
        unsafe { handle(sze) }?.write_segments(data, iface)?;
        Ok(0)
    })
}
