//! Decisions about terminating namespaces (spec `api-deletion.md`, 12.5 and 12.6).
//!
//! The input is the result of a pass over the contents; the output is the status to write and the next step. [`emptying`] makes the
//! pass, [`queue`] decides which namespace gets the next one, and [`memory`] holds what passes keep for later ones. An adapter
//! sends the requests.

pub mod documents;
pub mod emptying;
pub mod memory;
pub mod queue;

use std::collections::BTreeMap;

use crate::entry::{CollectorEntry, READ, WRITE_EVENTS, Watches, rule};

/// Token in `spec.finalizers` that stands for the removal of the contents.
pub const KUBERNETES_FINALIZER: &str = "kubernetes";
/// Expected time that items with finalizers remain, seconds.
pub const FINALIZER_ESTIMATE_SECONDS: i64 = 15;

/// Entry of this collector in the table of collectors.
pub(crate) const COLLECTOR: CollectorEntry = CollectorEntry {
    summary: "terminating namespaces",
    name: "namespace-controller",
    alias: Some("namespace"),
    account: "namespace-controller",
    event_source: "namespace-controller",
    on_by_default: true,
    for_every_kind: false,
    watches: Watches::Everything,
    flags: &[],
    rules: &[
        rule("", "namespaces", READ),
        rule("", "namespaces/finalize", &["update"]),
        rule("", "namespaces/status", &["update"]),
        rule("*", "*", &["list", "delete", "deletecollection"]),
        WRITE_EVENTS,
    ],
};

/// Objects of one resource that remain after its collection was deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemainingObjects {
    /// `resource.group`; with an empty group, `resource.`.
    pub resource: String,
    /// Number of objects.
    pub objects: usize,
    /// Number of objects with each finalizer.
    pub finalizers: BTreeMap<String, usize>,
    /// For pods, the longest grace period in progress, seconds; 0 for everything else.
    pub grace_seconds: i64,
}

/// Findings of one pass over the contents of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Groups that discovery could not reach, each with the reason.
    pub undiscovered: Vec<String>,
    /// Groups that discovery could not reach, but that have nothing in the namespace ([`memory::Groups::excuse`]).
    pub excused: Vec<String>,
    /// Group versions that could not be understood.
    pub unparsed: Vec<String>,
    /// Deletions and lists that failed, each with the reason.
    pub failures: Vec<String>,
    /// Remaining objects.
    pub remaining: Vec<RemainingObjects>,
}

/// Next step after a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The namespace is empty: remove the `kubernetes` token.
    Finalize,
    /// Check again after this many seconds, because the remaining contents need time.
    Wait {
        /// Seconds.
        seconds: i64,
    },
    /// Something failed: try again with increasing delays.
    Retry,
}

/// A condition of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `type`
    pub kind: String,
    /// `status`: `True` or `False`.
    pub status: String,
    /// `reason`
    pub reason: String,
    /// `message`
    pub message: String,
    /// `lastTransitionTime`, as written.
    pub last_transition_time: String,
}

impl Pass {
    /// Returns the remaining resources whose objects neither end by themselves nor wait for a finalizer.
    fn unexplained(&self) -> impl Iterator<Item = &RemainingObjects> {
        self.remaining.iter().filter(|left| left.objects > 0 && left.estimate() == 0)
    }

    /// Describes everything that blocks the namespace and does not end by itself; empty if nothing does.
    #[must_use]
    pub fn problems(&self) -> String {
        let failed = [&self.undiscovered, &self.unparsed, &self.failures];
        let mut problems: Vec<String> = failed.into_iter().flatten().cloned().collect();
        problems
            .extend(self.unexplained().map(|left| format!("{} of {} remain", left.objects, left.resource)));
        problems.join("; ")
    }

    /// Returns the next step for a namespace that has been terminating for a number of seconds.
    #[must_use]
    pub fn next(&self, terminating_seconds: i64) -> Next {
        let failed = !self.failures.is_empty() || !self.undiscovered.is_empty() || !self.unparsed.is_empty();
        let grace_left = |left: &&RemainingObjects| left.finalizers.is_empty() && left.grace_seconds > 0;
        // Grace periods that should be over are no longer an explanation.
        let overdue = self
            .remaining
            .iter()
            .filter(grace_left)
            .any(|left| left.objects > 0 && left.grace_seconds <= terminating_seconds);
        if failed || overdue || self.unexplained().next().is_some() {
            return Next::Retry;
        }
        match self.remaining.iter().filter(|left| left.objects > 0).map(RemainingObjects::estimate).max() {
            Some(estimate) => Next::Wait { seconds: estimate / 2 + 1 },
            None => Next::Finalize,
        }
    }

