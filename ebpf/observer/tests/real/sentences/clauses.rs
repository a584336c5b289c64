//! Sentences of `explain`, taken apart.

/// A number as it is printed: at least, and at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Printed(pub(crate) f64, pub(crate) f64);

/// A clause, or a part of one.
#[derive(Debug, PartialEq)]
pub(crate) enum Clause {
    /// Of the whole request.
    Took(Printed),
    /// The disk served somebody; true: for at least that long.
    Served(String, Printed, bool),
    Receiving(Printed, Option<Printed>),
    Turn(Printed),
    Index(Printed),
    Replying(Printed),
    /// True: at least so long.
    Data(Part, Printed, bool),
    /// How many of others it was behind; true: at least.
    Queued(Printed, Option<(u64, bool)>),
    /// Reads, writes, bytes and sector of the farthest, its distance, who was there, time at the disk.
    Blocks(
        u64,
        u64,
        Printed,
        u64,
        Option<(i8, Printed, String)>,
        Printed,
    ),
    /// Time, reads, writes, flushes.
    Commit(Printed, u64, u64, u64),
    InCommit(Part, Printed, bool),
}

/// Where a time was spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Service,
    Asked,
    Back,
    Disk,
    Queued,
    Waiting,
}

const PARTS: [(&str, Part); 7] = [
    ("in the service", Part::Service),
    ("in system calls without a block request", Part::Asked),
    ("on the way to the disk", Part::Asked),
    ("on the way back from the disk", Part::Back),
    ("at the disk", Part::Disk),
    ("queued", Part::Queued),
    ("waiting for work of the store", Part::Waiting),
];

/// All clauses of a sentence; `Err`: the first that nobody checks.
pub(crate) fn clauses(sentence: &str) -> Result<Vec<Clause>, String> {
    let (head, rest) = sentence.split_once(": ").unwrap_or((sentence, ""));
    let (took, served) = match head.split_once(", and the disk served ") {
        Some((took, served)) => (took, Some(served)),
        None => (head, None),
    };
    let took = took.rsplit_once(" took ").ok_or(head)?.1;
    let mut all = vec![Clause::Took(time(took).ok_or(took)?)];
    if let Some(served) = served {
        let (who, ns) = served.rsplit_once(" for ").ok_or(served)?;
        let ns = ns.strip_suffix(" of it").ok_or(ns)?;
        let least = ns.strip_prefix("at least ");
        let printed = time(least.unwrap_or(ns)).ok_or(ns)?;
        all.push(Clause::Served(who.to_owned(), printed, least.is_some()));
    }
    for text in apart(rest) {
        match text.strip_prefix("commit ") {
            Some(commit) => commit_of(commit, &mut all).ok_or_else(|| text.clone())?,
            None => all.push(clause(&text).ok_or_else(|| text.clone())?),
        }
    }
    Ok(all)
}

/// Split at commas that are not in parentheses, but for those within a clause.
fn apart(text: &str) -> Vec<String> {
    let (mut all, mut deep) = (Vec::<String>::new(), 0);
    for piece in text.split(", ") {
        let inside = piece.starts_with("device ")
            || piece.ends_with(" of it while the disk wrote what had come");
        match all.last_mut() {
            Some(last) if deep > 0 || inside => *last += &format!(", {piece}"),
            _ => all.push(piece.to_owned()),
        }
        deep += piece.matches('(').count();
        deep -= piece.matches(')').count().min(deep);
    }
    all.retain(|clause| !clause.is_empty());
    all
}

