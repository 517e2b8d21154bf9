//! Policy of a recorder: which records it keeps.

use gc_collectors::policies::name_matches;
use gc_process::UsageError;
use gc_types::{GoDuration, parse_quantity};
use serde::Deserialize;

/// Default retention of records.
const MAX_AGE: &str = "7d";
/// Default maximum size of records.
const MAX_SIZE: &str = "1Gi";
/// Resources that are never recorded, because there are many objects and nothing would need to recreate them.
const NEVER: [&str; 4] = ["events", "events.events.k8s.io", "leases.coordination.k8s.io", "secrets"];

/// File with the policy of a recorder.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WirePolicy {
    resources: Vec<String>,
    namespaces: WireNamespaces,
    secrets: Vec<String>,
    max_age: String,
    max_size: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WireNamespaces {
    include: Vec<String>,
    exclude: Vec<String>,
}

impl Default for WirePolicy {
    fn default() -> Self {
        Self {
            resources: vec!["*".to_owned()],
            namespaces: WireNamespaces::default(),
            secrets: Vec::new(),
            max_age: MAX_AGE.to_owned(),
            max_size: MAX_SIZE.to_owned(),
        }
    }
}

/// Resources to record, and the bounds of the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingPolicy {
    resources: Vec<String>,
    include: Vec<String>,
    exclude: Vec<String>,
    secrets: Vec<String>,
    /// Age above which records are removed, milliseconds.
    pub(crate) max_age_milliseconds: i64,
    /// Size above which the oldest records are removed, bytes.
    pub(crate) max_bytes: u64,
}

impl RecordingPolicy {
    /// Parses YAML or JSON; an empty text is the default policy.
    pub fn read(text: &str) -> Result<Self, UsageError> {
        let wire: WirePolicy = if text.trim().is_empty() {
            WirePolicy::default()
        } else {
            gc_process::yaml::from_str(text).map_err(UsageError::new)?
        };
        let max_age = GoDuration::parse_with_days(&wire.max_age)
            .map_err(|error| UsageError::new(format!("maxAge: {error}")))?;
        let max_size = parse_quantity(&wire.max_size).and_then(|bytes| u64::try_from(bytes).ok());
        let max_bytes = max_size.filter(|bytes| *bytes >= super::store::SMALLEST_STORE).ok_or_else(|| {
            UsageError::new(format!(
                "maxSize: {:?} is not a size of at least 1Mi, such as 1Gi",
                wire.max_size
            ))
        })?;
        for secret in &wire.secrets {
            if secret.split_once('/').is_none_or(|(namespace, name)| namespace.is_empty() || name.is_empty())
            {
                return Err(UsageError::new(format!("secrets: {secret:?} is not NAMESPACE/NAME")));
            }
        }
        for resource in &wire.resources {
            if NEVER.contains(&resource.as_str()) {
                let how = if resource == "secrets" { "; list each one under secrets" } else { "" };
                return Err(UsageError::new(format!("resources: {resource} are never recorded{how}")));
            }
        }
        Ok(Self {
            resources: wire.resources,
            include: wire.namespaces.include,
            exclude: wire.namespaces.exclude,
            secrets: wire.secrets,
            max_age_milliseconds: max_age.to_milliseconds_rounded_up().max(1),
            max_bytes,
        })
    }

    /// Returns the bounds by size and age.
    #[must_use]
    pub fn bounds(&self) -> super::store::Bounds {
        super::store::Bounds { max_age_milliseconds: self.max_age_milliseconds, max_bytes: self.max_bytes }
    }

    /// Reports whether a resource (`deployments.apps`) is watched at all.
    pub(crate) fn watches(&self, resource: &str) -> bool {
        if resource == "secrets" {
            return !self.secrets.is_empty();
        }
        !NEVER.contains(&resource) && self.resources.iter().any(|wanted| name_matches(wanted, resource))
    }

    /// Reports whether every deletion of a resource is recorded, in all namespaces.
    pub(crate) fn keeps_all(&self, resource: &str) -> bool {
        self.watches(resource) && resource != "secrets" && self.include.is_empty() && self.exclude.is_empty()
    }

    /// Returns the patterns that match none of these resources, such as misspelt ones.
    pub fn unmatched<'a>(&'a self, served: &'a [String]) -> impl Iterator<Item = &'a str> {
        let matches = |pattern: &str| served.iter().any(|name| name_matches(pattern, name));
        self.resources.iter().map(String::as_str).filter(move |pattern| !matches(pattern))
    }

    /// Reports whether the policy may apply to resources that the server does not serve yet.
    pub(crate) fn may_gain(&self, served: &[String]) -> bool {
        self.resources.iter().any(|pattern| pattern.contains('*')) || self.unmatched(served).next().is_some()
    }

    /// Reports whether the policy may apply to resources of an API group.
    pub(crate) fn may_concern(&self, group: &str) -> bool {
        self.resources.iter().any(|pattern| match pattern.split_once('.') {
            Some((_, of_group)) => name_matches(of_group, group) || pattern.starts_with('*'),
            None => pattern.contains('*') || group.is_empty(),
        })
    }

