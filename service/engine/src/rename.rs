//! Gives the image of a store that nobody uses another name.

use std::path::Path;

use crate::closed;
use crate::error::Error;
use crate::format::label;
use crate::machine::Machine;
use crate::storage::finish;

/// Writes `name` into the image at `path`, under the claim of `machine` if there is one; the name
/// that it had before.
///
/// # Errors
/// [`Error::WrongImage`] if no store can have that name; those of [`crate::Store::open`].
pub fn rename(path: &Path, name: &str, machine: Option<&Machine>) -> Result<Option<String>, Error> {
    if !label::is_name(name) {
        return Err(Error::WrongImage {
            path: path.to_owned(),
            why: label::wrong_name(name),
        });
    }
    closed::change((path, machine), "rename", |io, recovered| {
        let before = recovered.storage.name.replace(name.to_owned());
        finish::write_headers(io, recovered)?;
        Ok(before)
    })
}
