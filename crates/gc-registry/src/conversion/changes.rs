//! Converts changes for watches. A watch is polled where nothing may block, so the webhook is called on another thread, once for
//! all watches of a version that wait for the same changes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{Converter, NO_HURRY};
use crate::error::ApiError;
use crate::hub::Entry;
use crate::metadata::object::TypeMeta;
use crate::resource::ResourceDefinition;

/// Conversions of changes in progress.
#[derive(Debug, Default)]
pub(crate) struct Changes(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    outcome: Option<Result<(), ApiError>>,
    /// Wakers of the waiting watches.
    waiting: Vec<Waker>,
}

/// A watch that waits for changes.
#[derive(Debug)]
pub(crate) struct WaitingWatch {
    changes: Arc<Changes>,
    place: Option<usize>,
}

impl WaitingWatch {
    pub(crate) fn new(changes: Arc<Changes>) -> Self {
        Self { changes, place: None }
    }

    /// Ready when the changes can be seen, or could not be converted.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ApiError>> {
        let mut progress = self.changes.lock();
        if let Some(outcome) = &progress.outcome {
            return Poll::Ready(outcome.clone());
        }
        match self.place {
            Some(place) => progress.waiting[place].clone_from(context.waker()),
            None => {
                self.place = Some(progress.waiting.len());
                progress.waiting.push(context.waker().clone());
            }
        }
        Poll::Pending
    }
}

impl Changes {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, outcome: Result<(), ApiError>) {
        let waiting = {
            let mut progress = self.lock();
            progress.outcome.get_or_insert(outcome);
            std::mem::take(&mut progress.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// A conversion in progress. If it is dropped early, it counts as failed, so that no watch waits forever.
struct Work {
    entries: Vec<Arc<Entry>>,
    resource: Arc<ResourceDefinition>,
    type_meta: Arc<TypeMeta>,
    changes: Arc<Changes>,
}

impl Drop for Work {
    fn drop(&mut self) {
        // A converted entry already has its view.
        for entry in &self.entries {
            entry.release(&self.changes);
        }
        self.changes.finish(Err(ApiError::internal("changes were not converted")));
    }
}

impl Work {
    fn run(self, converter: &Converter) {
        let stored = self.entries.iter().flat_map(|entry| entry.states());
        let outcome =
            converter.present_all(&self.resource, &self.type_meta, stored, NO_HURRY).map(|objects| {
                let mut objects = objects.into_iter().map(Arc::new);
                for entry in &self.entries {
                    entry.show(&self.type_meta.api_version, &self.changes, &mut objects);
                }
            });
        if outcome.is_err() {
            for entry in &self.entries {
                entry.release(&self.changes);
            }
        }
        self.changes.finish(outcome);
    }
}

impl Converter {
    /// Converts changes on another thread, skipping those whose conversion has already begun.
    pub(crate) fn convert_changes<'e>(
        self: &Arc<Self>,
        entries: impl Iterator<Item = &'e Arc<Entry>>,
        resource: &Arc<ResourceDefinition>,
        type_meta: &Arc<TypeMeta>,
    ) -> Arc<Changes> {
        let changes = Arc::new(Changes::default());
        let entries =
            entries.filter(|entry| entry.claim(&type_meta.api_version, &changes)).cloned().collect();
        let (resource, type_meta) = (Arc::clone(resource), Arc::clone(type_meta));
        let work = Work { entries, resource, type_meta, changes: Arc::clone(&changes) };
        match self.outside() {
            Some(outside) => {
                let converter = Arc::clone(self);
                outside.spawn(Box::new(move || work.run(&converter)));
            }
            None => work.run(self),
        }
        changes
    }
}
