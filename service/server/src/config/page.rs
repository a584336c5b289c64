//! The settings of the web page.

use std::time::Duration;

/// The settings of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageConfig {
    /// Where a trace is shown: a URL with `{trace_id}` in it; `None`: nowhere.
    pub trace_url: Option<String>,
    /// How often and how long. Not a setting: only tests change it.
    pub rhythm: Rhythm,
}

/// How often frames are made and how long they are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rhythm {
    /// From one frame to the next.
    pub frame: Duration,
    /// Frames that are kept, so that a page that is opened has a picture at once.
    pub history: usize,
    /// How long frames are still made and kept after the last viewer has gone: a page that is
    /// loaded again finds its picture.
    pub linger: Duration,
    /// From one frame of the past to the next; these are made whether anybody looks or not.
    pub past_frame: Duration,
    /// Frames of the past that are kept.
    pub past_history: usize,
}

impl Default for Rhythm {
    /// A frame a second, those of the last five minutes, and for a minute after the last viewer; of
    /// the last hour, a frame every ten seconds.
    fn default() -> Self {
        Self {
            frame: Duration::from_secs(1),
            history: 300,
            linger: Duration::from_secs(60),
            past_frame: Duration::from_secs(10),
            past_history: 360,
        }
    }
}
