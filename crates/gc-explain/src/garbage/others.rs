//! Objects of other kinds that serve no purpose: they select nothing, lead nowhere, or grant nothing to anyone.
//!
//! A finding is certain only if something that the object needs does not exist. Objects that are merely offered for use, such as a
//! class or a ClusterRole, and those that may be intended, such as a workload scaled to 0, are reported as unknown.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{Timestamp, parse_quantity};
use serde_json::Value;

use super::{Certainty, Code, Finding, controllers};
use crate::catalog::Resource;
use crate::object::parse_time;
use crate::stuck::Place;
use crate::survey::Survey;

type Labels = BTreeMap<String, String>;
/// Kind, namespace and name.
type Named = (String, String, String);

/// API group of Gateways and the routes attached to them.
pub(super) const GATEWAYS: &str = "gateway.networking.k8s.io";
/// Objects that every namespace has, by kind and name, created by Kubernetes or a distribution.
const MADE: [(&str, &str); 6] = [
    ("ConfigMap", "istio-ca-root-cert"),
    ("ConfigMap", "kube-root-ca.crt"),
    ("ConfigMap", "openshift-service-ca.crt"),
    ("ServiceAccount", "builder"),
    ("ServiceAccount", "default"),
    ("ServiceAccount", "deployer"),
];
/// Kinds of objects that come and go in a namespace that is not in use.
const PASSING: [&str; 1] = ["Event"];

/// Kinds of objects that others need by name.
const NEEDED: [&str; 10] = [
    "ClusterRole",
    "Deployment",
    "GatewayClass",
    "Node",
    "PersistentVolume",
    "ReplicaSet",
    "ReplicationController",
    "Role",
    "Service",
    "StatefulSet",
];
/// Built-in kinds that an autoscaler may scale.
const SCALED: [&str; 4] = ["Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"];

/// Question about a candidate that is answered once everything has been read.
#[derive(Clone, Debug)]
enum Question {
    /// Unused if no pod has labels that the selector matches.
    Selects { selector: Value, certain: bool },
    /// Unused if the Service has no endpoints.
    Endpoints,
    /// Unused if none of these Services exists.
    LeadsTo(BTreeSet<String>),
    /// Unused if this object does not exist.
    Needs(Named),
    /// Unused if no binding refers to the role, and no other role aggregates its rules.
    Bound { labels: Labels },
    /// Unused if the role does not exist, or none of the accounts does; `None` if there are other subjects.
    Grants { role: Named, accounts: Option<Vec<(String, String)>> },
    /// Unused if nothing uses the class.
    Class,
    /// Unused if there is no object of this group and kind.
    Instances(String, String),
    /// Unused if the namespace is empty.
    Inhabited,
    /// Unused if this class does not exist, or no route is attached.
    Routes { class: Named },
    /// Already answered when the object was read.
    Answered(Certainty, String),
}

/// An object that may serve no purpose.
#[derive(Clone, Debug)]
struct Candidate {
    code: Code,
    place: Place,
    created: Option<Timestamp>,
    bytes: Option<u64>,
    question: Question,
    /// A custom resource that contains a text equal to its name.
    suspect: Option<String>,
}

/// Gathers candidates and the objects they need.
#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    candidates: Vec<Candidate>,
    by_name: BTreeMap<String, Vec<usize>>,
    /// Labels of pods and of pod templates, by namespace.
    pods: BTreeMap<String, BTreeSet<Labels>>,
    existing: BTreeSet<Named>,
    /// Services with endpoints, by namespace and name.
    led: BTreeSet<(String, String)>,
    bound: BTreeSet<Named>,
    aggregations: Vec<Value>,
    classes: BTreeSet<(String, String)>,
    instances: BTreeSet<(String, String)>,
    /// Namespaces that are not empty.
    inhabited: BTreeSet<String>,
    /// Gateways that routes refer to, by namespace and name.
    routed: BTreeSet<(String, String)>,
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn labels(value: &Value) -> Labels {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Returns the creation time of an object.
pub(super) fn created(object: &Value) -> Option<Timestamp> {
    parse_time(text(object, "/metadata/creationTimestamp"))
}

/// Extent to which labels match a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Nothing,
    Part,
    All,
}

