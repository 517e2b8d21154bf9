//! Lists: consistent pages, versions, selectors.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::filter::Filter;
use super::pages::{ENOUGH_MATCHES, FIRST_PAGE, Pages};
use crate::api::{ListOptions, ListRest, ObjectList, RequestTarget, VersionMatch};
use crate::conversion::{Converter, TimeLeft};
use crate::error::{ApiError, CauseReason, FieldError};
use crate::metadata::names::quoted;
use crate::metadata::object::{Object, TypeMeta};
use crate::registry::call::Call;
use crate::resource::ResourceDefinition;
use crate::storage::{Blocking, Key, KeyValue, RangeOptions, Revision, Storage, StorageError};
use crate::{persist, schema};

/// Number of objects read from the store at once while a selector searches for matches.
const SCAN_PAGE: usize = 1000;

/// Reads `resourceVersion`; empty is 0.
pub(crate) fn parse_version(text: &str) -> Result<Revision, ApiError> {
    version(text).map_err(|why| ApiError::bad_request(format!("invalid resource version: {why}")))
}

/// Reads the `resourceVersion` of a single read or a watch, where an invalid text is a 500 (recorded from upstream).
pub(crate) fn parse_version_of_get(text: &str) -> Result<Revision, ApiError> {
    version(text).map_err(|why| ApiError::new(500, "", why))
}

/// Reads the `resourceVersion` of an object in a write; an invalid text is a 500 with another message.
pub(crate) fn parse_version_of_write(text: &str) -> Result<Revision, ApiError> {
    number(text).map_err(|why| ApiError::new(500, "", why))
}

fn version(text: &str) -> Result<Revision, String> {
    number(text).map_err(|why| format!("resourceVersion: Invalid value: {}: {why}", quoted(text)))
}

fn number(text: &str) -> Result<Revision, String> {
    if text.is_empty() {
        return Ok(Revision(0));
    }
    // Rust accepts a sign here, but Go does not.
    let digits = Some(text).filter(|text| !text.starts_with('+'));
    digits.and_then(|digits| digits.parse().ok()).map(Revision).ok_or_else(|| {
        let why = if text.bytes().all(|byte| byte.is_ascii_digit()) {
            "value out of range"
        } else {
            "invalid syntax"
        };
        format!("strconv.ParseUint: parsing {}: {why}", quoted(text))
    })
}

/// Start of the next page, and the number of objects from there, so that no page counts them again:
/// `{"v":"meta.k8s.io/v1","rv":5,"start":"default/web\u0000","remaining":70}`. With `rv` -1, the page starts in the newest state,
/// for a client that continues although the state of the first page is gone.
#[derive(Debug, PartialEq)]
pub(crate) struct Continue {
    revision: Option<Revision>,
    after: String,
    remaining: Option<u64>,
}

impl Continue {
    pub(crate) fn encode(&self) -> String {
        let revision = self.revision.map_or(json!(-1), |revision| revision.0.into());
        let mut token =
            json!({"v": "meta.k8s.io/v1", "rv": revision, "start": format!("{}\u{0}", self.after)});
        if let Some(remaining) = self.remaining {
            token["remaining"] = remaining.into();
        }
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    pub(crate) fn decode(token: &str) -> Result<Self, ApiError> {
        let bad = |why: &str| {
            ApiError::bad_request(format!("invalid continue token: continue key is not valid{why}"))
        };
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|why| {
            bad(&format!(": illegal base64 data at input byte {}", schema::base64_offset(&why, token)))
        })?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|why| bad(&format!(": {why}")))?;
        let version = value["v"].as_str().unwrap_or_default();
        if version != "meta.k8s.io/v1" {
            return Err(bad(&format!(": server does not recognize this encoded version {version}")));
        }
        let revision = match value["rv"].as_i64() {
            None | Some(0) => {
                return Err(bad(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
            }
            Some(revision) => u64::try_from(revision).ok().map(Revision),
        };
        let start = value["start"].as_str().unwrap_or_default();
        if start.is_empty() {
            return Err(bad(": encoded start key empty (version meta.k8s.io/v1)"));
        }
        let key = start.strip_prefix('/').unwrap_or(start);
        // Refuses keys that would leave the collection, or that the server would not write.
        if key.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(bad(&format!(": {start}")));
        }
        let after = key.strip_suffix('\u{0}').unwrap_or(key).to_owned();
        Ok(Self { revision, after, remaining: value["remaining"].as_u64() })
    }
}

