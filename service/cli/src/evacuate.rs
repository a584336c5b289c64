//! `lumpscope evacuate`: the lumps of a store that is being served, to another store.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use indicatif::ProgressBar;
use lumpscope_client::{Body, Client, Code, Error, Listing, LumpId, PutOptions, v1};
use lumpscope_engine::crc32c;
use lumpscope_units::{Size, human};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_stream::StreamExt as _;

use crate::client::{Connection, Form};
use crate::error::Exit;
use crate::output;
use crate::progress::templated as bar;

/// `lumpscope evacuate`.
#[derive(Args)]
#[command(
    after_help = "The source is only read. Each lump is read back from the target and compared. Run it \
                  again after an interruption: it resumes. Exit code 4: all lumps are in the target, \
                  except for those listed. 1: it did not finish."
)]
pub(super) struct EvacuateArgs {
    #[command(flatten)]
    form: Form,
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
    /// Compare lumps already present in the target byte by byte, not only by length
    #[arg(long)]
    compare: bool,
    /// Replace lumps in the target that differ
    #[arg(long)]
    replace: bool,
}

/// Lumps that were evacuated, and those that were not.
#[derive(Default)]
struct Done {
    lumps: u64,
    bytes: u64,
    there: u64,
    /// Removed from the source meanwhile.
    gone: u64,
    /// Lumps that are not in the other store, and why.
    missing: Vec<(LumpId, String)>,
}

/// Both stores, for all tasks.
struct Work {
    source: (Client, String),
    target: (Client, String),
    compare: bool,
    replace: bool,
    rate: Option<u64>,
    /// When the next lump may be read.
    free_at: Mutex<Instant>,
    done: Mutex<Done>,
    bar: ProgressBar,
}

/// Outcome of one lump.
enum Outcome {
    Copied(u64),
    There,
    Gone,
    Missing(String),
}

/// Copies all lumps of a range.
pub(super) async fn run(connection: Connection, args: EvacuateArgs) -> Result<ExitCode> {
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
    check_stores((&source, &args.from), (&target, &args.to)).await?;
    check_room(&args, &source, &target).await?;
    let work = Arc::new(Work {
        source: (source, args.from.clone()),
        target: (target, args.to.clone()),
        compare: args.compare,
        replace: args.replace,
        rate: args.rate.map(|size| size.0.max(1)),
        free_at: Mutex::new(Instant::now()),
        done: Mutex::default(),
        bar: bar("{wide_bar} {pos}/{len} lumps {per_sec} {eta}"),
    });
    let copied = copy_all(&work, &args).await;
    work.bar.finish_and_clear();
    copied?;
    let mut done = std::mem::take(&mut *work.lock());
    find_missing(&work, &args, &mut done).await?;
    done.missing.sort();
    args.form.say(|| as_json(&done), || text(&done))?;
    Ok(Exit::clean(done.missing.is_empty()))
}

/// Refuses stores that are one, or that cannot be found.
async fn check_stores(source: (&Client, &str), target: (&Client, &str)) -> Result<()> {
    let mut infos = Vec::new();
    for (client, name) in [source, target] {
        let stores = client.stores().await?;
        let found = stores.into_iter().find(|store| store.name == name);
        infos.push(
            found.ok_or_else(|| anyhow!("no store {name:?}; `lumpscope stores` lists them"))?,
        );
    }
    if infos[0].uuid == infos[1].uuid && !infos[0].uuid.is_empty() {
        let uuid = &infos[0].uuid;
        bail!(
            "source and target are the same store, or copies with the same UUID ({uuid}); name another store"
        );
    }
    Ok(())
}

