//! XML as an XML parser reads it. s3s leaves out CDATA and refuses characters above U+FFFF that are
//! written as numbers: keys would not be those that the client named. So it gets a document of the
//! same meaning whose text is plain.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesRef, Event};
use s3s::{S3Error, S3ErrorCode, S3Result};

/// Characters kept in encoded keys; the rest becomes %XX.
pub(super) const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/');

/// A document of elements and plain text that means the same.
///
/// # Errors
/// `MalformedXML`.
pub(super) fn plain(document: &[u8]) -> S3Result<Vec<u8>> {
    let wrong = |why: String| S3Error::with_message(S3ErrorCode::MalformedXML, why);
    let text = std::str::from_utf8(document).map_err(|error| wrong(error.to_string()))?;
    if let Some(char) = text.chars().find(|char| !is_char(*char)) {
        return Err(wrong(format!("XML cannot have {char:?}")));
    }
    let mut reader = Reader::from_str(text);
    let mut out = String::with_capacity(text.len());
    loop {
        let event = reader
            .read_event()
            .map_err(|error| wrong(error.to_string()))?;
        match event {
            Event::Eof => return Ok(out.into_bytes()),
            Event::Start(tag) => out += &format!("<{}>", utf8(&tag)?),
            Event::Empty(tag) => out += &format!("<{}/>", utf8(&tag)?),
            Event::End(tag) => out += &format!("</{}>", utf8(&tag)?),
            Event::Text(text) => push(&mut out, &lines(utf8(&text)?)),
            Event::CData(text) => push(&mut out, &lines(utf8(&text)?)),
            Event::GeneralRef(reference) => push(&mut out, &resolved(&reference)?),
            Event::DocType(_) => return Err(wrong("a document type is not accepted".to_owned())),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
}

/// The names of the elements of a document, and how many there are of each.
///
/// # Errors
/// `MalformedXML`.
pub(super) fn elements(document: &[u8]) -> S3Result<BTreeMap<String, usize>> {
    let mut reader = Reader::from_reader(document);
    let mut names = BTreeMap::new();
    loop {
        let event = reader.read_event();
        match event.map_err(|_| S3Error::new(S3ErrorCode::MalformedXML))? {
            Event::Eof => return Ok(names),
            Event::Start(tag) | Event::Empty(tag) => {
                let name = utf8(tag.local_name().into_inner())?.to_owned();
                *names.entry(name).or_default() += 1;
            }
            _ => {}
        }
    }
}

/// True: a document can have this character (XML 1.0, section 2.2), though a key may have others.
pub(super) const fn is_char(char: char) -> bool {
    matches!(char, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

fn utf8(bytes: &[u8]) -> S3Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| S3Error::new(S3ErrorCode::MalformedXML))
}

/// Ends of lines are one character (XML 1.0, section 2.11).
fn lines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// Writes text so that it is read back as it is.
fn push(out: &mut String, text: &str) {
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\r' => out.push_str("&#13;"),
            other => out.push(other),
        }
    }
}

/// The text that a reference stands for.
fn resolved(reference: &BytesRef<'_>) -> S3Result<String> {
    let name = utf8(reference)?;
    let number = reference.resolve_char_ref().ok().flatten();
    let found = number.filter(|char| is_char(*char)).map(String::from);
    let found = found.or_else(|| resolve_xml_entity(name).map(str::to_owned));
    found.ok_or_else(|| {
        let why = format!("&{}; stands for no character", name.escape_default());
        S3Error::with_message(S3ErrorCode::MalformedXML, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(document: &str) -> Option<String> {
        plain(document.as_bytes())
            .ok()
            .map(|plain| String::from_utf8(plain).unwrap())
    }

    #[test]
    fn text_is_what_a_parser_of_xml_reads() {
        for (document, same) in [
            ("<K>a<![CDATA[b]]>c</K>", "<K>abc</K>"),
            ("<K><![CDATA[<&>]]></K>", "<K>&lt;&amp;&gt;</K>"),
            ("<K>&#128512;&#x1F600;</K>", "<K>😀😀</K>"),
            ("<K>&#65;&#x41;&amp;&lt;</K>", "<K>AA&amp;&lt;</K>"),
            ("<K>a\r\nb\rc&#13;</K>", "<K>a\nb\nc&#13;</K>"),
            (
                "<?xml version=\"1.0\"?><K a=\"b\">x<!-- y -->z</K>",
                "<K a=\"b\">xz</K>",
            ),
            ("<K/>", "<K/>"),
        ] {
            assert_eq!(meant(document).as_deref(), Some(same), "{document}");
        }
        for wrong in [
            "<K>&#0;</K>",
            "<K>&#1;</K>",
            "<K>\u{1}</K>",
            "<K>\u{ffff}</K>",
            "<K>&#xD800;</K>",
            "<K>&#1114112;</K>",
            "<K>&other;</K>",
            "<!DOCTYPE d [<!ENTITY a \"b\">]><K>&a;</K>",
            "<K></L>",
        ] {
            assert_eq!(meant(wrong), None, "{wrong}");
        }
    }

    proptest::proptest! {
        #[test]
        fn plain_text_stays_as_it_is(text in "[\t\n -\u{d7ff}\u{10000}-\u{10ffff}]{0,60}") {
            let mut out = String::new();
            push(&mut out, &text);
            let once = meant(&format!("<K>{out}</K>")).unwrap();
            assert_eq!(once, format!("<K>{out}</K>"));
        }

        #[test]
        fn any_bytes_are_a_document_or_refused(bytes: Vec<u8>) {
            if let Ok(document) = plain(&bytes) {
                assert_eq!(plain(&document).unwrap(), document);
            }
        }
    }
}
