//! Names of devices made from parts that others chose: an interface, a namespace, a path.
//!
//! In a name an `@` begins the options, and a comma separates them. A part that holds one of these could set options of
//! the port, so it is refused.

/// Reason why a text cannot be a part of a port's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} holds {character:?}, which {meaning} in a port's name; choose one without it")]
pub struct DeviceTextError {
    what: String,
    text: String,
    character: char,
    meaning: &'static str,
}

/// Returns the name of a device: `tap:t0@netns=blue,mtu=9000` of scheme, target and options.
///
/// # Errors
/// [`DeviceTextError`]: the target or a value would be read as options.
pub fn device_text(scheme: &str, target: &str, options: &[(&str, &str)]) -> Result<String, DeviceTextError> {
    refuse_characters("the target", target, &['@', '\0'])?;
    let mut text = format!("{scheme}:{target}");
    for (number, (key, value)) in options.iter().enumerate() {
        check_part(&format!("the value of {key}"), value)?;
        text += &format!("{}{key}={value}", if number == 0 { '@' } else { ',' });
    }
    Ok(text)
}

/// Checks that a text has the same meaning wherever it is put in a port's name. `what` names the text in the error.
///
/// # Errors
/// [`DeviceTextError`].
pub fn check_part(what: &str, text: &str) -> Result<(), DeviceTextError> {
    refuse_characters(what, text, &['@', ',', '\0'])
}

fn refuse_characters(what: &str, text: &str, refused: &[char]) -> Result<(), DeviceTextError> {
    let Some(character) = text.chars().find(|character| refused.contains(character)) else { return Ok(()) };
    let meaning = match character {
        '@' => "begins the options",
        ',' => "separates the options",
        _ => "cannot be",
    };
    Err(DeviceTextError { what: what.to_owned(), text: text.to_owned(), character, meaning })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_values_that_would_be_options_are_refused() {
        let made =
            |target: &str, value: &str| device_text("memif", target, &[("role", "server"), ("id", value)]);
        assert_eq!(made("/run/a,b=c.sock", "7").unwrap(), "memif:/run/a,b=c.sock@role=server,id=7");
        assert_eq!(device_text("tap", "t0", &[]).unwrap(), "tap:t0");
        for (target, value) in [("a@secret=", "7"), ("a", "7,secret="), ("a", "7@secret="), ("a\0", "7")] {
            assert!(made(target, value).is_err(), "{target:?} {value:?}");
        }
        let refused = made("a@id=7", "7").unwrap_err().to_string();
        assert!(refused.contains("\"a@id=7\" holds '@', which begins the options"), "{refused}");
    }
}
