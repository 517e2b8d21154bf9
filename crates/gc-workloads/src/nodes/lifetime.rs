//! Lifetime of a simulated pod: after which time its containers end, by themselves or when it is deleted, and with which exit code.
//! Annotations of the pod determine it, or those of the object that manages it.

use gc_types::{GoDuration, GoDurationError};
use serde_json::Value;

use super::{COMPLETES_AFTER, FAILS, TERMINATES_AFTER};
use crate::kinds::Kind;
use crate::object::{Object, text};
use crate::plan::View;
use crate::time::{Milliseconds, SECOND};

/// Exit code of a container that ends on SIGTERM.
pub(super) const TERMINATED: i64 = 143;
/// Exit code of a container that is killed by SIGKILL.
const KILLED: i64 = 137;

/// Reason why an annotation has no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnnotation {
    /// Not a duration.
    #[error("annotation {0} is ignored: {1}")]
    NoDuration(&'static str, GoDurationError),
    /// A negative duration.
    #[error("annotation {0} is ignored: {1:?} is negative")]
    Negative(&'static str, String),
    /// Not an exit code.
    #[error("annotation {FAILS} is ignored: {0:?} is neither true nor false nor an exit code from 0 to 255")]
    NoExitCode(String),
}

/// Parses the value of a duration annotation.
fn duration(name: &'static str, text: &str) -> Result<Milliseconds, BadAnnotation> {
    let duration: GoDuration = text.parse().map_err(|error| BadAnnotation::NoDuration(name, error))?;
    if duration < GoDuration::ZERO {
        return Err(BadAnnotation::Negative(name, text.to_owned()));
    }
    Ok(gc_types::milliseconds(duration.to_std()))
}

/// Parses the exit code; `None` if the containers do not fail.
fn exit_code(text: &str) -> Result<Option<i64>, BadAnnotation> {
    match text {
        "false" => Ok(None),
        "true" => Ok(Some(1)),
        _ => match text.parse::<u8>() {
            Ok(code) => Ok(Some(code.into())),
            Err(_) => Err(BadAnnotation::NoExitCode(text.to_owned())),
        },
    }
}

/// Returns an annotation of a pod, or else of the object that manages it.
fn annotation<'a>(view: &View<'a>, pod: &'a Object, name: &str) -> Option<&'a str> {
    pod.annotation(name).or_else(|| view.store.controller_of(pod)?.annotation(name))
}

/// Returns when a pod's containers end, and with which exit code; `None` if they keep running.
pub(super) fn of_pod(view: &View<'_>, pod: &Object) -> Option<(Milliseconds, i64)> {
    let after = annotation(view, pod, COMPLETES_AFTER).and_then(|text| duration(COMPLETES_AFTER, text).ok());
    let code = annotation(view, pod, FAILS).and_then(|text| exit_code(text).ok()?);
    let of_job = view.store.controller_of(pod).is_some_and(|owner| owner.key.kind == Kind::Job);
    let ends = of_job && text(&pod.spec()["restartPolicy"]) != "Always";
    match (after, code) {
        (Some(after), code) => Some((after, code.unwrap_or_default())),
        (None, Some(code)) => Some((0, code)),
        (None, None) => ends.then_some((0, 0)),
    }
}

/// End of a deleted pod's containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Termination {
    pub(super) takes: Milliseconds,
    pub(super) ends_at: Milliseconds,
    pub(super) code: i64,
}

/// Returns the end of a deleted pod's containers. They need some time once the node has observed the deletion, and are killed at
/// the end of the grace period.
pub(super) fn termination(view: &View<'_>, pod: &Object) -> Termination {
    let needs =
        annotation(view, pod, TERMINATES_AFTER).and_then(|text| duration(TERMINATES_AFTER, text).ok());
    let needs = needs.unwrap_or(view.settings.pod_termination_latency);
    let grace = pod.value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    let grace = grace.max(0).saturating_mul(SECOND);
    let takes = needs.min(grace);
    let ends_at = pod.deletion_observed.unwrap_or(view.now).saturating_add(takes);
    Termination { takes, ends_at, code: if needs > grace { KILLED } else { TERMINATED } }
}

/// Returns the invalid annotations that apply to a pod.
pub(super) fn bad_annotations_of_pod(view: &View<'_>, pod: &Object) -> Vec<BadAnnotation> {
    bad(|name| annotation(view, pod, name)).collect()
}

/// Returns the invalid annotations in a document, including those that apply to the pods of its template.
pub fn bad_annotations(document: &Value) -> impl Iterator<Item = BadAnnotation> + '_ {
    let job = &document["spec"]["jobTemplate"];
    let bearers = [document, &document["spec"]["template"], job, &job["spec"]["template"]];
    bearers.into_iter().flat_map(|bearer| bad(|name| bearer["metadata"]["annotations"][name].as_str()))
}

fn bad<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> impl Iterator<Item = BadAnnotation> {
    let durations = [COMPLETES_AFTER, TERMINATES_AFTER]
        .map(|name| annotation(name).and_then(|text| duration(name, text).err()));
    let fails = annotation(FAILS).and_then(|text| exit_code(text).err());
    durations.into_iter().flatten().chain(fails)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn annotations_are_read_or_refused() {
        for (text, expected) in [
            ("true", Ok(Some(1))),
            ("false", Ok(None)),
            ("0", Ok(Some(0))),
            ("255", Ok(Some(255))),
            ("256", Err(())),
            ("-1", Err(())),
            ("yes", Err(())),
            ("", Err(())),
        ] {
            assert_eq!(exit_code(text).map_err(drop), expected, "{text:?}");
        }
        for (text, expected) in
            [("1m30s", Ok(90_000)), ("0", Ok(0)), ("-5s", Err(())), ("5", Err(())), ("1d", Err(()))]
        {
            assert_eq!(duration(COMPLETES_AFTER, text).map_err(drop), expected, "{text:?}");
        }
    }

    #[test]
    fn annotations_of_templates_are_read_too() {
        let with = |annotations: Value| json!({"annotations": annotations});
        let template = json!({"metadata": with(json!({"kubegc.io/fails": "300"}))});
        let job = json!({"metadata": with(json!({"kubegc.io/completes-after": "soon"})), "spec": {"template": template}});
        let shown =
            |document: Value| bad_annotations(&document).map(|bad| bad.to_string()).collect::<Vec<_>>();
        let soon = "annotation kubegc.io/completes-after is ignored: \"soon\" is not a duration; expected numbers with units, \
                    such as \"2m\" or \"1h30m\"";
        let code = "annotation kubegc.io/fails is ignored: \"300\" is neither true nor false nor an exit code from 0 to 255";
        assert_eq!(shown(job.clone()), [soon, code]);
        assert_eq!(shown(json!({"spec": {"jobTemplate": job}})), [soon, code]);
        let good = with(json!({"kubegc.io/fails": "3", "kubegc.io/completes-after": "5s"}));
        assert_eq!(shown(json!({"metadata": good})), [""; 0]);
    }
}
