//! Clients of the objects that retention collectors manage: pods and Jobs finish, nodes come and go with their machines, claims are
//! used and released, and TTLs are set, raised and removed at the last moment.

use gc_collectors::leases::{IDENTITY_NAMESPACE, NODE_LEASE_NAMESPACE};
use gc_collectors::policies;
use gc_registry::api::{DeleteOptions, PatchType};
use serde_json::{Value, json};

use crate::clients::shown_result;
use crate::kinds::KINDS;
use crate::provider::{Machine, Provider};
use crate::random::Random;
use crate::server::{BEGINNING_MILLISECONDS, Server};
use crate::truth::{TrueObject, Truth, show};

/// Names of nodes, few enough to be used again.
pub const NODES: [&str; 3] = ["node", "east", "west"];
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const SECOND: i64 = 1_000;
const HOUR: i64 = 3_600 * SECOND;

/// State that clients act on.
#[derive(Debug)]
pub struct Tenants<'a> {
    /// Server that the clients use.
    pub server: &'a Server,
    /// True state of its objects.
    pub truth: &'a Truth,
    /// Provider of the machines.
    pub provider: &'a mut Provider,
}

/// Returns a time as the API writes it.
#[must_use]
pub fn time(milliseconds: i64) -> String {
    let at = jiff::Timestamp::from_second(milliseconds.div_euclid(SECOND));
    at.map(|at| at.to_string()).unwrap_or_default()
}

fn kind(name: &str) -> usize {
    KINDS.iter().position(|kind| kind.kind == name).unwrap_or(0)
}

/// A certificate in PEM, encoded in base64. It expires an hour and a half after the world begins.
const CERTIFICATE: &str = include_str!("certificate.base64");
/// Time of expiry in milliseconds since the epoch.
pub const CERTIFICATE_ENDS_MILLISECONDS: i64 = BEGINNING_MILLISECONDS + 90 * 60 * SECOND;

/// Label that policies select by, and its values.
const TIER: &str = "tier";
const TIERS: [&str; 2] = ["x", "y"];

/// Generates the spec of a policy. The oracle interprets it independently: see `policy_verdicts`.
fn policy_spec(random: &mut Random) -> Value {
    let kind = random.pick(&["ConfigMap", "ConfigMap", "Pod"]);
    let mut spec = json!({"target": {"apiVersion": "v1", "kind": kind}, "enforce": random.chance(600),
        "maxDeletionsPerRun": random.pick(&[1, 1, 1, 2, 100])});
    match random.below(4) {
        0 => spec["namespaces"] = json!({"include": ["m"]}),
        1 => spec["namespaces"] = json!({"exclude": ["n"]}),
        _ => {}
    }
    if random.chance(300) {
        spec["selector"] = json!({"matchLabels": {TIER: random.pick(&TIERS)}});
    }
    if random.chance(200) {
        spec["condition"] = "object.metadata.name != 'a'".into();
    }
    if kind == "Pod" && random.chance(300) {
        let ended = json!({"path": ".status.phase", "operator": "In", "values": ["Succeeded", "Failed"]});
        spec["fields"] = json!([ended]);
    }
    let rule = random.below(4);
    if rule < 2 {
        let per = random.pick(&["Cluster", "Namespace", "Label"]);
        spec["keepNewest"] = json!({"count": random.below(3), "per": per});
        if per == "Label" {
            spec["keepNewest"]["label"] = TIER.into();
        }
    }
    if rule > 0 {
        spec["maxAge"] = random.pick(&["5s", "2m", "1h"]).into();
    }
    if kind == "Pod" && random.chance(300) {
        spec["ttlAfter"] = json!({"condition": "Finished", "duration": "30s"});
    }
    if random.chance(150) {
        spec["schedule"] = "every 6h".into();
    }
    if random.chance(300) {
        spec["propagationPolicy"] = random.pick(&["Background", "Foreground", "Orphan"]).into();
    }
    spec
}

