//! Random graphs of every kind that plans know about.

use gc_types::PropagationPolicy;
use serde_json::{Value, json};

/// A finalizer that no controller removes.
pub(super) const HELD: &str = "example.com/hold";
/// A finalizer whose controller holds a Lease, and is played by the test.
pub(super) const LATER: &str = "works.acme.dev/later";
pub(super) const NODE_LEASES: &str = "kube-node-lease";

/// Kinds in graphs, apart from those of definitions.
pub(super) const KINDS: [&str; 12] = [
    "ConfigMap",
    "CustomResourceDefinition",
    "EndpointSlice",
    "Endpoints",
    "Lease",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "Secret",
    "Service",
];
/// Prefix of the kinds of generated definitions.
pub(super) const DEFINED: &str = "Widget";

/// Seed of a separate generator for Services, which keeps the other objects of a graph unchanged.
const SERVICE_SALT: u64 = 0x5e21_71ce_0000_0001;
/// Percentage of graphs with Services.
const WITH_SERVICES: usize = 35;

const POLICIES: [Option<PropagationPolicy>; 4] = [
    Some(PropagationPolicy::Background),
    Some(PropagationPolicy::Foreground),
    Some(PropagationPolicy::Orphan),
    None,
];

/// splitmix64, which generates the same graphs everywhere.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// An owner that is not in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stray {
    /// Never existed.
    Absent,
    /// Its kind is not served.
    Unserved,
}

/// An object of a graph.
#[derive(Clone, Debug)]
pub(super) struct GraphObject {
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) finalizers: Vec<&'static str>,
    /// Owners by number, with whether the reference blocks.
    pub(super) owners: Vec<(usize, bool)>,
    pub(super) stray: Option<Stray>,
    /// By number: the node of a pod, the volume of a claim, the claim of a volume, the definition of a widget, or the Service of
    /// its Endpoints.
    pub(super) linked: Option<usize>,
    /// The claim that a pod uses, by number.
    pub(super) claim: Option<usize>,
    /// True if the volume is retained when its claim is gone.
    pub(super) is_retained: bool,
}

/// A graph, with what is deleted in it.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    pub(super) seed: u64,
    pub(super) things: Vec<GraphObject>,
    /// Objects that are deleted before the plan is made.
    pub(super) earlier: Vec<(usize, Option<PropagationPolicy>)>,
    /// Targets of the plan; `None` stands for the namespace.
    pub(super) targets: Vec<Option<usize>>,
    pub(super) policy: Option<PropagationPolicy>,
}

impl Graph {
    pub(super) fn new(seed: u64) -> Self {
        let mut growth = Growth { seed, things: Vec::new(), random: Random(seed) };
        for _ in 0..3 + growth.random.below(8) {
            growth.grow();
        }
        growth.connect();
        let Growth { things, mut random, .. } = growth;
        let count = things.len();
        let earlier = (0..random.pick(&[0, 0, 0, 1, 2]))
            .map(|_| (random.below(count), random.pick(&POLICIES)))
            .collect();
        let mut targets: Vec<Option<usize>> = Vec::new();
        for _ in 0..random.pick(&[1, 1, 1, 2, 3]) {
            let target = if random.chance(15) { None } else { Some(random.below(count)) };
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        // Targets that affect more than their dependents are chosen more often than by chance.
        let special = ["Node", "CustomResourceDefinition", "PersistentVolumeClaim"];
        let special = things.iter().position(|thing| special.contains(&thing.kind));
        if special.is_some() && random.chance(50) {
            targets = vec![special];
        }
        let graph = Self { seed, things, earlier, targets, policy: random.pick(&POLICIES) };
        graph.with_services()
    }

    /// Adds Services with the objects that controllers create for them: Endpoints of the same name, and slices that they own.
    fn with_services(mut self) -> Self {
        let random = Random(self.seed ^ SERVICE_SALT);
        let mut growth = Growth { seed: self.seed, things: std::mem::take(&mut self.things), random };
        if growth.random.chance(WITH_SERVICES) {
            let mut services = Vec::new();
            for _ in 0..growth.random.pick(&[1, 1, 2]) {
                services.push(growth.add_service());
            }
            if growth.random.chance(60) {
                self.targets = vec![Some(growth.random.pick(&services))];
            }
        }
        self.things = growth.things;
        self
    }

    pub(super) fn namespace(&self) -> String {
        format!("g{}", self.seed)
    }
}

struct Growth {
    seed: u64,
    things: Vec<GraphObject>,
    random: Random,
}

impl Growth {
    fn add(&mut self, kind: &'static str, linked: Option<usize>) -> usize {
        let mut finalizers = Vec::new();
        for (finalizer, percent) in [(HELD, 7), (LATER, 7)] {
            if self.random.chance(percent) {
                finalizers.push(finalizer);
            }
        }
        // Some tools apply these finalizers to living objects; no object can have both.
        if self.random.chance(5) {
            finalizers.push(self.random.pick(&["foregroundDeletion", "orphan"]));
        }
        let stray = if self.random.chance(4) {
            Some(self.random.pick(&[Stray::Absent, Stray::Unserved]))
        } else {
            None
        };
        let (number, seed) = (self.things.len(), self.seed);
        let name = match kind {
            "CustomResourceDefinition" => format!("w{number}s.g{seed}.acme.dev"),
            // Names of cluster-scoped objects are distinguished by the seed.
            _ => format!("g{seed}-{}{number}", kind.to_lowercase()),
        };
        let is_retained = self.random.chance(30);
        let owners = Vec::new();
        self.things.push(GraphObject {
            kind,
            name,
            finalizers,
            owners,
            stray,
            linked,
            claim: None,
            is_retained,
        });
        number
    }

