//! A budget of memory, shared by the bodies of puts, by messages, or by replies.
//!
//! While memory is plentiful, a body reserves all of its memory when it begins. Otherwise it reserves
//! more as it grows, so a client that announces much and sends little holds little. Bodies in flight
//! never deadlock: free memory always suffices to finish them one after the other.
//!
//! A [`Payer`] has a share of the budget. Among waiters the login that holds least goes first, then the
//! connection that holds least, but before both a waiter of more than a second.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lumpscope_engine::Payer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

/// Memory is counted in pages of so many bytes.
const UNIT: u64 = 4096;
/// Bodies of at most so many bytes may have a reserve.
const SMALL: u64 = 64 << 10;
/// Share of the budget that the reserve has beside it.
const RESERVE: u64 = 16;
/// Grant size: a huge page.
const STEP: u64 = 2 << 20;
/// While others wait for memory, a body must come so fast that what it holds would come within so
/// many seconds.
const HELD_SECONDS: u64 = 60;
/// Waiters older than this go first, whatever they hold.
const LONG: Duration = Duration::from_secs(1);

/// A budget of memory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Budget {
    reserve: Arc<Semaphore>,
    state: Arc<Mutex<BudgetState>>,
}

#[derive(Debug, Default)]
struct BudgetState {
    total: u64,
    free: u64,
    next: u64,
    bodies: HashMap<u64, BodyEntry>,
    /// Missing and held bytes of the bodies that hold a part of their claim. Each holds a step, so
    /// they are few.
    unfinished: HashMap<u64, (u64, u64)>,
    /// Bytes of each login that holds any, as a whole, and of its connections.
    held_by: HashMap<Payer, u64>,
    /// Waiters by payer: unfinished bodies first, then new ones by arrival. Only the first new one of a
    /// payer may begin, so the cost of a grant does not depend on how many wait.
    waiting: HashMap<Payer, VecDeque<BodyWaiter>>,
}

/// A body in flight.
#[derive(Debug)]
struct BodyEntry {
    payer: Payer,
    held: u64,
    /// Most that it will hold.
    claim: u64,
}

#[derive(Debug)]
struct BodyWaiter {
    body: u64,
    /// Bytes that it wants to hold.
    wants: u64,
    since: Instant,
    granted: oneshot::Sender<()>,
}

impl BodyWaiter {
    fn is_long(&self) -> bool {
        self.since.elapsed() >= LONG
    }
}

/// The memory of one body; given back when dropped.
#[derive(Debug)]
pub struct Reserved {
    is_whole: bool,
    /// The budget, and the number of the body in it; `None`: the memory is from the reserve.
    counted: Option<(Budget, u64)>,
    _small: Option<OwnedSemaphorePermit>,
}

impl Budget {
    /// A budget of `bytes`, at least 4096, and a sixteenth of it beside for small bodies.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let total = bytes.next_multiple_of(UNIT).max(UNIT);
        let reserve = usize::try_from(total / RESERVE).unwrap_or(usize::MAX);
        let state = BudgetState {
            total,
            free: total,
            ..BudgetState::default()
        };
        Self {
            reserve: Arc::new(Semaphore::new(reserve.min(Semaphore::MAX_PERMITS))),
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Most that all bodies of a budget of so many bytes hold, with those of the reserve.
    #[must_use]
    pub const fn most(bytes: u64) -> u64 {
        bytes + bytes / RESERVE
    }

    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a body that will take `bytes`, and waits until it may have its first. One larger than
    /// the whole budget counts as if it took all of it: it must be possible to put the largest lump
    /// whatever the budget.
    pub async fn begin(&self, payer: Payer, bytes: u64) -> Reserved {
        let small = u32::try_from(bytes).ok().filter(|_| bytes <= SMALL);
        if let Some(small) = small
            && let Ok(permit) = Arc::clone(&self.reserve).try_acquire_many_owned(small)
        {
            return Reserved {
                is_whole: true,
                counted: None,
                _small: Some(permit),
            };
        }
        let (body, claim, at_once) = self.lock().enter(payer, bytes);
        // Leaves when it is dropped, while it waits, too.
        let mut reserved = Reserved {
            is_whole: at_once || claim <= STEP,
            counted: Some((self.clone(), body)),
            _small: None,
        };
        if !at_once {
            reserved.cover(STEP).await;
        }
        reserved
    }

    /// Reserves all of `bytes`; `None`: no memory came free within `patience`.
    pub async fn within(&self, patience: Duration, payer: Payer, bytes: u64) -> Option<Reserved> {
        let all = async {
            let mut reserved = self.begin(payer, bytes).await;
            reserved.cover(bytes).await;
            reserved
        };
        tokio::time::timeout(patience, all).await.ok()
    }

    /// The least rate in bytes a second of a body that holds so many bytes: `min_rate`, and more
    /// while others wait for its memory.
    #[must_use]
    pub fn least_rate(&self, min_rate: u64, holds: u64) -> u64 {
        let grown = holds / HELD_SECONDS;
        if grown > min_rate && !self.lock().waiting.is_empty() {
            grown
        } else {
            min_rate
        }
    }

    /// Bytes held now, without the reserve.
    #[must_use]
    pub fn held(&self) -> u64 {
        let state = self.lock();
        state.total - state.free
    }
}

impl Reserved {
    /// True: all of its memory was reserved when it began.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Waits until it holds `bytes`, or all that it will take, if that is less. `true`: it had to
    /// wait.
    pub async fn cover(&mut self, bytes: u64) -> bool {
        let Some((budget, body)) = &self.counted else {
            return false;
        };
        let Some(granted) = budget.lock().want(*body, bytes) else {
            return false;
        };
        // The sender stays where it is until memory was granted.
        let _ = granted.await;
        true
    }

