//! Controllers of finalizers, and the consequences when something else removes one.

pub mod known;

use gc_types::Timestamp;

use crate::catalog::GroupResource;
use crate::facts::Facts;
use crate::object::Object;
use crate::text;
use known::{Remover, find};

/// Maximum number of controllers named for one finalizer.
pub const CONTROLLERS_NAMED: usize = 3;

/// Describes what is left behind when a finalizer is removed by hand.
#[must_use]
pub fn strands(finalizer: &str) -> String {
    match find(finalizer) {
        Some(known) => known.strands.to_owned(),
        None => format!("whatever the controller of {finalizer} would have cleaned up"),
    }
}

/// Returns the controller of a well-known finalizer.
#[must_use]
pub fn known_controller(finalizer: &str) -> Option<&'static str> {
    find(finalizer).map(|known| known.by)
}

/// A controller that seems responsible for a finalizer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Controller {
    /// True if it appears to be working.
    pub works: bool,
    /// `deployment`, `statefulset`, `daemonset`, `lease` or a webhook configuration.
    pub kind: &'static str,
    /// Namespace of the controller; empty at cluster scope.
    pub namespace: String,
    /// Name of the controller.
    pub name: String,
    /// State of the controller, in words.
    pub state: String,
}

impl Controller {
    /// Describes the controller and its state.
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

/// Returns the controllers that seem responsible for a finalizer: workloads and leases that mention its domain or a word of it,
/// webhooks that mention its domain, and workloads named like the field manager that set it. Those that do not work come first.
pub fn responsible(finalizer: &str, managers: &[String], facts: &Facts) -> Vec<Controller> {
    let marks = Marks::of(finalizer);
    let known: &[&str] = match find(finalizer).map(|known| known.remover) {
        Some(Remover::Workloads(names)) => names,
        Some(Remover::ApiServer | Remover::ControllerManager) | None => &[],
    };
    let mut found = Vec::new();
    for (kind, resource, wanted, ready) in WORKLOADS {
        for workload in facts.all(&GroupResource::new("apps", resource), "") {
            // A workload that carries the finalizer is waiting for the controller; it is not the controller.
            if carries(workload, finalizer) {
                continue;
            }
            if is_called(workload, managers)
                || is_known(workload, known)
                || mentions(workload, &|text| marks.are_in(text))
            {
                let wanted = workload.number(wanted).unwrap_or(i64::from(kind != "daemonset"));
                let ready = workload.number(ready).unwrap_or(0);
                found.push(Controller {
                    works: ready > 0,
                    kind,
                    namespace: workload.namespace().to_owned(),
                    name: workload.name().to_owned(),
                    state: match wanted {
                        0 if kind != "daemonset" => "scaled to 0".to_owned(),
                        _ => format!("{ready} of {wanted} ready"),
                    },
                });
            }
        }
    }
    for lease in facts.all(&GroupResource::new("coordination.k8s.io", "leases"), "") {
        if (marks.are_all_in(lease.name()) || is_lease_of(lease.name(), known)) && !carries(lease, finalizer)
        {
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
                // Software behind a webhook may or may not remove finalizers.
                let state = format!("it mentions {}", marks.domain);
                found.push(Controller { works: false, kind, namespace, name, state });
            }
        }
    }
    // A mention by a webhook is the weakest evidence.
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

/// Traces that identify software.
struct Marks<'a> {
    /// The domain of the finalizer.
    domain: &'a str,
    /// Labels of the domain, without common words.
    words: Vec<&'a str>,
}

impl<'a> Marks<'a> {
    fn of(finalizer: &'a str) -> Self {
        let domain = finalizer.split('/').next().unwrap_or(finalizer);
        // The label before the top level is the owner of a domain; the ones before that are its product.
        let common =
            ["finalizer", "finalizers", "kubernetes", "example", "sigs", "k8s", "x-k8s", "cluster", "github"];
        let labels: Vec<&str> = domain.split('.').collect();
        let names = labels.iter().take(labels.len().saturating_sub(1)).copied();
        let words = names.filter(|label| label.len() >= 4 && !common.contains(label)).collect();
        Self { domain, words }
    }

    /// Reports whether a text contains the domain or a subdomain of it.
    fn has_domain(&self, text: &str) -> bool {
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-');
        let mut names = text.split(|letter: char| !is_of_name(letter));
        names.any(|name| {
            name == self.domain || name.strip_suffix(self.domain).is_some_and(|left| left.ends_with('.'))
        })
    }

    /// Reports whether a text contains the domain or all of its words; a name that shares a single word with it proves nothing.
    fn are_all_in(&self, text: &str) -> bool {
        let own: Vec<&str> = text.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
        self.has_domain(text) || (!self.words.is_empty() && self.words.iter().all(|word| own.contains(word)))
    }

    /// Reports whether a text contains the domain, or one of its words as a whole word.
    fn are_in(&self, text: &str) -> bool {
        let mut words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
        self.has_domain(text) || words.any(|word| self.words.contains(&word))
    }
}

