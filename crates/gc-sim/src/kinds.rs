//! The kinds of a simulated cluster.

use gc_collectors::{objects, policies};
use gc_types::{Gvr, ResourceId, ResourceInfo, Scope};
use serde_json::{Value, json};

/// A kind that clients use.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Served versions; the first one is watched.
    pub versions: &'static [&'static str],
    /// Plural name.
    pub resource: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Scope of the kind.
    pub scope: Scope,
    /// True if a CustomResourceDefinition defines it.
    pub custom: bool,
}

const fn kind(
    group: &'static str,
    versions: &'static [&'static str],
    resource: &'static str,
    kind: &'static str,
    scope: Scope,
) -> Kind {
    Kind { group, versions, resource, kind, scope, custom: false }
}

const fn custom(
    versions: &'static [&'static str],
    resource: &'static str,
    kind: &'static str,
    scope: Scope,
) -> Kind {
    Kind { group: "example.com", versions, resource, kind, scope, custom: true }
}

use Scope::{Cluster, Namespaced};

/// Every kind of a simulated cluster.
pub const KINDS: [Kind; 14] = [
    kind("", &["v1"], "configmaps", "ConfigMap", Namespaced),
    kind("", &["v1"], "secrets", "Secret", Namespaced),
    kind("", &["v1"], "pods", "Pod", Namespaced),
    kind("apps", &["v1"], "replicasets", "ReplicaSet", Namespaced),
    kind("batch", &["v1"], "jobs", "Job", Namespaced),
    kind("", &["v1"], "persistentvolumes", "PersistentVolume", Cluster),
    kind("rbac.authorization.k8s.io", &["v1"], "clusterroles", "ClusterRole", Cluster),
    custom(&["v1", "v1beta1"], "widgets", "Widget", Namespaced),
    custom(&["v1"], "gizmos", "Gizmo", Cluster),
    kind("", &["v1"], "nodes", "Node", Cluster),
    kind("", &["v1"], "persistentvolumeclaims", "PersistentVolumeClaim", Namespaced),
    kind("coordination.k8s.io", &["v1"], "leases", "Lease", Namespaced),
    kind("certificates.k8s.io", &["v1"], "certificatesigningrequests", "CertificateSigningRequest", Cluster),
    Kind {
        group: policies::GROUP,
        versions: &[policies::VERSION],
        resource: policies::RESOURCE,
        kind: policies::KIND,
        scope: Cluster,
        custom: true,
    },
];

/// Number of [`KINDS`] in every world; the others only exist in worlds with retention.
pub const ORDINARY_KINDS: usize = 9;

/// Resources that the simulated retention collectors watch.
pub const RETAINED: [objects::Kind; 8] = [
    objects::Kind::Pod,
    objects::Kind::Node,
    objects::Kind::Job,
    objects::Kind::SigningRequest,
    objects::Kind::Volume,
    objects::Kind::Claim,
    objects::Kind::Lease,
    objects::Kind::Attachment,
];

/// Returns the index of the kind whose objects have these facts for retention collectors.
#[must_use]
pub fn index_of(kind: objects::Kind) -> Option<usize> {
    let gvr = kind.info().gvr;
    KINDS.iter().position(|row| row.group == &*gvr.group && row.resource == &*gvr.resource)
}

/// Returns the kind of facts that retention collectors read from a kind, if any does.
#[must_use]
pub fn facts_of(kind: usize) -> Option<objects::Kind> {
    RETAINED.into_iter().find(|facts| index_of(*facts) == Some(kind))
}

/// Returns the index of a kind.
#[must_use]
pub fn kind_index(kind: &str) -> usize {
    KINDS.iter().position(|row| row.kind == kind).unwrap_or(0)
}

/// Namespaces of a simulated cluster.
pub const NAMESPACES: [&str; 2] = ["m", "n"];

/// Sample certificate request, in base64.
const REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIc01JR1VBZ0VBTURJeEZUQVRCZ05WQkFvTURITjVjM1JsYlRwdWIyUmxjek\
    VaTUJjR0ExVUVBd3dRYzNsegpkR1Z0T201dlpHVTZibTlrWlRCWk1CTUdCeXFHU000OUFnRUdDQ3FHU000OUF3RUhBMElBQkU0bkI2OGF1a3Fp\
    CjkzcllTWWZkanVjUndBQ3lFYkgxYVFOQzgzVUR1cnA2TmoyUTcyTG9YYVdqVTVTbUM2Zm1wM3J3SEk2Z2UxMEQKS0VmVTYzNVVDcXVnQURBS0\
    JnZ3Foa2pPUFFRREFnTkhBREJFQWlBUTY0dmFUYlhLQ3M0WUVHSkdYTkpWaHZPRApwU3Vib1JDRys4SGpFSHhOeXdJZ1MwL2NrdzkzenJqQ2lr\
    ZlpONjJ4QUJNSDdqMDZPdDhVaXVqeUF5REhKY3c9Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

