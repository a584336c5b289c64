//! Must not achieve: to keep the service busy with questions about what it observed.

use bytes::Bytes;
use lumpscope_proto::v1;
use lumpscope_proto::v1::observe_client::ObserveClient;
use lumpscope_units::Size;
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tonic::Code;

use crate::abuse::harness::Abused;
use crate::abuse::wire::prefixed;
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

/// The longest answers, of which the client has no room for a byte: their memory is counted, and the
/// client loses its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_takes() {
    // It gives up such a client after its patience, and the time that 2 MiB may take.
    let abused = Abused::with(|config| config.min_rate = Size(2 << 20)).await;
    let stream = TcpStream::connect(abused.address()).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(0);
    let (client, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
    let ended = tokio::spawn(connection);
    let asked = v1::ListSlowestRequest {
        limit: u32::MAX,
        ..Default::default()
    };
    let message = prefixed(0, &asked.encode_to_vec());
    let mut replies = Vec::new();
    for _ in 0..8 {
        let request = http::Request::post("http://localhost/lumpscope.v1.Observe/ListSlowest")
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let mut ready = client.clone().ready().await.unwrap();
        let (reply, mut body) = ready
            .send_request(request.body(()).unwrap(), false)
            .unwrap();
        body.send_data(message.clone(), true).unwrap();
        replies.push(reply);
    }
    let ended = timeout(LONG, ended).await.expect("the connection is ended");
    drop((ended, replies));
    abused.survived().await;
}
