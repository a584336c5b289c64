//! Memory for the bodies of puts, messages and lists: had as their bytes come, and shared between
//! those who pay for it.
//!
//! While there is plenty, a body gets all that it will take at once. Otherwise it gets more as it
//! grows, so that a client which announces much and sends little holds little. Nobody gets so much
//! that the bodies under way could wait for each other: what is left must always suffice to finish
//! them one after the other. A [`Payer`] has a share; of those who wait, the login that holds least
//! goes first, then the connection of it that does, unless somebody has waited long.

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
/// Others get so many bytes at a time: a huge page.
const STEP: u64 = 2 << 20;
/// While others wait for memory, a body must come so fast that what it holds would come within so
/// many seconds.
const HELD_SECONDS: u64 = 60;
/// Whoever has waited for so long goes before who holds less.
const LONG: Duration = Duration::from_secs(1);

/// A budget of memory for bodies. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Bodies {
    shared: Arc<BodiesShared>,
}

#[derive(Debug)]
struct BodiesShared {
    total: u64,
    reserve: Arc<Semaphore>,
    state: Mutex<BodiesState>,
}

#[derive(Debug, Default)]
struct BodiesState {
    next: u64,
    free: u64,
    bodies: HashMap<u64, BodyEntry>,
    /// How many of them hold a part of their claim.
    unfinished: usize,
    /// Bytes of each login that holds any, as a whole, and of its connections.
    held_by: HashMap<Payer, u64>,
    /// Bodies under way that want more. Each holds a step, so they are few.
    growing: Vec<BodyWaiter>,
    /// Those of each payer that have not begun, by arrival. Only the first may, so however many
    /// there are, nothing takes longer.
    new: HashMap<Payer, VecDeque<BodyWaiter>>,
}

/// A body under way.
#[derive(Debug)]
struct BodyEntry {
    payer: Payer,
    held: u64,
    /// Most that it will hold.
    claim: u64,
}

impl BodyEntry {
    fn is_unfinished(&self) -> bool {
        self.held > 0 && self.held < self.claim
    }
}

#[derive(Debug)]
struct BodyWaiter {
    body: u64,
    /// Bytes that it wants to hold.
    wants: u64,
    since: Instant,
    granted: oneshot::Sender<()>,
}

/// Why somebody goes on waiting.
enum WaitReason {
    /// Others have the memory.
    NoRoom,
    /// Its payer has enough, or others could not be finished.
    Held,
}

/// The memory of one body; given back when dropped.
#[derive(Debug)]
pub struct BodyMemory(BodyGrant);

#[derive(Debug)]
enum BodyGrant {
    /// Out of the reserve.
    Small { _permit: OwnedSemaphorePermit },
    /// Out of the budget.
    Counted {
        shared: Arc<BodiesShared>,
        body: u64,
        at_once: bool,
    },
}

impl Bodies {
    /// A budget of `bytes`, at least 4096, and a sixteenth of it beside for small bodies.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let total = bytes.next_multiple_of(UNIT).max(UNIT);
        let reserve = usize::try_from(total / RESERVE).unwrap_or(usize::MAX);
        let state = BodiesState {
            free: total,
            ..BodiesState::default()
        };
        Self {
            shared: Arc::new(BodiesShared {
                total,
                reserve: Arc::new(Semaphore::new(reserve.min(Semaphore::MAX_PERMITS))),
                state: Mutex::new(state),
            }),
        }
    }

    /// Most that all bodies of a budget of so many bytes hold, with those of the reserve.
    #[must_use]
    pub const fn most(bytes: u64) -> u64 {
        bytes + bytes / RESERVE
    }

    /// Begins a body that will take `bytes`, and waits until it may have its first. One larger than
    /// the whole budget counts as if it took all of it: it must be possible to put the largest lump
    /// whatever the budget.
    pub async fn begin(&self, payer: Payer, bytes: u64) -> BodyMemory {
        let small = u32::try_from(bytes).ok().filter(|_| bytes <= SMALL);
        if let Some(small) = small
            && let Ok(permit) = Arc::clone(&self.shared.reserve).try_acquire_many_owned(small)
        {
            return BodyMemory(BodyGrant::Small { _permit: permit });
        }
        let total = self.shared.total;
        let claim = bytes.max(1).next_multiple_of(UNIT).min(total);
        let (body, at_once) = self.shared.lock().enter(payer, claim, total);
        // Leaves when it is dropped, while it waits, too.
        let mut begun = BodyMemory(BodyGrant::Counted {
            shared: Arc::clone(&self.shared),
            body,
            at_once: at_once || claim <= STEP,
        });
        if !at_once {
            begun.cover(STEP).await;
        }
        begun
    }

    /// True: somebody waits for memory that others have.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.shared.lock().is_wanted()
    }

    /// The least rate in bytes a second of a body that holds so many bytes: `min_rate`, and more
    /// while others wait for its memory.
    #[must_use]
    pub fn least_rate(&self, min_rate: u64, holds: u64) -> u64 {
        let grown = holds / HELD_SECONDS;
        if grown > min_rate && self.is_wanted() {
            grown
        } else {
            min_rate
        }
    }

    /// Bytes held now, without the reserve.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.shared.total - self.shared.lock().free
    }
}