/// Returns a pod that uses a claim, or no claim.
fn pod_on_node(random: &mut Random, name: &str, claim: Option<&str>) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}], "nodeName": random.pick(&NODES)});
    if let Some(claim) = claim {
        spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

impl<'a> Tenants<'a> {
    /// Performs one action of a client, and returns its description.
    pub fn act(&mut self, salt: u64) -> String {
        let mut random = Random::new(salt);
        match random.weighted(&[14, 14, 8, 20, 6, 6, 9, 10, 18, 12, 12]) {
            0 => self.create_pod(&mut random),
            1 => self.finish_pod(&mut random),
            2 => self.node(&mut random),
            3 => self.job(&mut random),
            4 => self.request(&mut random),
            5 => self.lease(&mut random),
            6 => self.claim(&mut random),
            7 => self.volume(&mut random),
            8 => self.annotate(&mut random),
            9 => self.policy(&mut random),
            _ => self.label(&mut random),
        }
    }

    /// Repairs the cluster after the last fault. Machines that are shut down run again, and nodes whose machine runs are ready. Of
    /// the nodes whose machine is gone, at most one is left to the collector, which stops if many are missing, and none that it
    /// keeps and looks up for ever; none at all is left if the collector finds no ready node with which to check the provider.
    pub fn repair(&mut self) {
        self.provider.honest = true;
        self.provider.start_all();
        let is_control = |node: &TrueObject| {
            let value = node.value();
            let name = value["spec"]["providerID"].as_str().unwrap_or_default();
            // A node that is kept is not looked up, and a node that others delete is only briefly a control.
            let is_marked =
                value["metadata"]["annotations"].as_object().is_some_and(|marks| !marks.is_empty());
            let is_owned = value["metadata"]["ownerReferences"].is_array();
            !is_marked && !is_owned && !node.object.deletion.deleting && !self.provider.machine(name).gone
        };
        let mut missing = usize::from(!self.objects("Node").into_iter().any(is_control));
        for node in self.objects("Node") {
            let value = node.value();
            let name = value["spec"]["providerID"].as_str().unwrap_or_default();
            if !self.provider.machine(name).gone {
                self.set_ready(node, true);
                continue;
            }
            let is_kept = !value["metadata"]["annotations"]["kubegc.io/keep"].is_null();
            missing += usize::from(!is_kept);
            if missing > 1 || is_kept {
                self.remove(node);
            }
        }
    }

    fn objects(&self, name: &str) -> Vec<&'a TrueObject> {
        let kind = kind(name);
        self.truth.objects().filter(|object| object.kind == kind).collect()
    }

    fn any<'t>(objects: &[&'t TrueObject], random: &mut Random) -> Option<&'t TrueObject> {
        (!objects.is_empty()).then(|| objects[random.below(objects.len())])
    }

    fn now(&self, random: &mut Random) -> i64 {
        // Now and then, a client's clock is wrong.
        let wrong = random.pick(&[0, 0, 0, 0, 0, -30 * SECOND, 40 * SECOND]);
        self.server.now + wrong
    }

    fn create(&self, name: &str, place: (&str, &str), manifest: Value) -> String {
        let result = self.server.create(&KINDS[kind(name)], place.0, manifest);
        format!("create {}: {}", show(kind(name), place.0, place.1), shown_result(result.as_ref()))
    }

    fn status(&self, target: &TrueObject, subresource: &str, status: &Value) -> String {
        let key = &target.object.key;
        let place = (&*key.namespace, &*key.name, subresource);
        let result =
            self.server.patch(target.kind(), place, PatchType::Merge, json!({"status": status.clone()}));
        format!("status of {} {status}: {}", target.show(), shown_result(result.as_ref()))
    }

    fn merge(&self, target: &TrueObject, patch: Value) -> String {
        let key = &target.object.key;
        let said = format!("patch {} {patch}", target.show());
        let result = self.server.merge(target.kind(), &key.namespace, &key.name, patch);
        format!("{said}: {}", shown_result(result.as_ref()))
    }

    fn remove(&self, target: &TrueObject) -> String {
        let key = &target.object.key;
        let options =
            DeleteOptions { propagation_policy: Some("Background".to_owned()), ..DeleteOptions::default() };
        let result = self.server.delete(target.kind(), &key.namespace, &key.name, options);
        format!("delete {}: {}", target.show(), shown_result(result.as_ref()))
    }

    fn create_pod(&self, random: &mut Random) -> String {
        let (namespace, name) = (Truth::namespace(random.below(2)), random.pick(&NAMES));
        let claim = random.chance(400).then(|| random.pick(&NAMES));
        let mut manifest = pod_on_node(random, name, claim);
        if random.chance(300) {
            manifest["spec"]["nodeName"] = Value::Null;
        }
        self.create("Pod", (namespace, name), manifest)
    }

    fn finish_pod(&self, random: &mut Random) -> String {
        let Some(pod) = Self::any(&self.objects("Pod"), random) else {
            return self.create_pod(random);
        };
        let phase = random.pick(&["Succeeded", "Failed"]);
        let ended = time(self.now(random));
        let mut status = json!({"phase": phase, "containerStatuses": [{"name": "c", "image": "i",
            "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "finishedAt": ended}}}]});
        if phase == "Failed" && random.chance(400) {
            status["reason"] = "Evicted".into();
        }
        self.status(pod, "status", &status)
    }

    fn set_ready(&self, node: &TrueObject, ready: bool) -> String {
        let status = if ready { "True" } else { "False" };
        self.status(node, "status", &json!({"conditions": [{"type": "Ready", "status": status}]}))
    }

    fn node(&mut self, random: &mut Random) -> String {
        let nodes = self.objects("Node");
        let Some(node) = Self::any(&nodes, random).filter(|_| nodes.len() > 1 || random.chance(500)) else {
            let machine = self.provider.start();
            let name = random.pick(&NODES);
            let manifest = json!({"metadata": {"name": name}, "spec": {"providerID": machine},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            return self.create("Node", ("", name), manifest);
        };
        let machine = node.value()["spec"]["providerID"].as_str().unwrap_or_default().to_owned();
        let change = |provider: &mut Provider, gone, shut_down| {
            provider.change(&machine, Machine { gone, shut_down });
        };
        match random.below(6) {
            0 => self.remove(node),
            1 => {
                let result = self.set_ready(node, false);
                change(self.provider, true, false);
                format!("the machine of {} is no more; {result}", node.show())
            }
            2 => {
                let result = self.set_ready(node, false);
                change(self.provider, false, true);
                format!("the machine of {} is shut down; {result}", node.show())
            }
            3 => {
                change(self.provider, false, false);
                let result = self.set_ready(node, true);
                format!("the machine of {} runs; {result}", node.show())
            }
            4 => self.merge(
                node,
                json!({"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service",
                    "effect": "NoExecute"}]}}),
            ),
            _ => self.set_ready(node, random.chance(300)),
        }
    }

    fn job(&self, random: &mut Random) -> String {
        let jobs = self.objects("Job");
        let Some(job) = Self::any(&jobs, random).filter(|_| jobs.len() > 3 || random.chance(650)) else {
            let (namespace, name) = (Truth::namespace(random.below(2)), random.pick(&NAMES));
            let mut manifest = KINDS[kind("Job")].manifest(json!({"name": name}), false);
            if random.chance(800) {
                manifest["spec"]["ttlSecondsAfterFinished"] = random.pick(&[0, 5, 30, 600]).into();
            }
            return self.create("Job", (namespace, name), manifest);
        };
        match random.below(5) {
            0 | 1 => {
                let (now, word) = (self.now(random), random.pick(&["Complete", "Failed"]));
                let mut conditions = vec![];
                let before = if word == "Complete" { "SuccessCriteriaMet" } else { "FailureTarget" };
                for kind in [before, word] {
                    conditions.push(json!({"type": kind, "status": "True", "reason": "x", "message": "",
                        "lastProbeTime": time(now), "lastTransitionTime": time(now)}));
                }
                let mut status = json!({"startTime": time(now - HOUR), "conditions": conditions});
                if word == "Complete" {
                    status["completionTime"] = time(now).into();
                    status["succeeded"] = 1.into();
                }
                self.status(job, "status", &status)
            }
            2 => self.merge(job, json!({"spec": {"ttlSecondsAfterFinished": random.pick(&[3_600, 86_400])}})),
            3 => self.merge(job, json!({"spec": {"ttlSecondsAfterFinished": random.pick(&[0, 10])}})),
            _ => self.merge(job, json!({"spec": {"ttlSecondsAfterFinished": null}})),
        }
    }

    fn request(&self, random: &mut Random) -> String {
        let requests = self.objects("CertificateSigningRequest");
        let Some(request) = Self::any(&requests, random).filter(|_| requests.len() > 2 || random.chance(600))
        else {
            let name = random.pick(&NAMES);
            let manifest = KINDS[kind("CertificateSigningRequest")].manifest(json!({"name": name}), false);
            return self.create("CertificateSigningRequest", ("", name), manifest);
        };
        let approved = || request.value()["status"]["conditions"].to_string().contains("Approved");
        if random.chance(500) && approved() {
            return self.status(request, "status", &json!({"certificate": CERTIFICATE.trim_end()}));
        }
        let word = random.pick(&["Approved", "Approved", "Denied", "Failed"]);
        let subresource = if word == "Failed" { "status" } else { "approval" };
        let ago = random.pick(&[0, 0, 30 * 60 * SECOND, 59 * 60 * SECOND, 23 * HOUR]);
        let condition = json!({"type": word, "status": "True", "reason": "x", "message": "",
            "lastUpdateTime": time(self.now(random) - ago)});
        self.status(request, subresource, &json!({"conditions": [condition]}))
    }

    fn lease(&self, random: &mut Random) -> String {
        let leases = self.objects("Lease");
        let renewed = self.now(random) - random.pick(&[0, 0, 23 * HOUR, 24 * HOUR - 20 * SECOND, 25 * HOUR]);
        let micro = format!("{}.000000Z", time(renewed).trim_end_matches('Z'));
        if let Some(lease) = Self::any(&leases, random).filter(|_| leases.len() > 3 || random.chance(400)) {
            return self.merge(lease, json!({"spec": {"renewTime": micro}}));
        }
        let identity = random.chance(400);
        let (namespace, name) = if identity {
            (IDENTITY_NAMESPACE, random.pick(&NAMES))
        } else {
            (NODE_LEASE_NAMESPACE, random.pick(&NODES))
        };
        let mut metadata = json!({"name": name});
        if identity {
            metadata["labels"] = json!({"apiserver.kubernetes.io/identity": "kube-apiserver"});
        }
        let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 3_600, "renewTime": micro});
        self.create("Lease", (namespace, name), json!({"metadata": metadata, "spec": spec}))
    }

    fn claim(&self, random: &mut Random) -> String {
        let claims = self.objects("PersistentVolumeClaim");
        let Some(claim) = Self::any(&claims, random).filter(|_| claims.len() > 3 || random.chance(600))
        else {
            let (namespace, name) = (Truth::namespace(random.below(2)), random.pick(&NAMES));
            let manifest = KINDS[kind("PersistentVolumeClaim")].manifest(json!({"name": name}), false);
            return self.create("PersistentVolumeClaim", (namespace, name), manifest);
        };
        // A pod begins to use the claim just before it is deleted.
        let key = &claim.object.key;
        let used = random.chance(600).then(|| {
            let name = random.pick(&NAMES);
            self.create("Pod", (&key.namespace, name), pod_on_node(random, name, Some(&key.name)))
        });
        let removed = self.remove(claim);
        match used {
            Some(used) => format!("{used}; {removed}"),
            None => removed,
        }
    }

    fn volume(&self, random: &mut Random) -> String {
        let volumes = self.objects("PersistentVolume");
        let Some(volume) = Self::any(&volumes, random).filter(|_| volumes.len() > 2 || random.chance(700))
        else {
            let name = random.pick(&NAMES);
            let manifest = KINDS[kind("PersistentVolume")].manifest(json!({"name": name}), false);
            return self.create("PersistentVolume", ("", name), manifest);
        };
        match random.below(3) {
            0 => self.remove(volume),
            1 => self.status(volume, "status", &json!({"phase": "Bound"})),
            _ => self.status(volume, "status", &json!({"phase": random.pick(&["Released", "Available"])})),
        }
    }

    /// Creates, changes or deletes a policy.
    fn policy(&self, random: &mut Random) -> String {
        let policies = self.objects(policies::KIND);
        let Some(policy) = Self::any(&policies, random).filter(|_| policies.len() > 1 || random.chance(600))
        else {
            let name = random.pick(&NAMES);
            let manifest = json!({"metadata": {"name": name}, "spec": policy_spec(random)});
            return self.create(policies::KIND, ("", name), manifest);
        };
        let mut value = policy.value();
        match random.below(8) {
            0 => return self.remove(policy),
            1..4 => value["spec"]["enforce"] = (value["spec"]["enforce"] != true).into(),
            _ => value["spec"] = policy_spec(random),
        }
        self.say(policy, value)
    }

    /// Replaces a policy by another one of the same name, whose generation begins again.
    pub fn replace_policy(&self, policy: &TrueObject, random: &mut Random) -> String {
        let name = &*policy.object.key.name;
        let removed = self.remove(policy);
        let manifest = json!({"metadata": {"name": name}, "spec": policy_spec(random)});
        format!("{removed}; {}", self.create(policies::KIND, ("", name), manifest))
    }

    /// Changes the spec of a policy. After a restored backup, the new change need not repeat the lost one.
    pub fn say_otherwise(&self, policy: &TrueObject, random: &mut Random) -> String {
        let mut value = policy.value();
        value["spec"] = policy_spec(random);
        self.say(policy, value)
    }

    fn say(&self, policy: &TrueObject, mut value: Value) -> String {
        let spec = value["spec"].clone();
        let place = ("", &*policy.object.key.name);
        value["metadata"]["resourceVersion"] = policy.object.resource_version.to_string().into();
        let result = self.server.replace(policy.kind(), place, value);
        format!("{} says {spec}: {}", policy.show(), shown_result(result.as_ref()))
    }

    /// Gives an object a label that policies select by, or creates several with it at once, so that more than one run may delete.
    fn label(&self, random: &mut Random) -> String {
        let labels = json!({TIER: random.pick(&TIERS)});
        let mut objects = self.objects("ConfigMap");
        objects.extend(self.objects("Pod"));
        match Self::any(&objects, random).filter(|_| objects.len() > 5 || random.chance(400)) {
            Some(target) => self.merge(target, json!({"metadata": {"labels": labels}})),
            None => {
                let namespace = Truth::namespace(random.below(2));
                let create = |name: &&str| {
                    let metadata = json!({"name": name, "labels": labels});
                    self.create("ConfigMap", (namespace, name), json!({"metadata": metadata}))
                };
                NAMES.iter().skip(random.below(2)).map(create).collect::<Vec<_>>().join("; ")
            }
        }
    }

    fn annotate(&self, random: &mut Random) -> String {
        let objects: Vec<&TrueObject> = self.truth.objects().collect();
        let Some(target) = Self::any(&objects, random) else { return self.create_pod(random) };
        let at = time(self.now(random) + random.pick(&[-5 * SECOND, 5 * SECOND, 120 * SECOND, HOUR]));
        let annotations = match random.below(8) {
            0 | 1 => json!({"kubegc.io/ttl": random.pick(&["0s", "10s", "2m", "1h"])}),
            2 => json!({"kubegc.io/expires-at": at}),
            3 | 4 => json!({"kubegc.io/keep": random.pick(&["true", "true", "yes"])}),
            5 => json!({"kubegc.io/keep": null}),
            6 => json!({"kubegc.io/ttl": "soon"}),
            _ => json!({"kubegc.io/ttl": null, "kubegc.io/expires-at": null}),
        };
        self.merge(target, json!({"metadata": {"annotations": annotations}}))
    }
}
