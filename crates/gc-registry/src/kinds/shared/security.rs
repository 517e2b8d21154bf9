//! Security contexts of pods and containers.

use std::collections::BTreeSet;

use super::names::{dns_subdomain, local_descending_path, range_error};
use crate::kinds::prelude::*;
use crate::kubernetes::FeatureGate;

const GMSA_SPEC_MAX_BYTES: usize = 64 * 1024;
const DOMAIN_MAX_BYTES: usize = 256;
const USER_MAX_BYTES: usize = 104;
const PROFILE_MAX_BYTES: usize = 4095;
const SYSCTL_MAX_BYTES: usize = 253;

fn id(field: &Field<'_, '_>, report: &mut Report) {
    if field.integer().is_some_and(|id| !(0..=i64::from(i32::MAX)).contains(&id)) {
        report.invalid(field, &range_error(0, i64::from(i32::MAX)));
    }
}

/// Validates the security context of a container. `host_users` is true if the pod runs in the host's user namespace.
pub(crate) fn container(field: &Field<'_, '_>, host_users: bool, report: &mut Report) {
    if !field.is_set() {
        return;
    }
    id(&field.get("runAsUser"), report);
    id(&field.get("runAsGroup"), report);
    let mount = field.get("procMount");
    report.one_of_if_set(&mount, &["Default", "Unmasked"]);
    if host_users && mount.text() == "Unmasked" {
        report.invalid(&mount, "`hostUsers` must be false to use `Unmasked`");
    }
    seccomp(&field.get("seccompProfile"), report);
    let escalation = field.get("allowPrivilegeEscalation");
    if escalation.is_set() && !escalation.flag() {
        if field.get("privileged").flag() {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            report.invalid(field, why);
        }
        let added = field.get("capabilities");
        if added.get("add").texts().any(|capability| capability == "CAP_SYS_ADMIN") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            report.invalid(field, why);
        }
    }
    windows(&field.get("windowsOptions"), report);
    app_armor(&field.get("appArmorProfile"), report);
}

