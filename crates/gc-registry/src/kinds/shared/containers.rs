//! Validation of all three kinds of pod containers.

use std::collections::{BTreeMap, BTreeSet};

use super::downward;
use super::names::{
    config_key, dns_label, dns_subdomain, environment_name, header_name, label, local_descending_path,
    path_without_backsteps, port_name, port_number, port_number_or_name,
};
use super::resources::{self, Names};
use super::security;
use crate::kinds::prelude::*;

pub(crate) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const NOT_FOR_INIT: &str = "may not be set for init containers without restartPolicy=Always";
const NOT_FOR_EPHEMERAL: &str = "cannot be set for an Ephemeral Container";
const NEEDS_POLICY: &str = "must specify restartPolicy when restart rules are used";
const RESTART_RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

/// Facts about a pod that its containers' rules use.
pub(crate) struct Pod<'v> {
    /// Spec of the pod.
    pub(crate) spec: &'v Value,
    /// Names of the volumes without errors.
    pub(crate) volumes: BTreeSet<&'v str>,
    /// Names of the claims.
    pub(crate) claims: BTreeSet<&'v str>,
    /// Seconds between the signal and the end, if known.
    pub(crate) grace_period_seconds: Option<i64>,
    /// True if the pod runs in the host's user namespace.
    pub(crate) host_users: bool,
}

impl<'v> Pod<'v> {
    fn volume(&self, name: &str) -> Option<&'v Value> {
        if !self.volumes.contains(name) {
            return None;
        }
        let volumes = self.spec.get("volumes")?.as_array()?;
        volumes.iter().find(|volume| volume.get("name").and_then(Value::as_str) == Some(name))
    }
}

/// Validates the regular containers.
pub(crate) fn regular(field: &Field<'_, '_>, pod: &Pod<'_>, report: &mut Report) {
    if field.list().is_empty() {
        report.required(field, "");
        return;
    }
    let mut names = BTreeSet::new();
    let mut host_ports = BTreeSet::new();
    for container in field.items() {
        common(&container, pod, report);
        if !names.insert(container.text_of("name")) {
            report.duplicate_text(&container.get("name"), container.text_of("name"));
        }
        handlers_and_probes(&container, pod, report);
        restart_rules(&container, report);
    }
    for container in field.items() {
        unique_host_ports(&container, &mut host_ports, report);
    }
}

/// Validates the init containers. `others` are the regular ones.
pub(crate) fn init(field: &Field<'_, '_>, others: &[Value], pod: &Pod<'_>, report: &mut Report) {
    let mut names: BTreeSet<&str> = others.iter().map(name_of).collect();
    for container in field.items() {
        common(&container, pod, report);
        init_restart_rules(&container, report);
        let name = container.text_of("name");
        if names.contains(name) {
            report.duplicate_text(&container.get("name"), name);
        } else if !name.is_empty() {
            names.insert(name);
        }
        unique_host_ports(&container, &mut BTreeSet::new(), report);
        if container.text_of("restartPolicy") == "Always" {
            handlers_and_probes(&container, pod, report);
        } else {
            for member in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.has(member) {
                    report.forbidden(&container.get(member), NOT_FOR_INIT);
                }
            }
            for policy in container.get("resizePolicy").items() {
                let restart = policy.get("restartPolicy");
                if restart.text() == "RestartContainer" {
                    let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                    report.invalid_text(&restart, restart.text(), why);
                }
            }
        }
    }
}

