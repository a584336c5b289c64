//! Gets whose payers have their share of the memory for gets. They wait beside the queue, so that they
//! keep nobody else from the disk, and go back to it when there is memory for them.

use std::collections::{BTreeMap, VecDeque};

use super::Arrival;
use crate::buffer::Payer;

/// Those that wait, by payer and then in the order of their arrival.
#[derive(Default)]
pub(super) struct HeldGets {
    by_payer: BTreeMap<Payer, VecDeque<Arrival>>,
    len: usize,
}

impl HeldGets {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True: gets of this payer wait.
    pub(super) fn has(&self, payer: Payer) -> bool {
        self.by_payer.contains_key(&payer)
    }

    pub(super) fn push(&mut self, arrival: Arrival) {
        self.len += 1;
        let queue = self.by_payer.entry(arrival.ctx.payer).or_default();
        queue.push_back(arrival);
    }

    /// Takes out those for which there is memory. `bytes` says how many one needs, `may` whether its
    /// payer may hold so many more.
    pub(super) fn ready(
        &mut self,
        bytes: impl Fn(&Arrival) -> u64,
        may: impl Fn(Payer, u64) -> bool,
    ) -> Vec<Arrival> {
        let mut ready = Vec::new();
        for (payer, queue) in &mut self.by_payer {
            let mut together = 0;
            while let Some(first) = queue.front() {
                together += bytes(first);
                if !may(*payer, together) {
                    break;
                }
                ready.extend(queue.pop_front());
            }
        }
        self.len -= ready.len();
        self.forget();
        ready
    }

    /// Takes out one that is late and wants to be dropped then, and how late it is in nanoseconds.
    pub(super) fn expire(&mut self, now_ns: u64) -> Option<(Arrival, u64)> {
        let late = self.by_payer.values_mut().find_map(|queue| {
            let late = |arrival: &Arrival| arrival.ctx.late_ns(now_ns);
            let index = queue.iter().position(|arrival| late(arrival).is_some())?;
            let arrival = queue.remove(index)?;
            self.len -= 1;
            let late_ns = late(&arrival)?;
            Some((arrival, late_ns))
        });
        self.forget();
        late
    }

    /// The deadline after which one has to be taken out.
    pub(super) fn next_expiry(&self) -> Option<u64> {
        let all = self.by_payer.values().flatten();
        let expires =
            |arrival: &Arrival| arrival.ctx.deadline.filter(|_| arrival.ctx.drop_when_late);
        all.filter_map(expires).min()
    }

    /// Takes out all.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Arrival> + use<> {
        self.len = 0;
        std::mem::take(&mut self.by_payer).into_values().flatten()
    }

    /// Forgets payers of which none waits.
    fn forget(&mut self) {
        self.by_payer.retain(|_, queue| !queue.is_empty());
    }
}