/// `1.5 ms` as nanoseconds.
fn time(text: &str) -> Option<Printed> {
    let units = [("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0)];
    printed(text, &units)
}

fn size(text: &str) -> Option<Printed> {
    let units = [
        ("TiB", f64::from(1 << 30) * 1024.0),
        ("GiB", f64::from(1 << 30)),
        ("MiB", f64::from(1 << 20)),
        ("KiB", 1024.0),
        ("B", 1.0),
    ];
    printed(text, &units)
}

fn printed(text: &str, units: &[(&str, f64)]) -> Option<Printed> {
    let (number, unit) = text.split_once(' ')?;
    let number: f64 = number.parse().ok()?;
    let (_, unit) = units.iter().find(|(name, _)| *name == unit)?;
    // Rounded to a tenth; the rest is for floats.
    Some(Printed((number - 0.0501) * unit, (number + 0.0501) * unit))
}

/// As `at least 2 ms in the service`: how long, whether at least, and where.
fn spent(text: &str) -> Option<(Printed, bool, &str)> {
    let least = text.strip_prefix("at least ");
    let mut words = least.unwrap_or(text).splitn(3, ' ');
    let ns = time(&format!("{} {}", words.next()?, words.next()?))?;
    Some((ns, least.is_some(), words.next()?))
}

/// As `queued 2 ms behind 3 other block requests, 1 ms at the device`, of one block request.
pub(crate) fn of_one(text: &str) -> Option<(Printed, Option<Others>, Printed)> {
    let (queued, rest) = text.strip_prefix("queued ")?.split_once(", ")?;
    let device = time(rest.split(", ").next()?.strip_suffix(" at the device")?)?;
    let (ns, behind) = match queued.split_once(" behind ") {
        Some((ns, behind)) => (ns, Some(others(behind)?)),
        None => (queued, None),
    };
    Some((time(ns)?, behind, device))
}

/// How many others; true: at least.
pub(crate) type Others = (u64, bool);

/// As `at least 3 other block requests`.
fn others(text: &str) -> Option<Others> {
    let least = text.strip_prefix("at least ");
    let count = least
        .or_else(|| text.strip_prefix("up to "))
        .unwrap_or(text);
    let (count, others) = count.split_once(' ')?;
    others.strip_prefix("other block request")?;
    Some((count.replace(',', "").parse().ok()?, least.is_some()))
}

fn clause(text: &str) -> Option<Clause> {
    if let Some((blocks, device)) = text.split_once("), device ") {
        return blocks_of(blocks, time(device)?);
    }
    let (ns, least, what) = spent(text)?;
    if let Some((_, part)) = PARTS.iter().find(|(name, _)| *name == what) {
        return (*part != Part::Queued).then_some(Clause::Data(*part, ns, least));
    }
    Some(match what {
        "receiving" => Clause::Receiving(ns, None),
        "waiting for the store's turn" => Clause::Turn(ns),
        "in the index" => Clause::Index(ns),
        "replying" => Clause::Replying(ns),
        "queued for the disk" => Clause::Queued(ns, None),
        _ => {
            if let Some(meanwhile) = what.strip_prefix("receiving, at least ") {
                let meanwhile =
                    meanwhile.strip_suffix(" of it while the disk wrote what had come")?;
                return Some(Clause::Receiving(ns, Some(time(meanwhile)?)));
            }
            Clause::Queued(ns, Some(others(what.strip_prefix("queued behind ")?)?))
        }
    })
}

/// As `2 writes (the farthest 4 KiB at sector 8, right after the previous access, its own`.
fn blocks_of(text: &str, device: Printed) -> Option<Clause> {
    let (counts, farthest) = text.split_once(" (")?;
    let (reads, writes, _) = counted(counts)?;
    let farthest = farthest.strip_prefix("the farthest ").unwrap_or(farthest);
    let (bytes, rest) = farthest.split_once(" at sector ")?;
    let (sector, place) = rest.split_once(", ")?;
    let place = place
        .strip_prefix("shared with other requests, ")
        .unwrap_or(place);
    let seek = if place == "seek distance unknown" {
        None
    } else if let Some(who) = place.strip_prefix("right after the previous access, ") {
        Some((0, Printed(0.0, 0.0), who.to_owned()))
    } else {
        let (far, who) = place.split_once(" the end of the previous access, ")?;
        let (far, side) = far.rsplit_once(' ')?;
        let side = if side == "past" { 1 } else { -1 };
        Some((side, size(far)?, who.to_owned()))
    };
    let sector = sector.parse().ok()?;
    Some(Clause::Blocks(
        reads,
        writes,
        size(bytes)?,
        sector,
        seek,
        device,
    ))
}

/// As `3.1 ms with 1 journal write and 2 flushes (3 ms at the disk)`.
fn commit_of(text: &str, all: &mut Vec<Clause>) -> Option<()> {
    let (head, parts) = match text.split_once(" (") {
        Some((head, parts)) => (head, parts.strip_suffix(')')?),
        None => (text, ""),
    };
    let (ns, with) = head.split_once(" with ").unwrap_or((head, ""));
    let (reads, writes, flushes) = counted(with)?;
    all.push(Clause::Commit(time(ns)?, reads, writes, flushes));
    for part in parts.split(", ").filter(|part| !part.is_empty()) {
        let (ns, least, what) = spent(part)?;
        let what = if what.starts_with("waiting for the batch of request ") {
            "waiting for work of the store"
        } else {
            what
        };
        let (_, part) = PARTS.iter().find(|(name, _)| *name == what)?;
        all.push(Clause::InCommit(*part, ns, least));
    }
    Some(())
}

/// Reads, writes, flushes.
fn counted(text: &str) -> Option<(u64, u64, u64)> {
    let (mut reads, mut writes, mut flushes) = (0, 0, 0);
    for part in text.split(" and ").filter(|part| !part.is_empty()) {
        let (number, what) = part.split_once(' ')?;
        let number: u64 = number.parse().ok()?;
        match what.trim_start_matches("journal ") {
            "read" | "reads" => reads += number,
            "write" | "writes" => writes += number,
            "flush" | "flushes" => flushes += number,
            _ => return None,
        }
    }
    Some((reads, writes, flushes))
}
