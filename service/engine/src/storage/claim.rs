//! Takes a store for this machine before it is written to, and gives it back (FORMAT.md section 4.5).

use super::headers;
use super::io::BlockingIo;
use crate::clock::{random_u64, wall_ns};
use crate::error::{Error, claimant};
use crate::format::claim::{self, Claim};
use crate::machine::Machine;
use crate::options::{ImageIdentity, StoreOptions};

/// The claim with which a store is open.
#[derive(Clone, Debug)]
pub(crate) struct HeldClaim {
    /// First byte of the header block in the device.
    base: u64,
    nonce: u64,
    /// The machine whose claim it has replaced, for a message.
    pub(crate) replaced: Option<String>,
}

/// Asks whether the image is the one that is meant, and writes this machine's claim into it; `None`: the
/// options ask for none, or to write nothing.
///
/// # Errors
/// [`Error::WrongImage`]; [`Error::Claimed`]: another machine has a claim, or writes one at this
/// moment; those of reading the header and of I/O.
pub(crate) fn take(
    io: &mut BlockingIo<'_>,
    options: &StoreOptions,
) -> Result<Option<HeldClaim>, Error> {
    let machine = options.machine.as_ref();
    if machine.is_none() && options.admission.is_none() {
        return Ok(None);
    }
    let found = headers::find(io)?;
    let (base, unit) = (found.geometry.base().0, io.unit());
    if let Some(admission) = &options.admission {
        let image = ImageIdentity {
            uuid: uuid::Uuid::from_bytes(found.header.uuid),
            name: found.name,
        };
        admission(&image).map_err(|why| Error::WrongImage {
            path: io.device().path.clone(),
            why,
        })?;
    }
    let Some(machine) = machine else {
        return Ok(None);
    };
    let mut sector = io.read(base, unit)?;
    let foreign = machine.foreign_claim(&sector);
    if let Some(other) = foreign.clone().filter(|_| !options.take_over) {
        return Err(claimed(io, other));
    }
    if options.read_only {
        return Ok(None);
    }
    let replaced = foreign.map(|other| claimant(&other.host, other.since));
    let own = new_claim(machine);
    claim::put_into(&mut sector, Some(&own));
    io.write(base, sector)?;
    io.flush()?;
    (machine.pause)();
    let found = claim::decode(&io.read(base, unit)?);
    let nonce = own.nonce;
    if found.as_ref().is_some_and(|found| found.nonce == nonce) {
        return Ok(Some(HeldClaim {
            base,
            nonce,
            replaced,
        }));
    }
    // Without a claim there, another machine has opened the store and closed it again.
    let host = "another machine".to_owned();
    Err(claimed(io, found.unwrap_or(Claim { host, ..own })))
}

/// Erases the claim after `done`, which it returns, unless the device hangs.
pub(crate) fn release<T>(
    io: &mut BlockingIo<'_>,
    held: Option<HeldClaim>,
    done: Result<T, Error>,
) -> Result<T, Error> {
    if let Some(held) = held
        && !done.as_ref().is_err_and(Error::is_time_over)
    {
        // A claim that stays matters to other machines only, and their refusal names this one.
        let _ = held.erase(io);
    }
    done
}

impl HeldClaim {
    fn erase(self, io: &mut BlockingIo<'_>) -> Result<(), Error> {
        let mut sector = io.read(self.base, io.unit())?;
        // Another machine may have taken the store over.
        if claim::decode(&sector).is_none_or(|found| found.nonce != self.nonce) {
            return Ok(());
        }
        claim::put_into(&mut sector, None);
        io.write(self.base, sector)?;
        io.flush()
    }
}

fn new_claim(machine: &Machine) -> Claim {
    Claim {
        machine: machine.id,
        boot: machine.boot,
        nonce: random_u64(),
        since: wall_ns() / 1_000_000_000,
        host: machine.host.clone(),
    }
}

fn claimed(io: &BlockingIo<'_>, claim: Claim) -> Error {
    Error::Claimed {
        path: io.device().path.clone(),
        host: claim.host,
        since: claim.since,
    }
}
