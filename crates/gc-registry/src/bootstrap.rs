//! What every cluster has: namespaces, bootstrap roles and bindings, system priority classes.

pub mod flow_control;

use serde_json::{Value, json};

use crate::api::{Operation, RequestBody, RequestContext, RequestTarget};
use crate::error::ApiError;
use crate::maintain::own_write;
use crate::meta;
use crate::registry::Registry;

const RBAC: &str = "rbac.authorization.k8s.io";
const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";
const DEFAULTING: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");

/// Values of the two system priority classes.
const SYSTEM_PRIORITIES: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

impl Registry {
    /// Creates what every cluster has, where it is missing. What is there already is left as it is.
    pub fn bootstrap(&self, context: &RequestContext<'_>) -> Result<(), ApiError> {
        for name in ["kube-system", "kube-public", "kube-node-lease", "default"] {
            self.ensure("", "v1", "namespaces", json!({"metadata": {"name": name}}), context)?;
        }
        for (name, value, description) in SYSTEM_PRIORITIES {
            let class = json!({"metadata": {"name": name}, "value": value, "description": description,
                "preemptionPolicy": "PreemptLowerPriority"});
            self.ensure("scheduling.k8s.io", "v1", "priorityclasses", class, context)?;
        }
        for role in cluster_roles() {
            self.ensure(RBAC, "v1", "clusterroles", role, context)?;
        }
        for (role, groups) in [
            ("cluster-admin", &["system:masters"][..]),
            ("system:discovery", &["system:authenticated"]),
            ("system:basic-user", &["system:authenticated"]),
            ("system:public-info-viewer", &["system:authenticated", "system:unauthenticated"]),
            ("system:monitoring", &["system:monitoring"]),
            ("system:service-account-issuer-discovery", &["system:serviceaccounts"]),
        ] {
            let subjects: Vec<Value> = groups
                .iter()
                .map(|group| json!({"apiGroup": RBAC, "kind": "Group", "name": group}))
                .collect();
            let binding = json!({"metadata": bootstrap_metadata(role), "subjects": subjects,
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}});
            self.ensure(RBAC, "v1", "clusterrolebindings", binding, context)?;
        }
        for level in flow_control::priority_levels() {
            self.ensure(FLOW_CONTROL, "v1", "prioritylevelconfigurations", level, context)?;
        }
        for schema in flow_control::flow_schemas() {
            self.ensure(FLOW_CONTROL, "v1", "flowschemas", schema, context)?;
        }
        Ok(())
    }

    fn ensure(
        &self,
        group: &str,
        version: &str,
        resource: &str,
        object: Value,
        context: &RequestContext<'_>,
    ) -> Result<(), ApiError> {
        let catalog = self.catalog();
        let Some(row) = catalog.find(group, version, resource) else {
            return Err(ApiError::internal(format!("{resource}.{group} is not served")));
        };
        let target = |name: &str| RequestTarget {
            resource: row.clone(),
            namespace: String::new(),
            name: name.to_owned(),
            subresource: String::new(),
        };
        let get = Operation::Get { resource_version: String::new() };
        match self.handle(&target(meta::name(&object)), get, context) {
            Err(error) if error.code == 404 => {}
            other => return other.map(|_| ()),
        }
        let body = RequestBody { value: object, duplicates: Vec::new() };
        match self.handle(&target(""), Operation::Create(body, own_write()), context) {
            // Another server on the same store was faster.
            Err(error) if error.code == 409 => Ok(()),
            other => other.map(|_| ()),
        }
    }
}

fn bootstrap_metadata(name: &str) -> Value {
    json!({"name": name, "labels": {DEFAULTING.0: DEFAULTING.1},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}})
}

