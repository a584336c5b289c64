//! Listing the keys of a bucket.

use std::ops::Bound;

use crate::Objects;
use crate::catalogue::Entry;
use crate::error::ObjectError;
use crate::record::Body;
use crate::types::{ListAfter, ListEntry, ListPage, ListQuery, MAX_LIST};

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

/// Where a list begins; `None`: it is over.
fn start(query: &ListQuery) -> Option<Bound<String>> {
    let prefix = Bound::Included(query.prefix.clone());
    Some(match &query.after {
        None => prefix,
        Some(ListAfter::Key(key)) if *key < query.prefix => prefix,
        Some(ListAfter::Key(key)) => Bound::Excluded(key.clone()),
        Some(ListAfter::Prefix(group)) => match behind(group)? {
            next if next < query.prefix => prefix,
            next => Bound::Included(next),
        },
    })
}

/// What a key has in common with its neighbours, up to and with the delimiter.
fn group<'a>(query: &ListQuery, key: &'a str) -> Option<&'a str> {
    let delimiter = query.delimiter.as_deref().filter(|text| !text.is_empty())?;
    let rest = key.get(query.prefix.len()..)?;
    let end = query.prefix.len() + rest.find(delimiter)? + delimiter.len();
    key.get(..end)
}

fn list_entry(key: &str, entry: &Entry) -> Option<ListEntry> {
    let (_, info) = Body::decode_head(&entry.body).ok()?;
    Some(ListEntry {
        key: key.to_owned(),
        size: info.size,
        etag: info.etag,
        modified_ms: info.modified_ms,
    })
}

impl Objects {
    /// A page of the keys of a bucket. What is committed between two pages is in the later one or
    /// not; what was there before the first and stays is in exactly one.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`].
    pub fn list(&self, bucket: &str, query: &ListQuery) -> Result<ListPage, ObjectError> {
        let max = query.max.min(MAX_LIST);
        let state = self.inner.state();
        let number = state.bucket(bucket)?.number;
        let mut page = ListPage::default();
        let mut from = start(query).filter(|_| max > 0);
        let mut last = None;
        while let Some(begin) = from.take() {
            let begin = begin.as_ref().map(String::as_str);
            state.catalogue.visit(number, begin, &mut |key, entry| {
                if !key.starts_with(&query.prefix) {
                    return false;
                }
                if page.entries.len() + page.prefixes.len() == max {
                    page.next = last.take();
                    return false;
                }
                if let Some(group) = group(query, key) {
                    page.prefixes.push(group.to_owned());
                    last = Some(ListAfter::Prefix(group.to_owned()));
                    from = behind(group).map(Bound::Included);
                    return false;
                }
                page.entries.extend(list_entry(key, entry));
                last = Some(ListAfter::Key(key.to_owned()));
                true
            });
        }
        Ok(page)
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
