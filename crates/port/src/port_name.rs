//! The grammar of port names, one for library, CLI and daemon.
//!
//! ```text
//! name    := base { "@" option { "," option } }
//! base    := "vale" ID ":" PORT        port PORT of switch valeID
//!          | PARENT "{" ID             master end of a pipe        (also netmap:PARENT{ID)
//!          | PARENT "}" ID             slave end of the same pipe
//!          | "null:" [ settings ]      size=BYTES copy=0|1 no-rx=0|1
//!          | "pcap:" FILE              frames of a capture file
//!          | "pcap:" "in=" FILE [ ",out=" FILE ] | "pcap:" "out=" FILE
//!          | [ "netmap:" | "xdp:" | "packet:" ] IFACE      a network interface; which mechanism is the prefix's
//!          | [ "netmap:" ] IFACE "^"   the host stack's side of it
//!          | "tap:" [ NAME ]           a TAP interface
//!          | ( "vhost-user:" | "virtio-user:" | "memif:" ) PATH    a program behind a UNIX socket
//! option  := [ "conf:" ] KEY "=" NUMBER | "share=" NAME | DEVICE-KEY [ "=" VALUE ]
//! KEY     := queues (rings) | slots | buf-size | extra-bufs
//! ID      := letters, digits, underscore (empty for the switch "vale:")
//! ```
//!
//! The device keys are [`DeviceOptions`]'s.
//!
//! Names are netmap's where netmap has them: a switch name and a port name have at most 15 bytes each.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::device_options::{DeviceOptions, Wisher, check_interface_name};

/// Longest switch, port or pipe name, bytes.
pub const MAX_NAME_BYTES: usize = 15;

/// Side of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PipeSide {
    /// `{`
    Master,
    /// `}`
    Slave,
}

impl PipeSide {
    /// The other end.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Master => Self::Slave,
            Self::Slave => Self::Master,
        }
    }
}

/// What kind of port a name means.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PortBase {
    /// A port of a switch.
    Switch {
        /// Switch, with its `vale` prefix.
        switch: String,
        /// Port on the switch.
        port: String,
    },
    /// An end of a pipe.
    Pipe {
        /// Name before the brace.
        parent: String,
        /// Identifier behind it.
        id: String,
        /// Which end.
        side: PipeSide,
    },
    /// A port that invents and discards frames, to measure what everything else costs.
    Null {
        /// Length of every frame it gives, bytes without FCS.
        size_bytes: u16,
        /// Whether frames are copied, as a real port would, or only counted.
        copy: bool,
        /// Gives no frames, only takes them.
        no_rx: bool,
    },
    /// A capture file.
    Pcap {
        /// Frames come from here.
        input: Option<PathBuf>,
        /// Frames go there.
        output: Option<PathBuf>,
    },
    /// A network interface.
    Interface {
        /// Name of the interface.
        interface: String,
        /// How its frames are had.
        mechanism: Mechanism,
    },
    /// The host stack's side of an interface: what the stack sends through it, and frames that it is to take as received on it.
    HostStack {
        /// Name of the interface.
        interface: String,
    },
    /// A TAP interface, made with the port.
    Tap {
        /// Its name; empty leaves it to the kernel.
        interface: String,
    },
    /// A foreign program behind a UNIX socket.
    Socket {
        /// What is spoken there.
        protocol: SocketProtocol,
        /// Where it is.
        path: PathBuf,
    },
}

/// How two programs share rings that a UNIX socket brings together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SocketProtocol {
    /// vhost-user, as the side that serves a guest's virtio-net card.
    VhostUser,
    /// vhost-user, as the side that has the card: a guest of another switch.
    VirtioUser,
    /// memif.
    Memif,
    /// SZE2, as the capture card.
    Sze2,
    /// SZE2, as a program of the card's.
    Szedata,
}

impl SocketProtocol {
    const ALL: [Self; 5] = [Self::VhostUser, Self::VirtioUser, Self::Memif, Self::Sze2, Self::Szedata];

