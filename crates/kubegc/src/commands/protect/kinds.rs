//! The rule about kinds and namespaces.

use gc_explain::Catalog;
use gc_explain::protect::Rule;
use gc_process::UsageError;

/// Resources whose objects are replaced all the time, or whose deletion the cluster needs in order to work.
const ALWAYS_DELETED: [&str; 6] = [
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "pods",
    "replicasets.apps",
    "endpointslices.discovery.k8s.io",
];

/// Builds the rule from the words of a command line.
pub(super) fn rule(
    name: &str,
    kinds: &[String],
    namespaces: &[String],
    catalog: &Catalog,
) -> Result<Rule, UsageError> {
    let is_name = |text: &str| {
        let is_of_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !text.is_empty() && text.len() <= 63 && text.bytes().all(is_of_name)
    };
    if let Some(wrong) =
        [name].into_iter().chain(namespaces.iter().map(String::as_str)).find(|text| !is_name(text))
    {
        return Err(UsageError::new(format!(
            "{wrong:?} is not a name: lower-case letters, digits and hyphens"
        )));
    }
    let mut resources = Vec::new();
    for word in kinds {
        for resource in catalog.find(word).map_err(UsageError::new)? {
            let called = resource.name.to_string();
            if ALWAYS_DELETED.contains(&&*called) {
                return Err(UsageError::new(format!(
                    "{called} are deleted and replaced by controllers all the time: protect their owners, or single objects"
                )));
            }
            if !namespaces.is_empty() && !resource.is_namespaced() && called != "namespaces" {
                return Err(UsageError::new(format!("{called} are in no namespace")));
            }
            resources.push((resource.name.group.to_string(), resource.name.resource.to_string()));
        }
    }
    resources.sort();
    resources.dedup();
    Ok(Rule::Kinds { name: name.to_owned(), resources, namespaces: namespaces.to_vec() })
}
