//! One lump of both stores: compared, copied, deleted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use lumpscope_client::{Body, Client, Code, Error, LumpId, PutOptions, v1};
use lumpscope_units::human;
use tokio::time::Instant;

use super::note::{Change, EvacuationNote};
use super::report::EvacuationReport;
use super::{EvacuateArgs, changes};

/// Both stores, for all tasks.
pub(super) struct Work {
    pub(super) source: (Client, String),
    pub(super) target: (Client, String),
    pub(super) trust_lengths: bool,
    pub(super) rate: Option<u64>,
    /// When the next lump may be read.
    pub(super) free_at: Mutex<Instant>,
    pub(super) done: Mutex<EvacuationReport>,
    /// Lumps that this program has put into the target or deleted there.
    pub(super) made: AtomicU64,
    /// The note that says so to the next run.
    pub(super) note: Option<EvacuationNote>,
    pub(super) bar: ProgressBar,
}

/// Outcome of one lump.
pub(super) enum LumpOutcome {
    Copied(u64),
    Replaced(u64),
    There,
    Differs,
    Gone,
    Missing(String),
}

impl Work {
    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, EvacuationReport> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, id: LumpId, outcome: LumpOutcome) {
        let mut done = self.lock();
        match outcome {
            LumpOutcome::Copied(bytes) => {
                done.lumps += 1;
                done.bytes += bytes;
            }
            LumpOutcome::Replaced(bytes) => {
                done.replaced += 1;
                done.bytes += bytes;
            }
            LumpOutcome::There => done.there += 1,
            LumpOutcome::Differs => done.differing.push(id),
            LumpOutcome::Gone => done.gone += 1,
            LumpOutcome::Missing(why) => done.missing.push((id, why)),
        }
    }

    pub(super) async fn changes(
        &self,
        store: &(Client, String),
        args: &EvacuateArgs,
    ) -> Result<u64> {
        let (client, name) = store;
        changes(&client.usage(args.usage(name)).await?, name)
    }

    /// True: all lumps of the target are copies, because nobody but the run that wrote the note has
    /// changed it, up to this count of changes.
    pub(super) async fn are_copies(
        &self,
        note: Option<&EvacuationNote>,
        changes: u64,
    ) -> Result<bool> {
        let Some(noted) = note.and_then(EvacuationNote::read) else {
            return Ok(false);
        };
        let (target, to) = &self.target;
        let (mut least, mut unknown) = (noted.changes, 0);
        for (id, change) in noted.under_way {
            let is_there = match target.head(to, id).await {
                Ok(_) => true,
                Err(error) if is_unknown(&error) => false,
                Err(error) => return Err(error.into()),
            };
            match change {
                Change::Replace => unknown += 1,
                Change::Put => least = least.wrapping_add(u64::from(is_there)),
                Change::Delete => least = least.wrapping_add(u64::from(!is_there)),
            }
        }
        Ok(changes.wrapping_sub(least) <= unknown)
    }

    fn starts(&self, id: LumpId, change: Change) {
        if let Some(note) = &self.note {
            note.starts(id, change);
        }
    }

    /// A change has ended. One whose answer was lost has not: it was made or not.
    fn ended(&self, id: LumpId, made: bool) {
        self.made.fetch_add(u64::from(made), Ordering::Relaxed);
        if let Some(note) = &self.note {
            note.ended(id, made);
        }
    }

    /// Waits until so many bytes may be read.
    async fn pace(&self, bytes: u64) {
        let Some(rate) = self.rate else { return };
        let begin = {
            let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            let begin = (*free_at).max(Instant::now());
            let takes = Duration::try_from_secs_f64(human::as_float(bytes) / human::as_float(rate));
            *free_at = begin + takes.unwrap_or_default();
            begin
        };
        tokio::time::sleep_until(begin).await;
    }

    /// Compares a lump that both stores have: by the checksums that are stored with it, else by its
    /// bytes. An error ends everything.
    pub(super) async fn compare(&self, id: LumpId) -> Result<LumpOutcome> {
        let (source, from) = &self.source;
        let (target, to) = &self.target;
        let sum = !self.trust_lengths;
        let here = match source.head_with(from, id, sum).await {
            Ok(head) => head,
            Err(error) => return of_source(error),
        };
        let there = match target.head_with(to, id, sum).await {
            Ok(head) => head,
            Err(error) => return of_target(error),
        };
        if here.length != there.length {
            return Ok(LumpOutcome::Differs);
        }
        let same = match (here.crc32c, there.crc32c) {
            _ if self.trust_lengths => true,
            (Some(here), Some(there)) => here == there,
            _ => {
                self.pace(here.length).await;
                let here = match source.get(from, id, None).await {
                    Ok(lump) => lump.bytes,
                    Err(error) => return of_source(error),
                };
                match target.get(to, id, None).await {
                    Ok(there) => here == there.bytes,
                    Err(error) => return of_target(error),
                }
            }
        };
        Ok(if same {
            LumpOutcome::There
        } else {
            LumpOutcome::Differs
        })
    }

    /// Copies a lump, and reads it back. An error ends everything.
    pub(super) async fn copy(&self, id: LumpId, replace: bool) -> Result<LumpOutcome> {
        let (source, from) = &self.source;
        let (target, to) = &self.target;
        let head = match source.head(from, id).await {
            Ok(head) => head,
            Err(error) => return of_source(error),
        };
        self.pace(head.length).await;
        let lump = match source.get(from, id, None).await {
            Ok(lump) => lump.bytes,
            Err(error) => return of_source(error),
        };
        let options = PutOptions {
            durability: v1::Durability::Synced,
            placement: head.placement(),
            if_absent: !replace,
            ..PutOptions::default()
        };
        let change = if replace {
            Change::Replace
        } else {
            Change::Put
        };
        self.starts(id, change);
        match target.put(to, id, Body::from(lump.clone()), &options).await {
            Ok(_) => self.ended(id, true),
            // Somebody has put it since; or this did, and the answer was lost.
            Err(Error::Ambiguous { .. }) => {}
            Err(error) if error.code() == Some(Code::AlreadyExists) => self.ended(id, false),
            Err(error) => return Err(error.into()),
        }
        let bytes = lump.len() as u64;
        match target.get(to, id, None).await {
            Ok(there) if there.bytes == lump && replace => Ok(LumpOutcome::Replaced(bytes)),
            Ok(there) if there.bytes == lump => Ok(LumpOutcome::Copied(bytes)),
            Ok(_) => Ok(LumpOutcome::Differs),
            Err(error) => of_target(error),
        }
    }

    /// Deletes a lump of the target that the source has no more.
    pub(super) async fn delete(&self, id: LumpId) -> Result<()> {
        let (source, from) = &self.source;
        let (target, to) = &self.target;
        match source.head(from, id).await {
            Err(error) if is_unknown(&error) => {}
            // It was put again: the source was changed, so that is said.
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.starts(id, Change::Delete);
        let deleted = target.delete(to, id, v1::Durability::Synced).await?;
        self.ended(id, deleted.existed);
        self.lock().deleted += u64::from(deleted.existed);
        Ok(())
    }
}

fn is_unknown(error: &Error) -> bool {
    let refusal = error.refusal();
    refusal.is_some_and(|refusal| refusal.reason == "UNKNOWN_LUMP")
}

/// A lump that cannot be read is told; anything else ends everything.
fn of_source(error: Error) -> Result<LumpOutcome> {
    match error.refusal() {
        _ if is_unknown(&error) => Ok(LumpOutcome::Gone),
        Some(refusal) if ["LUMP_UNREADABLE", "LUMP_CORRUPT"].contains(&&*refusal.reason) => {
            Ok(LumpOutcome::Missing(refusal.message.clone()))
        }
        _ => Err(error.into()),
    }
}

/// A copy that cannot be read is none.
fn of_target(error: Error) -> Result<LumpOutcome> {
    match error.refusal() {
        _ if is_unknown(&error) => Ok(LumpOutcome::Differs),
        Some(refusal) if refusal.code == Code::DataLoss => Ok(LumpOutcome::Differs),
        _ => Err(error.into()),
    }
}
