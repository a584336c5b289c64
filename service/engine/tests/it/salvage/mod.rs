//! Damaged images in salvage mode (FORMAT.md section 13): what CannyLS itself leaves behind, and
//! what is made by hand. Normal mode refuses each and says why; read-only salvage writes nothing;
//! a repair makes it open normally, here and in CannyLS, and may be cut anywhere.

mod by_cannyls;
mod by_hand;
mod harness;
