//! Pods of a StatefulSet.

use serde_json::{Value, json};

use super::Work;
use super::claims::Obstacle;
use crate::kinds::Kind;
use crate::object::{int, items};
use crate::plan::{Note, Request};
use crate::pods::from_template;
use crate::revisions::{self, REVISION_HASH};

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

impl Work<'_> {
    /// Creates a pod after its claims, but not while these are about to be deleted.
    pub(super) fn create(&mut self, ordinal: i64) {
        match self.obstacle(ordinal) {
            None => {}
            Some(Obstacle::Stale) => return,
            Some(Obstacle::Deleting(claim)) => {
                let (name, set) = (self.set.name(), self.set);
                let message = format!(
                    "Create Pod {name}-{ordinal} in StatefulSet {name} failed error: pvc {claim} is being deleted"
                );
                return self.plan.notes.push(Note::warning(set, "FailedCreate", message));
            }
        }
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

    /// Returns the pod of an ordinal. Pods below the partition, or the first ones if nothing else is specified, have the current
    /// revision.
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
