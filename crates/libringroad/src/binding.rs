//! Middle part of a port name: rings, flags and region.

use crate::failure::{CallError, readable};
use crate::number::split_number;

/// Rings that are bound (`NR_REG_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum RegMode {
    /// All ring pairs of the port, without the host's.
    AllNic = 1,
    /// The host's ring pairs.
    Host = 2,
    /// Ring pairs of the port and of the host.
    NicAndHost = 3,
    /// One ring pair.
    OneNic = 4,
    /// One ring pair of the host.
    OneHost = 8,
}

/// Letters after a slash, and the `NR_*` flags that they set.
const FLAGS: [(u8, u64); 6] =
    [(b'x', 0x800), (b'z', 0x400), (b't', 0x100), (b'r', 0x200), (b'R', 0x2000), (b'T', 0x4000)];

/// Highest number of a single ring.
const RING_MAX: u64 = 4094;

/// Content of the middle part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingSpec {
    /// Rings to bind.
    pub mode: RegMode,
    /// Number of the ring pair in the two modes that bind one.
    pub ring: u16,
    /// Flags: `NR_*`.
    pub flags: u64,
    /// Number of the region; 0 if any will do.
    pub region: u16,
}

/// Reads rings, flags and numbers of regions. Returns them and the rest: nothing, or a list of options with its `@`.
/// `region` is the region that has been chosen already, 0 for none.
///
/// # Errors
///
/// `EINVAL` for any other text, a ring or region out of range, and two different regions.
pub fn split_binding(text: &[u8], region: u16) -> Result<(BindingSpec, &[u8]), CallError> {
    let fail = |what: &str| Err(CallError::invalid(format!("{}: {what}", readable(text))));
    let mut binding = BindingSpec { mode: RegMode::AllNic, ring: 0, flags: 0, region };
    let mut rest = text;

    match rest {
        [b'^', b'0'..=b'9', ..] => binding.mode = RegMode::OneHost,
        [b'^', after @ ..] => (binding.mode, rest) = (RegMode::Host, after),
        [b'*', after @ ..] => (binding.mode, rest) = (RegMode::NicAndHost, after),
        [b'-', ..] => binding.mode = RegMode::OneNic,
        _ => {}
    }
    if matches!(binding.mode, RegMode::OneNic | RegMode::OneHost) {
        let Some((ring, after)) = split_number(&rest[1..], RING_MAX) else {
            return fail("the number of a ring, below 4095, is missing");
        };
        (binding.ring, rest) = (ring as u16, after);
    }
    if let [b'/', after @ ..] = rest {
        let length = after.iter().take_while(|byte| **byte != b'@').count();
        if length == 0 {
            return fail("a flag is missing behind the slash");
        }
        for letter in &after[..length] {
            let Some((_, flag)) = FLAGS.iter().find(|(known, _)| known == letter) else {
                return fail(&format!("{} is not a flag (x z t r R T)", readable(&[*letter])));
            };
            binding.flags |= flag;
        }
        rest = &after[length..];
    }
    while let [b'@', b'0'..=b'9', ..] = rest {
        let (number, after) = match split_number(&rest[1..], u16::MAX.into()) {
            Some((number @ 1.., after)) => (number as u16, after),
            _ => return fail("the number of a region is from 1 to 65535"),
        };
        if binding.region != 0 && binding.region != number {
            return fail(&format!("region {} is chosen already", binding.region));
        }
        (binding.region, rest) = (number, after);
    }
    match rest {
        [] | [b'@', ..] => Ok((binding, rest)),
        _ => fail("what follows the name is ^, ^N, *, -N, then /FLAGS, then @REGION or @OPTION"),
    }
}
