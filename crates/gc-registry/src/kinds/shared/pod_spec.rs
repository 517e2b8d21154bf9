//! Validation of pod specs, standalone and in templates.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::containers::{self, Pod};
use super::labels::{annotations, labels};
use super::names::{
    dns_subdomain, ip, label, local_descending_path, qualified, range_error, subdomain,
    subdomain_with_underscores,
};
use super::resources::{self, Names, is_huge_page, of_containers};
use super::scheduling;
use super::security;
use super::volumes;
use crate::kinds::prelude::*;

const NAME_SERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_LIST_MAX_BYTES: usize = 2048;
const HOST_NAME_MAX_BYTES: usize = 64;
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";
/// Annotation of a service account whose pods may only refer to its own Secrets.
pub(crate) const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Owner of the spec.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner<'v> {
    /// A pod of this name.
    Pod(&'v str),
    /// A template.
    Template,
}

impl<'v> Owner<'v> {
    /// Returns the name of the pod; empty if it is not known yet.
    pub(crate) fn pod_name(self) -> &'v str {
        match self {
            Self::Pod(name) => name,
            Self::Template => "",
        }
    }
}

/// Validates a pod template.
pub(crate) fn template(field: &Field<'_, '_>, report: &mut Report) {
    template_metadata(field, report);
    let metadata = field.with(field.member("metadata"));
    let pod_spec = field.get("spec");
    spec(&pod_spec, Owner::Template, report);
    annotations_match(&metadata.get("annotations"), &pod_spec, report);
    if !pod_spec.get("ephemeralContainers").list().is_empty() {
        let why = "ephemeral containers not allowed in pod template";
        report.forbidden(&pod_spec.get("ephemeralContainers"), why);
    }
}

/// Validates labels and annotations of a template.
pub(crate) fn template_metadata(field: &Field<'_, '_>, report: &mut Report) {
    // Upstream omits `metadata` from these paths.
    let metadata = field.with(field.member("metadata"));
    labels(&metadata.get("labels"), report);
    annotations(&metadata.get("annotations"), report);
    pod_annotations(&metadata.get("annotations"), &field.get("spec"), report);
}