    /// Returns the five conditions after this pass; changed ones get the new transition time.
    #[must_use]
    pub fn conditions(&self, existing: &[Condition], now: &str) -> Vec<Condition> {
        let mut failures = self.failures.clone();
        failures.extend(
            self.unexplained()
                .map(|left| format!("unexpected items still remain in namespace for {}", left.resource)),
        );
        let verdicts = [
            verdict(
                "NamespaceDeletionDiscoveryFailure",
                "DiscoveryFailed",
                "ResourcesDiscovered",
                "All resources successfully discovered",
                &[&self.undiscovered[..], &self.excused[..]].concat(),
                |groups| {
                    format!(
                        "Discovery failed for some groups, {} failing: {}",
                        groups.len(),
                        groups.join(", ")
                    )
                },
            ),
            verdict(
                "NamespaceDeletionGroupVersionParsingFailure",
                "GroupVersionParsingFailed",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
                &self.unparsed,
                |versions| versions.join(", "),
            ),
            verdict(
                "NamespaceDeletionContentFailure",
                "ContentDeletionFailed",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
                &failures,
                |failures| {
                    let number = failures.len();
                    format!(
                        "Failed to delete all resource types, {number} remaining: {}",
                        failures.join(", ")
                    )
                },
            ),
            verdict(
                "NamespaceContentRemaining",
                "SomeResourcesRemain",
                "ContentRemoved",
                "All content successfully removed",
                &self.remaining_texts(),
                |texts| format!("Some resources are remaining: {}", texts.join(", ")),
            ),
            verdict(
                "NamespaceFinalizersRemaining",
                "SomeFinalizersRemain",
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
                &self.finalizer_texts(),
                |texts| {
                    format!("Some content in the namespace has finalizers remaining: {}", texts.join(", "))
                },
            ),
        ];
        merge(existing, verdicts, now)
    }

    fn remaining_texts(&self) -> Vec<String> {
        let mut texts: Vec<String> = self
            .remaining
            .iter()
            .filter(|left| left.objects > 0)
            .map(|left| format!("{} has {} resource instances", left.resource, left.objects))
            .collect();
        texts.sort();
        texts
    }

    fn finalizer_texts(&self) -> Vec<String> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (finalizer, count) in self.remaining.iter().flat_map(|left| &left.finalizers) {
            *counts.entry(finalizer).or_default() += count;
        }
        counts.iter().map(|(finalizer, count)| format!("{finalizer} in {count} resource instances")).collect()
    }
}

impl RemainingObjects {
    /// Returns the expected time until the rest is gone, in seconds; 0 if nothing explains why it remains.
    fn estimate(&self) -> i64 {
        if self.grace_seconds > 0 {
            self.grace_seconds
        } else if self.finalizers.is_empty() {
            0
        } else {
            FINALIZER_ESTIMATE_SECONDS
        }
    }
}

fn verdict(
    kind: &str,
    bad_reason: &str,
    good_reason: &str,
    good_message: &str,
    problems: &[String],
    bad_message: impl FnOnce(&[String]) -> String,
) -> Condition {
    let bad = !problems.is_empty();
    Condition {
        kind: kind.to_owned(),
        status: if bad { "True" } else { "False" }.to_owned(),
        reason: if bad { bad_reason } else { good_reason }.to_owned(),
        message: if bad { bad_message(problems) } else { good_message.to_owned() },
        last_transition_time: String::new(),
    }
}

/// Replaces kubegc's conditions in place, keeps all others, and changes the time only with the status.
fn merge(existing: &[Condition], verdicts: [Condition; 5], now: &str) -> Vec<Condition> {
    let mut merged = existing.to_vec();
    for mut verdict in verdicts {
        match merged.iter_mut().find(|condition| condition.kind == verdict.kind) {
            Some(condition) => {
                let same = condition.status == verdict.status;
                verdict.last_transition_time =
                    if same { condition.last_transition_time.clone() } else { now.to_owned() };
                *condition = verdict;
            }
            None => {
                now.clone_into(&mut verdict.last_transition_time);
                merged.push(verdict);
            }
        }
    }
    merged
}

