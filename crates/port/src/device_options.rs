//! What a port name can wish of a device: a network interface, a TAP, or a foreign program behind a socket.

use std::str::FromStr;

use crate::port_name::SocketProtocol;

/// Longest name of an interface, bytes (IFNAMSIZ without its NUL, linux/if.h).
pub const MAX_INTERFACE_BYTES: usize = 15;

/// Which mode of AF_XDP to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum XdpMode {
    /// The best that the interface offers: zero-copy, else copy in native mode, else generic.
    #[default]
    Auto,
    /// The driver's own memory is the region: fails where it cannot.
    ZeroCopy,
    /// One copy by the kernel, in the driver.
    Native,
    /// One copy by the kernel, after the driver: works with every interface.
    Generic,
}

/// How AF_PACKET spreads frames over several queues (`PACKET_FANOUT`, packet(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fanout {
    /// By flow.
    #[default]
    Hash,
    /// By the processor that the frame came in on.
    Cpu,
    /// In turn.
    RoundRobin,
    /// By the interface's own queue.
    Queue,
}

/// Where timestamps of received frames come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TimestampSource {
    /// The kernel, when it first sees the frame.
    #[default]
    Kernel,
    /// The interface, where it can; else the kernel.
    Hardware,
}

/// Which side of a socket a port is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SocketRole {
    /// It listens, and makes the socket's file.
    #[default]
    Server,
    /// It connects, and tries again until somebody listens.
    Client,
}

/// Whose wishes they are: not everybody understands all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wisher {
    /// A port without a device.
    NoDevice,
    /// A network interface, its host stack or a TAP.
    Interface,
    /// A foreign program.
    Socket(SocketProtocol),
}

/// Wishes that devices understand; `None` leaves the default. In a name: `eth0@mode=native,busy-poll=50,netns=blue`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct DeviceOptions {
    /// `netns=NAME|PID`: network namespace in which the interface is; else that of the program that names it.
    pub netns: Option<String>,
    /// `mode=auto|zero-copy|native|generic`: of AF_XDP.
    pub mode: Option<XdpMode>,
    /// `ring-size=N`: descriptors of each of the kernel's rings, a power of two from 64 to 32768.
    pub ring_size: Option<u32>,
    /// `need-wakeup=0|1`: the kernel says when it has to be called (AF_XDP); 1 unless said otherwise.
    pub need_wakeup: Option<bool>,
    /// `busy-poll=US`: the kernel polls the interface when it is called, for so many microseconds; 0, the default, does not.
    pub busy_poll_us: Option<u32>,
    /// `promisc=0|1`: take frames for other stations too; on for ports of a switch.
    pub promiscuous: Option<bool>,
    /// `force=0|1`: replace an XDP program that somebody else attached.
    pub force: Option<bool>,
    /// `timestamps=kernel|hardware`: of AF_PACKET.
    pub timestamps: Option<TimestampSource>,
    /// `fanout=hash|cpu|rr|queue`: of AF_PACKET with several queues.
    pub fanout: Option<Fanout>,
    /// `immediate=0|1`: AF_PACKET shows each frame at once, rather than many together after some milliseconds at most; 0 for a
    /// program that looks on (`packet:IFACE`), else 1.
    pub immediate: Option<bool>,
    /// `persist=0|1`: a TAP outlives its port.
    pub persistent: Option<bool>,
    /// `vnet-hdr=0|1`: a TAP that passes a virtio-net header in front of each frame.
    pub vnet_hdr: Option<bool>,
    /// `mtu=BYTES`: of a TAP.
    pub mtu: Option<u32>,
    /// `mac=ADDRESS`: of a TAP, or of the card that a `virtio-user:` port is.
    pub mac: Option<[u8; 6]>,
    /// `role=server|client`: of a socket.
    pub role: Option<SocketRole>,
    /// `socket-mode=OCTAL`: permissions of the file of a socket that is listened at.
    pub socket_mode: Option<u32>,
    /// `id=N`: which of the interfaces of one memif socket.
    pub id: Option<u32>,
    /// `secret=TEXT`: what a memif peer has to know, at most 24 bytes.
    pub secret: Option<String>,
    /// `offloads=0|1`: whether virtio's checksum and segmentation offloads are offered to the other side.
    pub offloads: Option<bool>,
    /// `packed=0|1`: whether virtio's packed rings are.
    pub packed: Option<bool>,
    /// `channels=N`: of a capture card, in each direction.
    pub channels: Option<u16>,
    /// `channel=N`: the first of a capture card's that a program has.
    pub channel: Option<u16>,
    /// `buffer=SIZE`: of each channel of a capture card, bytes; K, M and G stand for powers of 1024.
    pub buffer_bytes: Option<u64>,
    /// `block=SIZE`: of which such a buffer consists, bytes.
    pub block_bytes: Option<u64>,
    /// `metadata=0|1`: whether a capture card says of each frame when it came.
    pub metadata: Option<bool>,
}

