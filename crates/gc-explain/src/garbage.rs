//! A report of unused objects that could be deleted, with the evidence. It deletes nothing.
//!
//! Targets are added first, then definitions, then everything that may refer to them. Each object is dropped as soon as it has been
//! read, so memory grows with the targets and not with the cluster.

mod controllers;
mod orphans;
mod others;
mod quarantine;
mod references;

use std::collections::{BTreeMap, BTreeSet};

use gc_collectors::policies::unused::{UNUSED_SEEN, UNUSED_SINCE};
use gc_ownership::{Conclusion, ReferenceState};
use gc_types::{Timestamp, parse_quantity};
use serde_json::{Value, json};

pub use orphans::{StoredVolume, UsedStorage};
use others::Others;
pub use quarantine::{Mark, MarkChange, UNUSED_BECAUSE};
pub use references::{Reference, Usable, Uses};

use crate::catalog::Resource;
use crate::map::place_of_view;
use crate::stuck::Place;
use crate::survey::Survey;
use crate::text;
use crate::upcoming::Outlook;

/// Maximum number of missing references that are reported; the report counts the rest.
pub const MAX_MISSING: usize = 1_000;
/// Default of `spec.revisionHistoryLimit`.
const HISTORY_LIMIT: i64 = 10;
/// Annotation with a Deployment's revision number, on its ReplicaSets.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// Finding about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// Nothing uses the ConfigMap.
    UnusedConfigMap,
    /// Nothing uses the Secret.
    UnusedSecret,
    /// Nothing uses the claim.
    UnusedClaim,
    /// Nothing uses the ServiceAccount.
    UnusedServiceAccount,
    /// No pod has the labels that the Service selects.
    UnusedService,
    /// None of the Services that the Ingress leads to exists.
    UnusedIngress,
    /// The target of the HorizontalPodAutoscaler does not exist.
    UnusedAutoscaler,
    /// No pod has the labels that the PodDisruptionBudget selects.
    UnusedDisruptionBudget,
    /// No pod has the labels that the NetworkPolicy selects.
    UnusedNetworkPolicy,
    /// No binding refers to the Role.
    UnusedRole,
    /// No binding refers to the ClusterRole.
    UnusedClusterRole,
    /// The role of the binding does not exist, or none of its subjects does.
    UnusedBinding,
    /// No claim is bound to the PersistentVolume.
    UnusedVolume,
    /// Nothing uses the StorageClass.
    UnusedStorageClass,
    /// Nothing uses the PriorityClass.
    UnusedPriorityClass,
    /// The definition has no objects.
    UnusedDefinition,
    /// The node or the volume of the VolumeAttachment does not exist.
    UnusedVolumeAttachment,
    /// The namespace contains nothing but the objects Kubernetes creates in it.
    UnusedNamespace,
    /// The class of the Gateway does not exist, or no route is attached to it.
    UnusedGateway,
    /// The Deployment, StatefulSet, DaemonSet or Job has no pods by its own specification.
    IdleWorkload,
    /// The Pod has finished, and nothing will delete it.
    FinishedPod,
    /// The Job has finished, and nothing will delete it.
    FinishedJob,
    /// The ReplicaSet has no pods and is beyond the history of its Deployment, or has no Deployment.
    OldReplicaSet,
    /// An owner reference cannot be resolved.
    InvalidOwner,
    /// The object needs another that does not exist.
    MissingTarget,
    /// A CSI driver has a volume that no PersistentVolume names.
    OrphanedVolume,
    /// A collector is about to delete the object.
    Due,
}

