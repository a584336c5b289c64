//! The findings in at most ten lines: what works, what does not, and the one thing to do next.

use lumpscope_observer::{Finding, Level};
use lumpscope_units::columns::words;

/// Columns before the text of a line.
const INDENT: usize = 10;
/// Lines of the remedy; with the five others that makes at most ten.
const REMEDY: usize = 5;

/// The summary of what was found, without the settings, in lines of at most `width` columns.
pub(super) fn of(findings: &[Finding], details: bool, width: usize) -> String {
    let topics = |level: Level| -> Vec<&str> {
        let found = findings.iter().filter(|f| f.level == level);
        let mut topics: Vec<&str> = found.map(|f| f.topic.as_str()).collect();
        topics.dedup();
        topics
    };
    let parts = [
        ("works", topics(Level::Good)),
        ("degraded", topics(Level::Degraded)),
        ("MISSING", topics(Level::Missing)),
    ];
    let parts = parts.iter().filter(|(_, topics)| !topics.is_empty());
    let mut lines: Vec<String> = parts
        .map(|(word, topics)| line(word, topics, width))
        .collect();
    let worst = |level| findings.iter().find(|f| f.level == level);
    if let Some(worst) = worst(Level::Missing).or_else(|| worst(Level::Degraded)) {
        let next = format!("{}: {}", worst.topic, worst.remedy);
        lines.extend(wrapped("next", &next, width));
    }
    if !details {
        lines.push("`lumpscope doctor --all` shows details and the settings.".into());
    }
    lines.join("\n")
}

/// As many topics as fit into a line.
fn line(word: &str, topics: &[&str], width: usize) -> String {
    let mut text = String::new();
    for (at, topic) in topics.iter().enumerate() {
        let more = format!(" and {} more", topics.len() - at);
        let comma = if at > 0 { ", " } else { "" };
        let last = at + 1 == topics.len();
        let room = width - INDENT - if last { 0 } else { more.len() };
        if text.len() + comma.len() + topic.len() > room {
            text.push_str(&more);
            break;
        }
        text.push_str(comma);
        text.push_str(topic);
    }
    format!("{word:INDENT$}{text}")
}

/// A text in lines, cut where it would need too many.
fn wrapped(word: &str, text: &str, width: usize) -> Vec<String> {
    let lines = words(text, width - INDENT).into_iter().enumerate();
    let line = |(at, line)| format!("{:INDENT$}{line}", if at == 0 { word } else { "" });
    let mut lines: Vec<String> = lines.map(line).collect();
    if lines.len() > REMEDY {
        lines.truncate(REMEDY);
        lines[REMEDY - 1].push_str(" ...");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_found_fits_into_ten_lines() {
        let topic = |n: usize| format!("topic number {n}");
        let long = "do this and that ".repeat(60);
        let mut all: Vec<Finding> = (0..30).map(|n| Finding::good(&topic(n), "fine")).collect();
        let told = of(&all, false, 80);
        assert_eq!(told.lines().count(), 2, "{told}");
        for level in [Level::Degraded, Level::Missing] {
            all.extend((0..30).map(|n| Finding::lacking(&topic(n), level, "bad", "hurts", &long)));
        }
        let told = of(&all, false, 80);
        assert!(told.lines().count() <= 10, "{told}");
        // A word that is cut off may stand beyond.
        assert!(told.lines().all(|line| line.len() <= 84), "{told}");
        for part in [
            "works     topic number 0, ",
            "more\nMISSING   topic number 0",
            "next      topic number 0: do this",
        ] {
            assert!(told.contains(part), "{part:?} in {told}");
        }
    }
}
