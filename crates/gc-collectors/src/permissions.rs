//! Permissions of collectors, and the collectors that `--controllers` enables. The collectors are listed in [`crate::collectors`].

use std::collections::{BTreeMap, BTreeSet};

pub use crate::collectors::{Controller, Rule};

/// A rule of a ClusterRole that several collectors share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededRule {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Resource, or `resource/subresource`.
    pub resource: &'static str,
    /// Names of the objects; empty for all.
    pub names: &'static [&'static str],
    /// Verbs, in alphabetical order.
    pub verbs: Vec<&'static str>,
}

/// Permission to write Events about deletions, in addition to the rules of the collectors.
pub const DELETION_EVENTS: Rule =
    Rule { group: "", resource: "events", names: &[], verbs: &["create", "patch"] };

/// Permission to search for unused objects: an object that cannot be listed may use any other.
pub const LOOK_FOR_GARBAGE: Rule = Rule { group: "*", resource: "*", names: &[], verbs: &["list"] };

/// Returns the permissions that one account needs to run all these collectors, and to write Events about their deletions: each
/// once, and none that a `*` already grants. Rules with `*` come first.
#[must_use]
pub fn needed(controllers: &[Controller], deletion_events: bool) -> Vec<NeededRule> {
    needed_with(controllers, deletion_events.then_some(&DELETION_EVENTS))
}

/// Returns the permissions that one account needs to run all these collectors, plus these additional ones.
#[must_use]
pub fn needed_with<'a>(
    controllers: &[Controller],
    also: impl IntoIterator<Item = &'a Rule>,
) -> Vec<NeededRule> {
    let mut wanted: BTreeMap<(&'static str, &'static str, &'static [&'static str]), BTreeSet<&'static str>> =
        BTreeMap::new();
    for rule in controllers.iter().flat_map(|controller| controller.rules()).chain(also) {
        wanted.entry((rule.group, rule.resource, rule.names)).or_default().extend(rule.verbs);
    }
    let everywhere = wanted.remove(&("*", "*", &[])).unwrap_or_default();
    let star =
        NeededRule { group: "*", resource: "*", names: &[], verbs: everywhere.iter().copied().collect() };
    let others = wanted.into_iter().map(|((group, resource, names), verbs)| NeededRule {
        group,
        resource,
        names,
        verbs: verbs.difference(&everywhere).copied().collect(),
    });
    std::iter::once(star).chain(others).filter(|rule| !rule.verbs.is_empty()).collect()
}

/// Reason why a `--controllers` list is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControllersError {
    /// There is no collector of this name.
    #[error("\"{0}\" is not in the list of known controllers: {known}", known = known_names())]
    Unknown(String),
}

/// Returns all names, for the error message.
fn known_names() -> String {
    Controller::ALL.map(Controller::name).join(", ")
}

/// Returns the collectors that `--controllers` enables: `name` enables, `-name` disables, and `*` enables all others that are on by
/// default. Of several entries with one name the first counts, and collectors that no entry matches are off.
pub fn enabled<T: AsRef<str>>(entries: &[T]) -> Result<Vec<Controller>, ControllersError> {
    enabled_with(entries, &[])
}

