//! The modelled disk, all in virtual time: one binary, a module per subject.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod commit;
mod document;
mod figures;
mod properties;
mod published;
mod tables;
mod today;