impl BodyMemory {
    /// True: all of its memory was had when it began.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        match &self.0 {
            BodyGrant::Small { .. } => true,
            BodyGrant::Counted { at_once, .. } => *at_once,
        }
    }

    /// Waits until it holds `bytes`, or all that it will take, if that is less. `true`: it had to
    /// wait.
    pub async fn cover(&mut self, bytes: u64) -> bool {
        let BodyGrant::Counted { shared, body, .. } = &self.0 else {
            return false;
        };
        let Some(granted) = shared.lock().want(*body, bytes, shared.total) else {
            return false;
        };
        // The sender stays where it is until memory was granted.
        let _ = granted.await;
        true
    }
}

impl BodyMemory {
    /// Gives back what it holds, and would take, beyond `bytes`.
    pub fn shrink(&self, bytes: u64) {
        if let BodyGrant::Counted { shared, body, .. } = &self.0 {
            shared.lock().shrink(*body, bytes, shared.total);
        }
    }
}

impl Drop for BodyGrant {
    fn drop(&mut self) {
        if let Self::Counted { shared, body, .. } = self {
            shared.lock().leave(*body, shared.total);
        }
    }
}

impl BodiesShared {
    fn lock(&self) -> MutexGuard<'_, BodiesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BodiesState {
    /// A new body, which holds all of its claim if there is plenty, else nothing.
    fn enter(&mut self, payer: Payer, claim: u64, total: u64) -> (u64, bool) {
        let body = self.next;
        self.next += 1;
        let entry = BodyEntry {
            payer,
            held: 0,
            claim,
        };
        self.bodies.insert(body, entry);
        let plenty = self
            .free
            .checked_sub(claim)
            .is_some_and(|left| left >= total / 2);
        let at_once = plenty && !self.is_wanted() && self.may(body, claim, total).is_ok();
        if at_once {
            self.hold(body, claim);
        }
        (body, at_once)
    }

    /// `None`: it holds so much already, or does now.
    fn want(&mut self, body: u64, bytes: u64, total: u64) -> Option<oneshot::Receiver<()>> {
        let entry = self.bodies.get(&body)?;
        let wants = bytes
            .checked_next_multiple_of(STEP)
            .map_or(entry.claim, |bytes| bytes.min(entry.claim));
        if wants <= entry.held {
            return None;
        }
        if !self.is_wanted() && self.may(body, wants, total).is_ok() {
            self.hold(body, wants);
            return None;
        }
        let (granted, receiver) = oneshot::channel();
        let (held, payer) = (entry.held, entry.payer);
        let waiting = BodyWaiter {
            body,
            wants,
            since: Instant::now(),
            granted,
        };
        if held > 0 {
            self.growing.push(waiting);
        } else {
            self.new.entry(payer).or_default().push_back(waiting);
        }
        self.settle(total);
        Some(receiver)
    }

    fn leave(&mut self, body: u64, total: u64) {
        self.take(body);
        self.hold(body, 0);
        self.bodies.remove(&body);
        self.settle(total);
    }

    fn shrink(&mut self, body: u64, bytes: u64, total: u64) {
        let most = bytes.max(1).next_multiple_of(UNIT);
        let held = self.bodies.get(&body).map_or(0, |entry| entry.held);
        self.hold_of(body, held.min(most), most);
        self.settle(total);
    }

    fn is_wanted(&self) -> bool {
        !self.growing.is_empty() || !self.new.is_empty()
    }

    /// Grants what can be granted.
    fn settle(&mut self, total: u64) {
        while let Some(body) = self.next_granted(total) {
            let Some(waiting) = self.take(body) else {
                return;
            };
            self.hold(body, waiting.wants);
            // Whoever waits no more gives it back.
            let _ = waiting.granted.send(());
        }
    }

    /// Ends the wait of a body.
    fn take(&mut self, body: u64) -> Option<BodyWaiter> {
        if let Some(index) = self.growing.iter().position(|one| one.body == body) {
            return Some(self.growing.remove(index));
        }
        let payer = self.bodies.get(&body)?.payer;
        let queue = self.new.get_mut(&payer)?;
        let index = queue.iter().position(|one| one.body == body)?;
        let taken = queue.remove(index);
        if queue.is_empty() {
            self.new.remove(&payer);
        }
        taken
    }

