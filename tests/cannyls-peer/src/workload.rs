//! A workload of the original benchmark, run as that ran it: one thread, the storage directly, the
//! crate's defaults, and only the call of the storage timed.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use cannyls::block::BlockSize;
use cannyls::lump::{LumpData, LumpId};
use cannyls::nvm::FileNvm;
use cannyls::storage::{Storage, StorageBuilder};
use lumpscope_lab::load::runner::content;
use lumpscope_lab::run::CannylsRun;
use lumpscope_lab::workload::{Command, CommandStream, WorkloadArgs};

use crate::storage::{ENGINE, format};

/// Durability of a put with the crate's defaults.
const DURABILITY: &str =
    "data written, record in memory for up to 4096 records (the crate's default)";

/// Durability with `--sync`.
const SYNCED: &str =
    "Storage::put, then Storage::journal_sync: one fdatasync for data and record, in no order";

/// A workload, and the file for it.
#[derive(clap::Args)]
pub(crate) struct WorkloadFileArgs {
    #[command(flatten)]
    workload: WorkloadArgs,
    /// A file that is not there yet; or a file or block device to overwrite
    #[arg(long)]
    file: PathBuf,
    /// Bytes of the storage
    #[arg(long)]
    capacity: u64,
    /// Bytes of a block; the original benchmark has 512
    #[arg(long, default_value_t = 512)]
    block_size: u16,
    /// Compare every byte of every get, and at the end, reopened, all that lives
    #[arg(long)]
    verify: bool,
    /// Commands at the begin that are run and not counted
    #[arg(long, default_value_t = 0)]
    skip: usize,
    /// Begin no command when those that count have taken so long
    #[arg(long, conflicts_with = "verify")]
    milliseconds: Option<u64>,
    /// Sync the journal, and with it the data, within each put and delete
    #[arg(long)]
    sync: bool,
}

/// Makes the storage, runs the commands, and tells how long each took.
pub(crate) fn run(args: &WorkloadFileArgs) -> Result<CannylsRun> {
    let stream = args.workload.stream()?;
    let mut storage = make(&args.file, args.capacity, args.block_size)?;
    let mut run = CannylsRun {
        engine: ENGINE.to_owned(),
        durability: if args.sync { SYNCED } else { DURABILITY }.to_owned(),
        wall_ns: 0,
        latency_ns: Vec::with_capacity(stream.commands.len()),
        survivors: None,
    };
    let limit = args.milliseconds.map(Duration::from_millis);
    let mut begin = Instant::now();
    let mut versions = Vec::new();
    for (index, command) in stream.commands.iter().enumerate() {
        if index == args.skip {
            begin = Instant::now();
        }
        let counts = index >= args.skip;
        if counts && limit.is_some_and(|limit| begin.elapsed() >= limit) {
            break;
        }
        let latency = perform(&mut storage, command, &mut versions, args)
            .with_context(|| format!("command {} ({command})", index + 1))?;
        if counts {
            run.latency_ns.push(nanoseconds(latency));
        }
    }
    run.wall_ns = nanoseconds(begin.elapsed());
    if args.verify {
        // What is left in memory is written; the crate does not do that when it is dropped.
        storage.journal_sync()?;
        drop(storage);
        run.survivors = Some(verify(&args.file, &stream)?);
    }
    Ok(run)
}

/// As the original benchmark does: a file that is not there is made by the crate, and grows with
/// what is written. What the crate does not make, a device, gets the head of one that it did.
fn make(path: &Path, capacity: u64, block_size: u16) -> Result<Storage<FileNvm>> {
    let failed = || format!("cannot make a storage in {}", path.display());
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let nvm = FileNvm::create(path, capacity).with_context(failed)?;
            let block_size = BlockSize::new(block_size)?;
            let mut builder = StorageBuilder::new();
            builder
                .block_size(block_size)
                .create(nvm)
                .with_context(failed)
        }
        Err(error) => Err(error).with_context(failed),
        Ok(found) => {
            let kind = found.file_type();
            ensure!(
                kind.is_file() || kind.is_block_device(),
                "{} is neither a file nor a block device",
                path.display()
            );
            format(path, capacity, block_size)?;
            Storage::open(FileNvm::open(path)?).with_context(failed)
        }
    }
}

