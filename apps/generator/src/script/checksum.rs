//! Checksums and signatures of frames that a script has built, in place of a network card's offloads.

use ringroad_traffic::signature::{SignatureForm, Signer, SignerError};

const ETHERNET_BYTES: usize = 14;
const VLAN_TYPES: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const UDP: u8 = 17;
const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Positions of the headers of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Start of the IP header and its version; `None` in frames of other protocols.
    ip: Option<(usize, Version)>,
    /// Start of the transport header, its protocol and the packet's end; `None` after fragment and extension headers.
    transport: Option<(usize, u8, usize)>,
    /// The data after the known headers.
    pub(super) payload: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Four,
    Six,
}

impl Layout {
    /// Reads the headers of `frame`: Ethernet, VLAN tags, IPv4 or IPv6, UDP, TCP, ICMP.
    pub(super) fn of(frame: &[u8]) -> Self {
        let number =
            |at: usize| frame.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let mut at = ETHERNET_BYTES.min(frame.len());
        let mut ether_type = number(12);
        while VLAN_TYPES.contains(&ether_type) && frame.len() >= at + 4 {
            ether_type = number(at + 2);
            at += 4;
        }
        let none = Self { ip: None, transport: None, payload: at };
        let (version, protocol, transport, end) = match ether_type {
            0x0800 if frame.len() >= at + 20 => {
                let header_bytes = usize::from(frame[at] & 15) * 4;
                if header_bytes < 20 || frame.len() < at + header_bytes {
                    return none;
                }
                let end = (at + usize::from(number(at + 2))).min(frame.len());
                // A fragment has no checksum of its own.
                let whole = number(at + 6) & 0x3fff == 0;
                (Version::Four, whole.then(|| frame[at + 9]), at + header_bytes, end)
            }
            0x86dd if frame.len() >= at + 40 => {
                let end = (at + 40 + usize::from(number(at + 4))).min(frame.len());
                (Version::Six, Some(frame[at + 6]), at + 40, end)
            }
            _ => return none,
        };
        let none = Self { ip: Some((at, version)), transport: None, payload: transport };
        let Some(protocol) = protocol else { return none };
        let header_bytes = match protocol {
            UDP | ICMP | ICMPV6 => 8,
            TCP => usize::from(frame.get(transport + 12).map_or(5, |offset| offset >> 4)).max(5) * 4,
            _ => return none,
        };
        if end < transport + header_bytes {
            return none;
        }
        Self { transport: Some((transport, protocol, end)), payload: transport + header_bytes, ..none }
    }

    /// Writes the checksum of the IPv4 header, and with `transport` the UDP, TCP or ICMP checksum after it.
    pub(super) fn write_checksums(&self, frame: &mut [u8], transport: bool) {
        let Some((ip, version)) = self.ip else { return };
        if version == Version::Four {
            let end = ip + usize::from(frame[ip] & 15) * 4;
            write(frame, ip + 10, |frame| !fold(sum(&frame[ip..end])));
        }
        let Some((start, protocol, end)) = self.transport.filter(|_| transport) else { return };
        let field = match protocol {
            UDP => 6,
            TCP => 16,
            _ => 2,
        };
        write(frame, start + field, |frame| {
            let addresses = match version {
                Version::Four => &frame[ip + 12..ip + 20],
                Version::Six => &frame[ip + 8..ip + 40],
            };
            // RFC 792: ICMP is summed alone; all others with a pseudo-header (RFC 768, RFC 9293, RFC 8200 section 8.1).
            let pseudo = match protocol {
                ICMP => 0,
                _ => sum(addresses) + u64::from(protocol) + (end - start) as u64,
            };
            let checksum = !fold(pseudo + sum(&frame[start..end]));
            // RFC 768: 0 means no checksum.
            if protocol == UDP && checksum == 0 { 0xffff } else { checksum }
        });
    }

    /// Writes the longest signature that the payload has room for over the frame's last bytes. `Ok(false)`: there is no
    /// room.
    pub(super) fn write_signature(
        &self,
        frame: &mut [u8],
        stream: u16,
        sequence: u64,
        timestamp_ns: u64,
    ) -> Result<bool, SignerError> {
        let room = frame.len().saturating_sub(self.payload);
        let Some(form) = SignatureForm::longest_within(room) else { return Ok(false) };
        let (before, signature) = frame.split_at_mut(frame.len() - form.bytes());
        let signer = Signer::new(form, stream, before.get(self.payload..).unwrap_or_default())?;
        signer.sign(sequence, timestamp_ns, signature);
        Ok(true)
    }
}

/// Sets the field to the result of `compute` for the frame with zeros in the field.
fn write(frame: &mut [u8], at: usize, compute: impl FnOnce(&[u8]) -> u16) {
    frame[at..at + 2].fill(0);
    let checksum = compute(frame);
    frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// The sum of big-endian 16-bit words, an odd byte being the upper half of one (RFC 1071).
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(4);
    let rest = words.remainder();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let whole = |word: &[u8]| u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    words.map(whole).sum::<u64>() + whole(&last)
}

/// The one's complement sum in 16 bits.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}
