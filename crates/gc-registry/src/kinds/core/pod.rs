//! Pods.

mod columns;
mod defaults;
pub(crate) mod prepare;
mod resize;

use std::collections::BTreeSet;

use crate::kinds::prelude::*;
use crate::kinds::shared::names::{
    dns_label, dns_subdomain, ip, is_dual_stack, qualified, range_error, subdomain,
};
use crate::kinds::shared::pod_spec::{self, MIRROR, Owner};
use crate::kinds::shared::{containers, diff, scheduling};
use crate::schema::shown::internal;

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const SPEC: &str = "api.core.v1.PodSpec";
const HEALTH: [&str; 3] = ["Healthy", "Unhealthy", "Unknown"];
const HEALTH_MESSAGE_MAX_BYTES: usize = 1024;
const NOT_A_GENERATION: &str = "must be a non-negative integer";

pub(crate) struct Pod;

impl Kind for Pod {
    const PARTS: Parts = Parts::Status;
    const PODS: Option<&'static [&'static str]> = Some(&[]);
    const GENERATION: Generation = Generation::SPEC;
    const COLUMNS: &'static [Column] = columns::COLUMNS;
    const SUBRESOURCES: &'static [&'static str] = &["ephemeralcontainers", "resize"];
    const FIELD_LABELS: &'static [&'static str] = &[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        columns::cells(row)
    }

    /// Returns the conditions of a table row, which mark finished pods as completed.
    fn row_conditions(object: &Value) -> Vec<Value> {
        let (reason, message) = match text(object, &["status", "phase"]) {
            "Succeeded" => ("Succeeded", "The pod has completed successfully."),
            "Failed" => ("Failed", "The pod failed."),
            _ => return Vec::new(),
        };
        vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
    }

    fn defaults(members: &mut Members) {
        defaults::pod(members);
    }

    fn drop_disabled(members: &mut Members) {
        if let Some(spec) = existing(members, "spec") {
            disabled::pod_spec(spec);
        }
        prepare::drop_volume_statuses(members);
    }

    fn prepare_create(object: &mut Value, context: &Context<'_>) {
        prepare::create(object, context);
    }

    fn prepare_status(new: &mut Value, old: &Value, _: &Context<'_>) {
        prepare::status(new, old);
    }

    fn prepare_subresource(subresource: &str, new: &mut Value, old: &Value, _: &Context<'_>) {
        match subresource {
            "resize" => prepare::resize(new, old),
            _ => prepare::ephemeral_containers(new, old),
        }
    }

    fn warnings(new: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
        // Warnings are for people, who seldom update pods, whereas controllers often do.
        if old.is_none() {
            warnings::name(new, warnings::IN_THE_HOSTNAME, texts);
            warnings::pod::pod("", new, texts);
        }
    }

    fn field_label(name: &str, object: &Value) -> String {
        match name {
            "spec.hostNetwork" => flag(object, &["spec", "hostNetwork"]).unwrap_or_default().to_string(),
            // Upstream knows the name, but no value for it.
            "status.podIPs" => String::new(),
            "status.podIP" => {
                let first = object.pointer("/status/podIPs/0/ip").and_then(Value::as_str);
                first.unwrap_or_else(|| text(object, &["status", "podIP"])).to_owned()
            }
            _ => text_label(name, object),
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        metadata_and_spec(object, report);
        let spec = object.get("spec");
        if !spec.get("ephemeralContainers").list().is_empty() {
            report.forbidden(&spec.get("ephemeralContainers"), "cannot be set on create");
        }
        if !spec.text_of("nodeName").is_empty() && !spec.get("schedulingGates").list().is_empty() {
            let why = "cannot be set until all schedulingGates have been cleared";
            report.forbidden(&spec.get("nodeName"), why);
        }
        let metadata = object.get("metadata");
        pod_spec::annotations_match(&metadata.get("annotations"), &spec, report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        metadata_and_spec(new, report);
        update(new, old, report);
    }

    fn validate_status(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        status(new, old, report);
    }

    fn validate_subresource(
        subresource: &str,
        new: &Field<'_, '_>,
        old: &Field<'_, '_>,
        report: &mut Report,
    ) {
        match subresource {
            "ephemeralcontainers" => ephemeral_containers(new, old, report),
            "resize" => resize::validate(new, old, report),
            _ => {}
        }
    }
}

fn metadata_and_spec(object: &Field<'_, '_>, report: &mut Report) {
    let (metadata, spec) = (object.get("metadata"), object.get("spec"));
    pod_spec::pod_annotations(&metadata.get("annotations"), &spec, report);
    pod_spec::spec(&spec, Owner::Pod(metadata.text_of("name")), report);
    if spec.text_of("serviceAccountName").is_empty() {
        for volume in spec.get("volumes").items() {
            for source in volume.get("projected").get("sources").items() {
                if source.has("serviceAccountToken") {
                    let why = "must not be specified when serviceAccountName is not set";
                    report.forbidden(&source.get("serviceAccountToken"), why);
                }
            }
        }
    }
    for member in ["containers", "initContainers"] {
        for container in spec.get(member).items() {
            containers::image_is_trimmed(&container, report);
        }
    }
}

/// Checks that a pod is unchanged except for a few fields.
fn update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
    let (spec, before) = (new.get("spec"), old.get("spec"));
    for member in ["containers", "initContainers"] {
        let ours = spec.get(member);
        if ours.list().len() != before.get(member).list().len() {
            report.forbidden(&ours, "pod updates may not add or remove containers");
            return;
        }
        for container in ours.items() {
            if container.text_of("image").is_empty() {
                report.required(&container.get("image"), "");
            }
            containers::image_is_trimmed(&container, report);
        }
    }
    if !deadline_is_kept(&spec, &before, report) {
        return;
    }
    tolerations_are_kept(&spec, &before, report);
    gates_are_only_lifted(&spec, &before, report);
    if spec.value() == before.value() {
        return;
    }
    let mut munged = new.value().clone();
    let old = old.value();
    for key in ["containers", "initContainers"] {
        let images: Vec<Option<Value>> =
            list(old, &["spec", key]).iter().map(|container| container.get("image").cloned()).collect();
        let Some(containers) = munged.pointer_mut(&format!("/spec/{key}")).and_then(Value::as_array_mut)
        else {
            continue;
        };
        for (container, image) in containers.iter_mut().filter_map(Value::as_object_mut).zip(images) {
            restore(container, "image", image);
        }
    }
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        keep_spec(&mut munged, old, key);
    }
    let grace = "terminationGracePeriodSeconds";
    if before.number_of(grace) < 0 && spec.number_of(grace) == 1 {
        keep_spec(&mut munged, old, grace);
    }
    if !before.get("schedulingGates").list().is_empty() {
        gated(&spec, &before, report);
        keep_spec(&mut munged, old, "nodeSelector");
        let path = ["spec", "affinity", "nodeAffinity"];
        match at(old, &path) {
            Some(value) => put(&mut munged, &path, value.clone()),
            None => remove(&mut munged, &path),
        }
        let is_empty = |affinity: &Value| affinity.as_object().is_some_and(Members::is_empty);
        if at(old, &path[..2]).is_none() && at(&munged, &path[..2]).is_some_and(is_empty) {
            remove(&mut munged, &path[..2]);
        }
    }
    let munged = munged.get("spec").unwrap_or(&Value::Null);
    if munged != before.value() {
        let changes = diff::unified(&internal(SPEC, before.value()), &internal(SPEC, munged));
        report.forbidden(&spec, &format!("{UPDATABLE}\n{changes}"));
    }
}

