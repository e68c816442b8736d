//! Options of port names: their descriptions, the parsing of values, and the values of one name.

use std::fmt;

use ringroad_port::vlan_set::VlanSet;
use ringroad_wire::mac::Mac;

/// One option that a kind of port has, such as `ring-size=N`.
#[derive(Debug)]
pub struct PortOption {
    /// Key before the `=`.
    pub key: &'static str,
    /// Values that the option accepts.
    pub value: ValueKind,
    /// Default, as text for users.
    pub default: &'static str,
    /// Effect, in one line.
    pub help: &'static str,
    /// Whether the daemon accepts the option from administrators only.
    pub for_administrators: bool,
}

impl PortOption {
    /// An option that every user may give.
    #[must_use]
    pub const fn new(key: &'static str, value: ValueKind, default: &'static str, help: &'static str) -> Self {
        Self { key, value, default, help, for_administrators: false }
    }
}

/// Values that an option accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// Flag, 0 or 1; the key alone means 1.
    Flag,
    /// A whole number in a range.
    Number { least: u64, most: u64 },
    /// A power of two in a range.
    PowerOfTwo { least: u64, most: u64 },
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any non-empty text up to a maximum number of bytes.
    Text {
        /// Maximum length, bytes.
        most_bytes: usize,
    },
    /// A unicast Ethernet address.
    Mac,
    /// Permissions of a file, in octal.
    Permissions,
    /// Number of bytes; K, M and G stand for powers of 1024.
    Size,
    /// VLANs: numbers and ranges with commas between, or all.
    Vlans,
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => write!(f, "0 or 1"),
            Self::Number { least, most } if *most >= u64::from(u32::MAX) => write!(f, "from {least}"),
            Self::Number { least, most } => write!(f, "{least} to {most}"),
            Self::PowerOfTwo { least, most } => write!(f, "a power of two from {least} to {most}"),
            Self::Word(words) => write!(f, "{}", words.join(", ")),
            Self::Text { most_bytes } => write!(f, "text of up to {most_bytes} bytes"),
            Self::Mac => write!(f, "six bytes, like 02:00:00:00:00:01, the first one even"),
            Self::Permissions => write!(f, "permissions in octal, like 660"),
            Self::Size => write!(f, "a size, like 32M"),
            Self::Vlans => write!(f, "VLANs, like 10,20-30, or all"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Value {
    /// A flag, a number, a size, permissions, or the index of a word in its list.
    Number(u64),
    Text(String),
    Mac(Mac),
}

/// Options of one name, with their values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct OptionValues(Vec<(&'static str, Value)>);

impl OptionValues {
    /// Stores an option's value from a name. The last of several values counts.
    ///
    /// # Errors
    /// The problem with the value, as text for users.
    pub(crate) fn set(&mut self, option: &PortOption, value: Option<&str>) -> Result<(), String> {
        let value = read(option, value)?;
        match self.0.binary_search_by_key(&option.key, |(key, _)| key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (option.key, value)),
        }
        Ok(())
    }

    fn get(&self, option: &PortOption) -> Option<&Value> {
        self.0.iter().find(|(key, _)| *key == option.key).map(|(_, value)| value)
    }

    /// Whether the name has the option `key`.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(given, _)| *given == key)
    }

    /// Value of a flag; `None` if the name does not have it.
    #[must_use]
    pub fn flag(&self, option: &PortOption) -> Option<bool> {
        self.number(option).map(|number: u64| number != 0)
    }

    /// Value of a number, of a size (bytes) or of permissions; `None` if the name does not have it.
    #[must_use]
    pub fn number<T: TryFrom<u64>>(&self, option: &PortOption) -> Option<T> {
        match self.get(option)? {
            Value::Number(number) => T::try_from(*number).ok(),
            Value::Text(_) | Value::Mac(_) => None,
        }
    }

    /// Meaning of the given word. `meanings` has one entry for each word of the option, in their order.
    #[must_use]
    pub fn word<T: Copy>(&self, option: &PortOption, meanings: &[T]) -> Option<T> {
        meanings.get(self.number::<usize>(option)?).copied()
    }

    /// Value of a text; `None` if the name does not have it.
    #[must_use]
    pub fn text(&self, option: &PortOption) -> Option<&str> {
        match self.get(option)? {
            Value::Text(text) => Some(text),
            Value::Number(_) | Value::Mac(_) => None,
        }
    }

    /// Value of an address; `None` if the name does not have it.
    #[must_use]
    pub fn mac(&self, option: &PortOption) -> Option<Mac> {
        match self.get(option)? {
            Value::Mac(mac) => Some(*mac),
            Value::Number(_) | Value::Text(_) => None,
        }
    }
}

