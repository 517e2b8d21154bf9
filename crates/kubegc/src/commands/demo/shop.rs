//! The objects of the demonstration: a small shop, as its controllers would have made it.

use serde_json::{Value, json};

/// One object, and where it is created.
pub(super) struct Item {
    /// Path of the collection.
    pub(super) collection: &'static str,
    /// Kind.
    pub(super) kind: &'static str,
    /// Name.
    pub(super) name: &'static str,
    /// `kind/name` of its owner.
    pub(super) owner: Option<&'static str>,
    /// The object without its metadata.
    pub(super) content: Value,
}

impl Item {
    /// `kind/name`
    pub(super) fn title(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }

    /// Path of the object.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.collection, self.name)
    }
}

const NAMESPACES: &str = "/api/v1/namespaces";
const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const SERVICES: &str = "/api/v1/namespaces/shop/services";
const CONFIG_MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";
const JOBS: &str = "/apis/batch/v1/namespaces/shop/jobs";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Path of the collection of orders.
pub(super) const ORDERS: &str = "/apis/shop.example.com/v1/namespaces/shop/orders";

/// Returns the objects that must exist before the rest.
pub(super) fn ground() -> Vec<Item> {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"customer": {"type": "string"}, "total": {"type": "string"}}},
    }}});
    vec![
        item(NAMESPACES, "Namespace", "shop", None, json!({"apiVersion": "v1"})),
        item(
            DEFINITIONS,
            "CustomResourceDefinition",
            "orders.shop.example.com",
            None,
            json!({"apiVersion": "apiextensions.k8s.io/v1", "spec": {
                "group": "shop.example.com", "scope": "Namespaced",
                "names": {"plural": "orders", "singular": "order", "kind": "Order", "listKind": "OrderList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            }}),
        ),
    ]
}

/// Returns the shop's objects, each owner before its dependents.
pub(super) fn shop() -> Vec<Item> {
    let mut items = vec![
        item(DEPLOYMENTS, "Deployment", "web", None, workload("apps/v1", "web", 3)),
        item(REPLICA_SETS, "ReplicaSet", "web-7d4b9c", Some("Deployment/web"), workload("apps/v1", "web", 3)),
    ];
    for name in ["web-7d4b9c-k2x8p", "web-7d4b9c-mz4tq", "web-7d4b9c-w9rhd"] {
        items.push(item(PODS, "Pod", name, Some("ReplicaSet/web-7d4b9c"), pod("nginx:1.29")));
    }
    items.push(item(
        SERVICES,
        "Service",
        "web",
        None,
        json!({"apiVersion": "v1", "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}),
    ));
    items.push(item(
        SLICES,
        "EndpointSlice",
        "web-x7k2m",
        Some("Service/web"),
        json!({"apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4", "endpoints": []}),
    ));
    for (order, invoice, customer) in
        [("order-1001", "invoice-1001", "Ada"), ("order-1002", "invoice-1002", "Grace")]
    {
        let content =
            json!({"apiVersion": "shop.example.com/v1", "spec": {"customer": customer, "total": "42.00"}});
        items.push(item(ORDERS, "Order", order, None, content));
        let owner = if order == "order-1001" { "Order/order-1001" } else { "Order/order-1002" };
        let content = json!({"apiVersion": "v1", "data": {"customer": customer}});
        items.push(item(CONFIG_MAPS, "ConfigMap", invoice, Some(owner), content));
    }
    items.push(item(JOBS, "Job", "pack-1001", Some("Order/order-1001"), job()));
    items.push(item(PODS, "Pod", "pack-1001-5lq7c", Some("Job/pack-1001"), pod("busybox:1.37")));
    items.push(item(JOBS, "Job", "nightly-report", None, job()));
    items.push(item(PODS, "Pod", "nightly-report-8vx2n", Some("Job/nightly-report"), pod("busybox:1.37")));
    items.push(item(NODES, "Node", "worker-1", None, json!({"apiVersion": "v1"})));
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "spec": {
        "holderIdentity": "worker-1", "leaseDurationSeconds": 40,
    }});
    items.push(item(LEASES, "Lease", "worker-1", Some("Node/worker-1"), lease));
    items
}

fn item(
    collection: &'static str,
    kind: &'static str,
    name: &'static str,
    owner: Option<&'static str>,
    content: Value,
) -> Item {
    Item { collection, kind, name, owner, content }
}

fn pod(image: &str) -> Value {
    json!({"apiVersion": "v1", "spec": {"containers": [{"name": "main", "image": image}]}})
}

fn workload(api_version: &str, app: &str, replicas: u32) -> Value {
    json!({"apiVersion": api_version, "spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": app}},
        "template": {
            "metadata": {"labels": {"app": app}},
            "spec": {"containers": [{"name": "main", "image": "nginx:1.29"}]},
        },
    }})
}

fn job() -> Value {
    json!({"apiVersion": "batch/v1", "spec": {"suspend": true, "template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1.37"}],
    }}}})
}

/// One deletion, with its expected end state.
pub(super) struct Act {
    /// Title of the scene.
    pub(super) title: &'static str,
    /// What Kubernetes promises about it.
    pub(super) promise: &'static str,
    /// `kind/name` of the deleted object.
    pub(super) deleted: &'static str,
    /// Propagation policy.
    pub(super) policy: &'static str,
    /// `kind/name` of each object that must be gone in the end, including the deleted one.
    pub(super) collected: &'static [&'static str],
    /// Objects that must stay although their owner is deleted.
    pub(super) released: &'static [&'static str],
}

/// The acts, in order.
pub(super) const ACTS: &[Act] = &[
    Act {
        title: "Background: delete Deployment/web",
        promise: "the Deployment is deleted at once, its dependents after it",
        deleted: "Deployment/web",
        policy: "Background",
        collected: &[
            "Deployment/web",
            "ReplicaSet/web-7d4b9c",
            "Pod/web-7d4b9c-k2x8p",
            "Pod/web-7d4b9c-mz4tq",
            "Pod/web-7d4b9c-w9rhd",
        ],
        released: &[],
    },
    Act {
        title: "Foreground: delete Order/order-1001, a custom resource",
        promise: "the Order is deleted last, after everything that it owns",
        deleted: "Order/order-1001",
        policy: "Foreground",
        collected: &["Order/order-1001", "ConfigMap/invoice-1001", "Job/pack-1001", "Pod/pack-1001-5lq7c"],
        released: &[],
    },
    Act {
        title: "Orphan: delete Job/nightly-report",
        promise: "the Job is deleted, its Pod stays and has no owner any more",
        deleted: "Job/nightly-report",
        policy: "Orphan",
        collected: &["Job/nightly-report"],
        released: &["Pod/nightly-report-8vx2n"],
    },
    Act {
        title: "Background, across scopes: delete Node/worker-1",
        promise: "the Lease of a Node is deleted with it, although it is in a namespace",
        deleted: "Node/worker-1",
        policy: "Background",
        collected: &["Node/worker-1", "Lease/worker-1"],
        released: &[],
    },
];
