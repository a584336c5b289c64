//! Values of headers that are not ASCII (RFC 2047): `=?UTF-8?B?...?=`. S3 reads and writes user
//! metadata so.

use percent_encoding::percent_decode_str;

const BEGIN: &str = "=?";
const END: &str = "?=";
/// Bytes of text in a word: as base64 and with its frame, it has at most 75.
const MOST: usize = 45;

/// A value as a header can have it: as it is, or in encoded words.
pub(super) fn encode(text: &str) -> String {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.to_owned();
    }
    let (mut words, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (word, behind) = rest.split_at(rest.floor_char_boundary(MOST));
        let encoded = base64_simd::STANDARD.encode_to_string(word);
        words.push(format!("=?UTF-8?B?{encoded}?="));
        rest = behind;
    }
    words.join(" ")
}

/// The text of a word without its frame; `None`: it is none.
fn word(inside: &str) -> Option<String> {
    let (charset, rest) = inside.split_once('?')?;
    let (kind, text) = rest.split_once('?')?;
    if !charset.eq_ignore_ascii_case("utf-8") && !charset.eq_ignore_ascii_case("us-ascii") {
        return None;
    }
    let bytes = match kind {
        "B" | "b" => base64_simd::STANDARD.decode_to_vec(text).ok()?,
        // As in a URL, with `=` for `%` and `_` for a space.
        "Q" | "q" if !text.contains('%') => {
            let text = text.replace('_', " ").replace('=', "%");
            percent_decode_str(&text).collect()
        }
        _ => return None,
    };
    String::from_utf8(bytes).ok()
}

/// The text that a value stands for; what is no encoded word stays as it is.
pub(super) fn decode(value: &str) -> String {
    let (mut text, mut rest, mut behind_word) = (String::new(), value, false);
    while let Some((plain, after)) = rest.split_once(BEGIN) {
        // The kind and the text have no question mark, but an end may follow one: `?Q??=`.
        let marks = after.match_indices('?').nth(1).map_or(0, |(at, _)| at + 1);
        let end = after[marks..].find(END).map(|at| marks + at);
        let found = end.and_then(|end| Some((word(&after[..end])?, &after[end + END.len()..])));
        // White space between two words is none.
        if !(behind_word && found.is_some() && plain.trim().is_empty()) {
            text.push_str(plain);
        }
        behind_word = found.is_some();
        match found {
            Some((decoded, next)) => {
                text.push_str(&decoded);
                rest = next;
            }
            None => {
                text.push_str(BEGIN);
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_wherever_they_stand() {
        for (value, text) in [
            ("plain", "plain"),
            ("=?UTF-8?B?Y2Fmw6k=?=", "caf\u{e9}"),
            ("=?utf-8?q?caf=C3=A9_1?=", "caf\u{e9} 1"),
            ("a =?UTF-8?B?Yg==?= =?UTF-8?B?Yw==?= d", "a bc d"),
            ("=?UTF-8?Q??=x", "x"),
            ("=?UTF-8?B?!?=", "=?UTF-8?B?!?="),
            ("=?latin1?B?Yg==?=", "=?latin1?B?Yg==?="),
            ("=?=?UTF-8?B?Yg==?=", "=?b"),
            ("1 =? 2 ?= 3", "1 =? 2 ?= 3"),
        ] {
            assert_eq!(decode(value), text, "{value}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_comes_back(text in "\\PC{0,200}") {
            let header = encode(&text);
            proptest::prop_assert!(http::HeaderValue::from_str(&header).is_ok());
            if header != text {
                assert_eq!(decode(&header), text);
            }
        }
    }
}