fn forbidden(field: &str, why: &str) -> ApiError {
    let error = FieldError {
        field: field.into(),
        reason: CauseReason::Forbidden,
        detail: format!("Forbidden: {why}"),
    };
    ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error])
}

/// Checks that the options are consistent, as upstream does.
fn validate(options: &ListOptions) -> Result<(), ApiError> {
    if options.send_initial_events.is_some() {
        return Err(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if let Some(wanted) = options.resource_version_match {
        if options.resource_version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            return Err(forbidden("resourceVersionMatch", why));
        }
        if !options.continue_token.is_empty() {
            return Err(forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if wanted == VersionMatch::Exact && options.resource_version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            return Err(forbidden("resourceVersionMatch", why));
        }
    }
    if !options.continue_token.is_empty() && !matches!(options.resource_version.as_str(), "" | "0") {
        return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
    }
    Ok(())
}

const EXPIRED_CONTINUE: &str = "The provided continue parameter is too old to display a consistent list result. You can \
     start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder \
     of the results. Continuing with the provided token results in an inconsistent list - objects that were created, \
     modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// Store to read objects from, their converter, and the remaining time.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) converter: &'a Arc<Converter>,
    pub(crate) storage: &'a Arc<dyn Storage>,
    pub(crate) time_left: TimeLeft<'a>,
}

impl Call<'_> {
    /// Returns the source from which the request reads collections.
    pub(crate) fn source(&self) -> Source<'_> {
        Source {
            converter: &self.registry.converter,
            storage: &self.registry.storage,
            time_left: self.context.time_left,
        }
    }
}

/// Returns a page of a collection.
pub(crate) fn list(
    source: Source<'_>,
    target: &RequestTarget,
    options: &ListOptions,
) -> Result<ObjectList, ApiError> {
    let filter = Filter::parse(&target.resource, options)?;
    validate(options)?;
    let page = Reader::new(source, target).page(options, &filter)?;
    Ok(ObjectList {
        items: page.items,
        resource_version: page.revision.to_string(),
        continue_token: page.next.as_ref().map(Continue::encode).unwrap_or_default(),
        remaining_item_count: page.remaining,
        rest: page.rest,
    })
}

/// Initial state of a watch.
pub(crate) struct InitialState {
    pub(crate) items: Vec<Arc<Object>>,
    /// Further objects.
    pub(crate) rest: Option<ListRest>,
    pub(crate) revision: Revision,
}

/// Reads all objects below a prefix, or the one at the key, for the initial state of a watch.
pub(crate) fn everything(
    source: Source<'_>,
    target: &RequestTarget,
    scope: &str,
    exact: bool,
    filter: &Filter,
) -> Result<InitialState, ApiError> {
    let reader = Reader::new(source, target);
    if exact {
        let answer = source.storage.get(scope, None).map_err(persist::storage_error)?;
        let items = reader.matching(answer.item.as_slice(), filter)?;
        return Ok(InitialState { items, rest: None, revision: answer.revision });
    }
    // A watch must be polled without waiting for a network, and a webhook's error belongs in the answer.
    let in_pages = source.storage.blocks() != Blocking::Always && !target.resource.asks_webhook();
    let limit = if in_pages { FIRST_PAGE } else { 0 };
    let options = RangeOptions { limit, skips_count: true, ..RangeOptions::default() };
    let answer = source.storage.range(scope, &options).map_err(persist::storage_error)?;
    let rest = if in_pages { reader.pages(filter).after(&answer) } else { None };
    let items = reader.matching(&answer.items, filter)?;
    Ok(InitialState { items, rest, revision: answer.revision })
}

/// A page of the answer.
struct Page {
    items: Vec<Arc<Object>>,
    revision: Revision,
    next: Option<Continue>,
    remaining: Option<u64>,
    /// Objects that follow without another request.
    rest: Option<ListRest>,
}

