//! Grammar of port names, which library, CLI and daemon share.
//!
//! ```text
//! name    := base { "@" option { "," option } }
//! base    := "vale" ID ":" PORT        port PORT of switch valeID
//!          | PARENT "{" ID             master end of a pipe        (also netmap:PARENT{ID)
//!          | PARENT "}" ID             slave end of the same pipe
//!          | SCHEME ":" TARGET         a device, as the catalogue has its kind
//!          | [ "netmap:" ] IFACE       a network interface
//!          | [ "netmap:" ] IFACE "^"   the host stack's side of it
//! option  := [ "conf:" ] KEY [ "=" VALUE ]        a list has commas, too: no key begins with a digit
//! ID      := letters, digits, underscore (empty for the switch "vale:")
//! ```
//!
//! [`COMMON_OPTIONS`] lists the options of all ports, [`SWITCH_PORT_OPTIONS`] those of switch ports. A device's kind
//! lists its own options.
//!
//! Names are as in netmap wherever netmap has a name. Names of switches and of their ports have at most 15 bytes each.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use ringroad_port::port_settings::PortSettings;
use ringroad_ring::geometry::{BUFFER_BYTES_RANGE, MAX_EXTRA_BUFFERS, MAX_QUEUES, SLOTS_RANGE};

use super::port_kind::{DeviceName, NameTarget, PortKind, Spelling};
use super::port_option::{OptionValues, PortOption, ValueKind};
use super::switch_port::{self, SWITCH_PORT_OPTIONS};
use super::{forms, kinds};

/// Maximum length of the name of a switch, port or pipe, bytes.
pub const MAX_NAME_BYTES: usize = 15;

/// Side of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PipeSide {
    /// Master end, `{` in names.
    Master,
    /// Slave end, `}` in names.
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

/// Base of a name: the port without options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortBase {
    /// A port of a switch.
    Switch {
        /// Name of the switch, with its `vale` prefix.
        switch: String,
        /// Name of the port on the switch.
        port: String,
    },
    /// An end of a pipe.
    Pipe {
        /// Name before the brace.
        parent: String,
        /// Identifier behind the brace.
        id: String,
        /// End of the pipe.
        side: PipeSide,
    },
    /// A device.
    Device(DeviceName),
}

/// Options that a name can carry; `None` leaves the default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PortOptions {
    /// Name of a port whose region this one shares, so that buffers can be exchanged between them.
    pub share: Option<String>,
    /// Number of queues.
    pub queues: Option<u16>,
    /// Number of slots per ring.
    pub slots: Option<u32>,
    /// Size of a buffer, bytes.
    pub buffer_bytes: Option<u32>,
    /// Number of buffers beside those in slots.
    pub extra_buffers: Option<u32>,
    /// Options of the device's kind.
    pub device: OptionValues,
    /// VLANs and limits of a port of a switch.
    pub settings: PortSettings,
}

/// A parsed port name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortName {
    pub base: PortBase,
    /// The options in the name.
    pub options: PortOptions,
}

const QUEUES: PortOption = PortOption::new(
    "queues",
    ValueKind::Number { least: 1, most: MAX_QUEUES as u64 },
    "1; of an interface as many as it has",
    "ring pairs; `rings` is the same",
);
const SLOTS: PortOption = PortOption::new(
    "slots",
    ValueKind::Number { least: *SLOTS_RANGE.start() as u64, most: *SLOTS_RANGE.end() as u64 },
    "1024",
    "slots of each ring; one always stays unused",
);
const BUFFER_BYTES: PortOption = PortOption::new(
    "buf-size",
    ValueKind::Number { least: *BUFFER_BYTES_RANGE.start() as u64, most: *BUFFER_BYTES_RANGE.end() as u64 },
    "2112; over AF_XDP 2048, or 4096 where a card may write into them",
    "bytes of a buffer, a multiple of 64; a longer frame takes several slots, 64 at most",
);
const EXTRA_BUFFERS: PortOption = PortOption::new(
    "extra-bufs",
    ValueKind::Number { least: 0, most: MAX_EXTRA_BUFFERS as u64 },
    "0",
    "buffers beside those in slots",
);
const SHARE: PortOption = PortOption::new(
    "share",
    ValueKind::Text { most_bytes: 4096 },
    "a region of its own",
    "lie in the region of this port, which is open and which the user may have: the two ports can exchange buffers. A region has \
     room for four ports, for one where memory ran short",
);

