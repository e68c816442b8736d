//! Parsing of names in requests, and the keys of ports.
//!
//! Names follow the grammar of [`ringroad_drivers::catalogue::port_name`], as far as netmap has such ports, so every
//! name that an untrusted peer can choose is printable.

use std::fmt;

use ringroad_drivers::catalogue::port_kind::check_interface_name;
use ringroad_drivers::catalogue::port_name::{check_pipe_id, split_switch_port};
use rustix::io::Errno;

use super::failure::{NetmapFailure, fail};

/// Maximum length of a name in a request, bytes (`NETMAP_REQ_IFNAMSIZ` less the NUL).
const MAX_NAME_BYTES: usize = 63;

/// A parsed name: a port, or one end of a pipe of a port. Pipes do not nest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) base: Base,
    pub(crate) pipe: Option<PipeEnd>,
}

/// A name without pipes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Base {
    /// Port of a switch: `valeX:port`.
    Switch { switch: String, port: String },
    /// An interface, or a port on no switch.
    Plain(String),
}

/// Number and side of a pipe's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PipeEnd {
    pub(crate) id: String,
    /// Whether the end has `{` and not `}`.
    pub(crate) master: bool,
}

impl Name {
    /// Parses `text`. Monitors have the names of the monitored ports.
    pub(crate) fn parse(text: &str) -> Result<Self, NetmapFailure> {
        if text.len() > MAX_NAME_BYTES {
            return Err(fail(
                Errno::INVAL,
                format!("a name of {} bytes; the longest has {MAX_NAME_BYTES}", text.len()),
            ));
        }
        let Some(brace) = text.find(['{', '}']) else {
            return Ok(Self { base: Base::parse(text)?, pipe: None });
        };
        let wrong = |problem: String| fail(Errno::INVAL, format!("{text:?}: {problem}"));
        let (parent, rest) = text.split_at(brace);
        let (master, id) = (rest.starts_with('{'), &rest[1..]);
        check_pipe_id(id).map_err(wrong)?;
        // An invalid name of a parent is an invalid name, not a missing parent.
        let base = Base::parse(parent).map_err(|failure| wrong(failure.message))?;
        Ok(Self { base, pipe: Some(PipeEnd { id: id.to_owned(), master }) })
    }

    /// Switch and port of a request about a switch; EINVAL for any other name.
    pub(crate) fn of_vale(text: &str) -> Result<(String, String), NetmapFailure> {
        match split_switch_port(text) {
            Ok((switch, port)) => Ok((switch.to_owned(), port.to_owned())),
            Err(problem) => Err(fail(Errno::INVAL, format!("{text:?}: {problem}"))),
        }
    }
}

impl PipeEnd {
    /// Key of this end of a pipe that belongs to `parent`.
    pub(crate) fn of(&self, parent: &PortKey) -> PortKey {
        PortKey::Pipe { parent: Box::new(parent.clone()), id: self.id.clone(), master: self.master }
    }
}

impl Base {
    fn parse(text: &str) -> Result<Self, NetmapFailure> {
        if text.starts_with("vale") {
            let (switch, port) = Name::of_vale(text)?;
            return Ok(Self::Switch { switch, port });
        }
        match check_interface_name(text) {
            Ok(()) => Ok(Self::Plain(text.to_owned())),
            Err(problem) => Err(fail(Errno::NXIO, format!("{text:?}: {problem}"))),
        }
    }
}

/// Key of a port. Ports of different kinds have different keys, whatever their names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PortKey {
    /// Port of a switch, while a program has it open.
    Switch { switch: String, port: String },
    /// Port made by NEWIF or by the first pipe of its name; it may be on a switch too.
    Persistent(String),
    /// An interface; `netns` is the label of a network namespace other than the daemon's.
    Interface { interface: String, netns: Option<String> },
    /// An end of a pipe.
    Pipe { parent: Box<PortKey>, id: String, master: bool },
    /// The monitor that a device is bound to.
    Monitor { of: Box<PortKey>, device: u64 },
    /// The null port that a device is bound to.
    Null { device: u64 },
}

impl PortKey {
    /// Key of the other end of a pipe.
    pub(crate) fn other_end(&self) -> Option<Self> {
        match self {
            Self::Pipe { parent, id, master } => {
                Some(Self::Pipe { parent: parent.clone(), id: id.clone(), master: !master })
            }
            _ => None,
        }
    }

    /// Key of the port whose rules apply: pipes and monitors follow the rules of their port.
    pub(crate) fn base(&self) -> &Self {
        match self {
            Self::Pipe { parent, .. } => parent.base(),
            Self::Monitor { of, .. } => of.base(),
            _ => self,
        }
    }
}

impl fmt::Display for PortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch { switch, port } => write!(f, "{switch}:{port}"),
            Self::Persistent(name) | Self::Interface { interface: name, netns: None } => f.write_str(name),
            Self::Interface { interface, netns: Some(netns) } => write!(f, "{interface}@netns={netns}"),
            Self::Pipe { parent, id, master: true } => write!(f, "{parent}{{{id}"),
            Self::Pipe { parent, id, master: false } => write!(f, "{parent}}}{id}"),
            Self::Monitor { of, device } => write!(f, "{of}/{device}"),
            Self::Null { device } => write!(f, "null/{device}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_port_or_an_end_of_its_pipe() {
        let vale = || Base::Switch { switch: "vale0".into(), port: "a".into() };
        let plain = || Base::Plain("eth0".into());
        let end = |id: &str, master| Some(PipeEnd { id: id.into(), master });
        for (text, base, pipe) in [
            ("vale0:a", vale(), None),
            ("eth0", plain(), None),
            ("vale0:a{x", vale(), end("x", true)),
            ("eth0}7", plain(), end("7", false)),
        ] {
            assert_eq!(Name::parse(text).unwrap(), Name { base, pipe }, "{text}");
        }
    }

    #[test]
    fn names_without_meaning_have_their_errno() {
        let errno = |text: &str| Name::parse(text).unwrap_err().errno;
        for text in [
            "{1",
            "x{",
            "vale0",
            "vale0:",
            "vale-0:a",
            "vale0:sixteen-bytes-16",
            "x/1{1",
            "x{sixteen_bytes_16",
        ] {
            assert_eq!(errno(text), Errno::INVAL, "{text}");
        }
        for text in ["", "an-interface-of-17", "x/1", "a\nb", "\x1b[31m", "x@net:[1]"] {
            assert_eq!(errno(text), Errno::NXIO, "{text:?}");
        }
        for text in ["vale0:\x1b[31mRED", "vale0:a\nb", "vale0:x/9", "x{a/3", "x{\x07"] {
            assert_eq!(errno(text), Errno::INVAL, "{text:?}");
        }
        assert_eq!(Name::of_vale("eth0:1").unwrap_err().errno, Errno::INVAL);
    }

    #[test]
    fn pipes_do_not_nest_however_deep() {
        for text in ["x{a{b".to_owned(), "x{a}b".to_owned(), format!("vale0:a{}", "{1".repeat(32_000))] {
            assert_eq!(Name::parse(&text).unwrap_err().errno, Errno::INVAL);
        }
    }

    #[test]
    fn text_quoted_in_a_message_has_no_control_characters() {
        for text in ["vale0:\x1b[31mRED", "a\nb", "x{\x07", "\u{9b}1m{1"] {
            let message = Name::parse(text).unwrap_err().message;
            assert!(!message.contains(char::is_control), "{message:?}");
        }
    }
}