fn read(option: &PortOption, given: Option<&str>) -> Result<Value, String> {
    let key = option.key;
    let text = || given.filter(|text| !text.is_empty()).ok_or_else(|| format!("option {key} needs a value"));
    let bad = || {
        let given = given.unwrap_or_default();
        match option.value {
            ValueKind::Flag | ValueKind::Word(_) => {
                format!("option {key} is {given:?}: choose {}", option.value)
            }
            _ => format!("option {key} is {given:?}: write {}", option.value),
        }
    };
    let number = |in_range: &dyn Fn(u64) -> bool| -> Result<u64, String> {
        let number: Option<u64> = text()?.parse().ok();
        number.filter(|number| in_range(*number)).ok_or_else(|| {
            format!("option {key} is {:?}: write a number, {}", given.unwrap_or_default(), option.value)
        })
    };
    Ok(match option.value {
        ValueKind::Flag => match given {
            None | Some("1") => Value::Number(1),
            Some("0") => Value::Number(0),
            Some(_) => return Err(bad()),
        },
        ValueKind::Number { least, most } => Value::Number(number(&|n| (least..=most).contains(&n))?),
        ValueKind::PowerOfTwo { least, most } => {
            Value::Number(number(&|n| n.is_power_of_two() && (least..=most).contains(&n))?)
        }
        ValueKind::Word(words) => {
            let text = text()?;
            Value::Number(words.iter().position(|word| *word == text).ok_or_else(bad)? as u64)
        }
        ValueKind::Text { most_bytes } => match text()? {
            // The text may be a secret, so the message does not quote it.
            text if text.len() > most_bytes => {
                return Err(format!("option {key} has more than {most_bytes} bytes"));
            }
            text => Value::Text(text.to_owned()),
        },
        ValueKind::Mac => Value::Mac(text()?.parse().ok().filter(Mac::is_station).ok_or_else(bad)?),
        ValueKind::Permissions => {
            let mode = u64::from_str_radix(text()?, 8).ok().filter(|mode| *mode <= 0o777);
            Value::Number(mode.ok_or_else(bad)?)
        }
        ValueKind::Size => Value::Number(size(text()?).ok_or_else(bad)?),
        ValueKind::Vlans => {
            let vlans: VlanSet = text()?.parse().map_err(|why| format!("option {key}: {why}"))?;
            Value::Text(vlans.to_string())
        }
    })
}

fn size(text: &str) -> Option<u64> {
    let (digits, factor) = match text.char_indices().next_back()? {
        (at, 'K') => (text.get(..at)?, 1 << 10),
        (at, 'M') => (text.get(..at)?, 1 << 20),
        (at, 'G') => (text.get(..at)?, 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(value: ValueKind) -> PortOption {
        PortOption::new("key", value, "", "")
    }

    const RING: ValueKind = ValueKind::PowerOfTwo { least: 64, most: 32768 };
    const WORDS: ValueKind = ValueKind::Word(&["auto", "fast"]);
    const TEXT: ValueKind = ValueKind::Text { most_bytes: 8 };

    #[test]
    fn values_are_read_by_the_kind_of_their_option() {
        for (kind, given, value) in [
            (ValueKind::Flag, None, Value::Number(1)),
            (ValueKind::Flag, Some("0"), Value::Number(0)),
            (ValueKind::Number { least: 1, most: 9 }, Some("9"), Value::Number(9)),
            (RING, Some("512"), Value::Number(512)),
            (WORDS, Some("fast"), Value::Number(1)),
            (TEXT, Some("sesame"), Value::Text("sesame".into())),
            (ValueKind::Mac, Some("02:00:00:00:00:0a"), Value::Mac(Mac::from_octets([2, 0, 0, 0, 0, 10]))),
            (ValueKind::Permissions, Some("660"), Value::Number(0o660)),
            (ValueKind::Size, Some("32M"), Value::Number(32 << 20)),
            (ValueKind::Size, Some("100"), Value::Number(100)),
            (ValueKind::Vlans, Some("20-22,10"), Value::Text("10,20-22".into())),
        ] {
            assert_eq!(read(&option(kind), given), Ok(value), "{kind:?}");
        }
    }

    #[test]
    fn values_without_meaning_are_refused() {
        for (kind, given) in [
            (ValueKind::Flag, Some("yes")),
            (ValueKind::Number { least: 1, most: 9 }, Some("10")),
            (ValueKind::Number { least: 0, most: 9 }, Some("-1")),
            (ValueKind::Number { least: 0, most: 9 }, None),
            (RING, Some("100")),
            (RING, Some("65536")),
            (WORDS, Some("")),
            (WORDS, Some("slow")),
            (TEXT, None),
            (TEXT, Some("nine byte")),
            (ValueKind::Mac, Some("01:00:00:00:00:00")),
            (ValueKind::Mac, Some("02:00:00:00:00")),
            (ValueKind::Mac, Some("02:00:00:00:00:+1")),
            (ValueKind::Mac, Some("02:00-00:00:00:01")),
            (ValueKind::Permissions, Some("999")),
            (ValueKind::Size, Some("99999999999G")),
            (ValueKind::Size, Some("K")),
            (ValueKind::Vlans, Some("10,4095")),
            (ValueKind::Vlans, None),
        ] {
            assert!(read(&option(kind), given).is_err(), "{kind:?} {given:?}");
        }
    }

    #[test]
    fn the_last_value_of_an_option_counts() {
        let (ring, flag) = (option(RING), PortOption::new("flag", ValueKind::Flag, "", ""));
        let mut values = OptionValues::default();
        for value in ["64", "128"] {
            values.set(&ring, Some(value)).unwrap();
        }
        values.set(&flag, None).unwrap();
        assert_eq!(values.number::<u32>(&ring), Some(128));
        assert_eq!(values.number::<u8>(&ring), Some(128));
        assert_eq!(values.flag(&flag), Some(true));
        assert!(values.has("key") && !values.has("other"));
    }
}