/// Options that every port has.
pub const COMMON_OPTIONS: [&PortOption; 5] = [&QUEUES, &SLOTS, &BUFFER_BYTES, &EXTRA_BUFFERS, &SHARE];

/// Reason why a name is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("port name {name:?}: {problem}")]
pub struct PortNameError {
    /// The name as given.
    pub name: String,
    pub problem: String,
}

impl FromStr for PortName {
    type Err = PortNameError;

    fn from_str(text: &str) -> Result<Self, PortNameError> {
        Self::parse(text).map_err(|problem| PortNameError { name: text.to_owned(), problem })
    }
}

impl PortName {
    fn parse(text: &str) -> Result<Self, String> {
        if text.contains('\0') {
            return Err("it holds a NUL byte".into());
        }
        // File names may contain any character, so ports of capture files take no options.
        let takes_options = scheme_of(text).is_none_or(|(kind, _)| kind.target != NameTarget::CaptureFiles);
        let (base, options) = match text.split_once('@').filter(|_| takes_options) {
            Some((base, options)) => (parse_base(base).map_err(with_forms)?, Some(options)),
            None => (parse_base(text).map_err(with_forms)?, None),
        };
        let settings = base.device().filter(|device| device.kind.target == NameTarget::Settings);
        let settings = settings.map(|device| device.target.as_str());
        let mut all = PortOptions::default();
        for part in settings.into_iter().chain(options).flat_map(|text| text.split('@')) {
            for item in items(part.strip_prefix("conf:").unwrap_or(part)) {
                // `null:` without settings has an empty item, which is not an option without a name.
                if !(item.is_empty() && settings.is_some()) {
                    all.set(item, &base)?;
                }
            }
        }
        if let PortBase::Switch { .. } = base {
            all.settings = switch_port::settings(&std::mem::take(&mut all.device))?;
        }
        Ok(Self { base, options: all })
    }

    /// Returns the name with absolute paths of files and sockets, and with the same options. Relative paths are
    /// resolved from `folder`.
    #[must_use]
    pub fn text_with_absolute_paths(text: &str, folder: &Path) -> String {
        let Ok(Self { base: PortBase::Device(device), .. }) = text.parse() else { return text.to_owned() };
        let absolute = device.with_absolute_paths(folder);
        if device == absolute {
            return text.to_owned();
        }
        let options = text.split_once('@').filter(|_| device.kind.target != NameTarget::CaptureFiles);
        match options {
            Some((_, options)) => format!("{absolute}@{options}"),
            None => absolute.to_string(),
        }
    }
}

/// Returns the name of a switch port with `settings` in place of its own, and with its other options.
#[must_use]
pub fn text_with_settings(text: &str, settings: &PortSettings) -> String {
    let is_setting = |key: &str| SWITCH_PORT_OPTIONS.iter().any(|option| option.key == key);
    let (base, mut options) = text_without(text, is_setting);
    options.extend(Some(settings.to_string()).filter(|settings| !settings.is_empty()));
    if options.is_empty() { base.to_owned() } else { format!("{base}@{}", options.join(",")) }
}

/// Returns the name of the port for the host stack's side of an interface, whose own port is called `text`. The host
/// stack's port has no region to share.
#[must_use]
pub fn host_side_text(text: &str) -> String {
    let (base, options) = text_without(text, |key| key == SHARE.key || key == "share:port");
    if options.is_empty() { format!("{base}^") } else { format!("{base}^@{}", options.join(",")) }
}

