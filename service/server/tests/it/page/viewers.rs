//! How many may look, and what those cost who read slowly.

use std::time::Duration;

use lumpscope_server::config::Rhythm;
use lumpscope_server::observed::MAX_VIEWERS;

use super::{FAST, ask, every, metrics, number, service, service_with, sums};
use crate::common::web::Events;
use crate::common::{Running, folder};

/// So many stores that their frames fill the buffers of a socket quickly.
const MANY: [&str; 16] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p",
];

/// A viewer that reads nothing of what it is sent.
async fn idler(service: &Running) -> Events {
    let stream = tokio::net::TcpStream::connect(service.metrics).await;
    let request = "GET /api/v1/live HTTP/1.0\r\nHost: localhost\r\n\r\n";
    Events::on(stream.unwrap(), request).await.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_viewer_that_reads_nothing_holds_up_nobody_and_is_told_what_it_missed() {
    const KEPT: u64 = 300;
    let dir = folder();
    let rhythm = Rhythm {
        frame: Duration::from_millis(1),
        history: 300,
        ..Rhythm::default()
    };
    let service = service_with(dir.path(), &MANY, rhythm, |config| {
        // It is not ended before it reads again, however slow this machine is.
        config.body_timeout = Duration::from_secs(3600);
    })
    .await;
    let mut idle = idler(&service).await;
    let mut reader = Events::open(service.metrics, "", "").await;
    reader.take("hello").await;
    let begin = number(&reader.take("frame").await["seq"]);
    // Twice what the kernel keeps of a connection, about 4 MB, and what is kept here.
    let until = begin + 5 * KEPT;
    for seq in begin + 1..until {
        let frame = reader.take("frame").await;
        assert_eq!((number(&frame["seq"]), number(&frame["skipped"])), (seq, 0));
    }
    // No more than so many are kept.
    let mut late = Events::open(service.metrics, "", "").await;
    late.take("hello").await;
    let oldest = number(&late.take("frame").await["seq"]);
    assert!(oldest >= until - KEPT, "{oldest} {until}");
    // What was on its way arrives, and then it is told.
    idle.take("hello").await;
    let mut last = 0;
    let skipped = loop {
        let frame = idle.take("frame").await;
        let (seq, skipped) = (number(&frame["seq"]), number(&frame["skipped"]));
        assert_eq!(seq, last + skipped + 1);
        last = seq;
        if skipped > 0 {
            break skipped;
        }
    };
    let told = metrics(&service).await;
    let dropped = sums(&told, "lumpscope_watch_dropped_total", &["kind"]);
    assert!(dropped[&vec!["page".to_owned()]] >= skipped, "{dropped:?}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_viewer_that_takes_nothing_for_too_long_is_ended() {
    let dir = folder();
    let rhythm = every(Duration::from_millis(1));
    let service = service_with(dir.path(), &MANY, rhythm, |config| {
        config.body_timeout = Duration::from_secs(1);
    })
    .await;
    let idle = idler(&service).await;
    loop {
        let told = metrics(&service).await;
        let open = sums(&told, "lumpscope_watches", &["kind"]);
        if open[&vec!["page".to_owned()]] == 0 {
            break;
        }
        tokio::time::sleep(FAST).await;
    }
    drop(idle);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_so_many_look_at_a_time_and_all_end_with_the_service() {
    let dir = folder();
    let service = service(dir.path(), &["s"], every(FAST)).await;
    let mut all = Vec::new();
    for _ in 0..MAX_VIEWERS {
        let mut events = Events::open(service.metrics, "", "").await;
        events.take("hello").await;
        all.push(events);
    }
    ask(&service, "/api/v1/live")
        .await
        .refused(503, "64 pages are open");
    let told = metrics(&service).await;
    let words = "lumpscope_watches{kind=\"page\"} 64.0\n";
    assert!(told.contains(words), "{told}");
    // One less, and there is room; the service notices within moments.
    drop(all.pop());
    loop {
        let stream = tokio::net::TcpStream::connect(service.metrics)
            .await
            .unwrap();
        let request = "GET /api/v1/live HTTP/1.0\r\nHost: localhost\r\n\r\n";
        let (events, reply) = Events::on(stream, request).await;
        if reply.status == 200 {
            all.push(events);
            break;
        }
        tokio::time::sleep(FAST).await;
    }
    // None of them keeps the service from stopping.
    service.stop().await;
    for mut events in all {
        while events.next().await.is_some() {}
    }
}
