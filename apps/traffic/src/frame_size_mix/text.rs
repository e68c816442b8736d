//! Sizes as text on a command line.

use std::str::FromStr;

use super::FrameSizeMix;
use crate::line_rate::FrameSize;

/// The text names no frame sizes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{text}\" names no frame sizes: write 64, 64,512,1518 for sizes in turn, 64:7,594:4,1518:1 with weights, 64-1518 or \
     64-1518/2 for a range, or imix; a size is {} to {} bytes, the 4 bytes of FCS included",
    FrameSize::MIN,
    FrameSize::MAX
)]
#[non_exhaustive]
pub struct FrameSizeMixError {
    pub text: String,
}

impl FromStr for FrameSizeMix {
    type Err = FrameSizeMixError;

    /// Reads `64`, `64,512,1518`, `64:7,594:4,1518:1`, `64-1518`, `64-1518/2` or `imix`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mix = match text {
            "imix" => Some(Self::Imix),
            _ if text.contains(':') => weighted(text),
            _ if text.contains('-') => range(text),
            _ => sizes(text),
        };
        mix.ok_or_else(|| FrameSizeMixError { text: text.to_owned() })
    }
}

fn sizes(text: &str) -> Option<FrameSizeMix> {
    let sizes: Vec<FrameSize> = text.split(',').map(|size| size.parse().ok()).collect::<Option<_>>()?;
    Some(match sizes.as_slice() {
        [size] => FrameSizeMix::Fixed(*size),
        _ => FrameSizeMix::InTurn(sizes),
    })
}

fn weighted(text: &str) -> Option<FrameSizeMix> {
    let pair = |pair: &str| {
        let (size, weight) = pair.split_once(':')?;
        Some((size.parse().ok()?, weight.parse().ok().filter(|weight| *weight > 0)?))
    };
    let sizes = text.split(',').map(pair).collect::<Option<_>>()?;
    Some(FrameSizeMix::Weighted { sizes, random_seed: None })
}

fn range(text: &str) -> Option<FrameSizeMix> {
    let (range, step) = text.split_once('/').unwrap_or((text, "1"));
    let (first, last) = range.split_once('-')?;
    let (first, last): (FrameSize, FrameSize) = (first.parse().ok()?, last.parse().ok()?);
    let step = step.parse().ok().filter(|step| *step > 0)?;
    (first <= last).then_some(FrameSizeMix::Range { first, last, step, random_seed: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: u32) -> FrameSize {
        FrameSize::new(bytes).unwrap()
    }

    #[test]
    fn all_notations_of_sizes_are_read() {
        for (text, mix) in [
            ("64", FrameSizeMix::Fixed(size(64))),
            ("64,512", FrameSizeMix::InTurn(vec![size(64), size(512)])),
            ("imix", FrameSizeMix::Imix),
            (
                "64:7,594:4",
                FrameSizeMix::Weighted { sizes: vec![(size(64), 7), (size(594), 4)], random_seed: None },
            ),
            (
                "64-1518",
                FrameSizeMix::Range { first: size(64), last: size(1518), step: 1, random_seed: None },
            ),
            ("64-80/8", FrameSizeMix::Range { first: size(64), last: size(80), step: 8, random_seed: None }),
        ] {
            assert_eq!(text.parse(), Ok(mix));
        }
        for text in ["", "63", "64,", "64:0", "64:x", "1518-64", "64-", "64-80/0", "IMIX", "-"] {
            let error = text.parse::<FrameSizeMix>().unwrap_err().to_string();
            assert!(error.contains("names no frame sizes"), "{error}");
        }
    }
}