/// Splits a name into the part without options, and the options whose keys are not `left_out`.
fn text_without(text: &str, left_out: impl Fn(&str) -> bool) -> (&str, Vec<String>) {
    let (base, options) = text.split_once('@').unwrap_or((text, ""));
    let parts = options.split('@').map(|part| part.strip_prefix("conf:").unwrap_or(part));
    let kept = parts.flat_map(items).filter(|item| {
        let key = item.split('=').next().unwrap_or_default();
        !item.is_empty() && !left_out(key)
    });
    (base, kept.map(str::to_owned).collect())
}

impl PortOptions {
    /// Stores the option `item` of a port with base `base`.
    fn set(&mut self, item: &str, base: &PortBase) -> Result<(), String> {
        let item = item.replacen("share:port=", "share=", 1);
        let (key, value) = match item.split_once('=') {
            Some((key, value)) => (key.replace('_', "-"), Some(value)),
            None => (item.replace('_', "-"), None),
        };
        let key = if key == "rings" { QUEUES.key } else { key.as_str() };
        if let Some(option) = COMMON_OPTIONS.iter().find(|option| option.key == key) {
            let mut given = OptionValues::default();
            given.set(option, value)?;
            self.queues = given.number(&QUEUES).or(self.queues);
            self.slots = given.number(&SLOTS).or(self.slots);
            self.buffer_bytes = given.number(&BUFFER_BYTES).or(self.buffer_bytes);
            self.extra_buffers = given.number(&EXTRA_BUFFERS).or(self.extra_buffers);
            if let Some(port) = given.text(&SHARE) {
                self.share = Some(port.to_owned());
            }
            return Ok(());
        }
        let kind = base.device().map(|device| device.kind);
        let own: &[&PortOption] = match base {
            PortBase::Switch { .. } => &SWITCH_PORT_OPTIONS,
            PortBase::Pipe { .. } => &[],
            PortBase::Device(device) => device.kind.options,
        };
        if let Some(option) = own.iter().find(|option| option.key == key) {
            return self.device.set(option, value);
        }
        let (noun, keys) = match (kind, base) {
            (Some(kind), _) => (kind.noun(), kind.option_keys()),
            (None, PortBase::Switch { .. }) => ("port of a switch".to_owned(), keys_of(&SWITCH_PORT_OPTIONS)),
            (None, _) => ("pipe".to_owned(), "none of its own".to_owned()),
        };
        let common = keys_of(&COMMON_OPTIONS);
        let on_switches = SWITCH_PORT_OPTIONS.iter().any(|option| option.key == key).then_some("vale0:a");
        let of_kinds = kinds().filter(|kind| kind.has_option(key)).map(|kind| kind.form);
        let elsewhere: Vec<_> = on_switches.into_iter().chain(of_kinds).collect();
        let elsewhere = match elsewhere.as_slice() {
            [] => String::new(),
            forms => format!("; {key} is an option of {}", forms.join(", ")),
        };
        Err(format!("a {noun} has no option {key}{elsewhere}; it has {keys}, and like every port {common}"))
    }

    /// Key of the first given option that the daemon accepts from administrators only.
    #[must_use]
    pub fn for_administrators(&self) -> Option<&'static str> {
        let options = kinds().flat_map(|kind| kind.options).filter(|option| option.for_administrators);
        options.map(|option| option.key).find(|key| self.device.has(key))
    }
}

impl PortBase {
    /// The device in the name, if there is one.
    #[must_use]
    pub fn device(&self) -> Option<&DeviceName> {
        match self {
            Self::Device(device) => Some(device),
            Self::Switch { .. } | Self::Pipe { .. } => None,
        }
    }
}

