//! Parsers of numbers on the command line.

use std::time::Duration;

/// Parses a duration in seconds, whole or not, above 0.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text).parse().ok().filter(|seconds| *seconds > 0.0);
    number
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "give seconds above 0, like 10 or 0.5".to_owned())
}

/// Parses a duration in seconds that may be 0.
pub(crate) fn seconds_or_none(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('s').unwrap_or(text).parse().ok();
    number
        .filter(|seconds| (0.0..=86_400.0).contains(seconds))
        .ok_or_else(|| "give seconds from 0 to 86400, like 2 or 0.5".to_owned())
}

/// Parses a count in one of these forms: `1000000`, `1e6`, `64k`, `1M`, `2G` (powers of 1000), underscores allowed.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    let (number, factor) = match plain.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (plain.get(..at), 1_000),
        Some((at, 'm' | 'M')) => (plain.get(..at), 1_000_000),
        Some((at, 'g' | 'G')) => (plain.get(..at), 1_000_000_000),
        _ => (Some(plain.as_str()), 1),
    };
    let number = number.unwrap_or_default();
    let whole = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    // Exponents make whole numbers too, such as 1e6; up to 2^53 the conversion is exact.
    let exponent = || {
        let value = number.parse::<f64>().ok()? * factor as f64;
        (value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value)).then_some(value as u64)
    };
    whole.or_else(exponent).ok_or_else(|| "give a whole number, like 1000000, 1e6 or 1M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_suffixes_and_separators() {
        for (text, frames) in [
            ("0", 0),
            ("1000000", 1_000_000),
            ("1_000_000", 1_000_000),
            ("1e6", 1_000_000),
            ("1M", 1_000_000),
            ("1.5M", 1_500_000),
            ("64k", 64_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(count(text), Ok(frames), "{text}");
        }
        for text in ["", "M", "-1", "1.5", "1e-3", "1e300", "nan", "inf", "12x", "99999999999999999999"] {
            assert!(count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_seconds_above_zero() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(seconds("10s"), Ok(Duration::from_secs(10)));
        for text in ["", "0", "-1", "nan", "inf", "1e99", "1m"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