    /// Reports whether the last state of an object is recorded. The namespace is empty at cluster scope.
    #[must_use]
    pub fn keeps(&self, resource: &str, namespace: &str, name: &str) -> bool {
        if resource == "secrets" {
            return self.secrets.iter().any(|secret| *secret == format!("{namespace}/{name}"));
        }
        // A namespace is recorded with its contents.
        let namespace = if resource == "namespaces" { name } else { namespace };
        let any = |patterns: &[String]| patterns.iter().any(|pattern| name_matches(pattern, namespace));
        namespace.is_empty() || ((self.include.is_empty() || any(&self.include)) && !any(&self.exclude))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    /// Returns the documents of a manifest.
    fn manifest(name: &str) -> Vec<serde_json::Value> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/recorder").join(name);
        serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn the_manifests_grant_what_their_policy_records_and_nothing_else() {
        let policy = &manifest("policy.yaml")[0]["data"]["policy.yaml"];
        let policy = RecordingPolicy::read(policy.as_str().unwrap()).unwrap();
        let rbac = manifest("rbac.yaml");
        let roles: Vec<_> = rbac.iter().filter(|object| !object["rules"].is_null()).collect();
        assert_eq!(roles.len(), 2);
        let renews = serde_json::json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "resourceNames": ["kubegc-recorder"], "verbs": ["patch"]}]);
        assert_eq!(roles[1]["kind"], "Role");
        assert_eq!(roles[1]["rules"], renews);
        let mut granted = Vec::new();
        for rule in roles[0]["rules"].as_array().unwrap() {
            assert_eq!(rule["verbs"], serde_json::json!(["list", "watch"]), "{rule}");
            let group = rule["apiGroups"][0].as_str().unwrap();
            for resource in rule["resources"].as_array().unwrap() {
                let resource = resource.as_str().unwrap();
                granted.push(gc_types::group_resource(group, resource));
            }
        }
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        assert_eq!(sorted(granted), sorted(policy.resources));
        assert_eq!(policy.secrets, [""; 0]);
    }

    #[test]
    fn secrets_are_recorded_only_when_listed_and_events_never() {
        let policy = RecordingPolicy::read(
            "resources: [deployments.apps, '*.example.com', configmaps]\n\
             namespaces: {include: ['team-*'], exclude: [team-x]}\nsecrets: [team-a/db]\nmaxAge: 2d\nmaxSize: 2Mi\n",
        )
        .unwrap();
        for (resource, watched) in [
            ("deployments.apps", true),
            ("widgets.example.com", true),
            ("configmaps", true),
            ("pods", false),
            ("secrets", true),
            ("events", false),
            ("leases.coordination.k8s.io", false),
        ] {
            assert_eq!(policy.watches(resource), watched, "{resource}");
        }
        for (resource, namespace, name, kept) in [
            ("configmaps", "team-a", "x", true),
            ("configmaps", "team-x", "x", false),
            ("configmaps", "other", "x", false),
            ("widgets.example.com", "", "w", true),
            ("namespaces", "", "team-a", true),
            ("namespaces", "", "other", false),
            ("secrets", "team-a", "db", true),
            ("secrets", "team-a", "other", false),
        ] {
            assert_eq!(policy.keeps(resource, namespace, name), kept, "{resource} {namespace}/{name}");
        }
        assert_eq!((policy.max_age_milliseconds, policy.max_bytes), (2 * 86_400_000, 2 << 20));
        let by_default = RecordingPolicy::read("").unwrap();
        assert!(
            by_default.watches("pods") && !by_default.watches("secrets") && !by_default.watches("events")
        );
    }

    #[test]
    fn a_misspelt_resource_matches_nothing() {
        let policy = RecordingPolicy::read("resources: [configmap, deployments.apps, '*.acme.dev']").unwrap();
        let served = ["configmaps".to_owned(), "deployments.apps".to_owned()];
        assert_eq!(policy.unmatched(&served).collect::<Vec<_>>(), ["configmap", "*.acme.dev"]);
    }

    #[test]
    fn errors_name_the_field() {
        for (text, expected) in [
            (
                "maxAge: 1y",
                "maxAge: \"1y\" has the unknown unit \"y\"; expected one of ns, us, ms, s, m, h, d, w",
            ),
            ("maxSize: 1k", "maxSize: \"1k\" is not a size of at least 1Mi, such as 1Gi"),
            ("secrets: [db]", "secrets: \"db\" is not NAMESPACE/NAME"),
            ("resources: [secrets]", "resources: secrets are never recorded; list each one under secrets"),
            ("resources: [events]", "resources: events are never recorded"),
        ] {
            assert_eq!(RecordingPolicy::read(text).unwrap_err().to_string(), expected, "{text}");
        }
        assert!(RecordingPolicy::read("resource: [pods]").is_err());
    }
}