/// Options in a part of a name, between commas. Commas within a list are followed by digits, and no key begins with a
/// digit.
fn items(part: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(part);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut splits =
            text.match_indices(',').filter_map(|(at, _)| Some((text.get(..at)?, text.get(at + 1..)?)));
        let is_end = |(_, next): &(&str, &str)| !next.starts_with(|first: char| first.is_ascii_digit());
        let end = splits.find(is_end);
        rest = end.map(|(_, next)| next);
        Some(end.map_or(text, |(item, _)| item))
    })
}

/// Keys of options, as text for users.
fn keys_of(options: &[&PortOption]) -> String {
    options.iter().map(|option| option.key).collect::<Vec<_>>().join(", ")
}

/// Kind whose scheme begins a name, and the rest of the name.
fn scheme_of(text: &str) -> Option<(&'static PortKind, &str)> {
    let (scheme, target) = text.split_once(':')?;
    let kind = kinds().find(|kind| matches!(kind.spelling, Spelling::Scheme(own) if own == scheme))?;
    Some((kind, target))
}

/// Text of a problem with a name's base, followed by the forms of names.
fn with_forms(problem: String) -> String {
    format!("{problem}; names look like vale0:a, x{{1, x}}1, {}", forms())
}

fn device(kind: &'static PortKind, target: &str) -> Result<PortBase, String> {
    Ok(PortBase::Device(DeviceName { kind, target: kind.target.read(target)? }))
}

fn parse_base(text: &str) -> Result<PortBase, String> {
    if let Some((kind, target)) = scheme_of(text) {
        return device(kind, target);
    }
    let plain = text.strip_prefix("netmap:").unwrap_or(text);
    if let Some(brace) = plain.find(['{', '}']) {
        let (parent, rest) = plain.split_at(brace);
        let side = if rest.starts_with('{') { PipeSide::Master } else { PipeSide::Slave };
        let id = rest.get(1..).unwrap_or("");
        check_identifier("the name before the brace", parent, ":.-")?;
        check_pipe_id(id)?;
        return Ok(PortBase::Pipe { parent: parent.to_owned(), id: id.to_owned(), side });
    }
    if let Some((scheme, _)) = plain.split_once(':') {
        if !scheme.starts_with("vale") {
            return Err(format!("there is no scheme {scheme:?}, and a switch's name begins with vale"));
        }
        let (switch, port) = split_switch_port(plain)?;
        return Ok(PortBase::Switch { switch: switch.to_owned(), port: port.to_owned() });
    }
    let by_suffix = kinds().find_map(|kind| match kind.spelling {
        Spelling::Suffix(suffix) => plain.strip_suffix(suffix).map(|target| (kind, target)),
        Spelling::Bare | Spelling::Scheme(_) => None,
    });
    let bare = || kinds().find(|kind| kind.spelling == Spelling::Bare).map(|kind| (kind, plain));
    let (kind, target) = by_suffix.or_else(bare).ok_or("no kind of port has such a name")?;
    device(kind, target)
}

/// Switch and port of a name such as `vale0:a`.
///
/// # Errors
/// The problem, as text for users.
pub fn split_switch_port(text: &str) -> Result<(&str, &str), String> {
    let (switch, port) = text.split_once(':').ok_or("a port of a switch is valeID:PORT")?;
    if !switch.starts_with("vale") {
        return Err(format!("the switch {switch:?} does not begin with vale"));
    }
    check_identifier("the switch", switch, "")?;
    // An interface attached with its host stack has two ports, eth0 and eth0^. The interface's name may have the
    // maximum length.
    check_identifier("the port", port.strip_suffix('^').unwrap_or(port), ".-^")?;
    Ok((switch, port))
}

/// Checks the name of a port that is on no switch and that Ringroad creates. It must differ from every other kind of
/// name.
///
/// # Errors
/// The problem, as text for users.
pub fn check_plain_name(name: &str) -> Result<(), String> {
    check_identifier("the port", name, ".-")
}

