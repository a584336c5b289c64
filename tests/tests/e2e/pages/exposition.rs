//! What a scraper of Prometheus's text form gets passes Prometheus's own checker.

use std::process::Command;

use lumpscope_tests::needs::{Need, available, find_tool};
use lumpscope_tests::service::{Service, binary, run_ok};

#[test]
fn promtool_finds_nothing_wrong_with_the_metrics() {
    if !available(&[Need::Tool("promtool"), Need::Tool("promtool-3")]) {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let store = folder.path().join("disk.lusf");
    let store = store.to_str().expect("UTF-8");
    run_ok(&[
        "format",
        store,
        "--capacity",
        "64M",
        "--prealloc",
        "fallocate",
    ]);
    let mut command = Command::new(binary());
    command
        .args(["serve", "--no-probes", "--store", &format!("disk={store}")])
        .args(["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]);
    let service = Service::spawn(command);
    for accept in [
        "*/*",
        "text/plain;version=0.0.4",
        "text/plain;version=1.0.0",
    ] {
        let scraped = service.scrape_as(accept);
        let (_, metrics) = scraped.split_once("\r\n\r\n").expect("a head");
        let file = folder.path().join("metrics");
        std::fs::write(&file, metrics).expect("a file can be written");
        for program in ["promtool", "promtool-3"] {
            let checked = Command::new(find_tool(program).expect("it was found before"))
                .args(["check", "metrics"])
                .stdin(std::fs::File::open(&file).expect("it was written"))
                .output()
                .expect("promtool starts");
            assert!(checked.status.success(), "{accept}: {checked:?}");
        }
    }
    assert!(service.stop());
}