/// Returns `spec.finalizers` without the `kubernetes` token, sorted, for an empty namespace. `None` if there is no such token, and
/// so nothing to do.
#[must_use]
pub fn finalizers_after(spec_finalizers: &[String]) -> Option<Vec<String>> {
    if !spec_finalizers.iter().any(|finalizer| finalizer == KUBERNETES_FINALIZER) {
        return None;
    }
    let mut left: Vec<String> =
        spec_finalizers.iter().filter(|finalizer| *finalizer != KUBERNETES_FINALIZER).cloned().collect();
    left.sort();
    left.dedup();
    Some(left)
}

#[cfg(test)]
mod tests {
    use super::memory::Groups;
    use super::*;

    fn left(
        resource: &str,
        objects: usize,
        finalizers: &[(&str, usize)],
        grace_seconds: i64,
    ) -> RemainingObjects {
        let finalizers = finalizers.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        RemainingObjects { resource: resource.into(), objects, finalizers, grace_seconds }
    }

    fn pass(remaining: Vec<RemainingObjects>) -> Pass {
        Pass { remaining, ..Pass::default() }
    }

    #[test]
    fn what_follows_a_pass() {
        let failed = Pass { failures: vec!["x".into()], ..Pass::default() };
        let undiscovered = Pass { undiscovered: vec!["g/v1: dead".into()], ..Pass::default() };
        let excused = Pass { excused: vec!["g/v1: dead; it has nothing".into()], ..Pass::default() };
        for (scenario, pass, terminating_seconds, expected) in [
            ("NS-T02", pass(vec![]), 0, Next::Finalize),
            ("NS-T10", pass(vec![left("configmaps.", 0, &[], 0)]), 0, Next::Finalize),
            // D96: a scheduled pod with 30 s of grace is checked after 16 s, and a finalizer after 8 s.
            ("NS-T14", pass(vec![left("pods.", 1, &[], 30)]), 2, Next::Wait { seconds: 16 }),
            ("NS-T15", pass(vec![left("configmaps.", 1, &[("a/b", 1)], 0)]), 0, Next::Wait { seconds: 8 }),
            ("grace is just over", pass(vec![left("pods.", 1, &[], 30)]), 30, Next::Retry),
            ("grace is over", pass(vec![left("pods.", 1, &[], 30)]), 31, Next::Retry),
            // A finalizer explains what remains after its grace period; nothing has to explain what is gone.
            ("a finalizer", pass(vec![left("pods.", 1, &[("a/b", 1)], 30)]), 31, Next::Wait { seconds: 16 }),
            ("gone after its grace", pass(vec![left("pods.", 0, &[], 30)]), 31, Next::Finalize),
            ("NS-T16", pass(vec![left("configmaps.", 1, &[], 0)]), 0, Next::Retry),
            ("NS-T18", failed, 0, Next::Retry),
            // D91: nothing is finalized while discovery is incomplete.
            ("NS-T05", undiscovered, 0, Next::Retry),
            ("NS-T20", excused, 0, Next::Finalize),
        ] {
            assert_eq!(pass.next(terminating_seconds), expected, "{scenario}: {pass:?}");
        }
    }

    #[test]
    fn what_holds_up_is_put_into_words() {
        let stuck = Pass {
            undiscovered: vec!["g/v1: dead".into()],
            failures: vec!["no".into()],
            ..pass(vec![
                left("configmaps.", 2, &[], 0),
                left("secrets.", 1, &[("a/b", 1)], 0),
                left("pods.", 1, &[], 30),
            ])
        };
        for (pass, expected) in
            [(stuck, "g/v1: dead; no; 2 of configmaps. remain"), (pass(vec![left("pods.", 1, &[], 30)]), "")]
        {
            assert_eq!(pass.problems(), expected);
        }
    }

    fn texts(conditions: &[Condition]) -> Vec<String> {
        conditions.iter().map(|c| format!("{} {} {}: {}", c.kind, c.status, c.reason, c.message)).collect()
    }

