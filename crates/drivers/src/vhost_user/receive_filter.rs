//! The frames that a guest wants to receive, as its driver sets them through the control queue (virtio 1.2, sections
//! 5.1.6.5.1 to 5.1.6.5.3).

use ringroad_port::batch::Batch;
use ringroad_wire::mac::Mac;

/// Maximum number of addresses in a list. A guest with more of them receives all frames of that kind.
const MAX_LISTED: usize = 64;
const VLAN_WORDS: usize = 64;
const VLAN_MASK: u16 = 0xfff;
/// Length of an Ethernet header with a VLAN tag, without the type behind the tag, bytes.
const HEAD_BYTES: usize = 16;

/// Modes, by the numbers of their commands.
pub(super) const PROMISCUOUS: u8 = 0;
pub(super) const ALL_MULTICAST: u8 = 1;
const ALL_UNICAST: u8 = 2;
const NO_MULTICAST: u8 = 3;
const NO_UNICAST: u8 = 4;
const NO_BROADCAST: u8 = 5;
const MODES: usize = 6;

/// The filter of a card. The default lets everything pass, until the driver says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReceiveFilter {
    modes: [bool; MODES],
    /// The card's address; `None` if only the guest knows it.
    pub(super) address: Option<Mac>,
    unicast: AddressList,
    multicast: AddressList,
    /// A bit for each VLAN that the guest has; `None`: frames are not filtered by VLAN.
    vlans: Option<Box<[u64; VLAN_WORDS]>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AddressList {
    /// The addresses, in order.
    Listed(Vec<Mac>),
    /// More addresses than a list has room for.
    Overflowing,
}

impl AddressList {
    /// Reads a list from a command: a number of addresses, and the addresses. Returns the bytes behind it.
    fn read(data: &[u8]) -> Option<(Self, &[u8])> {
        let (count, data) = data.split_first_chunk::<4>()?;
        let bytes = usize::try_from(u32::from_le_bytes(*count)).ok()?.checked_mul(6)?;
        let (addresses, rest) = data.split_at_checked(bytes)?;
        let (addresses, _) = addresses.as_chunks::<6>();
        if addresses.len() > MAX_LISTED {
            return Some((Self::Overflowing, rest));
        }
        let mut listed: Vec<Mac> = addresses.iter().map(|&octets| Mac::from_octets(octets)).collect();
        listed.sort_unstable();
        Some((Self::Listed(listed), rest))
    }

    fn has(&self, address: Mac) -> bool {
        match self {
            Self::Listed(listed) => listed.binary_search(&address).is_ok(),
            Self::Overflowing => true,
        }
    }

    fn leave(&self, numbers: &mut Vec<u64>) {
        match self {
            Self::Listed(listed) => {
                numbers.push(listed.len() as u64);
                numbers.extend(listed.iter().map(|address| address.bits()));
            }
            Self::Overflowing => numbers.push(u64::MAX),
        }
    }

    fn resume(mut next: impl FnMut() -> std::io::Result<u64>) -> std::io::Result<Self> {
        match next()? {
            u64::MAX => Ok(Self::Overflowing),
            count => {
                (0..count).map(|_| next().map(Mac::from_bits)).collect::<Result<_, _>>().map(Self::Listed)
            }
        }
    }
}

impl ReceiveFilter {
    /// A filter that lets everything pass, of a card with this address.
    pub(super) fn new(address: Option<Mac>) -> Self {
        let mut modes = [false; MODES];
        modes[usize::from(PROMISCUOUS)] = true;
        let (unicast, multicast) = (AddressList::Listed(Vec::new()), AddressList::Listed(Vec::new()));
        Self { modes, address, unicast, multicast, vlans: None }
    }

    fn has(&self, mode: u8) -> bool {
        self.modes.get(usize::from(mode)).is_some_and(|&on| on)
    }

    /// Whether every frame passes.
    pub(super) fn is_open(&self) -> bool {
        self.has(PROMISCUOUS)
    }

    /// Turns a mode on or off. `None` if there is no such mode.
    pub(super) fn set_mode(&mut self, mode: u8, on: bool) -> Option<()> {
        *self.modes.get_mut(usize::from(mode))? = on;
        Some(())
    }

    /// Sets both lists of addresses from a command's data: unicast, then multicast. `None` if the data are no lists;
    /// the filter then stays as it was.
    pub(super) fn set_addresses(&mut self, data: &[u8]) -> Option<()> {
        let (unicast, rest) = AddressList::read(data)?;
        let (multicast, rest) = AddressList::read(rest)?;
        if !rest.is_empty() {
            return None;
        }
        (self.unicast, self.multicast) = (unicast, multicast);
        Some(())
    }