/// Validates the containers added to a running pod. `others` are the regular and the init containers.
pub(crate) fn ephemeral(
    field: &Field<'_, '_>,
    regular: &[Value],
    init: &[Value],
    pod: &Pod<'_>,
    report: &mut Report,
) {
    const FORBIDDEN: [&str; 9] = [
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    let others: BTreeSet<&str> = regular.iter().chain(init).map(name_of).collect();
    let mut names = others.clone();
    for container in field.items() {
        common(&container, pod, report);
        image_is_trimmed(&container, report);
        if !names.insert(container.text_of("name")) {
            report.duplicate_text(&container.get("name"), container.text_of("name"));
        }
        let target = container.get("targetContainerName");
        if !target.text().is_empty() && !others.contains(target.text()) {
            report.not_found(&target, target.text());
        }
        for member in FORBIDDEN {
            let value = container.get(member);
            let unset = match member {
                "resources" => value.is_empty(),
                _ => !value.is_set(),
            };
            if !unset {
                report.forbidden(&value, NOT_FOR_EPHEMERAL);
            }
        }
        for mount in container.get("volumeMounts").items() {
            for member in ["subPath", "subPathExpr"] {
                if !mount.text_of(member).is_empty() {
                    report.forbidden(&mount.get(member), NOT_FOR_EPHEMERAL);
                }
            }
        }
    }
}

fn name_of(container: &Value) -> &str {
    container.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// Checks that a pod, unlike a template, names its images without surrounding whitespace.
pub(crate) fn image_is_trimmed(container: &Field<'_, '_>, report: &mut Report) {
    let image = container.get("image");
    if image.text().trim() != image.text() {
        report.invalid(&image, "must not have leading or trailing whitespace");
    }
}

fn common(field: &Field<'_, '_>, pod: &Pod<'_>, report: &mut Report) {
    let name = field.get("name");
    if name.text().is_empty() {
        report.required(&name, "");
    } else {
        label(&name, report);
    }
    if field.text_of("image").is_empty() {
        report.required(&field.get("image"), "");
    }
    report.one_of(&field.get("terminationMessagePolicy"), &["File", "FallbackToLogsOnError"]);
    ports(&field.get("ports"), report);
    for variable in field.get("env").items() {
        environment(&variable, pod, report);
    }
    environment_sources(&field.get("envFrom"), report);
    mounts(field, pod, report);
    devices(field, pod, report);
    report.one_of(&field.get("imagePullPolicy"), &["Always", "IfNotPresent", "Never"]);
    resources::requirements(&field.get("resources"), Names::Container, &pod.claims, report);
    resize_policy(&field.get("resizePolicy"), pod, report);
    security::container(&field.get("securityContext"), pod.host_users, report);
}

fn ports(field: &Field<'_, '_>, report: &mut Report) {
    let mut names = BTreeSet::new();
    for port in field.items() {
        let name = port.get("name");
        if !name.text().is_empty() {
            let problems = port_name(name.text());
            if problems.is_empty() && !names.insert(name.text()) {
                report.duplicate(&name);
            }
            report.each(&name, problems);
        }
        if port.number_of("containerPort") == 0 {
            report.required(&port.get("containerPort"), "");
        } else {
            port_number(&port.get("containerPort"), report);
        }
        if port.number_of("hostPort") != 0 {
            port_number(&port.get("hostPort"), report);
        }
        report.one_of(&port.get("protocol"), &PROTOCOLS);
    }
}

fn unique_host_ports<'v>(
    container: &Field<'v, '_>,
    taken: &mut BTreeSet<(&'v str, &'v str, i64)>,
    report: &mut Report,
) {
    for port in container.get("ports").items() {
        let number = port.number_of("hostPort");
        let (protocol, ip) = (port.text_of("protocol"), port.text_of("hostIP"));
        if number != 0 && !taken.insert((protocol, ip, number)) {
            report.duplicate_text(&port.get("hostPort"), &format!("{protocol}/{ip}/{number}"));
        }
    }
}

fn environment(variable: &Field<'_, '_>, pod: &Pod<'_>, report: &mut Report) {
    let name = variable.get("name");
    if name.text().is_empty() {
        report.required(&name, "");
    } else {
        report.each(&name, environment_name(name.text()));
    }
    let source = variable.get("valueFrom");
    if !source.is_set() {
        return;
    }
    let mut count = 0;
    for member in ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"] {
        let reference = source.get(member);
        if !reference.is_set() {
            continue;
        }
        count += 1;
        match member {
            "fieldRef" => downward::object_field(&reference, &downward::ENVIRONMENT_FIELDS, report),
            "resourceFieldRef" => downward::container_resource(&reference, false, report),
            "fileKeyRef" => file_key(&reference, report),
            _ => key_of_object(&reference, report),
        }
    }
    if count == 0 {
        report.invalid_text(
            &source,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        );
    } else if !variable.text_of("value").is_empty() {
        report.invalid_text(&source, "", "may not be specified when `value` is not empty");
    } else if count > 1 {
        report.invalid_text(&source, "", "may not have more than one field specified at a time");
    }
    volume_of_file(&source.get("fileKeyRef"), pod, report);
}