fn fit(selector: &Value, labels: &Labels) -> Fit {
    let pairs = selector["matchLabels"].as_object().into_iter().flatten();
    let mut met: Vec<bool> =
        pairs.map(|(key, value)| labels.get(key).map(String::as_str) == value.as_str()).collect();
    for expression in items(selector, "/matchExpressions") {
        let value = labels.get(text(expression, "/key"));
        let is_listed = || items(expression, "/values").any(|one| one.as_str() == value.map(String::as_str));
        met.push(match text(expression, "/operator") {
            "In" => value.is_some() && is_listed(),
            "NotIn" => value.is_none() || !is_listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            // Unknown operators may match.
            _ => true,
        });
    }
    match met.iter().filter(|met| **met).count() {
        number if number == met.len() => Fit::All,
        0 => Fit::Nothing,
        _ => Fit::Part,
    }
}

impl Others {
    fn candidate(&mut self, code: Code, place: &Place, object: &Value, question: Question) {
        let bytes = (code == Code::UnusedVolume)
            .then(|| parse_quantity(text(object, "/spec/capacity/storage")))
            .flatten()
            .and_then(|bytes| u64::try_from(bytes).ok());
        self.by_name.entry(place.name.clone()).or_default().push(self.candidates.len());
        let (place, created) = (place.clone(), created(object));
        self.candidates.push(Candidate { code, place, created, bytes, question, suspect: None });
    }

    /// Records a text of a custom resource that may be a name.
    pub(super) fn suspect(&mut self, user: &Place, text: &str) {
        let (namespace, name) =
            text.split_once('/').map_or((None, text), |(left, right)| (Some(left), right));
        for index in self.by_name.get(name).into_iter().flatten() {
            if let Some(candidate) = self.candidates.get_mut(*index)
                && namespace.is_none_or(|namespace| namespace == candidate.place.namespace)
            {
                candidate.suspect.get_or_insert_with(|| user.title());
            }
        }
    }

    /// Adds a definition, which may have no objects.
    pub(super) fn definition(&mut self, definition: &Value, is_exempt: bool) {
        let place = Place {
            api_version: "apiextensions.k8s.io/v1".into(),
            kind: "CustomResourceDefinition".into(),
            resource: "customresourcedefinitions.apiextensions.k8s.io".into(),
            namespace: String::new(),
            name: text(definition, "/metadata/name").to_owned(),
            uid: text(definition, "/metadata/uid").to_owned(),
        };
        let owned = |pointer: &str| text(definition, pointer).to_owned();
        let question = Question::Instances(owned("/spec/group"), owned("/spec/names/kind"));
        if !is_exempt {
            self.candidate(Code::UnusedDefinition, &place, definition, question);
        }
    }

