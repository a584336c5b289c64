//! Gives the image of a store that nobody uses another name.

use std::path::Path;

use crate::device;
use crate::error::Error;
use crate::format::label;
use crate::machine::Machine;
use crate::options::StoreOptions;
use crate::storage::finish;
use crate::store::Store;

/// Writes `name` into the image at `path`, under the claim of `machine` if there is one; the name
/// that it had before.
///
/// # Errors
/// [`Error::WrongImage`] if no store can have that name; those of [`Store::open`].
pub fn rename(path: &Path, name: &str, machine: Option<&Machine>) -> Result<Option<String>, Error> {
    if !label::is_name(name) {
        return Err(Error::WrongImage {
            path: path.to_owned(),
            why: label::wrong_name(name),
        });
    }
    // What a power cut has left is made good, and every claim on the place is checked.
    let one_at_a_time = StoreOptions {
        queue_depth: 1,
        machine: machine.cloned(),
        ..StoreOptions::new("rename")
    };
    Store::open(path, one_at_a_time.clone())?.close()?;
    let mut device = device::open(path, &one_at_a_time)?;
    finish::rename(&mut device, &one_at_a_time, name)
}