impl Page {
    /// Creates the last page of a list.
    fn last(items: Vec<Arc<Object>>, revision: Revision) -> Self {
        Self { items, revision, next: None, remaining: None, rest: None }
    }
}

/// Part of a collection to read.
struct Start {
    at: Option<Revision>,
    after: Option<Key>,
    continued: bool,
    /// Number of objects from here on, if known.
    counted: Option<u64>,
}

/// Reads objects of a collection in the version of the request.
struct Reader<'a> {
    source: Source<'a>,
    resource: &'a Arc<ResourceDefinition>,
    namespace: &'a str,
    prefix: String,
    type_meta: Arc<TypeMeta>,
}

impl<'a> Reader<'a> {
    fn new(source: Source<'a>, target: &'a RequestTarget) -> Self {
        Self {
            source,
            resource: &target.resource,
            namespace: &target.namespace,
            prefix: persist::collection_prefix(&target.resource, &target.namespace),
            type_meta: persist::type_meta(&target.resource),
        }
    }

    fn present(&self, items: &[KeyValue]) -> Result<Vec<Object>, ApiError> {
        persist::refuse_unreadable(self.resource, items)?;
        let stored = items.iter().map(|item| (item.value.clone(), item.mod_revision));
        self.source.converter.present_all(self.resource, &self.type_meta, stored, self.source.time_left)
    }

    /// Converts all items to objects, in parts: for a large list, the shared objects need no second vector of the same length.
    fn all(&self, items: &[KeyValue]) -> Result<Vec<Arc<Object>>, ApiError> {
        let mut objects = Vec::with_capacity(items.len());
        for part in items.chunks(SCAN_PAGE) {
            objects.extend(self.present(part)?.into_iter().map(Arc::new));
        }
        Ok(objects)
    }

    fn matching(&self, items: &[KeyValue], filter: &Filter) -> Result<Vec<Arc<Object>>, ApiError> {
        let mut matching = Vec::new();
        for object in self.present(items)? {
            if filter.matches(&object)? {
                matching.push(Arc::new(object));
            }
        }
        Ok(matching)
    }

    fn start(&self, options: &ListOptions) -> Result<Start, ApiError> {
        let requested = parse_version(&options.resource_version)?;
        if !options.continue_token.is_empty() {
            let token = Continue::decode(&options.continue_token)?;
            let after = Some(format!("{}{}", self.prefix, token.after).into());
            let counted = token.remaining;
            return Ok(Start { at: token.revision, after, continued: true, counted });
        }
        let mut at = None;
        if requested.0 > 0 {
            let exact = match options.resource_version_match {
                Some(wanted) => wanted == VersionMatch::Exact,
                None => options.limit > 0,
            };
            if exact {
                at = Some(requested);
            } else {
                let newest = self.source.storage.revision().map_err(persist::storage_error)?;
                if requested > newest {
                    return Err(persist::too_large_version(requested, newest));
                }
            }
        }
        Ok(Start { at, after: None, continued: false, counted: None })
    }

    /// Reports whether upstream answers from its cache, which has no pages. Events are not cached.
    fn is_of_any_version(&self, options: &ListOptions) -> bool {
        let is_event = &*self.resource.resource == "events" && self.resource.custom.is_none();
        options.resource_version == "0" && options.continue_token.is_empty() && !is_event
    }

