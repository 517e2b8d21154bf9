//! The new ReplicaSet, which is found by its template or created, and its revision.

use serde_json::{Map, Value, json};

use super::arithmetic::max_surge;
use super::{
    DESIRED_REPLICAS, MAX_REPLICAS, REVISION, Rollout, Set, TEMPLATE_HASH, annotate_replicas, progress,
};
use crate::hash::pod_template_hash;
use crate::kinds::Kind;
use crate::object::{int, map, text};
use crate::plan::{Note, Request};

const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Maximum number of characters for the list of a set's former revisions.
const LONGEST_HISTORY: usize = 2000;
/// Annotations of a Deployment that its sets do not inherit.
const NOT_INHERITED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];
/// Maximum length of a ReplicaSet's name.
const LONGEST_NAME: usize = 253;

/// Reports whether two pod templates are equal, except for the hash in their labels.
pub(super) fn same_template(a: &Value, b: &Value) -> bool {
    let metadata = |template: &Value| -> Map<String, Value> {
        let mut all = map(&template["metadata"]);
        if let Some(labels) = all.get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove(TEMPLATE_HASH);
        }
        all.retain(|_, part| !part.is_null() && part.as_object().is_none_or(|map| !map.is_empty()));
        all
    };
    a["spec"] == b["spec"] && metadata(a) == metadata(b)
}

fn hash_of(deployment: &Value) -> String {
    pod_template_hash(&deployment["spec"]["template"], deployment["status"]["collisionCount"].as_i64())
}

/// Returns the name of the set for the Deployment's template.
pub(super) fn set_name(deployment: &Value) -> String {
    let (name, hash) = (text(&deployment["metadata"]["name"]), hash_of(deployment));
    let longest = LONGEST_NAME - hash.len() - 1;
    let name = name.get(..longest).unwrap_or(name);
    format!("{name}-{hash}")
}

fn with_hash(map: &Value, hash: &str) -> Value {
    let mut labels = crate::object::map(map);
    labels.insert(TEMPLATE_HASH.into(), hash.into());
    labels.into()
}

