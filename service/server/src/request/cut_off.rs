//! The end of requests that their store cuts off.

use std::task::Poll;

use super::scope::Scope;

/// Waits for a reply; `None`: the request's store has cut it off. Which store that is shows only
/// while the request is dealt with.
pub async fn unless_cut_off<F: Future>(scope: &Scope, reply: F) -> Option<F::Output> {
    let mut reply = std::pin::pin!(reply);
    let mut cut_off = None;
    std::future::poll_fn(|context| {
        if let Poll::Ready(reply) = reply.as_mut().poll(context) {
            return Poll::Ready(Some(reply));
        }
        if cut_off.is_none() {
            let token = scope.cut_off();
            cut_off = token.map(|token| Box::pin(token.cancelled_owned()));
        }
        match &mut cut_off {
            Some(cut_off) => cut_off.as_mut().poll(context).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await
}