    /// What stands before the colon of a name.
    #[must_use]
    pub fn scheme(self) -> &'static str {
        match self {
            Self::VhostUser => "vhost-user",
            Self::VirtioUser => "virtio-user",
            Self::Memif => "memif",
            Self::Sze2 => "sze2",
            Self::Szedata => "szedata",
        }
    }
}

/// How the frames of a network interface are had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// The best that works: AF_XDP in its best mode, else AF_PACKET.
    Best,
    /// AF_XDP.
    Xdp,
    /// AF_PACKET: a copy of what the host stack gets too.
    Packet,
}

/// Wishes that a name can carry; `None` leaves the default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PortOptions {
    /// Name of a port whose region this one shares, so that buffers can be exchanged between them.
    pub share: Option<String>,
    /// Number of queues.
    pub queues: Option<u16>,
    /// Slots per ring.
    pub slots: Option<u32>,
    /// Size of a buffer, bytes.
    pub buffer_bytes: Option<u32>,
    /// Buffers besides those in slots.
    pub extra_buffers: Option<u32>,
    /// Wishes that only devices understand.
    pub device: DeviceOptions,
}

/// A parsed port name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PortName {
    /// The port.
    pub base: PortBase,
    /// Wishes.
    pub options: PortOptions,
}

/// Why a name does not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "port name {name:?}: {problem}; names look like vale0:a, x{{1 and x}}1, eth0, eth0^, tap:t0, vhost-user:SOCKET, memif:SOCKET, null:size=60, \
     pcap:FILE"
)]
pub struct PortNameError {
    /// The name as given.
    pub name: String,
    /// What is wrong with it.
    pub problem: String,
}

impl FromStr for PortName {
    type Err = PortNameError;

    fn from_str(text: &str) -> Result<Self, PortNameError> {
        let fail = |problem: String| PortNameError { name: text.to_owned(), problem };
        if text.contains('\0') {
            return Err(fail("it holds a NUL byte".into()));
        }
        // A file name may hold anything, so only what looks like options is split off behind it.
        if let Some(rest) = text.strip_prefix("pcap:") {
            return Ok(Self { base: parse_pcap(rest).map_err(fail)?, options: PortOptions::default() });
        }
        let (base_text, option_text) = match text.split_once('@') {
            Some((base, options)) => (base, Some(options)),
            None => (text, None),
        };
        let base = parse_base(base_text).map_err(fail)?;
        let options = match option_text {
            Some(options) => parse_options(options).map_err(fail)?,
            None => PortOptions::default(),
        };
        options.device.check(base.wisher()).map_err(fail)?;
        Ok(Self { base, options })
    }
}

impl PortBase {
    /// Which options it understands.
    fn wisher(&self) -> Wisher {
        match self {
            Self::Switch { .. } | Self::Pipe { .. } | Self::Null { .. } | Self::Pcap { .. } => {
                Wisher::NoDevice
            }
            Self::Interface { .. } | Self::HostStack { .. } | Self::Tap { .. } => Wisher::Interface,
            Self::Socket { protocol, .. } => Wisher::Socket(*protocol),
        }
    }
}

fn parse_base(text: &str) -> Result<PortBase, String> {
    if let Some(settings) = text.strip_prefix("null:") {
        return parse_null(settings);
    }
    if let Some(brace) = text.find(['{', '}']) {
        let (parent, rest) = text.split_at(brace);
        let side = if rest.starts_with('{') { PipeSide::Master } else { PipeSide::Slave };
        let parent = parent.strip_prefix("netmap:").unwrap_or(parent);
        let id = rest.get(1..).unwrap_or("");
        check_identifier("the name before the brace", parent, ":.-")?;
        check_pipe_id(id)?;
        return Ok(PortBase::Pipe { parent: parent.to_owned(), id: id.to_owned(), side });
    }
    if let Some(interface) = text.strip_prefix("tap:") {
        if !interface.is_empty() {
            check_interface_name(interface)?;
        }
        return Ok(PortBase::Tap { interface: interface.to_owned() });
    }
    for protocol in SocketProtocol::ALL {
        if let Some(path) = text.strip_prefix(protocol.scheme()).and_then(|rest| rest.strip_prefix(':')) {
            if path.is_empty() {
                return Err("the path of the socket is missing".into());
            }
            return Ok(PortBase::Socket { protocol, path: path.into() });
        }
    }
    let Some((scheme, port)) = text.split_once(':') else {
        return parse_interface(text, Mechanism::Best);
    };
    match scheme {
        "netmap" => return parse_interface(port, Mechanism::Best),
        "xdp" => return parse_interface(port, Mechanism::Xdp),
        "packet" => return parse_interface(port, Mechanism::Packet),
        _ => {}
    }
    if !scheme.starts_with("vale") {
        return Err(format!("there is no scheme {scheme:?}"));
    }
    let (switch, port) = split_switch_port(text)?;
    Ok(PortBase::Switch { switch: switch.to_owned(), port: port.to_owned() })
}

