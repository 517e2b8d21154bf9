//! What the cluster lets pods do at all (`--allow-privileged`).

use serde_json::Value;

use crate::call::Call;
use crate::error::{CauseReason, FieldError};
use crate::kinds::access::{flag, list};

impl Call<'_> {
    /// Privileged containers where the cluster allows none.
    pub(crate) fn privileged_containers(&self, object: &Value) -> Vec<FieldError> {
        if self.registry.config.allow_privileged || self.resource().custom.is_some() {
            return Vec::new();
        }
        let resource = self.resource();
        let path: &[&str] = match (&*resource.group, &*resource.resource) {
            ("", "pods") => &["spec"],
            ("", "podtemplates") => &["template", "spec"],
            ("", "replicationcontrollers")
            | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
            | ("batch", "jobs") => &["spec", "template", "spec"],
            ("batch", "cronjobs") => &["spec", "jobTemplate", "spec", "template", "spec"],
            _ => return Vec::new(),
        };
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
