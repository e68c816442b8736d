//! Checksums and signatures of frames that a script has built, in place of a network card's offloads.

use std::ops::Range;

use ringroad_traffic::signature::{SignatureForm, Signer, SignerError};
use ringroad_wire::checksum::{fold, not_zero, sum_bytes};
use ringroad_wire::headers::{EthernetHeader, Ip, IpFragment, IpVersion, Tags};
use ringroad_wire::ip_protocol::{ICMP, ICMPV6, TCP, UDP, checksum_offset, has_pseudo_header};

/// Positions of the headers of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// The IP header; `None` in frames of other protocols.
    ip: Option<Ip>,
    /// Bytes from the start of the transport header to the end of the packet; `None` after fragment and extension
    /// headers.
    transport: Option<Range<usize>>,
    /// Offset of the data after the known headers.
    pub(super) payload: usize,
}

impl Layout {
    /// Reads the headers of `frame`: Ethernet, VLAN tags, IPv4 or IPv6, UDP, TCP, ICMP.
    pub(super) fn of(frame: &[u8]) -> Self {
        let ethernet = EthernetHeader::read(frame, Tags::WithOld);
        let payload = ethernet.map_or(frame.len(), |ethernet| ethernet.end());
        let ip = ethernet
            .and_then(|ethernet| Ip::read(frame, &ethernet))
            .filter(|ip| frame.len() >= ip.at + ip.header_bytes());
        let Some(ip) = ip else { return Self { ip: None, transport: None, payload } };
        let start = ip.at + ip.header_bytes();
        let none = Self { ip: Some(ip), transport: None, payload: start };
        // A fragment has no checksum of its own.
        if ip.fragment != IpFragment::No || ip.has_extensions() {
            return none;
        }
        let header_bytes = match ip.protocol {
            UDP | ICMP | ICMPV6 => 8,
            TCP => usize::from(frame.get(start + 12).map_or(5, |offset| offset >> 4)).max(5) * 4,
            _ => return none,
        };
        let end = ip.end.min(frame.len());
        if end < start + header_bytes {
            return none;
        }
        Self { transport: Some(start..end), payload: start + header_bytes, ..none }
    }

    /// Writes the checksum of the IPv4 header, and with `transport` the UDP, TCP or ICMP checksum after it.
    pub(super) fn write_checksums(&self, frame: &mut [u8], transport: bool) {
        let Some(ip) = self.ip else { return };
        if ip.version == IpVersion::Four {
            write(frame, ip.at + 10, |frame| !fold(sum_bytes(&frame[ip.at..ip.payload_at], 0)));
        }
        let Some(range) = self.transport.clone().filter(|_| transport) else { return };
        let Some(offset) = checksum_offset(ip.protocol) else { return };
        write(frame, range.start + offset, |frame| {
            let pseudo_header = has_pseudo_header(ip.protocol)
                .then(|| ip.pseudo_header_sum(frame, range.len()))
                .flatten()
                .unwrap_or(0);
            let checksum = !fold(pseudo_header + sum_bytes(&frame[range], 0));
            if ip.protocol == UDP { not_zero(checksum) } else { checksum }
        });
    }

    /// Writes the longest signature that the payload has room for over the frame's last bytes. Returns `Ok(false)` if
    /// there is no room.
    pub(super) fn write_signature(
        &self,
        frame: &mut [u8],
        stream: u16,
        sequence: u64,
        timestamp_ns: u64,
    ) -> Result<bool, SignerError> {
        let room = frame.len().saturating_sub(self.payload);
        let Some(form) = SignatureForm::longest_within(room) else { return Ok(false) };
        let covered = frame.get(self.payload..frame.len() - form.bytes()).unwrap_or_default();
        Signer::new(form, stream, covered)?.sign(sequence, timestamp_ns, frame);
        Ok(true)
    }
}

/// Sets the checksum field at `at` to the result of `compute` for the frame with zeros in that field.
fn write(frame: &mut [u8], at: usize, compute: impl FnOnce(&[u8]) -> u16) {
    frame[at..at + 2].fill(0);
    let checksum = compute(frame);
    frame[at..at + 2].copy_from_slice(&checksum.to_le_bytes());
}