/// Validates the security context of a pod's spec.
pub(crate) fn pod(spec: &Field<'_, '_>, report: &mut Report) {
    let field = spec.get("securityContext");
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(&field.get(name), report);
    }
    for group in field.get("supplementalGroups").items() {
        id(&group, report);
    }
    let shares = spec.get("shareProcessNamespace");
    if shares.flag() && spec.get("hostPID").flag() {
        report.invalid(
            &field.named("shareProcessNamespace", shares.value()),
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
    sysctls(spec, &field.get("sysctls"), report);
    report.one_of_if_set(&field.get("fsGroupChangePolicy"), &["Always", "OnRootMismatch"]);
    seccomp(&field.get("seccompProfile"), report);
    windows(&field.get("windowsOptions"), report);
    app_armor(&field.get("appArmorProfile"), report);
    report.one_of_if_set(&field.get("supplementalGroupsPolicy"), &["Merge", "Strict"]);
    let policies: &[&str] =
        if FeatureGate::SeLinuxMount.is_on() { &["MountOption", "Recursive"] } else { &["Recursive"] };
    report.one_of_if_set(&field.get("seLinuxChangePolicy"), policies);
}

fn sysctls(spec: &Field<'_, '_>, field: &Field<'_, '_>, report: &mut Report) {
    let mut names = BTreeSet::new();
    for item in field.items() {
        let name = item.get("name");
        let text = name.text();
        if text.is_empty() {
            report.required(&name, "");
        } else if !is_sysctl(text) {
            report.invalid(
                &name,
                &format!(
                    "must have at most {SYSCTL_MAX_BYTES} characters and match regex \
                     ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
                ),
            );
        } else if names.contains(text) {
            report.duplicate_text(&name, text);
        }
        let dotted = text.replace('/', ".");
        if spec.get("hostNetwork").flag() && dotted.starts_with("net.") {
            report.invalid(&name, "may not be specified when 'hostNetwork' is true");
        } else if spec.get("hostIPC").flag()
            && (matches!(dotted.as_str(), "kernel.sem" | "kernel.shm_rmid_forced")
                || dotted.starts_with("kernel.shm")
                || dotted.starts_with("kernel.msg")
                || dotted.starts_with("fs.mqueue."))
        {
            report.invalid(&name, "may not be specified when 'hostIPC' is true");
        }
        names.insert(text);
    }
}

fn is_sysctl(text: &str) -> bool {
    let outer = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= SYSCTL_MAX_BYTES
        && text.split(['.', '/']).all(|part| {
            let bytes = part.as_bytes();
            bytes.first().is_some_and(|b| outer(*b))
                && bytes.last().is_some_and(|b| outer(*b))
                && bytes.iter().all(|b| outer(*b) || matches!(b, b'-' | b'_'))
        })
}

fn seccomp(field: &Field<'_, '_>, report: &mut Report) {
    if !field.is_set() {
        return;
    }
    let kind = field.get("type");
    match kind.text() {
        "Localhost" | "RuntimeDefault" | "Unconfined" => {}
        "" => report.required(&kind, "type is required when seccompProfile is set"),
        _ => report.not_supported(&kind, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
    let profile = field.get("localhostProfile");
    if kind.text() == "Localhost" {
        if profile.is_set() {
            local_descending_path(&profile, profile.text(), report);
        } else {
            report.required(&profile, "must be set when seccomp type is Localhost");
        }
    } else if profile.is_set() {
        let shown = format!(
            "{{\"Type\":{},\"LocalhostProfile\":{}}}",
            serde_json::Value::from(kind.text()),
            profile.value()
        );
        report.invalid_shown(&profile, &shown, "can only be set when seccomp type is Localhost");
    }
}

fn app_armor(field: &Field<'_, '_>, report: &mut Report) {
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    if !field.is_set() {
        return;
    }
    let (kind, profile) = (field.get("type"), field.get("localhostProfile"));
    match kind.text() {
        "Localhost" => {
            if !profile.is_set() {
                report.required(&profile, NEEDED);
                return;
            }
            let text = profile.text();
            if text.trim() != text {
                report.invalid(&profile, "must not be padded with whitespace");
            } else if text.is_empty() {
                report.required(&profile, NEEDED);
            }
            if text.len() > PROFILE_MAX_BYTES {
                report.too_long(&profile, PROFILE_MAX_BYTES);
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if profile.is_set() {
                report.invalid(&profile, "can only be set when AppArmor type is Localhost");
            }
        }
        "" => report.required(&kind, "type is required when appArmorProfile is set"),
        _ => report.not_supported(&kind, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
}

fn windows(field: &Field<'_, '_>, report: &mut Report) {
    let name = field.get("gmsaCredentialSpecName");
    if name.is_set() {
        report.each(&name, dns_subdomain(name.text()));
    }
    let spec = field.get("gmsaCredentialSpec");
    if spec.is_set() && spec.text().is_empty() {
        report.invalid(&spec, "gmsaCredentialSpec cannot be an empty string");
    } else if spec.text().len() > GMSA_SPEC_MAX_BYTES {
        report.invalid(&spec, "gmsaCredentialSpec size must be under 64 KiB");
    }
    let user = field.get("runAsUserName");
    if user.is_set() {
        user_name(&user, report);
    }
}

fn user_name(field: &Field<'_, '_>, report: &mut Report) {
    let text = field.text();
    if text.is_empty() {
        report.invalid(field, "runAsUserName cannot be an empty string");
        return;
    }
    if text.bytes().any(|b| b.is_ascii_control()) {
        report.invalid(field, "runAsUserName cannot contain control characters");
        return;
    }
    let parts: Vec<&str> = text.split('\\').collect();
    let (domain, user) = match parts.as_slice() {
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => {
            report.invalid(field, "runAsUserName cannot contain more than one backslash");
            return;
        }
    };
    if domain.is_some_and(|domain| domain.len() >= DOMAIN_MAX_BYTES) {
        let why = format!("runAsUserName's Domain length must be under {DOMAIN_MAX_BYTES} characters");
        report.invalid(field, &why);
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_dns(domain)) {
        report.invalid(field, "runAsUserName's Domain doesn't match the NetBios nor the DNS format");
    }
    if user.is_empty() {
        report.invalid(field, "runAsUserName's User cannot be empty");
    } else if user.len() > USER_MAX_BYTES {
        let why = format!("runAsUserName's User length must not be longer than {USER_MAX_BYTES} characters");
        report.invalid(field, &why);
    }
    if !user.is_empty() && user.bytes().all(|b| matches!(b, b'.' | b' ')) {
        report.invalid(field, "runAsUserName's User cannot contain only periods or spaces");
    }
    if user.bytes().any(|b| b"\"/\\:;|=,+*?<>@[]".contains(&b)) {
        let why = "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]";
        report.invalid(field, why);
    }
}

fn is_net_bios(text: &str) -> bool {
    !text.starts_with('.')
        && (1..=15).contains(&text.chars().count())
        && !text.bytes().any(|b| b"\\/:*?\"<>|".contains(&b))
}

fn is_dns(text: &str) -> bool {
    text.split('.').all(|part| {
        let bytes = part.as_bytes();
        (1..=63).contains(&bytes.len())
            && bytes[0].is_ascii_alphanumeric()
            && bytes[bytes.len() - 1].is_ascii_alphanumeric()
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    })
}
