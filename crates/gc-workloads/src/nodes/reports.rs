//! Events that a kubelet writes about the containers of its pods.

use serde_json::Value;

use super::lifetime::BadAnnotation;
use crate::object::{Object, items, text};
use crate::plan::Note;

/// Reason of a pod that ran for longer than it may.
pub(super) const OVERDUE: &str = "DeadlineExceeded";

/// Returns the names of the containers in a field of the specification, with the path of each.
fn containers<'a>(pod: &'a Object, field: &'static str) -> impl Iterator<Item = (&'a str, &'a str, String)> {
    items(&pod.spec()[field]).map(move |container| {
        let name = text(&container["name"]);
        (name, text(&container["image"]), format!("spec.{field}{{{name}}}"))
    })
}

/// Reports that containers are started: the first time with the init containers before them, and later without.
pub(super) fn started(pod: &Object, node: &Object) -> Vec<Note> {
    let has_ended =
        |status: &Value| ["state", "lastState"].iter().any(|state| status[state]["terminated"].is_object());
    let is_first = !items(&pod.status()["containerStatuses"]).any(has_ended);
    let init = is_first.then(|| containers(pod, "initContainers")).into_iter().flatten();
    init.chain(containers(pod, "containers"))
        .flat_map(|(_, image, path)| {
            let pulled = format!(
                "Container image \"{image}\" already present on machine and can be accessed by the pod"
            );
            [
                ("Pulled", pulled),
                ("Created", "Container created".into()),
                ("Started", "Container started".into()),
            ]
            .map(|(reason, message)| {
                Note::normal(pod, reason, message).about_part(path.clone()).from_kubelet_of(node)
            })
        })
        .collect()
}

/// Reports an invalid annotation of a pod that starts.
pub(super) fn ignored(pod: &Object, node: &Object, bad: &BadAnnotation) -> Note {
    Note::warning(pod, "InvalidAnnotation", bad.to_string()).from_kubelet_of(node)
}

/// Reports that running containers are stopped.
pub(super) fn stopped(pod: &Object, node: &Object) -> Vec<Note> {
    let runs = |name: &str| {
        let statuses = &pod.status()["containerStatuses"];
        items(statuses).any(|status| status["name"] == name && status["state"]["running"].is_object())
    };
    containers(pod, "containers")
        .filter(|(name, _, _)| runs(name))
        .map(|(name, _, path)| {
            let message = format!("Stopping container {name}");
            Note::normal(pod, "Killing", message).about_part(path).from_kubelet_of(node)
        })
        .collect()
}

/// Reports that a pod ran for longer than it may, and that its containers are stopped.
pub(super) fn overdue(pod: &Object, node: &Object, message: &str) -> Vec<Note> {
    let overdue = Note::normal(pod, OVERDUE, message).from_kubelet_of(node);
    std::iter::once(overdue).chain(stopped(pod, node)).collect()
}

/// Reports that containers failed, and are restarted after a pause.
pub(super) fn failed(pod: &Object, node: &Object) -> Vec<Note> {
    let whole = format!("{}_{}({})", pod.name(), pod.namespace(), pod.uid);
    containers(pod, "containers")
        .map(|(name, _, path)| {
            let message = format!("Back-off restarting failed container {name} in pod {whole}");
            Note::warning(pod, "BackOff", message).about_part(path).from_kubelet_of(node)
        })
        .collect()
}