/// Switch and port of a name such as `vale0:a`.
///
/// # Errors
/// What is wrong with it.
pub fn split_switch_port(text: &str) -> Result<(&str, &str), String> {
    let (switch, port) = text.split_once(':').ok_or("a port of a switch is valeID:PORT")?;
    if !switch.starts_with("vale") {
        return Err(format!("the switch {switch:?} does not begin with vale"));
    }
    check_identifier("the switch", switch, "")?;
    // An interface attached with its host stack has two ports, eth0 and eth0^.
    check_identifier("the port", port, ".-^")?;
    Ok((switch, port))
}

/// Checks the name of a port that is on no switch and that we make, so that it can be told from every other kind of name.
///
/// # Errors
/// What is wrong with it.
pub fn check_plain_name(name: &str) -> Result<(), String> {
    check_identifier("the port", name, ".-")
}

/// Checks what stands behind the brace of a pipe's name.
///
/// # Errors
/// What is wrong with it.
pub fn check_pipe_id(id: &str) -> Result<(), String> {
    check_identifier("the pipe's id", id, "")
}

fn parse_interface(text: &str, mechanism: Mechanism) -> Result<PortBase, String> {
    if let Some(interface) = text.strip_suffix('^') {
        if mechanism != Mechanism::Best {
            return Err("the host stack's side has no mechanism to choose: write IFACE^".into());
        }
        check_interface_name(interface)?;
        return Ok(PortBase::HostStack { interface: interface.to_owned() });
    }
    check_interface_name(text)?;
    Ok(PortBase::Interface { interface: text.to_owned(), mechanism })
}

fn check_identifier(what: &str, text: &str, besides: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err(format!("{what} is empty"));
    }
    if text.len() > MAX_NAME_BYTES {
        return Err(format!("{what} {text:?} is longer than {MAX_NAME_BYTES} bytes"));
    }
    match text.chars().find(|&c| !(c.is_ascii_alphanumeric() || c == '_' || besides.contains(c))) {
        Some(odd) => Err(format!("{what} {text:?} holds {odd:?}")),
        None => Ok(()),
    }
}

fn parse_null(settings: &str) -> Result<PortBase, String> {
    let (mut size_bytes, mut copy, mut no_rx) = (60, false, false);
    for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
        match setting.split_once('=') {
            Some(("size", value)) => {
                size_bytes = value
                    .parse()
                    .ok()
                    .filter(|size| *size >= 14)
                    .ok_or_else(|| format!("size {value:?} is not a number from 14 to 65535"))?;
            }
            Some(("copy", value @ ("0" | "1"))) => copy = value == "1",
            Some(("no-rx", value @ ("0" | "1"))) => no_rx = value == "1",
            _ => {
                return Err(format!(
                    "a null port has no setting {setting:?}; it has size=BYTES, copy=0|1 and no-rx=0|1"
                ));
            }
        }
    }
    Ok(PortBase::Null { size_bytes, copy, no_rx })
}

