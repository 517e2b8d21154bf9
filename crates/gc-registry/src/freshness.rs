//! Freshness of the configuration that decides requests.
//!
//! Definitions of custom resources, webhooks and policies are read from the store after each change, by every server on it. A
//! change counts as known when it was read, not when it was noticed: a failed read is repeated.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::error::ApiError;
use crate::storage::Revision;

/// Part of the configuration that is read as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// Definitions of custom resources.
    Definitions,
    /// Webhooks and admission policies.
    Admission,
}

/// State of one subject.
#[derive(Debug, Default)]
struct Reading {
    /// Revision of the last change noticed.
    changed: Revision,
    /// Revision of the last state read.
    read: Revision,
    /// Error of the last read, if it failed.
    failure: Option<Arc<str>>,
}

impl Reading {
    fn is_stale(&self) -> bool {
        self.failure.is_some() || self.changed > self.read
    }
}

#[derive(Debug, Default)]
struct State {
    definitions: Reading,
    admission: Reading,
    /// Waker of the task that reads.
    waker: Option<Waker>,
}

impl State {
    fn of(&mut self, subject: Subject) -> &mut Reading {
        match subject {
            Subject::Definitions => &mut self.definitions,
            Subject::Admission => &mut self.admission,
        }
    }
}

/// Freshness of all subjects; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Freshness(Mutex<State>);

impl Freshness {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a change of a subject, and wakes the parked task.
    pub(crate) fn changed(&self, subject: Subject, at: Revision) {
        let mut state = self.lock();
        let reading = state.of(subject);
        reading.changed = reading.changed.max(at);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Records that the state of a subject at a revision was read and is in force.
    pub(crate) fn read(&self, subject: Subject, at: Revision) {
        let mut state = self.lock();
        let reading = state.of(subject);
        reading.read = reading.read.max(at);
        reading.failure = None;
    }

    /// Records that a subject could not be read, and wakes the parked task.
    pub(crate) fn failed(&self, subject: Subject, why: &str) {
        let mut state = self.lock();
        state.of(subject).failure = Some(why.into());
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Reports whether a subject must be read again.
    pub(crate) fn is_stale(&self, subject: Subject) -> bool {
        self.lock().of(subject).is_stale()
    }

    /// Stores the waker of the reading task, unless there is something to read now.
    pub(crate) fn park(&self, waker: &Waker) -> bool {
        let mut state = self.lock();
        if state.definitions.is_stale() || state.admission.is_stale() {
            return false;
        }
        match &mut state.waker {
            Some(kept) => kept.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        true
    }

    /// Explains why the configuration in force may be outdated and cannot be read now; `None` if it is not.
    pub(crate) fn problem(&self) -> Option<String> {
        let mut state = self.lock();
        let mut text = |subject| state.of(subject).failure.as_ref().map(|why| unread(subject, why));
        text(Subject::Definitions).or_else(|| text(Subject::Admission))
    }

    /// Fails with a 503 while a subject may have changed and cannot be read.
    pub(crate) fn check(&self, subject: Subject) -> Result<(), ApiError> {
        match &self.lock().of(subject).failure {
            None => Ok(()),
            Some(why) => Err(unavailable(subject, why)),
        }
    }
}

fn unread(subject: Subject, why: &str) -> String {
    let what = match subject {
        Subject::Definitions => "the definitions of custom resources",
        Subject::Admission => "the admission webhooks and policies",
    };
    format!("{what} may have changed and cannot be read: {why}")
}

fn unavailable(subject: Subject, why: &str) -> ApiError {
    ApiError::new(503, "ServiceUnavailable", unread(subject, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_known_when_it_was_read() {
        let fresh = Freshness::default();
        assert!(fresh.park(Waker::noop()));
        fresh.changed(Subject::Admission, Revision(7));
        assert!(!fresh.park(Waker::noop()) && fresh.is_stale(Subject::Admission));
        assert!(fresh.check(Subject::Admission).is_ok(), "it is being read");
        fresh.failed(Subject::Admission, "gone");
        let refused = fresh.check(Subject::Admission).map_err(|error| error.code);
        assert_eq!((refused, fresh.check(Subject::Definitions).is_ok()), (Err(503), true));
        fresh.read(Subject::Admission, Revision(6));
        assert!(fresh.is_stale(Subject::Admission), "an older state does not have the change");
        fresh.read(Subject::Admission, Revision(7));
        assert!(fresh.park(Waker::noop()));
        assert_eq!(fresh.problem(), None);
    }
}