impl Code {
    /// Returns the code.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnusedConfigMap => "UnusedConfigMap",
            Self::UnusedSecret => "UnusedSecret",
            Self::UnusedClaim => "UnusedClaim",
            Self::UnusedServiceAccount => "UnusedServiceAccount",
            Self::UnusedService => "UnusedService",
            Self::UnusedIngress => "UnusedIngress",
            Self::UnusedAutoscaler => "UnusedAutoscaler",
            Self::UnusedDisruptionBudget => "UnusedDisruptionBudget",
            Self::UnusedNetworkPolicy => "UnusedNetworkPolicy",
            Self::UnusedRole => "UnusedRole",
            Self::UnusedClusterRole => "UnusedClusterRole",
            Self::UnusedBinding => "UnusedBinding",
            Self::UnusedVolume => "UnusedVolume",
            Self::UnusedStorageClass => "UnusedStorageClass",
            Self::UnusedPriorityClass => "UnusedPriorityClass",
            Self::UnusedDefinition => "UnusedDefinition",
            Self::UnusedVolumeAttachment => "UnusedVolumeAttachment",
            Self::UnusedNamespace => "UnusedNamespace",
            Self::UnusedGateway => "UnusedGateway",
            Self::IdleWorkload => "IdleWorkload",
            Self::FinishedPod => "FinishedPod",
            Self::FinishedJob => "FinishedJob",
            Self::OldReplicaSet => "OldReplicaSet",
            Self::InvalidOwner => "InvalidOwner",
            Self::MissingTarget => "MissingTarget",
            Self::OrphanedVolume => "OrphanedVolume",
            Self::Due => "Due",
        }
    }

    /// Reports whether it is about an unused object in the cluster, and not about an error, a deletion that is due or storage
    /// outside.
    #[must_use]
    pub const fn is_disuse(self) -> bool {
        !matches!(self, Self::InvalidOwner | Self::MissingTarget | Self::OrphanedVolume | Self::Due)
    }

    const fn of(usable: Usable) -> Self {
        match usable {
            Usable::ConfigMap => Self::UnusedConfigMap,
            Usable::Secret => Self::UnusedSecret,
            Usable::Claim => Self::UnusedClaim,
            Usable::ServiceAccount => Self::UnusedServiceAccount,
        }
    }
}

/// Certainty of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// Nothing was seen that contradicts it.
    Certain,
    /// The object may be used after all.
    Unknown,
}

impl Certainty {
    /// Returns the code.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Certain => "Certain",
            Self::Unknown => "Unknown",
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The finding.
    pub code: Code,
    /// The object.
    pub place: Place,
    /// Certainty of the finding.
    pub certainty: Certainty,
    /// Reason, in words.
    pub why: String,
    /// Bytes that its deletion would free, if that is known.
    pub bytes: Option<u64>,
    /// Creation time, if the object is unused.
    pub created: Option<Timestamp>,
}

impl Finding {
    fn value(&self) -> Value {
        json!({
            "code": self.code.name(), "object": self.place.value(), "certainty": self.certainty.name(),
            "why": self.why, "bytes": self.bytes,
            "created": self.created.map(|created| created.to_string()),
        })
    }
}

/// The report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Findings, sorted by code, namespace and name.
    pub findings: Vec<Finding>,
    /// Number of missing references beyond those that are listed.
    pub more_missing: usize,
    /// Resources that could not be read.
    pub unseen: Vec<String>,
    /// Objects that an earlier report marked as unused, with the time of the mark.
    pub marked: BTreeMap<Place, String>,
    /// Last time each of these marks was confirmed.
    pub seen: BTreeMap<Place, String>,
}

impl Report {
    /// Converts to JSON.
    #[must_use]
    pub fn value(&self) -> Value {
        let items: Vec<Value> = self.findings.iter().map(Finding::value).collect();
        let totals: BTreeMap<&str, Value> = self
            .totals()
            .into_iter()
            .map(|(code, (count, bytes))| (code.name(), json!({"objects": count, "bytes": bytes})))
            .collect();
        json!({"items": items, "totals": totals, "moreMissing": self.more_missing, "unseen": self.unseen})
    }

    /// Keeps only unused objects that were created at or before a time: newer ones may not be in use yet.
    pub fn keep_older_than(&mut self, time: Timestamp) {
        self.findings.retain(|finding| {
            finding.code.is_disuse() && finding.created.is_some_and(|created| created <= time)
        });
        self.more_missing = 0;
    }

    /// Returns the number of objects and the known bytes, by code.
    #[must_use]
    pub fn totals(&self) -> BTreeMap<Code, (usize, u64)> {
        let mut totals = BTreeMap::new();
        for finding in &self.findings {
            let (count, bytes): &mut (usize, u64) = totals.entry(finding.code).or_default();
            *count += 1;
            *bytes = bytes.saturating_add(finding.bytes.unwrap_or_default());
        }
        totals
    }
}

