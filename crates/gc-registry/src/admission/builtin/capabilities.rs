//! Pod features that depend on the cluster's settings (`--allow-privileged`).

use serde_json::Value;

use crate::error::{ApiError, CauseReason, FieldError};
use crate::kinds;
use crate::kinds::access::{flag, list, text};
use crate::registry::call::Call;

/// Label of namespaces whose claims may have administrative access to devices.
const ADMIN_ACCESS: &str = "resource.kubernetes.io/admin-access";

impl Call<'_> {
    /// Returns errors for administrative access to devices requested by a claim whose namespace does not permit it.
    pub(crate) fn admin_access(
        &self,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Vec<FieldError>, ApiError> {
        const CLAIM: [&str; 3] = ["spec", "devices", "requests"];
        const TEMPLATE: [&str; 4] = ["spec", "spec", "devices", "requests"];
        const RESULTS: [&str; 4] = ["status", "allocation", "devices", "results"];
        let resource = self.resource();
        let in_status = self.target.subresource == "status";
        // Upstream names the field path of a claim for templates, too.
        let (path, shown, member): (&[&str], &[&str], &[&str]) = match (&*resource.group, &*resource.resource)
        {
            ("resource.k8s.io", "resourceclaims") if in_status => (&RESULTS, &RESULTS, &["adminAccess"]),
            // The spec of a claim is immutable.
            ("resource.k8s.io", _) if old.is_some() => return Ok(Vec::new()),
            ("resource.k8s.io", "resourceclaims") => (&CLAIM, &CLAIM, &["exactly", "adminAccess"]),
            ("resource.k8s.io", "resourceclaimtemplates") => (&TEMPLATE, &CLAIM, &["exactly", "adminAccess"]),
            _ => return Ok(Vec::new()),
        };
        let wants = |item: &Value| flag(item, member) == Some(true);
        if old.is_some_and(|old| list(old, path).iter().any(wants)) {
            return Ok(Vec::new());
        }
        let Some(index) = list(object, path).iter().position(wants) else { return Ok(Vec::new()) };
        let namespace = self.read_object("", "namespaces", "", &self.target.namespace)?.unwrap_or_default();
        if text(&namespace, &["metadata", "labels", ADMIN_ACCESS]) == "true" {
            return Ok(Vec::new());
        }
        Ok(vec![FieldError {
            field: format!("{}[{index}].adminAccess", shown.join(".")),
            reason: CauseReason::Forbidden,
            detail: format!(
                "Forbidden: admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing namespace"
            ),
        }])
    }

    /// Returns errors for privileged containers if the cluster permits none.
    pub(crate) fn privileged_containers(&self, object: &Value) -> Vec<FieldError> {
        if self.registry.config.allow_privileged || self.resource().custom.is_some() {
            return Vec::new();
        }
        let resource = self.resource();
        let Some(template) = kinds::pods(resource.target()) else { return Vec::new() };
        let path: Vec<&str> = template.iter().copied().chain(["spec"]).collect();
        let mut found = Vec::new();
        let host_process = ["securityContext", "windowsOptions", "hostProcess"];
        let pod: Vec<&str> = path.iter().copied().chain(host_process).collect();
        let mut has_host_process = flag(object, &pod) == Some(true);
        for kind in ["initContainers", "containers", "ephemeralContainers"] {
            let place: Vec<&str> = path.iter().copied().chain([kind]).collect();
            for (index, container) in list(object, &place).iter().enumerate() {
                has_host_process |= flag(container, &host_process) == Some(true);
                if flag(container, &["securityContext", "privileged"]) == Some(true) {
                    found.push(FieldError {
                        field: format!("{}[{index}].securityContext.privileged", place.join(".")),
                        reason: CauseReason::Forbidden,
                        detail: "Forbidden: disallowed by cluster policy".into(),
                    });
                }
            }
        }
        if has_host_process {
            found.push(FieldError {
                field: path.join("."),
                reason: CauseReason::Forbidden,
                detail: "Forbidden: hostProcess containers are disallowed by cluster policy".into(),
            });
        }
        found
    }
}