    fn page(&self, options: &ListOptions, filter: &Filter) -> Result<Page, ApiError> {
        let limit =
            if self.is_of_any_version(options) { 0 } else { usize::try_from(options.limit).unwrap_or(0) };
        let Start { mut at, mut after, continued, counted } = self.start(options)?;
        let from = after.clone();
        let fail = |error: StorageError| match error {
            StorageError::Compacted { .. } if continued => self.expired(from.as_deref()),
            other => persist::storage_error(other),
        };
        if let (Some(name), None, false) = (filter.exact_name(), &at, continued)
            && (!self.namespace.is_empty() || !self.resource.namespaced())
        {
            return self.one(name, filter);
        }
        // Webhooks convert objects of other versions, and the client must learn of their errors.
        let in_pages = options.in_pages && limit == 0 && !self.resource.asks_webhook();
        let mut items = Vec::new();
        loop {
            let page_limit = match (filter.is_empty(), in_pages) {
                (true, true) => FIRST_PAGE,
                (true, false) => limit,
                (false, _) => SCAN_PAGE,
            };
            let skips_count = counted.is_some() || !filter.is_empty() || in_pages;
            let range = RangeOptions { at, after: after.take(), limit: page_limit, skips_count };
            let answer = self.source.storage.range(&self.prefix, &range).map_err(fail)?;
            let revision = answer.revision;
            at = Some(revision);
            let last = answer.items.last().map(|item| Arc::clone(&item.key));
            if filter.is_empty() && in_pages {
                let pages = Pages { is_from_start: from.is_none(), ..self.pages(filter) };
                let rest = pages.after(&answer);
                let items = self.all(&answer.items)?;
                return Ok(Page { rest, ..Page::last(items, revision) });
            }
            if filter.is_empty() {
                let present = u64::try_from(answer.items.len()).unwrap_or(u64::MAX);
                // The token comes from the client, so ensure that there is at least one more object if the page is not the last.
                let left = |counted: u64| counted.saturating_sub(present).max(1);
                let remaining = counted.map_or(answer.remaining, left);
                let remaining = answer.more.then_some(remaining);
                let next = answer.more.then(|| self.next(last.as_deref(), revision, remaining)).flatten();
                let items = self.all(&answer.items)?;
                return Ok(Page { next, remaining, ..Page::last(items, revision) });
            }
            let objects = self.present(&answer.items)?;
            let mut scanned = answer.items.iter().zip(objects).peekable();
            while let Some((item, object)) = scanned.next() {
                if !filter.matches(&object)? {
                    continue;
                }
                items.push(Arc::new(object.forgetting_what_was_decoded()));
                if limit > 0 && items.len() == limit && (answer.more || scanned.peek().is_some()) {
                    // With a selector, the number of remaining objects is unknown (upstream omits it).
                    let next = self.next(Some(&item.key), revision, None);
                    return Ok(Page { next, ..Page::last(items, revision) });
                }
            }
            if !answer.more {
                return Ok(Page::last(items, revision));
            }
            if in_pages && items.len() >= ENOUGH_MATCHES {
                let rest = self.pages(filter).after(&answer);
                return Ok(Page { rest, ..Page::last(items, revision) });
            }
            after = last;
        }
    }

    fn one(&self, name: &str, filter: &Filter) -> Result<Page, ApiError> {
        let key = format!("{}{name}", self.prefix);
        let answer = self.source.storage.get(&key, None).map_err(persist::storage_error)?;
        let items = self.matching(answer.item.as_slice(), filter)?;
        Ok(Page::last(items, answer.revision))
    }

    fn pages(&self, filter: &Filter) -> Pages {
        Pages {
            converter: Arc::clone(self.source.converter),
            storage: Arc::clone(self.source.storage),
            resource: Arc::clone(self.resource),
            type_meta: Arc::clone(&self.type_meta),
            prefix: self.prefix.as_str().into(),
            namespace: self.namespace.into(),
            is_from_start: false,
            filter: filter.clone(),
            at: Revision(0),
            after: None,
            limit: FIRST_PAGE,
            hold: None,
        }
    }

    fn next(&self, last: Option<&str>, revision: Revision, remaining: Option<u64>) -> Option<Continue> {
        let after = last?.strip_prefix(&*self.prefix)?.to_owned();
        Some(Continue { revision: Some(revision), after, remaining })
    }

    /// Returns the error for a page whose version is gone; the client may continue in the newest state.
    fn expired(&self, after: Option<&str>) -> ApiError {
        let after = after.and_then(|after| after.strip_prefix(&*self.prefix)).unwrap_or_default().to_owned();
        let continue_token = Continue { revision: None, after, remaining: None }.encode();
        ApiError { continue_token, ..ApiError::new(410, "Expired", EXPIRED_CONTINUE) }
    }
}
