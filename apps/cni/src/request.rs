//! The operation and the network's configuration, from the runtime. Neither is trusted.

use std::io::Read;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};

use ringroad_attachment::device_text::check_part;
use ringroad_netdev::Namespace;
use ringroad_netdev::link::check_name;
use serde::Deserialize;
use serde_json::Value;

use crate::VERSIONS;
use crate::answer::{CniError, Code};

/// Longest configuration, bytes.
const MOST_BYTES: u64 = 1 << 20;
/// Valid VLAN numbers (802.1Q).
const VLANS: RangeInclusive<u16> = 1..=4094;
/// Longest name of a network and longest ID of a container, bytes.
const MOST_NAME_BYTES: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Add,
    Del,
    Check,
    Status,
    Gc,
    Version,
}

/// Type of the link between a container and the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// A network interface in the container.
    #[default]
    Veth,
    /// A vhost-user socket for the card of a guest, or for DPDK's `net_virtio_user`.
    VhostUser,
    /// A memif socket.
    Memif,
}

/// Configuration of the network. Keys of other plugins are ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Network {
    #[serde(default)]
    pub(crate) cni_version: String,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default = "vale0")]
    pub(crate) switch: String,
    #[serde(default)]
    pub(crate) kind: Kind,
    /// Path of the daemon's socket; `None` for the default path.
    pub(crate) socket: Option<PathBuf>,
    /// The VLAN of the containers: their ports are access ports.
    pub(crate) vlan: Option<u16>,
    /// Longest packet of the interface, bytes without the Ethernet header.
    pub(crate) mtu: Option<u32>,
    /// Folder of the sockets of `vhost-user` and `memif`. Each socket is in a folder of its container.
    #[serde(default = "socket_folder")]
    pub(crate) socket_folder: PathBuf,
    /// Permissions of the sockets, in octal.
    pub(crate) socket_mode: Option<String>,
    pub(crate) ipam: Option<Ipam>,
    pub(crate) dns: Option<Value>,
    pub(crate) prev_result: Option<IpamResult>,
    #[serde(default, rename = "cni.dev/valid-attachments")]
    pub(crate) valid_attachments: Vec<Attachment>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Ipam {
    #[serde(rename = "type", default)]
    pub(crate) plugin: String,
}

/// A container's interface.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Attachment {
    #[serde(rename = "containerID")]
    pub(crate) container: String,
    #[serde(rename = "ifname")]
    pub(crate) interface: String,
}

/// The part of a result that is used here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct IpamResult {
    pub(crate) interfaces: Vec<KnownInterface>,
    pub(crate) ips: Vec<Address>,
    pub(crate) routes: Vec<Route>,
    pub(crate) dns: Option<Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct KnownInterface {
    pub(crate) name: String,
    pub(crate) sandbox: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Address {
    pub(crate) address: Subnet,
    pub(crate) gateway: Option<IpAddr>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Route {
    pub(crate) dst: Subnet,
    pub(crate) gw: Option<IpAddr>,
}

/// An address and the length of its network prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Subnet {
    pub(crate) address: IpAddr,
    pub(crate) bits: u8,
}

impl TryFrom<String> for Subnet {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not an address with the bits of its network");
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = bits.parse().ok().filter(|&bits| bits <= if address.is_ipv4() { 32 } else { 128 });
        Ok(Self { address, bits: bits.ok_or_else(wrong)? })
    }
}

impl std::fmt::Display for Subnet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

fn vale0() -> String {
    "vale0".to_owned()
}

fn socket_folder() -> PathBuf {
    "/run/ringroad/cni".into()
}

