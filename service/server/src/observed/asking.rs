//! Queries to the observer, from gRPC and from the page.

use std::time::Duration;

use lumpscope_observer::Observer;
use lumpscope_proto::v1;

use super::convert;
use super::turns::{Turns, Unanswered};
use crate::stores::Stores;

/// Longest an answer waits for what has ended before it was asked for.
const SETTLE: Duration = Duration::from_secs(2);
/// Slow requests that are listed when no number is asked for.
pub(crate) const DEFAULT_SLOWEST: usize = 20;
/// Most that are listed.
pub(crate) const MOST_SLOWEST: usize = 500;

/// Asks the observer, always on a thread that may wait. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Asking {
    pub(crate) stores: Stores,
    pub(crate) observer: Observer,
    pub(crate) turns: Turns,
}

impl Asking {
    /// Asks once the observer has taken in all that has ended.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Observer) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        self.turns.ask(self.question(question)).await
    }

    /// A question that is asked once the observer has taken in all that has ended.
    pub(crate) fn question<T>(
        &self,
        question: impl FnOnce(&Observer) -> T + Send + 'static,
    ) -> impl FnOnce() -> T + Send + 'static {
        let observer = self.observer.clone();
        move || {
            if !observer.settle(SETTLE) {
                tracing::warn!("the observer did not settle in time: the answer may lag");
            }
            question(&observer)
        }
    }

    /// A request that has ended; `None`: it is not known, or of a store that the caller may not
    /// use: whether there was one is nothing for such a caller.
    ///
    /// # Errors
    /// As [`Asking::ask`].
    pub(crate) async fn explain(
        &self,
        id: u64,
        may_use: impl Fn(&str) -> bool,
    ) -> Result<Option<v1::SlowRequest>, Unanswered> {
        let known = self.ask(move |observer| observer.explain(id)).await?;
        Ok(known.filter(|explained| may_use(&explained.store)))
    }

    /// The slowest requests to these stores, slowest first; `failed`: only those that failed.
    ///
    /// # Errors
    /// As [`Asking::ask`].
    pub(crate) async fn slowest(
        &self,
        (stores, failed): (Vec<String>, bool),
        within_seconds: u32,
        limit: usize,
    ) -> Result<Vec<v1::SlowRequest>, Unanswered> {
        // In nanoseconds, the longest still fits into 64 bits.
        let within = Duration::from_secs(within_seconds.into());
        self.ask(move |observer| {
            let of = |name: &String| observer.slowest(Some(name), failed, within, limit);
            let mut all: Vec<v1::SlowRequest> = stores.iter().flat_map(of).collect();
            all.sort_by_key(|slow| std::cmp::Reverse(slow.total_ns));
            all.truncate(limit);
            all
        })
        .await
    }

    /// The observer's parts, and how it watches these stores. The request's id is left 0.
    ///
    /// # Errors
    /// As [`Asking::ask`].
    pub(crate) async fn describe(
        &self,
        stores: Vec<String>,
    ) -> Result<v1::DescribeObserverResponse, Unanswered> {
        self.ask(move |observer| {
            let store = |name: String| {
                let status = observer.store_status(&name)?;
                let guard = observer.guard(&name).unwrap_or_default();
                Some(convert::observed_store(name, status, guard))
            };
            v1::DescribeObserverResponse {
                programs: observer.programs(),
                events: Some(observer.events()),
                stores: stores.into_iter().filter_map(store).collect(),
                request_id: 0,
            }
        })
        .await
    }
}
