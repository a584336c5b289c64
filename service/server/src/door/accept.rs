//! Accepts connections, takes each through its handshakes, and sees it to its end.
//!
//! ```text
//! permit ─▶ accept ─▶ task of the connection: TLS ─▶ HTTP/2 preface ─▶ served ─▶ leaves ─▶ closed
//!           backlog    └──────── handshake-timeout ────────┘     idle-timeout or stop
//! ```
//!
//! A slow or hostile handshake holds its own task and its permit, nothing else.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::either::Either;
use tracing::{debug, error, warn};

use super::connection::{Connection, Peer};
use super::crowd::{Crowd, Inside};
use super::handshake::{self, Protocol};
use super::io::{Admitted, Raw, Socket};
use super::metrics::DoorMetrics;
use super::reload::Reloader;
use super::told;

/// After an accept that failed for want of something (file descriptors, memory).
const PAUSE: Duration = Duration::from_millis(200);
/// Time for a client that was told to leave, once it has no call under way.
const GOODBYE: Duration = Duration::from_secs(1);
/// From one look for a connection that makes room to the next.
const LOOK: Duration = Duration::from_millis(250);
/// A connection on which nobody logs in has so many times `handshake-timeout` until it is told to
/// leave.
const BEFORE_LOGIN: u32 = 3;
/// A TCP connection that is silent for so long is asked whether it is still there.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);
/// From one such question to the next.
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How much is sent at a time to a client on this machine: as much as it takes. Every kernel has
/// it, and everybody may choose it.
const UNPACED: &str = "reno";
/// Questions without an answer after which the connection is over.
const TCP_KEEPALIVE_RETRIES: u32 = 5;

/// A socket that is listened on.
#[derive(Debug)]
pub enum Listener {
    /// On an address of the network.
    Tcp(TcpListener),
    /// On a file: only processes of this machine reach it.
    Unix(UnixListener),
}

/// One way in and its limits.
pub struct Entrance {
    /// Its name in metrics and logs.
    pub name: &'static str,
    /// Protocol behind it.
    pub protocol: Protocol,
    /// Connections open at a time; more wait in the backlog.
    pub max_connections: usize,
    /// See the configuration.
    pub handshake_timeout: Duration,
    /// See the configuration; zero: never.
    pub idle_timeout: Duration,
    /// How long a write may wait for the other end to take anything.
    pub write_timeout: Duration,
    /// Where the certificate in force is.
    pub reloader: Arc<Reloader>,
    /// Counters of the door.
    pub metrics: Arc<DoorMetrics>,
}

/// Completes when a connection should take no new calls and end.
pub type Leave = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Accepts until `stopped` says so and runs `serve` for each connection. Returns when all have
/// ended; when it is dropped before, they are closed.
pub async fn accept<F, Served>(
    listener: Listener,
    entrance: Arc<Entrance>,
    mut stopped: watch::Receiver<bool>,
    serve: F,
) where
    F: Fn(Admitted, Leave) -> Served + Clone + Send + 'static,
    Served: Future<Output = ()> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(entrance.max_connections));
    let crowd = Crowd::new(entrance.max_connections);
    let mut tasks = JoinSet::new();
    let mut waiting = None;
    loop {
        let next = async {
            if waiting.is_none() {
                waiting = Some(listener.accept().await);
            }
            // One waits here, and who comes later in the kernel's backlog, at no cost here.
            permit(&permits, &crowd).await
        };
        let permit = tokio::select! {
            () = told(stopped.clone()) => break,
            Some(ended) = tasks.join_next() => {
                report(ended);
                continue;
            }
            permit = next => permit,
        };
        // The semaphore is never closed, and the permit is waited for last.
        let (Some(permit), Some(accepted)) = (permit, waiting.take()) else {
            break;
        };
        match accepted {
            Ok((raw, peer)) => {
                let connection = Connection::new(peer);
                let Some(inside) = crowd.enter(&connection) else {
                    let refused = handshake::Refused::Address;
                    entrance
                        .metrics
                        .refused(entrance.name, &connection, &refused);
                    continue;
                };
                let (entrance, stopped) = (Arc::clone(&entrance), stopped.clone());
                let place = (inside, permit);
                tasks.spawn(attend(
                    raw,
                    connection,
                    place,
                    entrance,
                    stopped,
                    serve.clone(),
                ));
            }
            Err(error) if is_of_one_connection(&error) => {
                debug!(entrance = entrance.name, %error, "a connection was gone before it was accepted");
            }
            Err(error) => {
                if entrance.metrics.accept_failed(entrance.name) {
                    warn!(entrance = entrance.name, %error, "cannot accept connections: trying again");
                }
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => {}
                    _ = stopped.changed() => {}
                }
            }
        }
    }
    // From here on the kernel refuses who comes.
    drop(listener);
    while let Some(ended) = tasks.join_next().await {
        report(ended);
    }
}

/// Waits for a place, and makes one when there is somebody to displace.
async fn permit(permits: &Arc<Semaphore>, crowd: &Crowd) -> Option<OwnedSemaphorePermit> {
    let mut permit = pin!(Arc::clone(permits).acquire_owned());
    loop {
        if permits.available_permits() == 0 {
            crowd.make_room();
        }
        if let Ok(permit) = tokio::time::timeout(LOOK, &mut permit).await {
            return permit.ok();
        }
    }
}

/// True: another connection may be accepted at once.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        error!(%error, "the task of a connection ended out of turn");
    }
}

impl Listener {
    async fn accept(&self) -> io::Result<(Raw, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                keep_alive(&stream);
                if address.ip().to_canonical().is_loopback() {
                    do_not_pace(&stream);
                }
                Ok((Either::Left(stream), Peer::Tcp(address)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = unix_peer(&stream);
                Ok((Either::Right(stream), peer))
            }
        }
    }
}