/// A complete request.
#[derive(Debug)]
pub(crate) struct CniRequest {
    pub(crate) operation: Operation,
    /// Container and interface, for operations on one container.
    pub(crate) attachment: Attachment,
    /// The container's namespace; `None` if it no longer exists.
    pub(crate) namespace: Option<PathBuf>,
    /// Folders with the other plugins.
    pub(crate) plugins: Vec<PathBuf>,
    pub(crate) network: Network,
    /// Configuration as received, for the plugin for addresses.
    pub(crate) configuration: Vec<u8>,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Checks the name of a network or the ID of a container against the specification. Valid words are also safe as file
/// names.
fn check_word(code: Code, what: &str, word: &str) -> Result<(), CniError> {
    let is_word = word.starts_with(|c: char| c.is_ascii_alphanumeric())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    if is_word && word.len() <= MOST_NAME_BYTES {
        return Ok(());
    }
    let message = format!("{what} {word:?} is invalid");
    Err(CniError::new(code, message, "letters, digits, _ . and -, with a letter or digit first"))
}

/// Checks the name of an interface against the specification, and that the name has no other meaning in a socket's path
/// or in a port's name.
fn check_interface(name: &str) -> Result<(), CniError> {
    let refused = |error: &dyn std::fmt::Display| {
        CniError::new(Code::InvalidEnvironment, format!("CNI_IFNAME {name:?} is invalid"), error)
    };
    check_name(name).map_err(|error| refused(&error))?;
    check_part("the name", name).map_err(|error| refused(&error))
}

/// Checks the folder of sockets: an absolute path that does not leave the folders it names.
fn check_folder(folder: &Path) -> Result<(), CniError> {
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if folder.is_absolute() && folder.components().all(is_plain) {
        return Ok(());
    }
    let message = format!("socketFolder {folder:?} is invalid");
    Err(CniError::new(Code::InvalidConfiguration, message, "give an absolute path without \"..\""))
}

/// Checks the permissions of sockets.
fn check_mode(mode: &str) -> Result<(), CniError> {
    let is_octal = mode.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    if is_octal && u32::from_str_radix(mode, 8).is_ok_and(|mode| mode <= 0o777) {
        return Ok(());
    }
    let message = format!("socketMode {mode:?} is invalid");
    Err(CniError::new(Code::InvalidConfiguration, message, "give octal digits, at most 777"))
}

impl CniRequest {
    pub(crate) fn read() -> Result<Self, CniError> {
        let environment = |message: String| CniError::new(Code::InvalidEnvironment, message, "");
        let operation = match variable("CNI_COMMAND").as_deref() {
            Some("ADD") => Operation::Add,
            Some("DEL") => Operation::Del,
            Some("CHECK") => Operation::Check,
            Some("STATUS") => Operation::Status,
            Some("GC") => Operation::Gc,
            Some("VERSION") => Operation::Version,
            Some(other) => return Err(environment(format!("CNI_COMMAND {other:?} is unknown"))),
            None => {
                return Err(environment(
                    "CNI_COMMAND is not set: a container runtime starts this program".into(),
                ));
            }
        };
        let mut configuration = Vec::new();
        let read = std::io::stdin().take(MOST_BYTES + 1).read_to_end(&mut configuration);
        read.map_err(|error| CniError::new(Code::Io, "reading the configuration", error))?;
        if configuration.len() as u64 > MOST_BYTES {
            return Err(CniError::new(
                Code::Decoding,
                format!("the configuration has more than {MOST_BYTES} bytes"),
                "",
            ));
        }
        if operation == Operation::Version {
            configuration = b"{}".to_vec();
        }
        let network: Network = serde_json::from_slice(&configuration)
            .map_err(|error| CniError::new(Code::Decoding, "the configuration cannot be read", error))?;
        let word = |name: &str| variable(name).unwrap_or_default();
        let attachment = Attachment { container: word("CNI_CONTAINERID"), interface: word("CNI_IFNAME") };
        let plugins = std::env::split_paths(&word("CNI_PATH")).collect();
        let namespace = variable("CNI_NETNS").map(PathBuf::from);
        let request = Self { operation, attachment, namespace, plugins, network, configuration };
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), CniError> {
        if self.operation == Operation::Version {
            return Ok(());
        }
        let Network { cni_version, name, switch, ipam, vlan, socket_folder, socket_mode, .. } = &self.network;
        if !VERSIONS.contains(&cni_version.as_str()) {
            let message = format!("cniVersion {cni_version:?} is not supported");
            return Err(CniError::new(Code::IncompatibleVersion, message, VERSIONS.join(", ")));
        }
        check_word(Code::InvalidConfiguration, "a network's name", name)?;
        check_word(Code::InvalidConfiguration, "a switch", switch)?;
        if let Some(Ipam { plugin }) = ipam.as_ref().filter(|ipam| !ipam.plugin.is_empty()) {
            check_word(Code::InvalidConfiguration, "ipam.type", plugin)?;
        }
        check_folder(socket_folder)?;
        socket_mode.as_deref().map_or(Ok(()), check_mode)?;
        if let Some(vlan) = vlan
            && !VLANS.contains(vlan)
        {
            let (message, range) =
                (format!("vlan {vlan} cannot be"), format!("{} to {}", VLANS.start(), VLANS.end()));
            return Err(CniError::new(Code::InvalidConfiguration, message, range));
        }
        let of_one = matches!(self.operation, Operation::Add | Operation::Del | Operation::Check);
        if of_one {
            check_word(Code::InvalidEnvironment, "CNI_CONTAINERID", &self.attachment.container)?;
            check_interface(&self.attachment.interface)?;
        }
        if matches!(self.operation, Operation::Add | Operation::Check) && self.namespace.is_none() {
            return Err(CniError::new(Code::InvalidEnvironment, "CNI_NETNS is not set", ""));
        }
        Ok(())
    }

    /// Returns the container's namespace, which can be entered.
    pub(crate) fn sandbox(&self) -> Namespace {
        self.namespace.clone().map_or(Namespace::Current, Namespace::File)
    }
}
