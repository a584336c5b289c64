//! Looks at the stores; a frame tells what changed between two looks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lumpscope_observer::StoreReport;

use super::dots::Dots;
use super::frame::StoreFrame;
use super::health::{Health, Recent};
use super::hello::{self, PageStore, milliseconds, unix_ms};
use super::ring::Frame;
use crate::observed::Asking;

/// Longest a frame waits for what has ended before it.
const SETTLE: Duration = Duration::from_millis(500);

/// The stores as they were at the last look.
pub(super) struct Looks {
    asking: Asking,
    recent: Recent,
    /// False: frames without dots.
    dots: bool,
    stores: Arc<Vec<PageStore>>,
    known: Vec<StoreBaseline>,
    /// When the last frame ended, or the first began; milliseconds since 1970.
    since_unix_ms: u64,
}

/// A store that is looked at.
struct StoreBaseline {
    index: usize,
    name: String,
    /// As it was when the last frame was made.
    was: StoreReport,
    dots: Option<Dots>,
    /// Alerts whose conditions held when the last frame was made; `None`: none has been.
    fired: Option<Vec<&'static str>>,
}

impl Looks {
    /// `dots`: frames have a sample of the block requests, for which [`Looks::look`] must be called
    /// often.
    pub(super) fn new(asking: Asking, recent: Recent, dots: bool) -> Self {
        Self {
            asking,
            recent,
            dots,
            stores: Arc::default(),
            known: Vec::new(),
            since_unix_ms: unix_ms(),
        }
    }

    /// Takes note of how things are now: frames tell what changes from here on.
    pub(super) fn begin(&mut self) {
        // What has not arrived after the timeout is in the next frame.
        let _ = self.asking.observer.settle(SETTLE);
        let (asking, known) = (&self.asking, &mut self.known);
        let all = asking.stores.all();
        let listed = hello::stores(asking);
        if *self.stores != listed {
            self.stores = Arc::new(listed);
        }
        known.retain(|k| all.iter().any(|s| s.index == k.index));
        for named in all.iter() {
            if known.iter().any(|k| k.index == named.index) {
                continue;
            }
            let (observer, name) = (&asking.observer, &named.name);
            known.push(StoreBaseline {
                index: named.index,
                name: name.clone(),
                was: observer.glance(name).unwrap_or_default(),
                dots: self.dots.then(|| Dots::new(observer, name)),
                fired: None,
            });
        }
        let place = |k: &StoreBaseline| all.iter().position(|s| s.index == k.index);
        known.sort_by_key(place);
    }

    /// Looks at the block requests that have come.
    pub(super) fn look(&mut self) {
        let dots = self.known.iter_mut().filter_map(|k| k.dots.as_mut());
        dots.for_each(Dots::look);
    }

    /// Changes since the last frame.
    pub(super) fn frame(&mut self, seq: u64) -> Frame {
        let began = Instant::now();
        self.begin();
        self.look();
        let (policy, observer) = (self.asking.observer.events(), &self.asking.observer);
        let recent = &self.recent;
        // Those with dots begin when somebody opens the page, which is no moment of the disk's.
        let always = !self.dots;
        let all = self.asking.stores.all();
        let part = |known: &mut StoreBaseline| {
            let named = all.iter().find(|s| s.index == known.index)?;
            let is = observer.glance(&known.name)?;
            let dots = known.dots.as_mut().map(Dots::take).unwrap_or_default();
            let health = Health::of(named, &is, recent);
            let fired: Vec<_> = health.moments().collect();
            let before = known.fired.as_deref().filter(|_| always);
            if let Some(alert) = begun(before, &fired) {
                observer.keep_last_minute(alert);
            }
            known.fired = Some(fired);
            let frame = StoreFrame::between(&known.was, &is, policy, dots, health);
            known.was = is;
            written(&known.name, &frame)
        };
        let open = self.known.iter_mut().filter_map(part);
        let mut parts: Vec<_> = open.collect();
        let failed = self.asking.stores.failed();
        parts.extend(
            failed
                .iter()
                .filter_map(|f| written(&f.name, &StoreFrame::not_open(&f.why))),
        );
        let from_unix_ms = std::mem::replace(&mut self.since_unix_ms, unix_ms());
        Frame {
            seq,
            from_unix_ms,
            unix_ms: self.since_unix_ms,
            took_ms: milliseconds(began.elapsed()),
            stores: Arc::clone(&self.stores),
            parts,
        }
    }
}

/// An alert whose condition holds now and did not in the frame before. What holds in the first one may
/// have begun at any time.
fn begun(before: Option<&[&'static str]>, now: &[&'static str]) -> Option<&'static str> {
    let before = before?;
    now.iter().copied().find(|alert| !before.contains(alert))
}

/// The part of a frame that is one store's.
fn written(name: &str, frame: &StoreFrame) -> Option<(String, bytes::Bytes)> {
    let json = serde_json::to_string(frame)
        .inspect_err(|error| tracing::error!(%error, "a frame cannot be written"));
    let part = format!(",{}:{}", serde_json::Value::from(name), json.ok()?);
    Some((name.to_owned(), part.into()))
}

#[cfg(test)]
mod tests {
    use super::begun;

    #[test]
    fn what_holds_at_the_start_has_not_begun_then() {
        let [first, second] = ["LumpscopeDiskErrors", "LumpscopeRefusals"];
        assert_eq!(begun(None, &[first]), None);
        assert_eq!(begun(Some(&[first]), &[first]), None);
        assert_eq!(begun(Some(&[first]), &[first, second]), Some(second));
        assert_eq!(begun(Some(&[first]), &[]), None);
    }
}
