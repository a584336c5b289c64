//! One call: its deadline, its repetitions, its outcome.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use lumpscope_proto::v1::admin_client::AdminClient;
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use lumpscope_proto::v1::observe_client::ObserveClient;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::transport::Channel;
use tonic::{Code, ConnectError, Request, Status, TimeoutExpired};
use tonic_health::pb::health_client::HealthClient;

use crate::connect::{endpoint, root_cause};
use crate::error::{Error, Refusal};
use crate::options::Options;
use crate::pool::{Connections, Pool};

/// Largest message accepted: the chunks of a service are at most 1 MiB, its pages of ids and its reports less than this.
pub(crate) const LARGEST_MESSAGE: usize = 16 << 20;

/// Makes a call until it succeeds, is refused for good, or its time or its tries are used up: `call!(client, repeat,
/// what, |attempt| body)`, where `body` is async and fails with [`AttemptFailure`].
macro_rules! call {
    ($client:expr, $repeat:expr, $what:expr, |$attempt:ident| $body:expr) => {{
        let mut tries = $crate::call::Tries::new($client, $repeat, $what);
        loop {
            let $attempt = &tries.attempt();
            let result = $attempt.within(async { $body }).await;
            if let Some(done) = tries.judge(result).await? {
                break Ok(done);
            }
        }
    }};
}
pub(crate) use call;

/// A service, reached through a few connections. Clones share them.
#[derive(Clone, Debug)]
pub struct Client {
    pool: Arc<Pool>,
    options: Arc<Options>,
}

impl Client {
    /// Connects. Repeated like a call, within [`Options::timeout`].
    ///
    /// # Errors
    /// [`Error::Server`], [`Error::File`]: the options do not work. [`Error::Connect`]: no answer, or the two
    /// sides do not trust each other. [`Error::TimeOver`].
    pub async fn connect(options: Options) -> Result<Self, Error> {
        let endpoint = endpoint(&options)?;
        let pool = |first| Pool::new(endpoint.clone(), first, options.connections);
        let client = Self {
            pool: pool(endpoint.connect_lazy()),
            options: Arc::new(options.clone()),
        };
        let connected: Result<Channel, Error> =
            call!(&client, Repeat::Always, "connecting", |_attempt| {
                endpoint
                    .connect()
                    .await
                    .map_err(|error| AttemptFailure::NotSent(root_cause(&error)))
            });
        Ok(Self {
            pool: pool(connected?),
            ..client
        })
    }

    pub(crate) fn connections(&self) -> Connections {
        Connections::of(&self.pool)
    }

    /// The generated client of `LumpStore`, for calls that have no method here. It adds neither token nor deadline
    /// to its requests.
    #[must_use]
    pub fn lump_store(&self) -> LumpStoreClient<Connections> {
        LumpStoreClient::new(self.connections()).max_decoding_message_size(LARGEST_MESSAGE)
    }

    pub(crate) fn admin(&self) -> AdminClient<Connections> {
        AdminClient::new(self.connections()).max_decoding_message_size(LARGEST_MESSAGE)
    }

    pub(crate) fn observe(&self) -> ObserveClient<Connections> {
        ObserveClient::new(self.connections()).max_decoding_message_size(LARGEST_MESSAGE)
    }

    pub(crate) fn health(&self) -> HealthClient<Connections> {
        HealthClient::new(self.connections())
    }
}

/// The tries of one call.
pub(crate) struct Tries<'a> {
    options: Arc<Options>,
    deadline: Option<Instant>,
    waits: ExponentialBackoff,
    repeat: Repeat,
    what: &'a str,
}

impl<'a> Tries<'a> {
    pub(crate) fn new(client: &Client, repeat: Repeat, what: &'a str) -> Self {
        let retry = client.options.retry;
        Self {
            options: Arc::clone(&client.options),
            deadline: client.options.timeout.map(|time| Instant::now() + time),
            waits: ExponentialBuilder::default()
                .with_min_delay(retry.first_wait)
                .with_max_delay(retry.longest_wait)
                .with_max_times(retry.times)
                .with_jitter()
                .build(),
            repeat,
            what,
        }
    }

    pub(crate) fn attempt(&self) -> Attempt {
        Attempt {
            options: Arc::clone(&self.options),
            deadline: self.deadline,
        }
    }