    /// Begins or ends to filter by VLAN. In the beginning only frames without a VLAN pass: those without a tag, and
    /// those whose tag has only a priority.
    pub(super) fn filter_vlans(&mut self, on: bool) {
        if on != self.vlans.is_some() {
            self.vlans = on.then(|| {
                let mut vlans = Box::new([0; VLAN_WORDS]);
                vlans[0] = 1;
                vlans
            });
        }
    }

    /// Adds a VLAN, or removes it. `None` if there is no such VLAN.
    pub(super) fn set_vlan(&mut self, vlan: u16, wanted: bool) -> Option<()> {
        let word = self.vlans.as_mut()?.get_mut(usize::from(vlan / 64))?;
        let bit = 1 << (vlan % 64);
        if wanted {
            *word |= bit
        } else {
            *word &= !bit
        }
        Some(())
    }

    /// Whether the guest wants frame `frame` of the batch.
    pub(super) fn lets_pass(&self, batch: &Batch, frame: u16) -> bool {
        let mut head = [0; HEAD_BYTES];
        batch.read(frame.into(), &mut head);
        let [a, b, c, d, e, f, _, _, _, _, _, _, type_high, type_low, tag @ ..] = head;
        let vlan = u16::from_be_bytes(tag) & VLAN_MASK;
        if [type_high, type_low] == [0x81, 0x00] && !self.has_vlan(vlan) {
            return false;
        }
        let to = Mac::from_octets([a, b, c, d, e, f]);
        if to == Mac::BROADCAST {
            !self.has(NO_BROADCAST)
        } else if to.is_multicast() {
            !self.has(NO_MULTICAST) && (self.has(ALL_MULTICAST) || self.multicast.has(to))
        } else {
            let is_own = || self.address.is_none_or(|own| own == to) || self.unicast.has(to);
            !self.has(NO_UNICAST) && (self.has(ALL_UNICAST) || is_own())
        }
    }

    fn has_vlan(&self, vlan: u16) -> bool {
        let Some(vlans) = &self.vlans else { return true };
        vlans.get(usize::from(vlan / 64)).is_some_and(|word| word >> (vlan % 64) & 1 != 0)
    }

    /// Appends the filter's state, for another process.
    pub(super) fn leave(&self, numbers: &mut Vec<u64>) {
        numbers.extend(self.modes.map(u64::from));
        numbers.extend([self.address.is_some().into(), self.address.unwrap_or_default().bits()]);
        self.unicast.leave(numbers);
        self.multicast.leave(numbers);
        numbers.push(self.vlans.is_some().into());
        numbers.extend(self.vlans.iter().flat_map(|vlans| **vlans));
    }

    /// Reads the state that another process left.
    ///
    /// # Errors
    /// `next` has no more numbers.
    pub(super) fn resume(mut next: impl FnMut() -> std::io::Result<u64>) -> std::io::Result<Self> {
        let mut filter = Self::new(None);
        for mode in &mut filter.modes {
            *mode = next()? != 0;
        }
        let (is_known, address) = (next()? != 0, Mac::from_bits(next()?));
        filter.address = is_known.then_some(address);
        filter.unicast = AddressList::resume(&mut next)?;
        filter.multicast = AddressList::resume(&mut next)?;
        filter.filter_vlans(next()? != 0);
        for word in filter.vlans.iter_mut().flat_map(|vlans| vlans.iter_mut()) {
            *word = next()?;
        }
        Ok(filter)
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use ringroad_port::frame::Fragment;

    use super::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 1];
    const ALL: [u8; 6] = [0xff; 6];

    fn passes(filter: &ReceiveFilter, to: [u8; 6], vlan: Option<u16>) -> bool {
        let mut frame = [to, [2, 0, 0, 0, 0, 9]].concat();
        if let Some(vlan) = vlan {
            frame.extend([[0x81, 0x00], (vlan | 0x6000).to_be_bytes()].concat());
        }
        frame.extend([8, 0, 1, 2, 3]);
        let mut batch = Batch::new();
        // The head is in two pieces.
        for (number, piece) in frame.chunks(13).enumerate() {
            let flags = if number == 0 { ringroad_ring::layout::slot_flags::MORE_FRAGMENTS } else { 0 };
            // SAFETY: the frame outlives the batch, and nothing writes to it.
            batch.push(unsafe { Fragment::from_private(piece, flags) }, number == 0);
        }
        filter.lets_pass(&batch, 0)
    }