    /// Gives back what it holds, and would take, beyond `bytes`.
    pub fn shrink(&self, bytes: u64) {
        if let Some((budget, body)) = &self.counted {
            budget.lock().shrink(*body, bytes);
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some((budget, body)) = &self.counted {
            budget.lock().leave(*body);
        }
    }
}

impl BudgetState {
    /// Adds a body: its number, its claim, and whether it holds all of it, as while memory is plentiful.
    fn enter(&mut self, payer: Payer, bytes: u64) -> (u64, u64, bool) {
        let body = self.next;
        self.next += 1;
        let claim = bytes.clamp(1, self.total).next_multiple_of(UNIT);
        let entry = BodyEntry {
            payer,
            held: 0,
            claim,
        };
        self.bodies.insert(body, entry);
        let is_plenty = self.free >= claim + self.total / 2;
        (body, claim, is_plenty && self.grant(body, claim))
    }

    /// `None`: it holds so much already, or does now.
    fn want(&mut self, body: u64, bytes: u64) -> Option<oneshot::Receiver<()>> {
        let &BodyEntry { payer, held, claim } = self.bodies.get(&body)?;
        let wants = bytes
            .checked_next_multiple_of(STEP)
            .map_or(claim, |bytes| bytes.min(claim));
        if wants <= held || self.grant(body, wants) {
            return None;
        }
        let (granted, receiver) = oneshot::channel();
        let waiter = BodyWaiter {
            body,
            wants,
            since: Instant::now(),
            granted,
        };
        let queue = self.waiting.entry(payer).or_default();
        if held > 0 {
            queue.push_front(waiter);
        } else {
            queue.push_back(waiter);
        }
        self.settle();
        Some(receiver)
    }

    /// Grants a body `wants` bytes, unless others wait.
    fn grant(&mut self, body: u64, wants: u64) -> bool {
        let granted = self.waiting.is_empty() && self.may(body, wants);
        if granted {
            self.hold(body, wants, u64::MAX);
        }
        granted
    }

    fn shrink(&mut self, body: u64, bytes: u64) {
        let most = bytes.max(1).next_multiple_of(UNIT);
        let held = self.bodies.get(&body).map_or(0, |entry| entry.held);
        self.hold(body, held.min(most), most);
        self.settle();
    }

    fn leave(&mut self, body: u64) {
        self.take(body);
        self.hold(body, 0, 0);
        self.bodies.remove(&body);
        self.settle();
    }

    /// Grants what can be granted.
    fn settle(&mut self) {
        while let Some(waiter) = self.next_granted().and_then(|body| self.take(body)) {
            self.hold(waiter.body, waiter.wants, u64::MAX);
            // Whoever waits no more gives it back.
            let _ = waiter.granted.send(());
        }
    }

    /// Ends the wait of a body.
    fn take(&mut self, body: u64) -> Option<BodyWaiter> {
        let payer = self.bodies.get(&body)?.payer;
        let queue = self.waiting.get_mut(&payer)?;
        let index = queue.iter().position(|waiter| waiter.body == body)?;
        let taken = queue.remove(index);
        if queue.is_empty() {
            self.waiting.remove(&payer);
        }
        taken
    }