/// A name that no kind of the cluster ever has.
pub const UNKNOWN_KIND: (&str, &str) = ("unknown.example.com/v1", "Mystery");

impl Kind {
    /// Returns the resource as named by discovery.
    #[must_use]
    pub fn info(&self, id: ResourceId) -> ResourceInfo {
        let gvr = Gvr {
            group: self.group.into(),
            version: self.versions[0].into(),
            resource: self.resource.into(),
        };
        ResourceInfo {
            id,
            gvr,
            kind: self.kind.into(),
            scope: self.scope,
            served_api_versions: self
                .versions
                .iter()
                .map(|version| self.api_version(version).into())
                .collect(),
            watched: true,
            comparable_versions: true,
        }
    }

    /// Returns `group/version`, or `version` for core.
    #[must_use]
    pub fn api_version(&self, version: &str) -> String {
        gc_types::api_version(self.group, version)
    }

    /// Reports whether the kind is served under this `apiVersion`.
    #[must_use]
    pub fn is_served_as(&self, api_version: &str) -> bool {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        group == self.group && self.versions.contains(&version)
    }

    /// Returns the prefix of its keys in the store.
    #[must_use]
    pub fn prefix(&self) -> String {
        let group = if self.group.is_empty() { "core" } else { self.group };
        format!("/{group}/{}/", self.resource)
    }

    /// Reports whether a key of the store belongs to an object of this kind.
    #[must_use]
    pub fn has_key(&self, key: &str) -> bool {
        let group = if self.group.is_empty() { "core" } else { self.group };
        let rest = key.strip_prefix('/').and_then(|rest| rest.strip_prefix(group));
        let rest = rest.and_then(|rest| rest.strip_prefix('/')?.strip_prefix(self.resource));
        rest.is_some_and(|rest| rest.starts_with('/'))
    }

    /// Returns a manifest that the server accepts. `on_node` gives a pod a node, so that its deletion takes time.
    #[must_use]
    pub fn manifest(&self, metadata: Value, on_node: bool) -> Value {
        let containers = json!([{"name": "c", "image": "i"}]);
        let template = |restart: &str| json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers, "restartPolicy": restart}});
        let mut manifest = match self.kind {
            "Pod" => {
                let mut spec = json!({"containers": containers});
                if on_node {
                    spec["nodeName"] = "node".into();
                }
                json!({"spec": spec})
            }
            "ReplicaSet" => {
                json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template("Always")}})
            }
            "Job" => json!({"spec": {"template": template("Never")}}),
            "PersistentVolume" => json!({"spec": {"capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp"}}}),
            "ClusterRole" => json!({"rules": []}),
            "PersistentVolumeClaim" => json!({"spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}),
            "CertificateSigningRequest" => json!({"spec": {"request": REQUEST,
                "signerName": "example.com/signer", "usages": ["client auth"]}}),
            _ => json!({}),
        };
        manifest["metadata"] = metadata;
        manifest
    }

    /// Returns the definition of a custom kind.
    #[must_use]
    pub fn definition(&self) -> Value {
        if self.resource == policies::RESOURCE {
            return policies::definition::definition();
        }
        let scope = if self.scope == Namespaced { "Namespaced" } else { "Cluster" };
        let versions: Vec<Value> = self
            .versions
            .iter()
            .enumerate()
            .map(|(index, version)| {
                json!({"name": version, "served": true, "storage": index == 0, "schema": {"openAPIV3Schema":
                    {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
            })
            .collect();
        json!({
            "metadata": {"name": self.definition_name()},
            "spec": {"group": self.group, "scope": scope, "versions": versions, "names": {
                "plural": self.resource, "singular": self.kind.to_lowercase(), "kind": self.kind,
                "listKind": format!("{}List", self.kind)}},
        })
    }

    /// Returns the name of its definition.
    #[must_use]
    pub fn definition_name(&self) -> String {
        format!("{}.{}", self.resource, self.group)
    }
}
