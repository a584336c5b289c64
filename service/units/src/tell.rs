//! Standard error, where programs say what they are doing and what failed.

use std::io::{self, Write as _};

use crate::columns;
use crate::escape::escaped_lines;

/// Says lines on standard error, broken at 80 columns on a terminal only. They do nothing to a terminal,
/// and what cannot be written there stops nobody.
pub fn tell(text: &str) {
    let text = escaped_lines(text.trim_end());
    let shown = columns::fitted(&text, columns::width_of(&io::stderr()));
    // There is no other place to say that this failed.
    let _ = io::stderr().write_all(shown.as_bytes());
}
