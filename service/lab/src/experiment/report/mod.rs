//! One self-contained HTML file that says what a bench found: for the screen, light and dark, and
//! for paper.
//!
//! A bench fills a [`Page`] with plain data and calls [`Page::write`]; what the page looks like is
//! decided by `report.html` alone, which holds the data as JSON, a script that shows them, and the
//! chart library of the service's page. The file refers to nothing outside: it opens from a memory
//! stick, in an archive, in ten years.
//!
//! | part | shows |
//! |---|---|
//! | [`Setup`] | machine, kernel, disk, versions, the exact command, the date |
//! | [`Findings`] | what agrees, what does not, what is not decided, what is a hypothesis |
//! | [`Table`] | numbers with their spread, ratios, verdicts |
//! | [`Ranges`] | ratios with their spread, beside a goal or what was published |
//! | [`Cdf`] | how latencies are distributed, and their percentiles |
//! | [`Heat`] | how often two things came together, such as seek distance and device time |
//! | [`Scatter`] | single requests: sector over time, by owner |
//! | [`Bars`] | what a whole is made of: the stages of a request |
//! | [`Lines`] | what changed over time |
//! | [`Compared`] | ours beside a peer: table, picture and findings of it |
//! | [`Verbatim`] | text as a program printed it |
//!
//! Equal pages give equal bytes: nothing is taken from a clock, a map's order or the system.

mod chart;
mod compared;
mod data;
mod html;
mod setup;
mod trace;
mod unit;
mod write;

pub use chart::{
    Axis, Bar, Bars, Cdf, Curve, Dots, Goal, Heat, HeatCell, HeatPanel, Line, Lines, Range, Ranges,
    Scale, Scatter, ScatterPanel,
};
pub use compared::Compared;
pub use data::{Cell, Column, Findings, Page, Part, Row, Section, Table, Verbatim};
pub use setup::{Fact, Setup, disk};
pub use trace::{TraceParts, of_trace};
pub(crate) use unit::together;
pub use unit::{ENOUGH_RUNS, Spread, Undecided, Unit};
pub use write::{MARK, check};
