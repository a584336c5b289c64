//! Progress of transfers, on the terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Transfers of fewer bytes are over before anybody has read a bar.
const WORTH_SHOWING: u64 = 8 << 20;

/// A bar for so many bytes; without a terminal on stderr, or for little, one that is not shown.
pub(super) fn bar(bytes: u64) -> ProgressBar {
    if bytes <= WORTH_SHOWING {
        return ProgressBar::hidden();
    }
    // It draws to stderr, and only to a terminal.
    let bar = ProgressBar::new(bytes);
    let form = "{bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