    fn add_service(&mut self) -> usize {
        let older = self.things.len();
        let service = self.add("Service", None);
        let owner = self.random.below(older);
        if self.random.chance(40) && self.things[owner].kind != "Lease" {
            let blocks = self.random.chance(60);
            self.things[service].owners.push((owner, blocks));
        }
        if self.random.chance(90) {
            let endpoints = self.add("Endpoints", Some(service));
            self.things[endpoints].name = self.things[service].name.clone();
        }
        for _ in 0..self.random.pick(&[0, 1, 1, 2]) {
            let slice = self.add("EndpointSlice", Some(service));
            self.things[slice].owners.push((service, true));
        }
        if self.random.chance(30) {
            let dependent = self.add("ConfigMap", None);
            let blocks = self.random.chance(60);
            self.things[dependent].owners.push((service, blocks));
        }
        service
    }

    fn some(&mut self, kind: &str) -> Option<usize> {
        let all: Vec<usize> =
            (0..self.things.len()).filter(|number| self.things[*number].kind == kind).collect();
        if all.is_empty() { None } else { Some(self.random.pick(&all)) }
    }

    fn grow(&mut self) {
        match self.random.below(100) {
            0..50 => {
                self.add("ConfigMap", None);
            }
            50..68 => {
                self.add("Secret", None);
            }
            68..84 => {
                let node = self.some("Node").filter(|_| self.random.chance(80));
                let claim = self.some("PersistentVolumeClaim").filter(|_| self.random.chance(60));
                let pod = self.add("Pod", node);
                self.things[pod].claim = claim;
            }
            84..92 => {
                let volume = self.add("PersistentVolume", None);
                let claim = self.add("PersistentVolumeClaim", Some(volume));
                self.things[volume].linked = Some(claim);
            }
            92..97 => {
                let node = self.add("Node", None);
                let lease = self.add("Lease", Some(node));
                self.things[lease].name = self.things[node].name.clone();
                self.things[lease].owners.push((node, false));
            }
            _ => {
                let definition = self.add("CustomResourceDefinition", None);
                for _ in 0..=self.random.below(3) {
                    self.add("Widget", Some(definition));
                }
            }
        }
    }

    fn connect(&mut self) {
        let count = self.things.len();
        for number in 0..count {
            let kind = self.things[number].kind;
            if kind == "Lease" {
                continue;
            }
            for _ in 0..self.random.pick(&[0, 1, 1, 1, 2, 3]) {
                // Mostly older objects, so that there are more chains than cycles.
                let bound = if self.random.chance(85) { number + 1 } else { count };
                let owner = self.random.below(bound);
                let owner_kind = self.things[owner].kind;
                let may = owner_kind != "Lease" && (!is_cluster_wide(kind) || is_cluster_wide(owner_kind));
                let known = self.things[number].owners.iter().any(|(known, _)| *known == owner);
                if may && !known && (owner != number || self.random.chance(10)) {
                    let blocks = self.random.chance(60);
                    self.things[number].owners.push((owner, blocks));
                }
            }
        }
    }
}

fn is_cluster_wide(kind: &str) -> bool {
    ["Node", "PersistentVolume", "CustomResourceDefinition"].contains(&kind)
}

impl Graph {
    /// Returns the namespace of an object.
    pub(super) fn namespace_of(&self, thing: &GraphObject) -> String {
        match thing.kind {
            "Lease" => NODE_LEASES.to_owned(),
            kind if is_cluster_wide(kind) => String::new(),
            _ => self.namespace(),
        }
    }