    /// Adds an object of any kind: what it needs, and whether it may serve no purpose itself.
    pub(super) fn observe(&mut self, resource: &Resource, place: &Place, object: &Value, is_exempt: bool) {
        let (group, kind) = (resource.name.group.to_string(), resource.kind.to_string());
        self.instances.insert((group.clone(), kind.clone()));
        if NEEDED.contains(&&*kind) {
            self.existing.insert((kind.clone(), place.namespace.clone(), place.name.clone()));
        }
        self.inhabits(place);
        self.routes_of(place, object);
        self.pods_of(&kind, place, object);
        self.classes_of(&kind, object);
        self.bindings_of(&kind, place, object);
        if is_exempt {
            return;
        }
        match (&*group, &*kind) {
            ("", "Service") => self.service(place, object),
            ("networking.k8s.io", "Ingress") => self.ingress(place, object),
            ("autoscaling", "HorizontalPodAutoscaler") => {
                let (kind, name) =
                    (text(object, "/spec/scaleTargetRef/kind"), text(object, "/spec/scaleTargetRef/name"));
                if SCALED.contains(&kind) {
                    let needed = (kind.to_owned(), place.namespace.clone(), name.to_owned());
                    self.candidate(Code::UnusedAutoscaler, place, object, Question::Needs(needed));
                }
            }
            ("policy", "PodDisruptionBudget") => {
                let question =
                    Question::Selects { selector: object["spec"]["selector"].clone(), certain: true };
                self.candidate(Code::UnusedDisruptionBudget, place, object, question);
            }
            ("networking.k8s.io", "NetworkPolicy") => {
                // Short-lived pods, such as those of builds, may not be there right now.
                let selector = object["spec"]["podSelector"].clone();
                let question = Question::Selects { selector, certain: false };
                self.candidate(Code::UnusedNetworkPolicy, place, object, question);
            }
            ("", "PersistentVolume") => self.volume(place, object),
            ("storage.k8s.io", "VolumeAttachment") => self.attachment(place, object),
            ("storage.k8s.io", "StorageClass") => {
                let is_default = |key: &str| object["metadata"]["annotations"][key] == "true";
                if !is_default("storageclass.kubernetes.io/is-default-class")
                    && !is_default("storageclass.beta.kubernetes.io/is-default-class")
                {
                    self.candidate(Code::UnusedStorageClass, place, object, Question::Class);
                }
            }
            ("scheduling.k8s.io", "PriorityClass")
                if object["globalDefault"] != true && !place.name.starts_with("system-") =>
            {
                self.candidate(Code::UnusedPriorityClass, place, object, Question::Class);
            }
            ("rbac.authorization.k8s.io", _) => self.right(&kind, place, object),
            ("apps", "Deployment" | "StatefulSet" | "DaemonSet") => self.idle(&kind, place, object),
            ("", "Pod") | ("batch", "Job") => {
                self.finished(&kind, place, object);
                if object["spec"]["suspend"] == true {
                    let question = Question::Answered(Certainty::Unknown, "it is suspended".to_owned());
                    self.candidate(Code::IdleWorkload, place, object, question);
                }
            }
            ("", "Namespace")
                if place.name != "default" && !controllers::is_system_namespace(&place.name) =>
            {
                self.candidate(Code::UnusedNamespace, place, object, Question::Inhabited);
            }
            (GATEWAYS, "Gateway") => {
                let class = (
                    "GatewayClass".to_owned(),
                    String::new(),
                    text(object, "/spec/gatewayClassName").to_owned(),
                );
                self.candidate(Code::UnusedGateway, place, object, Question::Routes { class });
            }
            _ => {}
        }
    }

    /// Records that the namespace of an object is not empty.
    pub(super) fn inhabits(&mut self, place: &Place) {
        let is_made = MADE.contains(&(place.kind.as_str(), place.name.as_str()));
        if !place.namespace.is_empty() && !is_made && !PASSING.contains(&place.kind.as_str()) {
            self.inhabited.insert(place.namespace.clone());
        }
    }

    /// Counts objects of kinds that are not read whole as contents of their namespaces.
    pub(super) fn survey(&mut self, survey: &Survey) {
        let found = RefCell::new(BTreeSet::<Arc<str>>::new());
        survey.engine.select(|key| {
            let kind = survey.catalog.get(key.resource).map(|resource| &*resource.kind).unwrap_or_default();
            if !MADE.contains(&(kind, &key.name)) && !PASSING.contains(&kind) {
                found.borrow_mut().insert(Arc::clone(&key.namespace));
            }
            false
        });
        self.inhabited.extend(found.into_inner().iter().map(ToString::to_string));
    }

    /// Adds the Gateways that a route, or a set of listeners, names as its parents.
    fn routes_of(&mut self, place: &Place, object: &Value) {
        for parent in items(object, "/spec/parentRefs").chain(object.pointer("/spec/parentRef")) {
            let kind = parent["kind"].as_str().unwrap_or("Gateway");
            let namespace = parent["namespace"].as_str().unwrap_or(&place.namespace);
            if kind == "Gateway" {
                self.routed.insert((namespace.to_owned(), text(parent, "/name").to_owned()));
            }
        }
    }

    fn pods_of(&mut self, kind: &str, place: &Place, object: &Value) {
        let pointers = match kind {
            "Pod" => ["/metadata/labels", ""],
            "CronJob" => ["/spec/jobTemplate/spec/template/metadata/labels", ""],
            _ => ["/spec/template/metadata/labels", "/spec/podTemplate/metadata/labels"],
        };
        let of_pods = self.pods.entry(place.namespace.clone()).or_default();
        let found = pointers.into_iter().filter(|pointer| !pointer.is_empty());
        of_pods.extend(found.filter_map(|pointer| object.pointer(pointer)).map(labels));
        if kind == "Pod" {
            of_pods.insert(labels(&object["metadata"]["labels"]));
        }
    }