fn restore(members: &mut Members, key: &str, value: Option<Value>) {
    match value {
        Some(value) => members.insert(key.into(), value),
        None => members.remove(key),
    };
}

fn keep_spec(object: &mut Value, old: &Value, key: &str) {
    match at(old, &["spec", key]) {
        Some(value) => put(object, &["spec", key], value.clone()),
        None => remove(object, &["spec", key]),
    }
}

/// Checks that the deadline of a pod is set at most once, and only becomes shorter. Returns whether the checks continue.
fn deadline_is_kept(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) -> bool {
    let deadline = new.get("activeDeadlineSeconds");
    let before = old.get("activeDeadlineSeconds").integer();
    match (deadline.integer(), before) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            report.invalid(&deadline, &range_error(0, i64::from(i32::MAX)));
            false
        }
        (Some(seconds), Some(before)) if before < seconds => {
            report.invalid(&deadline, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            report.invalid(&deadline, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn tolerations_are_kept(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
    let field = new.get("tolerations");
    let identity = |toleration: &Value| {
        let mut toleration = toleration.clone();
        remove(&mut toleration, &["tolerationSeconds"]);
        toleration.to_string()
    };
    let ours: BTreeSet<String> = field.list().iter().map(identity).collect();
    if !old.get("tolerations").list().iter().map(identity).all(|before| ours.contains(&before)) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        report.forbidden(&field, why);
        return;
    }
    scheduling::tolerations(&field, report);
}

fn gates_are_only_lifted(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
    let gates = old.get("schedulingGates");
    let before: BTreeSet<&str> = gates.items().map(|gate| gate.text_of("name")).collect();
    for gate in new.get("schedulingGates").items() {
        let name = gate.get("name");
        if !before.contains(name.text()) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{}'", name.text());
            report.forbidden(&name, &why);
        }
    }
}

/// Checks that a pod waiting for its gates only restricts its nodes further.
fn gated(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
    let selector = new.get("nodeSelector");
    for (key, value) in old.get("nodeSelector").entries() {
        if selector.member(key) != value.value() {
            let at = selector.with(selector.value());
            report
                .invalid(&at, "only additions to spec.nodeSelector are allowed (no mutations or deletions)");
            break;
        }
    }
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let (affinity, before) = (new.get("affinity"), old.get("affinity"));
    let (nodes, before) = (affinity.get("nodeAffinity"), before.get("nodeAffinity"));
    let before = before.get(REQUIRED);
    let before = before.get("nodeSelectorTerms");
    let required = nodes.get(REQUIRED);
    let terms = required.get("nodeSelectorTerms");
    if nodes.value() == old.get("affinity").member("nodeAffinity") || before.list().is_empty() {
        return;
    }
    if !required.is_set() {
        report.invalid(&required, "may not be removed");
        return;
    }
    if terms.list().len() != before.list().len() {
        report.invalid(&terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed");
        return;
    }
    for (term, was) in terms.items().zip(before.items()) {
        for member in ["matchExpressions", "matchFields"] {
            let kept = term.get(member).list().starts_with(was.get(member).list());
            let grows = !was.get("matchExpressions").is_empty() || !was.get("matchFields").is_empty();
            if !kept || (!grows && !term.get(member).is_empty()) {
                report.invalid(&term, "only additions are allowed (no mutations or deletions)");
                break;
            }
        }
    }
}

fn status(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
    let (status, before) = (new.get("status"), old.get("status"));
    let spec = new.get("spec");
    let conditions = status.get("conditions");
    for condition in conditions.items() {
        if condition.number_of("observedGeneration") < 0 {
            report.invalid(&condition.get("observedGeneration"), NOT_A_GENERATION);
        }
        if !matches!(condition.text_of("type"), "PodScheduled" | "Ready" | "Initialized") {
            qualified(&condition.named("Type", condition.member("type")), report);
        }
    }
    if spec.text_of("nodeName") != old.get("spec").text_of("nodeName") {
        report.forbidden(&status.get("nodeName"), "may not be changed directly");
    }
    let nominated = status.get("nominatedNodeName");
    if !nominated.text().is_empty() && nominated.text() != before.text_of("nominatedNodeName") {
        subdomain(&nominated, report);
        if !old.get("spec").text_of("nodeName").is_empty() {
            report.forbidden(&nominated, "may not be set on pods that are already bound to a node");
        }
    }
    if status.number_of("observedGeneration") < 0 {
        report.invalid(&status.get("observedGeneration"), NOT_A_GENERATION);
    }
    let quality = status.get("qosClass");
    if quality.text() != before.text_of("qosClass") {
        report.invalid_text(&quality, quality.text(), IMMUTABLE);
    }
    container_states(&status, &before, &old.get("spec"), report);
    resource_claims(&status, &spec, report);
    extended_claims(&status, &spec, report);
    addresses(&status, report);
    let is_windows = spec.get("os").text_of("name") == "windows";
    for member in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        for container in status.get(member).items() {
            let user = container.get("user");
            if user.is_set() {
                container_user(&user.get("linux"), is_windows, report);
            }
        }
    }
    for (member, containers) in
        [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")]
    {
        for container in status.get(member).items() {
            let containers = spec.get(containers);
            let own = containers.items().find(|own| own.text_of("name") == container.text_of("name"));
            allocated_resources(&container.get("allocatedResourcesStatus"), own.as_ref(), report);
        }
    }
    for container in status.get("ephemeralContainerStatuses").items() {
        let allocated = container.get("allocatedResourcesStatus");
        if !allocated.is_empty() {
            report.forbidden(&allocated, "must not be specified in container status");
        }
    }
}

/// Validates the health of a container's devices; `own` is the container, if the pod still has it.
fn allocated_resources(field: &Field<'_, '_>, own: Option<&Field<'_, '_>>, report: &mut Report) {
    for resource in field.items() {
        let name = resource.get("name");
        if let Some(why) = own.and_then(|own| unknown_resource(own, name.text())) {
            report.invalid_text(&name, name.text(), why);
        }
        let mut ids = BTreeSet::new();
        for device in resource.get("resources").items() {
            let (health, message) = (device.get("health"), device.get("message"));
            if !HEALTH.contains(&health.text()) {
                report.not_supported(&health, &HEALTH);
            }
            if message.is_set() && message.text().is_empty() {
                report.required(&message, "must be non-empty if specified");
            } else if message.text().len() > HEALTH_MESSAGE_MAX_BYTES {
                report.too_long(&message, HEALTH_MESSAGE_MAX_BYTES);
            }
            if !ids.insert(device.text_of("resourceID")) {
                report.duplicate(&device.get("resourceID"));
            }
        }
    }
}

/// Returns the reason why a container cannot have a resource with this name, if it requests neither a resource nor a claim of that
/// name.
fn unknown_resource(container: &Field<'_, '_>, name: &str) -> Option<&'static str> {
    let resources = container.get("resources");
    let Some(wanted) = name.strip_prefix("claim:") else {
        let is_requested = resources.get("requests").has(name);
        return (!is_requested).then_some("must match one of the container's resource requests");
    };
    let claims = resources.get("claims");
    let is_claimed = claims.items().any(|claim| match (claim.text_of("name"), claim.text_of("request")) {
        (own, "") => own == wanted,
        (own, request) => wanted.split_once('/') == Some((own, request)),
    });
    (!is_claimed).then_some(
        "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or \
         'claim:<claimName>' if request is empty",
    )
}

/// Checks that a container that is not to be restarted does not run again.
fn container_states(
    status: &Field<'_, '_>,
    before: &Field<'_, '_>,
    spec: &Field<'_, '_>,
    report: &mut Report,
) {
    let policy = spec.text_of("restartPolicy");
    let init = spec.get("initContainers");
    let restarting: BTreeSet<&str> = init
        .items()
        .filter(|container| container.text_of("restartPolicy") == "Always")
        .map(|container| container.text_of("name"))
        .collect();
    for (member, policy) in [
        ("containerStatuses", policy),
        ("initContainerStatuses", policy),
        ("ephemeralContainerStatuses", "Never"),
    ] {
        if policy == "Always" {
            continue;
        }
        let statuses = status.get(member);
        let running: BTreeSet<&str> = statuses
            .items()
            .filter(|container| !container.get("state").has("terminated"))
            .map(|container| container.text_of("name"))
            .collect();
        for (index, container) in before.get(member).items().enumerate() {
            let name = container.text_of("name");
            let state = container.get("state");
            let may_restart = !state.has("terminated")
                || (state.get("terminated").number_of("exitCode") != 0 && policy == "OnFailure")
                || (member == "initContainerStatuses" && restarting.contains(name));
            if !may_restart && running.contains(name) {
                let why = "may not be transitioned to non-terminated state";
                report.forbidden(&statuses.index(index).get("state"), why);
            }
        }
    }
}

fn resource_claims(status: &Field<'_, '_>, spec: &Field<'_, '_>, report: &mut Report) {
    let claims = spec.get("resourceClaims");
    let known: BTreeSet<&str> = claims.items().map(|claim| claim.text_of("name")).collect();
    let mut seen = BTreeSet::new();
    for claim in status.get("resourceClaimStatuses").items() {
        let name = claim.get("name");
        if !known.contains(name.text()) {
            let why = "must match the name of an entry in `spec.resourceClaims`";
            report.invalid_text(&name, name.text(), why);
        }
        if !seen.insert(name.text()) {
            report.duplicate(&name);
        }
        let own = claim.get("resourceClaimName");
        if own.is_set() {
            report.each(&own, dns_subdomain(own.text()));
        }
    }
}

fn addresses(status: &Field<'_, '_>, report: &mut Report) {
    let hosts = status.get("hostIPs");
    one_of_each_family(&status.get("podIPs"), report);
    if let Some(first) = hosts.items().next()
        && first.text_of("ip") != status.text_of("hostIP")
    {
        report.invalid_text(&first.get("ip"), first.text_of("ip"), "must be equal to `hostIP`");
    }
    one_of_each_family(&hosts, report);
}

fn one_of_each_family(field: &Field<'_, '_>, report: &mut Report) {
    let texts: Vec<&str> = field.items().map(|item| item.text_of("ip")).collect();
    let shown = |text: &str| format!("{{\"IP\":{}}}", Value::from(text));
    for item in field.items() {
        ip(&item.with(item.member("ip")), report);
    }
    if texts.len() < 2 {
        return;
    }
    let dual = is_dual_stack(texts.iter().copied());
    if dual.is_none() {
        report.undetermined_families(field, &texts);
    }
    if dual != Some(true) || texts.len() > 2 {
        let all: Vec<String> = texts.iter().map(|text| shown(text)).collect();
        let why = "may specify no more than one IP for each IP family";
        report.invalid_shown(field, &format!("[{}]", all.join(",")), why);
    }
}

fn container_user(user: &Field<'_, '_>, is_windows: bool, report: &mut Report) {
    if !user.is_set() {
        return;
    }
    if is_windows {
        report.forbidden(user, "cannot be set for a windows pod");
        return;
    }
    let mut id = |field: &Field<'_, '_>| {
        if !(0..=i64::from(i32::MAX)).contains(&field.number()) {
            report.invalid_number(field, &range_error(0, i64::from(i32::MAX)));
        }
    };
    id(&user.get("uid"));
    id(&user.get("gid"));
    user.get("supplementalGroups").items().for_each(|group| id(&group));
}

fn extended_claims(status: &Field<'_, '_>, spec: &Field<'_, '_>, report: &mut Report) {
    let field = status.get("extendedResourceClaimStatus");
    if !field.is_set() {
        return;
    }
    let mappings = field.get("requestMappings");
    if mappings.is_empty() {
        report.required(&mappings, "at least one request mapping is required");
    }
    let (init, regular) = (spec.get("initContainers"), spec.get("containers"));
    let known: BTreeSet<&str> =
        init.items().chain(regular.items()).map(|container| container.text_of("name")).collect();
    let mut seen = BTreeSet::new();
    for mapping in mappings.items() {
        let container = mapping.get("containerName");
        if !known.contains(container.text()) {
            let why = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
            report.invalid_text(&container, container.text(), why);
        }
        let request = mapping.text_of("requestName");
        report.each_of(&field.get("requestName"), request, dns_label(request));
        let parts = ["containerName", "resourceName", "requestName"];
        if !seen.insert(parts.map(|part| mapping.text_of(part))) {
            for part in parts {
                report.duplicate_text(&mapping.get(part), mapping.text_of(part));
            }
        }
    }
    let name = field.get("resourceClaimName");
    if name.text().is_empty() {
        report.required(&name, "");
    } else {
        subdomain(&name, report);
    }
}

fn ephemeral_containers(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
    metadata_and_spec(new, report);
    if old.get("metadata").get("annotations").has(MIRROR) {
        report.errors.clear();
        report.forbidden(new, "static pods do not support ephemeral containers");
        return;
    }
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let field = spec.get("ephemeralContainers");
    let ours: std::collections::BTreeMap<&str, &Value> =
        field.items().map(|container| (container.text_of("name"), container.value())).collect();
    for container in before.get("ephemeralContainers").items() {
        let name = container.text_of("name");
        match ours.get(name) {
            None => {
                let why = format!("existing ephemeral containers {} may not be removed\n", quoted(name));
                report.forbidden(&field, &why);
            }
            Some(value) if *value != container.value() => {
                const TYPE: &str = "api.core.v1.EphemeralContainer";
                let changes = diff::unified(&internal(TYPE, container.value()), &internal(TYPE, value));
                let why =
                    format!("existing ephemeral containers {} may not be changed\n{changes}", quoted(name));
                report.forbidden(&field, &why);
            }
            Some(_) => {}
        }
    }
}