    pub(super) fn api_version(&self, thing: &GraphObject) -> String {
        match thing.kind {
            "Lease" => "coordination.k8s.io/v1".to_owned(),
            "CustomResourceDefinition" => "apiextensions.k8s.io/v1".to_owned(),
            "Widget" => format!("g{}.acme.dev/v1", self.seed),
            "EndpointSlice" => "discovery.k8s.io/v1".to_owned(),
            _ => "v1".to_owned(),
        }
    }

    /// Returns the kind as it is served: each definition has its own.
    pub(super) fn served_kind(thing: &GraphObject) -> String {
        match thing.linked.filter(|_| thing.kind == "Widget") {
            Some(definition) => format!("{DEFINED}{definition}"),
            None => thing.kind.to_owned(),
        }
    }

    /// Returns the manifest of an object, without its owners.
    pub(super) fn manifest(&self, number: usize, uids: &[String]) -> Value {
        let thing = &self.things[number];
        let mut manifest = json!({
            "apiVersion": self.api_version(thing), "kind": Self::served_kind(thing),
            "metadata": {"name": thing.name, "finalizers": thing.finalizers},
        });
        let linked = thing.linked.map(|linked| &self.things[linked]);
        let modes = json!(["ReadWriteOnce"]);
        match thing.kind {
            "Pod" => {
                manifest["spec"] = json!({"containers": [{"name": "c", "image": "i"}]});
                if let Some(node) = linked {
                    manifest["spec"]["nodeName"] = node.name.as_str().into();
                }
                if let Some(claim) = thing.claim {
                    let claim = json!({"claimName": self.things[claim].name});
                    manifest["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": claim}]);
                }
            }
            "PersistentVolumeClaim" => {
                let volume = linked.map(|volume| volume.name.as_str());
                manifest["spec"] = json!({"accessModes": modes, "volumeName": volume,
                                          "resources": {"requests": {"storage": "1Gi"}}});
            }
            "PersistentVolume" => {
                let policy = if thing.is_retained { "Retain" } else { "Delete" };
                manifest["spec"] = json!({
                    "capacity": {"storage": "1Gi"}, "accessModes": modes, "persistentVolumeReclaimPolicy": policy,
                    "csi": {"driver": "csi.acme.dev", "volumeHandle": thing.name}});
            }
            "Service" => {
                let selector = json!({"app": thing.name});
                manifest["spec"] =
                    json!({"clusterIP": "None", "selector": selector, "ports": [{"port": 80}]});
            }
            "Endpoints" => manifest["subsets"] = json!([]),
            "EndpointSlice" => {
                manifest["addressType"] = "IPv4".into();
                manifest["endpoints"] = json!([]);
                let service = linked.map(|service| service.name.as_str());
                manifest["metadata"]["labels"] = json!({"kubernetes.io/service-name": service,
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"});
            }
            "CustomResourceDefinition" => {
                let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
                let plural = format!("w{number}s");
                manifest["spec"] = json!({
                    "group": format!("g{}.acme.dev", self.seed), "scope": "Namespaced",
                    "names": {"plural": plural, "kind": format!("{DEFINED}{number}")},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]});
            }
            _ => {}
        }
        let known: Vec<Value> = self.references(number, uids);
        if !known.is_empty() {
            manifest["metadata"]["ownerReferences"] = known.into();
        }
        manifest
    }

    /// Returns the references to owners that have been created already.
    pub(super) fn references(&self, number: usize, uids: &[String]) -> Vec<Value> {
        let thing = &self.things[number];
        let known = thing.owners.iter().filter_map(|(owner, blocks)| {
            let uid = uids.get(*owner).filter(|uid| !uid.is_empty())?;
            let owner = &self.things[*owner];
            Some(json!({"apiVersion": self.api_version(owner), "kind": Self::served_kind(owner), "name": owner.name,
                        "uid": uid, "blockOwnerDeletion": blocks}))
        });
        let stray = thing.stray.map(|stray| {
            let api_version = if stray == Stray::Absent { "v1" } else { "absent.example/v1" };
            let uid = format!("0e2f1a34-5b6c-4d7e-8f90-{number:012}");
            json!({"apiVersion": api_version, "kind": "ConfigMap", "name": "absent", "uid": uid,
                   "blockOwnerDeletion": true})
        });
        known.chain(stray).collect()
    }
}
