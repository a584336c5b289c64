//! The whole product as users run it: root, loop devices, file systems, real probes, browsers and the clients of others.
//! A test that no other may disturb begins with [`alone`](lumpscope_tests::needs::alone).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod alerts;
mod attribution;
mod bpftrace;
mod browser;
mod compare;
mod dashboards;
mod documents;
mod dropped;
mod foreign;
mod foreign_disks;
mod grafana;
mod guard;
mod hot_stores;
mod in_flight;
mod juicefs;
mod kill9;
mod lab;
mod observed;
mod platter;
mod power;
mod protos;
mod report;
mod s3;
mod seeks;
mod swift;
mod traces;