    /// The body that gets memory next.
    fn next_granted(&self, total: u64) -> Option<u64> {
        let first = self.new.values().filter_map(VecDeque::front);
        let mut order: Vec<&BodyWaiter> = self.growing.iter().chain(first).collect();
        order.sort_by_cached_key(|waiting| {
            let long = waiting.since.elapsed() >= LONG;
            let entry = self.bodies.get(&waiting.body).filter(|_| !long);
            let payer = entry.map(|entry| entry.payer);
            let held = payer.map(|payer| (self.held_by(payer.whole()), self.held_by(payer)));
            (!long, held, waiting.since)
        });
        for waiting in order {
            match self.may(waiting.body, waiting.wants, total) {
                Ok(()) => return Some(waiting.body),
                // Others must not for ever take what comes free.
                Err(WaitReason::NoRoom) if waiting.since.elapsed() >= LONG => return None,
                Err(_) => {}
            }
        }
        None
    }

    /// Whether a body may hold so much.
    fn may(&self, body: u64, wants: u64, total: u64) -> Result<(), WaitReason> {
        let entry = self.bodies.get(&body).ok_or(WaitReason::Held)?;
        let more = wants.saturating_sub(entry.held);
        let has_enough = entry.payer.shares(total).any(|(payer, share)| {
            let held = self.held_by(payer);
            held != entry.held && held + more > share
        });
        if has_enough {
            return Err(WaitReason::Held);
        }
        if more > self.free {
            return Err(WaitReason::NoRoom);
        }
        if self.can_finish(body, wants, total) {
            Ok(())
        } else {
            Err(WaitReason::Held)
        }
    }

    /// True: if it holds so much, the bodies under way can still be finished one after the other.
    fn can_finish(&self, body: u64, wants: u64, total: u64) -> bool {
        let itself = self.bodies.get(&body).is_some_and(BodyEntry::is_unfinished);
        if self.unfinished == usize::from(itself) {
            return true;
        }
        let held = |(id, entry): (&u64, &BodyEntry)| {
            let held = if *id == body { wants } else { entry.held };
            (held > 0 && held < entry.claim).then_some((entry.claim - held, held))
        };
        let mut unfinished: Vec<(u64, u64)> = self.bodies.iter().filter_map(held).collect();
        unfinished.sort_unstable();
        let mut room = total
            - unfinished
                .iter()
                .map(|(_, held)| held)
                .sum::<u64>()
                .min(total);
        unfinished.iter().all(|(missing, held)| {
            let enough = *missing <= room;
            room += held;
            enough
        })
    }

    fn held_by(&self, payer: Payer) -> u64 {
        self.held_by.get(&payer).copied().unwrap_or(0)
    }

    fn hold(&mut self, body: u64, held: u64) {
        self.hold_of(body, held, u64::MAX);
    }

    /// It holds so much, and will take no more than `most`.
    fn hold_of(&mut self, body: u64, held: u64, most: u64) {
        let Some(entry) = self.bodies.get_mut(&body) else {
            return;
        };
        self.unfinished -= usize::from(entry.is_unfinished());
        entry.claim = entry.claim.min(most);
        let before = std::mem::replace(&mut entry.held, held);
        self.unfinished += usize::from(entry.is_unfinished());
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
        let bodies = Bodies::new(64 * MIB);
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
        let bodies = Bodies::new(16 * MIB);
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
        let bodies = Bodies::new(16 * MIB);
        let mut greedy = Vec::new();
        while let Some(body) = now(bodies.begin(payer("a"), MIB)).await {
            greedy.push(body);
        }
        assert_eq!(greedy.len(), 12);
        assert!(!bodies.is_wanted(), "who waits no more is forgotten");
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
        let bodies = Bodies::new(16 * MIB);
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
        assert!(bodies.shared.lock().held_by.len() <= 3);
    }

    #[tokio::test]
    async fn who_holds_much_must_hurry_while_others_wait() {
        let bodies = Bodies::new(60 * MIB);
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
        let bodies = Bodies::new(4 * MIB);
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
        let bodies = Bodies::new(4 * MIB);
        let mut all = bodies.begin(payer("a"), 4 * MIB).await;
        all.cover(4 * MIB).await;
        let mut waiting = std::pin::pin!(bodies.begin(payer("b"), MIB));
        assert!(now(waiting.as_mut()).await.is_none());
        all.shrink(10_000);
        let other = now(waiting.as_mut()).await.unwrap();
        assert_eq!(bodies.held(), MIB + 3 * UNIT);
        all.cover(4 * MIB).await;
        drop((all, other));
        assert_eq!((bodies.held(), bodies.shared.lock().unfinished), (0, 0));
    }

    #[tokio::test]
    async fn a_body_larger_than_the_budget_goes_alone() {
        let bodies = Bodies::new(MIB);
        let all = bodies.begin(payer("a"), 1 << 40).await;
        assert_eq!(bodies.held(), MIB);
        assert!(now(bodies.begin(payer("b"), 100 << 10)).await.is_none());
        drop(all);
        assert_eq!(bodies.held(), 0);
    }
}
