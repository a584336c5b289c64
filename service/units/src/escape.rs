//! Text from outside, made harmless for a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text with control characters, line breaks and marks of text direction as escapes: `\n`, `\x1b`,
/// `\u{202e}`. For names and other values, which belong into one line.
#[must_use]
pub fn escaped(text: &str) -> Cow<'_, str> {
    replaced(text, is_hostile)
}

/// [`escaped`], except for line feeds.
#[must_use]
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    replaced(text, |c| c != '\n' && is_hostile(c))
}

/// Whether a terminal does more than show this character, or shows others elsewhere because of it.
#[must_use]
pub fn is_hostile(c: char) -> bool {
    let line_end = matches!(c, '\u{2028}' | '\u{2029}');
    let direction = matches!(c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || line_end || direction
}

/// JSON with all characters that are hostile to a terminal as JSON's own escapes: what programs read
/// stays the same. Only strings can have some.
#[must_use]
pub fn escaped_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        // Writing to a string cannot fail; all of them are below U+10000.
        let _ = match is_hostile(c) && c != '\n' {
            true => write!(out, "\\u{:04x}", u32::from(c)),
            false => out.write_char(c),
        };
    }
    out
}

fn replaced(text: &str, is_hostile: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        // Writing to a string cannot fail.
        let _ = match c {
            c if !is_hostile(c) => out.write_char(c),
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            '\0'..='\u{ff}' => write!(out, "\\x{:02x}", u32::from(c)),
            _ => write!(out, "\\u{{{:x}}}", u32::from(c)),
        };
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_a_cursor_is_escaped() {
        let hostile = "a\x1b[2J\u{7f}\u{9b}\r\n\t\u{202e}\u{2028}µ–\\";
        let shown = r"a\x1b[2J\x7f\x9b\r\n\t\u{202e}\u{2028}µ–\";
        assert_eq!(escaped(hostile), shown);
        assert_eq!(escaped(shown), shown);
        assert_eq!(escaped_lines("a\nb\x07"), "a\nb\\x07");
        assert!(matches!(escaped_lines("a\nb"), Cow::Borrowed(_)));
    }
}
