//! Recordings, replayed: whole, cut off, and full of garbage.

use std::io::{BufReader, Cursor, Read};

use lumpscope_observer::{
    AuditReport, BlockLine, Correlator, EndedRequest, Input, MAX_LINE, Op, Replay, ReplayError,
    TraceContext, TraceRequest,
};

use crate::support::{Feed, declared, ended, finished, put, raw_store, recording, wrote};

fn replayed(text: &str) -> (Replay, Vec<BlockLine>, Result<(), ReplayError>) {
    let (mut replay, mut lines) = (Replay::new(), Vec::new());
    let result = replay.read(text.as_bytes(), |line| lines.push(line));
    (replay, lines, result)
}

fn line(input: &Input) -> String {
    serde_json::to_string(input).expect("JSON") + "\n"
}

#[test]
fn an_old_recording_gives_reports_explanations_and_block_lines() {
    let text = recording("ext4.jsonl");
    let (replay, lines, result) = replayed(&text);
    result.expect("it is whole");
    assert_eq!(replay.stores(), ["store 0"]);
    let report = replay.report("store 0").expect("it is there");
    assert_eq!(report.operations[0].count, 6);
    assert_eq!(report.block.attributed_bytes, 6 << 20);
    let no_audit = "replayed: the recording holds no audit";
    assert!(report.audit.finding.starts_with(no_audit));
    assert!(!report.audit.complete);
    assert_eq!(replay.report("store 1"), None);
    let requests: u64 = report.block.owners.iter().map(|o| o.requests).sum();
    assert_eq!(u64::try_from(lines.len()), Ok(requests));
    assert!(lines.iter().any(|line| line.owner == "fs-journal"));
    let slowest = replay.slowest(Some("store 0"), false, 3);
    assert_eq!(slowest.len(), 3);
    let slow = replay.explain(slowest[0].request_id);
    assert_eq!(slow.as_ref(), Some(&slowest[0]));
    assert_eq!(replay.slowest(Some("none"), false, 3), []);
    let travelled: u64 = report.block.moves.iter().map(|m| m.requests).sum();
    let moves = &report.block.moves;
    assert_eq!(travelled, report.block.data_requests - 1, "{moves:?}");
    assert!(moves.iter().all(|m| m.moved_by != "unknown"));
}

#[test]
fn the_same_lines_give_the_same_result() {
    for name in ["ext4.jsonl", "xfs.jsonl"] {
        let text = recording(name);
        let ((a, lines_a, _), (b, lines_b, _)) = (replayed(&text), replayed(&text));
        assert_eq!(a.report("store 0"), b.report("store 0"));
        assert_eq!(a.slowest(None, false, 100), b.slowest(None, false, 100));
        assert_eq!(lines_a, lines_b);
    }
}

#[test]
fn a_filter_leaves_the_reports_as_they_are() {
    let text = recording("ext4.jsonl");
    let (all, mut lines, _) = replayed(&text);
    let (journal, mut filtered) = ("fs-journal".to_owned(), Vec::new());
    let mut replay = Replay::filtered(TraceRequest {
        owner: journal.clone(),
        ..TraceRequest::default()
    });
    let result = replay.read(text.as_bytes(), |line| filtered.push(line));
    result.expect("it is whole");
    lines.retain(|line| line.owner == journal);
    assert!(!lines.is_empty());
    assert_eq!(filtered, lines);
    assert_eq!(replay.report("store 0"), all.report("store 0"));
}

#[test]
fn a_recording_says_the_time_of_day_in_its_first_line() {
    let text = recording("ext4.jsonl");
    let clock = "{\"clock\":{\"monotonic_ns\":100,\"unix_ns\":1000000}}\n";
    let ((old, old_lines, _), (new, lines, _)) =
        (replayed(&text), replayed(&(clock.to_owned() + &text)));
    let done = lines[0].done_unix_ns;
    assert_eq!(done, old_lines[0].done_unix_ns + 999_900);
    let old_ns = old.clock().monotonic_ns(old_lines[0].done_unix_ns);
    assert_eq!(new.clock().monotonic_ns(done), old_ns);
    let begun = |replay: &Replay| replay.slowest(None, false, 1)[0].begin_unix_ns;
    assert_eq!(begun(&new), begun(&old) + 999_900);
}

#[test]
fn names_audits_and_traces_are_in_a_recording() {
    let trace = TraceContext {
        trace_id: u128::MAX,
        span_id: 7,
        parent_span_id: 0,
    };
    let mut text = String::from(
        r#"{"added":{"store":3,"name":"fast"}}
        {"placed":{"store":3,"placement":{"dev":117440512,"file_system":"","extents":[]},"disk":"sdx"}}
        "#,
    );
    let finding = "incomplete: 2 events did not fit into the ring";
    let mut audit = AuditReport::default();
    audit.told.finding = finding.to_owned();
    for input in [
        Input::Ended(EndedRequest {
            store: 3,
            trace: Some(trace),
            ..put(1, 80, 250)
        }),
        Input::Drained { until_ns: 300 },
        Input::Audited {
            dev: 117_440_512,
            report: Box::new(audit),
        },
    ] {
        text += &line(&input);
    }
    let (replay, _, result) = replayed(&text);
    result.expect("it is whole");
    let told = replay.explain(1).expect("it is kept");
    assert_eq!((told.store.as_str(), told.device.as_str()), ("fast", "sdx"));
    assert_eq!(told.trace_id, format!("{:032x}", trace.trace_id));
    let incomplete = format!("block requests may be missing ({finding})");
    assert_eq!(told.incomplete, incomplete);
    let audit = replay.report("fast").expect("it is there").audit;
    assert_eq!(audit.finding, finding);
}

