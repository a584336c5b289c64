//! The whole product as users run it: root, loop devices, file systems, real probes, browsers and the clients of others.
//! `bench`, `clients`, `pages` and `stacks` are the groups that `./dev test` leaves to `./dev test all`, for what they install.
//! A test that no other may disturb begins with [`alone`](lumpscope_tests::needs::alone).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod alerts;
mod attribution;
mod bench;
mod bpftrace;
mod clients;
mod compare;
mod documents;
mod dropped;
mod foreign_disks;
mod guard;
mod hot_stores;
mod in_flight;
mod kill9;
mod lab;
mod misplaced;
mod observed;
mod pages;
mod platter;
mod power;
mod s3;
mod seeks;
mod stacks;
mod traces;
