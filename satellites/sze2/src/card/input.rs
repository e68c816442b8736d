//! Selects the channel of a frame that reaches the card, or rejects the frame.

use super::distribution::DistributionMode;
use super::flow_key::{HashKey, KEY_BYTES};
use super::settings::{AddressCheck, CardSettings, IbufSettings};

/// Reason why the card rejects a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// The input buffer is switched off.
    Disabled,
    /// The frame is shorter than the minimum.
    Short,
    /// The frame is longer than the maximum.
    Long,
    /// The frame is for another station.
    Address,
    /// The filter denies the frame.
    Filter,
}

/// Checks whether the input buffer lets in a frame for `destination`.
#[inline]
fn check(ibuf: &IbufSettings, destination: Option<[u8; 6]>, frame_bytes: usize) -> Result<(), Rejection> {
    if !ibuf.enabled {
        return Err(Rejection::Disabled);
    }
    if frame_bytes < ibuf.min_frame_bytes as usize {
        return Err(Rejection::Short);
    }
    if frame_bytes > ibuf.max_frame_bytes as usize {
        return Err(Rejection::Long);
    }
    let is_let_in = match (ibuf.address_check, destination) {
        (AddressCheck::Promiscuous, _) => true,
        (_, None) => false,
        (check, Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff])) => check != AddressCheck::Listed,
        (check, Some(group)) if group[0] & 1 == 1 => check == AddressCheck::Multicast,
        (_, Some(station)) => ibuf.addresses.contains(&station),
    };
    if is_let_in { Ok(()) } else { Err(Rejection::Address) }
}

impl CardSettings {
    /// Whether a setting needs more of a frame than its first six bytes.
    #[inline]
    #[must_use]
    pub fn needs_key(&self) -> bool {
        !self.filter.is_uniform()
            || !self.rules.is_empty()
            || self.distribution.spread != DistributionMode::RoundRobin
    }

    /// Number of bytes from the start of a frame that [`Self::channel_of`] needs: all bytes, if the frame is shorter.
    #[inline]
    #[must_use]
    pub fn needed_bytes(&self) -> usize {
        if self.needs_key() { KEY_BYTES } else { 6 }
    }

    /// Channel for a frame that begins with `bytes`. `turn` counts the frames spread in turn.
    ///
    /// # Errors
    /// [`Rejection`].
    #[inline]
    pub fn channel_of(&self, bytes: &[u8], frame_bytes: usize, turn: &mut u32) -> Result<u8, Rejection> {
        check(&self.ibuf, bytes.first_chunk().copied(), frame_bytes)?;
        let key = if self.needs_key() { HashKey::parse(bytes) } else { None };
        let of_rule = self.rules.channels(key.as_ref(), frame_bytes);
        let channels = of_rule.unwrap_or_else(|| self.filter.channels(key.as_ref()));
        self.distribution.channel(key.as_ref(), channels, turn).ok_or(Rejection::Filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::design::DESIGNS;

    const OWN: [u8; 6] = [0, 0x11, 0x17, 0, 0, 1];

    fn settings() -> CardSettings {
        CardSettings::new(&DESIGNS[0], 1, OWN, false)
    }

    fn verdict(settings: &CardSettings, destination: [u8; 6], frame_bytes: usize) -> Result<u8, Rejection> {
        settings.channel_of(&destination, frame_bytes, &mut 0)
    }

    #[test]
    fn each_address_check_lets_its_frames_in() {
        let (broadcast, group, other_station) = ([0xff; 6], [1, 0, 0x5e, 0, 0, 1], [2, 0, 0, 0, 0, 9]);
        let kinds = [OWN, broadcast, group, other_station];
        for (check, let_in) in AddressCheck::ALL.into_iter().zip([
            [true, true, true, true],
            [true, false, false, false],
            [true, true, false, false],
            [true, true, true, false],
        ]) {
            let mut settings = settings();
            settings.ibuf.address_check = check;
            let got = kinds.map(|kind| verdict(&settings, kind, 60));
            assert_eq!(got, let_in.map(|is| if is { Ok(0) } else { Err(Rejection::Address) }), "{check}");
        }
    }

    #[test]
    fn lengths_and_the_enable_switch_are_checked_first() {
        let mut settings = settings();
        (settings.ibuf.min_frame_bytes, settings.ibuf.max_frame_bytes) = (60, 1514);
        settings.ibuf.address_check = AddressCheck::Listed;
        let lengths = [59, 60, 1514, 1515].map(|len| verdict(&settings, OWN, len));
        assert_eq!(lengths, [Err(Rejection::Short), Ok(0), Ok(0), Err(Rejection::Long)]);
        settings.ibuf.enabled = false;
        assert_eq!(verdict(&settings, OWN, 60), Err(Rejection::Disabled));
    }

    #[test]
    fn denied_frames_get_no_channel() {
        let mut settings = settings();
        settings.filter = "default allow 0\ndeny if ethertype 0x0806".parse().unwrap();
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&[8, 6]);
        assert_eq!(settings.channel_of(&frame, 60, &mut 0), Err(Rejection::Filter));
        frame[13] = 0;
        assert_eq!(settings.channel_of(&frame, 60, &mut 0), Ok(0));
    }
}
