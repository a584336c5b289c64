//! The connections of a client. One connection is served by one task on either side, so by one
//! processor: with several calls in flight, more connections carry more.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::sleep;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::transport::{Channel, Endpoint, Error};

/// Calls that the least busy connection has before one more is made.
const BUSY: usize = 2;
/// Wait after a further connection could not be made, e.g. because the service has enough of them.
const REST: Duration = Duration::from_secs(10);

/// Connections to one service: one at first, one more when all are busy.
#[derive(Debug)]
pub(crate) struct Pool {
    endpoint: Endpoint,
    /// Most connections.
    bound: usize,
    /// Never empty.
    connections: Mutex<Vec<Arc<Connection>>>,
    /// True: one more is being made, or could not be made lately.
    growing: AtomicBool,
}

/// A connection, and the number of calls on it.
#[derive(Debug)]
struct Connection {
    channel: Channel,
    calls: AtomicUsize,
}

impl Connection {
    fn new(channel: Channel) -> Arc<Self> {
        Arc::new(Self {
            channel,
            calls: AtomicUsize::new(0),
        })
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Pool {
    pub(crate) fn new(endpoint: Endpoint, first: Channel, bound: usize) -> Arc<Self> {
        Arc::new(Self {
            endpoint,
            bound,
            connections: Mutex::new(vec![Connection::new(first)]),
            growing: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner)
    }

    /// The least busy connection, of equal ones the oldest, for one call.
    fn lease(self: &Arc<Self>) -> Lease {
        let connections = self.lock();
        let least = connections.iter().min_by_key(|one| one.calls());
        // There is always one.
        let least = least.map_or_else(|| Connection::new(self.endpoint.connect_lazy()), Arc::clone);
        let is_busy = least.calls.fetch_add(1, Ordering::Relaxed) >= BUSY;
        if is_busy && connections.len() < self.bound {
            self.grow();
        }
        Lease {
            pool: Arc::downgrade(self),
            connection: least,
        }
    }

    /// Makes one more connection, beside the calls: none waits for it.
    fn grow(self: &Arc<Self>) {
        if self.growing.swap(true, Ordering::Relaxed) {
            return;
        }
        let (endpoint, pool) = (self.endpoint.clone(), Arc::downgrade(self));
        tokio::spawn(async move {
            match endpoint.connect().await {
                Ok(channel) => {
                    if let Some(pool) = pool.upgrade() {
                        pool.lock().push(Connection::new(channel));
                    }
                }
                Err(_) => sleep(REST).await,
            }
            if let Some(pool) = pool.upgrade() {
                pool.growing.store(false, Ordering::Relaxed);
            }
        });
    }

    /// Gives up a connection that broke, unless it is the last one, which connects again.
    fn give_up(&self, broken: &Arc<Connection>) {
        let mut connections = self.lock();
        if connections.len() > 1 {
            connections.retain(|one| !Arc::ptr_eq(one, broken));
        }
    }
}

/// One call on a connection, until the end of its reply.
#[derive(Debug)]
struct Lease {
    pool: Weak<Pool>,
    connection: Arc<Connection>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.connection.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connections of a [`Client`](crate::Client), for generated clients: each call goes to the least
/// busy one.
#[derive(Debug)]
pub struct Connections {
    pool: Arc<Pool>,
    /// The connection of the call that comes next.
    next: Option<(Channel, Lease)>,
}

impl Connections {
    pub(crate) fn of(pool: &Arc<Pool>) -> Self {
        Self {
            pool: Arc::clone(pool),
            next: None,
        }
    }
}

impl Clone for Connections {
    fn clone(&self) -> Self {
        Self::of(&self.pool)
    }
}

impl Service<Request<Body>> for Connections {
    type Response = Response<Body>;
    type Error = Error;
    type Future = BoxFuture<Response<Body>, Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let (channel, lease) = self.next.get_or_insert_with(|| {
            let lease = self.pool.lease();
            (lease.connection.channel.clone(), lease)
        });
        let ready = ready!(channel.poll_ready(context));
        if ready.is_err() {
            self.pool.give_up(&lease.connection);
            self.next = None;
        }
        Poll::Ready(ready)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut channel, lease) = self.next.take().unwrap_or_else(|| {
            let lease = self.pool.lease();
            (lease.connection.channel.clone(), lease)
        });
        let reply = channel.call(request);
        Box::pin(async {
            match reply.await {
                Ok(reply) => Ok(reply.map(|body| {
                    Body::new(Leased {
                        body,
                        lease: Some(lease),
                    })
                })),
                Err(error) => {
                    if let Some(pool) = lease.pool.upgrade() {
                        pool.give_up(&lease.connection);
                    }
                    Err(error)
                }
            }
        })
    }
}

/// The body of a reply, during which its connection counts as busy.
struct Leased {
    body: Body,
    /// `None`: its end has come.
    lease: Option<Lease>,
}

impl http_body::Body for Leased {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let goes_on = matches!(&frame, Some(Ok(frame)) if frame.is_data());
        if !goes_on {
            self.lease = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn calls(pool: &Pool) -> Vec<usize> {
        pool.lock().iter().map(|one| one.calls()).collect()
    }

    #[tokio::test]
    async fn calls_go_to_the_least_busy_connection_and_a_broken_one_is_given_up() {
        let endpoint = Endpoint::from_static("http://127.0.0.1:1");
        let pool = Pool::new(endpoint.clone(), endpoint.connect_lazy(), 2);
        let first = pool.lease();
        pool.give_up(&first.connection);
        assert_eq!(calls(&pool), [1], "the last one stays");
        pool.lock().push(Connection::new(endpoint.connect_lazy()));
        let second = pool.lease();
        assert_eq!(calls(&pool), [1, 1]);
        let third = pool.lease();
        assert_eq!(calls(&pool), [2, 1]);
        drop(second);
        assert_eq!(calls(&pool), [2, 0]);
        pool.give_up(&first.connection);
        assert_eq!(calls(&pool), [0]);
        // What is under way goes on.
        drop((first, third));
        assert_eq!(calls(&pool), [0]);
    }
}
