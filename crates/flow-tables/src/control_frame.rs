//! Frames between a switch and its OpenFlow agent. They pass the controllers' port of the switch. Each begins with a
//! header: origin and reason, or destination.

use ringroad_openflow::action::PortNo;
use ringroad_openflow::message::PacketInReason;
use ringroad_port::port_index::{MAX_PORTS, PortIndex, PortMask};

use crate::packet::Packet;
use crate::pipeline::ToController;

/// Bytes of the header in front of a packet-in's frame.
pub const PACKET_IN_BYTES: usize = 36;
/// Bytes of the header in front of a packet-out's frame.
pub const PACKET_OUT_BYTES: usize = 34;

/// Port number for controllers, which begin at 1.
#[must_use]
pub fn port_number(index: PortIndex) -> PortNo {
    PortNo(u32::from(index.0) + 1)
}

/// Port of a controller's number; `None` if a switch cannot have such a port.
#[must_use]
pub fn port_index(port: PortNo) -> Option<PortIndex> {
    let index = port.0.checked_sub(1).and_then(|index| u8::try_from(index).ok())?;
    Some(PortIndex(index)).filter(|index| index.is_port())
}

/// Header in front of a packet that goes to the controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketInHeader {
    /// Port that the packet came in by.
    pub in_port: PortNo,
    /// Reason why the packet goes to the controllers.
    pub reason: PacketInReason,
    /// Table of the entry that sends the packet.
    pub table: u8,
    /// The entry's cookie.
    pub cookie: u64,
    /// The packet's metadata.
    pub metadata: u64,
    /// The packet's tunnel.
    pub tunnel_id: u64,
}

impl PacketInHeader {
    /// Makes the header for the packet as it is now.
    #[must_use]
    pub fn of(packet: &Packet, why: ToController) -> Self {
        Self {
            in_port: packet.in_port,
            reason: why.reason,
            table: why.table,
            cookie: why.cookie,
            metadata: packet.metadata,
            tunnel_id: packet.tunnel_id,
        }
    }

    /// Encodes the header, which goes in front of the packet.
    #[must_use]
    pub fn to_bytes(self) -> [u8; PACKET_IN_BYTES] {
        let mut bytes = [0; PACKET_IN_BYTES];
        let parts: [&[u8]; 7] = [
            &self.in_port.0.to_be_bytes(),
            &[self.reason as u8, self.table],
            &[0; 2],
            &self.cookie.to_be_bytes(),
            &self.metadata.to_be_bytes(),
            &self.tunnel_id.to_be_bytes(),
            &[0; 4],
        ];
        let all = parts.into_iter().flatten();
        bytes.iter_mut().zip(all).for_each(|(byte, &value)| *byte = value);
        bytes
    }

    /// Reads the header in front of a packet, and returns the packet.
    #[must_use]
    pub fn read(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (header, packet) = frame.split_first_chunk::<PACKET_IN_BYTES>()?;
        let long = |at: usize| Some(u64::from_be_bytes(*header.get(at..)?.first_chunk()?));
        let reason = match header[4] {
            0 => PacketInReason::NoMatch,
            1 => PacketInReason::Action,
            2 => PacketInReason::InvalidTtl,
            _ => return None,
        };
        let header = Self {
            in_port: PortNo(u32::from_be_bytes(*header.first_chunk()?)),
            reason,
            table: header[5],
            cookie: long(8)?,
            metadata: long(16)?,
            tunnel_id: long(24)?,
        };
        Some((header, packet))
    }
}

/// Encodes the ports to which a controller's packet goes. The input port given by the controller is not among them
/// unless the controller requests that.
#[must_use]
pub fn packet_out_header(to: PortMask) -> [u8; PACKET_OUT_BYTES] {
    let mut bytes = [0; PACKET_OUT_BYTES];
    for port in to.iter() {
        if let Some(byte) = bytes.get_mut(usize::from(port.0 / 8)) {
            *byte |= 1 << (port.0 % 8);
        }
    }
    bytes
}

/// Reads the destination ports from the header in front of a controller's packet.
#[must_use]
pub(crate) fn packet_out_ports(header: &[u8; PACKET_OUT_BYTES]) -> PortMask {
    let is_set = |port: &PortIndex| {
        header.get(usize::from(port.0 / 8)).is_some_and(|byte| byte >> (port.0 % 8) & 1 != 0)
    };
    (0..MAX_PORTS as u8).map(PortIndex).filter(is_set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_were_written() {
        let header = PacketInHeader {
            in_port: PortNo(7),
            reason: PacketInReason::InvalidTtl,
            table: 3,
            cookie: 0x0102_0304_0506_0708,
            metadata: u64::MAX,
            tunnel_id: 9,
        };
        let frame = [&header.to_bytes()[..], b"packet"].concat();
        assert_eq!(PacketInHeader::read(&frame), Some((header, &b"packet"[..])));
        assert_eq!(PacketInHeader::read(&frame[..PACKET_IN_BYTES - 1]), None);
        let ports: PortMask = [0, 7, 8, 253].into_iter().map(PortIndex).collect();
        assert_eq!(packet_out_ports(&packet_out_header(ports)), ports);
    }

    #[test]
    fn ports_are_numbered_from_one() {
        for index in (0..MAX_PORTS as u8).map(PortIndex) {
            assert_eq!(port_index(port_number(index)), Some(index));
        }
        assert_eq!(
            (port_index(PortNo(0)), port_index(PortNo(255)), port_index(PortNo::ALL)),
            (None, None, None)
        );
    }
}
