//! Clients and linters that nobody here wrote: grpcio, grpcurl, ghz, buf. `./dev test clients` runs these tests.

mod foreign;
mod protos;
