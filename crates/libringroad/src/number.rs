//! Decimal numbers in port names.

/// Splits leading decimal digits off; `None` if there are none or their value exceeds `most`.
#[must_use]
pub fn split_number(text: &[u8], most: u64) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    let value = str::from_utf8(number).ok()?.parse().ok()?;
    (value <= most).then_some((value, rest))
}

/// Reads the whole text as a number; `None` if it is not one, or above `most`.
#[must_use]
pub fn whole_number(text: &[u8], most: u64) -> Option<u64> {
    split_number(text, most).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}
