//! Last part of a port name: `@NAME`, `@NAME=VALUE` and `@NAME:KEY=VALUE,...`.

use crate::failure::{CallError, readable};

/// Text of one option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionText<'a> {
    /// Name of the option.
    pub name: &'a [u8],
    /// Settings of the option.
    pub settings: Vec<Setting<'a>>,
}

/// A setting: `KEY=VALUE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting<'a> {
    /// Key; `None` for the default key, as in `NAME=VALUE`.
    pub key: Option<&'a [u8]>,
    /// Value; `None` if there is no `=`.
    pub value: Option<&'a [u8]>,
}

/// Splits `KEY=VALUE` or `KEY`.
fn split_setting(text: &[u8]) -> Setting<'_> {
    match text.iter().position(|byte| *byte == b'=') {
        Some(at) => Setting { key: Some(&text[..at]), value: Some(&text[at + 1..]) },
        None => Setting { key: Some(text), value: None },
    }
}

/// Splits the first option off a list, which begins with the option's `@`.
///
/// # Errors
///
/// `EINVAL` if the `@` or a name is missing.
pub fn split_option(list: &[u8]) -> Result<(OptionText<'_>, &[u8]), CallError> {
    let Some(text) = list.strip_prefix(b"@") else {
        return Err(CallError::invalid(format!("{}: an option begins with @", readable(list))));
    };
    let (text, rest) = text.split_at(text.iter().take_while(|byte| **byte != b'@').count());
    let name = &text[..text.iter().take_while(|byte| !b"=:".contains(byte)).count()];
    if name.is_empty() {
        return Err(CallError::invalid(format!("{}: the name of an option is missing", readable(list))));
    }
    let mut settings = Vec::new();
    if let [separator, values @ ..] = &text[name.len()..] {
        for (index, setting) in values.split(|byte| *byte == b',').enumerate() {
            if *separator == b'=' && index == 0 {
                settings.push(Setting { key: None, value: Some(setting) });
            } else {
                settings.push(split_setting(setting));
            }
        }
    }
    Ok((OptionText { name, settings }, rest))
}

/// Whether two keys are the same; `-` and `_` are equal.
#[must_use]
pub fn same_key(one: &[u8], other: &[u8]) -> bool {
    let plain = |byte: &u8| if *byte == b'_' { b'-' } else { *byte };
    one.iter().map(plain).eq(other.iter().map(plain))
}