/// Small replies go out at once, and a client whose machine is gone is noticed. A socket that
/// refuses these still works: it is only less well watched.
fn keep_alive(stream: &TcpStream) {
    use rustix::net::sockopt;
    let set = || -> Result<(), rustix::io::Errno> {
        sockopt::set_tcp_nodelay(stream, true)?;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, TCP_KEEPALIVE)?;
        sockopt::set_tcp_keepintvl(stream, TCP_KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(stream, TCP_KEEPALIVE_RETRIES)
    };
    if let Err(error) = set() {
        debug!(%error, "cannot set the options of a socket");
    }
}

/// Algorithms that measure the way and spread what they send over time (BBR) find a slower one
/// than memory is: a reply that is sent at once then takes twice as long to a client on this
/// machine. There is nothing between the two that could be congested.
fn do_not_pace(stream: &TcpStream) {
    if let Err(error) = rustix::net::sockopt::set_tcp_congestion(stream, UNPACED) {
        debug!(%error, "cannot choose how a socket is paced");
    }
}

fn unix_peer(stream: &UnixStream) -> Peer {
    let known = stream.peer_cred().ok();
    Peer::Unix {
        pid: known.and_then(|known| known.pid()),
        uid: known.map(|known| known.uid()),
    }
}

/// Closes its connection when the task that watches over it ends, however it ends.
struct Watched(Connection);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.close("its time is over");
    }
}

/// One connection from its first byte to its last.
async fn attend<F, Served>(
    raw: Raw,
    connection: Connection,
    _place: (Inside, OwnedSemaphorePermit),
    entrance: Arc<Entrance>,
    stopped: watch::Receiver<bool>,
    serve: F,
) where
    F: Fn(Admitted, Leave) -> Served,
    Served: Future<Output = ()>,
{
    let watched = Watched(connection);
    let connection = &watched.0;
    let _open = entrance.metrics.opened(entrance.name);
    let socket = Socket::new(raw, connection.clone(), entrance.write_timeout);
    let tls = match connection.peer() {
        Peer::Tcp(_) => entrance.reloader.tls(entrance.protocol),
        Peer::Unix { .. } => None,
    };
    let let_in = handshake::let_in(socket, tls, entrance.protocol);
    let let_in = tokio::time::timeout(entrance.handshake_timeout, let_in);
    let outcome = tokio::select! {
        () = told(stopped.clone()) => return,
        outcome = let_in => outcome.unwrap_or(Err(handshake::Refused::TooSlow)),
    };
    // A session that is taken up again has the certificate of then, which the handshake did not check.
    let outcome = outcome.and_then(|let_in| match entrance.reloader.verify(connection) {
        Ok(()) => Ok(let_in),
        Err(error) => Err(handshake::Refused::Certificate(io::Error::other(error))),
    });
    let (stream, first) = match outcome {
        Ok(let_in) => let_in,
        Err(refused) => {
            return entrance
                .metrics
                .refused(entrance.name, connection, &refused);
        }
    };
    let (admitted, ended) = Admitted::new(stream, first);
    let (goodbye, told_to_leave) = oneshot::channel::<()>();
    let leave: Leave = Box::pin(async move {
        // Nothing is ever sent: the other half is dropped.
        let _ = told_to_leave.await;
    });
    let mut served = pin!(serve(admitted, leave));
    let overdue = async {
        tokio::select! {
            () = told(stopped) => {}
            () = idle(connection, &entrance) => {}
            () = withdrawn(connection, &entrance) => {}
            _ = ended => {}
        }
        drop(goodbye);
        // HTTP/2 takes leave in a round trip; calls under way may finish, however long they take.
        tokio::time::sleep(GOODBYE).await;
        connection.quiet_for(GOODBYE).await;
    };
    tokio::select! {
        () = &mut served => return,
        () = overdue => {}
    }
    connection.close("it had no call under way and did not leave when told to");
    served.await;
}

/// Completes when the client's certificate is not accepted any more. Calls of the connection are
/// refused from then on, and those that go on for ever end.
async fn withdrawn(connection: &Connection, entrance: &Entrance) {
    let error = entrance.reloader.withdrawn(connection).await;
    let error = handshake::Refused::Certificate(io::Error::other(error));
    entrance.metrics.refused(entrance.name, connection, &error);
    connection.withdrawn().cancel();
}

/// Completes when the connection has had no call for `idle-timeout`, or for a shorter time while
/// nobody has logged in. HTTP/1 ends sooner by itself.
async fn idle(connection: &Connection, entrance: &Entrance) {
    let mut limit = entrance.idle_timeout;
    if entrance.protocol == Protocol::Grpc && !connection.has_logged_in() {
        let before = entrance.handshake_timeout * BEFORE_LOGIN;
        if limit.is_zero() || before < limit {
            connection.quiet_for(before).await;
            if !connection.has_logged_in() {
                limit = before;
            }
        }
    }
    if limit.is_zero() {
        return std::future::pending().await;
    }
    connection.quiet_for(limit).await;
    debug!(peer = %connection.peer(), ?limit, "no call for so long: the client is told to leave");
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::tcp_congestion;

    use super::*;

    #[tokio::test]
    async fn clients_on_this_machine_are_not_paced() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).await.unwrap();
        let (raw, _) = Listener::Tcp(listener).accept().await.unwrap();
        let Either::Left(ours) = raw else {
            panic!("it came over TCP");
        };
        assert_eq!(tcp_congestion(&ours).unwrap(), UNPACED);
        drop(client);
    }
}