fn parse_pcap(rest: &str) -> Result<PortBase, String> {
    if rest.is_empty() {
        return Err("the file is missing".into());
    }
    let file = |path: &str| -> Result<Option<PathBuf>, String> {
        if path.is_empty() { Err("the file is missing".into()) } else { Ok(Some(PathBuf::from(path))) }
    };
    if let Some(output) = rest.strip_prefix("out=") {
        return Ok(PortBase::Pcap { input: None, output: file(output)? });
    }
    if let Some(both) = rest.strip_prefix("in=") {
        let (input, output) = match both.split_once(",out=") {
            Some((input, output)) => (input, file(output)?),
            None => (both, None),
        };
        return Ok(PortBase::Pcap { input: file(input)?, output });
    }
    Ok(PortBase::Pcap { input: file(rest)?, output: None })
}

fn parse_options(text: &str) -> Result<PortOptions, String> {
    let mut options = PortOptions::default();
    for group in text.split('@') {
        for item in group.strip_prefix("conf:").unwrap_or(group).split(',') {
            if let Some(port) = item.strip_prefix("share=").or_else(|| item.strip_prefix("share:port=")) {
                if port.is_empty() {
                    return Err("share= names no port".into());
                }
                options.share = Some(port.to_owned());
                continue;
            }
            let (key, value) = match item.split_once('=') {
                Some((key, value)) => (key.replace('_', "-"), Some(value)),
                None => (item.replace('_', "-"), None),
            };
            let number = || -> Result<u32, String> {
                let value = value.ok_or_else(|| format!("option {item:?} is not KEY=NUMBER"))?;
                value.parse().map_err(|_| format!("option {key} is {value:?}, which is not a number"))
            };
            match key.as_str() {
                "queues" | "rings" => {
                    let number = number()?;
                    options.queues = Some(u16::try_from(number).map_err(|_| format!("{number} queues"))?);
                }
                "slots" => options.slots = Some(number()?),
                "buf-size" => options.buffer_bytes = Some(number()?),
                "extra-bufs" => options.extra_buffers = Some(number()?),
                _ => options.device.set(&key, value)?,
            }
        }
    }
    Ok(options)
}

