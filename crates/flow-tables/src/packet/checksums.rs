//! Checksums of a packet, updated after changes of its headers.

use super::{MAX_FIELD_BYTES, Packet};
use crate::layout::{Layout, Network, u16_at};
use crate::sctp_checksum::updated_crc32c;
use ringroad_wire::checksum::{difference, fold, not_zero, updated};
use ringroad_wire::ip_protocol;

impl Packet {
    /// Updates checksums after a change of bytes of an IP packet. `at` is the offset of the first byte that may differ,
    /// not before the IP header.
    pub(super) fn follow(&mut self, at: usize, old: &[u8], new: &[u8]) {
        let Layout { network, network_at, transport, has_segments_left, .. } = self.layout;
        let offset = at - network_at;
        let change = difference(old, new);
        let header_bytes = match network {
            Network::Ipv4 => usize::from(self.headers.get(network_at).map_or(0, |&first| first & 0xf)) * 4,
            _ => 0,
        };
        if offset < header_bytes {
            self.follow_at(network_at + 10, change);
        }
        let is_address = match network {
            Network::Ipv4 => (12..20).contains(&offset),
            // The checksum has the final destination, which the routing header holds (RFC 8200, 8.1).
            _ if has_segments_left => (8..24).contains(&offset),
            _ => (8..40).contains(&offset),
        };
        if is_address {
            self.follow_in_transport(change, true);
        } else if transport.is_some_and(|transport| at >= transport) {
            if self.layout.ip_proto == ip_protocol::SCTP {
                self.follow_in_sctp(at, old, new);
            } else {
                self.follow_in_transport(change, false);
            }
        }
    }

    /// The protocol is a part of the transport's checksum.
    pub(super) fn follow_protocol(&mut self, new: u8) {
        let old = self.layout.ip_proto;
        self.follow_in_transport(difference(&[0, old], &[0, new]), true);
    }

    fn follow_in_transport(&mut self, change: u64, is_pseudo_header: bool) {
        let Some(transport) = self.layout.transport else { return };
        let Some(offset) = ip_protocol::checksum_offset(self.layout.ip_proto) else { return };
        if is_pseudo_header && !ip_protocol::has_pseudo_header(self.layout.ip_proto) {
            return;
        }
        let at = transport + offset;
        let Some(checksum) = self.checksum_at(at) else { return };
        let checksum = match self.layout.ip_proto {
            // The field holds the sum of the pseudo header; the card adds the rest.
            _ if self.has_open_checksum && is_pseudo_header => fold(u64::from(checksum) + change),
            _ if self.has_open_checksum => return,
            // A zero means that the sender made no checksum (RFC 768).
            ip_protocol::UDP if checksum == 0 => return,
            ip_protocol::UDP => not_zero(updated(checksum, change)),
            _ => updated(checksum, change),
        };
        self.store(at, &checksum.to_le_bytes());
    }

    pub(super) fn follow_at(&mut self, at: usize, change: u64) {
        if let Some(checksum) = self.checksum_at(at) {
            self.store(at, &updated(checksum, change).to_le_bytes());
        }
    }

    /// Checksum at `at`, as [`ringroad_wire::checksum`] represents it.
    fn checksum_at(&self, at: usize) -> Option<u16> {
        self.headers.get(at..)?.first_chunk().map(|&checksum| u16::from_le_bytes(checksum))
    }

    fn follow_in_sctp(&mut self, at: usize, old: &[u8], new: &[u8]) {
        let Layout { network, network_at, transport: Some(transport), .. } = self.layout else { return };
        let ip_bytes = match network {
            Network::Ipv4 => u16_at(&self.headers, network_at + 2).map(usize::from),
            _ => u16_at(&self.headers, network_at + 4).map(|payload| usize::from(payload) + 40),
        };
        // Padding of the frame is not part of the packet.
        let end = ip_bytes.map_or(0, |bytes| network_at + bytes);
        let begin = (at - network_at) / 2 * 2 + network_at;
        let mut changed = [0; MAX_FIELD_BYTES + 1];
        for (changed, (old, new)) in changed.iter_mut().zip(old.iter().zip(new)) {
            *changed = old ^ new;
        }
        let changed = changed.get(..old.len()).unwrap_or(&[]);
        let Some(behind) = end.checked_sub(begin + changed.len()) else { return };
        let offset = transport + 8;
        if let Some(&stored) = self.headers.get(offset..).and_then(|rest| rest.first_chunk::<4>()) {
            let checksum = updated_crc32c(u32::from_le_bytes(stored), changed, behind);
            self.store(offset, &checksum.to_le_bytes());
        }
    }
}