fn key_of_object(field: &Field<'_, '_>, report: &mut Report) {
    report.each(&field.get("name"), dns_subdomain(field.text_of("name")));
    let key = field.get("key");
    if key.text().is_empty() {
        report.required(&key, "");
    } else {
        report.each(&key, config_key(key.text()));
    }
}

fn file_key(field: &Field<'_, '_>, report: &mut Report) {
    let key = field.get("key");
    if key.text().is_empty() {
        report.required(&key, "");
    } else {
        report.each(&key, environment_name(key.text()));
    }
    let volume = field.get("volumeName");
    if volume.text().is_empty() {
        report.required(&volume, "");
    } else {
        report.each(&volume, dns_label(volume.text()));
    }
    let path = field.get("path");
    if path.text().is_empty() {
        report.required(&path, "");
    } else {
        path_without_backsteps(&path, path.text(), report);
    }
}

/// Validates the volume that a file is in.
fn volume_of_file(field: &Field<'_, '_>, pod: &Pod<'_>, report: &mut Report) {
    if !field.is_set() {
        return;
    }
    let volume = field.get("volumeName");
    match pod.volume(volume.text()) {
        None => report.not_found(&volume, volume.text()),
        Some(value) if value.get("emptyDir").is_none() => {
            report.invalid(&volume, "referenced volume must be of type emptyDir");
        }
        Some(_) => {}
    }
}

fn environment_sources(field: &Field<'_, '_>, report: &mut Report) {
    for source in field.items() {
        let prefix = source.get("prefix");
        if !prefix.text().is_empty() {
            report.each(&prefix, environment_name(prefix.text()));
        }
        let mut count = 0;
        for member in ["configMapRef", "secretRef"] {
            let reference = source.get(member);
            if reference.is_set() {
                count += 1;
                let name = reference.get("name");
                if name.text().is_empty() {
                    report.required(&name, "");
                } else {
                    report.each(&name, dns_subdomain(name.text().trim_end_matches('-')));
                }
            }
        }
        if count == 0 {
            report.invalid_text(field, "", "must specify one of: `configMapRef` or `secretRef`");
        } else if count > 1 {
            report.invalid_text(field, "", "may not have more than one field specified at a time");
        }
    }
}

/// Returns names and paths of the items of a list.
fn places<'v>(field: &Field<'v, '_>, path: &str) -> (BTreeSet<&'v str>, BTreeSet<&'v str>) {
    // As upstream, the last of several items with the same name wins.
    let last: BTreeMap<&str, &str> =
        field.items().map(|item| (item.text_of("name"), item.text_of(path))).collect();
    (last.keys().copied().collect(), last.values().copied().collect())
}

fn mounts(container: &Field<'_, '_>, pod: &Pod<'_>, report: &mut Report) {
    let (device_names, device_paths) = places(&container.get("volumeDevices"), "devicePath");
    let field = container.get("volumeMounts");
    let mut taken = BTreeSet::new();
    for mount in field.items() {
        let (name, path) = (mount.get("name"), mount.get("mountPath"));
        if name.text().is_empty() {
            report.required(&name, "");
        }
        if !pod.volumes.contains(name.text()) {
            report.not_found(&name, name.text());
        }
        if path.text().is_empty() {
            report.required(&path, "");
        }
        if !taken.insert(path.text()) {
            report.invalid_text(&path, path.text(), "must be unique");
        }
        if device_names.contains(name.text()) {
            report.invalid_text(&name, name.text(), "must not already exist in volumeDevices");
        }
        if device_paths.contains(path.text()) {
            report.invalid_text(&path, path.text(), "must not already exist as a path in volumeDevices");
        }
        // Upstream's paths have no index from here on.
        let (inner, pattern) = (mount.text_of("subPath"), mount.text_of("subPathExpr"));
        if !inner.is_empty() {
            local_descending_path(&field.get("subPath"), inner, report);
        }
        if !pattern.is_empty() {
            if !inner.is_empty() {
                let why = "subPathExpr and subPath are mutually exclusive";
                report.invalid(&mount.get("subPathExpr"), why);
            }
            local_descending_path(&field.get("subPathExpr"), pattern, report);
        }
        propagation(container, &field, &mount, report);
    }
}

