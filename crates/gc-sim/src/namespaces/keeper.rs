//! One controller of namespaces: the real queue, memory and passes, and what has not reached them yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use gc_retention::namespaces::emptying::{Ask, AskId, Emptying, End, Reply};
use gc_retention::namespaces::memory::Memory;
use gc_retention::namespaces::queue::Queue;
use gc_types::Timestamp;
use serde_json::Value;

use crate::defects::Defect;

/// How long observations settle, milliseconds.
const SETTLE_MILLISECONDS: i64 = 1_000;
/// The defect that loses answers loses one of this many.
const LOST_ANSWERS: u64 = 5;

/// A request on its way.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) keeper: usize,
    pub(super) namespace: Arc<str>,
    /// Which pass of that keeper.
    pass: u64,
    id: AskId,
    pub(super) ask: Ask,
    /// The namespace as the pass read it last.
    pub(super) document: Arc<Value>,
    pub(super) uid: String,
    pub(super) sent: i64,
    /// The gate has held it back: its sender leads no longer.
    pub(super) gated: bool,
}

impl Flight {
    pub(super) fn changes_something(&self) -> bool {
        !matches!(self.ask, Ask::Read | Ask::Discover | Ask::List(_))
    }
}

/// An answer on its way.
#[derive(Clone, Debug)]
pub(super) struct Mail {
    pub(super) flight: Flight,
    pub(super) reply: Reply,
    /// The namespace, if it was read.
    pub(super) read: Option<Value>,
}

#[derive(Debug)]
struct Running {
    number: u64,
    pass: Emptying,
    document: Arc<Value>,
}

#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) number: usize,
    queue: Queue,
    memory: Memory,
    running: BTreeMap<Arc<str>, Running>,
    begun: u64,
    heard: u64,
    /// It is suspended, and receives and sends nothing.
    pub(super) paused: bool,
    /// It was paused, and another one leads since: nothing that changes anything leaves it.
    pub(super) deposed: bool,
    /// How far its wall clock is off, milliseconds.
    pub(super) clock_error: i64,
    /// Answers that have not reached it.
    pub(super) mail: Vec<Mail>,
    pub(super) defect: Option<Defect>,
}

impl Keeper {
    pub(super) fn new(number: usize, defect: Option<Defect>) -> Self {
        Self {
            number,
            queue: Queue::new(SETTLE_MILLISECONDS),
            memory: Memory::default(),
            running: BTreeMap::new(),
            begun: 0,
            heard: 0,
            paused: false,
            deposed: false,
            clock_error: 0,
            mail: Vec::new(),
            defect,
        }
    }

    /// It begins to lead, and finds these terminating.
    pub(super) fn lead(&mut self, terminating: &[Arc<str>], now: i64) {
        if self.defect != Some(Defect::NamespaceInheritanceRefused) {
            self.memory.inherit(terminating, Timestamp(now));
        }
        for name in terminating {
            self.listed(name, now);
        }
    }

    /// A namespace is terminating, or has changed since.
    pub(super) fn heard(&mut self, name: &Arc<str>, now: i64) {
        self.queue.heard(name, Timestamp(now));
    }

    /// A look through all namespaces has found it terminating.
    pub(super) fn listed(&mut self, name: &Arc<str>, now: i64) {
        self.queue.listed(name, Timestamp(now));
    }

    /// Begins what is due, and asks for so much. Returns what is asked for.
    pub(super) fn ask(&mut self, most: usize, now: i64) -> Vec<Flight> {
        while let Some(name) = self.queue.begin(Timestamp(now)) {
            self.begun += 1;
            let pass = Emptying::new(&name, false);
            self.running.insert(name, Running { number: self.begun, pass, document: Arc::default() });
        }
        let mut flights = Vec::new();
        let names: Vec<Arc<str>> = self.running.keys().cloned().collect();
        for name in names {
            let Some(running) = self.running.get_mut(&name) else { continue };
            while flights.len() < most
                && let Some((id, ask)) = running.pass.ask(&mut self.memory, Timestamp(now))
            {
                let mut flight = Flight {
                    keeper: self.number,
                    namespace: Arc::clone(&name),
                    pass: running.number,
                    id,
                    ask,
                    document: Arc::clone(&running.document),
                    uid: running.pass.view().uid.clone(),
                    sent: now,
                    gated: false,
                };
                flight.gated = self.deposed && flight.changes_something();
                flights.push(flight);
            }
            self.end_pass(&name, now);
        }
        flights
    }

    /// Takes an answer.
    pub(super) fn take(&mut self, mail: Mail, now: i64) {
        self.heard += 1;
        if self.defect == Some(Defect::NamespaceAnswersLost) && self.heard.is_multiple_of(LOST_ANSWERS) {
            return;
        }
        let Mail { flight, reply, read } = mail;
        let Some(running) = self.running.get_mut(&flight.namespace) else { return };
        if running.number != flight.pass {
            return;
        }
        running.pass.heard(&mut self.memory, flight.id, reply, Timestamp(now));
        if let Some(read) = read {
            running.document = Arc::new(read);
        }
        self.end_pass(&flight.namespace, now);
    }

    fn end_pass(&mut self, name: &Arc<str>, now: i64) {
        let end: Option<End> = self.running.get(name).and_then(|running| running.pass.end().cloned());
        if let Some(end) = end {
            self.running.remove(name);
            self.queue.ended(name, &end, Timestamp(now));
        }
    }

    /// When it does something by itself again.
    pub(super) fn next_wakeup(&self) -> Option<i64> {
        let passes = self.running.values().filter_map(|running| running.pass.next_wakeup());
        passes.chain(self.queue.next_wakeup()).min().map(|at| at.0)
    }

    /// What it remembers of namespaces, and how many wait or are in a pass: nothing where none is terminating.
    pub(super) fn burden(&self) -> (usize, usize) {
        (self.memory.namespaces(), self.queue.len())
    }
}
