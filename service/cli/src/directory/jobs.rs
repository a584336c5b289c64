//! Many pieces of work, a few of them at a time.

use anyhow::Result;
use tokio::task::JoinSet;

use crate::error::Interrupted;

/// Most pieces of work at a time.
const MOST: u64 = 256;

/// Understands a number of jobs.
pub(super) fn parser() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=MOST)
}

/// Does all the work in its order, at most `jobs` pieces at a time, and hands out the results as they come. Ends with
/// the first failure; what is under way is then dropped.
pub(super) async fn run<W, T: Send + 'static>(
    jobs: u64,
    work: impl IntoIterator<Item = W>,
    start: impl Fn(W) -> Result<BoxJob<T>>,
    mut done: impl FnMut(T),
) -> Result<()> {
    let mut work = work.into_iter();
    let mut under_way = JoinSet::new();
    loop {
        while u64::try_from(under_way.len()).unwrap_or(u64::MAX) < jobs {
            let Some(next) = work.next() else { break };
            under_way.spawn(start(next)?);
        }
        match under_way.join_next().await {
            None => return Ok(()),
            Some(Ok(result)) => done(result?),
            Some(Err(failed)) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return Err(Interrupted.into()),
            },
        }
    }
}

/// A piece of work.
pub(super) type BoxJob<T> = std::pin::Pin<Box<dyn Future<Output = Result<T>> + Send>>;