/// Validates the spec of a pod or template.
pub(crate) fn spec(field: &Field<'_, '_>, owner: Owner<'_>, report: &mut Report) {
    let grace = field.get("terminationGracePeriodSeconds");
    if !grace.is_set() {
        report.required(&grace, "");
    }
    let host_users = field.get("hostUsers");
    let claims = field.get("resourceClaims");
    let pod = Pod {
        spec: field.value(),
        volumes: volumes::volumes(&field.get("volumes"), owner, report),
        claims: claims
            .list()
            .iter()
            .filter_map(|claim| claim.get("name").and_then(Value::as_str))
            .filter(|name| !name.is_empty())
            .collect(),
        grace_period_seconds: grace.integer(),
        host_users: !host_users.is_set() || host_users.flag(),
    };
    resource_claims(&claims, report);
    let (regular, init) = (field.get("containers"), field.get("initContainers"));
    containers::regular(&regular, &pod, report);
    containers::init(&init, regular.list(), &pod, report);
    containers::ephemeral(&field.get("ephemeralContainers"), regular.list(), init.list(), &pod, report);
    pod_resources(field, &pod.claims, report);
    host_ports(field, matches!(owner, Owner::Pod(_)), report);
    report.one_of(&field.get("restartPolicy"), &["Always", "OnFailure", "Never"]);
    report.one_of(&field.get("dnsPolicy"), &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    labels(&field.get("nodeSelector"), report);
    security::pod(field, report);
    scheduling::affinity(&field.get("affinity"), report);
    dns_config(field, report);
    for gate in field.get("readinessGates").items() {
        qualified(&gate.get("conditionType"), report);
    }
    scheduling_gates(&field.get("schedulingGates"), report);
    scheduling::topology_spread(&field.get("topologySpreadConstraints"), report);
    host_process(field, report);
    host_users_alone(field, report);
    names_and_deadline(field, report);
    scheduling::tolerations(&field.get("tolerations"), report);
    host_aliases(&field.get("hostAliases"), report);
    for member in ["priorityClassName", "runtimeClassName"] {
        let name = field.get(member);
        let given = if member == "runtimeClassName" { name.is_set() } else { !name.text().is_empty() };
        if given {
            report.each(&name, dns_subdomain(name.text()));
        }
    }
    let preemption = field.get("preemptionPolicy");
    if preemption.is_set() {
        report.one_of(&preemption, &["PreemptLowerPriority", "Never"]);
    }
    overhead(field, report);
    operating_system(field, report);
}

/// Validates an overhead like the limits of a container, as upstream does.
fn overhead(field: &Field<'_, '_>, report: &mut Report) {
    let overhead = field.get("overhead");
    if !overhead.is_empty() {
        let limits = json!({"limits": overhead.value()});
        resources::requirements(&overhead.with(&limits), Names::Container, &BTreeSet::new(), report);
    }
}

fn names_and_deadline(field: &Field<'_, '_>, report: &mut Report) {
    for member in ["serviceAccountName", "nodeName"] {
        if !field.text_of(member).is_empty() {
            subdomain(&field.get(member), report);
        }
    }
    let deadline = field.get("activeDeadlineSeconds");
    if deadline.integer().is_some_and(|seconds| !(1..=i64::from(i32::MAX)).contains(&seconds)) {
        report.invalid(&deadline, &range_error(1, i64::from(i32::MAX)));
    }
    for member in ["hostname", "subdomain"] {
        if !field.text_of(member).is_empty() {
            label(&field.get(member), report);
        }
    }
    let host = field.get("hostnameOverride");
    if host.is_set() {
        if host.text().len() > HOST_NAME_MAX_BYTES {
            report.too_long(&host, HOST_NAME_MAX_BYTES);
        }
        subdomain(&host, report);
        if field.get("hostNetwork").flag() {
            report.forbidden(&host, "may not be set when hostNetwork is true");
        }
        if field.get("setHostnameAsFQDN").flag() {
            let why = "setHostnameAsFQDN must not be set when hostnameOverride is set";
            report.forbidden(&field.get("setHostnameAsFQDN"), why);
        }
    }
}

fn resource_claims(field: &Field<'_, '_>, report: &mut Report) {
    let mut names = BTreeSet::new();
    for claim in field.items() {
        let name = claim.get("name");
        if name.text().is_empty() {
            report.required(&name, "");
        } else if names.insert(name.text()) {
            label(&name, report);
        } else {
            report.duplicate(&name);
        }
        let (own, template) = (claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName"));
        let shown = || {
            format!(
                "{{\"Name\":{},\"ResourceClaimName\":{},\"ResourceClaimTemplateName\":{}}}",
                Value::from(name.text()),
                own.value(),
                template.value()
            )
        };
        if own.is_set() && template.is_set() {
            let why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
            report.invalid_shown(&claim, &shown(), why);
        }
        if !own.is_set() && !template.is_set() {
            let why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
            report.invalid_shown(&claim, &shown(), why);
        }
        for given in [&own, &template] {
            if given.is_set() {
                subdomain(given, report);
            }
        }
    }
}

/// Validates the resources of the pod as a whole: at least the requests of its containers, and no container's limit above the
/// pod's.
fn pod_resources(field: &Field<'_, '_>, claims: &BTreeSet<&str>, report: &mut Report) {
    let whole = field.get("resources");
    if !whole.is_set() {
        return;
    }
    if field.get("os").text_of("name") == "windows" {
        report.forbidden(&whole, "may not be set for a windows pod");
        return;
    }
    if !whole.get("claims").is_empty() {
        report.forbidden(&whole.get("claims"), "claims may not be set for Resources at pod-level");
    }
    resources::requirements(&whole, Names::Pod, claims, report);
    let (requests, limits) = (whole.get("requests"), whole.get("limits"));
    at_least_together(field, &requests, "requests", |_| true, report);
    at_least_together(field, &limits, "limits", is_huge_page, report);
    let list = whole.get("containers");
    for (index, container) in field.get("containers").items().enumerate() {
        let resources = container.get("resources");
        for (name, limit) in resources.get("limits").entries() {
            let most = limits.get(name);
            if let (Some(limit), Some(most)) = (limit.quantity(), most.quantity())
                && limit.exceeds(most)
            {
                let item = list.index(index);
                let at = item.key(name, &Value::Null);
                let why = format!("must be less than or equal to pod limits of {most}");
                report.invalid_shown(&at.get("limits"), &quoted(&limit.to_string()), &why);
            }
        }
    }
}

/// Checks that the pod's own resources are at least the sum of its containers'.
fn at_least_together(
    spec: &Field<'_, '_>,
    own: &Field<'_, '_>,
    list: &str,
    of: impl Fn(&str) -> bool,
    report: &mut Report,
) {
    let together = of_containers(spec.value(), list);
    for (name, quantity) in own.entries().filter(|(name, _)| of(name)) {
        let Some(given) = quantity.quantity() else { continue };
        let Some(together) = together.get(name) else { continue };
        if together.exceeds(given) {
            let why = format!("must be greater than or equal to aggregate container {list} of {together}");
            report.invalid_shown(&quantity, &quoted(&given.to_string()), &why);
        }
    }
}

fn host_ports(spec: &Field<'_, '_>, is_pod: bool, report: &mut Report) {
    if !spec.get("hostNetwork").flag() {
        return;
    }
    for container in spec.get("containers").items() {
        for port in container.get("ports").items() {
            let host = port.get("hostPort");
            if (is_pod || host.number() != 0) && host.number() != port.number_of("containerPort") {
                report.invalid_number(&host, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

fn dns_config(spec: &Field<'_, '_>, report: &mut Report) {
    let field = spec.get("dnsConfig");
    let servers = field.get("nameservers");
    if spec.text_of("dnsPolicy") == "None" {
        if !field.is_set() {
            report.required(&field, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.list().is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            report.required(&servers, why);
            return;
        }
    }
    if servers.list().len() > NAME_SERVERS_MAX {
        report.invalid(&servers, &format!("must not have more than {NAME_SERVERS_MAX} nameservers"));
    }
    servers.items().for_each(|server| ip(&server, report));
    let searches = field.get("searches");
    let count = searches.list().len();
    if count > SEARCHES_MAX {
        report.invalid(&searches, &format!("must not have more than {SEARCHES_MAX} search paths"));
    }
    if searches.texts().map(str::len).sum::<usize>() + count.saturating_sub(1) > SEARCH_LIST_MAX_BYTES {
        let why = format!(
            "must not have more than {SEARCH_LIST_MAX_BYTES} characters (including spaces) in the search list"
        );
        report.invalid(&searches, &why);
    }
    for search in searches.items() {
        if search.text() != "." {
            let text = search.text().strip_suffix('.').unwrap_or(search.text());
            subdomain_with_underscores(&search, text, report);
        }
    }
    for option in field.get("options").items() {
        if option.text_of("name").is_empty() {
            report.required(&option, "must not be empty");
        }
    }
}

fn scheduling_gates(field: &Field<'_, '_>, report: &mut Report) {
    let mut seen = BTreeSet::new();
    for gate in field.items() {
        let name = gate.text_of("name");
        report.each_of(&gate, name, super::names::qualified_name(name));
        if !seen.insert(name) {
            report.duplicate_text(&gate, name);
        }
    }
}

fn host_aliases(field: &Field<'_, '_>, report: &mut Report) {
    for alias in field.items() {
        ip(&alias.get("ip"), report);
        for host in alias.get("hostnames").items() {
            subdomain(&host, report);
        }
    }
}

/// Visits the containers of all three kinds in upstream's order.
fn each_container(spec: &Field<'_, '_>, mut visit: impl FnMut(&Field<'_, '_>)) {
    for member in CONTAINERS {
        for container in spec.get(member).items() {
            visit(&container);
        }
    }
}

/// Validates pods with privileged Windows processes.
fn host_process(spec: &Field<'_, '_>, report: &mut Report) {
    let context = spec.get("securityContext");
    let of_pod = context.get("windowsOptions").member("hostProcess").as_bool();
    let (mut all, mut privileged) = (0, 0);
    each_container(spec, |container| {
        all += 1;
        let context = container.get("securityContext");
        let options = context.get("windowsOptions");
        let own = options.get("hostProcess");
        let given = own.value().as_bool();
        if let (Some(of_pod), Some(given)) = (of_pod, given)
            && of_pod != given
        {
            let why = format!("pod hostProcess value must be identical if both are specified, was {of_pod}");
            report.invalid(&own, &why);
        }
        if given.or(of_pod) == Some(true) {
            privileged += 1;
        }
    });
    if privileged == 0 {
        return;
    }
    if privileged != all {
        let why =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        report.invalid_text(spec, "", why);
    }
    if !spec.get("hostNetwork").flag() {
        let why = "hostNetwork must be true if pod contains any hostProcess containers";
        report.invalid_shown(&spec.get("hostNetwork"), &false, why);
    }
}

fn host_users_alone(spec: &Field<'_, '_>, report: &mut Report) {
    const WHY: &str = "when `pod.Spec.HostUsers` is false";
    let users = spec.get("hostUsers");
    if !users.is_set() || users.flag() {
        return;
    }
    for (member, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.get(member).flag() {
            report.forbidden(&spec.get(shown), WHY);
        }
    }
}

fn operating_system(spec: &Field<'_, '_>, report: &mut Report) {
    let system = spec.get("os");
    if !system.is_set() {
        return;
    }
    match system.text_of("name") {
        "" => report.required(&system.get("name"), ""),
        "linux" => {
            const WHY: &str = "windows options cannot be set for a linux pod";
            let context = spec.get("securityContext");
            if context.has("windowsOptions") {
                report.forbidden(&context.get("windowsOptions"), WHY);
            }
            each_container(spec, |container| {
                let context = container.get("securityContext");
                if context.has("windowsOptions") {
                    report.forbidden(&context.get("windowsOptions"), WHY);
                }
            });
        }
        "windows" => windows(spec, report),
        name => report.not_supported_shown(&system, &quoted(name), &["linux", "windows"]),
    }
}

fn windows(spec: &Field<'_, '_>, report: &mut Report) {
    const WHY: &str = "cannot be set for a windows pod";
    const POD: [&str; 11] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "seLinuxChangePolicy",
    ];
    const CONTAINER: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    for member in ["hostUsers", "shareProcessNamespace"] {
        if spec.has(member) {
            report.forbidden(&spec.get(member), WHY);
        }
    }
    for member in ["hostPID", "hostIPC"] {
        if spec.get(member).flag() {
            report.forbidden(&spec.get(member), WHY);
        }
    }
    let context = spec.get("securityContext");
    for member in POD {
        if context.has(member) {
            report.forbidden(&context.get(member), WHY);
        }
    }
    each_container(spec, |container| {
        let context = container.get("securityContext");
        for member in CONTAINER {
            if context.has(member) {
                report.forbidden(&context.get(member), WHY);
            }
        }
    });
}

/// Validates annotations that have a meaning for the pod.
pub(crate) fn pod_annotations(field: &Field<'_, '_>, spec: &Field<'_, '_>, report: &mut Report) {
    if field.has(MIRROR) && spec.text_of("nodeName").is_empty() {
        let why = "must set spec.nodeName if mirror pod annotation is set";
        report.invalid(&field.key(MIRROR, field.member(MIRROR)), why);
    }
    if field.has(DELETION_COST) {
        let text = field.text_of(DELETION_COST);
        let plain = !text.starts_with('+') && (text == "0" || !text.trim_start_matches('-').starts_with('0'));
        if !plain || text.parse::<i32>().is_err() {
            let at = field.key(DELETION_COST, field.member(DELETION_COST));
            report.invalid(&at, "must be a 32bit integer");
        }
    }
    for (name, value) in field.entries() {
        if name == SECCOMP_POD || name.starts_with(SECCOMP_CONTAINER) {
            seccomp_annotation(&field.named(name, value.value()), report);
        }
        if let Some(container) = name.strip_prefix(APP_ARMOR) {
            let mut known = false;
            each_container(spec, |have| known |= have.text_of("name") == container);
            if !known {
                report.invalid_text(&value, container, "container not found");
            }
            let profile = value.text();
            if !matches!(profile, "" | "runtime/default" | "unconfined") && !profile.starts_with("localhost/")
            {
                report.invalid(&value, &format!("invalid AppArmor profile name: {profile:?}"));
            }
        }
    }
}

fn seccomp_annotation(field: &Field<'_, '_>, report: &mut Report) {
    match field.text() {
        "runtime/default" | "docker/default" | "unconfined" => {}
        text => match text.strip_prefix("localhost/") {
            Some(path) => local_descending_path(field, path, report),
            None => report.invalid(field, "must be a valid seccomp profile"),
        },
    }
}

/// Checks that old annotations and their corresponding new fields agree.
pub(crate) fn annotations_match(field: &Field<'_, '_>, spec: &Field<'_, '_>, report: &mut Report) {
    let context = spec.get("securityContext");
    if context.has("seccompProfile") && field.has(SECCOMP_POD) {
        profile_matches(field.text_of(SECCOMP_POD), &context.get("seccompProfile"), "seccomp", report);
    }
    let of_pod = context.member("appArmorProfile");
    let is_windows = spec.get("os").text_of("name") == "windows";
    each_container(spec, |container| {
        let context = container.get("securityContext");
        let name = container.text_of("name");
        let profile = context.get("seccompProfile");
        let annotation = field.member(&format!("{SECCOMP_CONTAINER}{name}")).as_str();
        if let (true, Some(annotation)) = (profile.is_set(), annotation) {
            profile_matches(annotation, &profile, "seccomp", report);
        }
        let own = context.member("appArmorProfile");
        let profile = context.named("appArmorProfile", if own.is_null() { of_pod } else { own });
        let annotation = field.member(&format!("{APP_ARMOR}{name}")).as_str();
        if let (true, Some(annotation)) = (profile.is_set() && !is_windows, annotation) {
            profile_matches(annotation, &profile, "apparmor", report);
        }
    });
}

fn profile_matches(annotation: &str, profile: &Field<'_, '_>, what: &str, report: &mut Report) {
    let matches = match profile.text_of("type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default")
        }
        "Localhost" => match annotation.strip_prefix("localhost/") {
            Some(path) => {
                let local = profile.get("localhostProfile");
                if !local.is_set() || local.text() != path {
                    let why = format!("{what} profile in annotation and field must match");
                    report.forbidden(&local, &why);
                }
                true
            }
            None => false,
        },
        _ => true,
    };
    if !matches {
        let why = format!("{what} type in annotation and field must match");
        report.forbidden(&profile.get("type"), &why);
    }
}