/// An object that others may use.
#[derive(Clone, Debug)]
struct Target {
    place: Place,
    bytes: Option<u64>,
    created: Option<Timestamp>,
    /// True if it is not reported although nothing refers to it.
    is_exempt: bool,
    is_used: bool,
    /// An object that contains a text equal to this property of the target.
    suspect: Option<(String, &'static str)>,
}

/// A ReplicaSet without pods.
#[derive(Clone, Debug)]
struct OldReplicaSet {
    place: Place,
    created: Option<Timestamp>,
    deployment: Option<String>,
    revision: i64,
}

type Key = (Usable, String, String);

/// Gathers the objects in use.
#[derive(Debug, Default)]
pub struct Garbage {
    targets: BTreeMap<Key, Target>,
    /// Targets by name alone: a custom resource may name objects in other namespaces.
    by_name: BTreeMap<String, Vec<Key>>,
    /// Targets by the keys of labels that a program may be configured to look for.
    by_label: BTreeMap<String, Vec<Key>>,
    others: Others,
    /// Schemas of custom resources, by group, version and kind.
    schemas: BTreeMap<(String, String, String), Value>,
    custom: BTreeSet<(String, String)>,
    claim_prefixes: BTreeSet<(String, String)>,
    old_replica_sets: Vec<OldReplicaSet>,
    history_limits: BTreeMap<String, i64>,
    marked: BTreeMap<Place, String>,
    seen: BTreeMap<Place, String>,
    missing: BTreeSet<(Place, Usable, String)>,
    more_missing: usize,
    unseen: Vec<String>,
    /// Kinds that could not be listed completely: an object that was not seen may exist.
    unlisted: BTreeSet<Usable>,
    includes_system: bool,
}

impl Garbage {
    /// Creates an empty report. Objects in the namespaces of Kubernetes itself are included only if requested.
    #[must_use]
    pub fn new(includes_system: bool) -> Self {
        Self { includes_system, ..Self::default() }
    }

    /// Adds an object that others may use; for Secrets, metadata is enough.
    pub fn target(&mut self, usable: Usable, resource: &Resource, object: &Value) {
        let place = place(resource, object);
        let metadata = &object["metadata"];
        self.others.inhabits(&place);
        let is_exempt = self.is_exempt(&place.namespace, metadata)
            || controllers::selecting(usable, &place.name, metadata).is_some();
        self.note_mark(&place, metadata);
        let key = (usable, place.namespace.clone(), place.name.clone());
        self.by_name.entry(place.name.clone()).or_default().push(key.clone());
        for label in metadata["labels"].as_object().into_iter().flatten().map(|(label, _)| label) {
            if is_telling(label) {
                self.by_label.entry(label.clone()).or_default().push(key.clone());
            }
        }
        let (bytes, created) = (bytes(usable, object), others::created(object));
        // A token is as much in use as its ServiceAccount, for which somebody created it.
        if usable == Usable::Secret
            && let Some(account) = metadata["annotations"]["kubernetes.io/service-account.name"].as_str()
        {
            self.token(&place.namespace, account);
        }
        self.targets.insert(key, Target { place, bytes, created, is_exempt, is_used: false, suspect: None });
    }

    /// Reports whether an object is never reported, whether it is used or not.
    fn is_exempt(&self, namespace: &str, metadata: &Value) -> bool {
        let is_owned = metadata["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
        let is_system = controllers::is_system_namespace(namespace) && !self.includes_system;
        let is_kept = metadata["annotations"]["kubegc.io/keep"].as_str().is_some_and(|text| text != "false");
        let labels = &metadata["labels"];
        let is_installed = ["olm.owner", "olm.managed", "addonmanager.kubernetes.io/mode"]
            .iter()
            .any(|label| labels[*label].is_string());
        is_owned || is_system || is_kept || is_installed || !metadata["deletionTimestamp"].is_null()
    }

    fn note_mark(&mut self, place: &Place, metadata: &Value) {
        if let Some(since) = metadata["annotations"][UNUSED_SINCE].as_str() {
            self.marked.insert(place.clone(), since.to_owned());
        }
        if let Some(seen) = metadata["annotations"][UNUSED_SEEN].as_str() {
            self.seen.insert(place.clone(), seen.to_owned());
        }
    }

    /// Reports whether objects of a resource must be read before custom resources, which may name them.
    #[must_use]
    pub fn reads_first(resource: &Resource) -> bool {
        is_builtin(&resource.name.group)
    }

    fn token(&mut self, namespace: &str, account: &str) {
        if let Some(target) =
            self.targets.get_mut(&(Usable::ServiceAccount, namespace.to_owned(), account.to_owned()))
        {
            target.is_used = true;
        }
    }

    /// Adds a CustomResourceDefinition.
    pub fn definition(&mut self, definition: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, kind) = (text(&definition["spec"]["group"]), text(&definition["spec"]["names"]["kind"]));
        // An installation of kubegc defines its policies, and may need none.
        let is_own = group == gc_collectors::policies::GROUP;
        let is_exempt = is_own || self.includes_system || self.is_exempt("", &definition["metadata"]);
        self.others.definition(definition, is_exempt);
        self.custom.insert((group.clone(), kind.clone()));
        for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
            let key = (group.clone(), text(&version["name"]), kind.clone());
            self.schemas.insert(key, version["schema"]["openAPIV3Schema"].clone());
        }
    }

