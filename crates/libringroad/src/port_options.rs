//! Options that port names may have (`share`, `extmem`, `conf`, `offset`), and which of them are enabled.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::abi::{MAX_KEYS, NmportDesc, OptionKey, OptionParser, ParseContext, ParseOption};
use ringroad_c_face::set_errno;
use ringroad_netmap::abi::PortSizes;

use crate::context::status;
use crate::device;
use crate::extmem;
use crate::failure::{CallError, readable};
use crate::number::whole_number;
use crate::offset;
use crate::option_parser::{KEY_DEFAULT, KEY_MUST_SET, OPTION_DISABLED, find_parser};
use crate::port_name::split_port_name;

// SAFETY: Rust code changes only the flags, which are atomic. Pointers of a list in a static are to statics.
unsafe impl Sync for OptionParser {}

static OFFSET: OptionParser = parser(
    c"offset",
    parse_offset,
    &[(c"initial", KEY_MUST_SET | KEY_DEFAULT), (c"bits", 0)],
    OPTION_DISABLED,
    ptr::null(),
);

static CONF: OptionParser = parser(
    c"conf",
    parse_conf,
    &[
        (c"rings", KEY_DEFAULT),
        (c"host-rings", 0),
        (c"slots", 0),
        (c"tx-rings", 0),
        (c"rx-rings", 0),
        (c"host-tx-rings", 0),
        (c"host-rx-rings", 0),
        (c"tx-slots", 0),
        (c"rx-slots", 0),
    ],
    0,
    &raw const OFFSET,
);

static EXTMEM: OptionParser = parser(
    c"extmem",
    parse_extmem,
    &[
        (c"file", KEY_MUST_SET | KEY_DEFAULT),
        (c"if-num", 0),
        (c"if-size", 0),
        (c"ring-num", 0),
        (c"ring-size", 0),
        (c"buf-num", 0),
        (c"buf-size", 0),
    ],
    0,
    &raw const CONF,
);

static SHARE: OptionParser =
    parser(c"share", parse_share, &[(c"port", KEY_MUST_SET | KEY_DEFAULT)], 0, &raw const EXTMEM);

