//! Access to a store that nobody has open, to change it as a whole.

use std::path::Path;

use crate::device;
use crate::error::Error;
use crate::machine::Machine;
use crate::options::StoreOptions;
use crate::storage::finish::change_on;
use crate::storage::io::BlockingIo;
use crate::storage::recover::Recovered;
use crate::store::Store;

/// Changes the store at `path` under the claim of `machine` if there is one.
pub(crate) fn change<T, E: From<Error>>(
    (path, machine): (&Path, Option<&Machine>),
    what: &'static str,
    change: impl FnOnce(&mut BlockingIo<'_>, &mut Recovered) -> Result<T, E>,
) -> Result<T, E> {
    let one_at_a_time = StoreOptions {
        queue_depth: 1,
        machine: machine.cloned(),
        ..StoreOptions::new(what)
    };
    // What a power cut has left is made good, and every claim on the place is checked.
    Store::open(path, one_at_a_time.clone())?.close()?;
    let mut device = device::open(path, &one_at_a_time)?;
    change_on(&mut device, &one_at_a_time, change)
}
