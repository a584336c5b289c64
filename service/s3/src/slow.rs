//! Answers that take long: a client that hears nothing gives up, so it is sent white space, which
//! XML may have before its first element, until the answer is known.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body::{Body, Frame};
use s3s::StdError;

/// Time until the first white space, and between two: the SDK of C++ gives up who sends less than
/// a byte a second for three seconds.
pub(super) const BEAT: Duration = Duration::from_secs(1);
/// More than a byte for each second that a busy machine may be late.
const SPACE: &[u8] = b"        ";
/// How a document begins: nothing may stand before this.
const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";

/// The document of an answer.
pub(super) type Work = Pin<Box<dyn Future<Output = Result<Bytes, StdError>> + Send>>;

enum ReplyState {
    Begins(Work),
    Waits(Work),
    Over,
}

/// An answer that begins now; its document comes when the work is done.
pub(super) fn response(work: Work, beat: Duration) -> Response<s3s::Body> {
    let frames = stream::unfold(ReplyState::Begins(work), move |state| async move {
        match state {
            ReplyState::Begins(work) => {
                let begin = Bytes::from_static(DECLARATION.as_bytes());
                Some((Ok(begin), ReplyState::Waits(work)))
            }
            ReplyState::Waits(mut work) => Some(tokio::select! {
                document = &mut work => (document.map(bare), ReplyState::Over),
                () = tokio::time::sleep(beat) => (Ok(Bytes::from_static(SPACE)), ReplyState::Waits(work)),
            }),
            ReplyState::Over => None,
        }
    });
    let body = s3s::Body::http_body_unsync(Frames(Box::pin(frames)));
    let mut response = Response::new(body);
    let xml = HeaderValue::from_static("application/xml");
    response.headers_mut().insert(CONTENT_TYPE, xml);
    response
}

/// A document without its declaration.
fn bare(document: Bytes) -> Bytes {
    let declared = document.starts_with(b"<?xml");
    let end = document.windows(2).position(|two| two == b"?>");
    match end.filter(|_| declared) {
        Some(end) => document.slice(end + 2..),
        None => document,
    }
}

struct Frames(Pin<Box<dyn Stream<Item = Result<Bytes, StdError>> + Send>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let next = self.0.as_mut().poll_next(context);
        next.map(|frame| frame.map(|bytes| bytes.map(Frame::data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::sync::oneshot;
    use tokio::time::Instant;

    /// The SDK of C++ does, and with it what is made of it, as pyarrow.
    #[tokio::test]
    async fn a_client_that_wants_a_byte_a_second_for_three_seconds_does_not_give_up() {
        let patience = Duration::from_secs(3);
        let work: Work = Box::pin(async move {
            tokio::time::sleep(patience + patience / 3).await;
            Ok(Bytes::from_static(b"<A/>"))
        });
        let mut heard = Instant::now();
        tokio::time::sleep(BEAT).await;
        let mut body = response(work, BEAT).into_body();
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let (bytes, silence) = (frame.unwrap().into_data().unwrap(), heard.elapsed());
            assert!(silence < patience, "{silence:?} before {bytes:?}");
            assert!(bytes.len() as u64 >= patience.as_secs(), "{bytes:?}");
            heard = Instant::now();
        }
    }

    #[tokio::test]
    async fn white_space_comes_until_the_document_is_there() {
        for document in ["<?xml version=\"1.0\"?><A>1</A>", "<A>1</A>"] {
            let (done, waits) = oneshot::channel::<()>();
            let work: Work = Box::pin(async move {
                waits.await?;
                Ok(Bytes::from_static(document.as_bytes()))
            });
            let mut body = response(work, Duration::from_millis(1)).into_body();
            let mut next = async || {
                let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
                frame.map(|frame| frame.unwrap().into_data().unwrap())
            };
            assert_eq!(next().await.unwrap(), DECLARATION);
            assert_eq!(next().await.unwrap(), SPACE);
            assert_eq!(next().await.unwrap(), SPACE);
            done.send(()).unwrap();
            let last = loop {
                match next().await.unwrap() {
                    space if space == SPACE => {}
                    last => break last,
                }
            };
            assert_eq!((last, next().await), (Bytes::from("<A>1</A>"), None));
        }
    }
}
