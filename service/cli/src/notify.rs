//! Tells the service manager how the service is (sd_notify). Without one, or on any failure, nothing
//! happens: a service that works is no worse for not being able to say so.

use std::collections::BTreeMap;
use std::time::Duration;

use lumpscope_engine::{Error, LumpId, RequestCtx, Store};
use lumpscope_proto::v1::StoreState;
use lumpscope_server::stores::Stores;
use sd_notify::NotifyState;
use tokio::sync::oneshot;
use tracing::{debug, warn};

use crate::output::escaped;

/// How often the states of the stores are looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// Requests are served.
pub(super) fn ready(stores: &Stores) {
    tell(&[NotifyState::Ready, NotifyState::Status(&status(stores))]);
}

/// Tells the status when it has changed, as long as it is polled.
pub(super) async fn watch(stores: Stores) {
    let mut told = status(&stores);
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = status(&stores);
        if now != told {
            tell(&[NotifyState::Status(&now)]);
            told = now;
        }
    }
}

/// Names of the stores that serve, then what is wrong with any.
fn status(stores: &Stores) -> String {
    let (all, failed) = (stores.all(), stores.failed());
    let mut wrong: Vec<String> = failed
        .iter()
        .map(|failed| format!("{} is unavailable: {}", failed.name, failed.why))
        .collect();
    let mut serving = Vec::new();
    for named in all.iter() {
        let (state, reason) = named.state();
        if named.serves() {
            serving.push(named.name.as_str());
        }
        if state != StoreState::Serving {
            wrong.push(format!("{} is {}: {reason}", named.name, state.word()));
        }
    }
    let serving = if serving.is_empty() {
        "no store".to_owned()
    } else {
        serving.join(", ")
    };
    let mut status = format!("serving {serving}");
    for wrong in wrong {
        status += "; ";
        status += &wrong;
    }
    // A further line would be a further message to the manager.
    escaped(&status).into_owned()
}

/// Files are read again; [`ready`] follows.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// No new requests.
pub(super) fn stopping() {
    tell(&[
        NotifyState::Stopping,
        NotifyState::Status("requests under way finish, then the stores are closed"),
    ]);
}

fn tell(states: &[NotifyState<'_>]) {
    // The variable stays: there is more to tell later, and no program is started that could use it.
    if let Err(error) = sd_notify::notify(false, states) {
        debug!(%error, "the service manager cannot be told");
    }
}

/// Pings the manager's watchdog, if it has set one, twice in its time, as long as the thread that
/// owns each store answers. `None`: there is none.
pub(super) fn watchdog(stores: Stores) -> Option<impl Future<Output = ()> + Send + 'static> {
    let mut micros = 0;
    if !sd_notify::watchdog_enabled(false, &mut micros) || micros == 0 {
        return None;
    }
    let period = Duration::from_micros(micros) / 2;
    Some(async move {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut started = BTreeMap::new();
        loop {
            ticks.tick().await;
            match silent(&stores, period, &mut started).await {
                None => tell(&[NotifyState::Watchdog]),
                Some(store) => warn!(store, "the store's thread does not answer: no ping"),
            }
        }
    })
}

/// The first store whose thread has done nothing since the last look, though it was asked.
async fn silent(
    stores: &Stores,
    within: Duration,
    started: &mut BTreeMap<String, u64>,
) -> Option<String> {
    let all = stores.all();
    let asked: Vec<_> = all
        .iter()
        .map(|named| (named, ask(&named.store, within)))
        .collect();
    let end = tokio::time::Instant::now() + within;
    let mut first = None;
    for (named, answer) in asked {
        let answered = match answer {
            Ok(answer) => tokio::time::timeout_at(end, answer).await.is_ok(),
            // It is being closed, or its disk is not there: nobody has to answer.
            Err(Error::Closed | Error::OutOfService { .. }) => true,
            Err(_) => false,
        };
        // A long queue may hold up the answer, but not all requests.
        let now = named.store.stats().queue_started;
        let before = started.insert(named.name.clone(), now);
        if !answered && before == Some(now) && first.is_none() {
            first = Some(named.name.clone());
        }
    }
    first
}

/// Asks for a lump that may or may not be there: only its thread knows.
fn ask(store: &Store, within: Duration) -> Result<oneshot::Receiver<()>, Error> {
    let (sender, answer) = oneshot::channel();
    let ctx = RequestCtx {
        prioritized: true,
        ..RequestCtx::default()
    };
    let told = Box::new(move |_, _| {
        // Nobody waits for an answer that comes too late.
        let _ = sender.send(());
    });
    store.submit_head(ctx.within(within), LumpId::MIN, told)?;
    Ok(answer)
}