    /// The result; `None`: waited, try again.
    pub(crate) async fn judge<T>(
        &mut self,
        result: Result<T, AttemptFailure>,
    ) -> Result<Option<T>, Error> {
        let failure = match result {
            Ok(done) => return Ok(Some(done)),
            Err(failure) => failure,
        };
        let next = failure
            .repeatable(self.repeat)
            .then(|| self.waits.next())
            .flatten();
        let wait = next.map(|wait| wait.max(failure.wait_at_least()));
        match wait {
            Some(wait) if self.deadline.is_none_or(|end| Instant::now() + wait < end) => {
                sleep(wait).await;
                Ok(None)
            }
            _ => Err(self.explain(failure)),
        }
    }

    fn explain(&self, failure: AttemptFailure) -> Error {
        let after = self.options.timeout.unwrap_or(Duration::MAX);
        let once = |why: String| Error::Ambiguous {
            what: self.what.to_owned(),
            why,
        };
        let never = self.repeat == Repeat::Never;
        match failure {
            AttemptFailure::NotSent(why) => Error::Connect {
                server: self.options.server.clone(),
                why,
            },
            AttemptFailure::Lost(why) if never => once(why),
            AttemptFailure::Lost(why) => Error::Lost { why },
            AttemptFailure::TimeOver if never => once(Error::TimeOver { after }.to_string()),
            AttemptFailure::TimeOver => Error::TimeOver { after },
            AttemptFailure::Refused(refusal) if never && !is_ours(&refusal) => {
                once(refusal.to_string())
            }
            AttemptFailure::Refused(refusal) => Error::Refused(refusal),
            AttemptFailure::Final(error) => error,
            AttemptFailure::Last(failure) => self.explain(*failure),
        }
    }
}

/// True when the service itself refused, not a proxy on the way: only then was the call surely not carried out.
fn is_ours(refusal: &Refusal) -> bool {
    refusal.request_id.is_some() || refusal.code != Code::Unavailable
}

/// Repetition of a call whose first try may have had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Idempotent: repeat.
    Always,
    /// Repeat only when the first try surely had no effect.
    Never,
}

/// One try of a call.
pub(crate) struct Attempt {
    options: Arc<Options>,
    deadline: Option<Instant>,
}

impl Attempt {
    /// Carries out the try within the time of the call.
    pub(crate) async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, AttemptFailure>>,
    ) -> Result<T, AttemptFailure> {
        match self.deadline {
            None => work.await,
            Some(deadline) => timeout_at(deadline, work)
                .await
                .unwrap_or(Err(AttemptFailure::TimeOver)),
        }
    }

    /// The message with the token and the remaining time.
    pub(crate) fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        if let Some(deadline) = self.deadline {
            request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        }
        if let Some(token) = &self.options.token {
            request
                .metadata_mut()
                .insert("authorization", token.value());
        }
        request
    }
}

/// Failure of one try.
#[derive(Debug)]
pub(crate) enum AttemptFailure {
    /// There was no connection.
    NotSent(String),
    /// The connection broke; the outcome is unknown.
    Lost(String),
    TimeOver,
    /// The service answered with an error.
    Refused(Box<Refusal>),
    /// Trying again is no use.
    Final(Error),
    /// Any of these, of a call that cannot be made again.
    Last(Box<AttemptFailure>),
}

impl AttemptFailure {
    fn repeatable(&self, repeat: Repeat) -> bool {
        match self {
            Self::NotSent(_) => true,
            Self::Lost(_) => repeat == Repeat::Always,
            Self::Refused(refusal) => {
                refusal.code == Code::Unavailable && (repeat == Repeat::Always || is_ours(refusal))
            }
            Self::TimeOver | Self::Final(_) | Self::Last(_) => false,
        }
    }

    fn wait_at_least(&self) -> Duration {
        match self {
            Self::Refused(refusal) => refusal.retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }

    /// Marks the failure of a call that cannot be repeated, because a part of it has been used.
    pub(crate) fn last(self) -> Self {
        Self::Last(Box::new(self))
    }
}

impl From<Error> for AttemptFailure {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

impl From<Status> for AttemptFailure {
    /// A status with a source was made on this side, because the transport failed.
    fn from(status: Status) -> Self {
        let mut cause = status.source();
        while let Some(error) = cause {
            if error.is::<ConnectError>() {
                return Self::NotSent(root_cause(error));
            }
            if error.is::<TimeoutExpired>() {
                return Self::TimeOver;
            }
            cause = error.source();
        }
        match status.source() {
            Some(error) => Self::Lost(root_cause(error)),
            // The generated code's message when the connection failed before use.
            None if status.message().starts_with("Service was not ready") => {
                Self::NotSent(status.message().to_owned())
            }
            None => Self::Refused(Box::new(Refusal::new(&status))),
        }
    }
}
