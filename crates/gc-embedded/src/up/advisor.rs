//! Checks of `kubegc up` beyond those of an API server: invalid policies are refused, and an annotation without effect causes a
//! warning.

use std::sync::Arc;

use gc_collectors::expiry;
use gc_collectors::expiry::foreign::ForeignTool;
use gc_collectors::policies::{GROUP, KIND, Policy};
use gc_registry::advisor::{Advisor, RequiredPermission};
use gc_registry::error::{CauseReason, FieldError};
use gc_types::{ForeignMark, Marks, Timestamp};
use gc_workloads::nodes::lifetime;
use serde_json::Value;

mod deputies;
#[cfg(test)]
mod writers;

/// Prefix of kubegc's annotations.
const PREFIX: &str = "kubegc.io/";
/// Annotations that users write …
const OFFERED: [&str; 3] = ["ttl", "expires-at", "keep"];
/// … and all that kubegc reads or writes.
const KNOWN: [&str; 32] = [
    "ttl",
    "expires-at",
    "keep",
    "keep-objects",
    "keep-images",
    "protect",
    "completes-after",
    "fails",
    "terminates-after",
    "simulated",
    "paused",
    "tripped",
    "stopped",
    "observe-until",
    "observed-by",
    "resumed-at",
    "pages-address",
    "pages-certificate-authority",
    "node-report",
    "report",
    "restored-from",
    "not-recorded",
    "unused-since",
    "unused-seen",
    "unused-because",
    "recorded",
    "counted",
    "counted-at",
    "released-uid",
    "released-resource",
    "released-finalizer",
    "released-by",
];
/// Maximum number of unknown annotations of one object to warn about.
const WARNED: usize = 5;

/// See the module.
#[derive(Debug)]
pub(super) struct RetentionAdvisor {
    /// True if a collector acts on annotations.
    pub(super) expires: bool,
    /// Other tools whose marks count.
    pub(super) tools: Vec<ForeignTool>,
    /// True if there are simulated nodes, which read annotations of pods.
    pub(super) simulates: bool,
}

impl Advisor for RetentionAdvisor {
    fn problems(&self, group: &str, kind: &str, object: &Value) -> Vec<FieldError> {
        if (group, kind) != (GROUP, KIND) {
            return Vec::new();
        }
        let problems = Policy::compile(&object["spec"]).err().unwrap_or_default();
        problems
            .into_iter()
            .map(|problem| FieldError {
                field: problem.field,
                reason: CauseReason::Invalid,
                detail: format!("Invalid value: {}", problem.message),
            })
            .collect()
    }

    fn required(&self, group: &str, kind: &str, new: &Value, old: Option<&Value>) -> Vec<RequiredPermission> {
        if (group, kind) == (GROUP, KIND) {
            return deputies::of_policy(new, old);
        }
        // A new object deletes no existing one: its author gives it its own lifetime.
        old.filter(|old| deputies::is_deleted_sooner(new, old))
            .map(|_| deputies::of_mark())
            .into_iter()
            .collect()
    }

    fn restore(&self, new: &mut Value, old: &Value) -> Vec<String> {
        deputies::restore(new, old)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings: Vec<String> = unknown(new, old).collect();
        warnings.extend(self.of_expiry(new, old));
        if self.simulates {
            let bad = |document| lifetime::bad_annotations(document).collect::<Vec<_>>();
            let known = old.map(bad).unwrap_or_default();
            let new_ones = bad(new).into_iter().filter(|one| !known.contains(one));
            warnings.extend(new_ones.map(|one| one.to_string()));
            if old.is_none() && needs_devices(new) {
                warnings.push("its pods stay pending: nothing here allocates their ResourceClaims".into());
            }
        }
        warnings
    }
}

impl RetentionAdvisor {
    fn of_expiry(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        let marks = marks(new);
        if !marks.is_empty() && old.is_none_or(|old| self::marks(old) != marks) {
            warnings.extend(self.without_effect(&marks));
            warnings.extend(self.of_others(&marks));
        }
        warnings
    }
}

/// Returns new annotations with kubegc's prefix that nothing reads.
fn unknown(new: &Value, old: Option<&Value>) -> impl Iterator<Item = String> {
    let annotations = new["metadata"]["annotations"].as_object().into_iter().flatten();
    let was_there = move |name: &str| old.is_some_and(|old| !old["metadata"]["annotations"][name].is_null());
    let names = annotations.map(|(name, _)| name).filter(move |name| !was_there(name));
    let is_unknown = |name: &&String| name.strip_prefix(PREFIX).is_some_and(|rest| !KNOWN.contains(&rest));
    let shown = OFFERED.map(|name| format!("{PREFIX}{name}")).join(", ");
    let unknown = names.filter(is_unknown).take(WARNED);
    unknown.map(move |name| format!("annotation {name} is not known and has no effect; known are {shown}"))
}

impl RetentionAdvisor {
    /// Returns annotations and labels of other tools that have no effect here.
    fn of_others(&self, marks: &Marks) -> Vec<String> {
        let off = marks.foreign_marks().map(|(mark, _)| (mark, ForeignTool::of(mark)));
        let off = off.filter(|(mark, tool)| {
            !self.tools.contains(tool) && !matches!(mark, ForeignMark::TtlControllerRefreshed)
        });
        let warning = |(mark, tool): (ForeignMark, ForeignTool)| {
            format!("{}: no collector acts on it here without --foreign-expiry={tool}", mark.key())
        };
        off.map(warning).collect()
    }

