//! Random programs of the workload language.

use fastrand::Rng;

/// Programs that are compared with the original.
pub(crate) const PROGRAMS: u64 = 200;
/// Statements nested deeper than this do not repeat.
const DEEPEST: u32 = 2;

/// One program, always the same for a number: all statements, shares that do not add up to 100,
/// bands without a width, sizes with and without suffix, and overwritten lumps that are deleted, so
/// that the original's sum of bytes wraps. It is written so that the original reads it, too.
pub(crate) fn program(number: u64) -> String {
    let mut rng = Rng::with_seed(number);
    let mut text = String::new();
    if rng.bool() {
        text += &format!("Seed: {};\n", rng.u64(..));
    }
    // Without a lump there is nothing to get, and no stream.
    text += &format!("Command {{\n  New({});\n}}\n", size(&mut rng));
    for _ in 0..rng.u32(1..5) {
        text += "# between two sections\n";
        text += &section(&mut rng);
    }
    text
}

fn section(rng: &mut Rng) -> String {
    let kind = match rng.u32(0..3) {
        0 => return format!("Command {{\n{}}}\n", body(rng, 0)),
        1 => "Ordered",
        _ => "Unordered",
    };
    let mut text = format!("{kind}[{}] {{\n", rng.u32(1..400));
    for _ in 0..rng.u32(1..5) {
        let share = *rng.choice(&[1, 7, 10, 33, 50, 100, 120]).unwrap_or(&1);
        text += &match rng.bool() {
            true => format!("  <{share}%> {};\n", statement(rng, 1)),
            false => format!("  <{share}%> {{\n{}  }};\n", body(rng, 1)),
        };
    }
    text + "}\n"
}

fn body(rng: &mut Rng, depth: u32) -> String {
    let statements = (0..rng.u32(1..4)).map(|_| format!("    {};\n", statement(rng, depth)));
    statements.collect()
}

fn statement(rng: &mut Rng, depth: u32) -> String {
    let kinds = if depth < DEEPEST { 9 } else { 8 };
    match rng.u32(0..kinds) {
        0 | 1 => format!("New({})", size(rng)),
        2 => format!("OverWrite({})", size(rng)),
        3 => format!("Embed({})", rng.u32(0..65_536)),
        4 => "Get".to_owned(),
        5 => format!("Get({})", band(rng)),
        6 => match rng.bool() {
            true => "Delete".to_owned(),
            false => format!("Delete({})", band(rng)),
        },
        7 => format!("DeleteRange({})", band(rng)),
        _ => {
            let times = rng.u32(0..6);
            format!("{times}.times {{\n{}    }}", body(rng, depth + 1))
        }
    }
}

fn size(rng: &mut Rng) -> String {
    match rng.u32(0..3) {
        0 => rng.u32(0..2_000_000).to_string(),
        1 => format!("{}K", rng.u32(1..4096)),
        _ => format!("{}M", rng.u32(1..5)),
    }
}

fn band(rng: &mut Rng) -> String {
    let edge = |rng: &mut Rng| match rng.u32(0..4) {
        0 => 0,
        1 => 50,
        2 => 100,
        _ => rng.u32(0..=100),
    };
    let (one, other) = (edge(rng), edge(rng));
    let from = one.min(other);
    let to = if rng.u32(0..4) == 0 {
        from
    } else {
        one.max(other)
    };
    format!("{from}, {to}")
}