/// One command; how long the call of the storage took.
fn perform(
    storage: &mut Storage<FileNvm>,
    command: &Command,
    versions: &mut Vec<u64>,
    args: &WorkloadFileArgs,
) -> Result<Duration> {
    match *command {
        Command::Put { id, size } => {
            let version = next_version(versions, id)?;
            let bytes = content(id, version, size);
            let data = storage.allocate_lump_data_with_bytes(&bytes)?;
            put(storage, id, (version, &data), args.sync)
        }
        Command::Embed { id, size } => {
            let version = next_version(versions, id)?;
            let bytes = content(id, version, size);
            let data = LumpData::new_embedded(bytes.to_vec())?;
            put(storage, id, (version, &data), args.sync)
        }
        Command::Get { id, size } => {
            let begin = Instant::now();
            let found = storage.get(&lump_id(id))?;
            let latency = begin.elapsed();
            let found = found.context("the lump is gone although it was never deleted")?;
            let version = versions.get(usize::try_from(id)?).copied().unwrap_or(0);
            check(found.as_bytes(), (id, version, size), args.verify)?;
            Ok(latency)
        }
        Command::Delete { id, .. } => {
            let begin = Instant::now();
            let existed = storage.delete(&lump_id(id))?;
            if args.sync {
                storage.journal_sync()?;
            }
            let latency = begin.elapsed();
            ensure!(existed, "the lump is gone although it was never deleted");
            Ok(latency)
        }
        Command::DeleteRange { start, end, count } => {
            let begin = Instant::now();
            let gone = storage.delete_range(lump_id(start)..lump_id(end))?;
            if args.sync {
                storage.journal_sync()?;
            }
            let latency = begin.elapsed();
            let found = gone.len() as u64;
            ensure!(
                found == count,
                "{found} lumps were deleted where {count} were alive"
            );
            Ok(latency)
        }
    }
}

fn put(
    storage: &mut Storage<FileNvm>,
    id: u64,
    (version, data): (u64, &LumpData),
    sync: bool,
) -> Result<Duration> {
    let begin = Instant::now();
    let created = storage.put(&lump_id(id), data)?;
    if sync {
        storage.journal_sync()?;
    }
    let latency = begin.elapsed();
    ensure!(
        created == (version == 1),
        "the lump was {} before it was put",
        if created { "not there" } else { "there" }
    );
    Ok(latency)
}

/// How many times this lump has been put, this time included. Ids count from 1.
fn next_version(versions: &mut Vec<u64>, id: u64) -> Result<u64> {
    let at = usize::try_from(id)?;
    if versions.len() <= at {
        versions.resize(at + 1, 0);
    }
    versions[at] += 1;
    Ok(versions[at])
}

/// Insists on the length, and on every byte when that was asked for.
fn check(found: &[u8], (id, version, size): (u64, u64, u64), verify: bool) -> Result<()> {
    let length = found.len() as u64;
    ensure!(
        length == size,
        "{length} bytes were read where {size} were put"
    );
    if verify && found != &content(id, version, size)[..] {
        bail!("lump {id} was read back with other bytes than were put");
    }
    Ok(())
}

/// All that must live does, byte for byte, and nothing else: lumps and bytes.
fn verify(path: &Path, stream: &CommandStream) -> Result<(u64, u64)> {
    let mut storage = Storage::open(FileNvm::open(path)?)?;
    let alive = stream.survivors();
    let found: Vec<u128> = storage.list().iter().map(LumpId::as_u128).collect();
    let expected: Vec<u128> = alive.keys().map(|id| u128::from(*id)).collect();
    ensure!(
        found == expected,
        "after reopening there are {} lumps where {} must be, or others",
        found.len(),
        expected.len()
    );
    let mut bytes = 0;
    for (&id, lump) in &alive {
        let data = storage.get(&lump_id(id))?;
        let data = data.with_context(|| format!("lump {id} is gone after reopening"))?;
        let expected = (id, lump.version, lump.size);
        check(data.as_bytes(), expected, true).context("after reopening")?;
        bytes += lump.size;
    }
    Ok((found.len() as u64, bytes))
}

fn lump_id(id: u64) -> LumpId {
    LumpId::new(id.into())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