    fn classes_of(&mut self, kind: &str, object: &Value) {
        let mut uses = |class: &str, name: &str| {
            if !name.is_empty() {
                self.classes.insert((class.to_owned(), name.to_owned()));
            }
        };
        let templates = ["/spec", "/spec/template/spec", "/spec/jobTemplate/spec/template/spec"];
        for pointer in templates {
            uses("PriorityClass", text(object, &format!("{pointer}/priorityClassName")));
        }
        if matches!(kind, "PersistentVolume" | "PersistentVolumeClaim") {
            uses("StorageClass", text(object, "/spec/storageClassName"));
            uses(
                "StorageClass",
                object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"]
                    .as_str()
                    .unwrap_or_default(),
            );
        }
        for template in items(object, "/spec/volumeClaimTemplates") {
            uses("StorageClass", text(template, "/spec/storageClassName"));
        }
        // A pod's ephemeral volume has a claim that is created with the pod.
        for pointer in templates {
            for volume in items(object, &format!("{pointer}/volumes")) {
                uses("StorageClass", text(volume, "/ephemeral/volumeClaimTemplate/spec/storageClassName"));
            }
        }
    }

    fn bindings_of(&mut self, kind: &str, place: &Place, object: &Value) {
        match kind {
            "RoleBinding" | "ClusterRoleBinding" => {
                self.bound.insert(role_of(place, object));
            }
            "ClusterRole" => {
                self.aggregations.extend(items(object, "/aggregationRule/clusterRoleSelectors").cloned());
            }
            _ => {}
        }
    }

    /// Adds an Endpoints or EndpointSlice object, which shows that a Service leads somewhere.
    pub(super) fn endpoints(&mut self, object: &Value) {
        let slice_of = object["metadata"]["labels"]["kubernetes.io/service-name"].as_str();
        let service = slice_of.unwrap_or_else(|| text(object, "/metadata/name"));
        self.led.insert((text(object, "/metadata/namespace").to_owned(), service.to_owned()));
    }

    fn service(&mut self, place: &Place, object: &Value) {
        let selector = &object["spec"]["selector"];
        let selects = selector.as_object().is_some_and(|pairs| !pairs.is_empty());
        // The API server creates the endpoints of its own Service.
        if text(object, "/spec/type") == "ExternalName"
            || object["metadata"]["labels"]["provider"] == "kubernetes"
        {
            return;
        }
        let selector = serde_json::json!({"matchLabels": selector});
        let question =
            if selects { Question::Selects { selector, certain: true } } else { Question::Endpoints };
        self.candidate(Code::UnusedService, place, object, question);
    }

    fn ingress(&mut self, place: &Place, object: &Value) {
        let mut backends = vec![&object["spec"]["defaultBackend"]];
        for rule in items(object, "/spec/rules") {
            backends.extend(items(rule, "/http/paths").map(|path| &path["backend"]));
        }
        backends.retain(|backend| !backend.is_null());
        // The backend may be an object of another resource.
        if backends.is_empty() || backends.iter().any(|backend| !backend["resource"].is_null()) {
            return;
        }
        let services = backends.into_iter().map(|backend| text(backend, "/service/name").to_owned());
        self.candidate(Code::UnusedIngress, place, object, Question::LeadsTo(services.collect()));
    }

    fn volume(&mut self, place: &Place, object: &Value) {
        let claim =
            format!("{}/{}", text(object, "/spec/claimRef/namespace"), text(object, "/spec/claimRef/name"));
        let is_kept = text(object, "/spec/persistentVolumeReclaimPolicy") == "Retain";
        let (certainty, why) = match text(object, "/status/phase") {
            "Released" if is_kept => {
                (Certainty::Certain, format!("its claim {claim} is gone, and its data is retained"))
            }
            "Released" => {
                (Certainty::Unknown, format!("its claim {claim} is gone, and it is not deleted yet"))
            }
            "Failed" => {
                (Certainty::Certain, format!("its claim {claim} is gone, and its deletion has failed"))
            }
            "Available" => (Certainty::Unknown, "no claim is bound to it".to_owned()),
            _ => return,
        };
        self.candidate(Code::UnusedVolume, place, object, Question::Answered(certainty, why));
    }

