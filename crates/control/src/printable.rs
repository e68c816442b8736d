//! Makes foreign text fit for terminals and logs.

/// `text` in at most `max_chars` characters, without characters that move a cursor, end a line, or change the order or
/// visibility of the text around them. A replaced character becomes U+FFFD; an ellipsis marks the cut.
#[must_use]
pub fn printable(text: &str, max_chars: usize) -> String {
    let mut shown: String = text
        .chars()
        .take(max_chars)
        .map(|c| if is_printable(c) { c } else { char::REPLACEMENT_CHARACTER })
        .collect();
    if text.chars().nth(max_chars).is_some() {
        shown.push('…');
    }
    shown
}

/// Whether a character shows as itself. Control characters act on a terminal; the other excluded characters are
/// invisible, or reverse the text behind them (Unicode 16, general category Cf and the separators of lines and
/// paragraphs).
#[must_use]
pub fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_bidirectional_characters_are_replaced() {
        let hostile = "a\x1b[31m\nb\u{9b}2J\u{202e}c\u{7f}\u{2028}";
        assert_eq!(printable(hostile, 100), "a\u{fffd}[31m\u{fffd}b\u{fffd}2J\u{fffd}c\u{fffd}\u{fffd}");
        assert_eq!(printable("grüße, 世界 …", 100), "grüße, 世界 …");
    }

    #[test]
    fn long_text_ends_in_an_ellipsis() {
        assert_eq!(printable("abc", 3), "abc");
        assert_eq!(printable("abcd", 3), "abc…");
    }
}
