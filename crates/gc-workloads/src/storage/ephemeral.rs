//! Claims for the generic ephemeral volumes of pods. Each is named after its pod and volume, and owned by the pod, so that it is
//! collected with it.

use serde_json::{Map, Value, json};

use super::claims_named;
use crate::kinds::{Key, Kind};
use crate::object::{Object, items, text};
use crate::plan::{Note, Plan, Request, View};
use crate::store::Change;

/// Reason of Events about volumes whose claim cannot be created.
const FAILED: &str = "FailedBinding";

/// Returns the name of the claim of a volume.
pub(super) fn claim_name(pod: &Object, volume: &Value) -> String {
    format!("{}-{}", pod.name(), text(&volume["name"]))
}

/// Explains why a claim of this name does not belong to a pod's volume; `None` if it does.
pub(super) fn stranger(pod: &Object, claim: &Object) -> Option<String> {
    let is_own = claim.controller.as_deref() == Some(&*pod.uid);
    let (namespace, pod) = (pod.namespace(), pod.name());
    (!is_own).then(|| {
        format!(
            "PVC {namespace}/{} was not created for pod {namespace}/{pod} (pod is not owner)",
            claim.name()
        )
    })
}

/// Reconciles a pod when it appears, and when a claim that it needs is gone. Its volumes never change.
pub(crate) fn wakes(view: &View<'_>, change: &Change, keys: &mut Vec<Key>) {
    match (&change.before, &change.after) {
        (None, Some(pod))
            if pod.key.kind == Kind::Pod && claims_named(pod).any(|(_, is_ephemeral)| is_ephemeral) =>
        {
            keys.push(pod.key.clone());
        }
        (Some(claim), None) if claim.key.kind == Kind::PersistentVolumeClaim => {
            let name = claim.name();
            let prefixes = name.match_indices('-').map(|(at, _)| &name[..at]);
            let pods = prefixes.filter_map(|prefix| view.store.find(Kind::Pod, claim.namespace(), prefix));
            let using = pods.filter(|pod| claims_named(pod).any(|used| used == (name.to_owned(), true)));
            keys.extend(using.map(|pod| pod.key.clone()));
        }
        _ => {}
    }
}

pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(pod) = view.store.get(key).filter(|pod| !pod.deleting) else { return plan };
    for volume in items(&pod.spec()["volumes"]).filter(|volume| volume["ephemeral"].is_object()) {
        let name = claim_name(pod, volume);
        let about = |problem: &str| {
            Note::warning(pod, FAILED, format!("ephemeral volume {}: {problem}", text(&volume["name"])))
        };
        match view.store.find(Kind::PersistentVolumeClaim, pod.namespace(), &name) {
            Some(claim) => {
                if let Some(problem) = stranger(pod, claim) {
                    // It is reconciled again once that claim is gone.
                    plan.notes.push(about(&problem));
                    return plan;
                }
            }
            None => {
                let claim = new_claim(pod, &name, &volume["ephemeral"]["volumeClaimTemplate"]);
                let request =
                    Request::create(Kind::PersistentVolumeClaim, pod.namespace(), claim, "ephemeral");
                plan.then(request.noting(None, about(&format!("create PVC {name}: {{}}"))));
            }
        }
    }
    plan
}

fn new_claim(pod: &Object, name: &str, template: &Value) -> Value {
    let mut metadata = Map::new();
    for field in ["labels", "annotations"] {
        if template["metadata"][field].is_object() {
            metadata.insert(field.into(), template["metadata"][field].clone());
        }
    }
    metadata.insert("name".into(), name.into());
    metadata.insert("ownerReferences".into(), json!([pod.controller_reference()]));
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"].clone()})
}