/// Returns the enabled collectors, where `*` enables these as well.
pub fn enabled_with<T: AsRef<str>>(
    entries: &[T],
    also: &[Controller],
) -> Result<Vec<Controller>, ControllersError> {
    let words = || entries.iter().map(AsRef::as_ref);
    for word in words().filter(|word| *word != "*") {
        let name = word.strip_prefix('-').unwrap_or(word);
        if !Controller::ALL.iter().any(|controller| controller.is_named(name)) {
            return Err(ControllersError::Unknown(word.to_owned()));
        }
    }
    let on = |controller: &Controller| {
        // A name takes precedence over `*`, wherever it is.
        let by_name = words().find_map(|word| match word.strip_prefix('-') {
            Some(name) => controller.is_named(name).then_some(false),
            None => controller.is_named(word).then_some(true),
        });
        let by_star = controller.collector().on_by_default || also.contains(controller);
        by_name.unwrap_or_else(|| by_star && words().any(|word| word == "*"))
    };
    Ok(Controller::ALL.into_iter().filter(on).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_aliases_and_the_star_are_understood() {
        let all: Vec<_> = Controller::ALL.into_iter().filter(|one| one.collector().on_by_default).collect();
        assert!(!all.contains(&Controller::Expiry));
        let without = |off: Controller| Ok(all.iter().copied().filter(|one| *one != off).collect::<Vec<_>>());
        let unknown = |word: &str| Err(ControllersError::Unknown(word.to_owned()));
        for (entries, expected) in [
            (&["*"][..], Ok(all.clone())),
            (&["*", "-podgc"], without(Controller::PodGarbageCollector)),
            (&["-namespace-controller", "*"], without(Controller::Namespace)),
            (&["*", "expiry-controller"], Ok([all.clone(), vec![Controller::Expiry]].concat())),
            (&["podgc"], Ok(vec![Controller::PodGarbageCollector])),
            (
                &["storage-version-gc", "legacy-service-account-token-cleaner"],
                Ok(vec![Controller::LegacyTokenCleaner, Controller::StorageVersion]),
            ),
            (&["pv-protection", "-pv-protection"], Ok(vec![Controller::VolumeProtection])),
            (&["-pv-protection", "pv-protection"], Ok(vec![])),
            (&[], Ok(vec![])),
            (&["*", "nonsense"], unknown("nonsense")),
            (&["-"], unknown("-")),
        ] {
            assert_eq!(enabled(entries), expected, "{entries:?}");
            if let Ok(expected) = expected
                && entries.contains(&"*")
            {
                let with = expected.into_iter().chain([Controller::Expiry]).collect::<BTreeSet<_>>();
                let found = enabled_with(entries, &[Controller::Expiry]);
                assert_eq!(found.map(BTreeSet::from_iter), Ok(with), "{entries:?}");
            }
        }
    }

    #[test]
    fn an_unknown_controller_is_refused_with_the_known_ones() {
        let names: Vec<&str> = Controller::ALL.into_iter().map(Controller::name).collect();
        let expected = format!("\"-x\" is not in the list of known controllers: {}", names.join(", "));
        assert_eq!(enabled(&["*", "-x"]).map_err(|error| error.to_string()), Err(expected));
    }

    #[test]
    fn one_account_for_all_needs_each_permission_once() {
        let rule = |group, resource, verbs: &[&'static str]| NeededRule {
            group,
            resource,
            names: &[],
            verbs: verbs.to_vec(),
        };
        assert_eq!(
            needed(&Controller::ALL, true),
            [
                rule("*", "*", &["delete", "deletecollection", "get", "list", "patch", "watch"]),
                rule("", "events", &["create"]),
                rule("", "namespaces/finalize", &["update"]),
                rule("", "namespaces/status", &["update"]),
            ]
        );
        assert_eq!(
            needed(&[Controller::TtlAfterFinished, Controller::StaleLease], false),
            [
                rule("", "events", &["create", "patch"]),
                rule("", "nodes", &["get", "list", "watch"]),
                rule("batch", "jobs", &["delete", "list", "watch"]),
                rule("coordination.k8s.io", "leases", &["delete", "list", "watch"]),
            ]
        );
        let jobs = rule("batch", "jobs", &["delete", "list", "watch"]);
        let events = rule("", "events", &["create", "patch"]);
        for (deletion_events, expected) in [(false, vec![jobs.clone()]), (true, vec![events, jobs])] {
            assert_eq!(needed(&[Controller::TtlAfterFinished], deletion_events), expected);
        }
        assert_eq!(needed(&[], false), []);
    }

    /// Only collectors that handle every kind may have rules with `*`.
    #[test]
    fn only_those_for_every_kind_may_touch_everything() {
        for controller in Controller::ALL {
            let everything = controller.rules().iter().any(|rule| rule.resource == "*" || rule.group == "*");
            let may = matches!(
                controller,
                Controller::GarbageCollector
                    | Controller::Namespace
                    | Controller::RetentionPolicy
                    | Controller::Expiry
            );
            assert_eq!(everything, may, "{controller}");
        }
    }
}
