//! Which controller removes a finalizer, and what is left behind if something else removes it.

use gc_types::Timestamp;

use crate::catalog::GroupResource;
use crate::facts::Facts;
use crate::object::Object;
use crate::text;

/// Controllers that are named for one finalizer at most.
pub const CONTROLLERS_NAMED: usize = 3;

/// A finalizer whose controller and purpose are known.
struct KnownFinalizer {
    /// The finalizer; one that ends in `/` is a prefix.
    name: &'static str,
    /// Who removes it.
    by: &'static str,
    /// What is left behind when it is removed by hand.
    strands: &'static str,
}

const fn known(name: &'static str, by: &'static str, strands: &'static str) -> KnownFinalizer {
    KnownFinalizer { name, by, strands }
}

/// The finalizers of Kubernetes itself and of what runs in many clusters.
const KNOWN: &[KnownFinalizer] = &[
    known("acme.cert-manager.io/finalizer", "cert-manager", "DNS records or ingresses of ACME challenges"),
    known(
        "batch.kubernetes.io/job-tracking",
        "the Job controller of kube-controller-manager",
        "nothing; the Job no longer counts this pod",
    ),
    known(
        "cluster.cluster.x-k8s.io",
        "the Cluster API controller",
        "machines and networks of the cluster at its provider",
    ),
    known(
        "customresourcecleanup.apiextensions.k8s.io",
        "kube-apiserver",
        "the stored objects of the definition, invisible until it is created again",
    ),
    known(
        "external-attacher/",
        "the CSI external-attacher of the driver",
        "a volume that stays attached to its node",
    ),
    known(
        "external-provisioner.volume.kubernetes.io/finalizer",
        "the CSI external-provisioner of the driver",
        "the storage of the volume",
    ),
    known(
        "finalizer.managedresource.crossplane.io",
        "the Crossplane provider",
        "the external resource, still running and billed",
    ),
    known("finalizers.fluxcd.io", "the Flux controller of the kind", "the objects that it applied"),
    known(
        "foregroundDeletion",
        "the garbage collector",
        "dependents, which are then deleted in the background",
    ),
    known("karpenter.sh/termination", "Karpenter", "the machine of the node, still running and billed"),
    known(
        "kubernetes.io/pv-protection",
        "the PV protection controller of kube-controller-manager",
        "the claim that is bound to the volume",
    ),
    known(
        "kubernetes.io/pvc-protection",
        "the PVC protection controller of kube-controller-manager",
        "the pods that use the claim",
    ),
    known(
        "kubernetes.io/vac-protection",
        "the VolumeAttributesClass protection controller of kube-controller-manager",
        "the claims and volumes that name the class",
    ),
    known(
        "kubernetes",
        "the namespace controller of kube-controller-manager",
        "the objects that remain in the namespace, invisible until it is created again",
    ),
    known(
        "machine.cluster.x-k8s.io",
        "the Cluster API controller",
        "the machine at its provider, still running and billed",
    ),
    known(
        "orphan",
        "the garbage collector",
        "no dependents: they are DELETED, although orphaning them was asked for, unless their references to it are removed first",
    ),
    known(
        "resources-finalizer.argocd.argoproj.io",
        "the Argo CD application controller",
        "the objects that the application deployed",
    ),
    known(
        "service.kubernetes.io/load-balancer-cleanup",
        "the service controller of the cloud provider",
        "the load balancer at the cloud provider, still running and billed",
    ),
    known("snapshot.storage.kubernetes.io/", "the snapshot controller", "the snapshot in the storage system"),
];

fn find(finalizer: &str) -> Option<&'static KnownFinalizer> {
    KNOWN.iter().find(|known| {
        if known.name.ends_with('/') { finalizer.starts_with(known.name) } else { finalizer == known.name }
    })
}

/// What is left behind when a finalizer is removed by hand.
#[must_use]
pub fn strands(finalizer: &str) -> String {
    match find(finalizer) {
        Some(known) => known.strands.to_owned(),
        None => format!("whatever the controller of {finalizer} would have cleaned up"),
    }
}

