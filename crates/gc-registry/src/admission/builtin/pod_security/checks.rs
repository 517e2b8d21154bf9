//! The checks of the Pod Security Standards.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::{Level, Version};
use crate::kinds::access::{at, flag, integer, list, members, text};

/// Feature of a pod that the level does not permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) reason: &'static str,
    detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detail.is_empty() {
            f.write_str(self.reason)
        } else {
            write!(f, "{} ({})", self.reason, self.detail)
        }
    }
}

/// A pod, as checks see it.
struct Pod<'a> {
    metadata: &'a Value,
    spec: &'a Value,
    containers: Vec<&'a Value>,
    /// Minor version whose standard applies.
    minor: u32,
}

type Check = fn(&Pod<'_>) -> Option<Violation>;

/// Checks of the baseline level, with the minor version from which the restricted level replaces them.
const BASELINE: [(Check, u32); 12] = [
    (app_armor, NEVER),
    (capabilities, 22),
    (host_namespaces, NEVER),
    (host_path, 0),
    (host_ports, NEVER),
    (host_probes, NEVER),
    (privileged, NEVER),
    (proc_mount, 35),
    (se_linux, NEVER),
    (seccomp, 19),
    (sysctls, NEVER),
    (host_process, NEVER),
];
/// Checks of the restricted level.
const RESTRICTED: [Check; 7] = [
    privilege_escalation,
    all_capabilities,
    proc_mount_anywhere,
    volume_types,
    run_as_non_root,
    run_as_user,
    any_seccomp,
];
/// Version of a check that is never replaced.
const NEVER: u32 = u32::MAX;

/// Returns the violations of a pod at a level.
pub(super) fn violations(level: Level, version: Version, metadata: &Value, spec: &Value) -> Vec<Violation> {
    let containers = ["initContainers", "containers", "ephemeralContainers"];
    let pod = Pod {
        metadata,
        spec,
        containers: containers.iter().flat_map(|kind| list(spec, &[kind])).collect(),
        minor: version.unwrap_or(NEVER),
    };
    match level {
        Level::Privileged => Vec::new(),
        Level::Baseline => BASELINE.iter().filter_map(|(check, _)| check(&pod)).collect(),
        Level::Restricted => {
            let kept = BASELINE.iter().filter(|(_, replaced)| *replaced == NEVER || pod.minor < *replaced);
            let restricted = RESTRICTED.iter().filter_map(|check| check(&pod));
            kept.filter_map(|(check, _)| check(&pod)).chain(restricted).collect()
        }
    }
}

impl<'a> Pod<'a> {
    /// Returns the names of the containers that satisfy a condition.
    fn named(&self, is_bad: impl Fn(&Value) -> bool) -> Vec<&'a str> {
        self.containers.iter().filter(|container| is_bad(container)).map(|c| text(c, &["name"])).collect()
    }

    fn is_windows(&self) -> bool {
        self.minor >= 25 && text(self.spec, &["os", "name"]) == "windows"
    }

    /// Reports whether the pod has its own user namespace, which permits more since 1.35.
    fn has_own_users(&self) -> bool {
        self.minor >= 35 && flag(self.spec, &["hostUsers"]) == Some(false)
    }
}

fn plural(one: &'static str, many: &'static str, count: usize) -> &'static str {
    if count == 1 { one } else { many }
}

fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<String> = items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect();
    texts.join(", ")
}

fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

/// Names the pod, its containers, or both, as the places where a field is set.
fn setters(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names.is_empty()) {
        (false, true) => None,
        (true, true) => Some("pod".into()),
        (false, false) => Some(containers(names)),
        (true, false) => Some(format!("pod and {}", containers(names))),
    }
}

#[allow(clippy::unnecessary_wraps)] // what every check ends with
fn violation(reason: &'static str, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation { reason, detail: detail.into() })
}

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    const PATH: [&str; 2] = ["securityContext", "appArmorProfile"];
    const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
    let bad = |holder: &Value| {
        let profile = at(holder, &PATH)?;
        let kind = text(profile, &["type"]);
        (!matches!(kind, "RuntimeDefault" | "Localhost")).then(|| kind.to_owned())
    };
    let whole = bad(pod.spec);
    let names = pod.named(|container| bad(container).is_some());
    let mut values: BTreeSet<String> = pod.containers.iter().filter_map(|container| bad(container)).collect();
    values.extend(whole.clone());
    let annotations: BTreeSet<String> = members(pod.metadata, &["annotations"])
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
        .filter(|(key, value)| {
            let allowed = value.is_empty() || *value == "runtime/default" || value.starts_with("localhost/");
            key.starts_with(ANNOTATION) && !allowed
        })
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    let mut who: Vec<String> = setters(whole.is_some(), &names).into_iter().collect();
    if !annotations.is_empty() {
        who.push(plural("annotation", "annotations", annotations.len()).into());
    }
    if who.is_empty() {
        return None;
    }
    let values: Vec<String> = values.into_iter().chain(annotations).collect();
    let reason = plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len());
    let detail = format!("{} must not set AppArmor profile type to {}", who.join(" and "), quoted(&values));
    violation(reason, detail)
}

