//! `lumpscope top`: what each store and its disk do, interval by interval.

mod rates;
mod recorded;
mod screen;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;
use lumpscope_client::{Client, v1};
use lumpscope_units::{Span, clock::time_of_day};
use serde_json::json;
use tokio::time::Instant;

use self::rates::StoreView;
use super::live::ending;
use crate::client::{ConnectionArgs, OutputFormat};
use crate::output;

/// Shortest interval.
const SHORTEST: Duration = Duration::from_millis(100);

/// `lumpscope top`.
#[derive(Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    form: OutputFormat,
    /// Show only this store
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Length of an interval, at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Span,
    /// End after this many intervals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Show this recording as one interval, instead of a service
    #[arg(long, value_name = "FILE", conflicts_with_all = ["count", "interval"])]
    replay: Option<PathBuf>,
}

pub(crate) async fn run(connection: ConnectionArgs, args: TopArgs) -> Result<ExitCode> {
    if let Some(file) = &args.replay {
        let (before, after, passed) = recorded::whole(file, args.store.as_deref()).await?;
        Screen::new(&args).show(&before, &after, 0, passed)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.interval.0 < SHORTEST {
        anyhow::bail!(
            "--interval: {} is too short (at least 100ms)",
            args.interval
        );
    }
    let ending = ending()?;
    let client = connection.connect().await?;
    let mut screen = Screen::new(&args);
    let mut before = Sample::take(&client, &args).await?;
    for _ in 0..args.count.unwrap_or(u64::MAX) {
        tokio::select! {
            () = tokio::time::sleep_until(before.at + args.interval.0) => {}
            () = ending.cancelled() => break,
        }
        let after = tokio::select! {
            after = Sample::take(&client, &args) => after?,
            () = ending.cancelled() => break,
        };
        let passed = after.at.duration_since(before.at);
        if !screen.show(&before.stores, &after.stores, unix_ns(), passed)? {
            break;
        }
        before = after;
    }
    Ok(ExitCode::SUCCESS)
}

/// The state of all stores at one time.
struct Sample {
    at: Instant,
    stores: Vec<v1::StoreReport>,
}

impl Sample {
    async fn take(client: &Client, args: &TopArgs) -> Result<Self> {
        let request = v1::ReportRequest {
            store: args.store.clone().unwrap_or_default(),
            without_heat: true,
        };
        let stores = client.report(request).await?.stores;
        Ok(Self {
            at: Instant::now(),
            stores,
        })
    }
}

fn unix_ns() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let ns = since_1970.map_or(0, |time| time.as_nanos());
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Where the intervals go.
struct Screen {
    json: bool,
    terminal: Option<console::Term>,
    begun: bool,
}

impl Screen {
    fn new(args: &TopArgs) -> Self {
        let terminal = console::Term::stdout();
        let drawn = !args.form.json && terminal.is_term();
        Self {
            json: args.form.json,
            terminal: drawn.then_some(terminal),
            begun: false,
        }
    }

    /// False: nobody looks any more.
    fn show(
        &mut self,
        before: &[v1::StoreReport],
        after: &[v1::StoreReport],
        now_ns: i64,
        passed: Duration,
    ) -> Result<bool> {
        let seconds = passed.as_secs_f64().max(1e-3);
        let views = views(before, after, seconds);
        if self.json {
            let line = json!({"at_unix_ns": now_ns, "seconds": seconds, "stores": views});
            return output::write((output::json(&line)? + "\n").as_bytes());
        }
        let head = match now_ns {
            0 => format!("the whole recording, over {seconds:.2} s"),
            now => format!("{} UTC, over {seconds:.2} s", time_of_day(now)),
        };
        let text = screen::text(&head, &views);
        let drawn = match &self.terminal {
            None => format!("{text}\n\n"),
            Some(terminal) => {
                let width = terminal.size_checked().map(|(_, columns)| columns.into());
                let clear = if self.begun { "" } else { "\x1b[2J" };
                format!("{clear}{}", screen::redraw(&text, width))
            }
        };
        self.begun = true;
        output::write(drawn.as_bytes())
    }
}

/// The stores that were there at both times.
fn views(before: &[v1::StoreReport], after: &[v1::StoreReport], seconds: f64) -> Vec<StoreView> {
    let view = |is: &v1::StoreReport| {
        let was = before.iter().find(|was| was.store == is.store)?;
        Some(rates::between(was, is, seconds))
    };
    after.iter().filter_map(view).collect()
}