/// What a memif secret can be long, bytes (memif.h, MEMIF_SECRET_SIZE).
const MAX_SECRET_BYTES: usize = 24;

impl DeviceOptions {
    /// Takes `key` with its value from a name; a key alone means 1.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn set(&mut self, key: &str, value: Option<&str>) -> Result<(), String> {
        let text =
            || value.filter(|value| !value.is_empty()).ok_or_else(|| format!("option {key} needs a value"));
        let switch = || match value {
            None | Some("1") => Ok(Some(true)),
            Some("0") => Ok(Some(false)),
            Some(other) => Err(format!("option {key} is {other:?}: choose 0 or 1")),
        };
        match key {
            "netns" => self.netns = Some(text()?.to_owned()),
            "mode" => {
                self.mode = Some(one_of(
                    key,
                    text()?,
                    &[
                        ("auto", XdpMode::Auto),
                        ("zero-copy", XdpMode::ZeroCopy),
                        ("native", XdpMode::Native),
                        ("generic", XdpMode::Generic),
                    ],
                )?);
            }
            "ring-size" => {
                let size: u32 = number(key, text()?)?;
                if !size.is_power_of_two() || !(64..=32768).contains(&size) {
                    return Err(format!("option {key} is {size}: choose a power of two from 64 to 32768"));
                }
                self.ring_size = Some(size);
            }
            "need-wakeup" => self.need_wakeup = switch()?,
            "busy-poll" => self.busy_poll_us = Some(number(key, text()?)?),
            "promisc" => self.promiscuous = switch()?,
            "force" => self.force = switch()?,
            "timestamps" => {
                self.timestamps = Some(one_of(
                    key,
                    text()?,
                    &[("kernel", TimestampSource::Kernel), ("hardware", TimestampSource::Hardware)],
                )?);
            }
            "fanout" => {
                self.fanout = Some(one_of(
                    key,
                    text()?,
                    &[
                        ("hash", Fanout::Hash),
                        ("cpu", Fanout::Cpu),
                        ("rr", Fanout::RoundRobin),
                        ("queue", Fanout::Queue),
                    ],
                )?);
            }
            "immediate" => self.immediate = switch()?,
            "persist" => self.persistent = switch()?,
            "vnet-hdr" => self.vnet_hdr = switch()?,
            "mtu" => {
                let mtu = number(key, text()?)?;
                if !(68..=65521).contains(&mtu) {
                    return Err(format!("option {key} is {mtu}: choose from 68 to 65521"));
                }
                self.mtu = Some(mtu);
            }
            "mac" => self.mac = Some(mac_address(text()?)?),
            "role" => {
                let roles = [("server", SocketRole::Server), ("client", SocketRole::Client)];
                self.role = Some(one_of(key, text()?, &roles)?);
            }
            "socket-mode" => {
                let mode = u32::from_str_radix(text()?, 8).ok().filter(|mode| *mode <= 0o777);
                let bad = || {
                    format!("option {key} is {:?}: write permissions in octal, like 660", value.unwrap_or(""))
                };
                self.socket_mode = Some(mode.ok_or_else(bad)?);
            }
            "id" => self.id = Some(number(key, text()?)?),
            "secret" => {
                let secret = text()?;
                if secret.len() > MAX_SECRET_BYTES {
                    return Err(format!("option {key} has more than {MAX_SECRET_BYTES} bytes"));
                }
                self.secret = Some(secret.to_owned());
            }
            "offloads" => self.offloads = switch()?,
            "packed" => self.packed = switch()?,
            "channels" => self.channels = Some(number(key, text()?)?),
            "channel" => self.channel = Some(number(key, text()?)?),
            "buffer" => self.buffer_bytes = Some(size(key, text()?)?),
            "block" => self.block_bytes = Some(size(key, text()?)?),
            "metadata" => self.metadata = switch()?,
            _ => {
                return Err(format!(
                    "there is no option {key:?}; there are queues, slots, buf-size, extra-bufs and share, and for network interfaces \
                     and TAP ports netns, mode, ring-size, need-wakeup, busy-poll, promisc, force, timestamps, fanout, immediate, \
                     persist, vnet-hdr, mtu and mac, and for sockets role, socket-mode, id, secret, offloads, packed, ring-size, mac, channels, \
                     channel, buffer, block and metadata"
                ));
            }
        }
        Ok(())
    }

    /// The keys of all options that are given.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            (self.netns.is_some(), "netns"),
            (self.mode.is_some(), "mode"),
            (self.ring_size.is_some(), "ring-size"),
            (self.need_wakeup.is_some(), "need-wakeup"),
            (self.busy_poll_us.is_some(), "busy-poll"),
            (self.promiscuous.is_some(), "promisc"),
            (self.force.is_some(), "force"),
            (self.timestamps.is_some(), "timestamps"),
            (self.fanout.is_some(), "fanout"),
            (self.immediate.is_some(), "immediate"),
            (self.persistent.is_some(), "persist"),
            (self.vnet_hdr.is_some(), "vnet-hdr"),
            (self.mtu.is_some(), "mtu"),
            (self.mac.is_some(), "mac"),
            (self.role.is_some(), "role"),
            (self.socket_mode.is_some(), "socket-mode"),
            (self.id.is_some(), "id"),
            (self.secret.is_some(), "secret"),
            (self.offloads.is_some(), "offloads"),
            (self.packed.is_some(), "packed"),
            (self.channels.is_some(), "channels"),
            (self.channel.is_some(), "channel"),
            (self.buffer_bytes.is_some(), "buffer"),
            (self.block_bytes.is_some(), "block"),
            (self.metadata.is_some(), "metadata"),
        ];
        given.into_iter().filter_map(|(given, key)| given.then_some(key))
    }

    /// Checks that all options given are ones that `wisher` understands.
    ///
    /// # Errors
    /// Which is not, for people.
    pub(crate) fn check(&self, wisher: Wisher) -> Result<(), String> {
        let understood: &[&str] = match wisher {
            Wisher::Interface | Wisher::NoDevice => &[],
            Wisher::Socket(SocketProtocol::VhostUser) => &["role", "socket-mode", "offloads", "packed"],
            Wisher::Socket(SocketProtocol::VirtioUser) => {
                &["role", "socket-mode", "offloads", "packed", "ring-size", "mac"]
            }
            Wisher::Socket(SocketProtocol::Memif) => &["role", "socket-mode", "id", "secret", "ring-size"],
            Wisher::Socket(SocketProtocol::Sze2) => {
                &["socket-mode", "channels", "buffer", "block", "metadata", "mac"]
            }
            Wisher::Socket(SocketProtocol::Szedata) => &["channel"],
        };
        let of_sockets = [
            "role",
            "socket-mode",
            "id",
            "secret",
            "offloads",
            "packed",
            "channels",
            "channel",
            "buffer",
            "block",
            "metadata",
        ];
        let odd = self.given().find(|key| match wisher {
            Wisher::Interface => of_sockets.contains(key),
            _ => !understood.contains(key),
        });
        match (odd, wisher) {
            (None, _) => Ok(()),
            (Some(key), Wisher::Socket(protocol)) => Err(format!(
                "a {} port has no option {key}; it has {}",
                protocol.scheme(),
                understood.join(", ")
            )),
            (Some(key), _) if of_sockets.contains(&key) => Err(format!(
                "option {key} is for ports behind sockets: vhost-user, virtio-user, memif, sze2 and szedata"
            )),
            (Some(key), _) => Err(format!("option {key} is for network interfaces and TAP ports")),
        }
    }
}

