//! The loop of the namespace controller: which terminating namespace gets a pass when, what its passes ask of the server, and
//! what they remember for later ones.
//!
//! A pass decides by itself ([`Emptying`]), and so does the queue of namespaces ([`Queue`]). [`Passes`] connects them: it
//! begins passes, hands out their questions, takes the answers in any order and reports how passes have ended. It neither
//! sends nor waits: `kubegc` drives it over HTTP, and `gc-sim` over the registry.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use gc_retention::namespaces::emptying::{Ask, AskId, Emptying, End, Reply, View};
use gc_retention::namespaces::memory::Memory;
use gc_retention::namespaces::queue::Queue;
use gc_types::{Timestamp, Uid};
use serde_json::Value;

/// A question of a pass to the server.
#[derive(Clone, Debug)]
pub struct Question {
    /// The namespace that the pass is about.
    pub namespace: Arc<str>,
    /// What to ask.
    pub ask: Ask,
    /// The namespace as the pass has read it last.
    pub view: Arc<View>,
    /// The same as the server wrote it: what is written to the namespace is written into this.
    pub document: Arc<Value>,
    pass: u64,
    id: AskId,
}

impl Question {
    /// Whether it may change something.
    #[must_use]
    pub fn changes(&self) -> bool {
        !matches!(self.ask, Ask::Read | Ask::Discover | Ask::List(_))
    }
}

/// The answer to a question.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What the server said.
    pub reply: Reply,
    /// The namespace, if it was read.
    pub read: Option<Value>,
}

/// A pass that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The namespace.
    pub namespace: Arc<str>,
    /// Its UID, if the pass has seen it.
    pub uid: Option<Uid>,
    /// How the pass ended.
    pub end: End,
}

#[derive(Debug)]
struct Running {
    number: u64,
    pass: Emptying,
    view: Arc<View>,
    document: Arc<Value>,
}

/// The passes over all terminating namespaces. See the module.
#[derive(Debug)]
pub struct Passes {
    queue: Queue,
    memory: Memory,
    /// The passes under way, of which the queue bounds the number.
    running: BTreeMap<Arc<str>, Running>,
    next_number: u64,
    is_dry_run: bool,
    /// The namespaces in which only others have something left to do.
    waiting_for_others: BTreeSet<Arc<str>>,
    ended: VecDeque<Ended>,
}

impl Passes {
    /// No namespace is known. A dry run deletes and writes nothing.
    #[must_use]
    pub fn new(settle_milliseconds: i64, is_dry_run: bool) -> Self {
        Self {
            queue: Queue::new(settle_milliseconds),
            memory: Memory::default(),
            running: BTreeMap::new(),
            next_number: 0,
            is_dry_run,
            waiting_for_others: BTreeSet::new(),
            ended: VecDeque::new(),
        }
    }

    // ---- observe ----

    /// These namespaces were found terminating before the first pass, at a time when a predecessor may still have had requests
    /// on their way.
    pub fn inherit(&mut self, terminating: &[Arc<str>], then: Timestamp) {
        self.memory.inherit(terminating, then);
    }

    /// A namespace is terminating, or has changed since.
    pub fn observed(&mut self, name: &Arc<str>, now: Timestamp) {
        self.queue.heard(name, now);
    }

    /// A list of all namespaces has found it terminating.
    pub fn listed(&mut self, name: &Arc<str>, now: Timestamp) {
        self.queue.listed(name, now);
    }

    /// Something may have changed in every namespace: none waits for its next pass any longer.
    pub fn hurry(&mut self, now: Timestamp) {
        self.waiting_for_others.clear();
        self.queue.hurry(now);
    }

    // ---- act ----

    /// The next question for the server, if there is one now. While `is_held`, no pass begins; those under way continue.
    pub fn poll_question(&mut self, is_held: bool, now: Timestamp) -> Option<Question> {
        while !is_held && let Some(name) = self.queue.begin(now) {
            self.begin(name);
        }
        let names: Vec<Arc<str>> = self.running.keys().cloned().collect();
        names.iter().find_map(|name| {
            let question = self.question_of(name, now);
            self.end_pass(name, now);
            question
        })
    }

    fn begin(&mut self, name: Arc<str>) {
        self.waiting_for_others.remove(&name);
        let pass = Emptying::new(&name, self.is_dry_run);
        let number = self.next_number;
        self.next_number += 1;
        self.running.insert(name, Running { number, pass, view: Arc::default(), document: Arc::default() });
    }

    fn question_of(&mut self, name: &Arc<str>, now: Timestamp) -> Option<Question> {
        let Running { number, pass, view, document } = self.running.get_mut(name)?;
        let (id, ask) = pass.ask(&mut self.memory, now)?;
        let (view, document) = (Arc::clone(view), Arc::clone(document));
        Some(Question { namespace: Arc::clone(name), ask, view, document, pass: *number, id })
    }

    /// Takes the answer to a question.
    pub fn answered(&mut self, question: &Question, answer: Answer, now: Timestamp) {
        let Some(running) = self.running.get_mut(&question.namespace) else { return };
        if running.number != question.pass {
            return;
        }
        running.pass.heard(&mut self.memory, question.id, answer.reply, now);
        if let Some(read) = answer.read {
            running.document = Arc::new(read);
            running.view = Arc::new(running.pass.view().clone());
        }
        self.end_pass(&question.namespace, now);
    }

    fn end_pass(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(end) = self.running.get(name).and_then(|running| running.pass.end()).cloned() else {
            return;
        };
        let Some(Running { pass, .. }) = self.running.remove(name) else { return };
        self.queue.ended(name, &end, now);
        if pass.waits_for_others() {
            self.waiting_for_others.insert(Arc::clone(name));
        }
        let uid = Some(&*pass.view().uid).filter(|uid| !uid.is_empty()).map(Uid::new);
        self.ended.push_back(Ended { namespace: Arc::clone(name), uid, end });
    }

    /// The next pass that has ended, of those that were not reported yet.
    pub fn poll_end(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    // ---- rest ----

    /// When there is something to do again, if no answer comes before.
    #[must_use]
    pub fn next_wakeup(&self, is_held: bool) -> Option<Timestamp> {
        let passes = self.running.values().filter_map(|running| running.pass.next_wakeup());
        passes.chain(self.queue.next_wakeup().filter(|_| !is_held)).min()
    }

    /// How many namespaces wait for a pass or are in one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no namespace waits for a pass or is in one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// In how many of those only others have something left to do.
    #[must_use]
    pub fn waiting_for_others(&self) -> usize {
        self.waiting_for_others.len()
    }

    /// How many namespaces something is remembered of.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.memory.namespaces()
    }
}

#[cfg(test)]
mod tests;