    fn without_effect(&self, marks: &Marks) -> Vec<String> {
        let own = [("kubegc.io/ttl", &marks.ttl), ("kubegc.io/expires-at", &marks.expires_at)];
        let own: Vec<&str> =
            own.into_iter().filter(|(_, text)| text.is_some()).map(|(name, _)| name).collect();
        match expiry::expiry(marks, Some(Timestamp::default()), &self.tools) {
            Err(bad) => vec![format!("{bad}; the object will not expire")],
            Ok(_) if !self.expires && !own.is_empty() => {
                vec![format!(
                    "annotation {}: no collector acts on it here; expiry-controller is off",
                    own.join(", ")
                )]
            }
            Ok(_) if marks.keeps() && !own.is_empty() => {
                vec![format!("annotation {} has no effect: kubegc.io/keep keeps the object", own.join(", "))]
            }
            Ok(_) => Vec::new(),
        }
    }
}

/// Reports whether a pod, or the template in a document, has ResourceClaims.
fn needs_devices(document: &Value) -> bool {
    let spec = &document["spec"];
    [spec, &spec["template"]["spec"], &spec["jobTemplate"]["spec"]["template"]["spec"]].into_iter().any(
        |pod| {
            let is_some = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
            is_some(&pod["containers"]) && is_some(&pod["resourceClaims"])
        },
    )
}

/// Returns the annotations and labels of a document.
fn marks(object: &Value) -> Marks {
    let text = |place: &str, name: &str| object["metadata"][place][name].as_str().map(Arc::from);
    let foreign =
        ForeignMark::ALL.map(|mark| text(if mark.is_label() { "labels" } else { "annotations" }, mark.key()));
    Marks {
        // All times are counted from here; only whether there is one matters.
        created: Some(Timestamp::default()),
        ttl: text("annotations", "kubegc.io/ttl"),
        expires_at: text("annotations", "kubegc.io/expires-at"),
        keep: text("annotations", "kubegc.io/keep"),
        foreign,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn annotations_without_effect_are_warned_of() {
        let on = RetentionAdvisor { expires: true, tools: vec![ForeignTool::KubeJanitor], simulates: true };
        let off = RetentionAdvisor { expires: false, tools: Vec::new(), simulates: false };
        let object = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        let bad = "annotation kubegc.io/ttl: \"1y\" has the unknown unit \"y\"; expected one of ns, us, ms, s, m, h, \
                   d, w; the object will not expire";
        for (annotations, with, without) in [
            (json!({}), &[][..], &[][..]),
            (json!({"a": "b", "kubegc.io/keep": "true"}), &[], &[]),
            // Annotations other than those about expiry are read elsewhere.
            (
                json!({"kubegc.io/protect": "the only copy", "kubegc.io/keep-images": "last", "kubegc.io/unused-since": "x"}),
                &[],
                &[],
            ),
            (
                json!({"kubegc.io/ttl": "1d"}),
                &[],
                &["annotation kubegc.io/ttl: no collector acts on it here; expiry-controller is off"],
            ),
            (json!({"kubegc.io/ttl": "1y"}), &[bad], &[bad]),
            (
                json!({"kubegc.io/ttl": "1d", "kubegc.io/keep": "true"}),
                &["annotation kubegc.io/ttl has no effect: kubegc.io/keep keeps the object"],
                &["annotation kubegc.io/ttl: no collector acts on it here; expiry-controller is off"],
            ),
            (
                json!({"kubegc.io/fails": "300"}),
                &[
                    "annotation kubegc.io/fails is ignored: \"300\" is neither true nor false nor an exit code from 0 to \
                   255",
                ],
                &[],
            ),
            (
                json!({"janitor/ttl": "soon"}),
                &[
                    "janitor/ttl: \"soon\" is not understood; expected a duration such as 36h or 7d; the object \
                     will not expire",
                ],
                &["janitor/ttl: no collector acts on it here without --foreign-expiry=kube-janitor"],
            ),
            (
                json!({"cleanup.kyverno.io/other": "1h", "kubegc.io/tll": "1h"}),
                &[
                    "annotation kubegc.io/tll is not known and has no effect; known are kubegc.io/ttl, kubegc.io/expires-at, kubegc.io/keep",
                ],
                &[
                    "annotation kubegc.io/tll is not known and has no effect; known are kubegc.io/ttl, kubegc.io/expires-at, kubegc.io/keep",
                ],
            ),
        ] {
            let new = object(annotations);
            assert_eq!(
                (on.warnings(&new, None), off.warnings(&new, None)),
                (owned(with), owned(without)),
                "{new}"
            );
            assert_eq!(on.warnings(&new, Some(&new)), owned(&[]), "{new}: nothing has changed");
        }
    }

    #[test]
    fn pods_that_wait_for_devices_are_warned_of() {
        let on = RetentionAdvisor { expires: true, tools: Vec::new(), simulates: true };
        let off = RetentionAdvisor { expires: true, tools: Vec::new(), simulates: false };
        let with = |claims: Value| json!({"spec": {"containers": [{"name": "c"}], "resourceClaims": claims}});
        let pod = with(json!([{"name": "gpu", "resourceClaimName": "gpu"}]));
        let warned = ["its pods stay pending: nothing here allocates their ResourceClaims"];
        assert_eq!(on.warnings(&pod, None), warned);
        assert_eq!(on.warnings(&json!({"spec": {"template": pod}}), None), warned);
        assert_eq!(on.warnings(&pod, Some(&pod)), owned(&[]));
        assert_eq!(off.warnings(&pod, None), owned(&[]));
        assert_eq!(on.warnings(&with(json!([])), None), owned(&[]));
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }
}
