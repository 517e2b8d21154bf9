//! Controllers that would adopt or recreate objects during a restore, and how to pause them.

use std::collections::BTreeMap;
use std::io::Write as _;

use gc_explain::commands::kubectl;
use gc_explain::relink::Backup;
use gc_explain::text::some_of;
use gc_explain::{GroupResource, Knowledge};
use gc_inspect::gather::{Gatherer, Reading};
use gc_inspect::output::Answer;
use gc_process::lease::{LeaseFlags, LeaseName};
use serde_json::{Value, json};

/// Lease of kube-controller-manager.
const CONTROLLER_MANAGER: (&str, &str) = ("kube-system", "kube-controller-manager");
/// Workloads that apply manifests from elsewhere, and the tools that they belong to.
const APPLIERS: [(&str, &str); 4] = [
    ("argocd-application-controller", "Argo CD"),
    ("kustomize-controller", "Flux"),
    ("helm-controller", "Flux"),
    ("fleet-agent", "Fleet"),
];
/// Maximum number of kinds that a sentence names.
const SHOWN: usize = 3;

/// A controller to pause.
pub struct Pause {
    /// Display name of the owner.
    pub subject: String,
    /// Reason.
    pub why: String,
    /// Command that pauses it, if there is one.
    pub pause: Option<String>,
    /// Command that resumes it.
    pub resume: Option<String>,
}

/// Controllers to pause before a restore.
pub struct Preparation {
    /// In the order in which they should be paused.
    pub pauses: Vec<Pause>,
    /// Resources that could not be read.
    pub unseen: Vec<String>,
}

/// Looks for running controllers; the backup names the operators of its custom resources.
pub async fn ask(gatherer: &Gatherer, backup: Option<&Backup>) -> Preparation {
    let mut found = Preparation { pauses: Vec::new(), unseen: Vec::new() };
    let mut operators: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (kind, managers) in backup.iter().flat_map(|backup| &backup.operators) {
        for manager in managers {
            operators.entry(manager).or_default().push(kind.clone());
        }
    }
    let mut seen: Vec<String> = Vec::new();
    for name in ["deployments", "statefulsets"] {
        let Some(resource) = gatherer.catalog.named(&GroupResource::new("apps", name)) else { continue };
        let mut workloads = Vec::new();
        let take = |object: &Value| {
            workloads.push((object["metadata"].clone(), object["spec"]["replicas"].as_i64()));
        };
        if let Err(why) = gatherer.each(resource, "", Reading::Whole, take).await {
            found.unseen.push(format!("{} could not be listed: {why}", resource.name));
        }
        for (metadata, replicas) in workloads {
            let text = |field: &str| metadata[field].as_str().unwrap_or_default();
            let (namespace, own) = (text("namespace"), text("name"));
            let why = if let Some((_, tool)) = APPLIERS.iter().find(|(known, _)| *known == own) {
                format!(
                    "{tool} applies its manifests as soon as objects are missing, and the restore leaves out what exists by then"
                )
            } else if let Some(kinds) = operators.get(own) {
                seen.push(own.to_owned());
                format!("it manages {} of the backup, and creates what they own again", some_of(kinds, SHOWN))
            } else {
                continue;
            };
            let replicas = replicas.unwrap_or(1);
            if replicas == 0 {
                continue;
            }
            let scale = |to: i64| {
                kubectl(
                    namespace,
                    &["scale", &format!("{}/{own}", resource.name), &format!("--replicas={to}")],
                )
            };
            found.pauses.push(Pause {
                subject: format!("{} {namespace}/{own}", resource.kind),
                why,
                pause: Some(scale(0)),
                resume: Some(scale(replicas)),
            });
        }
    }
    for (manager, kinds) in operators.iter().filter(|(manager, _)| !seen.iter().any(|own| own == *manager)) {
        found.pauses.push(Pause {
            subject: format!("field manager {manager}"),
            why: format!(
                "it manages {} of the backup, and no Deployment or StatefulSet has its name: if it runs here, scale it to 0",
                some_of(kinds, SHOWN)
            ),
            pause: None,
            resume: None,
        });
    }
    let (namespace, name) = CONTROLLER_MANAGER;
    if holds(gatherer, namespace, name, &mut found.unseen).await {
        found.pauses.push(Pause {
            subject: name.to_owned(),
            why: "it adopts what matches a selector, makes new pods for Jobs, which do not know restored ones, and collects \
                  dependents whose owners have new UIDs; on a control plane of your own, move its manifest away on each node"
                .to_owned(),
            pause: Some("mv /etc/kubernetes/manifests/kube-controller-manager.yaml /etc/kubernetes/".to_owned()),
            resume: Some(
                "mv /etc/kubernetes/kube-controller-manager.yaml /etc/kubernetes/manifests/".to_owned(),
            ),
        });
    }
    let LeaseName { namespace, name } = LeaseFlags::default_name();
    if holds(gatherer, &namespace, &name, &mut found.unseen).await {
        found.pauses.push(Pause {
            subject: "kubegc".to_owned(),
            why: "it collects dependents whose owners have new UIDs".to_owned(),
            pause: Some("kubegc pause --reason restore".to_owned()),
            resume: Some("kubegc resume".to_owned()),
        });
    }
    found
}

/// Reports whether a Lease is held.
async fn holds(gatherer: &Gatherer, namespace: &str, name: &str, unseen: &mut Vec<String>) -> bool {
    let leases = GroupResource::new("coordination.k8s.io", "leases");
    match gatherer.object(&leases, namespace, name).await {
        Knowledge::Present(lease) => {
            lease["spec"]["holderIdentity"].as_str().is_some_and(|held| !held.is_empty())
        }
        Knowledge::Absent => false,
        Knowledge::Unreadable(why) => {
            unseen.push(format!("lease {namespace}/{name} could not be read: {}", why.message));
            false
        }
    }
}

impl Answer for Preparation {
    fn value(&self) -> Value {
        let item = |one: &Pause| json!({"subject": one.subject, "why": one.why, "pause": one.pause, "resume": one.resume});
        json!({"items": self.pauses.iter().map(item).collect::<Vec<_>>()})
    }

    fn text(&self, _is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        if self.pauses.is_empty() {
            writeln!(out, "No controller was found that would adopt, recreate or collect what is restored.")?;
        } else {
            writeln!(out, "Before the restore, pause in this order:")?;
        }
        for (number, one) in (1..).zip(&self.pauses) {
            writeln!(out, "{number}. {}: {}.", one.subject, one.why)?;
            for (word, command) in [("pause", &one.pause), ("resume", &one.resume)] {
                if let Some(command) = command {
                    writeln!(out, "   {word}: {command}")?;
                }
            }
        }
        writeln!(
            out,
            "Then restore; compare with `kubegc relink --from BACKUP`, add --yes, and resume in the opposite order."
        )?;
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        self.pauses.iter().map(|one| one.subject.clone()).collect()
    }
}
