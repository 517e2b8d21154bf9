//! API services.

use crate::kinds::metadata::RequiredName;
use crate::kinds::prelude::*;
use crate::kinds::shared::conditions::STATUSES;
use crate::kinds::shared::names::{dns_label_1035, dns_subdomain};
use crate::metadata::names;

pub(crate) struct ApiService;

fn version_and_group(object: &Value) -> RequiredName {
    let name = format!("{}.{}", text(object, &["spec", "version"]), text(object, &["spec", "group"]));
    let why = format!("must be `spec.version+\".\"+spec.group`: {}", names::quoted(&name));
    RequiredName { name, why, alone: true }
}

impl Kind for ApiService {
    const PARTS: Parts = Parts::Status;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = Metadata {
        name: names::path_segment,
        required_name: Some(version_and_group),
        refuses_plain_finalizers: false,
        ..Metadata::DEFAULT
    };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Service", T("The reference to the service that hosts this API endpoint.")),
        H::text("Available", T("Whether this service is available.")),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let service = at(row.object, &["spec", "service"]).map_or_else(
            || "Local".into(),
            |service| format!("{}/{}", text(service, &["namespace"]), text(service, &["name"])),
        );
        let conditions = row.list(&["status", "conditions"]);
        let available = conditions.iter().find(|condition| text(condition, &["type"]) == "Available");
        let available = match available {
            None => "Unknown".to_owned(),
            Some(condition) => match (text(condition, &["status"]), text(condition, &["reason"])) {
                ("True", _) => "True".to_owned(),
                (status, reason) => format!("{status} ({reason})"),
            },
        };
        vec![row.name(), service.into(), available.into(), row.age()]
    }

    fn defaults(members: &mut Members) {
        let Some(spec) = child(members, "spec") else { return };
        if let Some(service) = existing(spec, "service") {
            fill_absent(service, "port", 443);
        }
        fill_absent(spec, "groupPriorityMinimum", 0);
        fill_absent(spec, "versionPriority", 0);
    }

    /// Marks an API without a service, which this server itself serves, as available.
    fn prepare_create(object: &mut Value, context: &Context<'_>) {
        if at(object, &["spec", "service"]).is_none() {
            put(
                object,
                &["status"],
                json!({"conditions": [{
                    "type": "Available", "status": "True", "reason": "Local",
                    "message": "Local APIServices are always available",
                    "lastTransitionTime": context.time(),
                }]}),
            );
        }
    }

    fn prepare_status(new: &mut Value, old: &Value, _: &Context<'_>) {
        keep_own_metadata(new, old);
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let (group, version) = (spec.get("group"), spec.get("version"));
        if group.text().is_empty() && version.text() != "v1" {
            report.required(&group, "only v1 may have an empty group and it better be legacy kube");
        }
        if !group.text().is_empty() {
            let problems = dns_subdomain(group.text());
            if !problems.is_empty() {
                report.invalid(&group, &problems.join(","));
            }
        }
        let problems = dns_label_1035(version.text());
        if !problems.is_empty() {
            report.invalid_text(&version, version.text(), &problems.join(","));
        }
        for (member, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
            let priority = spec.get(member);
            if !(1..=most).contains(&priority.number()) {
                let why = format!("must be positive and less than {most}");
                report.invalid_number(&priority, &why);
            }
        }
        reached(&spec, report);
    }

    fn validate_status(new: &Field<'_, '_>, _: &Field<'_, '_>, report: &mut Report) {
        let status = new.get("status");
        for condition in status.get("conditions").items() {
            if !STATUSES.contains(&condition.text_of("status")) {
                report.not_supported(&condition.get("status"), &["True", "False", "Unknown"]);
            }
        }
    }
}

/// Validates the service of an API; this server itself serves an API without one.
fn reached(spec: &Field<'_, '_>, report: &mut Report) {
    let service = spec.get("service");
    let (bundle, insecure) = (spec.get("caBundle"), spec.get("insecureSkipTLSVerify"));
    if !service.is_set() {
        if !bundle.text().is_empty() {
            let shown = format!("{} bytes", bundle.text().len());
            report.invalid_text(&bundle, &shown, "local APIServices may not have a caBundle");
        }
        if insecure.flag() {
            report.invalid(&insecure, "local APIServices may not have insecureSkipTLSVerify");
        }
        return;
    }
    for member in ["namespace", "name"] {
        if service.text_of(member).is_empty() {
            report.required(&service.get(member), "");
        }
    }
    let port = service.get("port");
    if port.integer().is_some_and(|port| !(1..=65_535).contains(&port)) {
        report.invalid(&port, "port is not valid: must be between 1 and 65535, inclusive");
    }
    if insecure.flag() && !bundle.text().is_empty() {
        let why = "may not be true if caBundle is present";
        report.invalid(&insecure, why);
    }
}
