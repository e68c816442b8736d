//! Flows and the headers of packets as text, in the syntax of Open vSwitch's `ovs-ofctl`.
//!
//! ```
//! use ringroad_openflow::message::FlowCommand;
//! use ringroad_openflow::text::FlowText;
//!
//! let flow: FlowText = "priority=100,tcp,in_port=1,nw_dst=10.0.0.0/8,tp_dst=80,actions=dec_ttl,output:2".parse()?;
//! assert_eq!(flow.flow_mod(FlowCommand::Add).priority, 100);
//! assert_eq!(flow.to_string(), "priority=100,tcp,in_port=1,nw_dst=10.0.0.0/8,tp_dst=80 actions=dec_ttl,output:2");
//!
//! let wrong = "in_port=1,nw_dst=10.0.0.1,actions=drop".parse::<FlowText>().unwrap_err();
//! assert_eq!(wrong.to_string(), "\"nw_dst=10.0.0.1\" at byte 10: this needs ip, tcp, arp or the like beside it");
//! # Ok::<(), ringroad_openflow::text::TextError>(())
//! ```

mod actions;
mod flow;
mod headers;
mod matching;
mod value;

pub(crate) use actions::FromPair;
pub use flow::FlowText;
pub use headers::Headers;

/// Error: an invalid word.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} at byte {at}: {reason}")]
pub struct TextError {
    pub word: String,
    /// Offset of the word in the text, bytes.
    pub at: usize,
    /// Description of the mistake.
    pub reason: String,
}

/// A piece of the text and its offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'a> {
    pub(crate) text: &'a str,
    at: usize,
}

/// Delimiters between two words.
const DELIMITERS: [char; 5] = [',', ' ', '\t', '\r', '\n'];

impl<'a> Word<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn wrong(&self, reason: impl Into<String>) -> TextError {
        TextError { word: self.text.to_owned(), at: self.at, reason: reason.into() }
    }

    /// Splits the word before `at`.
    fn split_at(&self, at: usize) -> (Self, Self) {
        let (before, after) = self.text.split_at_checked(at).unwrap_or((self.text, ""));
        (Self { text: before, at: self.at }, Self { text: after, at: self.at + before.len() })
    }

    /// Splits the word around the first `separator`.
    fn split_once(&self, separator: &str) -> Option<(Self, Self)> {
        let (before, after) = self.split_at(self.text.find(separator)?);
        Some((before, after.split_at(separator.len()).1))
    }

    fn trimmed(&self) -> Self {
        let start = self.text.len() - self.text.trim_start_matches(DELIMITERS).len();
        let from = self.split_at(start).1;
        Self { text: from.text.trim_end_matches(DELIMITERS), at: from.at }
    }

    /// Reads a number in decimal, or in hexadecimal after `0x`.
    fn number<T: TryFrom<u128>>(&self) -> Result<T, TextError> {
        let digits = self.text.strip_prefix("0x").or_else(|| self.text.strip_prefix("0X"));
        let number = match digits {
            Some(digits) => u128::from_str_radix(digits, 16),
            None => self.text.parse(),
        };
        // The standard library would accept a sign, too.
        let number = number
            .ok()
            .filter(|_| !self.text.contains('+'))
            .ok_or_else(|| self.wrong("this is not a number"))?;
        T::try_from(number).map_err(|_| self.wrong("this number is too large here"))
    }
}

/// A pair: `key`, `key=value`, `key:value` or `key(value)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a> {
    whole: Word<'a>,
    pub(crate) key: Word<'a>,
    value: Option<Word<'a>>,
}

impl<'a> Pair<'a> {
    fn value(&self) -> Result<Word<'a>, TextError> {
        self.value.ok_or_else(|| self.whole.wrong("a value is missing"))
    }

    pub(crate) fn no_value(&self) -> Result<(), TextError> {
        if self.value.is_some() { Err(self.whole.wrong("this takes no value")) } else { Ok(()) }
    }
}

/// Iterator over the pairs of a list.
#[derive(Clone, Copy, Debug)]
struct Pairs<'a> {
    rest: Word<'a>,
}

impl<'a> Pairs<'a> {
    fn new(rest: Word<'a>) -> Self {
        Self { rest }
    }

    /// Returns the text after `key=`, if the next pair begins like this.
    fn all_after(&self, keys: &[&str]) -> Option<Word<'a>> {
        let rest = self.rest.trimmed();
        let (key, value) = rest.split_once("=")?;
        keys.contains(&key.text).then_some(value)
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<Pair<'a>, TextError>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.rest.trimmed();
        self.rest = text.split_at(text.text.len()).1;
        if text.text.is_empty() {
            return None;
        }
        let is_delimiter = |c: char| DELIMITERS.contains(&c);
        let key_end =
            text.text.find(|c| is_delimiter(c) || matches!(c, '=' | ':' | '(')).unwrap_or(text.text.len());
        let (key, after) = text.split_at(key_end);
        let opening = after.text.starts_with('(');
        if !opening && !after.text.starts_with(['=', ':']) {
            self.rest = after;
            return Some(Ok(Pair { whole: key, key, value: None }));
        }
        // The value ends at a delimiter outside of parentheses, or at the parenthesis that closes the first one.
        let mut depth = 0usize;
        let mut end = None;
        for (at, c) in after.text.char_indices() {
            match c {
                '(' => depth += 1,
                ')' if depth == 0 => {
                    return Some(Err(text.wrong("a parenthesis is closed that was not opened")));
                }
                ')' => {
                    depth -= 1;
                    if depth == 0 && opening {
                        end = Some(at + 1);
                    }
                }
                c if depth == 0 && is_delimiter(c) => end = Some(at),
                _ => {}
            }
            if end.is_some() {
                break;
            }
        }
        if depth > 0 {
            return Some(Err(text.wrong("a parenthesis is not closed")));
        }
        let end = end.unwrap_or(after.text.len());
        let whole = text.split_at(key_end + end).0;
        self.rest = text.split_at(key_end + end).1;
        let value = after.split_at(end).0.split_at(1).1;
        let value = if opening { value.split_at(value.text.len().saturating_sub(1)).0 } else { value };
        Some(Ok(Pair { whole, key, value: Some(value) }))
    }
}
