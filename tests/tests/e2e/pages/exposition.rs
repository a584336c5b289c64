//! What a scraper of Prometheus's text form gets passes Prometheus's own checker.

use std::process::Command;

use lumpscope_tests::needs::{Need, available, find_tool};
use lumpscope_tests::service::{file_store, serve_file};

#[test]
fn promtool_finds_nothing_wrong_with_the_metrics() {
    if !available(&[Need::Tool("promtool"), Need::Tool("promtool-3")]) {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let format = ["--capacity", "64M", "--prealloc", "fallocate"];
    let service = serve_file(&file_store(folder.path(), &format), &[]);
    let versions = ["text/plain;version=0.0.4", "text/plain;version=1.0.0"];
    for accept in ["*/*", versions[0], versions[1]] {
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
