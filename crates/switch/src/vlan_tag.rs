//! VLAN tag of a frame (IEEE 802.1Q), and header rewrites with another tag or without one.

use ringroad_port::batch::Batch;
use ringroad_port::frame::ETHERNET_HEADER_BYTES;
use ringroad_wire::ether_type;
use ringroad_wire::headers::{ADDRESSES_BYTES, TAG_BYTES, VLAN_BITS};

use crate::classify::FrameHeader;

/// EtherType of the tags on which a switch with VLANs acts: those of customers. Tags of providers are a frame's content
/// (IEEE 802.1Q, 5.5).
pub(crate) const TAG_PROTOCOL: u16 = ether_type::VLAN;
/// Bytes of a header with a tag, up to the type after the tag.
const TAGGED_BYTES: usize = ETHERNET_HEADER_BYTES + TAG_BYTES;

/// Header bytes that decide on a frame, on a switch with VLANs. The frame's own bytes may change at any time, so the
/// frame leaves with these bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaggedHeader {
    /// Addresses, and flags of the frame's slot.
    pub(crate) header: FrameHeader,
    /// Control field of the tag.
    control: Option<u16>,
    addresses: [u8; ADDRESSES_BYTES],
    /// Type after the tag.
    ethertype: [u8; 2],
}

/// Header rewrite of a frame, for a plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TagRewrite {
    bytes: [u8; TAGGED_BYTES],
    len: usize,
    /// Number of leading bytes replaced.
    pub(crate) replaces: usize,
}

impl TagRewrite {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

impl TaggedHeader {
    /// Reads the header of a frame once; `None` if the frame is too short.
    pub(crate) fn read(batch: &Batch, frame: usize) -> Option<Self> {
        let mut head = [0; TAGGED_BYTES];
        let len = batch.read(frame, &mut head);
        Self::parse(head.get(..len)?, batch.first_fragment(frame)?.flags())
    }

    /// Reads a header from bytes that do not change.
    pub(crate) fn parse(head: &[u8], flags: u16) -> Option<Self> {
        let (header, behind) = head.split_first_chunk::<ETHERNET_HEADER_BYTES>()?;
        let &[a, b, c, d, e, f, g, h, i, j, k, l, high, low] = header;
        let (control, ethertype) = match (u16::from_be_bytes([high, low]), behind) {
            (TAG_PROTOCOL, &[high, low, type_high, type_low, ..]) => {
                (Some(u16::from_be_bytes([high, low])), [type_high, type_low])
            }
            // The tag is cut off.
            (TAG_PROTOCOL, _) => return None,
            _ => (None, [high, low]),
        };
        let addresses = [a, b, c, d, e, f, g, h, i, j, k, l];
        Some(Self { header: FrameHeader::from_bytes(header, flags), control, addresses, ethertype })
    }

    /// VLAN in the tag; `None` if there is no tag, or if the tag only has a priority.
    pub(crate) fn vlan(&self) -> Option<u16> {
        self.control.map(|control| control & VLAN_BITS).filter(|&vlan| vlan != 0)
    }

    /// Whether a second tag follows the first.
    pub(crate) fn has_inner_tag(&self) -> bool {
        u16::from_be_bytes(self.ethertype) == TAG_PROTOCOL
    }

    /// Header with the same tag, after other addresses and before another type.
    pub(crate) fn with(&self, head: [u8; ETHERNET_HEADER_BYTES]) -> Self {
        let [addresses @ .., high, low] = head;
        Self { addresses, ethertype: [high, low], ..*self }
    }

    fn replaces(&self) -> usize {
        ETHERNET_HEADER_BYTES + self.control.map_or(0, |_| TAG_BYTES)
    }

    /// Header rewrite without a tag.
    pub(crate) fn untagged(&self) -> TagRewrite {
        let mut bytes = [0; TAGGED_BYTES];
        let parts = self.addresses.into_iter().chain(self.ethertype);
        bytes.iter_mut().zip(parts).for_each(|(byte, part)| *byte = part);
        TagRewrite { bytes, len: ETHERNET_HEADER_BYTES, replaces: self.replaces() }
    }

    /// Header rewrite with the tag of a VLAN, and with the priority of the frame's own tag.
    pub(crate) fn tagged(&self, vlan: u16) -> TagRewrite {
        let control = self.control.unwrap_or(0) & !VLAN_BITS | vlan & VLAN_BITS;
        let mut bytes = [0; TAGGED_BYTES];
        let tag = TAG_PROTOCOL.to_be_bytes().into_iter().chain(control.to_be_bytes());
        let parts = self.addresses.into_iter().chain(tag).chain(self.ethertype);
        bytes.iter_mut().zip(parts).for_each(|(byte, part)| *byte = part);
        TagRewrite { bytes, len: TAGGED_BYTES, replaces: self.replaces() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

    fn head(behind: &[u8]) -> Vec<u8> {
        [&ADDRESSES, behind].concat()
    }

    #[test]
    fn a_head_gets_a_tag_and_loses_it() {
        let plain = TaggedHeader::parse(&head(&[8, 0, 0x45, 0, 0, 0]), 0).unwrap();
        assert_eq!((plain.vlan(), plain.has_inner_tag()), (None, false));
        let tagged = plain.tagged(10);
        assert_eq!((tagged.bytes(), tagged.replaces), (&head(&[0x81, 0, 0, 10, 8, 0])[..], 14));
        assert_eq!((plain.untagged().bytes(), plain.untagged().replaces), (&head(&[8, 0])[..], 14));
        let again = TaggedHeader::parse(tagged.bytes(), 0).unwrap();
        assert_eq!(again.vlan(), Some(10));
        assert_eq!((again.untagged().bytes(), again.untagged().replaces), (&head(&[8, 0])[..], 18));
    }

    #[test]
    fn a_tag_keeps_its_priority_and_one_of_vlan_0_has_nothing_else() {
        let frame = TaggedHeader::parse(&head(&[0x81, 0, 0xb0, 20, 8, 0]), 0).unwrap();
        assert_eq!(frame.vlan(), Some(20));
        assert_eq!(frame.tagged(4094).bytes(), head(&[0x81, 0, 0xbf, 0xfe, 8, 0]));
        let priority = TaggedHeader::parse(&head(&[0x81, 0, 0xa0, 0, 8, 0]), 0).unwrap();
        assert_eq!(priority.vlan(), None);
        assert_eq!(
            (priority.tagged(7).bytes(), priority.tagged(7).replaces),
            (&head(&[0x81, 0, 0xa0, 7, 8, 0])[..], 18)
        );
    }

    #[test]
    fn an_inner_tag_is_noticed_and_a_tag_that_is_cut_off_is_too_short() {
        assert!(TaggedHeader::parse(&head(&[0x81, 0, 0, 10, 0x81, 0]), 0).unwrap().has_inner_tag());
        assert!(!TaggedHeader::parse(&head(&[0x88, 0xa8, 0, 10, 0x81, 0]), 0).unwrap().has_inner_tag());
        for cut in [&[][..], &[8], &[0x81, 0], &[0x81, 0, 0, 10, 8]] {
            assert!(TaggedHeader::parse(&head(cut), 0).is_none(), "{cut:?}");
        }
    }
}