/// Refuses a target that is too small before anything is copied.
async fn check_room(args: &EvacuateArgs, source: &Client, target: &Client) -> Result<()> {
    let ask = async |client: &Client, store: &str| {
        let request = v1::UsageRequest {
            store: store.to_owned(),
            start: args.start.map(Into::into),
            end: args.end.map(Into::into),
            ..Default::default()
        };
        client.usage(request).await
    };
    let (from, to) = (ask(source, &args.from).await?, ask(target, &args.to).await?);
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
    Ok(())
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
    let usage = v1::UsageRequest {
        store: args.from.clone(),
        start: args.start.map(Into::into),
        end: args.end.map(Into::into),
        ..Default::default()
    };
    work.bar.set_length(work.source.0.usage(usage).await?.lumps);
    let mut ids = Ids::of(&work.source, args).await?;
    let mut there = Ids::of(&work.target, args).await?;
    let room = usize::try_from(args.at_once).unwrap_or(1);
    let slots = Arc::new(Semaphore::new(room));
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    while let Some(id) = ids.next().await? {
        let is_there = there.has(id).await?;
        let slot = Arc::clone(&slots).acquire_owned().await?;
        let work = Arc::clone(work);
        tasks.spawn(async move {
            let outcome = work.one(id, is_there).await?;
            work.note(id, outcome);
            drop(slot);
            Ok(())
        });
        while let Some(ended) = tasks.try_join_next() {
            ended??;
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// Looks once more which lumps of the source the target has.
async fn find_missing(work: &Work, args: &EvacuateArgs, done: &mut Done) -> Result<()> {
    let mut ids = Ids::of(&work.source, args).await?;
    let mut there = Ids::of(&work.target, args).await?;
    let known: std::collections::HashSet<LumpId> = done.missing.iter().map(|lump| lump.0).collect();
    while let Some(id) = ids.next().await? {
        if !there.has(id).await? && !known.contains(&id) {
            let why = "it was put after its range was copied, or removed from the target; run this command again";
            done.missing.push((id, why.to_owned()));
        }
    }
    Ok(())
}

impl Work {
    fn lock(&self) -> std::sync::MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, id: LumpId, outcome: Outcome) {
        let mut done = self.lock();
        match outcome {
            Outcome::Copied(bytes) => {
                done.lumps += 1;
                done.bytes += bytes;
            }
            Outcome::There => done.there += 1,
            Outcome::Gone => done.gone += 1,
            Outcome::Missing(why) => done.missing.push((id, why)),
        }
        drop(done);
        self.bar.inc(1);
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

    /// Copies one lump, if it must be. An error ends everything.
    async fn one(&self, id: LumpId, is_there: bool) -> Result<Outcome> {
        let (source, from) = &self.source;
        let (target, to) = &self.target;
        let head = match source.head(from, id).await {
            Ok(head) => head,
            Err(error) => return of_source(error),
        };
        let mut replace = false;
        if is_there {
            let other = target.head(to, id).await;
            let same = other
                .as_ref()
                .is_ok_and(|other| other.length == head.length);
            if same && !self.compare {
                return Ok(Outcome::There);
            }
            if !same && !self.replace {
                return Ok(Outcome::Missing(conflict("length")));
            }
            replace = self.replace;
        }
        self.pace(head.length).await;
        let lump = match source.get(from, id, None).await {
            Ok(lump) => lump.bytes,
            Err(error) => return of_source(error),
        };
        let crc = crc32c::of(&lump);
        if is_there && self.crc_there(id).await? == Some(crc) {
            return Ok(Outcome::There);
        }
        if is_there && !replace {
            return Ok(Outcome::Missing(conflict("content")));
        }
        let bytes = u64::try_from(lump.len()).unwrap_or(u64::MAX);
        let options = PutOptions {
            placement: head.placement(),
            if_absent: !replace,
            ..PutOptions::default()
        };
        match target.put(to, id, Body::from(lump), &options).await {
            // Somebody has put it since; or this did, and the answer was lost.
            Ok(_) | Err(Error::Ambiguous { .. }) => {}
            Err(error) if error.code() == Some(Code::AlreadyExists) => {}
            Err(error) => return Err(error.into()),
        }
        match self.crc_there(id).await? {
            Some(there) if there == crc => Ok(Outcome::Copied(bytes)),
            Some(_) => Ok(Outcome::Missing(conflict("content"))),
            None => bail!("lump {id} disappeared from store {to:?} while it was compared"),
        }
    }

    /// Checksum of the lump in the other store, all of whose bytes were read; `None`: it is not there.
    async fn crc_there(&self, id: LumpId) -> Result<Option<u32>> {
        let (target, to) = &self.target;
        match target.get(to, id, None).await {
            Ok(lump) => Ok(Some(crc32c::of(&lump.bytes))),
            Err(error) if is_unknown(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_unknown(error: &Error) -> bool {
    let refusal = error.refusal();
    refusal.is_some_and(|refusal| refusal.reason == "UNKNOWN_LUMP")
}

fn conflict(what: &str) -> String {
    format!("the target has a lump with this id but different {what}; --replace overwrites it")
}

/// A lump that cannot be read is told; anything else ends everything.
fn of_source(error: Error) -> Result<Outcome> {
    match error.refusal() {
        _ if is_unknown(&error) => Ok(Outcome::Gone),
        Some(refusal) if ["LUMP_UNREADABLE", "LUMP_CORRUPT"].contains(&&*refusal.reason) => {
            Ok(Outcome::Missing(refusal.message.clone()))
        }
        _ => Err(error.into()),
    }
}

fn as_json(done: &Done) -> Value {
    let missing = done.missing.iter();
    let missing: Vec<Value> = missing
        .map(|(id, why)| json!({"id": id.to_string(), "why": why}))
        .collect();
    json!({
        "lumps": done.lumps,
        "bytes": done.bytes,
        "already_there": done.there,
        "removed_meanwhile": done.gone,
        "missing": missing,
    })
}

fn text(done: &Done) -> String {
    let mut text = format!(
        "copied and verified {}, {}; {} already present\n",
        human::counted(done.lumps, "lump"),
        human::bytes(done.bytes),
        human::count(done.there),
    );
    if done.gone > 0 {
        let gone = human::counted(done.gone, "lump");
        text.push_str(&format!("{gone} removed from the source meanwhile\n"));
    }
    text + &lost_text(done.missing.iter().map(|(id, why)| (id.to_string(), why)))
}

/// The lumps that could not be read, and why.
fn lost_text<'a>(lumps: impl Iterator<Item = (String, &'a String)>) -> String {
    let mut text = String::new();
    let mut count: u64 = 0;
    for (id, why) in lumps {
        count += 1;
        text.push_str(&format!("{id}\n{}", output::indented(why)));
    }
    if count > 0 {
        let lumps = human::counted(count, "lump");
        let are = if count == 1 { "is" } else { "are" };
        text.insert_str(0, &format!("{lumps} {are} missing:\n"));
    }
    text
}
