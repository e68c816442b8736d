//! First part of a port name: scheme and name.

use crate::failure::{CallError, readable};

/// Maximum number of bytes of a name that a request can carry.
const NAME_MAX_BYTES: usize = 63;

/// Whether the text consists of letters, digits and underscores, or is empty.
fn is_identifier(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// Splits `netmap:NAME` or `valeX:NAME` off a port name. Returns the name as requests carry it, and the rest.
///
/// # Errors
///
/// `EINVAL` for another scheme, a name that is empty or too long, or a pipe without parent or identifier.
pub fn split_port_name(spec: &[u8]) -> Result<(&[u8], &[u8]), CallError> {
    let (stored_from, name_from) = if spec.starts_with(b"netmap:") {
        (7, 7)
    } else if let Some(switch) = spec.strip_prefix(b"vale") {
        match switch.iter().position(|byte| *byte == b':') {
            Some(colon) if is_identifier(&switch[..colon]) => (0, 4 + colon + 1),
            _ => {
                return Err(CallError::invalid(format!(
                    "{}: a switch is named vale, then letters, digits and _, then a colon",
                    readable(spec)
                )));
            }
        }
    } else {
        return Err(CallError::invalid(format!(
            "{}: a port name begins with netmap: or vale",
            readable(spec)
        )));
    };
    let length = spec[name_from..].iter().take_while(|byte| !b"-*^/@".contains(byte)).count();
    let (head, rest) = spec.split_at(name_from + length);
    let name = &head[name_from..];
    if name.is_empty() {
        return Err(CallError::invalid(format!("{}: the name of the port is missing", readable(spec))));
    }
    if let Some(brace) = name.iter().position(|byte| b"{}".contains(byte)) {
        let identifier = &name[brace + 1..];
        if brace == 0 || identifier.is_empty() || !is_identifier(identifier) {
            return Err(CallError::invalid(format!(
                "{}: a pipe is named PARENT{{ID or PARENT}}ID, ID of letters, digits and _",
                readable(name)
            )));
        }
    }
    let stored = &head[stored_from..];
    if stored.len() > NAME_MAX_BYTES {
        return Err(CallError::invalid(format!(
            "{}: the name has {} bytes, {NAME_MAX_BYTES} at most are possible",
            readable(stored),
            stored.len()
        )));
    }
    Ok((stored, rest))
}
