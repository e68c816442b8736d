//! What the name in a request means.

use rustix::io::Errno;

use super::failure::{Failure, fail};

/// Longest name of a port, switch or interface, bytes (`IFNAMSIZ` less the NUL).
const MAX_NAME_BYTES: usize = 15;

/// A name as the search order of REGISTER finds it, monitors apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    /// `parent{id` (master) or `parent}id`.
    Pipe { parent: String, id: String, master: bool },
    /// `valeX:port`.
    Vale { switch: String, port: String },
    /// An interface or a persistent port.
    Plain(String),
}

impl Name {
    /// Reads `text`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let brace = text.rfind('{').map(|at| (at, true)).or_else(|| text.rfind('}').map(|at| (at, false)));
        if let Some((at, master)) = brace {
            let (parent, id) = (&text[..at], &text[at + 1..]);
            if parent.is_empty() || id.is_empty() {
                return Err(fail(Errno::INVAL, format!("{text:?}: a pipe is PORT{{ID or PORT}}ID")));
            }
            return Ok(Self::Pipe { parent: parent.to_owned(), id: id.to_owned(), master });
        }
        if text.starts_with("vale") {
            return Self::parse_vale(text);
        }
        match text.is_empty() || text.len() > MAX_NAME_BYTES {
            true => Err(fail(Errno::NXIO, format!("there is no port {text:?}"))),
            false => Ok(Self::Plain(text.to_owned())),
        }
    }

    fn parse_vale(text: &str) -> Result<Self, Failure> {
        let wrong = || fail(Errno::INVAL, format!("{text:?}: a port of a switch is valeID:PORT"));
        let (switch, port) = text.split_once(':').ok_or_else(wrong)?;
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if !switch.bytes().all(is_word)
            || switch.len() > MAX_NAME_BYTES
            || port.is_empty()
            || port.len() > MAX_NAME_BYTES
        {
            return Err(wrong());
        }
        Ok(Self::Vale { switch: switch.to_owned(), port: port.to_owned() })
    }

    /// The switch and port of a request that is about a switch; EINVAL for any other name.
    pub(crate) fn of_vale(text: &str) -> Result<(String, String), Failure> {
        match Self::parse_vale(text)? {
            Self::Vale { switch, port } if text.starts_with("vale") => Ok((switch, port)),
            _ => Err(fail(Errno::INVAL, format!("{text:?} is not a port of a switch"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_match_in_the_search_order_wins() {
        let pipe =
            |parent: &str, id: &str, master| Name::Pipe { parent: parent.into(), id: id.into(), master };
        assert_eq!(Name::parse("vale0:a{x").unwrap(), pipe("vale0:a", "x", true));
        assert_eq!(Name::parse("eth0}7").unwrap(), pipe("eth0", "7", false));
        assert_eq!(Name::parse("vale0:a").unwrap(), Name::Vale { switch: "vale0".into(), port: "a".into() });
        assert_eq!(Name::parse("eth0").unwrap(), Name::Plain("eth0".into()));
    }

    #[test]
    fn names_that_mean_nothing_have_their_errno() {
        let errno = |text: &str| Name::parse(text).unwrap_err().errno;
        for text in ["{1", "x{", "vale0", "vale0:", "vale-0:a", "vale0:sixteen-bytes-16"] {
            assert_eq!(errno(text), Errno::INVAL, "{text}");
        }
        assert_eq!(errno(""), Errno::NXIO);
        assert_eq!(errno("an-interface-of-17"), Errno::NXIO);
        assert_eq!(Name::of_vale("eth0:1").unwrap_err().errno, Errno::INVAL);
    }
}
