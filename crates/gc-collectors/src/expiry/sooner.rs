//! Changes of retention annotations that bring a deletion nearer, which only users who may delete the object can make.

use std::sync::Arc;

use gc_types::{ForeignMark, Marks, Timestamp};

use super::{expires_at, foreign, time_to_live};

/// Reports whether a change makes a collector delete an object that it would have kept, or delete it earlier: a mark is added,
/// shortened, or made effective by the removal of `kubegc.io/keep` or of an invalid value.
///
/// Marks of all tools count, including those that are not enabled, because a mark outlives the flags of the process under which it
/// was written. `created` must be the same on both sides.
#[must_use]
pub fn deletes_sooner(new: &Marks, old: &Marks) -> bool {
    if old.keeps() && !new.keeps() {
        return true;
    }
    let (new, old) = (deadlines(new), deadlines(old));
    // An invalid value disables every mark of the object until it is changed.
    let enables = |(new, old): (&Deadline, &Deadline)| old.is_invalid() && new != old;
    if new.iter().zip(&old).any(enables) && new.iter().any(Deadline::is_set) {
        return true;
    }
    new.iter().zip(&old).any(|(new, old)| new.is_sooner_than(old))
}

/// Time at which one mark deletes an object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Deadline {
    Never,
    At(Timestamp),
    /// The text is invalid here, but perhaps not for another version.
    Invalid(Arc<str>),
}

impl Deadline {
    const fn is_invalid(&self) -> bool {
        matches!(self, Self::Invalid(_))
    }

    fn is_set(&self) -> bool {
        *self != Self::Never
    }

    fn is_sooner_than(&self, old: &Self) -> bool {
        match (self, old) {
            (Self::Never, _) => false,
            (Self::At(new), Self::At(old)) => new < old,
            (Self::At(_), Self::Never | Self::Invalid(_)) => true,
            (Self::Invalid(_), old) => self != old,
        }
    }
}

/// Returns the deadlines of all marks, always in the same order.
fn deadlines(marks: &Marks) -> Vec<Deadline> {
    // The end of a Job or Pod is unknown, but a duration counts from the same time on both sides.
    let begins = marks.created.unwrap_or_default();
    let marks = &Marks { created: Some(begins), ..marks.clone() };
    let ttl = marks.ttl.as_ref().map(|text| (text, time_to_live(text).map(|ttl| Some(begins.after(ttl)))));
    let at = marks.expires_at.as_ref().map(|text| (text, expires_at(text).map(Some)));
    let foreign = ForeignMark::ALL.map(|mark| {
        let text = marks.foreign(mark)?;
        Some((text, foreign::deadline(marks, mark, text)))
    });
    let parsed = [ttl, at].into_iter().chain(foreign);
    parsed
        .map(|mark| match mark {
            None | Some((_, Ok(None))) => Deadline::Never,
            Some((_, Ok(Some(at)))) => Deadline::At(at),
            Some((text, Err(_))) => Deadline::Invalid(Arc::clone(text)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    const NOON: &str = "2027-01-31T12:00:00Z";
    const LATER: &str = "2027-01-31T13:00:00Z";

    fn marks(texts: &[(&str, &str)]) -> Marks {
        let mut marks = Marks { created: Some(Timestamp(1_800_000_000_000)), ..Marks::default() };
        for (name, text) in texts {
            let text = Some(Arc::from(*text));
            match marks.label_mut(name.as_bytes()) {
                Some(place) => *place = text,
                None => *marks.annotation_mut(name.as_bytes()).unwrap() = text,
            }
        }
        marks
    }

    #[test]
    fn only_changes_that_bring_a_deletion_nearer_do() {
        const TTL: &str = "kubegc.io/ttl";
        const AT: &str = "kubegc.io/expires-at";
        const KEEP: &str = "kubegc.io/keep";
        const TWIN: &str = "k8s-ttl-controller.twin.sh/ttl";
        const REFRESHED: &str = "k8s-ttl-controller.twin.sh/refreshed-at";
        for (old, new, expected) in [
            (&[][..], &[][..], false),
            (&[], &[(TTL, "1s")], true),
            (&[], &[(TTL, "100w")], true),
            (&[], &[(TTL, "soon")], true),
            (&[(TTL, "1h")], &[], false),
            (&[(TTL, "1h")], &[(TTL, "60m")], false),
            (&[(TTL, "1h")], &[(TTL, "2h")], false),
            (&[(TTL, "1h")], &[(TTL, "59m")], true),
            (&[(TTL, "1h")], &[(TTL, "-1h")], true),
            (&[(TTL, "1h")], &[(TTL, "1h"), (AT, LATER)], true),
            (&[(AT, NOON)], &[(AT, LATER)], false),
            (&[(AT, LATER)], &[(AT, NOON)], true),
            (&[(AT, LATER), (TTL, "1h")], &[(TTL, "1h")], false),
            (&[], &[(KEEP, "true")], false),
            (&[], &[(KEEP, "false")], false),
            (&[(KEEP, "true")], &[], true),
            (&[(KEEP, "true")], &[(KEEP, "false")], true),
            (&[(KEEP, "true")], &[(KEEP, "yes")], false),
            (&[(KEEP, "true")], &[(KEEP, "true"), (TTL, "1s")], true),
            // Removing or fixing the invalid annotation makes the other one count.
            (&[(TTL, "soon"), (AT, NOON)], &[(AT, NOON)], true),
            (&[(TTL, "soon"), (AT, NOON)], &[(TTL, "9w"), (AT, NOON)], true),
            (&[(TTL, "soon")], &[], false),
            (&[(TTL, "soon")], &[(TTL, "soon")], false),
            (&[(TTL, "soon"), (AT, NOON)], &[(TTL, "soon")], false),
            (&[], &[("janitor/ttl", "forever")], false),
            (&[("janitor/ttl", "forever")], &[("janitor/ttl", "1h")], true),
            (&[("janitor/ttl", "1h")], &[("janitor/ttl", "forever")], false),
            (&[], &[("janitor/expires", "2027-01-31")], true),
            (&[], &[("cleanup.kyverno.io/ttl", "1h")], true),
            (&[("cleanup.kyverno.io/ttl", "1h")], &[("cleanup.kyverno.io/ttl", "2h")], false),
            (&[], &[(TWIN, "1h")], true),
            (&[], &[(REFRESHED, NOON)], false),
            (&[(REFRESHED, NOON)], &[(REFRESHED, NOON), (TWIN, "1h")], true),
            (&[(TWIN, "1h")], &[(TWIN, "1h"), (REFRESHED, LATER)], false),
            (&[(TWIN, "1h"), (REFRESHED, NOON)], &[(TWIN, "1h"), (REFRESHED, LATER)], false),
            (&[(TWIN, "1h"), (REFRESHED, LATER)], &[(TWIN, "1h"), (REFRESHED, NOON)], true),
            (&[(TWIN, "1h"), (REFRESHED, LATER)], &[(TWIN, "1h")], true),
        ] {
            assert_eq!(deletes_sooner(&marks(new), &marks(old)), expected, "{old:?} becomes {new:?}");
        }
    }
}
