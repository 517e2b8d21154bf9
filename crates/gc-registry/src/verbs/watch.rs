//! API watches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::filter::Filter;
use super::list::{self, Source};
use crate::api::{ListOptions, ListRest, RequestTarget, VersionMatch, WatchEvent};
use crate::conversion::{Converter, NO_HURRY, WaitingWatch};
use crate::error::{ApiError, CauseReason, FieldError};
use crate::hub::{Entry, Hub, NO_WATCHER, Read, Sight, View};
use crate::metadata::object::{Object, TypeMeta};
use crate::persist;
use crate::resource::ResourceDefinition;
use crate::storage::{Revision, Storage};

/// A running watch. Dropping it ends it.
pub struct Watch {
    hub: Arc<Hub>,
    prefix: Box<str>,
    scope: Arc<str>,
    exact: bool,
    id: u64,
    resource: Arc<ResourceDefinition>,
    type_meta: Arc<TypeMeta>,
    filter: Filter,
    /// Revision up to which changes are part of the initial state.
    start: Revision,
    initial: VecDeque<Arc<Object>>,
    /// Remaining objects of the initial state.
    rest: Option<ListRest>,
    /// True if a bookmark follows the initial state.
    announce_end: bool,
    waiting: VecDeque<Arc<Entry>>,
    /// Error that ends the watch before it begins.
    failed: Option<ApiError>,
    ended: bool,
    converter: Arc<Converter>,
    /// Conversion that the next event waits for.
    converting: Option<WaitingWatch>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("scope", &self.scope)
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.hub.unsubscribe(&self.prefix, self.id);
    }
}

