//! Validation of etcd's answers: an impostor or a broken etcd can only cost a bounded amount of memory and time, and results in an
//! error.

use bytes::Bytes;
use gc_store_api::{KeyValue, Revision, StorageError};

use super::convert;
use super::protocol::{Event, LARGEST_MESSAGE, RangeRequest, RangeResponse, WatchResponse};

/// Result of one range request.
#[derive(Debug)]
pub(super) struct FetchedRange {
    pub(super) items: Vec<KeyValue>,
    /// Number of keys in the range, including those beyond the limit.
    pub(super) count: u64,
    pub(super) revision: Revision,
}

fn broken(what: impl std::fmt::Display) -> StorageError {
    StorageError::Broken(format!("etcd's answer cannot be believed: {what}"))
}

/// Validates the revision of an answer.
pub(super) fn made_at(revision: Revision) -> Result<Revision, StorageError> {
    if revision == Revision(0) { Err(broken("it has no revision")) } else { Ok(revision) }
}

/// Validates the answer to a range request, at the requested revision or the newest.
pub(super) fn range(
    data: &str,
    request: &RangeRequest,
    answer: RangeResponse,
    at: Option<Revision>,
) -> Result<FetchedRange, StorageError> {
    let newest = made_at(convert::made_at(answer.header.as_ref()))?;
    let revision = at.unwrap_or(newest);
    let count = u64::try_from(answer.count).map_err(|_| broken("it counts fewer than no keys"))?;
    let limit = match (request.count_only, request.range_end.is_empty()) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => {
            usize::try_from(request.limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX)
        }
    };
    if answer.kvs.len() > limit || answer.kvs.len() as u64 > count {
        return Err(broken(format_args!("{} keys of {count}, and {limit} were asked for", answer.kvs.len())));
    }
    let mut items: Vec<KeyValue> = Vec::with_capacity(answer.kvs.len());
    let mut last: Option<Vec<u8>> = None;
    for found in answer.kvs {
        let is_inside = if request.range_end.is_empty() {
            found.key == request.key
        } else {
            found.key >= request.key && found.key < request.range_end
        };
        if !is_inside || last.as_ref().is_some_and(|last| *last >= found.key) {
            return Err(broken("a key that was not asked for, or not in order"));
        }
        let written = convert::revision(found.mod_revision);
        if written == Revision(0) || written > revision {
            return Err(broken(format_args!("a key of revision {written} at revision {revision}")));
        }
        last = Some(found.key.clone());
        if let Some(key) = convert::local_key(data, &found.key)? {
            items.push(convert::item(key, found));
        }
    }
    Ok(FetchedRange { items, count, revision })
}

/// Returns the number of keys after a page. Fails if the page does not count the number of keys expected from the page before:
/// contradictory pages might never end.
pub(super) fn remaining(page: &FetchedRange, before: Option<u64>) -> Result<u64, StorageError> {
    if before.is_some_and(|before| before != page.count) {
        return Err(broken("the pages of one list count different keys"));
    }
    let remaining = page.count.saturating_sub(page.items.len() as u64);
    if remaining > 0 && page.items.is_empty() {
        return Err(broken(format_args!("an empty page, and {remaining} keys that remain")));
    }
    Ok(remaining)
}

/// Reader of one watch's events, in the order of their revisions.
#[derive(Debug)]
pub(super) struct WatchReader {
    /// Revision up to which all events have been read.
    reached: Revision,
    /// Events of a revision whose remaining events are in the next fragment.
    held: Vec<Event>,
}

/// Meaning of a response for the reader of the stream.
pub(super) enum Step {
    /// Events of whole revisions, up to this one.
    Events(Vec<Event>, Revision),
    /// Nothing changed up to this revision.
    Progress(Revision),
    Nothing,
}

impl WatchReader {
    /// Creates a reader for a watch that begins after a revision.
    pub(super) fn new(after: Revision) -> Self {
        Self { reached: after, held: Vec::new() }
    }

    pub(super) fn read(&mut self, response: WatchResponse) -> Result<Step, StorageError> {
        if response.canceled {
            return Err(match convert::revision(response.compact_revision) {
                Revision(0) => {
                    StorageError::Unavailable(format!("watch refused: {}", response.cancel_reason))
                }
                oldest => StorageError::Compacted { requested: self.reached, oldest },
            });
        }
        if response.created {
            return Ok(Step::Nothing);
        }
        if response.events.is_empty() && self.held.is_empty() {
            return Ok(Step::Progress(convert::made_at(response.header.as_ref())));
        }
        let mut events = std::mem::take(&mut self.held);
        events.extend(response.events);
        let mut last = self.reached;
        for event in &events {
            let at = made_at_of(event);
            if at <= self.reached || at < last {
                return Err(broken(format_args!("a change of revision {at} after revision {last}")));
            }
            last = at;
        }
        if response.fragment {
            let complete = events.partition_point(|event| made_at_of(event) < last);
            self.held = events.split_off(complete);
            if self.held.iter().map(size).sum::<usize>() > LARGEST_MESSAGE {
                return Err(broken("a revision that does not end"));
            }
        }
        let Some(until) = events.last().map(made_at_of) else { return Ok(Step::Nothing) };
        self.reached = until;
        Ok(Step::Events(events, until))
    }
}

