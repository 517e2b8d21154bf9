//! The pods of a StatefulSet and their claims.

use serde_json::{Value, json};

use super::Work;
use crate::kinds::Kind;
use crate::object::{Object, int, items, map, text};
use crate::plan::{Note, Request};
use crate::pods::from_template;
use crate::revisions::{self, REVISION_HASH};

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

impl Work<'_> {
    /// Creates a pod, after its claims.
    pub(super) fn create(&mut self, ordinal: i64) {
        self.create_claims(ordinal);
        let pod = self.pod(ordinal);
        let (name, set) = (pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(), self.set);
        let message = |outcome: &str| format!("Create Pod {name} in StatefulSet {} {outcome}", set.name());
        let request = Request::create(Kind::Pod, set.namespace(), pod, "missing").noting(
            Note::normal(set, "SuccessfulCreate", message("successful")),
            Note::warning(set, "FailedCreate", message("failed error: {}")),
        );
        self.plan.then(request);
    }

    /// Gives a pod's claims the owners that the retention policy asks for.
    pub(super) fn own_claims(&mut self, ordinal: i64, pod: &Object) {
        for claim in items(&self.spec()["volumeClaimTemplates"]).cloned().collect::<Vec<_>>() {
            let name = self.claim_name(&claim, ordinal);
            let Some(known) =
                self.view.store.find(Kind::PersistentVolumeClaim, self.set.namespace(), &name).cloned()
            else {
                continue;
            };
            let before: Vec<Value> = items(&known.value["metadata"]["ownerReferences"]).cloned().collect();
            let others =
                before.iter().filter(|owner| owner["uid"] != *self.set.uid && owner["uid"] != *pod.uid);
            let owners: Vec<Value> = others.cloned().chain(self.claim_owners(ordinal, Some(pod))).collect();
            let same = owners.len() == before.len()
                && owners.iter().all(|owner| before.iter().any(|known| known["uid"] == owner["uid"]));
            if !same && !known.deleting {
                let mut value = known.value.clone();
                value["metadata"]["ownerReferences"] = owners.into();
                self.plan.then(Request::update(&known.key, value, "retention"));
            }
        }
    }

    fn claim_name(&self, claim: &Value, ordinal: i64) -> String {
        format!("{}-{}-{ordinal}", text(&claim["metadata"]["name"]), self.set.name())
    }

    /// Who takes a claim along: the set when it is deleted, the pod when it is scaled away.
    fn claim_owners(&self, ordinal: i64, pod: Option<&Object>) -> Vec<Value> {
        let policy = &self.spec()["persistentVolumeClaimRetentionPolicy"];
        let condemned = ordinal < self.first() || ordinal >= self.first() + self.wanted();
        let reference = |object: &Object| {
            let mut reference = object.controller_reference();
            if object.key.kind == Kind::Pod
                && let Some(fields) = reference.as_object_mut()
            {
                fields.remove("controller");
                fields.remove("blockOwnerDeletion");
            }
            reference
        };
        if policy["whenScaled"] == "Delete" && condemned {
            return pod.map(reference).into_iter().collect();
        }
        if policy["whenDeleted"] == "Delete" { vec![reference(self.set)] } else { Vec::new() }
    }

    /// Creates the claims that a pod lacks.
    pub(super) fn create_claims(&mut self, ordinal: i64) {
        let set = self.set;
        for template in items(&set.spec()["volumeClaimTemplates"]) {
            let name = self.claim_name(template, ordinal);
            if self.view.store.find(Kind::PersistentVolumeClaim, set.namespace(), &name).is_some() {
                continue;
            }
            let mut metadata = map(&template["metadata"]);
            let mut labels = map(&metadata.remove("labels").unwrap_or_default());
            labels.extend(map(&set.spec()["selector"]["matchLabels"]));
            metadata.retain(|field, _| field == "annotations" || field == "finalizers");
            metadata.insert("name".into(), name.clone().into());
            metadata.insert("namespace".into(), set.namespace().into());
            metadata.insert("labels".into(), labels.into());
            let owners = self.claim_owners(ordinal, None);
            if !owners.is_empty() {
                metadata.insert("ownerReferences".into(), owners.into());
            }
            let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
                "spec": template["spec"].clone()});
            let message = |link: &str, outcome: &str| {
                format!(
                    "Create Claim {name} {link}Pod {}-{ordinal} in StatefulSet {} {outcome}",
                    set.name(),
                    set.name()
                )
            };
            let request = Request::create(Kind::PersistentVolumeClaim, set.namespace(), claim, "claim")
                .noting(
                    Note::normal(set, "SuccessfulCreate", message("", "success")),
                    Note::warning(set, "FailedCreate", message("for ", "failed error: {}")),
                );
            self.plan.then(request);
        }
    }

    /// Pods below the partition, or the first ones while nothing says otherwise, are of the current revision.
    fn pod(&self, ordinal: i64) -> Value {
        let rolling = &self.spec()["updateStrategy"]["rollingUpdate"];
        let current = self.rolls()
            && match rolling["partition"].as_i64() {
                Some(partition) => ordinal < self.first() + partition,
                None if rolling.is_object() => false,
                None => ordinal < self.first() + int(&self.set.status()["currentReplicas"], 0),
            };
        let revision = if current { &self.current } else { &self.update };
        let mut pod = from_template(&revisions::template(revision), self.set);
        let name = format!("{}-{ordinal}", self.set.name());
        let metadata = &mut pod["metadata"];
        metadata["name"] = name.clone().into();
        metadata["labels"][POD_NAME] = name.clone().into();
        metadata["labels"][POD_INDEX] = ordinal.to_string().into();
        metadata["labels"][REVISION_HASH] = revision.name().into();
        pod["spec"]["hostname"] = name.into();
        if let Some(service) = self.spec()["serviceName"].as_str().filter(|name| !name.is_empty()) {
            pod["spec"]["subdomain"] = service.into();
        }
        let claims: Vec<&Value> = items(&self.spec()["volumeClaimTemplates"]).collect();
        let volumes: Vec<Value> = claims
            .iter()
            .map(|claim| {
                json!({"name": claim["metadata"]["name"],
                    "persistentVolumeClaim": {"claimName": self.claim_name(claim, ordinal)}})
            })
            .collect();
        if !volumes.is_empty() {
            let others = items(&pod["spec"]["volumes"]);
            let others =
                others.filter(|volume| !volumes.iter().any(|own| own["name"] == volume["name"])).cloned();
            pod["spec"]["volumes"] = volumes.iter().cloned().chain(others.collect::<Vec<_>>()).collect();
        }
        pod
    }
}
