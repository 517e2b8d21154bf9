//! After which time, and with which exit code, the containers of a simulated pod end: what annotations of the pod say, or those of the
//! object that manages it.

use gc_types::{GoDuration, GoDurationError};
use serde_json::Value;

use super::{COMPLETES_AFTER, FAILS};
use crate::kinds::Kind;
use crate::object::{Object, text};
use crate::plan::View;
use crate::time::Milliseconds;

/// Why an annotation has no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnnotation {
    /// Not a duration.
    #[error("annotation {COMPLETES_AFTER} is ignored: {0}")]
    NoDuration(#[from] GoDurationError),
    /// A duration below zero.
    #[error("annotation {COMPLETES_AFTER} is ignored: {0:?} is negative")]
    Negative(String),
    /// Not an exit code.
    #[error("annotation {FAILS} is ignored: {0:?} is neither true nor false nor an exit code from 0 to 255")]
    NoExitCode(String),
}

fn completes_after(text: &str) -> Result<Milliseconds, BadAnnotation> {
    let duration: GoDuration = text.parse()?;
    if duration < GoDuration::ZERO {
        return Err(BadAnnotation::Negative(text.to_owned()));
    }
    Ok(gc_types::milliseconds(duration.to_std()))
}

/// The exit code; `None` if the containers do not fail.
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

/// An annotation of a pod, or else of the object that manages it.
fn annotation<'a>(view: &View<'a>, pod: &'a Object, name: &str) -> Option<&'a str> {
    pod.annotation(name).or_else(|| view.store.controller_of(pod)?.annotation(name))
}

/// After which time a pod's containers end, and with which exit code; `None` if they run on.
pub(super) fn of_pod(view: &View<'_>, pod: &Object) -> Option<(Milliseconds, i64)> {
    let after = annotation(view, pod, COMPLETES_AFTER).and_then(|text| completes_after(text).ok());
    let code = annotation(view, pod, FAILS).and_then(|text| exit_code(text).ok()?);
    let of_job = view.store.controller_of(pod).is_some_and(|owner| owner.key.kind == Kind::Job);
    let ends = of_job && text(&pod.spec()["restartPolicy"]) != "Always";
    match (after, code) {
        (Some(after), code) => Some((after, code.unwrap_or_default())),
        (None, Some(code)) => Some((0, code)),
        (None, None) => ends.then_some((0, 0)),
    }
}

/// The annotations that count for a pod and have no effect.
pub(super) fn bad_annotations_of_pod(view: &View<'_>, pod: &Object) -> Vec<BadAnnotation> {
    bad(annotation(view, pod, COMPLETES_AFTER), annotation(view, pod, FAILS)).collect()
}

/// The annotations in a document that have no effect, or will have none on the pods of its template.
pub fn bad_annotations(document: &Value) -> impl Iterator<Item = BadAnnotation> + '_ {
    let job = &document["spec"]["jobTemplate"];
    let bearers = [document, &document["spec"]["template"], job, &job["spec"]["template"]];
    bearers.into_iter().flat_map(|bearer| {
        let annotations = &bearer["metadata"]["annotations"];
        bad(annotations[COMPLETES_AFTER].as_str(), annotations[FAILS].as_str())
    })
}

fn bad(after: Option<&str>, fails: Option<&str>) -> impl Iterator<Item = BadAnnotation> + use<> {
    let after = after.and_then(|text| completes_after(text).err());
    let fails = fails.and_then(|text| exit_code(text).err());
    after.into_iter().chain(fails)
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
            assert_eq!(completes_after(text).map_err(drop), expected, "{text:?}");
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
