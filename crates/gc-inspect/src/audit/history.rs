//! History of the last object with a name in an audit log: the deletion that began its end.

use jiff::Timestamp;

/// Maximum number of facts kept about one object; the newest are kept.
const FACTS: usize = 200;

/// Evidence that a request was about the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// By its name.
    Name,
    /// The response lists the deleted objects, including this one.
    List,
    /// The request was about all objects in the namespace.
    All,
    /// The request was about all objects with certain labels or fields, and nothing shows which these were.
    Selection,
}

/// A deletion that the server accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deletion {
    pub(crate) about: Relation,
    pub(crate) user: String,
    /// True if the object was gone immediately.
    pub(super) has_ended: bool,
    /// Human-readable line.
    pub(crate) line: String,
}

/// Known events, in any order.
#[derive(Debug, Default)]
pub(super) struct History {
    facts: Vec<(Timestamp, Option<Deletion>)>,
    /// True if creations of its kind were seen, so the log includes them.
    has_creations: bool,
}

/// The deletion that began the end of an object, and related requests.
#[derive(Debug, Default)]
struct End {
    /// An earlier deletion by selection that may have included the object.
    before: Option<(Timestamp, Deletion)>,
    first: Option<(Timestamp, Deletion)>,
    later: Option<String>,
}

impl History {
    /// Records that an object of the kind was created; this one, if the names are equal.
    pub(crate) fn created(&mut self, at: Timestamp, is_this: bool) {
        self.has_creations = true;
        if is_this {
            self.add(at, None);
        }
    }

    /// Records a possible deletion of the object.
    pub(crate) fn deleted(&mut self, at: Timestamp, deletion: Deletion) {
        // A component that empties a namespace keeps retrying.
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

    /// Returns the time at which the end of the last object with the name began, and the human-readable lines about it.
    pub(crate) fn end(mut self) -> Option<(Timestamp, Vec<String>)> {
        // Logs of several servers may have been concatenated.
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
            // There was another object, whose creation is not in the log.
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