    /// NS-T20
    #[test]
    fn a_dead_group_that_has_nothing_is_excused_and_named() {
        let mut groups = Groups::default();
        groups.discovered("metrics.k8s.io", false);
        groups.discovered("example.com", true);
        groups.emptied("uid-1", "example.com");
        for (namespace, group, expected) in [
            ("uid-1", "metrics.k8s.io", Some("it has nothing that could be deleted")),
            ("uid-1", "example.com", Some("it has nothing in the namespace")),
            ("uid-2", "example.com", None),
            ("uid-1", "never.seen", None),
        ] {
            assert_eq!(groups.excuse(namespace, group), expected, "{namespace} {group}");
        }
        // It may have new contents since then.
        groups.discovered("metrics.k8s.io", true);
        groups.forget("uid-1");
        assert_eq!(groups.excuse("uid-1", "metrics.k8s.io"), None);
        assert_eq!(groups.excuse("uid-1", "example.com"), None);
        let pass = Pass { excused: vec!["example.com/v1: dead".into()], ..Pass::default() };
        assert_eq!(
            texts(&pass.conditions(&[], "now"))[0],
            "NamespaceDeletionDiscoveryFailure True DiscoveryFailed: Discovery failed for some groups, 1 failing: \
             example.com/v1: dead"
        );
    }

    /// NS-T09
    #[test]
    fn an_empty_namespace_has_five_false_conditions() {
        let conditions = Pass::default().conditions(&[], "now");
        assert_eq!(
            texts(&conditions),
            [
                "NamespaceDeletionDiscoveryFailure False ResourcesDiscovered: All resources successfully discovered",
                "NamespaceDeletionGroupVersionParsingFailure False ParsedGroupVersions: All legacy kube types successfully parsed",
                "NamespaceDeletionContentFailure False ContentDeleted: All content successfully deleted, may be waiting on finalization",
                "NamespaceContentRemaining False ContentRemoved: All content successfully removed",
                "NamespaceFinalizersRemaining False ContentHasNoFinalizers: All content-preserving finalizers finished",
            ]
        );
        assert!(conditions.iter().all(|condition| condition.last_transition_time == "now"));
    }

    /// NS-T10, NS-T11, NS-T19; D94, and S14: remaining pods are counted, too.
    #[test]
    fn what_remains_is_named_in_order() {
        let remaining = vec![
            left("pods.", 2, &[], 30),
            left("deployments.apps", 1, &[("custom.io/finalizer", 1), ("a.io/b", 1)], 0),
            left("secrets.", 0, &[], 0),
        ];
        let conditions = texts(&pass(remaining).conditions(&[], "now"));
        assert_eq!(
            conditions[3..],
            [
                "NamespaceContentRemaining True SomeResourcesRemain: Some resources are remaining: deployments.apps has 1 resource instances, pods. has 2 resource instances",
                "NamespaceFinalizersRemaining True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: a.io/b in 1 resource instances, custom.io/finalizer in 1 resource instances",
            ]
        );
    }

    /// NS-T09
    #[test]
    fn the_time_moves_with_the_status_only_and_foreign_conditions_stay() {
        let foreign = Condition {
            kind: "Example".into(),
            status: "True".into(),
            reason: "R".into(),
            message: "M".into(),
            last_transition_time: "then".into(),
        };
        let mut before = vec![foreign.clone()];
        before.extend(pass(vec![left("configmaps.", 2, &[("a/b", 2)], 0)]).conditions(&[], "then"));
        let one_less = pass(vec![left("configmaps.", 1, &[("a/b", 1)], 0)]).conditions(&before, "now");
        assert_eq!(one_less[0], foreign);
        assert!(one_less.iter().all(|condition| condition.last_transition_time == "then"));
        let empty = Pass::default().conditions(&one_less, "now");
        let moved: Vec<_> =
            empty.iter().filter(|c| c.last_transition_time == "now").map(|c| c.kind.as_str()).collect();
        assert_eq!(moved, ["NamespaceContentRemaining", "NamespaceFinalizersRemaining"]);
    }

    /// NS-T01, NS-T03; D93
    #[test]
    fn only_the_kubernetes_token_is_removed() {
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        for (before, after) in [
            (list(&["kubernetes"]), Some(list(&[]))),
            (list(&["kubernetes", "other"]), Some(list(&["other"]))),
            (list(&["z", "kubernetes", "a"]), Some(list(&["a", "z"]))),
            (list(&["z", "a", "kubernetes", "z"]), Some(list(&["a", "z"]))),
            (list(&["other"]), None),
            (list(&[]), None),
        ] {
            assert_eq!(finalizers_after(&before), after, "{before:?}");
        }
    }
}
