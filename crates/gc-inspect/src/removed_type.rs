//! Types that the server no longer serves. A journal and an audit log have plural names and groups, a journal also has kinds, and
//! neither has short names.

use std::collections::BTreeSet;

/// Resource that the user means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meant {
    /// `widgets.example.com`
    pub(crate) resource: String,
    /// Remark that it is a guess, if only its letters suggest it.
    pub(crate) guess: Option<String>,
}

/// The word matches several resources.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} may be {}: name one of them", .resources.join(" or "))]
pub(crate) struct Ambiguous {
    word: String,
    resources: Vec<String>,
}

/// Returns the one of these resources (each with its kind, if known) that a word means. A matching name takes precedence over an
/// abbreviation.
pub(crate) fn meant<'a>(
    word: &str,
    resources: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<Option<Meant>, Ambiguous> {
    let (mut named, mut alike) = (BTreeSet::new(), BTreeSet::new());
    for (resource, kind) in resources {
        if is_name(word, resource, kind) {
            named.insert(resource);
        } else if may_abbreviate(word, resource) {
            alike.insert(resource);
        }
    }
    let (fitting, is_guess) = if named.is_empty() { (alike, true) } else { (named, false) };
    let mut fitting = fitting.into_iter();
    match (fitting.next(), fitting.next()) {
        (None, _) => Ok(None),
        (Some(only), None) => Ok(Some(Meant {
            resource: only.to_owned(),
            guess: is_guess.then(|| {
                format!("{word} is taken for {only} by its letters: short names of types that are gone are not known")
            }),
        })),
        (Some(first), Some(second)) => {
            let resources = [first, second].into_iter().chain(fitting).map(str::to_owned).collect();
            Err(Ambiguous { word: word.to_owned(), resources })
        }
    }
}

/// Reports whether a word may mean a resource at all.
pub(crate) fn may_mean(word: &str, resource: &str) -> bool {
    is_name(word, resource, "") || may_abbreviate(word, resource)
}

/// Splits a word into the lower-case name, and the group if there is one.
fn parts(word: &str) -> (String, Option<String>) {
    let word = word.to_lowercase();
    match word.split_once('.') {
        Some((name, group)) => (name.to_owned(), Some(group.to_owned())),
        None => (word, None),
    }
}

fn split(resource: &str) -> (&str, &str) {
    resource.split_once('.').unwrap_or((resource, ""))
}

/// Reports whether a word is the plural or singular name of a resource, or its kind, with or without the group.
fn is_name(word: &str, resource: &str, kind: &str) -> bool {
    let (word, asked_group) = parts(word);
    let (plural, group) = split(resource);
    let is_plural_of = |plural: &str| {
        let by_y = word.strip_suffix('y').map(|stem| format!("{stem}ies"));
        plural == word
            || plural == format!("{word}s")
            || plural == format!("{word}es")
            || by_y.as_deref() == Some(plural)
    };
    asked_group.is_none_or(|asked| asked == group)
        && !word.is_empty()
        && (is_plural_of(plural) || word == kind.to_lowercase())
}

/// Reports whether a word may abbreviate a resource: its letters occur in the plural name in this order, starting with the first.
fn may_abbreviate(word: &str, resource: &str) -> bool {
    let (word, asked_group) = parts(word);
    let (plural, group) = split(resource);
    let mut letters = plural.chars();
    asked_group.is_none_or(|asked| asked == group)
        && word.chars().next() == plural.chars().next()
        && word.chars().all(|wanted| letters.any(|letter| letter == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_found_by_its_names_and_guessed_only_where_one_fits() {
        let widgets = ("widgets.example.com", "Widget");
        let others = ("widgets.acme.dev", "Widget");
        let wagons = ("wagons.example.com", "Wagon");
        let bodies = ("bodies.example.com", "");
        let found = |resource: &str| Ok(Some((resource.to_owned(), false)));
        let guessed = |resource: &str| Ok(Some((resource.to_owned(), true)));
        let ambiguous =
            |resources: &[&str]| Err(resources.iter().map(ToString::to_string).collect::<Vec<_>>());
        let table = [
            ("widgets", vec![widgets, wagons], found(widgets.0)),
            ("Widget", vec![widgets, wagons], found(widgets.0)),
            ("body", vec![bodies], found(bodies.0)),
            ("widget.acme.dev", vec![widgets, others], found(others.0)),
            ("widget", vec![widgets, others], ambiguous(&[others.0, widgets.0])),
            ("wg", vec![widgets, widgets], guessed(widgets.0)),
            ("WG", vec![widgets], guessed(widgets.0)),
            ("wg", vec![widgets, wagons], ambiguous(&[wagons.0, widgets.0])),
            ("wg.acme.dev", vec![widgets, others], guessed(others.0)),
            ("wgt", vec![widgets, wagons], guessed(widgets.0)),
            ("dg", vec![widgets], Ok(None)),
            ("wsg", vec![widgets], Ok(None)),
            ("", vec![widgets], Ok(None)),
        ];
        for (word, resources, expected) in table {
            let meant = meant(word, resources.into_iter())
                .map(|meant| meant.map(|meant| (meant.resource, meant.guess.is_some())))
                .map_err(|ambiguous| ambiguous.resources);
            assert_eq!(meant, expected, "{word}");
        }
    }
}