    /// Adds an object that may use others. Objects of aggregated APIs are treated like custom resources without a schema.
    pub fn refer(&mut self, resource: &Resource, object: &Value) {
        let place = place(resource, object);
        let is_builtin = is_builtin(&resource.name.group);
        // When only one namespace is read, uses of cluster-scoped objects by others are not known.
        let is_foreign = place.namespace.is_empty() && self.includes_system;
        let is_examined = is_builtin || &*resource.name.group == others::GATEWAYS;
        let is_exempt = !is_examined || is_foreign || self.is_exempt(&place.namespace, &object["metadata"]);
        self.others.observe(resource, &place, object, is_exempt);
        if !is_foreign {
            self.note_mark(&place, &object["metadata"]);
        }
        let uses = if is_builtin {
            references::of_builtin(&resource.kind, object)
        } else {
            let key =
                (resource.name.group.to_string(), resource.version.to_string(), resource.kind.to_string());
            references::of_custom(object, self.schemas.get(&key))
        };
        self.claim_prefixes.extend(uses.claim_prefixes);
        let is_living = object["metadata"]["deletionTimestamp"].is_null();
        for reference in uses.references {
            self.used(&place, &reference, is_living);
        }
        for text in uses.texts {
            self.suspect(&place, "", &text);
            self.others.suspect(&place, &text);
        }
        for name in uses.names {
            self.others.suspect(&place, &name);
        }
        for hint in uses.hints {
            self.suspect(&place, &place.namespace, &hint);
        }
        match (&*resource.name.group, &*resource.kind) {
            ("apps", "ReplicaSet") => self.replica_set(&place, object),
            ("apps", "Deployment") => {
                let limit = object["spec"]["revisionHistoryLimit"].as_i64().unwrap_or(HISTORY_LIMIT);
                self.history_limits.insert(place.uid, limit);
            }
            _ => {}
        }
    }

    /// Adds an Endpoints or EndpointSlice object, of which metadata is enough.
    pub fn endpoints(&mut self, object: &Value) {
        self.others.endpoints(object);
    }

    /// Records something that could not be read, and may therefore use any object.
    pub fn unseen(&mut self, what: String) {
        self.unseen.push(what);
    }

    /// Records that not all objects of this kind could be listed.
    pub fn not_listed(&mut self, usable: Usable) {
        self.unlisted.insert(usable);
    }

    fn used(&mut self, user: &Place, reference: &Reference, is_living: bool) {
        let Reference { kinds, namespace, name, is_optional } = reference;
        let mut is_found = false;
        for kind in kinds {
            if namespace.is_empty() {
                // A cluster-scoped object may name an object without its namespace.
                for key in self.by_name.get(name).into_iter().flatten().filter(|(usable, ..)| usable == kind)
                {
                    if let Some(target) = self.targets.get_mut(key) {
                        (target.is_used, is_found) = (true, true);
                    }
                }
            } else if let Some(target) = self.targets.get_mut(&(*kind, namespace.clone(), name.clone())) {
                (target.is_used, is_found) = (true, true);
            }
        }
        let &[kind] = kinds.as_slice() else { return };
        if is_found
            || *is_optional
            || !is_living
            || self.unlisted.contains(&kind)
            || namespace != &user.namespace
            || namespace.is_empty()
        {
            return;
        }
        if self.missing.len() < MAX_MISSING {
            self.missing.insert((user.clone(), kind, name.clone()));
        } else {
            self.more_missing += 1;
        }
    }

