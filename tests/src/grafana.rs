//! The queries of the dashboards, as a panel asks them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// One query, and where it stands.
#[derive(Debug, Clone)]
pub struct Query {
    /// `DASHBOARD: PANEL`.
    pub place: String,
    /// As it stands there.
    pub text: String,
    /// The query to Prometheus: all variables have values.
    pub asked: QueryKind,
    /// Why it may have no data; `None`: it must have some.
    pub may_be_empty: Option<String>,
}

/// Kind of query.
#[derive(Debug, Clone)]
pub enum QueryKind {
    /// An expression over a range of time.
    Expression(String),
    /// The values of a label among the series of a selector.
    LabelValues {
        /// Which series.
        of: String,
        /// Which label.
        label: String,
    },
}

/// Seconds of the range that a dashboard shows here.
pub const RANGE: u64 = 120;

/// All queries of the dashboards in a folder, and how many dashboards there are.
///
/// # Panics
/// When a dashboard cannot be read or has what is not understood here: a kind of query, a variable.
#[must_use]
pub fn queries(folder: &Path) -> (Vec<Query>, usize) {
    let absent = absent(&folder.with_file_name("absent.json"));
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("there are dashboards")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    let mut all = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).expect("it can be read");
        let dashboard: Value = serde_json::from_str(&text).expect("a dashboard is JSON");
        of_dashboard(&dashboard, &absent, &mut all);
    }
    let unknown: Vec<&String> = absent
        .keys()
        .filter(|text| all.iter().all(|query| &query.text != *text))
        .collect();
    assert!(
        unknown.is_empty(),
        "absent.json has what no dashboard asks: {unknown:#?}"
    );
    (all, files.len())
}

/// Queries that may be empty, with the reason.
fn absent(file: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(file).expect("absent.json is there");
    let absent: BTreeMap<String, String> = serde_json::from_str(&text).expect("it is a table");
    for (text, reason) in &absent {
        assert!(!reason.trim().is_empty(), "no reason is given for {text}");
    }
    absent
}

fn of_dashboard(dashboard: &Value, absent: &BTreeMap<String, String>, all: &mut Vec<Query>) {
    let title = dashboard["title"].as_str().expect("it has a title");
    let variables = list(&dashboard["templating"]["list"]);
    let names: Vec<&str> = variables
        .iter()
        .filter_map(|v| v["name"].as_str())
        .collect();
    let mut add = |place: String, text: &str, may_be_empty: Option<String>| {
        let asked = match label_values(text) {
            Some((of, label)) => QueryKind::LabelValues {
                of: fill(of, &names),
                label: label.to_owned(),
            },
            None => QueryKind::Expression(fill(text, &names)),
        };
        all.push(Query {
            place,
            text: text.to_owned(),
            asked,
            may_be_empty: may_be_empty.or_else(|| absent.get(text).cloned()),
        });
    };
    for variable in variables.iter().filter(|v| v["type"] == "query") {
        let name = variable["name"].as_str().unwrap_or("?");
        let query = &variable["query"];
        let text = query.as_str().or_else(|| query["query"].as_str());
        let text = text.unwrap_or_else(|| panic!("{title}: variable {name} asks nothing"));
        add(format!("{title}: variable {name}"), text, None);
    }
    for annotation in list(&dashboard["annotations"]["list"]) {
        let target = &annotation["target"]["expr"];
        if let Some(text) = target.as_str().or_else(|| annotation["expr"].as_str()) {
            let name = annotation["name"].as_str().unwrap_or("?");
            let calm = "nothing of the kind need have happened".to_owned();
            add(format!("{title}: annotation {name}"), text, Some(calm));
        }
    }
    of_panels(title, &dashboard["panels"], &mut add);
}

fn of_panels(title: &str, panels: &Value, add: &mut impl FnMut(String, &str, Option<String>)) {
    for panel in list(panels) {
        let name = panel["title"].as_str().unwrap_or("(no title)");
        for target in list(&panel["targets"]) {
            let other = target["datasource"]["type"].as_str();
            if other.is_some_and(|kind| kind != "prometheus") {
                continue;
            }
            let text = target["expr"].as_str();
            let text = text.unwrap_or_else(|| panic!("{title}: {name}: {target} asks nothing"));
            add(format!("{title}: {name}"), text, None);
        }
        of_panels(title, &panel["panels"], add);
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Series and label of `label_values(SERIES, LABEL)`.
fn label_values(text: &str) -> Option<(&str, &str)> {
    let inner = text
        .trim()
        .strip_prefix("label_values(")?
        .strip_suffix(')')?;
    let (of, label) = inner.rsplit_once(',')?;
    Some((of.trim(), label.trim()))
}

/// Gives every variable a value: those of Grafana that of a small panel, those of the dashboard all.
fn fill(text: &str, variables: &[&str]) -> String {
    let range = format!("{RANGE}s");
    let mut known = vec![
        ("__rate_interval", "30s"),
        ("__interval", "5s"),
        ("__range", &range),
    ];
    known.extend(variables.iter().map(|name| (*name, ".*")));
    // The longest first: none is the beginning of another that is still to come.
    known.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    let mut filled = text.to_owned();
    for (name, value) in known {
        for written in [format!("${{{name}}}"), format!("${name}")] {
            filled = filled.replace(&written, value);
        }
    }
    assert!(!filled.contains('$'), "a variable is not known: {filled}");
    filled
}
