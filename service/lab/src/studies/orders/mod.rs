//! The orders in which the engine starts gets that wait, compared on an emulated disk.
//!
//! The real engine runs on one thread and in virtual time: its owner loop is stepped, clients that
//! each have one get under way are answered and ask again, and only then does time pass, to the
//! end of the next I/O. So the result is the same on every machine, at any load, for the same
//! version of the engine and of the model.
//!
//! Two queues order the gets: the engine's, and the drive's own, which knows where the platters
//! turn. How many I/Os are handed to the drive at a time decides which of them does the work.

mod client;
mod image;
mod report;

use std::process::ExitCode;

use lumpscope_engine::QueuePolicy;
use lumpscope_platter::drive::Drive;
use lumpscope_platter::queue::Order;

use crate::experiment::OutputArgs;
use crate::failure::argument;

pub use report::Line;
use report::OrderLines;

use crate::experiment;
use crate::experiment::report::Spread;
use crate::studies::predict::drive_named;
use lumpscope_units::tell;

/// Most gets under way in one run.
const MOST_IN_FLIGHT: usize = 1024;

/// Largest gets.
const MOST_BYTES: u64 = 16 << 20;

/// Compare the orders in which waiting gets are started, on an emulated disk in virtual time.
#[derive(Clone, Debug, clap::Args)]
pub struct OrdersArgs {
    /// The drive; `lumpscope platter drives` lists them
    #[arg(long, default_value = "st1000dm003", value_name = "NAME")]
    pub drive: String,
    /// Gets under way
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,8,32",
        value_name = "N,.."
    )]
    pub depth: Vec<usize>,
    /// Bytes of each get; K and M are understood
    #[arg(long, value_delimiter = ',', default_value = "4K,64K,1M", value_name = "BYTES,..",
          value_parser = lumpscope_units::size_within(1, MOST_BYTES))]
    pub size: Vec<u64>,
    /// I/Os that the engine hands to the drive at a time
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,8,32",
        value_name = "N,.."
    )]
    pub at_disk: Vec<usize>,
    /// Gets in each run
    #[arg(long, default_value_t = 2000, value_name = "N")]
    pub requests: u64,
    /// Rounds: seeds, each with other lumps at other places
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub rounds: u64,
    /// Most younger gets that start before a waiting one
    #[arg(long, default_value_t = 512, value_name = "N")]
    pub max_overtakes: u32,
    #[command(flatten)]
    #[expect(
        missing_docs,
        reason = "its fields are the flags, and say what they are"
    )]
    pub output: OutputArgs,
}

/// One way to order the gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The engine's order.
    pub policy: QueuePolicy,
    /// I/Os handed to the drive at a time.
    pub at_disk: usize,
    /// The drive's own order.
    pub drive_order: Order,
    /// Gets under way.
    pub in_flight: usize,
    /// Bytes of each.
    pub size: u64,
    /// Gets in the run.
    pub requests: u64,
    /// Most younger gets that start before a waiting one.
    pub max_overtakes: u32,
}

/// Measures and prints.
///
/// # Errors
/// Whatever keeps the orders from being compared.
pub fn run(args: &OrdersArgs) -> anyhow::Result<ExitCode> {
    experiment::run(&args.output, |interrupt| {
        let drive = drive_named(&args.drive)?;
        let lines = compare(args, &drive, |line| {
            tell(line);
            interrupt.check()
        })?;
        let mut report = report::report(&lines);
        report.fact("Emulated drive", args.drive.as_str());
        let (requests, rounds, bound) = (args.requests, args.rounds, args.max_overtakes);
        let runs = format!("{requests} gets a run, {rounds} seeds, at most {bound} overtakes");
        report.fact("Runs", runs);
        Ok((report, OrderLines { lines }))
    })
}

fn check(args: &OrdersArgs) -> anyhow::Result<()> {
    let argument = |option, allowed| Err(argument(option, allowed));
    let some =
        |list: &[usize]| !list.is_empty() && list.iter().all(|n| (1..=MOST_IN_FLIGHT).contains(n));
    if !some(&args.depth) {
        return argument("--depth", "1 to 1024");
    }
    if !some(&args.at_disk) {
        return argument("--at-disk", "1 to 1024");
    }
    if args.rounds == 0 || args.requests == 0 || args.size.is_empty() {
        return argument("--rounds, --requests and --size", "at least 1");
    }
    Ok(())
}

/// The ways that are compared: the engine's orders in front of a drive that is given one I/O at a
/// time, and in front of one that orders what it is given itself. No get has a deadline, so that
/// order would be fifo.
fn ways(args: &OrdersArgs) -> impl Iterator<Item = (QueuePolicy, usize, Order)> {
    args.at_disk.iter().flat_map(|&at_disk| {
        let order = match at_disk {
            1 => Order::Fifo,
            _ => Order::Position,
        };
        [QueuePolicy::Fifo, QueuePolicy::Position].map(|policy| (policy, at_disk, order))
    })
}

/// Compares on a drive; `tell` is told of each part before it is measured, and may end the measurement.
///
/// # Errors
/// Whatever keeps the orders from being compared; what `tell` says.
pub fn compare(
    args: &OrdersArgs,
    drive: &Drive,
    mut tell: impl FnMut(&str) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Line>> {
    check(args)?;
    let mut lines = Vec::new();
    for &size in &args.size {
        for &in_flight in &args.depth {
            let bytes = crate::human::bytes(size);
            tell(&format!("{bytes}, {in_flight} in flight"))?;
            let case = |(policy, at_disk, drive_order)| Case {
                policy,
                at_disk,
                drive_order,
                in_flight,
                size,
                requests: args.requests,
                max_overtakes: args.max_overtakes,
            };
            let base = case((QueuePolicy::Fifo, 1, Order::Fifo));
            let base = rounds(drive, &base, args.rounds)?;
            for way in ways(args) {
                let case = case(way);
                let runs = rounds(drive, &case, args.rounds)?;
                lines.push(Line::of(&case, &runs, &base));
            }
        }
    }
    Ok(lines)
}

fn rounds(drive: &Drive, case: &Case, rounds: u64) -> anyhow::Result<Vec<client::OrderRun>> {
    (1..=rounds)
        .map(|seed| client::run(drive, case, seed))
        .collect()
}

/// Median and range of a number over the rounds.
fn spread(values: impl Iterator<Item = f64>) -> Spread {
    Spread::of(values.collect()).unwrap_or(Spread {
        median: 0.0,
        min: 0.0,
        max: 0.0,
    })
}
