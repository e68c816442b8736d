//! `nmreq_options_decode`: passes the options of a name to the functions of a list of parsers.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering;

use crate::abi::{MAX_KEYS, Nmctx, OptionKey, OptionParser, ParseContext};
use ringroad_c_face::errno;

use crate::context::{given, status};
use crate::failure::{CallError, readable};
use crate::option_text::{OptionText, Setting, same_key, split_option};

/// `NMREQ_OPTK_ALLOWEMPTY`.
pub const KEY_ALLOW_EMPTY: u32 = 1;
/// `NMREQ_OPTK_MUSTSET`.
pub const KEY_MUST_SET: u32 = 2;
/// `NMREQ_OPTK_DEFAULT`.
pub const KEY_DEFAULT: u32 = 4;
/// `NMREQ_OPTF_DISABLED`.
pub const OPTION_DISABLED: u32 = 1;
/// `NMREQ_OPTF_ALLOWEMPTY`.
pub const OPTION_ALLOW_EMPTY: u32 = 2;

/// Finds the parser of this name in a list.
///
/// # Safety
///
/// The list is sound and stays during `'a`.
#[must_use]
pub unsafe fn find_parser<'a>(mut parsers: *const OptionParser, name: &[u8]) -> Option<&'a OptionParser> {
    // SAFETY: the pointer is NULL or a parser of a sound list.
    while let Some(parser) = unsafe { parsers.as_ref() } {
        if name_at(parser.prefix) == Some(name) {
            return Some(parser);
        }
        parsers = parser.next;
    }
    None
}

/// Name in a table of parsers.
fn name_at<'a>(name: *const c_char) -> Option<&'a [u8]> {
    if name.is_null() {
        return None;
    }
    // SAFETY: names in a sound list end with NUL.
    Some(unsafe { CStr::from_ptr(name) }.to_bytes())
}

/// Keys of a parser, as far as their ids are valid.
fn keys_of(parser: &OptionParser) -> impl Iterator<Item = (&OptionKey, usize)> {
    let count = usize::try_from(parser.nr_keys).unwrap_or(0);
    parser.keys.iter().take(count).filter_map(|key| {
        let id = usize::try_from(key.id).ok().filter(|id| *id < MAX_KEYS)?;
        Some((key, id))
    })
}

/// Values that an option gives to the keys of its parser, by id.
fn values_of(
    parser: &OptionParser,
    option: &OptionText<'_>,
) -> Result<[Option<CString>; MAX_KEYS], CallError> {
    let name = readable(option.name);
    let invalid = |what: String| Err(CallError::invalid(format!("option {name}: {what}")));
    let mut values = [const { None }; MAX_KEYS];

    if option.settings.is_empty() && parser.flags.load(Ordering::Relaxed) & OPTION_ALLOW_EMPTY == 0 {
        return invalid("a value is missing".into());
    }
    for Setting { key, value } in &option.settings {
        let found = keys_of(parser).find(|(known, id)| match key {
            Some(key) => name_at(known.name).is_some_and(|known| same_key(known, key)),
            None if parser.default_key < 0 => known.flags & KEY_DEFAULT != 0,
            None => *id == parser.default_key as usize,
        });
        let shown = key.map_or_else(|| "the value".into(), readable);
        let Some((known, id)) = found else {
            return invalid(match key {
                Some(_) => format!("there is no key {shown}"),
                None => "it takes no plain value, only KEY=VALUE behind a colon".into(),
            });
        };
        if value.is_none_or(<[u8]>::is_empty) && known.flags & KEY_ALLOW_EMPTY == 0 {
            return invalid(format!("{shown} is empty"));
        }
        if values[id].is_some() {
            return invalid(format!("{shown} is given twice"));
        }
        // The text came from a C string, so it contains no NUL.
        values[id] = Some(CString::new(value.unwrap_or_default()).unwrap_or_default());
    }
    for (key, id) in keys_of(parser) {
        if key.flags & KEY_MUST_SET != 0 && values[id].is_none() {
            let key = name_at(key.name).map(readable).unwrap_or_default();
            return invalid(format!("{key} is missing"));
        }
    }
    Ok(values)
}

/// Calls the functions of all options in a list, which may be empty.
///
/// # Safety
///
/// The parsers are sound, and made for this token.
///
/// # Errors
///
/// `EINVAL` for a syntax error, `EOPNOTSUPP` for a disabled option, and the errors of the functions.
pub unsafe fn decode_options(
    mut list: &[u8],
    parsers: *const OptionParser,
    token: *mut c_void,
    context: *mut Nmctx,
) -> Result<(), CallError> {
    while !list.is_empty() {
        let (option, rest) = split_option(list)?;
        let name = readable(option.name);
        // SAFETY: the caller guarantees that the parsers are sound.
        let parser = unsafe { find_parser(parsers, option.name) }
            .ok_or_else(|| CallError::invalid(format!("there is no option {name}")))?;
        if parser.flags.load(Ordering::Relaxed) & OPTION_DISABLED != 0 {
            return Err(CallError::new(
                libc::EOPNOTSUPP,
                format!("option {name}: the program has not enabled it"),
            ));
        }
        let values = values_of(parser, &option)?;
        let mut parse = ParseContext { context, token, keys: [ptr::null(); MAX_KEYS] };
        for (key, value) in parse.keys.iter_mut().zip(&values) {
            *key = value.as_ref().map_or(ptr::null(), |value| value.as_ptr());
        }
        if let Some(function) = parser.parse {
            // SAFETY: the caller guarantees that the function fits the token; the values live during the call.
            let result = unsafe { function(&raw mut parse) };
            if result < 0 {
                return Err(CallError::silent(errno()));
            }
        }
        list = rest;
    }
    Ok(())
}

/// `nmreq_options_decode`.
///
/// # Safety
///
/// The pointers are NULL or valid, and the parsers are sound and made for this token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmreq_options_decode(
    list: *const c_char,
    parsers: *const OptionParser,
    token: *mut c_void,
    context: *mut Nmctx,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let result = unsafe { given(list, "the list of options") }
        // SAFETY: guaranteed by the caller.
        .and_then(|list| unsafe { decode_options(list.to_bytes(), parsers, token, context) });
    status(context, result)
}