/// Returns the capabilities that containers add beyond the allowed ones.
fn added<'a>(pod: &Pod<'a>, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<&'a str>) {
    let beyond = |container: &'a Value| {
        let names = list(container, &["securityContext", "capabilities", "add"]).iter();
        names.filter_map(Value::as_str).filter(|name| !allowed.contains(name)).collect::<BTreeSet<_>>()
    };
    let found = pod.containers.iter().map(|container| (text(container, &["name"]), beyond(container)));
    let bad: Vec<_> = found.filter(|(_, names)| !names.is_empty()).collect();
    (bad.iter().map(|(name, _)| *name).collect(), bad.iter().flat_map(|(_, names)| names.clone()).collect())
}

fn must_not_include(names: &[&str], capabilities: &BTreeSet<&str>) -> String {
    format!(
        "{} must not include {} in securityContext.capabilities.add",
        containers(names),
        quoted(capabilities)
    )
}

fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    const ALLOWED: [&str; 13] = [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ];
    let (names, found) = added(pod, &ALLOWED);
    if names.is_empty() {
        return None;
    }
    violation("non-default capabilities", must_not_include(&names, &found))
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .iter()
        .filter(|name| flag(pod.spec, &[name]) == Some(true))
        .map(|name| format!("{name}=true"))
        .collect();
    if shared.is_empty() { None } else { violation("host namespaces", shared.join(", ")) }
}

fn host_path(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = list(pod.spec, &["volumes"]).iter().filter(|volume| at(volume, &["hostPath"]).is_some());
    let names: Vec<&str> = volumes.map(|volume| text(volume, &["name"])).collect();
    if names.is_empty() {
        return None;
    }
    let detail = format!("{} {}", plural("volume", "volumes", names.len()), quoted(&names));
    violation("hostPath volumes", detail)
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let ports = |container: &Value| -> BTreeSet<String> {
        let ports = list(container, &["ports"]).iter().filter_map(|port| integer(port, &["hostPort"]));
        ports.filter(|port| *port != 0).map(|port| port.to_string()).collect()
    };
    let names = pod.named(|container| !ports(container).is_empty());
    if names.is_empty() {
        return None;
    }
    let found: BTreeSet<String> = pod.containers.iter().flat_map(|container| ports(container)).collect();
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural("uses", "use", names.len()),
        plural("hostPort", "hostPorts", found.len()),
        found.into_iter().collect::<Vec<_>>().join(", ")
    );
    violation("hostPort", detail)
}

fn host_probes(pod: &Pod<'_>) -> Option<Violation> {
    const HANDLERS: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    if pod.minor < 34 {
        return None;
    }
    let hosts = |container: &Value| -> BTreeSet<String> {
        let handlers = HANDLERS.iter().filter_map(|path| at(container, path));
        handlers
            .flat_map(|handler| {
                ["httpGet", "tcpSocket"].map(|kind| text(handler, &[kind, "host"]).to_owned())
            })
            .filter(|host| !host.is_empty())
            .collect()
    };
    let names: BTreeSet<&str> = pod.named(|container| !hosts(container).is_empty()).into_iter().collect();
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.into_iter().collect();
    let found: BTreeSet<String> = pod.containers.iter().flat_map(|container| hosts(container)).collect();
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural("uses", "use", names.len()),
        plural("probe or lifecycle host", "probe or lifecycle hosts", found.len()),
        quoted(&found)
    );
    violation("probe or lifecycle host", detail)
}

fn host_process(pod: &Pod<'_>) -> Option<Violation> {
    let bad =
        |holder: &Value| flag(holder, &["securityContext", "windowsOptions", "hostProcess"]) == Some(true);
    let who = setters(bad(pod.spec), &pod.named(bad))?;
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod.named(|container| flag(container, &["securityContext", "privileged"]) == Some(true));
    if names.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", containers(&names)))
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() { None } else { every_proc_mount(pod) }
}