    /// The body that gets memory next.
    fn next_granted(&self) -> Option<u64> {
        let first = |queue: &VecDeque<BodyWaiter>| {
            1 + queue.partition_point(|waiter| self.unfinished.contains_key(&waiter.body))
        };
        let queues = self.waiting.values();
        let first = queues.flat_map(|queue| queue.iter().take(first(queue)));
        let mut order: Vec<_> = first
            .filter_map(|waiter| Some((waiter, self.bodies.get(&waiter.body)?)))
            .collect();
        order.sort_by_cached_key(|(waiter, entry)| {
            let is_long = waiter.is_long();
            let payer = Some(entry.payer).filter(|_| !is_long);
            let held = payer.map(|payer| (self.held_by(payer.whole()), self.held_by(payer)));
            (!is_long, held, waiter.since)
        });
        for (waiter, entry) in order {
            if self.may(waiter.body, waiter.wants) {
                return Some(waiter.body);
            }
            // Others must not for ever take what comes free.
            let more = waiter.wants.saturating_sub(entry.held);
            if waiter.is_long() && more > self.free && self.has_share(entry, more) {
                return None;
            }
        }
        None
    }

    /// Whether a body may hold so much.
    fn may(&self, body: u64, wants: u64) -> bool {
        let Some(entry) = self.bodies.get(&body) else {
            return false;
        };
        let more = wants.saturating_sub(entry.held);
        self.has_share(entry, more)
            && more <= self.free
            && self.can_finish(body, (entry.claim.saturating_sub(wants), wants))
    }

    /// Whether the payer of a body may hold so much more. One body is always allowed.
    fn has_share(&self, entry: &BodyEntry, more: u64) -> bool {
        entry.payer.shares(self.total).all(|(payer, share)| {
            let held = self.held_by(payer);
            held == entry.held || held + more <= share
        })
    }

    /// True: with `part` of a body missing and held, all bodies in flight can still be finished one
    /// after the other.
    fn can_finish(&self, body: u64, part: (u64, u64)) -> bool {
        let others = self.unfinished.iter().filter(|(id, _)| **id != body);
        let mut unfinished: Vec<(u64, u64)> = others.map(|(_, part)| *part).collect();
        if unfinished.is_empty() {
            return true;
        }
        unfinished.extend(Some(part).filter(|(missing, _)| *missing > 0));
        unfinished.sort_unstable();
        let held: u64 = unfinished.iter().map(|(_, held)| held).sum();
        let mut room = self.total.saturating_sub(held);
        unfinished.iter().all(|(missing, held)| {
            let enough = *missing <= room;
            room += held;
            enough
        })
    }

    fn held_by(&self, payer: Payer) -> u64 {
        self.held_by.get(&payer).copied().unwrap_or(0)
    }

