//! A packet on its path through the tables: its fields, and the changes of its headers by actions.

mod checksums;

use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::oxm::{FieldMatch, FieldValue, Match, OxmField, VLAN_PRESENT};
use ringroad_openflow::text::Headers;

use ringroad_port::frame::Fragment;

use crate::key::{ETHERNET_BYTES, ETHERNET_WORDS, FlowKey, SHORT_BYTES, Words};
use crate::layout::{LABEL_BYTES, Layout, Network, u16_at};
use crate::packet_headers::PacketHeaders;
use ringroad_wire::checksum::difference;
use ringroad_wire::ether_type;
use ringroad_wire::headers::ADDRESSES_BYTES;

/// Number of a frame's first bytes that are read. Fields after them do not exist.
pub const HEADER_BYTES: usize = 160;
/// Maximum length of the head with the tags that actions push, bytes: a header rewrite in a plan also has room for a
/// header for controllers.
pub const MAX_REWRITE_BYTES: usize =
    ringroad_port::forwarding_plane::MAX_REWRITE_BYTES - crate::control_frame::PACKET_IN_BYTES;

/// Bytes of the longest field, an address of IPv6.
const MAX_FIELD_BYTES: usize = 16;
/// Flag in the third byte of an MPLS header: no other MPLS header follows.
const BOTTOM_OF_STACK: u8 = 1;

/// Reason why an action failed. The packet goes no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActionError {
    /// The TTL would become zero.
    TtlInvalid,
    /// The headers would become longer than [`MAX_REWRITE_BYTES`].
    TooLong,
}

/// A packet and its pipeline fields. One value is loaded with one frame after the other.
#[derive(Debug, Clone)]
pub struct Packet {
    /// Port that the packet came in by.
    pub in_port: PortNo,
    /// Metadata passed from tables to later tables.
    pub metadata: u64,
    /// Tunnel that the packet came from or goes to.
    pub tunnel_id: u64,
    headers: PacketHeaders,
    /// First bytes of the frame as it came in, and their number.
    original: [u8; HEADER_BYTES],
    taken: usize,
    /// Number of the frame's bytes after the head.
    behind: usize,
    layout: Layout,
    has_open_checksum: bool,
    is_changed: bool,
    key: FlowKey,
    /// Whether the headers have changed since the key was read.
    is_key_old: bool,
}

impl Default for Packet {
    fn default() -> Self {
        Self {
            in_port: PortNo(0),
            metadata: 0,
            tunnel_id: 0,
            headers: PacketHeaders::default(),
            original: [0; HEADER_BYTES],
            taken: 0,
            behind: 0,
            layout: Layout::default(),
            has_open_checksum: false,
            is_changed: false,
            key: FlowKey::default(),
            is_key_old: true,
        }
    }
}

impl Packet {
    /// Loads a frame of `frame_bytes` bytes that begins with `headers`; at most [`HEADER_BYTES`] of the headers are
    /// used. If `has_open_checksum`, the sender left the sum over addresses and ports to a card.
    pub fn load(&mut self, in_port: PortNo, headers: &[u8], frame_bytes: usize, has_open_checksum: bool) {
        self.headers.set(headers.get(..HEADER_BYTES).unwrap_or(headers));
        self.begin(in_port);
        self.complete(frame_bytes, has_open_checksum);
        self.is_key_old = true;
    }

    fn begin(&mut self, in_port: PortNo) {
        (self.in_port, self.metadata, self.tunnel_id) = (in_port, 0, 0);
    }

    fn complete(&mut self, frame_bytes: usize, has_open_checksum: bool) {
        (self.taken, self.behind) = (self.headers.len(), frame_bytes.saturating_sub(self.headers.len()));
        if let Some(original) = self.original.get_mut(..self.taken) {
            original.copy_from_slice(&self.headers);
        }
        self.has_open_checksum = has_open_checksum;
        self.is_changed = false;
        self.layout = Layout::of(&self.headers);
    }

