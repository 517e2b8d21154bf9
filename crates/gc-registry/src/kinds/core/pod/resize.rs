//! Changes of the resources of a pod and its containers.

use super::metadata_and_spec;
use super::prepare::quality_of_service;
use crate::kinds::prelude::*;
use crate::kinds::shared::pod_spec::MIRROR;

/// Resources that can change while containers run.
const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// Validates changes of CPU and memory of a running pod and its containers.
pub(super) fn validate(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
    metadata_and_spec(new, report);
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let refusal = if old.get("metadata").get("annotations").has(MIRROR) {
        Some("static pods cannot be resized")
    } else if before.get("os").text_of("name") == "windows" {
        Some("windows pods cannot be resized")
    } else {
        None
    };
    if let Some(why) = refusal {
        report.errors.clear();
        report.forbidden(new, why);
        return;
    }
    let quality = quality_of_service(new.value());
    if quality_of_service(old.value()) != quality {
        let shown = quoted(new.get("status").text_of("qosClass"));
        report.invalid_shown(&spec, &shown, "Pod QOS Class may not change as a result of resizing");
    }
    let running = old.get("status");
    let unsupported = running
        .get("containerStatuses")
        .items()
        .find(|container| container.get("state").has("running"))
        .is_some_and(|container| !container.has("resources"));
    if unsupported {
        report.forbidden(&spec, "Pod running on node without support for resize");
    }
    whole_pod(&spec, &before, report);
    if !is_in_order(&spec, &before, report) {
        return;
    }
    for member in ["initContainers", "containers"] {
        for (container, was) in spec.get(member).items().zip(before.get(member).items()) {
            let removed = ["resource requests cannot be removed", "resource limits cannot be removed"];
            kept(&container.get("resources"), &was.get("resources"), removed, report);
        }
    }
    for (container, was) in spec.get("containers").items().zip(before.get("containers").items()) {
        if changes_more(&container, &was) {
            report.forbidden(&spec, "only cpu and memory resources are mutable");
        }
    }
    for (container, was) in spec.get("initContainers").items().zip(before.get("initContainers").items()) {
        init_container(&container, &was, report);
    }
}

/// Validates the resources of the pod as a whole.
fn whole_pod(spec: &Field<'_, '_>, before: &Field<'_, '_>, report: &mut Report) {
    let (resources, was) = (spec.get("resources"), before.get("resources"));
    let says_something =
        |resources: &Field<'_, '_>| ["requests", "limits"].iter().any(|kind| !resources.get(kind).is_empty());
    if !says_something(&resources) && !says_something(&was) {
        return;
    }
    if was.is_set() && !resources.is_set() {
        report.forbidden(&resources, "pod-level resources cannot be removed");
        return;
    }
    let removed =
        ["pod-level resource requests cannot be removed", "pod-level resource limits cannot be removed"];
    kept(&resources, &was, removed, report);
    let rest = |spec: &Field<'_, '_>| {
        let rest = without_compute(&json!({"resources": spec.member("resources")}));
        members(&rest, &["resources"]).filter(|rest| !rest.is_empty()).cloned()
    };
    if rest(spec) != rest(before) {
        report.forbidden(spec, "only cpu and memory resources are mutable at pod-level");
    }
}

/// Reports whether all containers are in their former positions.
fn is_in_order(spec: &Field<'_, '_>, before: &Field<'_, '_>, report: &mut Report) -> bool {
    let errors = report.errors.len();
    for member in ["containers", "initContainers"] {
        let (ours, theirs) = (spec.get(member), before.get(member));
        if ours.list().len() != theirs.list().len() {
            report.forbidden(&ours, &format!("{member} may not be added or removed on resize"));
            continue;
        }
        for (container, was) in ours.items().zip(theirs.items()) {
            if container.text_of("name") != was.text_of("name") {
                let why = format!("{member} may not be renamed or reordered on resize");
                report.forbidden(&container.get("name"), &why);
            }
        }
    }
    report.errors.len() == errors
}

fn init_container(container: &Field<'_, '_>, was: &Field<'_, '_>, report: &mut Report) {
    if changes_more(container, was) {
        report
            .forbidden(container, "only cpu and memory resources for init or sidecar containers are mutable");
    }
    let lasts = container.text_of("restartPolicy") == "Always";
    if lasts || container.value() == was.value() {
        return;
    }
    for policy in container.get("resizePolicy").items() {
        if policy.text_of("restartPolicy") == "RestartContainer" {
            let why =
                "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
            report.forbidden(container, why);
        }
    }
}

/// Checks that no limit or request was removed.
fn kept(resources: &Field<'_, '_>, was: &Field<'_, '_>, removed: [&str; 2], report: &mut Report) {
    for (member, why) in ["requests", "limits"].into_iter().zip(removed) {
        let ours = resources.get(member);
        if was.get(member).entries().any(|(name, _)| !ours.has(name)) {
            report.forbidden(&ours, why);
        }
    }
}

/// Reports whether a container changes anything other than its CPU and memory.
fn changes_more(container: &Field<'_, '_>, was: &Field<'_, '_>) -> bool {
    let mut ours = without_compute(container.value());
    // Upstream treats claims as absent in this comparison.
    remove(&mut ours, &["resources", "claims"]);
    ours != without_compute(was.value())
}

fn without_compute(container: &Value) -> Value {
    let mut container = container.clone();
    for kind in ["limits", "requests"] {
        for name in COMPUTE {
            remove(&mut container, &["resources", kind, name]);
        }
        if at(&container, &["resources", kind]) == Some(&json!({})) {
            remove(&mut container, &["resources", kind]);
        }
    }
    container
}