fn validate(options: &ListOptions) -> Result<(), ApiError> {
    let asked = options.send_initial_events.is_some();
    let forbidden = |why: &str| FieldError {
        field: "resourceVersionMatch".into(),
        reason: CauseReason::Forbidden,
        detail: format!("Forbidden: {why}"),
    };
    // A watch from any version receives the initial events, as if it had requested them.
    let from_any_version = matches!(options.resource_version.as_str(), "" | "0");
    let mut errors = Vec::new();
    match options.resource_version_match {
        None if !options.continue_token.is_empty() && (asked || from_any_version) => {
            errors.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
        }
        None | Some(VersionMatch::Exact) if asked => {
            errors.push(forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
        }
        Some(_) if !asked => errors.push(forbidden(
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
        _ => {}
    }
    if options.resource_version_match == Some(VersionMatch::Exact) {
        errors.push(FieldError {
            field: "resourceVersionMatch".into(),
            reason: CauseReason::NotSupported,
            detail: "Unsupported value: \"Exact\": supported values: \"NotOlderThan\"".into(),
        });
    }
    if options.resource_version_match.is_some() && !options.continue_token.is_empty() {
        errors.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors)) }
}

impl Watch {
    pub(crate) fn start(
        converter: &Arc<Converter>,
        storage: &Arc<dyn Storage>,
        hub: &Arc<Hub>,
        target: &RequestTarget,
        options: &ListOptions,
    ) -> Result<Self, ApiError> {
        validate(options)?;
        let resource = &target.resource;
        let filter = Filter::parse(resource, options)?;
        let requested = list::parse_version_of_get(&options.resource_version)?;
        let name = if target.name.is_empty() { filter.exact_name() } else { Some(target.name.as_str()) };
        let exact = name.is_some() && (!target.namespace.is_empty() || !resource.namespaced());
        let mut scope = persist::collection_prefix(resource, &target.namespace);
        if exact {
            scope.push_str(name.unwrap_or_default());
        }
        let prefix = persist::resource_prefix(resource).into_boxed_str();
        let type_meta = persist::type_meta(resource);
        let from_now = options.send_initial_events == Some(false) && requested.0 == 0;
        let with_state = options.send_initial_events.unwrap_or(requested.0 == 0);
        let (mut initial, mut rest) = (VecDeque::new(), None);
        let start = if with_state {
            let newest = storage.revision().map_err(persist::storage_error)?;
            if requested > newest {
                return Err(persist::too_large_version(requested, newest));
            }
            let source = Source { converter, storage, time_left: NO_HURRY };
            let state = list::everything(source, target, &scope, exact, &filter)?;
            initial.extend(state.items);
            rest = state.rest;
            state.revision
        } else if from_now {
            storage.revision().map_err(persist::storage_error)?
        } else {
            requested
        };
        let scope: Arc<str> = scope.into();
        // A version that is too old is reported within the stream, as upstream does.
        let (id, failed) = match hub.subscribe(&prefix, Arc::clone(&scope), exact, start) {
            Ok(id) => (id, None),
            Err(oldest) => (NO_WATCHER, Some(expired(start, oldest))),
        };
        let announce_end = options.send_initial_events == Some(true) && options.allow_watch_bookmarks;
        Ok(Self {
            hub: Arc::clone(hub),
            prefix,
            scope,
            exact,
            id,
            resource: Arc::clone(resource),
            type_meta,
            filter,
            start,
            initial,
            rest,
            announce_end,
            waiting: VecDeque::new(),
            failed,
            ended: false,
            converter: Arc::clone(converter),
            converting: None,
        })
    }

    /// Returns the next event; `Ready(None)` ends the watch, after [`WatchEvent::Error`] if there was an error.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(error) = self.failed.take() {
            return self.fail(error);
        }
        while self.initial.is_empty()
            && let Some(rest) = &mut self.rest
        {
            match rest.read() {
                Ok(page) if page.is_empty() => self.rest = None,
                Ok(page) => self.initial.extend(page),
                Err(error) => return self.fail(error),
            }
        }
        if let Some(object) = self.initial.pop_front() {
            return Poll::Ready(Some(WatchEvent::Added(object)));
        }
        if std::mem::take(&mut self.announce_end) {
            let resource_version = self.start.to_string();
            return Poll::Ready(Some(WatchEvent::Bookmark { resource_version, initial_events_end: true }));
        }
        loop {
            if let Some(converting) = &mut self.converting {
                match converting.poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(())) => self.converting = None,
                    Poll::Ready(Err(error)) => return self.fail(error),
                }
            }
            while let Some(entry) = self.waiting.front() {
                let event = if self.concerns(entry) {
                    match entry.view(&self.resource, &self.type_meta) {
                        Ok(Sight::View(view)) => self.event(view),
                        Ok(Sight::Converting(changes)) => {
                            self.converting = Some(WaitingWatch::new(changes));
                            break;
                        }
                        Ok(Sight::Foreign) => {
                            let concerning = self.waiting.iter().filter(|entry| self.concerns(entry));
                            let changes =
                                self.converter.convert_changes(concerning, &self.resource, &self.type_meta);
                            self.converting = Some(WaitingWatch::new(changes));
                            break;
                        }
                        Err(error) => Err(error),
                    }
                } else {
                    Ok(None)
                };
                self.waiting.pop_front();
                match event {
                    Ok(None) => {}
                    Ok(Some(event)) => return Poll::Ready(Some(event)),
                    Err(error) => return self.fail(error),
                }
            }
            if self.converting.is_some() {
                continue;
            }
            match self.hub.read(&self.prefix, self.id, context) {
                Read::Entries(entries) => self.waiting.extend(entries),
                Read::Parked => return Poll::Pending,
                Read::Expired => return self.fail(expired(self.start, Revision::default())),
                Read::Ended => {
                    self.ended = true;
                    return Poll::Ready(None);
                }
            }
        }
    }

    fn fail(&mut self, error: ApiError) -> Poll<Option<WatchEvent>> {
        self.ended = true;
        Poll::Ready(Some(WatchEvent::Error(error)))
    }

    /// Reports whether a change may be an event of this watch.
    fn concerns(&self, entry: &Entry) -> bool {
        let is_in_scope =
            if self.exact { *entry.key == *self.scope } else { entry.key.starts_with(&*self.scope) };
        is_in_scope && entry.revision > self.start
    }

    /// Converts a change for this watch: an object that begins or ceases to match is added or deleted (spec
    /// 5).
    fn event(&self, view: View) -> Result<Option<WatchEvent>, ApiError> {
        let matching = |object: Option<Arc<Object>>| match object {
            Some(object) => Ok::<_, ApiError>(self.filter.matches(&object)?.then_some(object)),
            None => Ok(None),
        };
        Ok(match (matching(view.old)?, matching(view.new)?) {
            (None, Some(new)) => Some(WatchEvent::Added(new)),
            (Some(_), Some(new)) => Some(WatchEvent::Modified(new)),
            (Some(old), None) => Some(WatchEvent::Deleted(old)),
            (None, None) => None,
        })
    }

    /// Returns a bookmark at the newest version seen by this watch, for the server's timer (about once per minute, if the client
    /// allows bookmarks). Returns `None` while events are waiting to be read.
    #[must_use]
    pub fn bookmark(&self) -> Option<WatchEvent> {
        let is_initial = self.announce_end || !self.initial.is_empty() || self.rest.is_some();
        if self.ended || is_initial || !self.waiting.is_empty() {
            return None;
        }
        let progress = self.hub.caught_up(&self.prefix, self.id)?;
        let resource_version = progress.max(self.start).to_string();
        Some(WatchEvent::Bookmark { resource_version, initial_events_end: false })
    }
}

fn expired(requested: Revision, oldest: Revision) -> ApiError {
    ApiError::new(410, "Expired", format!("too old resource version: {requested} ({oldest})"))
}