/// Makes a parser. Keys have their index as id; the first is the default key, which `NAME=` sets.
const fn parser(
    prefix: &'static CStr,
    parse: ParseOption,
    keys: &[(&'static CStr, u32)],
    flags: u32,
    next: *const OptionParser,
) -> OptionParser {
    let mut table = [OptionKey { name: ptr::null(), id: 0, flags: 0 }; MAX_KEYS];
    let mut index = 0;
    while index < keys.len() {
        let (name, flags) = keys[index];
        table[index] = OptionKey { name: name.as_ptr(), id: index as c_int, flags };
        index += 1;
    }
    OptionParser {
        prefix: prefix.as_ptr(),
        parse: Some(parse),
        default_key: 0,
        nr_keys: keys.len() as c_int,
        flags: AtomicU32::new(flags),
        next,
        keys: table,
    }
}

/// List of all parsers.
#[must_use]
pub fn parsers() -> *const OptionParser {
    &raw const SHARE
}

/// Arguments of a parsing function.
impl ParseContext {
    fn text(&self, key: usize) -> Option<&CStr> {
        let value = *self.keys.get(key)?;
        if value.is_null() {
            return None;
        }
        // SAFETY: values end with NUL and live during the call.
        Some(unsafe { CStr::from_ptr(value) })
    }

    /// Number given for a key; 0 if there is none.
    fn number(&self, key: usize, most: u64) -> Result<u64, CallError> {
        let Some(value) = self.text(key) else { return Ok(0) };
        whole_number(value.to_bytes(), most).ok_or_else(|| {
            CallError::invalid(format!("{}: not a number from 0 to {most}", readable(value.to_bytes())))
        })
    }

    /// Number given for the first of the keys that is given.
    fn first_number(&self, keys: [usize; 2], most: u64) -> Result<u64, CallError> {
        let key = keys.into_iter().find(|key| self.text(*key).is_some()).unwrap_or(keys[0]);
        self.number(key, most)
    }

    fn port(&self) -> *mut NmportDesc {
        self.token.cast()
    }
}

/// Runs a parsing function. Returns -1 and reports a message if it fails.
///
/// # Safety
///
/// `parse` is valid, and its token is the port that is being filled, which is not borrowed elsewhere.
unsafe fn run(
    parse: *mut ParseContext,
    function: impl FnOnce(&ParseContext) -> Result<(), CallError>,
) -> c_int {
    // SAFETY: the caller guarantees that the pointer is valid.
    let parse = unsafe { &*parse };
    status(parse.context, function(parse))
}

unsafe extern "C" fn parse_share(parse: *mut ParseContext) -> c_int {
    let share = |given: &ParseContext| {
        let spec = given.text(0).unwrap_or_default().to_bytes();
        let (name, rest) = split_port_name(spec)?;
        if !rest.is_empty() {
            return Err(CallError::invalid(format!("{}: a name alone is shared with", readable(spec))));
        }
        let region = device::region_of_port(name)?;
        // SAFETY: the token is the port, which is not borrowed during the call.
        let chosen = unsafe { &mut (*given.port()).register.mem_id };
        if *chosen != 0 && *chosen != region {
            return Err(CallError::invalid(format!(
                "{} is in region {region}, but region {chosen} is chosen already",
                readable(name)
            )));
        }
        *chosen = region;
        Ok(())
    };
    // SAFETY: called by `decode_options` for the token that `port::parse` gave.
    unsafe { run(parse, share) }
}

unsafe extern "C" fn parse_extmem(parse: *mut ParseContext) -> c_int {
    let extmem = |given: &ParseContext| {
        let mut pools = [[0; 2]; 3];
        for (index, number) in pools.iter_mut().flatten().enumerate() {
            *number = given.number(1 + index, u32::MAX.into())? as u32;
        }
        // SAFETY: the token is the port, which is not borrowed during the call.
        unsafe { extmem::use_file(given.port(), given.text(0).unwrap_or_default()) }?;
        // SAFETY: the token is the port, which is not borrowed during the call.
        let option = unsafe { (*given.port()).extmem };
        // SAFETY: `use_file` has set the option.
        let info = unsafe { &mut (*option).body.pools };
        let requested = [&mut info.interfaces, &mut info.rings, &mut info.buffers];
        for (pool, [objects, object_bytes]) in requested.into_iter().zip(pools) {
            pool.objects = objects;
            pool.object_bytes = object_bytes;
        }
        Ok(())
    };
    // SAFETY: called by `decode_options` for the token that `port::parse` gave.
    unsafe { run(parse, extmem) }
}

unsafe extern "C" fn parse_conf(parse: *mut ParseContext) -> c_int {
    let conf = |given: &ParseContext| {
        let rings = |keys| given.first_number(keys, u16::MAX.into()).map(|number| number as u16);
        let slots = |keys| given.first_number(keys, u32::MAX.into()).map(|number| number as u32);
        // The more specific key comes first: tx-rings overrides rings.
        let sizes = PortSizes {
            tx_rings: rings([3, 0])?,
            rx_rings: rings([4, 0])?,
            host_tx_rings: rings([5, 1])?,
            host_rx_rings: rings([6, 1])?,
            tx_slots: slots([7, 2])?,
            rx_slots: slots([8, 2])?,
        };
        // SAFETY: the token is the port, which is not borrowed during the call.
        unsafe { (*given.port()).register.sizes = sizes };
        Ok(())
    };
    // SAFETY: called by `decode_options` for the token that `port::parse` gave.
    unsafe { run(parse, conf) }
}

unsafe extern "C" fn parse_offset(parse: *mut ParseContext) -> c_int {
    let offset = |given: &ParseContext| {
        let initial = given.number(0, u64::MAX)?;
        let bits = given.number(1, 64)?;
        // SAFETY: the token is the port, which is not borrowed during the call.
        unsafe { offset::use_offsets(given.port(), initial, initial, bits, 0) }
    };
    // SAFETY: called by `decode_options` for the token that `port::parse` gave.
    unsafe { run(parse, offset) }
}

/// Finds the option of this name.
///
/// # Safety
///
/// `name` is NULL or ends with NUL.
unsafe fn find(name: *const c_char) -> Option<&'static OptionParser> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the name is not NULL, so it is a string.
    let name = unsafe { CStr::from_ptr(name) };
    // SAFETY: the list is static.
    unsafe { find_parser(parsers(), name.to_bytes()) }
}

/// `nmport_disable_option`.
///
/// # Safety
///
/// `name` is NULL or ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_disable_option(name: *const c_char) {
    // SAFETY: guaranteed by the caller.
    if let Some(parser) = unsafe { find(name) } {
        parser.flags.fetch_or(OPTION_DISABLED, Ordering::Relaxed);
    }
}

/// `nmport_enable_option`.
///
/// # Safety
///
/// `name` is NULL or ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_enable_option(name: *const c_char) -> c_int {
    // SAFETY: guaranteed by the caller.
    match unsafe { find(name) } {
        Some(parser) => {
            parser.flags.fetch_and(!OPTION_DISABLED, Ordering::Relaxed);
            0
        }
        None => {
            set_errno(libc::EOPNOTSUPP);
            -1
        }
    }
}