fn one_of<T: Copy>(key: &str, value: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let found = choices.iter().find(|(name, _)| *name == value);
    found.map(|&(_, choice)| choice).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|&(name, _)| name).collect();
        format!("option {key} is {value:?}: choose {}", names.join(", "))
    })
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("option {key} is {value:?}, which is not a number in range"))
}

/// Bytes, with K, M or G for powers of 1024.
fn size(key: &str, value: &str) -> Result<u64, String> {
    let (digits, shift) = match value.strip_suffix(['K', 'M', 'G']) {
        Some(digits) => (
            digits,
            if value.ends_with('K') {
                10
            } else if value.ends_with('M') {
                20
            } else {
                30
            },
        ),
        None => (value, 0),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("option {key} is {value:?}: write a size, like 32M"))
}

fn mac_address(text: &str) -> Result<[u8; 6], String> {
    let bad =
        || format!("option mac is {text:?}: write six bytes, like 02:00:00:00:00:01, the first one even");
    let mut mac = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut mac {
        // A sign would pass for a digit.
        let is_octet = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let part = parts.next().filter(is_octet).ok_or_else(bad)?;
        *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
    }
    if parts.next().is_some() || mac[0] & 1 != 0 || mac == [0; 6] {
        return Err(bad());
    }
    Ok(mac)
}