impl Rollout<'_> {
    fn next_revision(&self) -> i64 {
        let greatest = self.old.iter().filter_map(|set| set.number(REVISION)).max().unwrap_or_default();
        greatest.max(0) + 1
    }

    /// Finds the new set, if it exists, and synchronizes annotations between it and the Deployment.
    pub(super) fn find_new_set(&mut self) {
        let Some(mut set) = self.new.take() else { return };
        let revision = self.next_revision();
        let mut changed = self.annotate_set(&mut set, revision, true);
        let minimum = &self.value["spec"]["minReadySeconds"];
        if int(&set.value["spec"]["minReadySeconds"], 0) != int(minimum, 0) {
            set.value["spec"]["minReadySeconds"] = int(minimum, 0).into();
            changed = true;
        }
        if changed && let Some(object) = &set.object {
            self.plan.then(Request::update(&object.key, set.value.clone(), "revision"));
        }
        let shown = set.annotation(REVISION).unwrap_or_default().to_owned();
        let mut changed = self.show_revision(&shown);
        if progress::has_deadline(&self.value)
            && crate::object::condition(&self.value["status"], "Progressing").is_none()
        {
            let message = format!("Found new replica set \"{}\"", set.name());
            let found = self.condition("Progressing", "True", "FoundNewReplicaSet", &message);
            progress::set_condition(&mut self.value["status"], found);
            changed = true;
        }
        if changed {
            self.send_status();
        }
        self.new = Some(set);
    }

    /// Does the same as [`Self::find_new_set`], and creates the set if it does not exist.
    pub(super) fn find_or_create_new_set(&mut self) {
        if self.new.is_some() {
            return self.find_new_set();
        }
        let revision = self.next_revision();
        let mut set = self.new_set();
        let others = self.old.iter().map(Set::wanted).sum();
        let size = self.size_of_new(0, others);
        set.value["spec"]["replicas"] = size.into();
        self.annotate_set(&mut set, revision, false);
        let message = format!("Scaled up replica set {} from 0 to {size}", set.name());
        let note = (size > 0).then(|| Note::normal(self.deployment, "ScalingReplicaSet", message));
        let request =
            Request::create(Kind::ReplicaSet, self.deployment.namespace(), set.value.clone(), "new-template");
        self.plan.then(request.noting(note, None));
        let mut changed = self.show_revision(&revision.to_string());
        // Upstream's second write of the status would be refused, and its retry finds the set.
        if progress::has_deadline(&self.value) && !self.shows_pause {
            let message = format!("Created new replica set \"{}\"", set.name());
            let created = self.condition("Progressing", "True", "NewReplicaSetCreated", &message);
            progress::set_condition(&mut self.value["status"], created);
            changed = true;
        }
        if changed {
            self.send_status();
        }
        self.new = Some(set);
    }

    fn new_set(&self) -> Set {
        let spec = &self.value["spec"];
        let hash = hash_of(&self.value);
        let labels = with_hash(&spec["template"]["metadata"]["labels"], &hash);
        let mut template = spec["template"].clone();
        template["metadata"]["labels"] = labels.clone();
        let mut selector = spec["selector"].clone();
        selector["matchLabels"] = with_hash(&selector["matchLabels"], &hash);
        let mut value = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": set_name(&self.value), "namespace": self.deployment.namespace(), "labels": labels,
                "ownerReferences": [self.deployment.controller_reference()],
            },
            "spec": {"replicas": 0, "selector": selector, "template": template},
        });
        if let Some(minimum) = spec["minReadySeconds"].as_i64().filter(|minimum| *minimum != 0) {
            value["spec"]["minReadySeconds"] = minimum.into();
        }
        Set { object: None, value, created: i64::MAX }
    }

    /// Gives a set the Deployment's annotations and its revision, and returns whether that changed anything.
    fn annotate_set(&self, set: &mut Set, revision: i64, exists: bool) -> bool {
        let metadata = &mut set.value["metadata"];
        let mut annotations = map(&metadata["annotations"]);
        let before = annotations.clone();
        for (name, value) in map(&self.value["metadata"]["annotations"]) {
            if !NOT_INHERITED.contains(&&*name) {
                annotations.insert(name, value);
            }
        }
        let old = annotations.get(REVISION).map(|old| text(old).to_owned());
        let old_number = match old.as_deref() {
            None | Some("") => Some(0),
            Some(old) => old.parse::<i64>().ok(),
        };
        if old_number.is_some_and(|old_number| old_number < revision) {
            annotations.insert(REVISION.into(), revision.to_string().into());
            if let Some(old) = old {
                let history = text(annotations.get(REVISION_HISTORY).unwrap_or(&Value::Null));
                if let Some(history) = longer_history(history, &old) {
                    annotations.insert(REVISION_HISTORY.into(), history.into());
                }
            }
        }
        let changed = annotations != before;
        metadata["annotations"] = annotations.into();
        if !exists {
            let wanted = self.wanted();
            annotate_replicas(&mut set.value, wanted, wanted + max_surge(&self.value));
        }
        changed
    }

    /// Writes the revision to the Deployment, and returns whether that changed anything.
    fn show_revision(&mut self, revision: &str) -> bool {
        if self.value["metadata"]["annotations"][REVISION] == revision {
            return false;
        }
        if !self.value["metadata"]["annotations"].is_object() {
            self.value["metadata"]["annotations"] = json!({});
        }
        self.value["metadata"]["annotations"][REVISION] = revision.into();
        true
    }
}

/// Returns the list of a set's former revisions with one more, dropping the first ones if it gets too long.
fn longer_history(history: &str, old: &str) -> Option<String> {
    if history.is_empty() {
        return Some(old.to_owned());
    }
    let mut kept = history;
    while kept.len() + old.len() + 1 > LONGEST_HISTORY {
        kept = kept.split_once(',').map(|(_, rest)| rest)?;
    }
    Some(format!("{kept},{old}"))
}
