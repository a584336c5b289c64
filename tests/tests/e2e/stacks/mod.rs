//! Whole systems that keep their data in a service: JuiceFS and OpenStack Swift. `./dev test stacks` runs these tests.

mod juicefs;
mod swift;
