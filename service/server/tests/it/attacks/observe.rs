//! Must not achieve: to keep the service busy with questions about what it observed.

use lumpscope_proto::v1;
use lumpscope_proto::v1::observe_client::ObserveClient;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tonic::Code;

use crate::abuse::harness::Abused;
use crate::common::channel;
use crate::door::harness::LONG;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_reports_at_a_time() {
    // However busy the machine is, no message comes too slowly.
    let mut abused = Abused::with(|config| config.body_timeout = LONG).await;
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    let mut most = before;
    let mut asked = JoinSet::new();
    for _ in 0..8 {
        let client = ObserveClient::new(channel(&abused.service.grpc).await);
        for _ in 0..120 {
            let mut client = client.clone();
            asked.spawn(async move { client.report(v1::ReportRequest::default()).await });
        }
    }
    // Others are answered meanwhile.
    let begun = Instant::now();
    let metrics = abused.service.http_get("/metrics");
    let (status, _) = timeout(LONG, metrics).await.expect("/metrics is answered");
    assert_eq!(status, 200);
    eprintln!("/metrics in {:?}", begun.elapsed());
    let (mut answered, mut refused) = (0, 0);
    while let Some(report) = asked.join_next().await {
        most = most.max(threads());
        match report.unwrap() {
            Ok(_) => answered += 1,
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                assert!(!status.details().is_empty(), "no hint when to try again");
                refused += 1;
            }
        }
    }
    assert!(answered > 0, "{refused} were refused");
    // Threads of other tests in this process come and go, too.
    assert!(most < before + 64, "{before} threads became {most}");
    abused.works().await;
    abused.survived().await;
}
