//! `lumpscope load`: clients that put, get, overwrite and delete, and compare what they get.

use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use lumpscope_client::{Client, LumpId, v1};
use lumpscope_lab::load::Pace;
use lumpscope_lab::load::mix::{self, Mix, MixClient, MixCounts, Verb};
use lumpscope_lab::load::target::{Refusal, service};
use lumpscope_units::Size;
use serde_json::{Value, json};

use crate::client::{ConnectionArgs, OutputFormat};
use crate::observe::live::ending;
use crate::output::{complain, print, tell};

/// Ids begin here unless told otherwise: "lumpload" in ASCII, then zeros.
const FIRST_ID: &str = "6c756d706c6f61640000000000000000";
/// Largest lump that is put.
const MAX_SIZE: u64 = 64 << 20;
/// Most requests a second.
const MAX_RATE: f64 = 1e6;
/// Most clients of one store.
const MAX_CLIENTS: u32 = 1024;
/// Most lumps of one store.
const MAX_LUMPS: u32 = 10_000_000;

/// `lumpscope load`.
#[derive(Args)]
#[command(
    after_help = "Prints a line per second (with --json on standard error), and percentiles at the end. It uses the ids from --first-id on, at most --lumps of each store. Concurrent commands \
                  need different values of --first-id. Exit code 1: a request failed, or a get \
                  returned wrong bytes."
)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    form: OutputFormat,
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

pub(super) async fn run(connection: ConnectionArgs, args: LoadArgs) -> Result<ExitCode> {
    let size = args.check()?;
    let stop = ending()?;
    let client = connection.connect().await?;
    let known = client.stores().await?.into_iter().map(|store| store.name);
    let stores: Vec<String> = match args.stores.is_empty() {
        true => known.collect(),
        false => args.stores.clone(),
    };
    if stores.is_empty() {
        bail!("the service has no store; add one with `lumpscope admin add-store`");
    }
    let mut clients = Vec::new();
    for store in &stores {
        for number in 0..args.clients {
            let client = connection.connect().await?;
            clients.push(MixClient {
                store: store.clone(),
                client: service(client, store, None),
                ids: ids(&args, number),
            });
        }
    }
    let all = f64::from(u32::try_from(clients.len()).unwrap_or(u32::MAX));
    let time = args.seconds.map(Duration::from_secs);
    let every = args.rate.map(|rate| Duration::from_secs_f64(all / rate));
    let mix = Mix {
        size,
        gets: args.gets,
        pace: Pace::new(time, every, stop),
    };
    let begun = Instant::now();
    let mut printed = Ok(());
    let (counts, ended) = mix::run(clients, &mix, |second| match args.form.json {
        true => tell(&second.second()),
        false if printed.is_ok() => printed = print(&second.second()),
        false => {}
    })
    .await;
    let printed = printed.and_then(|()| say(&args, &counts, begun.elapsed().as_secs_f64()));
    let nothing_put = ended.is_err() && counts.of(Verb::Put).requests == 0;
    let cleared = args.keep || nothing_put || clear(&args, &client, &stores).await;
    printed?;
    match ended {
        Err(Refusal::Service(error)) => Err((*error).into()),
        Err(other) => Err(other.into()),
        Ok(()) if cleared && counts.all().errors + counts.wrong == 0 => Ok(ExitCode::SUCCESS),
        Ok(()) => Ok(ExitCode::FAILURE),
    }
}

/// The ids of one client: its share of all, none of them another's.
fn ids(args: &LoadArgs, number: u32) -> Range<u128> {
    let at = |number: u32| {
        let share = u128::from(number) * u128::from(args.lumps) / u128::from(args.clients);
        args.first_id.0 + share
    };
    at(number)..at(number + 1)
}

/// Removes all that may have been put; false: a store refuses.
async fn clear(args: &LoadArgs, client: &Client, stores: &[String]) -> bool {
    let mut cleared = true;
    for store in stores {
        let end = LumpId(args.first_id.0 + u128::from(args.lumps));
        let request = v1::DeleteRangeRequest {
            store: store.clone(),
            start: Some(args.first_id.into()),
            end: Some(end.into()),
            ..Default::default()
        };
        if let Err(error) = client.delete_range(request).await {
            complain(&format!(
                "lumpscope: store {store}: its lumps are not removed: {error}"
            ));
            cleared = false;
        }
    }
    cleared
}

fn say(args: &LoadArgs, counts: &MixCounts, seconds: f64) -> Result<()> {
    let json = || {
        let all = counts.all();
        let latency: serde_json::Map<String, Value> = Verb::ALL
            .map(|verb| (verb.name().to_owned(), json!(counts.of(verb).latency)))
            .into_iter()
            .collect();
        json!({"puts": counts.of(Verb::Put).requests, "gets": counts.of(Verb::Get).requests,
            "deletes": counts.of(Verb::Delete).requests, "bytes": all.bytes,
            "failed": all.errors, "wrong": counts.wrong, "seconds": seconds, "latency": latency})
    };
    let text = || format!("{counts} in {seconds:.1} s\n{}", counts.latency());
    args.form.say(json, text)
}