fn proc_mount_anywhere(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor < 35 { None } else { every_proc_mount(pod) }
}

fn every_proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let kind = |container: &Value| text(container, &["securityContext", "procMount"]).to_owned();
    let is_bad = |container: &Value| !matches!(kind(container).as_str(), "" | "Default");
    let names = pod.named(is_bad);
    if names.is_empty() {
        return None;
    }
    let found: BTreeSet<String> = pod
        .containers
        .iter()
        .filter(|container| is_bad(container))
        .map(|container| kind(container))
        .collect();
    let detail =
        format!("{} must not set securityContext.procMount to {}", containers(&names), quoted(&found));
    violation("procMount", detail)
}

fn se_linux(pod: &Pod<'_>) -> Option<Violation> {
    const ALLOWED: [&str; 5] =
        ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
    let count = if pod.minor < 31 { ALLOWED.len() - 1 } else { ALLOWED.len() };
    let allowed = &ALLOWED[..count];
    let options =
        |holder: &Value, name: &str| text(holder, &["securityContext", "seLinuxOptions", name]).to_owned();
    let sets = |holder: &Value, name: &str| !options(holder, name).is_empty();
    let has_bad_type = |holder: &Value| !allowed.contains(&options(holder, "type").as_str());
    let is_bad = |holder: &Value| has_bad_type(holder) || sets(holder, "user") || sets(holder, "role");
    let who = setters(is_bad(pod.spec), &pod.named(is_bad))?;
    let holders = || std::iter::once(pod.spec).chain(pod.containers.iter().copied());
    let types: BTreeSet<String> =
        holders().filter(|holder| has_bad_type(holder)).map(|holder| options(holder, "type")).collect();
    let mut data = Vec::new();
    if !types.is_empty() {
        data.push(format!("{} {}", plural("type", "types", types.len()), quoted(&types)));
    }
    for name in ["user", "role"] {
        if holders().any(|holder| sets(holder, name)) {
            data.push(format!("{name} may not be set"));
        }
    }
    let detail = format!("{who} set forbidden securityContext.seLinuxOptions: {}", data.join("; "));
    violation("seLinuxOptions", detail)
}

/// Returns the type of a seccomp profile that is set but not permitted, and whether a profile is set at all.
fn seccomp_profile(holder: &Value) -> (Option<String>, bool) {
    let Some(profile) = at(holder, &["securityContext", "seccompProfile"]) else { return (None, false) };
    let kind = text(profile, &["type"]);
    ((!matches!(kind, "RuntimeDefault" | "Localhost")).then(|| kind.to_owned()), true)
}

fn explicit_seccomp(pod: &Pod<'_>) -> Option<Violation> {
    let bad = |holder: &Value| seccomp_profile(holder).0;
    let who = setters(bad(pod.spec).is_some(), &pod.named(|container| bad(container).is_some()))?;
    let holders = std::iter::once(pod.spec).chain(pod.containers.iter().copied());
    let found: BTreeSet<String> = holders.filter_map(bad).collect();
    let detail = format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(&found));
    violation("seccompProfile", detail)
}

fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor >= 19 { explicit_seccomp(pod) } else { seccomp_annotations(pod) }
}

/// Checks the annotations that preceded the field.
fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let keys = std::iter::once("seccomp.security.alpha.kubernetes.io/pod".to_owned()).chain(
        pod.containers.iter().map(|container| {
            format!("container.seccomp.security.alpha.kubernetes.io/{}", text(container, &["name"]))
        }),
    );
    let found: BTreeSet<String> = keys
        .filter_map(|key| {
            let value = at(pod.metadata, &["annotations", &key])?.as_str()?;
            let allowed =
                matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
            (!allowed).then(|| format!("{key}={value:?}"))
        })
        .collect();
    if found.is_empty() {
        return None;
    }
    let what = plural("annotation", "annotations", found.len());
    let list = found.into_iter().collect::<Vec<_>>().join(", ");
    violation("seccompProfile", format!("forbidden {what} {list}"))
}

fn any_seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor < 19 || pod.is_windows() {
        return None;
    }
    if let Some(found) = explicit_seccomp(pod) {
        return Some(found);
    }
    if seccomp_profile(pod.spec).1 {
        return None;
    }
    let names = pod.named(|container| !seccomp_profile(container).1);
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        containers(&names)
    );
    violation("seccompProfile", detail)
}

fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    /// Permitted sysctls, with the first minor version that permits each.
    const ALLOWED: [(&str, u32); 12] = [
        ("kernel.shm_rmid_forced", 0),
        ("net.ipv4.ip_local_port_range", 0),
        ("net.ipv4.tcp_syncookies", 0),
        ("net.ipv4.ping_group_range", 0),
        ("net.ipv4.ip_unprivileged_port_start", 0),
        ("net.ipv4.ip_local_reserved_ports", 27),
        ("net.ipv4.tcp_keepalive_time", 29),
        ("net.ipv4.tcp_fin_timeout", 29),
        ("net.ipv4.tcp_keepalive_intvl", 29),
        ("net.ipv4.tcp_keepalive_probes", 29),
        ("net.ipv4.tcp_rmem", 32),
        ("net.ipv4.tcp_wmem", 32),
    ];
    let allowed = |name: &str| ALLOWED.iter().any(|(known, since)| *known == name && pod.minor >= *since);
    let found = list(pod.spec, &["securityContext", "sysctls"]).iter().map(|sysctl| text(sysctl, &["name"]));
    let bad: Vec<&str> = found.filter(|name| !allowed(name)).collect();
    if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
}

fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor < 8 || pod.is_windows() {
        return None;
    }
    let path = ["securityContext", "allowPrivilegeEscalation"];
    let names = pod.named(|container| flag(container, &path) != Some(false));
    if names.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&names));
    violation("allowPrivilegeEscalation != false", detail)
}

fn all_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor < 22 || pod.is_windows() {
        return None;
    }
    let keeps = pod.named(|container| {
        !list(container, &["securityContext", "capabilities", "drop"]).iter().any(|name| name == "ALL")
    });
    let (adds, found) = added(pod, &["NET_BIND_SERVICE"]);
    let mut details = Vec::new();
    if !keeps.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&keeps)));
    }
    if !adds.is_empty() {
        details.push(must_not_include(&adds, &found));
    }
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

fn volume_types(pod: &Pod<'_>) -> Option<Violation> {
    const ALLOWED: [&str; 9] = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    const OTHERS: [&str; 21] = [
        "hostPath",
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "gitRepo",
        "nfs",
        "iscsi",
        "glusterfs",
        "rbd",
        "flexVolume",
        "cinder",
        "cephfs",
        "flocker",
        "fc",
        "azureFile",
        "vsphereVolume",
        "quobyte",
        "azureDisk",
        "photonPersistentDisk",
        "portworxVolume",
        "scaleIO",
        "storageos",
    ];
    let has = |volume: &Value, kind: &str| at(volume, &[kind]).is_some();
    let volumes = list(pod.spec, &["volumes"]).iter();
    let bad: Vec<&Value> = volumes.filter(|volume| !ALLOWED.iter().any(|kind| has(volume, kind))).collect();
    if bad.is_empty() {
        return None;
    }
    let types: BTreeSet<&str> = bad
        .iter()
        .map(|volume| OTHERS.into_iter().find(|kind| has(volume, kind)).unwrap_or("unknown"))
        .collect();
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", bad.len()),
        quoted(bad.iter().map(|volume| text(volume, &["name"]))),
        plural("uses", "use", bad.len()),
        plural("restricted volume type", "restricted volume types", types.len()),
        quoted(&types)
    );
    violation("restricted volume types", detail)
}

fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() {
        return None;
    }
    let says = |holder: &Value| flag(holder, &["securityContext", "runAsNonRoot"]);
    let explicit = pod.named(|container| says(container) == Some(false));
    if let Some(who) = setters(says(pod.spec) == Some(false), &explicit) {
        let detail = format!("{who} must not set securityContext.runAsNonRoot=false");
        return violation("runAsNonRoot != true", detail);
    }
    if says(pod.spec) == Some(true) {
        return None;
    }
    let implicit = pod.named(|container| says(container).is_none());
    if implicit.is_empty() {
        return None;
    }
    let detail = format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&implicit));
    violation("runAsNonRoot != true", detail)
}

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor < 23 || pod.has_own_users() {
        return None;
    }
    let is_root = |holder: &Value| integer(holder, &["securityContext", "runAsUser"]) == Some(0);
    let who = setters(is_root(pod.spec), &pod.named(is_root))?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}
