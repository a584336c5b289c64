//! The name of a thread, as the kernel keeps it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Bytes of a thread's name, the zero at its end included.
const BYTES: usize = 16;
/// Stands for what is not UTF-8.
const STRANGE: &str = "?";

/// The name of the thread that made a block request. Kept in place, because there is one in every
/// event and a disk may do 100,000 a second; made text only for those who look.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Cow<'_, str>", into = "String")]
pub struct ThreadName([u8; BYTES]);

impl ThreadName {
    /// Nothing is known of it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0[0] == 0
    }

    /// As text. A `?` stands for what is not UTF-8: any process may name its threads at will.
    #[must_use]
    pub fn text(&self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(BYTES);
        let chunks = self.0[..end].utf8_chunks();
        chunks
            .flat_map(|chunk| {
                let strange = !chunk.invalid().is_empty();
                [chunk.valid(), if strange { STRANGE } else { "" }]
            })
            .collect()
    }
}

impl std::fmt::Debug for ThreadName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.text().fmt(f)
    }
}

impl From<[u8; BYTES]> for ThreadName {
    fn from(comm: [u8; BYTES]) -> ThreadName {
        ThreadName(comm)
    }
}

impl From<&str> for ThreadName {
    /// Cut at 16 bytes: the kernel has no longer names.
    fn from(text: &str) -> ThreadName {
        let text = &text[..text.floor_char_boundary(BYTES)];
        let mut comm = [0; BYTES];
        comm[..text.len()].copy_from_slice(text.as_bytes());
        ThreadName(comm)
    }
}

impl From<Cow<'_, str>> for ThreadName {
    fn from(text: Cow<'_, str>) -> ThreadName {
        ThreadName::from(text.as_ref())
    }
}

impl From<ThreadName> for String {
    fn from(name: ThreadName) -> String {
        name.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_after_it_was_recorded() {
        for raw in [
            *b"fio\0dirt\0\0\0\0\0\0\0\0",
            *b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            *b"sixteen bytes !!",
            *b"a\xff\xfeb\0\0\0\0\0\0\0\0\0\0\0\0",
            // Cut in the middle of a character, as the kernel does.
            *b"\xd0\x9f\xd0\xbe\xd1\x82\xd0\xbe\xd0\xba-1234\xd0",
        ] {
            let name = ThreadName::from(raw);
            let line = serde_json::to_string(&name).expect("text");
            let again: ThreadName = serde_json::from_str(&line).expect("a name");
            assert_eq!(again.text(), name.text());
            assert_eq!(again.is_empty(), name.text().is_empty());
        }
        assert_eq!(
            ThreadName::from(*b"a\xff\xfeb\0\0\0\0\0\0\0\0\0\0\0\0").text(),
            "a??b"
        );
        let expected = "ein sehr langer ";
        assert_eq!(ThreadName::from("ein sehr langer ä").text(), expected);
        let expected = "ein sehr langeä";
        assert_eq!(ThreadName::from("ein sehr langeä").text(), expected);
    }
}