#[test]
fn a_recording_that_begins_late_begins_with_what_stands() {
    let mut it = raw_store();
    it.feed([
        declared(1, &[1], Op::Write, 0, 4096, 10),
        declared(2, &[2], Op::Write, 4096, 4096, 10),
        finished(1, 20),
    ]);
    let mut text: String = it.standing().iter().map(line).collect();
    for input in [
        wrote(8, 8, 30, 40, 50),
        finished(2, 60),
        ended(2, 5, 70),
        Input::Drained { until_ns: 80 },
    ] {
        text += &line(&input);
    }
    let (replay, lines, result) = replayed(&text);
    result.expect("it is whole");
    assert_eq!(lines[0].request_ids, [2]);
    assert_eq!(lines[0].device.as_str(), "loop7");
    assert_eq!(replay.stores().len(), 1);
    assert_eq!(replay.explain(2).expect("kept").block_requests, 1);
}

#[test]
fn what_is_wrong_is_said_with_the_line_and_what_came_before_was_taken() {
    let good = recording("xfs.jsonl");
    let known = |text: String| {
        let (replay, _, result) = replayed(&text);
        let report = replay.report("store 0").expect("it was placed");
        assert_eq!(report.operations[0].count, 6);
        result.expect_err("it is broken").to_string()
    };
    let after = good.lines().count() + 1;
    for (more, expected) in [
        (
            "{\"novel\":{\"x\":1}}\n",
            format!(
                "line {after}: this version does not know `novel`; replay it with the version that \
                 recorded it"
            ),
        ),
        (
            "{\"drained\":{\"until_ns\":-1}}\n",
            format!("not a Lumpscope recording (line {after}: invalid value"),
        ),
        (
            "\n\n{\"drained\":{\"unt",
            format!("line {} is cut off", after + 2),
        ),
        (
            "\u{1}\u{2}\n",
            format!("not a Lumpscope recording (line {after}: "),
        ),
    ] {
        let said = known(format!("{good}{more}"));
        assert!(said.starts_with(&expected), "{more:?}: {said}");
    }
}

#[test]
fn a_line_without_end_is_refused_before_it_is_in_memory() {
    let endless = std::io::repeat(b'a').take(u64::MAX);
    let result = Replay::new().read(BufReader::new(endless), |_| {});
    assert!(
        matches!(result, Err(ReplayError::TooLong { line: 1 })),
        "{result:?}"
    );
    let long = vec![b' '; MAX_LINE];
    assert!(Replay::new().read(Cursor::new(long), |_| {}).is_ok());
}

#[test]
fn too_many_stores_are_refused() {
    let text: String = (0..5000)
        .map(|store| format!("{{\"added\":{{\"store\":{store}}}}}\n"))
        .collect();
    let (_, _, result) = replayed(&text);
    assert!(
        matches!(result, Err(ReplayError::TooManyStores { line: 4097 })),
        "{result:?}"
    );
}

/// A generator of its own, so that a failure is repeated by its number.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).expect("31 bits") % sides
    }
}

#[test]
fn garbage_never_panics() {
    let good = recording("ext4.jsonl");
    let extreme = [
        "0",
        "1",
        "18446744073709551615",
        "4294967295",
        "-9223372036854775808",
        "null",
    ];
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let mut correlator = Correlator::new(2);
        let mut text = String::new();
        for one in good.lines() {
            let mut one = one.to_owned();
            if dice.roll(4) == 0 {
                one = mutated(&one, extreme[dice.roll(extreme.len())], &mut dice);
            }
            if let Ok(input) = serde_json::from_str(&one) {
                correlator.apply(input);
            }
            text += &one;
            text.push('\n');
        }
        correlator.finish();
        let _ = correlator.slowest(None, false, 0, 1000);
        let _ = replayed(&text);
        let mut bytes = text.into_bytes();
        for _ in 0..10 {
            let at = dice.roll(bytes.len());
            bytes[at] = u8::try_from(dice.roll(256)).expect("a byte");
        }
        let mut replay = Replay::new();
        let _ = replay.read(bytes.as_slice(), |_| {});
        let _ = replay.report("store 0");
    }
}

/// Puts an extreme value in the place of one of the line's numbers.
fn mutated(line: &str, value: &str, dice: &mut Dice) -> String {
    let starts: Vec<usize> = line
        .match_indices(':')
        .map(|(at, _)| at + 1)
        .filter(|at| line[*at..].starts_with(|c: char| c.is_ascii_digit() || c == '-'))
        .collect();
    if starts.is_empty() {
        return line.to_owned();
    }
    let start = starts[dice.roll(starts.len())];
    let rest = &line[start..];
    let length = rest.find([',', '}', ']']).unwrap_or(rest.len());
    format!("{}{value}{}", &line[..start], &rest[length..])
}