    /// It holds so much, and will take no more than `most`.
    fn hold(&mut self, body: u64, held: u64, most: u64) {
        let Some(entry) = self.bodies.get_mut(&body) else {
            return;
        };
        entry.claim = entry.claim.min(most);
        let before = std::mem::replace(&mut entry.held, held);
        if (1..entry.claim).contains(&held) {
            self.unfinished.insert(body, (entry.claim - held, held));
        } else {
            self.unfinished.remove(&body);
        }
        self.free = (self.free + before).saturating_sub(held);
        for (payer, _) in entry.payer.shares(0) {
            let sum = self.held_by.entry(payer).or_default();
            *sum = (*sum + held).saturating_sub(before);
            if *sum == 0 {
                self.held_by.remove(&payer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn payer(name: &str) -> Payer {
        let login = u32::from(name.as_bytes()[0]);
        Payer {
            login,
            connection: 0,
        }
    }

    /// The result of what is ready at once.
    async fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|context| {
            Poll::Ready(match future.as_mut().poll(context) {
                Poll::Ready(value) => Some(value),
                Poll::Pending => None,
            })
        })
        .await
    }

    #[tokio::test]
    async fn who_announces_much_and_sends_little_holds_little() {
        let bodies = Budget::new(64 * MIB);
        let mut slow = bodies.begin(payer("slow"), 64 * MIB).await;
        assert!(!slow.is_whole());
        assert_eq!(bodies.held(), 2 * MIB);
        let whole = bodies.begin(payer("a"), 20 * MIB).await;
        let other = bodies.begin(payer("b"), MIB).await;
        assert!(whole.is_whole() && other.is_whole());
        drop((whole, other));
        slow.cover(64 * MIB).await;
        assert_eq!(bodies.held(), 64 * MIB);
        drop(slow);
        assert_eq!(bodies.held(), 0);
    }

    #[tokio::test]
    async fn bodies_never_wait_for_each_other() {
        let bodies = Budget::new(16 * MIB);
        let mut one = bodies.begin(payer("a"), 14 * MIB).await;
        let mut two = bodies.begin(payer("b"), 14 * MIB).await;
        assert!(!one.is_whole() && !two.is_whole());
        let (mut held, mut blocked) = ([2 * MIB, 2 * MIB], 0);
        while held[0] < 14 * MIB && blocked < 2 {
            blocked = 0;
            for (index, body) in [&mut one, &mut two].into_iter().enumerate() {
                let wants = held[index] + 2 * MIB;
                match now(body.cover(wants)).await {
                    Some(_) => held[index] = wants,
                    None => blocked += 1,
                }
            }
        }
        assert!(blocked < 2, "both wait: {held:?}");
    }

    #[tokio::test]
    async fn a_payer_leaves_a_quarter_to_others() {
        let bodies = Budget::new(16 * MIB);
        let mut greedy = Vec::new();
        while let Some(body) = now(bodies.begin(payer("a"), MIB)).await {
            greedy.push(body);
        }
        assert_eq!(greedy.len(), 12);
        assert!(
            bodies.lock().waiting.is_empty(),
            "who waits no more is forgotten"
        );
        for _ in 0..4 {
            greedy.push(now(bodies.begin(payer("b"), MIB)).await.unwrap());
        }
        assert!(now(bodies.begin(payer("c"), MIB)).await.is_none());
        let small = now(bodies.begin(payer("c"), 64 << 10)).await;
        assert!(
            small.is_some_and(|body| body.is_whole()),
            "out of the reserve"
        );
    }

    #[tokio::test]
    async fn a_connection_leaves_a_third_of_its_logins_share_to_the_others() {
        let bodies = Budget::new(16 * MIB);
        let by = |connection| {
            let login = 1;
            bodies.begin(Payer { login, connection }, MIB)
        };
        let mut held = Vec::new();
        for most in [8, 4] {
            let before = held.len();
            while let Some(body) = now(by(most)).await {
                held.push(body);
            }
            assert_eq!(held.len() - before, usize::try_from(most).unwrap());
        }
        // A body of the second connection goes before those of the first.
        let mut greedy = std::pin::pin!(by(8));
        let mut other = std::pin::pin!(by(4));
        assert!(now(greedy.as_mut()).await.is_none() && now(other.as_mut()).await.is_none());
        drop(held.remove(0));
        assert!(now(greedy.as_mut()).await.is_none());
        assert!(now(other.as_mut()).await.is_some());
        drop(held);
        assert!(now(greedy.as_mut()).await.is_some());
        assert!(bodies.lock().held_by.len() <= 3);
    }

    #[tokio::test]
    async fn who_holds_much_must_hurry_while_others_wait() {
        let bodies = Budget::new(60 * MIB);
        let mut all = bodies.begin(payer("a"), 60 * MIB).await;
        all.cover(60 * MIB).await;
        let rates = || [30, 60].map(|holds| bodies.least_rate(MIB / 2, holds * MIB));
        assert_eq!(rates(), [MIB / 2, MIB / 2]);
        let b = payer("b");
        let mut waiting = std::pin::pin!(bodies.begin(b, MIB));
        assert!(now(waiting.as_mut()).await.is_none());
        assert_eq!(rates(), [MIB / 2, MIB]);
    }

    #[tokio::test]
    async fn who_holds_least_goes_first() {
        let bodies = Budget::new(4 * MIB);
        let mut held = vec![
            bodies.begin(payer("a"), MIB).await,
            bodies.begin(payer("a"), MIB).await,
            bodies.begin(payer("b"), MIB).await,
            bodies.begin(payer("d"), MIB).await,
        ];
        let (a, c) = (payer("a"), payer("c"));
        let mut first = std::pin::pin!(bodies.begin(a, MIB));
        let mut second = std::pin::pin!(bodies.begin(c, MIB));
        assert!(now(first.as_mut()).await.is_none() && now(second.as_mut()).await.is_none());
        drop(held.pop());
        assert!(now(first.as_mut()).await.is_none());
        assert!(now(second.as_mut()).await.is_some());
    }

    #[tokio::test]
    async fn what_a_body_does_not_need_goes_to_others() {
        let bodies = Budget::new(4 * MIB);
        let mut all = bodies.begin(payer("a"), 4 * MIB).await;
        all.cover(4 * MIB).await;
        let mut waiting = std::pin::pin!(bodies.begin(payer("b"), MIB));
        assert!(now(waiting.as_mut()).await.is_none());
        all.shrink(10_000);
        let other = now(waiting.as_mut()).await.unwrap();
        assert_eq!(bodies.held(), MIB + 3 * UNIT);
        all.cover(4 * MIB).await;
        drop((all, other));
        assert_eq!((bodies.held(), bodies.lock().unfinished.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_body_larger_than_the_budget_goes_alone() {
        let bodies = Budget::new(MIB);
        let all = bodies.begin(payer("a"), 1 << 40).await;
        assert_eq!(bodies.held(), MIB);
        assert!(now(bodies.begin(payer("b"), 100 << 10)).await.is_none());
        drop(all);
        assert_eq!(bodies.held(), 0);
    }
}
