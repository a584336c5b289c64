//! Listing the keys of a bucket: those of the catalogue and those of blocks, in one order.

use std::collections::VecDeque;
use std::ops::Bound;

use lumpscope_engine::LumpId;

use crate::Objects;
use crate::block_keys::{self, From, Keys};
use crate::blocks::size_of;
use crate::catalogue::Entry;
use crate::error::ObjectError;
use crate::juicefs::{BlockKey, Layout};
use crate::record::Body;
use crate::state::ObjectsState;
use crate::types::{ListAfter, ListEntry, ListPage, ListQuery, MAX_LIST};

/// Blocks fetched at once while they may all be in one group.
const FEW: usize = 16;
/// Most of them.
const MANY: usize = 1024;

/// The smallest text behind all that begin with this one; `None`: there is none.
fn behind(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        let next = match last {
            '\u{d7ff}' => Some('\u{e000}'),
            _ => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

fn at(key: &str) -> From {
    From {
        key: key.to_owned(),
        behind: false,
    }
}

/// Place where a list begins; `None`: it is over.
fn start(query: &ListQuery) -> Option<From> {
    let prefix = at(&query.prefix);
    Some(match &query.after {
        None => prefix,
        Some(ListAfter::Key(key)) if *key < query.prefix => prefix,
        Some(ListAfter::Key(key)) => From {
            key: key.clone(),
            behind: true,
        },
        Some(ListAfter::Prefix(group)) => match behind(group)? {
            next if next < query.prefix => prefix,
            next => at(&next),
        },
    })
}

/// The common prefix of a key with its neighbours, up to and including the delimiter.
fn group<'a>(query: &ListQuery, key: &'a str) -> Option<&'a str> {
    let delimiter = query.delimiter.as_deref().filter(|text| !text.is_empty())?;
    let rest = key.get(query.prefix.len()..)?;
    let end = query.prefix.len() + rest.find(delimiter)? + delimiter.len();
    key.get(..end)
}

fn of_entry(key: &str, entry: &Entry) -> Option<ListEntry> {
    let (_, info) = Body::decode_head(&entry.body).ok()?;
    Some(ListEntry {
        key: key.to_owned(),
        size: info.size,
        etag: Some(info.etag),
        modified_ms: info.modified_ms,
    })
}

fn of_block(key: &str, id: LumpId) -> ListEntry {
    // Neither size nor time depend on the layout.
    let (_, modified_ms) = BlockKey::of_id(id, Layout::Plain);
    ListEntry {
        key: key.to_owned(),
        size: size_of(id),
        etag: None,
        modified_ms,
    }
}

/// A page that is being filled.
struct Pages<'a> {
    query: &'a ListQuery,
    max: usize,
    page: ListPage,
    last: Option<ListAfter>,
    /// Place to look next; `None`: the page is full, or the list is over.
    from: Option<From>,
}

impl Pages<'_> {
    /// Takes the next key. False: search anew, or no more keys are wanted.
    fn take(&mut self, key: &str, entry: impl FnOnce() -> Option<ListEntry>) -> bool {
        if !key.starts_with(&self.query.prefix) {
            return false;
        }
        if self.page.entries.len() + self.page.prefixes.len() == self.max {
            self.page.next = self.last.take();
            return false;
        }
        if let Some(group) = group(self.query, key) {
            self.page.prefixes.push(group.to_owned());
            self.last = Some(ListAfter::Prefix(group.to_owned()));
            self.from = behind(group).as_deref().map(at);
            return false;
        }
        self.page.entries.extend(entry());
        self.last = Some(ListAfter::Key(key.to_owned()));
        true
    }

    /// Takes the blocks before a key, or all. False: as for [`Pages::take`].
    fn take_blocks(
        &mut self,
        blocks: &mut VecDeque<(String, LumpId)>,
        before: Option<&str>,
    ) -> bool {
        while let Some((key, id)) =
            blocks.pop_front_if(|(key, _)| before.is_none_or(|before| **key < *before))
        {
            if !self.take(&key, || Some(of_block(&key, id))) {
                return false;
            }
        }
        true
    }

    /// Merges blocks with the catalogue. True: the list goes on right behind these blocks.
    fn merge(&mut self, (state, bucket): (&ObjectsState, u32), begin: &From, keys: Keys) -> bool {
        let Keys {
            found: mut blocks,
            whole,
        } = keys;
        let end = match whole {
            true => None,
            false => blocks.back().map(|(key, _)| key.clone()),
        };
        state.add_moving(bucket, (begin, end.as_deref()), &mut blocks);
        let bound = match begin.behind {
            true => Bound::Excluded(begin.key.as_str()),
            false => Bound::Included(begin.key.as_str()),
        };
        let mut goes_on = true;
        state.catalogue.visit(bucket, bound, &mut |key, entry| {
            if end.as_deref().is_some_and(|end| *key > *end) {
                return false;
            }
            goes_on = self.take_blocks(&mut blocks, Some(key));
            if goes_on {
                // A block that is just being replaced may be in both.
                blocks.pop_front_if(|(block, _)| block == key);
                goes_on = self.take(key, || of_entry(key, entry));
            }
            goes_on
        });
        let goes_on = goes_on && self.take_blocks(&mut blocks, None);
        match end.filter(|_| goes_on) {
            Some(key) => {
                self.from = Some(From { key, behind: true });
                true
            }
            None => false,
        }
    }
}

impl Objects {
    /// A page of the keys of a bucket. A key committed between two pages is in the later one or
    /// not; a key that was there before the first page and stays is in exactly one.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::Engine`].
    pub async fn list(&self, bucket: &str, query: &ListQuery) -> Result<ListPage, ObjectError> {
        let max = query.max.min(MAX_LIST);
        let (number, volumes) = {
            let state = self.inner.state();
            let number = state.bucket(bucket)?.number;
            (number, state.volumes_of(number))
        };
        let mut pages = Pages {
            query,
            max,
            page: ListPage::default(),
            last: None,
            from: start(query).filter(|_| max > 0),
        };
        let grouped = query
            .delimiter
            .as_ref()
            .is_some_and(|text| !text.is_empty());
        let mut most = if grouped { FEW } else { MANY };
        while let Some(begin) = pages.from.take() {
            // Blocks before the catalogue: an object may move from there to here, not back.
            let wanted = most.min(max + 1);
            let from = (query.prefix.as_str(), &begin);
            let keys = block_keys::keys(&self.inner, &volumes, from, wanted).await?;
            let goes_on = pages.merge((&self.inner.state(), number), &begin, keys);
            most = match (goes_on, grouped) {
                (true, _) => (2 * most).min(MANY),
                (false, true) => FEW,
                (false, false) => MANY,
            };
        }
        Ok(pages.page)
    }
}

#[cfg(test)]
mod tests {
    use super::behind;

    #[test]
    fn what_is_behind_a_prefix() {
        assert_eq!(behind("a/").as_deref(), Some("a0"));
        assert_eq!(behind("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(behind("\u{d7ff}").as_deref(), Some("\u{e000}"));
        assert_eq!(behind("\u{10ffff}"), None);
        assert_eq!(behind(""), None);
    }
}
