//! Damaged images in salvage mode (FORMAT.md section 13): what CannyLS itself leaves behind, and
//! what is made by hand. Normal mode refuses each and says why; read-only salvage writes nothing;
//! a repair makes it open normally, here and in CannyLS, and may be cut anywhere.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "contents are any bytes; a test may panic"
)]

mod by_cannyls;
mod by_hand;
#[path = "../common/mod.rs"]
mod common;
mod harness;