/// Who removes a well-known finalizer.
#[must_use]
pub fn known_controller(finalizer: &str) -> Option<&'static str> {
    find(finalizer).map(|known| known.by)
}

/// A controller that seems responsible for a finalizer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Controller {
    /// Whether it can do its work as far as can be seen.
    pub works: bool,
    /// `deployment`, `statefulset`, `daemonset`, `lease` or a webhook configuration.
    pub kind: &'static str,
    /// Its namespace; empty at cluster scope.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its state, in words.
    pub state: String,
}

impl Controller {
    /// What it is and how it is doing.
    #[must_use]
    pub fn message(&self) -> String {
        let place = if self.namespace.is_empty() { String::new() } else { format!("{}/", self.namespace) };
        format!("{} {place}{} ({})", self.kind, self.name, self.state)
    }
}

const WORKLOADS: [(&str, &str, &str, &str); 3] = [
    ("deployment", "deployments", "/spec/replicas", "/status/readyReplicas"),
    ("statefulset", "statefulsets", "/spec/replicas", "/status/readyReplicas"),
    ("daemonset", "daemonsets", "/status/desiredNumberScheduled", "/status/numberReady"),
];

/// The controllers that seem responsible for a finalizer: workloads and leases that mention its domain or a word of it, webhooks
/// that mention its domain, and workloads that are called like the field manager that set it. Those that do not work come
/// first.
pub fn responsible(finalizer: &str, managers: &[String], facts: &Facts) -> Vec<Controller> {
    let marks = Marks::of(finalizer);
    let mut found = Vec::new();
    for (kind, resource, wanted, ready) in WORKLOADS {
        for workload in facts.all(&GroupResource::new("apps", resource), "") {
            // What carries the finalizer waits for its controller, and is not it.
            if carries(workload, finalizer) {
                continue;
            }
            if is_called(workload, managers) || mentions(workload, &|text| marks.are_in(text)) {
                let wanted = workload.number(wanted).unwrap_or(i64::from(kind != "daemonset"));
                let ready = workload.number(ready).unwrap_or(0);
                found.push(Controller {
                    works: ready > 0,
                    kind,
                    namespace: workload.namespace().to_owned(),
                    name: workload.name().to_owned(),
                    state: format!("{ready} of {wanted} ready"),
                });
            }
        }
    }
    for lease in facts.all(&GroupResource::new("coordination.k8s.io", "leases"), "") {
        if marks.are_all_in(lease.name()) && !carries(lease, finalizer) {
            found.push(self::lease(lease, facts.now()));
        }
    }
    for (kind, resource) in [
        ("mutating webhook", "mutatingwebhookconfigurations"),
        ("validating webhook", "validatingwebhookconfigurations"),
    ] {
        for webhook in facts.all(&GroupResource::new("admissionregistration.k8s.io", resource), "") {
            if mentions(webhook, &|text| marks.has_domain(text)) {
                let (namespace, name) = (String::new(), webhook.name().to_owned());
                // Whether the software behind a webhook removes finalizers is not known.
                let state = format!("it mentions {}", marks.domain);
                found.push(Controller { works: false, kind, namespace, name, state });
            }
        }
    }
    // A mention by a webhook says least.
    let is_webhook = |controller: &Controller| controller.kind.ends_with("webhook");
    found.sort_by(|left, right| (is_webhook(left), left).cmp(&(is_webhook(right), right)));
    found.truncate(CONTROLLERS_NAMED);
    found
}

fn lease(lease: &Object, now: Timestamp) -> Controller {
    let seconds = lease.number("/spec/leaseDurationSeconds").unwrap_or(0);
    let renewed = lease.time("/spec/renewTime");
    let is_held = renewed.is_some_and(|at| now.since(at) <= seconds.saturating_mul(1000));
    let state = match (renewed, lease.text("/spec/holderIdentity")) {
        (None, _) | (_, "") => "it has no holder".to_owned(),
        (Some(at), holder) => format!("{holder} renewed it {}", text::ago(at, now)),
    };
    let (namespace, name) = (lease.namespace().to_owned(), lease.name().to_owned());
    Controller { works: is_held, kind: "lease", namespace, name, state }
}