fn made_at_of(event: &Event) -> Revision {
    event.kv.as_ref().map_or(Revision(0), |kv| convert::revision(kv.mod_revision))
}

/// Returns the memory of an event in bytes, including its structures.
fn size(event: &Event) -> usize {
    [&event.kv, &event.prev_kv]
        .into_iter()
        .flatten()
        .map(|kv| 128 + kv.key.len() + kv.value.len())
        .sum::<usize>()
}

/// Returns the memory of an item in bytes.
pub(super) fn item_bytes(item: &KeyValue) -> usize {
    let value: &Bytes = &item.value;
    item.key.len() + value.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // tests
    use super::super::protocol;
    use super::*;

    fn event(revision: i64, key: &str) -> Event {
        let kv =
            protocol::KeyValue { key: key.into(), mod_revision: revision, version: 1, ..Default::default() };
        Event { kv: Some(kv), ..Event::default() }
    }

    fn response(fragment: bool, events: Vec<Event>) -> WatchResponse {
        WatchResponse { fragment, events, ..WatchResponse::default() }
    }

    fn keys(step: Step) -> (Vec<String>, u64) {
        match step {
            Step::Events(events, until) => {
                let key = |event: Event| String::from_utf8(event.kv.unwrap().key).unwrap();
                (events.into_iter().map(key).collect(), until.0)
            }
            Step::Progress(until) => (Vec::new(), until.0),
            Step::Nothing => (Vec::new(), 0),
        }
    }

    #[test]
    fn revisions_stay_whole_in_fragments() {
        let mut reader = WatchReader::new(Revision(4));
        let mut read = |fragment, events| keys(reader.read(response(fragment, events)).unwrap());
        assert_eq!(read(true, vec![event(5, "a"), event(6, "b")]), (vec!["a".into()], 5));
        assert_eq!(read(true, vec![event(6, "c")]), (vec![], 0));
        assert_eq!(
            read(true, vec![event(6, "d"), event(8, "e")]),
            (vec!["b".into(), "c".into(), "d".into()], 6)
        );
        assert_eq!(read(false, vec![event(9, "f")]), (vec!["e".into(), "f".into()], 9));
    }

    #[test]
    fn events_that_go_back_are_refused() {
        for events in [vec![event(4, "a")], vec![event(7, "a"), event(6, "b")], vec![Event::default()]] {
            assert!(WatchReader::new(Revision(4)).read(response(false, events)).is_err());
        }
        let mut reader = WatchReader::new(Revision(4));
        reader.read(response(false, vec![event(5, "a")])).unwrap();
        assert!(reader.read(response(false, vec![event(5, "b")])).is_err(), "a revision is sent once");
    }

    /// The changes of a revision may be held until they take as much memory as one message, with their structures.
    #[test]
    fn a_revision_without_an_end_is_refused() {
        let structures = 128;
        for (excess, is_refused) in [(0, false), (1, true)] {
            let mut reader = WatchReader::new(Revision(4));
            let halves = [LARGEST_MESSAGE / 2, LARGEST_MESSAGE - LARGEST_MESSAGE / 2 + excess];
            let [first, second] = halves.map(|bytes| {
                let mut large = event(5, "a");
                large.kv.as_mut().unwrap().value = vec![0; bytes - structures - "a".len()];
                large
            });
            reader.read(response(true, vec![first])).unwrap();
            assert_eq!(reader.read(response(true, vec![second])).is_err(), is_refused, "{excess}");
        }
    }

    fn stored(key: &str, mod_revision: i64) -> protocol::KeyValue {
        let (key, value) = (key.into(), b"v".to_vec());
        protocol::KeyValue { key, mod_revision, version: 1, value, ..protocol::KeyValue::default() }
    }

    fn found(kvs: Vec<protocol::KeyValue>, count: i64) -> RangeResponse {
        let header = Some(protocol::ResponseHeader { revision: 10, ..protocol::ResponseHeader::default() });
        RangeResponse { header, kvs, count }
    }

    /// Keys outside the range or beyond the limit, of the future, twice or in another order are refused.
    #[test]
    fn the_answer_to_a_range_is_of_the_keys_that_were_asked_for() {
        let list = |limit| RangeRequest {
            key: "d/b".into(),
            range_end: "d/d".into(),
            limit,
            ..RangeRequest::default()
        };
        let one = || RangeRequest { key: "d/b".into(), ..RangeRequest::default() };
        let count = || RangeRequest { count_only: true, ..list(9) };
        let two = || vec![stored("d/b", 5), stored("d/c", 10)];
        let at = |revision| Some(Revision(revision));
        let rows = [
            ("all", list(2), found(two(), 2), None, Some((2, 2, 10))),
            ("a page", list(2), found(two(), 7), None, Some((2, 7, 10))),
            ("no limit", list(0), found(two(), 2), None, Some((2, 2, 10))),
            ("a limit below none", list(-1), found(two(), 2), None, Some((2, 2, 10))),
            ("more than the limit", list(1), found(two(), 2), None, None),
            ("more than it counts", list(2), found(two(), 1), None, None),
            ("fewer than none", list(2), found(vec![], -1), None, None),
            ("before the range", list(2), found(vec![stored("d/a", 5)], 1), None, None),
            ("at the end of the range", list(2), found(vec![stored("d/d", 5)], 1), None, None),
            ("another order", list(2), found(two().into_iter().rev().collect(), 2), None, None),
            ("twice", list(2), found(vec![stored("d/b", 5), stored("d/b", 5)], 2), None, None),
            ("one", one(), found(vec![stored("d/b", 5)], 1), None, Some((1, 1, 10))),
            ("none", one(), found(vec![], 0), None, Some((0, 0, 10))),
            ("two of one", one(), found(two(), 2), None, None),
            ("another", one(), found(vec![stored("d/c", 5)], 1), None, None),
            ("a count", count(), found(vec![], 7), None, Some((0, 7, 10))),
            ("keys for a count", count(), found(two(), 2), None, None),
            ("at a revision", list(2), found(vec![stored("d/b", 6)], 1), at(6), Some((1, 1, 6))),
            ("after the revision", list(2), found(vec![stored("d/b", 7)], 1), at(6), None),
            ("of the future", list(2), found(vec![stored("d/b", 11)], 1), None, None),
            ("of no revision", list(2), found(vec![stored("d/b", 0)], 1), None, None),
            ("no header", list(2), RangeResponse { header: None, ..found(two(), 2) }, None, None),
        ];
        for (name, request, answer, at, expected) in rows {
            let read = range("d", &request, answer, at);
            let summary = read.as_ref().ok().map(|read| (read.items.len(), read.count, read.revision.0));
            assert_eq!(summary, expected, "{name}: {read:?}");
            assert!(read.is_ok() || matches!(read, Err(StorageError::Broken(_))), "{name}: {read:?}");
        }
        let read = range("d", &one(), found(vec![stored("d/b", 5)], 1), None).unwrap();
        assert_eq!(read.items, [convert::item("/b".into(), stored("d/b", 5))]);
        assert_eq!(item_bytes(&read.items[0]), 3);
        let other = range("e", &one(), found(vec![stored("d/b", 5)], 1), None).unwrap();
        assert_eq!((other.items, other.count), (Vec::new(), 1), "it is not of the data");
    }

    #[test]
    fn pages_count_down_to_nothing() {
        let page = |items: usize, count| {
            let item = |number: usize| convert::item(format!("/{number}").into(), stored("d", 5));
            FetchedRange { items: (0..items).map(item).collect(), count, revision: Revision(10) }
        };
        let rows = [
            (page(2, 2), None, Some(0)),
            (page(2, 5), None, Some(3)),
            (page(2, 3), Some(3), Some(1)),
            (page(2, 3), Some(4), None),
            (page(0, 0), None, Some(0)),
            (page(0, 1), None, None),
        ];
        for (page, before, expected) in rows {
            assert_eq!(remaining(&page, before).ok(), expected, "{page:?} after {before:?}");
        }
    }

    #[test]
    fn a_watch_that_is_canceled_or_created_has_no_changes() {
        let mut reader = WatchReader::new(Revision(4));
        let created = WatchResponse { created: true, ..response(false, vec![event(9, "a")]) };
        assert!(matches!(reader.read(created).unwrap(), Step::Nothing));
        let canceled = |compact_revision| WatchResponse {
            canceled: true,
            compact_revision,
            cancel_reason: "no access".to_owned(),
            ..WatchResponse::default()
        };
        let error = |response| WatchReader::new(Revision(4)).read(response).err();
        let compacted = StorageError::Compacted { requested: Revision(4), oldest: Revision(8) };
        assert_eq!(error(canceled(8)), Some(compacted));
        let refused = StorageError::Unavailable("watch refused: no access".to_owned());
        assert_eq!(error(canceled(0)), Some(refused));
        let header = Some(protocol::ResponseHeader { revision: 7, ..protocol::ResponseHeader::default() });
        let progress = WatchResponse { header, ..WatchResponse::default() };
        assert_eq!(keys(reader.read(progress).unwrap()), (vec![], 7));
    }

    /// While a revision is incomplete, a response without events is no progress beyond it.
    #[test]
    fn an_incomplete_revision_is_completed_by_an_empty_response() {
        let mut reader = WatchReader::new(Revision(4));
        assert_eq!(keys(reader.read(response(true, vec![event(5, "a")])).unwrap()), (vec![], 0));
        assert_eq!(keys(reader.read(response(false, vec![])).unwrap()), (vec!["a".to_owned()], 5));
    }

    #[test]
    fn an_event_takes_both_of_its_values() {
        let kv = |value: &str| Some(protocol::KeyValue { value: value.into(), ..stored("key", 5) });
        let event = |kv, prev_kv| Event { kv, prev_kv, ..Event::default() };
        let rows = [(event(None, None), 0), (event(kv("four"), None), 135), (event(kv("four"), kv("")), 266)];
        for (event, expected) in rows {
            assert_eq!(size(&event), expected, "{event:?}");
        }
    }
}