/// Reports whether a Lease is named like the leader election of this software.
fn is_lease_of(name: &str, software: &[&str]) -> bool {
    const ENDS: [&str; 5] = ["", "-controller", "-leader", "-leader-election", "-lock"];
    software.iter().any(|known| name.strip_prefix(known).is_some_and(|rest| ENDS.contains(&rest)))
}

/// Reports whether an object, or the pod template in it, carries a finalizer.
fn carries(object: &Object, finalizer: &str) -> bool {
    ["/metadata/finalizers", "/spec/template/metadata/finalizers"]
        .iter()
        .any(|list| object.texts(list).any(|name| name == finalizer))
}

/// Returns the name of a workload, and those of the images of its containers without registry and tag.
fn names_of(workload: &Object) -> impl Iterator<Item = &str> {
    let images = workload.items("/spec/template/spec/containers").filter_map(|container| {
        let image = container["image"].as_str()?;
        image.rsplit('/').next()?.split([':', '@']).next()
    });
    images.chain([workload.name()])
}

/// Reports whether a workload, or the image of one of its containers, is named like one of these field managers.
fn is_called(workload: &Object, managers: &[String]) -> bool {
    let names: Vec<&str> = names_of(workload).collect();
    managers.iter().any(|manager| names.contains(&manager.as_str()))
}

/// Reports whether a workload, or the image of one of its containers, is named like this software. A release may put its own name
/// in front. A word after the name makes it another part of the software, unless the catalogue's entry ends with a hyphen.
fn is_known(workload: &Object, software: &[&str]) -> bool {
    names_of(workload).any(|name| {
        software.iter().any(|known| match known.strip_suffix('-') {
            Some(_) => name.starts_with(known),
            None => name.strip_suffix(known).is_some_and(|rest| rest.is_empty() || rest.ends_with('-')),
        })
    })
}

/// Reports whether an object contains such a text, outside of what others have written about it.
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
    use crate::facts::Knowledge;
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
        facts.tell_list(GroupResource::new("apps", "deployments"), "", Knowledge::Present(deployments));
        facts.tell_list(
            GroupResource::new("coordination.k8s.io", "leases"),
            "",
            Knowledge::Present(vec![lease]),
        );
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
        // Part of a word is no evidence.
        assert_eq!(
            found("widget.acm.dev/hold", "kubectl"),
            ["deployment ops/widget-operator (0 of 1 ready)"]
        );
        assert_eq!(found("operat.acm.dev/hold", "kubectl"), [] as [String; 0]);
        // One matching word in a Lease is a coincidence, and an object that carries the finalizer is itself waiting for the
        // controller.
        assert_eq!(found("gears.acme.dev/hold", "kubectl"), ["deployment ops/manager (1 of 1 ready)"]);
        let mut guarded = workload("ops", "gears", "registry.example/gears:v1", 1);
        guarded["metadata"]["finalizers"] = json!(["gears.acme.org/hold"]);
        let mut facts = Facts::at(now);
        facts.tell_list(GroupResource::new("apps", "deployments"), "", Knowledge::Present(vec![guarded]));
        assert_eq!(asked(&facts, "gears.acme.org/hold", "kubectl"), [] as [String; 0]);
        assert_eq!(asked(&facts, "gears.acme.org/other", "kubectl"), ["deployment ops/gears (1 of 1 ready)"]);
        let webhook =
            |name: &str| json!({"metadata": {"name": name}, "webhooks": [{"name": format!("check.{name}")}]});
        let webhooks = vec![webhook("x.yz.io"), webhook("deep.x.yz"), webhook("xx.yz")];
        let name = GroupResource::new("admissionregistration.k8s.io", "validatingwebhookconfigurations");
        facts.tell_list(name, "", Knowledge::Present(webhooks));
        let mentioned = responsible("x.yz/hold", &[], &facts);
        let mentioned: Vec<String> = mentioned.iter().map(Controller::message).collect();
        assert_eq!(mentioned, ["validating webhook deep.x.yz (it mentions x.yz)"]);
    }

    #[test]
    fn the_controller_of_a_known_finalizer_is_found_by_its_usual_name() {
        let mut facts = Facts::at(Timestamp(0));
        let workload = |name: &str, replicas: i64| json!({"metadata": {"namespace": "ops", "name": name}, "spec": {"replicas": replicas}});
        let deployments =
            vec![workload("eks-aws-load-balancer-controller", 0), workload("cert-manager-webhook", 1)];
        facts.tell_list(GroupResource::new("apps", "deployments"), "", Knowledge::Present(deployments));
        let found = responsible("service.k8s.aws/resources", &[], &facts);
        let found: Vec<String> = found.iter().map(Controller::message).collect();
        assert_eq!(found, ["deployment ops/eks-aws-load-balancer-controller (scaled to 0)"]);
    }

    #[test]
    fn an_unknown_finalizer_strands_what_its_controller_cleans_up() {
        assert_eq!(strands("a/b"), "whatever the controller of a/b would have cleaned up");
    }
}
