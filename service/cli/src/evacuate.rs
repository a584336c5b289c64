//! `lumpscope evacuate`: the lumps of a store that is being served, to another store.

mod lumps;
mod note;
mod report;

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use lumpscope_client::{Client, Listing, LumpId, v1};
use lumpscope_units::{Size, human};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_stream::StreamExt as _;

use crate::client::{ConnectionArgs, OutputFormat};
use crate::error::{Exit, NoStore};
use crate::output;
use crate::progress::templated as bar;
use lumps::{LumpOutcome, Work};
use note::EvacuationNote;
use report::{EvacuationReport, as_json, text};

/// `lumpscope evacuate`.
#[derive(Args)]
#[command(
    after_help = "The source is only read. Each lump is read back from the target and compared; lumps \
                  already present are compared by checksum, or byte by byte. Run it again after an \
                  interruption, or for what was changed meanwhile: lumps of an earlier run from this \
                  machine are replaced, and deleted if the source no longer has them, while the service of \
                  the target runs; after a restart, with --replace. (A note in \
                  $XDG_STATE_HOME or ~/.local/state tells them from lumps of other origin.) Exit code \
                  0: the target holds the lumps of the range as the source does, and no others. 4: \
                  except for those listed, or the source was changed meanwhile; `lumpscope admin drain \
                  STORE --changes-only` prevents that. 1: it did not finish."
)]
pub(super) struct EvacuateArgs {
    #[command(flatten)]
    form: OutputFormat,
    /// Name of the source store
    from: String,
    /// Name of the target store
    to: String,
    /// Service of the target store [default: the same service]
    #[arg(long, value_name = "URL", help_heading = "Target")]
    to_server: Option<String>,
    /// CA certificates of the target service, PEM
    #[arg(long, value_name = "FILE", help_heading = "Target")]
    to_ca: Option<PathBuf>,
    /// File with the token for the target service
    #[arg(long, value_name = "FILE", help_heading = "Target")]
    to_token_file: Option<PathBuf>,
    /// First id to copy
    #[arg(long, value_name = "ID")]
    start: Option<LumpId>,
    /// End of the range (exclusive)
    #[arg(long, value_name = "ID")]
    end: Option<LumpId>,
    /// Rate limit in bytes per second, e.g. 50M [default: none]
    #[arg(long, value_name = "SIZE")]
    rate: Option<Size>,
    /// Concurrent lumps, 1 to 64; each is held in memory
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    at_once: u32,
    /// Take lumps already present in the target for equal if their length is
    #[arg(long)]
    trust_lengths: bool,
    /// Replace or delete lumps in the target that differ, whoever put them there
    #[arg(long)]
    replace: bool,
}

impl EvacuateArgs {
    fn usage(&self, store: &str) -> v1::UsageRequest {
        v1::UsageRequest {
            store: store.to_owned(),
            start: self.start.map(Into::into),
            end: self.end.map(Into::into),
            ..Default::default()
        }
    }

    /// The lumps of it, for a note.
    fn range(&self) -> String {
        let end = self.end.map_or_else(String::new, |end| end.to_string());
        format!("{}..{end}", self.start.unwrap_or(LumpId(0)))
    }
}

/// Copies all lumps of a range.
pub(super) async fn run(connection: ConnectionArgs, args: EvacuateArgs) -> Result<ExitCode> {
    let source = connection.connect().await?;
    let target = match &args.to_server {
        None if args.to_ca.is_some() || args.to_token_file.is_some() => {
            bail!("--to-ca and --to-token-file need --to-server")
        }
        None => source.clone(),
        Some(server) => {
            let at = (server.as_str(), &args.to_ca, &args.to_token_file);
            connection.connect_other(at).await?
        }
    };
    let uuids = check_stores((&source, &args.from), (&target, &args.to)).await?;
    let used = check_room(&args, &source, &target).await?;
    let mut work = Work {
        source: (source, args.from.clone()),
        target: (target, args.to.clone()),
        trust_lengths: args.trust_lengths,
        rate: args.rate.map(|size| size.0.max(1)),
        free_at: Mutex::new(Instant::now()),
        done: Mutex::default(),
        made: AtomicU64::new(0),
        note: None,
        bar: bar("{wide_bar} {pos}/{len} lumps {per_sec} {eta}"),
    };
    let before = (changes(&used.0, &args.from)?, changes(&used.1, &args.to)?);
    let note = EvacuationNote::of(&uuids[0], &uuids[1], args.range());
    let are_copies = work.are_copies(note.as_ref().ok(), before.1).await?;
    let extra = find_extra(&work, &args).await?;
    if !are_copies && !args.replace {
        refuse_own(&args, &extra)?;
    }
    let is_ours = used.1.lumps == 0 || are_copies;
    work.note = note.map_or_else(
        |why| no_note(&args, why),
        |note| begun(&args, note, is_ours.then_some(before.1)),
    );
    let work = Arc::new(work);
    work.bar.set_length(used.0.lumps);
    let made = async {
        copy_all(&work, &args).await?;
        mend(&work, &args, (are_copies, before.1), extra).await
    };
    let made = made.await;
    work.bar.finish_and_clear();
    made?;
    let after = (
        work.changes(&work.source, &args).await?,
        work.changes(&work.target, &args).await?,
    );
    let mut done = std::mem::take(&mut *work.lock());
    let only_made = after.1 == before.1.wrapping_add(work.made.load(Ordering::Relaxed));
    done.doubt((after.0 == before.0, only_made), &args);
    // Lumps that were not compared may be of other origin in the target.
    let compared = done.missing.is_empty() && (done.there == 0 || !args.trust_lengths);
    let equal = done.differing.is_empty() && done.extra.is_empty();
    let note = work.note.as_ref();
    if let Some(note) = note.filter(|_| only_made && equal && (compared || are_copies))
        && let Err(why) = note.end(after.1)
    {
        no_note(&args, why);
    }
    done.missing.sort();
    if done.is_clean() {
        done.equal = conclusion(&work, &args, &done).await?;
    }
    args.form.say(|| as_json(&done), || text(&done, &args))?;
    Ok(Exit::clean(done.is_clean()))
}

