//! `lumpscope load`: clients that put, get, overwrite and delete, and compare what they get.

mod one;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use bytes::Bytes;
use clap::Args;
use lumpscope_client::LumpId;
use lumpscope_units::{Size, human};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::one::Worker;
use crate::client::{Connection, Form};
use crate::error::Interrupted;
use crate::observe::live::ending;
use crate::progress;

/// Ids begin here unless told otherwise: "lumpload" in ASCII, then zeros.
const FIRST_ID: &str = "6c756d706c6f61640000000000000000";
/// Largest lump that is put.
const MAX_SIZE: u64 = 64 << 20;
/// Most requests a second.
const MAX_RATE: f64 = 1e6;
/// Most clients of one store.
const MAX_CLIENTS: u32 = 1024;
/// How often the line of what was done is written anew.
const SHOWN_EVERY: Duration = Duration::from_millis(500);
/// Most lumps of one store.
const MAX_LUMPS: u32 = 10_000_000;

/// `lumpscope load`.
#[derive(Args)]
#[command(
    after_help = "It uses the ids from --first-id on, at most --lumps of each store. Concurrent commands \
                  need different values of --first-id. Exit code 1: a request failed, or a get \
                  returned wrong bytes."
)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    form: Form,
    /// Store to use; repeat for more [default: all that the service has]
    #[arg(long = "store", value_name = "NAME")]
    stores: Vec<String>,
    /// Connections to each store, with one request in flight each
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CLIENTS)))]
    clients: u32,
    /// Size of each lump, e.g. 64K or 4M
    #[arg(long, value_name = "SIZE", default_value = "1M")]
    size: Size,
    /// Requests per second, all stores together [default: no limit]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Maximum number of lumps in each store
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LUMPS)))]
    lumps: u32,
    /// Share of gets among the requests, 0 to 1; one in twenty of the others deletes
    #[arg(long, value_name = "SHARE", default_value_t = 0.5)]
    gets: f64,
    /// End after this many seconds [default: at Ctrl-C]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// First id, in hexadecimal
    #[arg(long, value_name = "ID", default_value = FIRST_ID)]
    first_id: LumpId,
    /// Leave the lumps in the stores at the end
    #[arg(long)]
    keep: bool,
}

impl LoadArgs {
    fn check(&self) -> Result<usize> {
        if self.size.0 == 0 || self.size.0 > MAX_SIZE {
            bail!("--size: {} is out of range (1 to 64M)", self.size);
        }
        if !(0.0..=1.0).contains(&self.gets) {
            bail!("--gets: {} is out of range (0 to 1)", self.gets);
        }
        if let Some(rate) = self.rate
            && !(rate > 0.0 && rate <= MAX_RATE)
        {
            bail!("--rate: {rate} is out of range (above 0, at most {MAX_RATE})");
        }
        if self.lumps < self.clients {
            bail!(
                "--lumps: {} is less than --clients {}; each client has its own lumps",
                self.lumps,
                self.clients
            );
        }
        let last = self.first_id.0.checked_add(u128::from(self.lumps));
        if last.is_none() {
            bail!("--first-id: {} is too large for --lumps", self.first_id);
        }
        usize::try_from(self.size.0).map_err(|_| anyhow!("--size {} is too large", self.size))
    }
}

/// Totals of all clients.
#[derive(Debug, Default)]
struct Done {
    puts: AtomicU64,
    gets: AtomicU64,
    deletes: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
    wrong: AtomicU64,
}

impl Done {
    fn count(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }

    /// What was done until now.
    fn words(&self) -> String {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut words = format!(
            "{}, {}, {}, {}",
            human::counted(of(&self.puts), "put"),
            human::counted(of(&self.gets), "get"),
            human::counted(of(&self.deletes), "delete"),
            human::bytes(of(&self.bytes))
        );
        for (count, what) in [
            (of(&self.failed), "failed"),
            (of(&self.wrong), "returned wrong bytes"),
        ] {
            if count > 0 {
                words += &format!(", {count} {what}");
            }
        }
        words
    }
}

pub(super) async fn run(connection: Connection, args: LoadArgs) -> Result<ExitCode> {
    let size = args.check()?;
    let over = ending()?;
    let client = connection.connect().await?;
    let known = client.stores().await?.into_iter().map(|store| store.name);
    let stores: Vec<String> = match args.stores.is_empty() {
        true => known.collect(),
        false => args.stores.clone(),
    };
    if stores.is_empty() {
        bail!("the service has no store; add one with `lumpscope admin add-store`");
    }
    if let Some(seconds) = args.seconds {
        let over = over.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            over.cancel();
        });
    }
    let begun = Instant::now();
    let done = Arc::new(Done::default());
    let result = drive(&connection, &args, &stores, size, &done, &over).await;
    say(&args, &done, begun.elapsed())?;
    result?;
    let bad = done.failed.load(Ordering::Relaxed) + done.wrong.load(Ordering::Relaxed);
    Ok(match bad {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// All clients, until they have ended.
async fn drive(
    connection: &Connection,
    args: &LoadArgs,
    stores: &[String],
    size: usize,
    done: &Arc<Done>,
    over: &CancellationToken,
) -> Result<()> {
    let content = one::content(size);
    let mut workers = JoinSet::new();
    let all = f64::from(args.clients) * f64::from(u32::try_from(stores.len()).unwrap_or(u32::MAX));
    for store in stores {
        for number in 0..args.clients {
            let worker = Worker {
                client: connection.connect().await?,
                store: store.clone(),
                ids: ids(args, number),
                size,
                content: Bytes::clone(&content),
                gets: args.gets,
                every: args.rate.map(|rate| Duration::from_secs_f64(all / rate)),
                keep: args.keep,
                done: Arc::clone(done),
                over: over.clone(),
            };
            workers.spawn(worker.run());
        }
    }
    let mut result = Ok(());
    let line = progress::line();
    loop {
        line.set_message(format!("{}; Ctrl-C ends it", done.words()));
        let ended = match timeout(SHOWN_EVERY, workers.join_next()).await {
            Ok(Some(ended)) => ended,
            Ok(None) => break,
            Err(_) => continue,
        };
        let ended = ended.unwrap_or(Err(Interrupted.into()));
        if result.is_ok() && ended.is_err() {
            // One of them cannot go on: neither can the others.
            over.cancel();
            result = ended;
        }
    }
    line.finish_and_clear();
    result
}

/// The ids of one client: its share of all, none of them another's.
fn ids(args: &LoadArgs, number: u32) -> Vec<LumpId> {
    (number..args.lumps)
        .step_by(usize::try_from(args.clients).unwrap_or(usize::MAX))
        .map(|n| LumpId(args.first_id.0 + u128::from(n)))
        .collect()
}

fn say(args: &LoadArgs, done: &Done, took: Duration) -> Result<()> {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (puts, gets, deletes) = (of(&done.puts), of(&done.gets), of(&done.deletes));
    let (bytes, failed, wrong) = (of(&done.bytes), of(&done.failed), of(&done.wrong));
    let seconds = took.as_secs_f64();
    args.form.say(
        || {
            json!({"puts": puts, "gets": gets, "deletes": deletes, "bytes": bytes,
                "failed": failed, "wrong": wrong, "seconds": seconds})
        },
        || format!("{} in {seconds:.1} s", done.words()),
    )
}
