//! History of one object in an audit log: of the last object with its name, the deletion that began its end.

use jiff::Timestamp;

/// Facts of one object that are remembered, the newest.
const FACTS: usize = 200;

/// Evidence that a request was about the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// By its name.
    Name,
    /// The answer lists what was deleted, and the object among it.
    List,
    /// It was about all objects in the namespace.
    All,
    /// It was about all that have some labels or fields, and nothing says which these were.
    Selection,
}

/// A deletion that the server accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deletion {
    pub(crate) about: Relation,
    pub(crate) user: String,
    /// The object was gone at once.
    pub(super) has_ended: bool,
    /// For people.
    pub(crate) line: String,
}

/// Known events, in any order.
#[derive(Debug, Default)]
pub(super) struct History {
    facts: Vec<(Timestamp, Option<Deletion>)>,
    /// Objects of its kind were seen to be created: the log has creations.
    has_creations: bool,
}

/// The deletion that began the end of an object, and what else was asked.
#[derive(Debug, Default)]
struct End {
    /// Its user had a selection that may have had the object.
    before: Option<(Timestamp, Deletion)>,
    first: Option<(Timestamp, Deletion)>,
    later: Option<String>,
}

impl History {
    /// An object of the kind was created; this one, if the names are equal.
    pub(crate) fn created(&mut self, at: Timestamp, is_this: bool) {
        self.has_creations = true;
        if is_this {
            self.add(at, None);
        }
    }

    /// It was deleted, as far as is known.
    pub(crate) fn deleted(&mut self, at: Timestamp, deletion: Deletion) {
        // A component that empties a namespace tries again and again.
        let repeats = |(_, last): &(Timestamp, Option<Deletion>)| {
            last.as_ref().is_some_and(|last| last.user == deletion.user && last.about == deletion.about)
        };
        if deletion.about == Relation::All && self.facts.last().is_some_and(repeats) {
            return;
        }
        self.add(at, Some(deletion));
    }

    fn add(&mut self, at: Timestamp, fact: Option<Deletion>) {
        if self.facts.len() >= FACTS {
            self.facts.remove(0);
        }
        self.facts.push((at, fact));
    }

    /// Reports whether it has a deletion.
    pub(super) fn has_deletion(&self) -> bool {
        self.facts.iter().any(|(_, fact)| fact.is_some())
    }

    /// When the end of the last object of the name began, and the lines about it for people.
    pub(crate) fn end(mut self) -> Option<(Timestamp, Vec<String>)> {
        // Logs of several servers may have been put together.
        self.facts.sort_by_key(|(at, _)| *at);
        let mut end = End::default();
        for (at, fact) in self.facts {
            match fact {
                None => end = End::default(),
                Some(deletion) => end.note(at, deletion, self.has_creations),
            }
        }
        let End { before, first, later } = end;
        let began = first.as_ref().or(before.as_ref())?.0;
        let lines = before.into_iter().chain(first).map(|(_, deletion)| deletion.line);
        Some((began, lines.chain(later).collect()))
    }
}

impl End {
    fn note(&mut self, at: Timestamp, deletion: Deletion, has_creations: bool) {
        let is_certain = matches!(deletion.about, Relation::Name | Relation::List);
        match &self.first {
            None if deletion.about == Relation::Selection => self.before = Some((at, deletion)),
            None => self.first = Some((at, deletion)),
            // There was another one, whose creation is not in the log.
            Some((_, first)) if is_certain && first.has_ended => {
                *self = Self { first: Some((at, deletion)), ..Self::default() };
            }
            Some((_, first)) if is_certain && first.user != deletion.user => {
                self.later = Some(format!("again: {}", deletion.line));
            }
            Some(_) if is_certain || has_creations => {}
            Some(_) => self.later = Some(format!("later, if it was created again: {}", deletion.line)),
        }
    }
}