/// The note of a run, begun if all lumps in the target are copies, at this count of its changes.
fn begun(
    args: &EvacuateArgs,
    note: EvacuationNote,
    changes: Option<u64>,
) -> Option<EvacuationNote> {
    match changes.map_or(Ok(()), |changes| note.begin(changes)) {
        Ok(()) => Some(note),
        Err(why) => no_note(args, why),
    }
}

/// Says that the next run will not know the copies of this one.
fn no_note(args: &EvacuateArgs, why: impl Display) -> Option<EvacuationNote> {
    output::complain(&format!(
        "lumpscope: cannot note what is in {:?}: {why}; the next run will not know the copies of this \
         one, and needs --replace",
        args.to
    ));
    None
}

/// Refuses stores that are one, or that cannot be found. Their UUIDs.
async fn check_stores(source: (&Client, &str), target: (&Client, &str)) -> Result<[String; 2]> {
    let mut infos = Vec::new();
    for (client, name) in [source, target] {
        let stores = client.stores().await?;
        let found = stores.into_iter().find(|store| store.name == name);
        infos.push(found.ok_or_else(|| NoStore(name.to_owned()))?);
    }
    if infos[0].uuid == infos[1].uuid && !infos[0].uuid.is_empty() {
        let uuid = &infos[0].uuid;
        bail!(
            "source and target are the same store, or copies with the same UUID ({uuid}); name another store"
        );
    }
    let mut infos = infos.into_iter();
    Ok(std::array::from_fn(|_| {
        infos.next().unwrap_or_default().uuid
    }))
}

/// Lumps that were put and removed in a store up to now.
fn changes(usage: &v1::UsageResponse, store: &str) -> Result<u64> {
    usage.changes.ok_or_else(|| {
        anyhow!("the service of store {store:?} cannot tell whether it was changed: update it")
    })
}

/// Refuses a target that is too small before anything is copied. The usage of both.
async fn check_room(
    args: &EvacuateArgs,
    source: &Client,
    target: &Client,
) -> Result<(v1::UsageResponse, v1::UsageResponse)> {
    let from = source.usage(args.usage(&args.from)).await?;
    let to = target.usage(args.usage(&args.to)).await?;
    let needed = from.stored_bytes.saturating_sub(to.stored_bytes);
    let free = to.data_capacity_bytes.saturating_sub(to.data_used_bytes);
    if needed > free {
        let (needed, free) = (human::bytes(needed), human::bytes(free));
        bail!(
            "store {:?} is too small: the lumps need {needed}, and it has {free} free; use a larger \
             store, or evacuate a range of ids (--start, --end)",
            args.to
        );
    }
    Ok((from, to))
}

/// Lumps of the target that the source has not.
async fn find_extra(work: &Work, args: &EvacuateArgs) -> Result<Vec<LumpId>> {
    let mut ids = Ids::of(&work.source, args).await?;
    let mut there = Ids::of(&work.target, args).await?;
    let mut extra = Vec::new();
    while let Some(id) = there.next().await? {
        if !ids.has(id).await? {
            extra.push(id);
        }
    }
    Ok(extra)
}

/// Refuses a target with lumps of its own before anything is copied into it.
fn refuse_own(args: &EvacuateArgs, extra: &[LumpId]) -> Result<()> {
    let Some(first) = extra.first() else {
        return Ok(());
    };
    let (from, to) = (&args.from, &args.to);
    let lumps = human::counted(extra.len() as u64, "lump");
    bail!(
        "store {to:?} has {lumps} in this range that {from:?} has not, the first is {first}: use an empty \
         store. If they are copies of lumps that were deleted from {from:?}, --replace deletes them"
    )
}