    /// Begins the frames of a port, before any frame is known.
    #[inline]
    pub(crate) fn enter(&mut self, in_port: PortNo) {
        self.begin(in_port);
        self.headers.clear();
        self.key.set_pipeline(in_port.0, 0, 0);
        self.is_key_old = false;
    }

    /// Takes the next frame from the port given to [`Packet::enter`], and reads as much of it as these words of the key
    /// need. Until [`Packet::load_rest`], only the key may be read. Returns whether the frame is a fragment of an IP
    /// packet, as far as the words need more than Ethernet headers.
    #[inline]
    pub(crate) fn enter_frame(&mut self, fragments: &[Fragment], bytes: usize, words: Words) -> bool {
        let is_read = if words & !ETHERNET_WORDS == 0 {
            self.headers.begin::<ETHERNET_BYTES>(fragments);
            self.key.read_ethernet(self.headers.all(), bytes)
        } else {
            self.headers.begin::<SHORT_BYTES>(fragments);
            self.key.read_ipv4(self.headers.all(), bytes)
        };
        !is_read && self.enter_longer(fragments)
    }

    /// Reads the key of a frame for which the short paths are not enough. Returns whether it is a fragment.
    #[inline(never)]
    fn enter_longer(&mut self, fragments: &[Fragment]) -> bool {
        self.headers.read(fragments, HEADER_BYTES);
        self.layout = Layout::of(&self.headers);
        self.key.read(&self.headers, &self.layout);
        self.layout.is_fragment
    }

    /// Reads the rest of a frame's head.
    pub(crate) fn load_rest(&mut self, fragments: &[Fragment], frame_bytes: usize, has_open_checksum: bool) {
        self.headers.read(fragments, HEADER_BYTES);
        self.complete(frame_bytes, has_open_checksum);
    }

    /// Ethernet header of a frame, perhaps with further bytes.
    pub(crate) fn header(&mut self, fragments: &[Fragment]) -> &[u8] {
        self.headers.read(fragments, ETHERNET_BYTES);
        &self.headers
    }

    /// First bytes of the frame, as they are now.
    #[must_use]
    pub fn header_bytes(&self) -> &[u8] {
        &self.headers
    }

    /// Key as it was last read.
    #[inline]
    pub(crate) fn last_key(&self) -> &FlowKey {
        &self.key
    }

    /// Key of the packet as it is now.
    #[inline]
    pub(crate) fn key(&mut self) -> &FlowKey {
        if self.is_key_old {
            self.key.read(&self.headers, &self.layout);
            self.is_key_old = false;
        }
        self.key.set_pipeline(self.in_port.0, self.metadata, self.tunnel_id);
        &self.key
    }

    /// Head as it is now, and the number of the frame's bytes that it replaces. `None` if the head is unchanged, as
    /// after a tag was pushed and popped again.
    #[must_use]
    pub fn changed_headers(&self) -> Option<(usize, &[u8])> {
        let is_other = self.is_changed && self.original.get(..self.taken) != Some(&self.headers);
        is_other.then_some((self.taken, &*self.headers))
    }

    /// All fields of the packet; those of the pipeline only if they are not zero.
    #[must_use]
    pub fn headers(&self) -> Headers {
        let is_told = |field: OxmField, value: u128| match field {
            OxmField::InPhyPort => false,
            OxmField::Metadata | OxmField::TunnelId | OxmField::VlanVid | OxmField::Ipv6Exthdr => value != 0,
            _ => true,
        };
        let fields = OxmField::ALL.into_iter().filter_map(|field| {
            let value = self.field(field).filter(|&value| is_told(field, value))?;
            Some(FieldMatch::exact(field, value))
        });
        let ttl = |at: Option<usize>| self.headers.get(at?).copied();
        Headers {
            // A packet has the prerequisites of its fields.
            fields: Match::new(fields).unwrap_or_default(),
            nw_ttl: ttl(self.network_ttl()),
            mpls_ttl: ttl(self.layout.mpls.map(|label| label + 3)),
        }
    }

