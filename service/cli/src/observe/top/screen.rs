//! The table of one interval, as text.

use std::fmt::Write as _;

use lumpscope_units::columns::trimmed;
use lumpscope_units::human;

use super::rates::{MethodView, ProcessView, StoreView};
use crate::observe::units::{NONE, process, time};
use crate::output::{escaped, fitted, table};

/// Puts the cursor at the top, and behind the text nothing.
pub(super) fn redraw(text: &str, width: Option<usize>) -> String {
    let mut out = String::from("\x1b[H");
    for line in text.lines() {
        let shown: String = match width {
            Some(width) => line.chars().take(width).collect(),
            None => line.to_owned(),
        };
        out.push_str(&shown);
        out.push_str("\x1b[K\n");
    }
    out.push_str("\x1b[J");
    out
}

/// All stores over one interval.
pub(super) fn text(head: &str, stores: &[StoreView]) -> String {
    let mut text = head.to_owned();
    for store in stores {
        let shown = fitted(&one(store));
        let _ = write!(text, "\n\n{}", shown.trim_end());
    }
    if stores.is_empty() {
        text.push_str("\n\nno store");
    }
    text
}

fn one(s: &StoreView) -> String {
    let disk = match s.device.as_str() {
        "" => "an unknown disk",
        device => device,
    };
    let mut text = format!("{} on {}\n", escaped(&s.store), escaped(disk));
    // Of a disk that is not observed nobody has counted anything.
    if let Some(requests) = s.block_requests_per_second {
        text.push_str(&observed(s, requests));
    }
    if !s.incomplete.is_empty() {
        let _ = writeln!(text, "  INCOMPLETE: {}", escaped(&s.incomplete));
    }
    text.push_str(&methods(&s.methods));
    if !s.processes.is_empty() {
        text.push_str(&format!("\n{}", processes(&s.processes)));
    }
    text
}

fn observed(s: &StoreView, requests: f64) -> String {
    let known =
        |value: Option<f64>, text: fn(f64) -> String| value.map_or_else(|| NONE.to_owned(), text);
    let mut text = format!(
        "  disk: {} requests/s, {}/s, sequential {}, median seek {}, travel {}/s\n",
        number(requests),
        known(s.block_bytes_per_second, bytes),
        share(s.sequential_share),
        s.seek_median_bytes
            .map_or_else(|| NONE.to_owned(), human::bytes),
        known(s.travel_bytes_per_second, bytes),
    );
    let oldest = match s.oldest_in_flight.as_str() {
        "" => String::new(),
        what => format!(
            ", the oldest for {}: {}",
            human::duration_ns(s.oldest_in_flight_ns),
            escaped(what)
        ),
    };
    let _ = writeln!(
        text,
        "  %util {}, aqu-sz {}, {} in flight{oldest}",
        known(s.util, |share| format!("{:.1}", share * 100.0)),
        known(s.aqu_sz, |mean| format!("{mean:.2}")),
        s.in_flight.map_or_else(|| NONE.to_owned(), human::count),
    );
    let _ = writeln!(
        text,
        "  attributed {}, events lost {}, time lost to others per second: {}",
        share(s.attributed_share),
        s.lost_events.map_or_else(|| NONE.to_owned(), human::count),
        lost(s),
    );
    text
}

fn processes(processes: &[ProcessView]) -> String {
    let mut table = table(&[" process", "requests/s", "read/s", "written/s", "cgroup"]);
    for p in processes {
        let cgroup = match p.cgroup.as_str() {
            "" => NONE.to_owned(),
            path => path.to_owned(),
        };
        table.add_row([
            format!(" {}", process(&p.process, p.pid)),
            number(p.per_second),
            bytes(p.read_bytes_per_second),
            bytes(p.written_bytes_per_second),
            cgroup,
        ]);
    }
    for column in 1..4 {
        table.right(column);
    }
    trimmed(&table.to_string())
}

fn methods(methods: &[MethodView]) -> String {
    if methods.is_empty() {
        return "  no request finished".to_owned();
    }
    let mut table = table(&[" method", "rate/s", "errors/s", "bytes/s", "mean", "p99"]);
    for m in methods {
        table.add_row([
            format!(" {}", m.method),
            number(m.per_second),
            number(m.errors_per_second),
            bytes(m.bytes_per_second),
            time(m.mean_ns),
            time(m.p99_ns),
        ]);
    }
    for column in 1..6 {
        table.right(column);
    }
    trimmed(&table.to_string())
}

fn lost(s: &StoreView) -> String {
    let part = |(owner, ns): (&String, &f64)| {
        let ns = human::duration_ns(human::whole(*ns));
        format!("{} {ns}", escaped(owner))
    };
    let parts: Vec<String> = s.lost_ns_per_second.iter().map(part).collect();
    if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join(", ")
    }
}

fn share(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| NONE.to_owned(), human::percent)
}

fn bytes(bytes: f64) -> String {
    human::bytes(human::whole(bytes))
}

fn number(number: f64) -> String {
    if number == 0.0 || number >= 100.0 {
        human::count(human::whole(number))
    } else {
        format!("{number:.1}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_few_lines_and_one_of_them_says_what_is_missing() {
        let view = StoreView {
            store: "fast".into(),
            device: "loop3".into(),
            methods: vec![MethodView {
                method: "put".into(),
                per_second: 1234.0,
                bytes_per_second: 1_048_576.0,
                mean_ns: Some(1_500_000),
                p99_ns: None,
                ..Default::default()
            }],
            processes: vec![ProcessView {
                process: "dd".into(),
                pid: 4711,
                cgroup: "/user.slice".into(),
                per_second: 12.5,
                read_bytes_per_second: 51_200.0,
                ..Default::default()
            }],
            block_requests_per_second: Some(0.0),
            block_bytes_per_second: Some(0.0),
            travel_bytes_per_second: Some(0.0),
            util: Some(0.423),
            aqu_sz: Some(1.307),
            in_flight: Some(2),
            lost_events: Some(0),
            sequential_share: Some(0.25),
            lost_ns_per_second: [("fs-journal".to_owned(), 2_000_000.0)].into(),
            incomplete: "3 events were lost".into(),
            ..Default::default()
        };
        let shown = text("now", &[view]);
        for line in [
            "fast on loop3",
            "  disk: 0 requests/s, 0 B/s, sequential 25.0 %, median seek -, travel 0 B/s",
            "  %util 42.3, aqu-sz 1.31, 2 in flight",
            "  attributed -, events lost 0, time lost to others per second: fs-journal 2.00 ms",
            "  INCOMPLETE: 3 events were lost",
        ] {
            assert!(shown.lines().any(|l| l == line), "{line} in {shown}");
        }
        let words = |l: &str| l.split_whitespace().collect::<Vec<_>>().join(" ");
        let wanted = "put 1,234 0 1.00 MiB 1.50 ms -";
        assert!(shown.lines().any(|l| words(l) == wanted), "{shown}");
        let wanted = "dd[4711] 12.5 50.0 KiB 0 B /user.slice";
        assert!(shown.lines().any(|l| words(l) == wanted), "{shown}");
        let unseen = StoreView {
            store: "fast".into(),
            incomplete: "not observed: no privileges".into(),
            ..Default::default()
        };
        let shown = text("now", &[unseen]);
        assert!(!shown.contains("disk:"), "{shown}");
        assert!(!shown.contains("attributed"), "{shown}");
        let drawn = redraw("abc\ndef", Some(2));
        assert_eq!(drawn, "\x1b[Hab\x1b[K\nde\x1b[K\n\x1b[J");
    }
}
