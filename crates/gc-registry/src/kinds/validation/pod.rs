//! Pods and pod templates.

use std::collections::BTreeSet;

use serde_json::Value;

use super::names::{label, labels, port_name, port_number, qualified_name, subdomain};
use super::report::Report;
use crate::kinds::access::{at, flag, integer, list, text};
use crate::kinds::quantity;

/// What says where the content of a volume comes from.
const VOLUME_SOURCES: [&str; 31] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "persistentVolumeClaim",
    "photonPersistentDisk",
    "portworxVolume",
    "projected",
    "quobyte",
    "rbd",
    "scaleIO",
    "secret",
    "storageos",
    "vsphereVolume",
    "local",
];

pub(super) fn pod(object: &Value, report: &mut Report) {
    spec(object.get("spec"), "spec", report);
}

/// Checks a template in the field `field`.
pub(super) fn template(template: Option<&Value>, field: &str, report: &mut Report) {
    let Some(template) = template else {
        report.required(field, "");
        return;
    };
    labels(at(template, &["metadata", "labels"]), &format!("{field}.labels"), report);
    spec(template.get("spec"), &format!("{field}.spec"), report);
    if !list(template, &["spec", "ephemeralContainers"]).is_empty() {
        report.forbidden(
            &format!("{field}.spec.ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
}

fn spec(spec: Option<&Value>, field: &str, report: &mut Report) {
    let empty = Value::Null;
    let spec = spec.unwrap_or(&empty);
    let mut volumes = BTreeSet::new();
    for (index, volume) in list(spec, &["volumes"]).iter().enumerate() {
        volume_rules(volume, &format!("{field}.volumes[{index}]"), &mut volumes, report);
    }
    let mut names = BTreeSet::new();
    if list(spec, &["containers"]).is_empty() {
        report.required(&format!("{field}.containers"), "");
    }
    for key in ["containers", "initContainers", "ephemeralContainers"] {
        for (index, container) in list(spec, &[key]).iter().enumerate() {
            container_rules(container, &format!("{field}.{key}[{index}]"), key, &mut names, &volumes, report);
        }
    }
    report.one_of(
        &format!("{field}.restartPolicy"),
        spec.get("restartPolicy"),
        &["Always", "Never", "OnFailure"],
    );
    report.one_of(
        &format!("{field}.dnsPolicy"),
        spec.get("dnsPolicy"),
        &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"],
    );
    let active = at(spec, &["activeDeadlineSeconds"]);
    if active.and_then(Value::as_i64).is_some_and(|seconds| !(1..=i64::from(i32::MAX)).contains(&seconds)) {
        report.invalid(
            &format!("{field}.activeDeadlineSeconds"),
            active,
            "must be between 1 and 2147483647, inclusive",
        );
    }
    labels(at(spec, &["nodeSelector"]), &format!("{field}.nodeSelector"), report);
    for key in ["serviceAccountName", "nodeName", "priorityClassName"] {
        let name = text(spec, &[key]);
        if !name.is_empty() {
            report.each(&format!("{field}.{key}"), name, subdomain(name));
        }
    }
    for key in ["hostname", "subdomain"] {
        let name = text(spec, &[key]);
        if !name.is_empty() {
            report.each(&format!("{field}.{key}"), name, label(name));
        }
    }
    for (index, toleration) in list(spec, &["tolerations"]).iter().enumerate() {
        toleration_rules(toleration, &format!("{field}.tolerations[{index}]"), report);
    }
}

fn toleration_rules(toleration: &Value, field: &str, report: &mut Report) {
    let key = text(toleration, &["key"]);
    let operator = text(toleration, &["operator"]);
    let value = text(toleration, &["value"]);
    let effect = text(toleration, &["effect"]);
    if !key.is_empty() {
        report.each(&format!("{field}.key"), key, qualified_name(key));
    } else if operator != "Exists" {
        report.invalid_text(
            &format!("{field}.operator"),
            operator,
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        );
    }
    if at(toleration, &["tolerationSeconds"]).is_some() && effect != "NoExecute" {
        report.invalid_text(
            &format!("{field}.effect"),
            effect,
            "effect must be 'NoExecute' when `tolerationSeconds` is set",
        );
    }
    match operator {
        "" | "Equal" | "Gt" | "Lt" => {}
        "Exists" if value.is_empty() => {}
        "Exists" => report.invalid(
            &format!("{field}.operator"),
            Some(toleration),
            "value must be empty when `operator` is 'Exists'",
        ),
        _ => {
            report.not_supported(
                &format!("{field}.operator"),
                toleration.get("operator"),
                &["Equal", "Exists"],
            );
        }
    }
    report.one_of_if_set(
        &format!("{field}.effect"),
        toleration.get("effect"),
        &["NoSchedule", "PreferNoSchedule", "NoExecute"],
    );
}

fn volume_rules(volume: &Value, field: &str, names: &mut BTreeSet<String>, report: &mut Report) {
    let name = text(volume, &["name"]);
    if name.is_empty() {
        report.required(&format!("{field}.name"), "");
    } else {
        report.each(&format!("{field}.name"), name, label(name));
        if !names.insert(name.to_owned()) {
            report.duplicate(&format!("{field}.name"), &name.into());
        }
    }
    let sources: Vec<&str> =
        VOLUME_SOURCES.iter().copied().filter(|key| at(volume, &[key]).is_some()).collect();
    match sources.as_slice() {
        [] => report.required(field, "must specify a volume type"),
        [_] => {}
        [_, others @ ..] => {
            for other in others {
                report.forbidden(&format!("{field}.{other}"), "may not specify more than 1 volume type");
            }
        }
    }
    for (source, key) in [
        ("hostPath", "path"),
        ("secret", "secretName"),
        ("configMap", "name"),
        ("persistentVolumeClaim", "claimName"),
        ("csi", "driver"),
    ] {
        if let Some(value) = at(volume, &[source])
            && text(value, &[key]).is_empty()
            && flag(value, &["optional"]) != Some(true)
        {
            report.required(&format!("{field}.{source}.{key}"), "");
        }
    }
}

fn container_rules(
    container: &Value,
    field: &str,
    kind: &str,
    names: &mut BTreeSet<String>,
    volumes: &BTreeSet<String>,
    report: &mut Report,
) {
    let name = text(container, &["name"]);
    if name.is_empty() {
        report.required(&format!("{field}.name"), "");
    } else {
        report.each(&format!("{field}.name"), name, label(name));
        if !names.insert(name.to_owned()) {
            report.duplicate(&format!("{field}.name"), &name.into());
        }
    }
    let image = text(container, &["image"]);
    // A template's image may come later; the kubelet needs one, and so did the pod always.
    if image.is_empty() {
        report.required(&format!("{field}.image"), "");
    } else if image.trim() != image {
        report.invalid_text(&format!("{field}.image"), image, "must not have leading or trailing whitespace");
    }
    report.one_of(
        &format!("{field}.imagePullPolicy"),
        container.get("imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
    );
    report.one_of(
        &format!("{field}.terminationMessagePolicy"),
        container.get("terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
    );
    if kind == "initContainers" {
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            if at(container, &[probe]).is_some() && text(container, &["restartPolicy"]) != "Always" {
                report.forbidden(
                    &format!("{field}.{probe}"),
                    "may not be set for init containers without restartPolicy=Always",
                );
            }
        }
    }
    ports(container, field, report);
    for (index, variable) in list(container, &["env"]).iter().enumerate() {
        environment(variable, &format!("{field}.env[{index}]"), report);
    }
    mounts(container, field, volumes, report);
    resources(container.get("resources"), &format!("{field}.resources"), report);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(value) = at(container, &[probe]) {
            probe_rules(value, probe, &format!("{field}.{probe}"), report);
        }
    }
}

fn ports(container: &Value, field: &str, report: &mut Report) {
    let mut names = BTreeSet::new();
    for (index, port) in list(container, &["ports"]).iter().enumerate() {
        let field = format!("{field}.ports[{index}]");
        let name = text(port, &["name"]);
        if !name.is_empty() {
            let problems = port_name(name);
            if problems.is_empty() && !names.insert(name) {
                report.duplicate(&format!("{field}.name"), &name.into());
            }
            report.each(&format!("{field}.name"), name, problems);
        }
        let number = at(port, &["containerPort"]);
        match number.and_then(Value::as_i64) {
            None | Some(0) => report.required(&format!("{field}.containerPort"), ""),
            Some(value) => {
                for problem in port_number(value) {
                    report.invalid(&format!("{field}.containerPort"), number, &problem);
                }
            }
        }
        let host = at(port, &["hostPort"]);
        if let Some(value) = host.and_then(Value::as_i64).filter(|value| *value != 0) {
            for problem in port_number(value) {
                report.invalid(&format!("{field}.hostPort"), host, &problem);
            }
        }
        report.one_of(&format!("{field}.protocol"), port.get("protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

fn environment(variable: &Value, field: &str, report: &mut Report) {
    let name = text(variable, &["name"]);
    if name.is_empty() {
        report.required(&format!("{field}.name"), "");
    } else if name.contains('=') || !name.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        report.invalid_text(
            &format!("{field}.name"),
            name,
            "a valid environment variable name must consist only of printable ASCII characters other than '='",
        );
    }
    let Some(source) = at(variable, &["valueFrom"]) else { return };
    let sources = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    let given = sources.iter().filter(|key| at(source, &[key]).is_some()).count();
    let field = format!("{field}.valueFrom");
    if given == 0 {
        report.invalid(
            &field,
            Some(&"".into()),
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        );
    } else if !text(variable, &["value"]).is_empty() {
        report.invalid(&field, Some(&"".into()), "may not be specified when `value` is not empty");
    }
    if given > 1 {
        report.invalid(&field, Some(&"".into()), "may not have more than one field specified at a time");
    }
    for key in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(reference) = at(source, &[key])
            && text(reference, &["key"]).is_empty()
        {
            report.required(&format!("{field}.{key}.key"), "");
        }
    }
}

fn mounts(container: &Value, field: &str, volumes: &BTreeSet<String>, report: &mut Report) {
    let mut paths = BTreeSet::new();
    for (index, mount) in list(container, &["volumeMounts"]).iter().enumerate() {
        let field = format!("{field}.volumeMounts[{index}]");
        let name = text(mount, &["name"]);
        if name.is_empty() {
            report.required(&format!("{field}.name"), "");
        } else if !volumes.contains(name) {
            report.not_found(&format!("{field}.name"), name);
        }
        let path = text(mount, &["mountPath"]);
        if path.is_empty() {
            report.required(&format!("{field}.mountPath"), "");
        } else if !paths.insert(path) {
            report.invalid_text(&format!("{field}.mountPath"), path, "must be unique");
        }
    }
}

/// Limits and requests: quantities, and no request above its limit.
pub(super) fn resources(resources: Option<&Value>, field: &str, report: &mut Report) {
    let Some(resources) = resources else { return };
    report.quantities(at(resources, &["limits"]), &format!("{field}.limits"));
    report.quantities(at(resources, &["requests"]), &format!("{field}.requests"));
    for (name, value) in at(resources, &["requests"]).and_then(Value::as_object).into_iter().flatten() {
        let limit = at(resources, &["limits", name]);
        if let (Some(Ok(request)), Some(Some(Ok(most)))) = (quantity::of(value), limit.map(quantity::of))
            && request.exceeds(most)
        {
            let most = limit.and_then(Value::as_str).unwrap_or_default();
            report.invalid(
                &format!("{field}.requests"),
                Some(value),
                &format!("must be less than or equal to {name} limit of {most}"),
            );
        }
    }
}

fn probe_rules(probe: &Value, name: &str, field: &str, report: &mut Report) {
    let handlers = ["exec", "httpGet", "tcpSocket", "grpc"];
    let given: Vec<&str> = handlers.into_iter().filter(|key| at(probe, &[key]).is_some()).collect();
    match given.as_slice() {
        [] => report.required(field, "must specify a handler type"),
        [_] => {}
        [_, others @ ..] => {
            for other in others {
                report.forbidden(&format!("{field}.{other}"), "may not specify more than 1 handler type");
            }
        }
    }
    for key in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        report.not_negative(probe, &[key], &format!("{field}.{key}"));
    }
    let grace = at(probe, &["terminationGracePeriodSeconds"]);
    if name == "readinessProbe" {
        if grace.is_some() {
            report.invalid(
                &format!("{field}.terminationGracePeriodSeconds"),
                grace,
                "must not be set for readinessProbes",
            );
        }
        return;
    }
    report.positive(
        probe,
        &["terminationGracePeriodSeconds"],
        &format!("{field}.terminationGracePeriodSeconds"),
    );
    let threshold = at(probe, &["successThreshold"]);
    if integer(probe, &["successThreshold"]).is_some_and(|number| number != 1 && number >= 0) {
        report.invalid(&format!("{field}.successThreshold"), threshold, "must be 1");
    }
}