    /// Length of the packet as it is now, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.headers.len() + self.behind
    }

    /// Whether the packet is a fragment of an IP packet.
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        self.layout.is_fragment
    }

    /// Value of a field; `None` if the packet does not have the field.
    #[must_use]
    pub fn field(&self, field: OxmField) -> Option<u128> {
        match field {
            OxmField::InPort | OxmField::InPhyPort => Some(self.in_port.0.into()),
            OxmField::Metadata => Some(self.metadata.into()),
            OxmField::TunnelId => Some(self.tunnel_id.into()),
            OxmField::EthType => Some(self.layout.eth_type.into()),
            OxmField::VlanVid => {
                Some(self.layout.vlan.map_or(0, |_| VLAN_PRESENT | self.read(field) & 0xfff))
            }
            OxmField::IpProto => matches!(self.layout.network, Network::Ipv4 | Network::Ipv6)
                .then_some(self.layout.ip_proto.into()),
            OxmField::Ipv6Exthdr => {
                (self.layout.network == Network::Ipv6).then_some(self.layout.exthdr.into())
            }
            _ => self
                .layout
                .location(&self.headers, field)
                .map(|location| location.value(&self.headers) & field.all_ones()),
        }
    }

    /// Whether the packet fulfils a match.
    #[must_use]
    pub fn matches(&self, wanted: &Match) -> bool {
        wanted
            .fields()
            .iter()
            .all(|one| self.field(one.field).is_some_and(|value| value & one.mask == one.value))
    }

    /// Applies an action to the headers. Ignores actions on ports, queues and groups, and actions on a missing header.
    ///
    /// # Errors
    /// The packet must go no further.
    pub fn apply(&mut self, action: &Action) -> Result<(), ActionError> {
        match *action {
            Action::SetField(set) => self.set(set),
            Action::PushVlan(ethertype) => self.push_vlan(ethertype)?,
            Action::PopVlan => {
                if let Some(tag) = self.layout.vlan {
                    self.replace(tag - 2, tag + 2, &[])?;
                }
            }
            Action::PushMpls(ethertype) => self.push_mpls(ethertype)?,
            Action::PopMpls(ethertype) => {
                if let Some(label) = self.layout.mpls {
                    self.write(self.layout.eth_type_at, &ethertype.to_be_bytes());
                    self.replace(label, label + LABEL_BYTES, &[])?;
                }
            }
            Action::PushPbb(ethertype) => self.push_pbb(ethertype)?,
            Action::PopPbb => {
                if let Some(tag) = self.layout.service_tag {
                    self.replace(0, tag + 4, &[])?;
                }
            }
            Action::SetMplsTtl(ttl) => self.set_ttl(self.layout.mpls.map(|label| label + 3), ttl),
            Action::SetNwTtl(ttl) => self.set_ttl(self.network_ttl(), ttl),
            Action::DecMplsTtl => self.decrement_ttl(self.layout.mpls.map(|label| label + 3))?,
            Action::DecNwTtl => self.decrement_ttl(self.network_ttl())?,
            Action::CopyTtlOut => {
                if let Some((outer, inner, _)) = self.nested_ttls()
                    && let Some(&ttl) = self.headers.get(inner)
                {
                    self.write(outer, &[ttl]);
                }
            }
            Action::CopyTtlIn => self.copy_ttl_in(),
            Action::Output { .. } | Action::SetQueue(_) | Action::Group(_) => {}
        }
        Ok(())
    }

    /// Raises the drop precedence of assured forwarding (RFC 2597, 6) by `levels` levels, for a meter's band. Packets
    /// of other classes stay as they are.
    pub fn remark(&mut self, levels: u8) {
        let Some(dscp) = self.field(OxmField::IpDscp) else { return };
        let (class, precedence) = (dscp >> 3, dscp >> 1 & 3);
        if (1..=4).contains(&class) && dscp & 1 == 0 && precedence != 0 {
            let raised = (precedence + u128::from(levels)).min(3);
            self.set(FieldValue { field: OxmField::IpDscp, value: class << 3 | raised << 1 });
        }
    }

    fn set(&mut self, FieldValue { field, value }: FieldValue) {
        if field == OxmField::TunnelId {
            self.tunnel_id = value as u64;
            return;
        }
        let Some(location) = self.layout.location(&self.headers, field) else { return };
        // The bit for "tag present" is not part of the tag.
        let width = if field == OxmField::VlanVid { 0xfff } else { field.all_ones() };
        let bits = width << location.shift;
        let new = (location.raw(&self.headers) & !bits | (value << location.shift) & bits).to_be_bytes();
        let Some(new) = new.get(16 - location.bytes..) else { return };
        if field == OxmField::IpProto {
            self.follow_protocol(value as u8);
        }
        self.write(location.at, new);
        if matches!(field, OxmField::EthType | OxmField::IpProto | OxmField::Icmpv6Type | OxmField::MplsBos) {
            self.layout = Layout::of(&self.headers);
        }
    }

    fn read(&self, field: OxmField) -> u128 {
        self.layout.location(&self.headers, field).map_or(0, |location| location.value(&self.headers))
    }

    /// Writes bytes of a header, at most as many as an address has, and updates the checksums.
    fn write(&mut self, at: usize, new: &[u8]) {
        (self.is_changed, self.is_key_old) = (true, true);
        let Layout { network, network_at, .. } = self.layout;
        if at < network_at || !matches!(network, Network::Ipv4 | Network::Ipv6) {
            return self.store(at, new);
        }
        // Checksums are sums of pairs of bytes, counted from the first byte of the network header.
        let is_odd = (at - network_at) % 2 == 1;
        let window = at - usize::from(is_odd)..(at + new.len()).min(self.headers.len());
        let mut buffers = [[0; MAX_FIELD_BYTES + 1]; 2];
        let mut copy = |headers: &PacketHeaders, number: usize| {
            let bytes = headers.get(window.clone()).unwrap_or(&[]);
            if let Some(target) = buffers.get_mut(number).and_then(|buffer| buffer.get_mut(..bytes.len())) {
                target.copy_from_slice(bytes);
            }
            bytes.len()
        };
        let len = copy(&self.headers, 0);
        self.store(at, new);
        copy(&self.headers, 1);
        let [old, new] = &buffers;
        if let (Some(old), Some(new)) = (old.get(..len), new.get(..len)) {
            self.follow(at, old, new);
        }
    }

    fn store(&mut self, at: usize, new: &[u8]) {
        if let Some(bytes) = self.headers.get_mut(at..at + new.len()) {
            bytes.copy_from_slice(new);
        }
    }

    /// Replaces the bytes from `from` to `to` by others, perhaps more or fewer.
    fn replace(&mut self, from: usize, to: usize, bytes: &[u8]) -> Result<(), ActionError> {
        if !self.headers.splice(from..to, bytes) {
            return Err(ActionError::TooLong);
        }
        (self.is_changed, self.is_key_old) = (true, true);
        self.layout = Layout::of(&self.headers);
        Ok(())
    }

    fn push_vlan(&mut self, ethertype: u16) -> Result<(), ActionError> {
        if self.headers.len() < ADDRESSES_BYTES {
            return Ok(());
        }
        // The new tag begins as a copy (OpenFlow 1.3.5, 5.12.1).
        let control = self.layout.vlan.and_then(|tag| u16_at(&self.headers, tag)).unwrap_or(0);
        let [type_high, type_low] = ethertype.to_be_bytes();
        let [control_high, control_low] = control.to_be_bytes();
        self.replace(ADDRESSES_BYTES, ADDRESSES_BYTES, &[type_high, type_low, control_high, control_low])
    }

    /// Adds an MPLS header after the VLAN tags, where receivers expect it.
    fn push_mpls(&mut self, ethertype: u16) -> Result<(), ActionError> {
        let Layout { eth_type_at, mpls, .. } = self.layout;
        if u16_at(&self.headers, eth_type_at).is_none_or(|found| found < ether_type::LEAST) {
            return Ok(());
        }
        let outer = mpls.and_then(|label| self.headers.get(label..)?.first_chunk::<LABEL_BYTES>()).copied();
        let label = match outer {
            Some([first, second, third, ttl]) => [first, second, third & !BOTTOM_OF_STACK, ttl],
            None => [
                0,
                0,
                BOTTOM_OF_STACK,
                self.network_ttl().and_then(|at| self.headers.get(at)).copied().unwrap_or(0),
            ],
        };
        self.store(eth_type_at, &ethertype.to_be_bytes());
        self.replace(eth_type_at + 2, eth_type_at + 2, &label)
    }

    /// Makes the frame the payload of another one between the same addresses (IEEE 802.1Q, 9.7).
    fn push_pbb(&mut self, ethertype: u16) -> Result<(), ActionError> {
        let Some(addresses) = self.headers.first_chunk::<ADDRESSES_BYTES>() else { return Ok(()) };
        let mut header = [0; ADDRESSES_BYTES + 6];
        let (outer_addresses, tag) = header.split_at_mut(ADDRESSES_BYTES);
        outer_addresses.copy_from_slice(addresses);
        let service =
            self.layout.service_tag.and_then(|tag| self.headers.get(tag..)?.first_chunk::<4>()).copied();
        let priority =
            self.layout.vlan.and_then(|tag| self.headers.get(tag)).map_or(0, |control| control & 0xe0);
        let [first, second, third, fourth] = service.unwrap_or([priority, 0, 0, 0]);
        let [type_high, type_low] = ethertype.to_be_bytes();
        tag.copy_from_slice(&[type_high, type_low, first & 0xe0, second, third, fourth]);
        self.replace(0, 0, &header)
    }

    fn network_ttl(&self) -> Option<usize> {
        match self.layout.network {
            Network::Ipv4 => Some(self.layout.network_at + 8),
            Network::Ipv6 => Some(self.layout.network_at + 7),
            Network::None | Network::Arp => None,
        }
    }

    fn set_ttl(&mut self, at: Option<usize>, ttl: u8) {
        if let Some(at) = at {
            self.write(at, &[ttl]);
        }
    }

    fn decrement_ttl(&mut self, at: Option<usize>) -> Result<(), ActionError> {
        let Some((at, &ttl)) = at.and_then(|at| Some((at, self.headers.get(at)?))) else { return Ok(()) };
        if ttl <= 1 {
            return Err(ActionError::TtlInvalid);
        }
        self.write(at, &[ttl - 1]);
        Ok(())
    }

    /// Offsets of the TTLs of the outermost MPLS header and of the header inside, and of that header if it is IPv4.
    fn nested_ttls(&self) -> Option<(usize, usize, Option<usize>)> {
        let label = self.layout.mpls?;
        let inner = label + LABEL_BYTES;
        if self.headers.get(label + 2)? & BOTTOM_OF_STACK == 0 {
            return Some((label + 3, inner + 3, None));
        }
        match self.headers.get(inner)? >> 4 {
            4 => Some((label + 3, inner + 8, Some(inner))),
            6 => Some((label + 3, inner + 7, None)),
            _ => None,
        }
    }

    fn copy_ttl_in(&mut self) {
        let Some((outer, inner, ipv4)) = self.nested_ttls() else { return };
        let (Some(&ttl), Some(&old)) = (self.headers.get(outer), self.headers.get(inner)) else { return };
        self.write(inner, &[ttl]);
        if let Some(header) = ipv4 {
            self.follow_at(header + 10, difference(&[old, 0], &[ttl, 0]));
        }
    }
}