    fn filter() -> ReceiveFilter {
        let mut filter = ReceiveFilter::new(Some(Mac::from_octets(OWN)));
        assert!(filter.is_open());
        filter.set_mode(PROMISCUOUS, false).unwrap();
        assert!(!filter.is_open());
        filter
    }

    fn lists(unicast: &[[u8; 6]], multicast: &[[u8; 6]]) -> Vec<u8> {
        let list = |addresses: &[[u8; 6]]| {
            [(addresses.len() as u32).to_le_bytes().to_vec(), addresses.concat()].concat()
        };
        [list(unicast), list(multicast)].concat()
    }

    #[test]
    fn only_frames_to_the_station_and_its_groups_pass() {
        let mut filter = filter();
        let results = |filter: &ReceiveFilter| [OWN, OTHER, GROUP, ALL].map(|to| passes(filter, to, None));
        assert_eq!(results(&filter), [true, false, false, true]);
        filter.set_addresses(&lists(&[OTHER], &[GROUP])).unwrap();
        assert_eq!(results(&filter), [true; 4]);
        filter.set_addresses(&lists(&[], &[])).unwrap();
        assert_eq!(results(&filter), [true, false, false, true]);
        for (mode, expected) in [
            (ALL_MULTICAST, [true, false, true, true]),
            (ALL_UNICAST, [true, true, false, true]),
            (NO_UNICAST, [false, false, false, true]),
            (NO_BROADCAST, [true, false, false, false]),
        ] {
            let mut filter = filter.clone();
            filter.set_mode(mode, true).unwrap();
            assert_eq!(results(&filter), expected, "mode {mode}");
        }
        filter.set_addresses(&lists(&[], &[GROUP])).unwrap();
        filter.set_mode(NO_MULTICAST, true).unwrap();
        assert_eq!(results(&filter), [true, false, false, true]);
        assert_eq!(filter.set_mode(6, true), None);
        // Only the guest knows its address.
        filter.address = None;
        assert!(passes(&filter, OTHER, None));
    }

    #[test]
    fn lists_that_are_too_long_let_all_of_their_kind_pass_and_odd_ones_change_nothing() {
        let mut filter = filter();
        let many: Vec<[u8; 6]> = (0..=MAX_LISTED as u8).map(|last| [2, 1, 0, 0, 0, last]).collect();
        filter.set_addresses(&lists(&many, &[])).unwrap();
        assert!(passes(&filter, OTHER, None) && !passes(&filter, GROUP, None));
        let before = filter.clone();
        let huge = [u32::MAX.to_le_bytes().to_vec(), vec![0; 100]].concat();
        let extra = [lists(&[], &[]), vec![0]].concat();
        for odd in [&[][..], &[0; 3], &[0; 4], &[1, 0, 0, 0, 2, 0, 0], &huge, &extra] {
            assert_eq!(filter.set_addresses(odd), None, "{odd:?}");
        }
        assert_eq!(filter, before);
    }

    #[test]
    fn frames_of_other_vlans_are_filtered_once_the_driver_can_list_its_own() {
        let mut filter = filter();
        assert_eq!(filter.set_vlan(7, true), None);
        assert!(passes(&filter, OWN, Some(7)));
        filter.filter_vlans(true);
        assert_eq!([None, Some(0), Some(7)].map(|vlan| passes(&filter, OWN, vlan)), [true, true, false]);
        filter.set_vlan(7, true).unwrap();
        filter.set_vlan(4095, true).unwrap();
        filter.filter_vlans(true);
        assert_eq!([7, 8, 4095].map(|vlan| passes(&filter, OWN, Some(vlan))), [true, false, true]);
        filter.set_vlan(7, false).unwrap();
        assert!(!passes(&filter, OWN, Some(7)));
        assert_eq!(filter.set_vlan(4096, true), None);
    }

    #[test]
    fn another_process_continues_with_the_same_filter() {
        let mut filter = filter();
        filter.set_addresses(&lists(&[OTHER], &vec![GROUP; MAX_LISTED + 1])).unwrap();
        filter.filter_vlans(true);
        filter.set_vlan(100, true).unwrap();
        let mut numbers = Vec::new();
        filter.leave(&mut numbers);
        let mut left = numbers.iter().copied();
        let mut next = || left.next().ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into());
        assert_eq!(ReceiveFilter::resume(&mut next).unwrap(), filter);
        assert!(next().is_err());
    }
}