impl fmt::Display for PortBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch { switch, port } => write!(f, "{switch}:{port}"),
            Self::Pipe { parent, id, side: PipeSide::Master } => write!(f, "{parent}{{{id}"),
            Self::Pipe { parent, id, side: PipeSide::Slave } => write!(f, "{parent}}}{id}"),
            Self::Null { size_bytes, copy, no_rx } => {
                write!(f, "null:size={size_bytes},copy={},no-rx={}", u8::from(*copy), u8::from(*no_rx))
            }
            Self::Pcap { input, output } => match (input, output) {
                (Some(input), Some(output)) => {
                    write!(f, "pcap:in={},out={}", input.display(), output.display())
                }
                (Some(input), None) => write!(f, "pcap:in={}", input.display()),
                (None, Some(output)) => write!(f, "pcap:out={}", output.display()),
                (None, None) => write!(f, "pcap:"),
            },
            Self::Interface { interface, mechanism } => match mechanism {
                Mechanism::Best => write!(f, "{interface}"),
                Mechanism::Xdp => write!(f, "xdp:{interface}"),
                Mechanism::Packet => write!(f, "packet:{interface}"),
            },
            Self::HostStack { interface } => write!(f, "{interface}^"),
            Self::Tap { interface } => write!(f, "tap:{interface}"),
            Self::Socket { protocol, path } => write!(f, "{}:{}", protocol.scheme(), path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn base(text: &str) -> PortBase {
        text.parse::<PortName>().unwrap().base
    }

    #[test]
    fn names_of_every_kind_parse() {
        assert_eq!(base("vale0:a"), PortBase::Switch { switch: "vale0".into(), port: "a".into() });
        assert_eq!(
            base("netmap:x}1"),
            PortBase::Pipe { parent: "x".into(), id: "1".into(), side: PipeSide::Slave }
        );
        assert_eq!(base("null:"), PortBase::Null { size_bytes: 60, copy: false, no_rx: false });
        assert_eq!(
            base("null:size=1514,copy=1"),
            PortBase::Null { size_bytes: 1514, copy: true, no_rx: false }
        );
        assert_eq!(
            base("pcap:in=a,b.pcap,out=c@d.pcapng"),
            PortBase::Pcap { input: Some("a,b.pcap".into()), output: Some("c@d.pcapng".into()) }
        );
    }

    #[test]
    fn interfaces_are_named_plainly_or_with_a_mechanism() {
        let interface = |mechanism| PortBase::Interface { interface: "eth0".into(), mechanism };
        assert_eq!(base("eth0"), interface(Mechanism::Best));
        assert_eq!(base("netmap:eth0"), interface(Mechanism::Best));
        assert_eq!(base("xdp:eth0"), interface(Mechanism::Xdp));
        assert_eq!(base("packet:eth0@fanout=cpu"), interface(Mechanism::Packet));
        assert_eq!(base("netmap:eth0^"), PortBase::HostStack { interface: "eth0".into() });
        assert_eq!(base("tap:"), PortBase::Tap { interface: String::new() });
        let socket = |protocol, path: &str| PortBase::Socket { protocol, path: path.into() };
        assert_eq!(base("vhost-user:/run/a:b.sock"), socket(SocketProtocol::VhostUser, "/run/a:b.sock"));
        assert_eq!(base("virtio-user:s"), socket(SocketProtocol::VirtioUser, "s"));
        assert_eq!(base("memif:/s"), socket(SocketProtocol::Memif, "/s"));
        assert_eq!(base("sze2:/s"), socket(SocketProtocol::Sze2, "/s"));
        assert_eq!(base("szedata:/s"), socket(SocketProtocol::Szedata, "/s"));
        let name: PortName = "memif:/s@role=client,id=3,queues=2,secret=x".parse().unwrap();
        assert_eq!((name.options.device.id, name.options.queues), (Some(3), Some(2)));
    }

    #[test]
    fn options_are_read_in_netmaps_spelling_too() {
        for text in
            ["vale1:p@conf:rings=4,slots=256@share=vale1:q", "vale1:p@share=vale1:q,rings=4,slots=256"]
        {
            let name: PortName = text.parse().unwrap();
            assert_eq!(name.options.queues, Some(4), "{text}");
            assert_eq!(name.options.slots, Some(256), "{text}");
            assert_eq!(name.options.share.as_deref(), Some("vale1:q"), "{text}");
        }
    }

    #[test]
    fn bad_names_say_what_is_wrong() {
        for (text, part) in [
            ("", "the interface is missing"),
            ("an interface", "' '"),
            ("xdp:", "interface is missing"),
            ("xdp:eth0^", "IFACE^"),
            ("eth0@mode=fast", "mode"),
            ("vale0:a@promisc", "promisc"),
            ("eth0@mac=02:00", "mac"),
            ("memif:", "path"),
            ("vhost-user:/s@id=1", "vhost-user port has no option id"),
            ("eth0@role=client", "memif"),
            ("vale0:a@secret=x", "memif"),
            ("bridge:a", "bridge"),
            ("vale0:", "the port is empty"),
            ("vale0:a b", "' '"),
            ("vale0:abcdefghijklmnopq", "longer"),
            ("x{", "id is empty"),
            ("{1", "before the brace"),
            ("null:size=3", "size"),
            ("pcap:", "file"),
            ("vale0:a@slots=many", "number"),
            ("vale0:a@colour=3", "colour"),
        ] {
            let error = text.parse::<PortName>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?} gave {error:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".*") {
            let _ = text.parse::<PortName>();
        }

        #[test]
        fn what_is_shown_parses_to_the_same(text in "(vale[0-9]{0,2}:[a-z]{1,9}|[a-z]{1,9}[{}][a-z0-9]{1,5}|null:size=[1-9][0-9]{2},copy=[01]|pcap:in=[a-z@/]{1,9},out=[a-z,]{1,9}|(vhost-user|virtio-user|memif):[a-z/.:]{1,9})") {
            let name: PortName = text.parse().unwrap();
            prop_assert_eq!(name.base.to_string().parse::<PortName>().unwrap(), name);
        }
    }
}