/// The ids of one store of a range, with a look ahead.
struct Ids {
    ids: Listing,
    ahead: Option<LumpId>,
}

impl Ids {
    async fn of((client, store): &(Client, String), args: &EvacuateArgs) -> Result<Self> {
        let mut ids = client.list(store, args.start, args.end);
        let ahead = ids.next().await.transpose()?;
        Ok(Self { ids, ahead })
    }

    async fn next(&mut self) -> Result<Option<LumpId>> {
        let after = match self.ahead {
            Some(_) => self.ids.next().await.transpose()?,
            None => None,
        };
        Ok(std::mem::replace(&mut self.ahead, after))
    }

    /// True: the id is there. To be asked in ascending order.
    async fn has(&mut self, id: LumpId) -> Result<bool> {
        while self.ahead.is_some_and(|ahead| ahead < id) {
            self.next().await?;
        }
        Ok(self.ahead == Some(id))
    }
}

async fn copy_all(work: &Arc<Work>, args: &EvacuateArgs) -> Result<()> {
    let mut ids = Ids::of(&work.source, args).await?;
    let mut there = Ids::of(&work.target, args).await?;
    let mut tasks = Tasks::of(args);
    while let Some(id) = ids.next().await? {
        let is_there = there.has(id).await?;
        let work = Arc::clone(work);
        let one = async move {
            let outcome = match is_there {
                true => work.compare(id).await?,
                false => work.copy(id, false).await?,
            };
            work.note(id, outcome);
            work.bar.inc(1);
            Ok(())
        };
        tasks.add(one).await?;
    }
    tasks.end().await
}

/// Some lumps at a time. The first error ends all.
struct Tasks {
    slots: Arc<Semaphore>,
    tasks: JoinSet<Result<()>>,
}

impl Tasks {
    fn of(args: &EvacuateArgs) -> Self {
        let slots = usize::try_from(args.at_once).unwrap_or(1);
        Self {
            slots: Arc::new(Semaphore::new(slots)),
            tasks: JoinSet::new(),
        }
    }

    async fn add(&mut self, one: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
        let slot = Arc::clone(&self.slots).acquire_owned().await?;
        self.tasks.spawn(async move {
            let ended = one.await;
            drop(slot);
            ended
        });
        while let Some(ended) = self.tasks.try_join_next() {
            ended??;
        }
        Ok(())
    }

    async fn end(mut self) -> Result<()> {
        while let Some(ended) = self.tasks.join_next().await {
            ended??;
        }
        Ok(())
    }
}

/// Replaces and deletes what differs in the target: copies of an earlier run, if nobody else has
/// changed that store meanwhile, and anything if that is asked for.
async fn mend(
    work: &Arc<Work>,
    args: &EvacuateArgs,
    (are_copies, before): (bool, u64),
    extra: Vec<LumpId>,
) -> Result<()> {
    let differing = std::mem::take(&mut work.lock().differing);
    let made = before.wrapping_add(work.made.load(Ordering::Relaxed));
    let may = args.replace || (are_copies && work.changes(&work.target, args).await? == made);
    if !may {
        let mut done = work.lock();
        (done.differing, done.extra) = (differing, extra);
        return Ok(());
    }
    let mut tasks = Tasks::of(args);
    for id in differing {
        let work = Arc::clone(work);
        tasks
            .add(async move {
                let outcome = match work.copy(id, true).await? {
                    LumpOutcome::Gone => {
                        work.delete(id).await?;
                        LumpOutcome::Gone
                    }
                    outcome => outcome,
                };
                work.note(id, outcome);
                Ok(())
            })
            .await?;
    }
    for id in extra {
        let work = Arc::clone(work);
        tasks.add(async move { work.delete(id).await }).await?;
    }
    tasks.end().await
}

/// The last line, if the stores are equal.
async fn conclusion(work: &Work, args: &EvacuateArgs, done: &EvacuationReport) -> Result<String> {
    let (source, from) = &work.source;
    let to = &args.to;
    let range = match (args.start, args.end) {
        (None, None) => "",
        _ => " of this range",
    };
    let how = match work.trust_lengths {
        true => format!(
            "; the bytes of {} already present were not compared (--trust-lengths)",
            human::counted(done.there, "lump")
        ),
        false => String::new(),
    };
    let stores = source.stores().await?;
    let state = stores.iter().find(|store| store.name == *from);
    let frozen = state.is_some_and(|store| store.state() == v1::StoreState::ReadOnly);
    let later = match frozen {
        true => String::new(),
        false => format!("; {from:?} accepts changes, and the next one makes them differ"),
    };
    Ok(format!(
        "{to:?} holds the lumps{range} that {from:?} holds, and no others{how}{later}"
    ))
}