/// What software is recognised by.
struct Marks<'a> {
    /// The domain of the finalizer.
    domain: &'a str,
    /// Its labels, without what is common to many.
    words: Vec<&'a str>,
}

impl<'a> Marks<'a> {
    fn of(finalizer: &'a str) -> Self {
        let domain = finalizer.split('/').next().unwrap_or(finalizer);
        // The owner of a domain is the label before the top level, and its product the ones before that.
        let common =
            ["finalizer", "finalizers", "kubernetes", "example", "sigs", "k8s", "x-k8s", "cluster", "github"];
        let labels: Vec<&str> = domain.split('.').collect();
        let names = labels.iter().take(labels.len().saturating_sub(1)).copied();
        let words = names.filter(|label| label.len() >= 4 && !common.contains(label)).collect();
        Self { domain, words }
    }

    /// Whether a text has the domain, or a subdomain of it.
    fn has_domain(&self, text: &str) -> bool {
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-');
        let mut names = text.split(|letter: char| !is_of_name(letter));
        names.any(|name| {
            name == self.domain || name.strip_suffix(self.domain).is_some_and(|left| left.ends_with('.'))
        })
    }

    /// Whether a text has the domain, or all of its words: a name that shares one word with it proves nothing.
    fn are_all_in(&self, text: &str) -> bool {
        let own: Vec<&str> = text.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
        self.has_domain(text) || (!self.words.is_empty() && self.words.iter().all(|word| own.contains(word)))
    }

    /// Whether a text has the domain, or one of its words as a whole word.
    fn are_in(&self, text: &str) -> bool {
        let mut words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
        self.has_domain(text) || words.any(|word| self.words.contains(&word))
    }
}

/// Whether an object, or the pods of its template, carry a finalizer.
fn carries(object: &Object, finalizer: &str) -> bool {
    ["/metadata/finalizers", "/spec/template/metadata/finalizers"]
        .iter()
        .any(|list| object.texts(list).any(|name| name == finalizer))
}

/// Whether a workload, or the image of one of its containers, is called like one of these field managers.
fn is_called(workload: &Object, managers: &[String]) -> bool {
    let images = workload.items("/spec/template/spec/containers").filter_map(|container| {
        let image = container["image"].as_str()?;
        image.rsplit('/').next()?.split([':', '@']).next()
    });
    let names: Vec<&str> = images.chain([workload.name()]).collect();
    managers.iter().any(|manager| names.contains(&manager.as_str()))
}