fn propagation(
    container: &Field<'_, '_>,
    mounts: &Field<'_, '_>,
    mount: &Field<'_, '_>,
    report: &mut Report,
) {
    let propagation = mounts.named("mountPropagation", mount.member("mountPropagation"));
    report.one_of_if_set(&propagation, &["Bidirectional", "HostToContainer", "None"]);
    let privileged = container.get("securityContext");
    if propagation.text() == "Bidirectional" && !privileged.get("privileged").flag() {
        let why = "Bidirectional mount propagation is available only to privileged containers";
        report.forbidden(&propagation, why);
    }
    let recursive = mounts.named("recursiveReadOnly", mount.member("recursiveReadOnly"));
    match recursive.text() {
        "Enabled" | "IfPossible" => {
            if !mount.get("readOnly").flag() {
                report.forbidden(&recursive, "may only be specified when readOnly is true");
            }
            if !matches!(propagation.text(), "" | "None") {
                let why = "may only be specified when mountPropagation is None or not specified";
                report.forbidden(&recursive, why);
            }
        }
        _ => report.one_of_if_set(&recursive, &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn devices(container: &Field<'_, '_>, pod: &Pod<'_>, report: &mut Report) {
    let (mount_names, mount_paths) = places(&container.get("volumeMounts"), "mountPath");
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for device in container.get("volumeDevices").items() {
        let (name, path) = (device.get("name"), device.get("devicePath"));
        if name.text().is_empty() {
            report.required(&name, "");
        }
        if names.contains(name.text()) {
            report.invalid(&name, "must be unique");
        }
        match pod.volume(name.text()) {
            Some(volume) => {
                let block = ["persistentVolumeClaim", "ephemeral"];
                if block.iter().all(|source| volume.get(source).is_none()) {
                    report.invalid(
                        &name,
                        "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                    );
                }
            }
            None => report.not_found(&name, name.text()),
        }
        if path.text().is_empty() {
            report.required(&path, "");
        }
        if paths.contains(path.text()) {
            report.invalid_text(&path, path.text(), "must be unique");
        }
        if path.text().split('/').any(|part| part == "..") {
            report.invalid(&path, "can not contain backsteps ('..')");
        } else {
            paths.insert(path.text());
        }
        if mount_names.contains(name.text()) {
            report.invalid_text(&name, name.text(), "must not already exist in volumeMounts");
        }
        if mount_paths.contains(path.text()) {
            report.invalid_text(&path, path.text(), "must not already exist as a path in volumeMounts");
        }
        if !name.text().is_empty() {
            names.insert(name.text());
        }
    }
}

fn resize_policy(field: &Field<'_, '_>, pod: &Pod<'_>, report: &mut Report) {
    let mut resources = BTreeSet::new();
    let never = pod.spec.get("restartPolicy").and_then(Value::as_str) == Some("Never");
    for policy in field.items() {
        let resource = policy.text_of("resourceName");
        if !resources.insert(resource) {
            report.duplicate_text(&policy, resource);
        }
        // Upstream's path is that of the list, not of the item.
        report.one_of(&field.with(policy.member("resourceName")), &["cpu", "memory"]);
        let restart = field.with(policy.member("restartPolicy"));
        report.one_of(&restart, &["NotRequired", "RestartContainer"]);
        if never && restart.text() != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            report.invalid_text(&restart, restart.text(), why);
        }
    }
}

/// Validates restart rules like [`restart_rules`], but ignores them without a policy.
fn init_restart_rules(container: &Field<'_, '_>, report: &mut Report) {
    if container.has("restartPolicy") {
        restart_rules(container, report);
    } else if !container.get("restartPolicyRules").is_empty() {
        report.required(&container.get("restartPolicy"), NEEDS_POLICY);
    }
}

/// Validates the rules by which a container restarts independently of its pod's policy.
fn restart_rules(container: &Field<'_, '_>, report: &mut Report) {
    let (policy, rules) = (container.get("restartPolicy"), container.get("restartPolicyRules"));
    report.one_of_if_set(&policy, &["Always", "Never", "OnFailure"]);
    if !policy.is_set() && !rules.is_empty() {
        report.required(&policy, NEEDS_POLICY);
    }
    if rules.list().len() > RESTART_RULES_MAX {
        report.too_many(&rules, rules.list().len(), RESTART_RULES_MAX);
    }
    for rule in rules.items() {
        let action = rule.get("action");
        if !matches!(action.text(), "Restart" | "RestartAllContainers") {
            report.not_supported(&action, &["Restart", "RestartAllContainers"]);
        }
        let codes = rule.get("exitCodes");
        if !codes.is_set() {
            report.required(&codes, "must be specified");
            continue;
        }
        if !matches!(codes.text_of("operator"), "In" | "NotIn") {
            report.not_supported(&codes.get("operator"), &["In", "NotIn"]);
        }
        let values = codes.get("values");
        if values.list().len() > EXIT_CODES_MAX {
            report.too_many(&values, values.list().len(), EXIT_CODES_MAX);
        }
    }
}

fn handlers_and_probes(container: &Field<'_, '_>, pod: &Pod<'_>, report: &mut Report) {
    let lifecycle = container.get("lifecycle");
    for member in ["postStart", "preStop"] {
        if lifecycle.has(member) {
            handler(&lifecycle.get(member), pod, report);
        }
    }
    for member in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container.has(member) {
            probe(&container.get(member), member, pod, report);
        }
    }
}

fn probe(field: &Field<'_, '_>, name: &str, pod: &Pod<'_>, report: &mut Report) {
    handler(field, pod, report);
    for member in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        report.not_negative(&field.get(member));
    }
    let grace = field.get("terminationGracePeriodSeconds");
    report.positive(&grace);
    if name == "readinessProbe" {
        if grace.is_set() {
            report.invalid(&grace, "must not be set for readinessProbes");
        }
    } else if field.number_of("successThreshold") != 1 {
        report.invalid_number(&field.get("successThreshold"), "must be 1");
    }
}

fn handler(field: &Field<'_, '_>, pod: &Pod<'_>, report: &mut Report) {
    let mut any = false;
    for member in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let action = field.get(member);
        if !action.is_set() {
            continue;
        }
        if any {
            report.forbidden(&action, "may not specify more than 1 handler type");
            continue;
        }
        any = true;
        match member {
            "exec" => {
                if action.get("command").is_empty() {
                    report.required(&action.get("command"), "");
                }
            }
            "httpGet" => http_get(&action, report),
            "tcpSocket" => port_number_or_name(&action.get("port"), report),
            "grpc" => port_number(&action.get("port"), report),
            _ => {
                let seconds = action.number_of("seconds");
                if let Some(grace) = pod.grace_period_seconds
                    && (seconds < 0 || seconds > grace)
                {
                    let why =
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    report.invalid_shown(&action, &seconds, &why);
                }
            }
        }
    }
    if !any {
        report.required(field, "must specify a handler type");
    }
}

fn http_get(field: &Field<'_, '_>, report: &mut Report) {
    if field.text_of("path").is_empty() {
        report.required(&field.get("path"), "");
    }
    port_number_or_name(&field.get("port"), report);
    let scheme = field.get("scheme");
    if !matches!(scheme.text(), "HTTP" | "HTTPS") {
        report.not_supported(&scheme, &["HTTP", "HTTPS"]);
    }
    // Upstream's path has no index.
    let headers = field.get("httpHeaders");
    for header in headers.items() {
        let name = header.text_of("name");
        report.each_of(&headers, name, header_name(name));
    }
}