/// Checks the part behind the brace of a pipe's name.
///
/// # Errors
/// The problem, as text for users.
pub fn check_pipe_id(id: &str) -> Result<(), String> {
    check_identifier("the pipe's id", id, "")
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

impl fmt::Display for PortBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch { switch, port } => write!(f, "{switch}:{port}"),
            Self::Pipe { parent, id, side: PipeSide::Master } => write!(f, "{parent}{{{id}"),
            Self::Pipe { parent, id, side: PipeSide::Slave } => write!(f, "{parent}}}{id}"),
            Self::Device(device) => write!(f, "{device}"),
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
    fn the_host_stacks_side_has_the_options_of_its_interface_but_no_region() {
        for (text, beside) in [
            ("vale0:eth0", "vale0:eth0^"),
            ("vale0:up@trunk=10,20,native=5", "vale0:up^@trunk=10,20,native=5"),
            ("vale0:up@share=vale0:eth0,slots=64", "vale0:up^@slots=64"),
            ("vale0:up@conf:rings=2@share:port=vale0:eth0", "vale0:up^@rings=2"),
            ("vale0:abcdefghijklmno", "vale0:abcdefghijklmno^"),
        ] {
            assert_eq!(host_side_text(text), beside);
            assert!(beside.parse::<PortName>().is_ok(), "{beside}");
        }
    }

    #[test]
    fn names_of_every_kind_parse() {
        assert_eq!(base("vale0:a"), PortBase::Switch { switch: "vale0".into(), port: "a".into() });
        assert_eq!(
            base("netmap:x}1"),
            PortBase::Pipe { parent: "x".into(), id: "1".into(), side: PipeSide::Slave }
        );
        for (text, form, target) in [
            ("eth0", "eth0", "eth0"),
            ("netmap:eth0", "eth0", "eth0"),
            ("netmap:eth0^", "eth0^", "eth0"),
            ("xdp:eth0", "xdp:eth0", "eth0"),
            ("packet:eth0@fanout=cpu", "packet:eth0", "eth0"),
            ("tap:", "tap:t0", ""),
            ("null:size=1514,copy=1", "null:size=60,copy=0,no-rx=0", "size=1514,copy=1"),
            ("pcap:in=a,b.pcap,out=c@d.pcapng", "pcap:FILE", "in=a,b.pcap,out=c@d.pcapng"),
            ("vhost-user:/run/a:b.sock", "vhost-user:SOCKET", "/run/a:b.sock"),
            ("virtio-user:s", "virtio-user:SOCKET", "s"),
            ("memif:/s@id=3", "memif:SOCKET", "/s"),
            ("sze2:/s", "sze2:SOCKET", "/s"),
            ("szedata:/s", "szedata:SOCKET", "/s"),
        ] {
            let PortBase::Device(device) = base(text) else { panic!("{text}") };
            assert_eq!((device.kind.form, device.target.as_str()), (form, target), "{text}");
        }
    }

    #[test]
    fn settings_are_options_of_their_kind() {
        let name: PortName = "null:size=100,copy@queues=2".parse().unwrap();
        assert!(name.options.device.has("size") && name.options.device.has("copy"));
        assert_eq!(name.options.queues, Some(2));
        assert_eq!("null:".parse::<PortName>().unwrap().options, PortOptions::default());
    }

    #[test]
    fn paths_of_files_and_sockets_become_absolute_and_nothing_else_changes() {
        let folder = Path::new("/here");
        for (text, absolute) in [
            ("sze2:card.sock", "sze2:/here/card.sock"),
            ("memif:m@role=client", "memif:/here/m@role=client"),
            ("vhost-user:/s", "vhost-user:/s"),
            ("pcap:a@b", "pcap:in=/here/a@b"),
            ("pcap:in=a,out=/b", "pcap:in=/here/a,out=/b"),
            ("eth0@netns=blue", "eth0@netns=blue"),
            ("vale0:a", "vale0:a"),
            ("memif:", "memif:"),
        ] {
            assert_eq!(PortName::text_with_absolute_paths(text, folder), absolute);
        }
    }

    #[test]
    fn options_that_take_something_from_others_are_for_administrators() {
        let of = |text: &str| text.parse::<PortName>().unwrap().options.for_administrators();
        assert_eq!(of("eth0@force,promisc=0"), Some("force"));
        assert_eq!(of("eth0@promisc=0"), None);
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
    fn vlans_and_limits_of_a_port_of_a_switch_are_options_of_its_name() {
        for (text, shown) in [
            ("vale0:a@vlan=10", "vlan=10"),
            ("vale0:a@trunk=10,20", "trunk=10,20"),
            ("vale0:a@trunk=10-20,30,native=5", "trunk=10-20,30,native=5"),
            ("vale0:a@native=5,trunk=30,10@storm=1000", "trunk=10,30,native=5,storm=1000"),
            ("vale0:a@trunk=all@native=5,isolated", "trunk=all,native=5,isolated"),
            ("vale0:a@slots=256,isolated=1,queues=2", "isolated"),
            ("vale0:a@isolated=0", ""),
        ] {
            let name: PortName = text.parse().unwrap();
            assert_eq!(name.options.settings.to_string(), shown, "{text}");
        }
        for (text, part) in [
            ("vale0:a@vlan=0", "1 to 4094"),
            ("vale0:a@vlan=4095", "1 to 4094"),
            ("vale0:a@vlan=10,20", "1 to 4094"),
            ("vale0:a@vlan", "needs a value"),
            ("vale0:a@trunk=10,4095", "\"4095\" is not a VLAN"),
            ("vale0:a@trunk=20-10", "begins behind its end"),
            ("vale0:a@trunk=", "needs a value"),
            ("vale0:a@vlan=10,trunk=20", "choose one of them"),
            ("vale0:a@native=5", "give trunk"),
            ("vale0:a@vlan=10,native=5", "give trunk"),
            ("vale0:a@storm=0", "1 to 10000000"),
            ("vale0:a@isolated=yes", "0 or 1"),
            ("eth0@vlan=10", "vlan is an option of vale0:a"),
            ("x{1@isolated", "isolated is an option of vale0:a"),
        ] {
            let error = text.parse::<PortName>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?} gave {error:?}");
        }
    }

    #[test]
    fn settings_in_a_name_are_replaced_and_other_options_stay() {
        for (text, settings, expected) in [
            ("vale0:a", "", "vale0:a"),
            ("vale0:a@trunk=10,20-29,native=5,isolated", "", "vale0:a"),
            (
                "vale0:a@queues=2,trunk=10,20,storm=9@conf:slots=64",
                "vlan=7",
                "vale0:a@queues=2,slots=64,vlan=7",
            ),
            ("vale0:a", "trunk=10,20,isolated", "vale0:a@trunk=10,20,isolated"),
        ] {
            let wanted = format!("vale0:x@{settings}");
            let wanted =
                wanted.strip_suffix('@').unwrap_or(&wanted).parse::<PortName>().unwrap().options.settings;
            let replaced = text_with_settings(text, &wanted);
            assert_eq!(replaced, expected);
            assert_eq!(replaced.parse::<PortName>().unwrap().options.settings, wanted);
        }
    }

    #[test]
    fn errors_for_bad_names_state_what_is_wrong() {
        for (text, part) in [
            ("", "the interface is missing"),
            ("an interface", "' '"),
            ("xdp:", "interface is missing"),
            ("xdp:eth0^", "'^'"),
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
        fn a_displayed_name_parses_to_the_same_name(text in "(vale[0-9]{0,2}:[a-z]{1,9}|[a-z]{1,9}[{}][a-z0-9]{1,5}|null:size=[1-9][0-9]{2},copy=[01]|pcap:in=[a-z@/]{1,9},out=[a-z,]{1,9}|(vhost-user|virtio-user|memif):[a-z/.:]{1,9})") {
            let name: PortName = text.parse().unwrap();
            prop_assert_eq!(name.base.to_string().parse::<PortName>().unwrap(), name);
        }
    }
}