/// Whether an object has such a text, apart from what is written about it by others.
fn mentions(object: &Object, is_meant: &dyn Fn(&str) -> bool) -> bool {
    fn look(value: &serde_json::Value, is_meant: &dyn Fn(&str) -> bool, depth: usize) -> bool {
        match value {
            serde_json::Value::String(text) => is_meant(text),
            serde_json::Value::Array(items) => {
                depth > 0 && items.iter().any(|item| look(item, is_meant, depth - 1))
            }
            serde_json::Value::Object(fields) => {
                depth > 0 && fields.values().any(|field| look(field, is_meant, depth - 1))
            }
            _ => false,
        }
    }
    let value = object.value();
    is_meant(object.name())
        || ["spec", "webhooks"].iter().any(|field| look(&value[*field], is_meant, 12))
        || look(&value["metadata"]["labels"], is_meant, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Known;
    use serde_json::json;

    #[test]
    fn the_controller_of_a_finalizer_is_found_by_its_domain_and_by_its_field_manager() {
        let now = Timestamp(1_800_000_000_000);
        let mut facts = Facts::at(now);
        let workload = |namespace: &str, name: &str, image: &str, ready: i64| {
            json!({"metadata": {"namespace": namespace, "name": name}, "status": {"readyReplicas": ready},
                   "spec": {"replicas": 1, "template": {"spec": {"containers": [{"image": image}]}}}})
        };
        let deployments = vec![
            workload("ops", "widget-operator", "registry.example/ops/widgets:v1", 0),
            workload("ops", "manager", "registry.example/acme-manager@sha256:00", 1),
            workload("shop", "web", "nginx", 1),
        ];
        let lease = json!({"metadata": {"namespace": "ops", "name": "widgets.acme.dev"},
                           "spec": {"holderIdentity": "pod-1", "leaseDurationSeconds": 15, "renewTime": "2027-01-15T05:00:00Z"}});
        facts.tell_list(GroupResource::new("apps", "deployments"), "", Known::Present(deployments));
        facts.tell_list(GroupResource::new("coordination.k8s.io", "leases"), "", Known::Present(vec![lease]));
        let asked = |facts: &Facts, finalizer: &str, manager: &str| -> Vec<String> {
            responsible(finalizer, &[manager.to_owned()], facts).iter().map(Controller::message).collect()
        };
        let found = |finalizer: &str, manager: &str| asked(&facts, finalizer, manager);
        assert_eq!(
            found("widgets.acme.dev/cleanup", "kubectl"),
            [
                "deployment ops/widget-operator (0 of 1 ready)",
                "lease ops/widgets.acme.dev (pod-1 renewed it 3h ago)",
                "deployment ops/manager (1 of 1 ready)",
            ]
        );
        assert_eq!(found("hold", "widget-operator"), ["deployment ops/widget-operator (0 of 1 ready)"]);
        assert_eq!(found("example.com/hold", "kubectl"), [] as [String; 0]);
        // A part of a word says nothing.
        assert_eq!(
            found("widget.acm.dev/hold", "kubectl"),
            ["deployment ops/widget-operator (0 of 1 ready)"]
        );
        assert_eq!(found("operat.acm.dev/hold", "kubectl"), [] as [String; 0]);
        // One word of a Lease is a coincidence; an object that carries the finalizer itself waits for the controller.
        assert_eq!(found("gears.acme.dev/hold", "kubectl"), ["deployment ops/manager (1 of 1 ready)"]);
        let mut guarded = workload("ops", "gears", "registry.example/gears:v1", 1);
        guarded["metadata"]["finalizers"] = json!(["gears.acme.org/hold"]);
        let mut facts = Facts::at(now);
        facts.tell_list(GroupResource::new("apps", "deployments"), "", Known::Present(vec![guarded]));
        assert_eq!(asked(&facts, "gears.acme.org/hold", "kubectl"), [] as [String; 0]);
        assert_eq!(asked(&facts, "gears.acme.org/other", "kubectl"), ["deployment ops/gears (1 of 1 ready)"]);
        let webhook =
            |name: &str| json!({"metadata": {"name": name}, "webhooks": [{"name": format!("check.{name}")}]});
        let webhooks = vec![webhook("x.yz.io"), webhook("deep.x.yz"), webhook("xx.yz")];
        let name = GroupResource::new("admissionregistration.k8s.io", "validatingwebhookconfigurations");
        facts.tell_list(name, "", Known::Present(webhooks));
        let mentioned = responsible("x.yz/hold", &[], &facts);
        let mentioned: Vec<String> = mentioned.iter().map(Controller::message).collect();
        assert_eq!(mentioned, ["validating webhook deep.x.yz (it mentions x.yz)"]);
    }

    #[test]
    fn known_finalizers_are_found_by_name_and_prefix() {
        assert_eq!(
            known_controller("external-attacher/ebs-csi-aws-com"),
            Some("the CSI external-attacher of the driver")
        );
        assert_eq!(known_controller("external-attacher"), None);
        assert_eq!(strands("a/b"), "whatever the controller of a/b would have cleaned up");
    }
}