fn role(name: &str, rules: &[Value]) -> Value {
    json!({"metadata": bootstrap_metadata(name), "rules": rules})
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

fn paths(paths: &[&str]) -> Value {
    json!({"nonResourceURLs": paths, "verbs": ["get"]})
}

const READ: [&str; 3] = ["get", "list", "watch"];
const CHANGE: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Core resources that namespaced users work with.
const CORE: [&str; 12] = [
    "configmaps",
    "endpoints",
    "events",
    "persistentvolumeclaims",
    "pods",
    "pods/status",
    "pods/log",
    "replicationcontrollers",
    "replicationcontrollers/scale",
    "serviceaccounts",
    "services",
    "services/status",
];
const APPS: [&str; 8] = [
    "controllerrevisions",
    "daemonsets",
    "deployments",
    "deployments/scale",
    "replicasets",
    "replicasets/scale",
    "statefulsets",
    "statefulsets/scale",
];

fn namespaced_rules(verbs: &[&str]) -> Vec<Value> {
    vec![
        rule(&[""], &CORE, verbs),
        rule(&["apps"], &APPS, verbs),
        rule(&["batch"], &["cronjobs", "cronjobs/status", "jobs", "jobs/status"], verbs),
        rule(&["autoscaling"], &["horizontalpodautoscalers"], verbs),
        rule(&["networking.k8s.io"], &["ingresses", "networkpolicies"], verbs),
        rule(&["policy"], &["poddisruptionbudgets"], verbs),
        rule(&["coordination.k8s.io"], &["leases"], verbs),
        rule(&["discovery.k8s.io"], &["endpointslices"], verbs),
        rule(&["resource.k8s.io"], &["resourceclaims", "resourceclaimtemplates"], verbs),
    ]
}

fn cluster_roles() -> Vec<Value> {
    let discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    let mut view = namespaced_rules(&READ);
    view.push(rule(&[""], &["namespaces", "limitranges", "resourcequotas"], &READ));
    let mut edit = namespaced_rules(&CHANGE);
    edit.push(rule(&[""], &["namespaces", "limitranges", "resourcequotas"], &READ));
    edit.push(rule(&[""], &["secrets"], &CHANGE));
    edit.push(rule(&[""], &["pods/eviction", "serviceaccounts/token"], &["create"]));
    let mut admin = edit.clone();
    admin.push(rule(&[RBAC], &["rolebindings", "roles"], &CHANGE));
    admin.push(rule(&["authorization.k8s.io"], &["localsubjectaccessreviews"], &["create"]));
    vec![
        role(
            "cluster-admin",
            &[rule(&["*"], &["*"], &["*"]), json!({"nonResourceURLs": ["*"], "verbs": ["*"]})],
        ),
        role("admin", &admin),
        role("edit", &edit),
        role("view", &view),
        role("system:discovery", &[paths(&discovery)]),
        role(
            "system:public-info-viewer",
            &[paths(&["/healthz", "/livez", "/readyz", "/version", "/version/"])],
        ),
        role(
            "system:monitoring",
            &[paths(&["/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/readyz", "/readyz/*"])],
        ),
        role(
            "system:basic-user",
            &[
                rule(
                    &["authorization.k8s.io"],
                    &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                    &["create"],
                ),
                rule(&["authentication.k8s.io"], &["selfsubjectreviews"], &["create"]),
            ],
        ),
        role(
            "system:service-account-issuer-discovery",
            &[paths(&[
                "/.well-known/openid-configuration",
                "/.well-known/openid-configuration/",
                "/openid/v1/jwks",
                "/openid/v1/jwks/",
            ])],
        ),
        role(
            "system:controller:generic-garbage-collector",
            &[
                rule(&["*"], &["*"], &["delete", "get", "list", "patch", "update", "watch"]),
                rule(&["", "events.k8s.io"], &["events"], &["create", "patch", "update"]),
            ],
        ),
        role(
            "system:controller:namespace-controller",
            &[
                rule(&[""], &["namespaces"], &["delete", "get", "list", "watch"]),
                rule(&[""], &["namespaces/finalize", "namespaces/status"], &["update"]),
                rule(&["*"], &["*"], &["delete", "deletecollection", "get", "list"]),
            ],
        ),
        role(
            "system:auth-delegator",
            &[
                rule(&["authentication.k8s.io"], &["tokenreviews"], &["create"]),
                rule(&["authorization.k8s.io"], &["subjectaccessreviews"], &["create"]),
            ],
        ),
    ]
}
