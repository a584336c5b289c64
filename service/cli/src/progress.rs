//! Progress of transfers, on the terminal.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Transfers of fewer bytes are over before anybody has read a bar.
const WORTH_SHOWING: u64 = 8 << 20;

/// A bar of this form, without a length yet, shown only on a terminal.
pub(super) fn templated(template: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    ProgressBar::no_length().with_style(style)
}

/// A bar for so many bytes; without a terminal on stderr, or for little, one that is not shown.
pub(super) fn bar(bytes: u64) -> ProgressBar {
    if bytes <= WORTH_SHOWING {
        return ProgressBar::hidden();
    }
    let bar =
        templated("{bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}");
    bar.set_length(bytes);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
