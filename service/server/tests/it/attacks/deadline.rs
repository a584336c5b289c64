//! Must not achieve: an answer to a call whose time is over, or was never understood, other than
//! the one that says so.

use bytes::Bytes;
use tonic::Code;

use crate::abuse::harness::Abused;
use crate::abuse::wire;

/// Calls Head with this timeout, and sends its message only when the answer has begun.
async fn head(abused: &Abused, timeout: &'static str) -> wire::CallEnd {
    let client = wire::connect(abused.address(), 1 << 20).await;
    let mut request = wire::request("/lumpscope.v1.LumpStore/Head");
    let value = http::HeaderValue::from_static(timeout);
    request.headers_mut().insert("grpc-timeout", value);
    let mut ready = client.ready().await.unwrap();
    let (reply, mut stream) = ready.send_request(request, false).unwrap();
    let ended = wire::end_of(reply).await;
    // The service may have ended the stream.
    let _ = stream.send_data(Bytes::from_static(&[0; 5]), true);
    ended
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_come_after_the_end_of_their_time() {
    let abused = Abused::start().await;
    for _ in 0..50 {
        for timeout in ["0n", "1n", "1u", "1m", "3m"] {
            let ended = head(&abused, timeout).await;
            assert!(
                ended.is_code(Code::DeadlineExceeded),
                "{timeout}: {ended:?}"
            );
        }
    }
    abused.survived().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeouts_that_cannot_be_read() {
    let abused = Abused::start().await;
    for timeout in ["soon", "", "5", "123456789m", "-1S", "1s"] {
        let ended = head(&abused, timeout).await;
        assert!(ended.is_code(Code::InvalidArgument), "{timeout}: {ended:?}");
    }
    abused.survived().await;
}