    /// Records a text that may be the name of an object in a namespace (in any, if empty), `namespace/name`, or the key of a label.
    fn suspect(&mut self, user: &Place, own_namespace: &str, text: &str) {
        let own = Some(own_namespace).filter(|namespace| !namespace.is_empty());
        let (namespace, name) = text.split_once('/').map_or((own, text), |(left, right)| (Some(left), right));
        let named = self.by_name.get(name).into_iter().flatten();
        let named = named.filter(|key| namespace.is_none_or(|namespace| namespace == key.1));
        let labelled = self.by_label.get(text).into_iter().flatten();
        let found = named.map(|key| (key, "its name")).chain(labelled.map(|key| (key, "one of its labels")));
        for (key, property) in found {
            // An object that contains its own name does not thereby use itself.
            if let Some(target) = self.targets.get_mut(key).filter(|target| target.place.uid != user.uid) {
                target.suspect.get_or_insert_with(|| (user.title(), property));
            }
        }
    }

    fn replica_set(&mut self, place: &Place, object: &Value) {
        let count = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
        if count("/spec/replicas") > 0 || count("/status/replicas") > 0 {
            return;
        }
        let metadata = &object["metadata"];
        let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let controller = owners.find(|owner| owner["controller"] == true);
        if controller.is_some_and(|owner| owner["kind"] != "Deployment")
            || !metadata["deletionTimestamp"].is_null()
        {
            return;
        }
        let deployment = controller.and_then(|owner| owner["uid"].as_str()).map(str::to_owned);
        let revision = metadata["annotations"][REVISION].as_str().and_then(|text| text.parse().ok());
        let old = OldReplicaSet {
            place: place.clone(),
            created: others::created(object),
            deployment,
            revision: revision.unwrap_or_default(),
        };
        self.old_replica_sets.push(old);
    }

    /// Returns the report. The survey provides the owners, the outlook the deletions that are due.
    #[must_use]
    pub fn report(mut self, survey: &Survey, outlook: &Outlook) -> Report {
        self.others.survey(survey);
        let mut findings = self.unused();
        findings.extend(self.old());
        let account = |namespace: &str, name: &str| {
            let key = (Usable::ServiceAccount, namespace.to_owned(), name.to_owned());
            // When one namespace is read, objects of the others are not known.
            self.includes_system || self.unlisted.contains(&key.0) || self.targets.contains_key(&key)
        };
        findings.extend(self.others.findings(self.unseen.first(), &account));
        findings.extend(invalid_owners(survey));
        findings.extend(self.missing.iter().map(|(user, kind, name)| Finding {
            code: Code::MissingTarget,
            place: user.clone(),
            certainty: Certainty::Certain,
            why: format!("{} {name:?}, which it needs, does not exist", kind.kind()),
            bytes: None,
            created: None,
        }));
        findings.extend(outlook.within("").items.iter().map(|item| Finding {
            code: Code::Due,
            place: item.place.clone(),
            certainty: Certainty::Certain,
            why: format!(
                "{} in {}: {}",
                item.forecast.collector,
                text::ahead(item.forecast.at.since(survey.now())),
                item.forecast.detail
            ),
            bytes: None,
            created: None,
        }));
        findings.sort_by(|a, b| (a.code, &a.place).cmp(&(b.code, &b.place)));
        let unseen = self.unseen.into_iter().chain(outlook.unknown.iter().cloned()).collect();
        Report { findings, more_missing: self.more_missing, unseen, marked: self.marked, seen: self.seen }
    }

    fn unused(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for ((usable, namespace, name), target) in &self.targets {
            if target.is_exempt || target.is_used || self.is_claim_of_a_set(*usable, namespace, name) {
                continue;
            }
            let (certainty, why) = match (&target.suspect, self.unseen.first()) {
                (Some((user, property)), _) => {
                    (Certainty::Unknown, format!("{user} contains a text that equals {property}"))
                }
                (None, Some(unseen)) => (Certainty::Unknown, format!("nothing seen uses it, but {unseen}")),
                (None, None) => (Certainty::Certain, "nothing refers to it".to_owned()),
            };
            let code = Code::of(*usable);
            let Target { bytes, created, .. } = *target;
            findings.push(Finding { code, place: target.place.clone(), certainty, why, bytes, created });
        }
        findings
    }

    /// Reports whether a StatefulSet would use a claim again when it is scaled up.
    fn is_claim_of_a_set(&self, usable: Usable, namespace: &str, name: &str) -> bool {
        let Some((stem, number)) = name.rsplit_once('-').filter(|_| usable == Usable::Claim) else {
            return false;
        };
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number && self.claim_prefixes.contains(&(namespace.to_owned(), format!("{stem}-")))
    }