    fn attachment(&mut self, place: &Place, object: &Value) {
        for (kind, pointer) in
            [("Node", "/spec/nodeName"), ("PersistentVolume", "/spec/source/persistentVolumeName")]
        {
            let name = text(object, pointer);
            if !name.is_empty() {
                let needed = (kind.to_owned(), String::new(), name.to_owned());
                self.candidate(Code::UnusedVolumeAttachment, place, object, Question::Needs(needed));
            }
        }
    }

    fn right(&mut self, kind: &str, place: &Place, object: &Value) {
        let is_built_in = object["metadata"]["labels"]["kubernetes.io/bootstrapping"].is_string()
            || place.name.starts_with("system:");
        match kind {
            _ if is_built_in => {}
            "Role" | "ClusterRole" => {
                let code = if kind == "Role" { Code::UnusedRole } else { Code::UnusedClusterRole };
                let labels = labels(&object["metadata"]["labels"]);
                self.candidate(code, place, object, Question::Bound { labels });
            }
            "RoleBinding" | "ClusterRoleBinding" if !text(object, "/roleRef/name").is_empty() => {
                let account = |subject: &Value| {
                    let is_account = text(subject, "/kind") == "ServiceAccount";
                    let namespace = Some(text(subject, "/namespace")).filter(|name| !name.is_empty());
                    let namespace = namespace.unwrap_or(&place.namespace).to_owned();
                    is_account.then(|| (namespace, text(subject, "/name").to_owned()))
                };
                let accounts: Option<Vec<_>> = items(object, "/subjects").map(account).collect();
                let question = Question::Grants { role: role_of(place, object), accounts };
                self.candidate(Code::UnusedBinding, place, object, question);
            }
            _ => {}
        }
    }

    fn idle(&mut self, kind: &str, place: &Place, object: &Value) {
        let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
        let why = if kind == "DaemonSet" {
            let is_seen = number("/status/observedGeneration").is_some_and(|seen| seen > 0);
            (is_seen && number("/status/desiredNumberScheduled") == Some(0)).then_some("it fits no node")
        } else {
            (number("/spec/replicas") == Some(0)).then_some("it is scaled to 0")
        };
        if let Some(why) = why {
            let question = Question::Answered(Certainty::Unknown, why.to_owned());
            self.candidate(Code::IdleWorkload, place, object, question);
        }
    }

    fn finished(&mut self, kind: &str, place: &Place, object: &Value) {
        let ended = if kind == "Pod" {
            Some(text(object, "/status/phase")).filter(|phase| matches!(*phase, "Succeeded" | "Failed"))
        } else {
            let is_true = |condition: &&Value| condition["status"] == "True";
            let conditions = items(object, "/status/conditions").filter(is_true);
            conditions
                .filter_map(|condition| condition["type"].as_str())
                .find(|name| matches!(*name, "Complete" | "Failed"))
        };
        let Some(ended) = ended else { return };
        let annotations = &object["metadata"]["annotations"];
        let is_hook =
            annotations["helm.sh/hook"].is_string() || annotations["argocd.argoproj.io/hook"].is_string();
        let certainty = if is_hook { Certainty::Unknown } else { Certainty::Certain };
        // Jobs with a TTL are due anyway.
        if object["spec"]["ttlSecondsAfterFinished"].is_null() {
            let code = if kind == "Pod" { Code::FinishedPod } else { Code::FinishedJob };
            let why = format!("it has finished ({ended}), and nothing deletes it");
            self.candidate(code, place, object, Question::Answered(certainty, why));
        }
    }

