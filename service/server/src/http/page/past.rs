//! Frames of the last hour, which are made whether anybody looks or not: who is called to a failure
//! sees what led to it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::health::Recent;
use super::looks::Looks;
use super::ring::{Frame, Ring};
use crate::config::Rhythm;
use crate::door::told;
use crate::observed::Asking;

/// Bytes of all these frames; beyond, the oldest go before their time. A frame of a store under load
/// has about 5 kB: so an hour of up to about 8 such stores is kept.
const MOST_BYTES: usize = 16 << 20;

/// The frames. Cheap to clone; every clone holds the same.
#[derive(Clone)]
pub(super) struct Past {
    ring: Arc<Mutex<Ring>>,
}

impl Past {
    /// Makes frames from now on, until `stopped` says so.
    pub(super) fn keep(
        asking: Asking,
        recent: Recent,
        rhythm: Rhythm,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        let ring = Ring::new(rhythm.past_history, MOST_BYTES);
        let past = Self {
            ring: Arc::new(Mutex::new(ring)),
        };
        let looks = Looks::new(asking.clone(), recent.clone(), false);
        let kept = past.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = told(stopped) => {}
                () = kept.make(looks, asking, recent, rhythm) => {}
            }
        });
        past
    }

    /// The frames after this number, oldest first; those of another run of the service: all.
    pub(super) fn after(&self, seq: u64) -> Vec<Arc<Frame>> {
        self.ring().all_after(seq)
    }

    async fn make(&self, mut looks: Looks, asking: Asking, recent: Recent, rhythm: Rhythm) {
        let mut due = tokio::time::interval(rhythm.past_frame);
        // What was missed because a look took long is not made up for.
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut begun = false;
        loop {
            due.tick().await;
            let seq = self.ring().next();
            recent.note(&asking.stores.all());
            let looked = tokio::task::spawn_blocking(move || {
                let frame = if begun {
                    Some(looks.frame(seq))
                } else {
                    looks.begin();
                    None
                };
                (looks, frame)
            });
            // An error: the runtime ends, and so does this.
            let Ok((back, frame)) = looked.await else {
                return;
            };
            (looks, begun) = (back, true);
            if let Some(frame) = frame {
                self.ring().push(frame);
            }
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
