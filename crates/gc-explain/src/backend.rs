//! The Service behind an aggregated API or a webhook, and why it does not answer.

use crate::catalog::GroupResource;
use crate::commands::kubectl;
use crate::facts::{Facts, Knowledge};
use crate::object::Object;
use crate::text;

/// Visible state of the Service that should answer.
pub(crate) struct Backend {
    /// The problem, from the Service to the workload behind it.
    pub(crate) chain: String,
    /// Commands that help to diagnose or fix it.
    pub(crate) help: Vec<String>,
    /// True if nothing can answer, because the Service does not exist or has no ready endpoint.
    pub(crate) is_down: bool,
}

/// Follows the Service, its endpoints and the workloads behind it.
pub(crate) fn backend(facts: &Facts, namespace: &str, name: &str) -> Backend {
    let target = format!("Service {namespace}/{name}");
    let seen = |chain: String, help: Vec<String>, is_down: bool| Backend { chain, help, is_down };
    let service = match facts.object(&GroupResource::new("", "services"), namespace, name) {
        None => return seen(target, Vec::new(), false),
        Some(Knowledge::Absent) => {
            let help = vec![kubectl(namespace, &["get", "services"])];
            return seen(format!("{target} does not exist"), help, true);
        }
        Some(Knowledge::Unreadable(why)) => {
            return seen(format!("{target} cannot be read: {why}"), Vec::new(), false);
        }
        Some(Knowledge::Present(service)) => service,
    };
    let describe = || vec![kubectl(namespace, &["describe", &format!("service/{name}")])];
    if service.text("/spec/type") == "ExternalName" {
        return seen(format!("{target} is the name of another host"), describe(), false);
    }
    let slices = GroupResource::new("discovery.k8s.io", "endpointslices");
    let Some(Knowledge::Present(slices)) = facts.list(&slices, namespace) else {
        return seen(format!("the endpoints of {target} cannot be seen"), describe(), false);
    };
    let endpoints = slices
        .iter()
        .filter(|slice| slice.label("kubernetes.io/service-name") == name)
        .flat_map(|slice| slice.items("/endpoints"));
    let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] != false).count();
    if ready > 0 {
        let chain = format!("{target} has {} that do not answer", text::count(ready, "ready endpoint"));
        return seen(chain, describe(), false);
    }
    let chain = format!("{target} has no ready endpoint");
    let deployments = facts.all(&GroupResource::new("apps", "deployments"), namespace);
    let Some(deployment) = deployments.iter().find(|deployment| is_selected(service, deployment)) else {
        let help = vec![kubectl(namespace, &["get", &format!("endpointslices,service/{name}")])];
        return seen(chain, help, true);
    };
    let (wanted, ready) = (deployment.number("/spec/replicas"), deployment.number("/status/readyReplicas"));
    let (wanted, ready, name) = (wanted.unwrap_or(1), ready.unwrap_or(0), deployment.name());
    let help = vec![kubectl(namespace, &["describe", &format!("deployment/{name}")])];
    seen(format!("{chain} → Deployment {namespace}/{name}: {ready} of {wanted} ready"), help, true)
}

/// Reports whether a Service selects the pods of a Deployment.
fn is_selected(service: &Object, deployment: &Object) -> bool {
    let Some(selector) = service.value()["spec"]["selector"].as_object() else { return false };
    let labels = &deployment.value()["spec"]["template"]["metadata"]["labels"];
    !selector.is_empty() && selector.iter().all(|(name, value)| labels[name.as_str()] == *value)
}