    /// Returns findings about objects that serve no purpose. `account` reports whether a ServiceAccount exists.
    pub(super) fn findings(
        &self,
        unseen: Option<&String>,
        account: &dyn Fn(&str, &str) -> bool,
    ) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        for candidate in &self.candidates {
            let Some((mut certainty, mut why)) = self.answer(candidate, account) else { continue };
            if let Some(user) = &candidate.suspect {
                (certainty, why) =
                    (Certainty::Unknown, format!("{why}, but {user} contains a text that equals its name"));
            } else if let Some(unseen) = unseen {
                (certainty, why) = (Certainty::Unknown, format!("{why}, as far as can be seen: {unseen}"));
            }
            let Candidate { code, created, bytes, .. } = *candidate;
            let place = candidate.place.clone();
            if !findings.iter().rev().take(2).any(|known| known.place == place && known.code == code) {
                findings.push(Finding { code, place, certainty, why, bytes, created });
            }
        }
        findings
    }

    fn answer(
        &self,
        candidate: &Candidate,
        account: &dyn Fn(&str, &str) -> bool,
    ) -> Option<(Certainty, String)> {
        let Place { kind, namespace, name, .. } = &candidate.place;
        let exists = |named: &Named| self.existing.contains(named);
        let certain = |is_unused: bool, why: String| is_unused.then_some((Certainty::Certain, why));
        let unknown = |is_unused: bool, why: &str| is_unused.then(|| (Certainty::Unknown, why.to_owned()));
        match &candidate.question {
            Question::Answered(certainty, why) => Some((*certainty, why.clone())),
            Question::Selects { selector, certain } => {
                let pods = self.pods.get(namespace).into_iter().flatten();
                match pods.map(|labels| fit(selector, labels)).max_by_key(|fit| *fit as u8) {
                    Some(Fit::All) => None,
                    Some(Fit::Part) => unknown(true, "no pod has all labels of its selector now"),
                    // A selector without requirements selects any future pod.
                    None | Some(Fit::Nothing) if fit(selector, &Labels::new()) == Fit::All => None,
                    None | Some(Fit::Nothing) => {
                        let certainty = if *certain { Certainty::Certain } else { Certainty::Unknown };
                        Some((
                            certainty,
                            "no pod, and nothing that makes pods, has a label of its selector".to_owned(),
                        ))
                    }
                }
            }
            Question::Endpoints => {
                let leads = self.led.contains(&(namespace.clone(), name.clone()));
                unknown(!leads, "it has no selector and no endpoints")
            }
            Question::LeadsTo(services) => {
                let is_there = |name: &String| exists(&("Service".into(), namespace.clone(), name.clone()));
                let names: Vec<&str> = services.iter().map(String::as_str).collect();
                let why = format!("none of the Services that it leads to exists: {}", names.join(", "));
                certain(!services.iter().any(is_there), why)
            }
            Question::Needs(needed) => certain(
                !exists(needed),
                format!("{} {}, which it is about, does not exist", needed.0, needed.2),
            ),
            Question::Bound { labels } => {
                let is_bound = self.bound.contains(&(kind.clone(), namespace.clone(), name.clone()));
                let is_part = self.aggregations.iter().any(|selector| fit(selector, labels) == Fit::All);
                let is_offered =
                    labels.keys().any(|key| key.starts_with("rbac.authorization.k8s.io/aggregate-to-"));
                let is_unused = !is_bound && !is_part && !is_offered;
                let why = "no binding refers to it";
                if kind == "Role" { certain(is_unused, why.to_owned()) } else { unknown(is_unused, why) }
            }
            Question::Grants { role, accounts } => {
                let are_absent = |accounts: &Vec<(String, String)>| {
                    !accounts.iter().any(|(namespace, name)| account(namespace, name))
                };
                let absent = format!("{} {}, which it grants, does not exist", role.0, role.2);
                certain(!exists(role), absent).or_else(|| {
                    certain(
                        accounts.as_ref().is_some_and(are_absent),
                        "none of its subjects exists".to_owned(),
                    )
                })
            }
            Question::Class => {
                unknown(!self.classes.contains(&(kind.clone(), name.clone())), "nothing uses the class")
            }
            Question::Inhabited => {
                unknown(!self.inhabited.contains(name), "nothing is in it but what Kubernetes puts there")
            }
            Question::Routes { class } => {
                let is_routed = self.routed.contains(&(namespace.clone(), name.clone()));
                certain(!exists(class), format!("GatewayClass {}, which it has, does not exist", class.2))
                    .or_else(|| unknown(!is_routed, "no route is attached to it"))
            }
            Question::Instances(group, kind) => {
                let is_there = self.instances.contains(&(group.clone(), kind.clone()));
                unknown(!is_there, "there is no object of its kind")
            }
        }
    }
}

/// Returns the role of a binding.
fn role_of(place: &Place, binding: &Value) -> Named {
    let kind = text(binding, "/roleRef/kind").to_owned();
    let namespace = if kind == "Role" { place.namespace.clone() } else { String::new() };
    (kind, namespace, text(binding, "/roleRef/name").to_owned())
}