    fn old(&self) -> Vec<Finding> {
        let mut by_deployment: BTreeMap<Option<&str>, Vec<&OldReplicaSet>> = BTreeMap::new();
        for old in &self.old_replica_sets {
            by_deployment.entry(old.deployment.as_deref()).or_default().push(old);
        }
        let mut findings = Vec::new();
        for (deployment, mut sets) in by_deployment {
            let limit = match deployment {
                None => 0,
                // The owner references of its ReplicaSets show whether the Deployment exists.
                Some(uid) => match self.history_limits.get(uid) {
                    Some(limit) => usize::try_from(*limit).unwrap_or_default(),
                    None => continue,
                },
            };
            // The newest are kept, for rollbacks.
            sets.sort_by(|a, b| b.revision.cmp(&a.revision).then_with(|| a.place.cmp(&b.place)));
            findings.extend(sets.into_iter().skip(limit).map(|old| Finding {
                code: Code::OldReplicaSet,
                place: old.place.clone(),
                certainty: Certainty::Certain,
                why: match deployment {
                    None => "it has no replicas and no Deployment".to_owned(),
                    Some(_) => format!("revision {} is beyond the history limit of {limit}", old.revision),
                },
                bytes: None,
                created: old.created,
            }));
        }
        findings
    }
}

/// Returns findings about references to owners that are absent or can never be found.
fn invalid_owners(survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    for view in survey.engine.select(|_| true) {
        let Some(why) = survey.engine.why(&view.uid) else { continue };
        if why.object.deletion.deleting {
            continue;
        }
        let certainty = match why.conclusion {
            Conclusion::Undecidable | Conclusion::Unverified => Certainty::Unknown,
            _ => Certainty::Certain,
        };
        for (owner, state) in &why.references {
            let what = match state {
                ReferenceState::Absent(_) => "does not exist",
                ReferenceState::Undecidable => "cannot be looked up",
                _ => continue,
            };
            let owner = &owner.coordinates;
            findings.push(Finding {
                code: Code::InvalidOwner,
                place: place_of_view(survey, &view),
                certainty,
                why: format!("owner {}/{} with UID {} {what}", owner.kind, owner.name, owner.uid),
                bytes: None,
                created: None,
            });
        }
    }
    findings
}

/// Reports whether a program may be configured to look for this label, which rules out labels that many objects have.
fn is_telling(label: &str) -> bool {
    const COMMON: [&str; 12] = [
        "app",
        "chart",
        "component",
        "env",
        "environment",
        "heritage",
        "k8s-app",
        "name",
        "release",
        "team",
        "tier",
        "version",
    ];
    let is_common = |prefix: &str| label.starts_with(prefix);
    !COMMON.contains(&label)
        && !["app.kubernetes.io/", "helm.sh/", "kubernetes.io/"].into_iter().any(is_common)
}

/// Returns the size of an object in the store, or of a claim's volume. The contents of Secrets are never read.
fn bytes(usable: Usable, object: &Value) -> Option<u64> {
    match usable {
        Usable::ConfigMap => {
            let lengths = |field: &str| -> u64 {
                let entries = object[field].as_object().into_iter().flatten();
                entries.map(|(key, text)| (key.len() + text.as_str().map_or(0, str::len)) as u64).sum()
            };
            Some(lengths("data") + lengths("binaryData"))
        }
        Usable::Claim => {
            let capacity = object["status"]["capacity"]["storage"].as_str();
            let storage = capacity.or_else(|| object["spec"]["resources"]["requests"]["storage"].as_str())?;
            u64::try_from(parse_quantity(storage)?).ok()
        }
        Usable::Secret | Usable::ServiceAccount => None,
    }
}

/// Reports whether an API group belongs to Kubernetes itself.
fn is_builtin(group: &str) -> bool {
    const PLAIN: [&str; 5] = ["", "apps", "autoscaling", "batch", "policy"];
    PLAIN.contains(&group) || BUILTIN.contains(&group)
}

/// Groups of kube-apiserver that have a domain; other groups under `k8s.io` come from extensions.
const BUILTIN: [&str; 16] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

fn place(resource: &Resource, object: &Value) -> Place {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    Place {
        api_version: resource.api_version(),
        kind: resource.kind.to_string(),
        resource: resource.name.to_string(),
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
    }
}

#[cfg(test)]
mod tests;
