//! Recording rules and alerts: Prometheus 2 and 3 accept them, and they do what their tests say.

use std::path::Path;
use std::process::Command;

use lumpscope_tests::needs::{Need, available, find_tool};

fn promtool(program: &'static str, args: &[&str]) -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(find_tool(program).expect("it was found before"))
        .args(args)
        .current_dir(tests.with_file_name("dashboards").join("prometheus"))
        .output()
        .expect("promtool starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{failed}");
    said
}

fn accepts_and_tests(program: &'static str) {
    if !available(&[Need::Tool(program)]) {
        return;
    }
    promtool(program, &["check", "rules", "rules.yml", "alerts.yml"]);
    let tests = ["rules", "alerts", "states"].map(|name| format!("tests/{name}.yml"));
    let [rules, alerts, states] = tests.each_ref().map(String::as_str);
    let said = promtool(program, &["test", "rules", rules, alerts, states]);
    assert!(said.contains("SUCCESS"), "{said}");
}

#[test]
fn prometheus_2_accepts_the_rules_and_they_do_what_their_tests_say() {
    accepts_and_tests("promtool");
}

#[test]
fn prometheus_3_accepts_the_rules_and_they_do_what_their_tests_say() {
    accepts_and_tests("promtool-3");
}