/// Checks that `name` can be an interface's, by the kernel's rule (`dev_valid_name`) and without what has a meaning in names.
///
/// # Errors
/// What is wrong with it, for people.
pub fn check_interface_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("the interface is missing".into());
    }
    if name.len() > MAX_INTERFACE_BYTES {
        return Err(format!("the interface {name:?} is longer than {MAX_INTERFACE_BYTES} bytes"));
    }
    if name == "." || name == ".." {
        return Err(format!("no interface can be called {name:?}"));
    }
    match name.chars().find(|&c| c.is_whitespace() || c.is_control() || "/:@{}^*".contains(c)) {
        Some(odd) => Err(format!("the interface {name:?} holds {odd:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_taken_and_known_as_given() {
        for (key, value) in [
            ("netns", Some("blue")),
            ("mode", Some("zero-copy")),
            ("ring-size", Some("512")),
            ("need-wakeup", Some("0")),
            ("busy-poll", Some("50")),
            ("promisc", None),
            ("force", Some("1")),
            ("timestamps", Some("hardware")),
            ("fanout", Some("rr")),
            ("immediate", Some("0")),
            ("persist", None),
            ("vnet-hdr", Some("1")),
            ("mtu", Some("9000")),
            ("mac", Some("02:00:00:00:00:0a")),
            ("role", Some("client")),
            ("socket-mode", Some("660")),
            ("id", Some("7")),
            ("secret", Some("sesame")),
            ("offloads", Some("0")),
            ("packed", None),
        ] {
            let mut options = DeviceOptions::default();
            options.set(key, value).unwrap();
            assert_eq!(options.given().collect::<Vec<_>>(), [key]);
        }
    }

    #[test]
    fn values_that_make_no_sense_are_refused() {
        for (key, value) in [
            ("netns", None),
            ("mode", Some("fast")),
            ("ring-size", Some("100")),
            ("busy-poll", Some("-1")),
            ("promisc", Some("yes")),
            ("immediate", Some("2")),
            ("mtu", Some("10")),
            ("mac", Some("01:00:00:00:00:00")),
            ("mac", Some("02:00:00:00:00")),
            ("mac", Some("02:00:00:00:00:+1")),
            ("role", Some("boss")),
            ("socket-mode", Some("999")),
            ("secret", Some("a secret of more than twenty-four bytes")),
            ("colour", Some("blue")),
        ] {
            assert!(DeviceOptions::default().set(key, value).is_err(), "{key}={value:?}");
        }
    }

    #[test]
    fn names_that_no_interface_has_are_refused() {
        for name in ["", "..", "a b", "a/b", "abcdefghijklmnop", "x^"] {
            assert!(check_interface_name(name).is_err(), "{name:?}");
        }
        assert_eq!(check_interface_name("enp3s0f1np1.100"), Ok(()));
    }
}
