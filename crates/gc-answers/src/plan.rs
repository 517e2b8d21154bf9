//! What a deletion would lead to: the whole of it.

use std::collections::{BTreeMap, BTreeSet};

use gc_ownership::{NodeView, PlanError, PlanStep};
use gc_types::{ObjectKey, PropagationPolicy, Uid, parse_quantity};
use serde_json::{Value, json};

use crate::catalog::GroupResource;
use crate::facts::Facts;
use crate::finalizers;
use crate::stuck::{self, Code, Place};
use crate::survey::Survey;
use crate::text;

/// Finalizers that Kubernetes removes by itself as soon as what they wait for is done.
const SELF_RELEASING: [&str; 6] = [
    "batch.kubernetes.io/job-tracking",
    "customresourcecleanup.apiextensions.k8s.io",
    "foregroundDeletion",
    "kubernetes.io/pv-protection",
    "kubernetes.io/pvc-protection",
    "orphan",
];

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It is deleted.
    Deleted,
    /// It is deleted when the controllers of its finalizers have done their work.
    Later,
    /// It is marked for deletion and stays so.
    Hangs,
    /// It stays, and loses references to owners.
    Released,
}

impl Fate {
    /// The code.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deleted => "Deleted",
            Self::Later => "DeletedLater",
            Self::Hangs => "Hangs",
            Self::Released => "Released",
        }
    }
}

/// One object of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Which.
    pub place: Place,
    /// What becomes of it.
    pub fate: Fate,
    /// Why it is later, hangs, or comes again; one remark each.
    pub remarks: Vec<String>,
    /// Whether it was being deleted already.
    pub is_terminating: bool,
}

/// Storage that is lost with a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostVolume {
    /// The PersistentVolume.
    pub name: String,
    /// The claim, `namespace/name`.
    pub claim: String,
    /// Its capacity in bytes, if known.
    pub bytes: Option<i128>,
}

/// What a deletion would lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlastRadius {
    /// Every object concerned, by fate, kind and name.
    pub items: Vec<Item>,
    /// Volumes whose storage is lost.
    pub lost_volumes: Vec<LostVolume>,
    /// Volumes that stay without a claim.
    pub retained_volumes: Vec<String>,
    /// What hangs, in words.
    pub hangs: Vec<String>,
    /// What controllers create again.
    pub recreated: Vec<String>,
    /// Requests of the garbage collector, in an order in which they may happen.
    pub steps: Vec<PlanStep>,
    /// Edges for drawings: owner and dependent, by place in `items`.
    pub edges: Vec<(usize, usize)>,
    /// Owners that could not be looked up and count as living.
    pub assumed_living: Vec<String>,
}

/// One deletion that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Which object.
    pub key: ObjectKey,
    /// Its UID.
    pub uid: Uid,
    /// What happens to its dependents.
    pub policy: Option<PropagationPolicy>,
}

struct Planner<'a> {
    survey: &'a Survey,
    facts: &'a Facts,
    /// Deleted as a consequence of a rule other than ownership.
    roots: BTreeMap<Uid, (ObjectKey, Option<PropagationPolicy>)>,
    /// What waits for others: namespaces and definitions.
    containers: Vec<(Uid, ObjectKey)>,
    lost: Vec<LostVolume>,
    retained: Vec<String>,
    remarks: BTreeMap<Uid, Vec<String>>,
}

/// What these deletions would lead to, if everything else stayed as it is.
pub fn plan(
    survey: &Survey,
    facts: &Facts,
    targets: &[Target],
    limit: usize,
) -> Result<BlastRadius, PlanError> {
    let mut planner = Planner {
        survey,
        facts,
        roots: BTreeMap::new(),
        containers: Vec::new(),
        lost: Vec::new(),
        retained: Vec::new(),
        remarks: BTreeMap::new(),
    };
    for target in targets {
        planner.add(&target.key, target.uid.clone(), target.policy);
    }
    // Claims and volumes that the deletion reaches may bring further objects; each brings them once.
    loop {
        let known = planner.roots.len();
        let plan = planner.cascade(true, limit)?;
        for view in plan.deleted.iter().chain(&plan.held) {
            planner.consequences(view);
        }
        if planner.roots.len() == known {
            break;
        }
    }
    planner.finish(limit)
}

impl Planner<'_> {
    fn resource_of(&self, key: &ObjectKey) -> (String, String) {
        self.survey
            .resource(key)
            .map(|resource| (resource.name.group.to_string(), resource.name.resource.to_string()))
            .unwrap_or_default()
    }

    /// An object is deleted, with everything that Kubernetes deletes because of it other than dependents.
    fn add(&mut self, key: &ObjectKey, uid: Uid, policy: Option<PropagationPolicy>) {
        if self.roots.contains_key(&uid) {
            return;
        }
        self.roots.insert(uid.clone(), (key.clone(), policy));
        let (group, resource) = self.resource_of(key);
        let background = Some(PropagationPolicy::Background);
        match (&*group, &*resource) {
            ("", "namespaces") => {
                self.containers.push((uid, key.clone()));
                let inside = self.survey.engine.select(|inside| *inside.namespace == *key.name);
                self.add_all(inside, background);
            }
            ("apiextensions.k8s.io", "customresourcedefinitions") => {
                self.containers.push((uid, key.clone()));
                let name = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
                let Some(definition) = self.facts.present(&name, "", &key.name) else { return };
                let kind =
                    GroupResource::new(definition.text("/spec/group"), definition.text("/spec/names/plural"));
                if let Some(resource) = self.survey.catalog.named(&kind) {
                    let instances = self.survey.engine.select(|instance| instance.resource == resource.id);
                    self.add_all(instances, background);
                }
            }
            ("", "nodes") => self.add_pods_of(&key.name),
            _ => {}
        }
    }

    fn add_all(&mut self, views: Vec<NodeView>, policy: Option<PropagationPolicy>) {
        for view in views {
            if let Some(key) = view.key {
                self.add(&key, view.uid, policy);
            }
        }
    }

    fn add_pods_of(&mut self, node: &str) {
        let pods = GroupResource::new("", "pods");
        let facts = self.facts;
        let Some(id) = self.survey.catalog.named(&pods).map(|resource| resource.id) else { return };
        for pod in facts.all(&pods, "").iter().filter(|pod| pod.text("/spec/nodeName") == node) {
            let key = ObjectKey { resource: id, namespace: pod.namespace().into(), name: pod.name().into() };
            let uid = Uid::new(pod.uid());
            let remark = format!("deleted by the pod garbage collector, about a minute after node {node}");
            self.remarks.entry(uid.clone()).or_default().push(remark);
            self.add(&key, uid, Some(PropagationPolicy::Background));
        }
    }

    /// What follows from the deletion of an object other than the deletion of its dependents: a claim's volume.
    fn consequences(&mut self, view: &NodeView) {
        let Some(key) = view.key.clone() else { return };
        if self.resource_of(&key) != (String::new(), "persistentvolumeclaims".to_owned()) {
            return;
        }
        let (claims, volumes) =
            (GroupResource::new("", "persistentvolumeclaims"), GroupResource::new("", "persistentvolumes"));
        let facts = self.facts;
        let Some(claim) = facts.present(&claims, &key.namespace, &key.name) else { return };
        let name = claim.text("/spec/volumeName");
        if name.is_empty()
            || self.lost.iter().any(|lost| lost.name == name)
            || self.retained.iter().any(|kept| kept == name)
        {
            return;
        }
        let Some(volume) = facts.present(&volumes, "", name) else { return };
        if volume.text("/spec/claimRef/uid") != claim.uid() {
            return;
        }
        if volume.text("/spec/persistentVolumeReclaimPolicy") != "Delete" {
            self.retained.push(name.to_owned());
            return;
        }
        self.lost.push(LostVolume {
            name: name.to_owned(),
            claim: format!("{}/{}", key.namespace, key.name),
            bytes: parse_quantity(volume.text("/spec/capacity/storage")),
        });
        if let Some(id) = self.survey.catalog.named(&volumes).map(|resource| resource.id) {
            let key = ObjectKey { resource: id, namespace: "".into(), name: name.into() };
            let uid = Uid::new(volume.uid());
            self.remarks
                .entry(uid.clone())
                .or_default()
                .push("its storage is deleted by reclaim policy Delete".into());
            self.add(&key, uid, Some(PropagationPolicy::Background));
        }
    }

    /// The cascade by the collector's own engine; with `all` as if every finalizer were removed in time.
    fn cascade(&self, all: bool, limit: usize) -> Result<gc_ownership::Plan, PlanError> {
        self.cascade_where(|uid| all || self.releases_itself(uid), limit)
    }

    /// What waits in foreground deletion for something that hangs, hangs as well.
    fn waiting_for_hanging(
        &mut self,
        fates: &mut BTreeMap<Uid, (NodeView, Fate)>,
        limit: usize,
    ) -> Result<(), PlanError> {
        let hanging: BTreeSet<Uid> =
            fates.iter().filter(|(_, (_, fate))| *fate == Fate::Hangs).map(|(uid, _)| uid.clone()).collect();
        if hanging.is_empty() {
            return Ok(());
        }
        let plan = self.cascade_where(|uid| !hanging.contains(uid), limit)?;
        for view in plan.held.iter().chain(&plan.terminating) {
            if let Some((_, fate)) = fates.get_mut(&view.uid).filter(|(_, fate)| *fate == Fate::Later) {
                *fate = Fate::Hangs;
                self.remarks
                    .insert(view.uid.clone(), vec!["hangs: it waits for a dependent that hangs".into()]);
            }
        }
        Ok(())
    }

    fn cascade_where(
        &self,
        releases: impl Fn(&Uid) -> bool,
        limit: usize,
    ) -> Result<gc_ownership::Plan, PlanError> {
        let mut roots: Vec<(Uid, Option<PropagationPolicy>)> = Vec::new();
        for (uid, (key, policy)) in &self.roots {
            // What a survey of one namespace has not seen cannot be planned.
            let known = self.survey.engine.view_of(uid);
            if known.is_some_and(|view| {
                view.presence == gc_ownership::Presence::Observed && view.key.as_ref() == Some(key)
            }) {
                roots.push((uid.clone(), *policy));
            }
        }
        self.survey.engine.plan_all(&roots, releases, limit)
    }

    /// Whether Kubernetes removes all finalizers of an object by itself.
    fn releases_itself(&self, uid: &Uid) -> bool {
        let key = self.survey.engine.view_of(uid).and_then(|view| view.key);
        let finalizers = key.as_ref().map_or(&[][..], |key| self.survey.finalizers(key));
        finalizers.iter().all(|finalizer| SELF_RELEASING.contains(&finalizer.as_str()))
    }

    fn finish(mut self, limit: usize) -> Result<BlastRadius, PlanError> {
        let at_once = self.cascade(false, limit)?;
        let in_the_end = self.cascade(true, limit)?;
        let uids =
            |views: &[NodeView]| -> BTreeSet<Uid> { views.iter().map(|view| view.uid.clone()).collect() };
        let (gone, held) = (uids(&at_once.deleted), uids(&at_once.held));
        let going = uids(&in_the_end.deleted);
        let mut radius = BlastRadius { steps: at_once.steps, ..BlastRadius::default() };
        radius.assumed_living = at_once.assumed_living.iter().map(ToString::to_string).collect();
        let mut fates: BTreeMap<Uid, (NodeView, Fate)> = BTreeMap::new();
        let remaining = at_once.held.iter().chain(&at_once.terminating);
        for view in in_the_end.deleted.iter().chain(remaining).chain(&at_once.deleted) {
            let fate = if gone.contains(&view.uid) { Fate::Deleted } else { Fate::Later };
            fates.insert(view.uid.clone(), (view.clone(), fate));
        }
        for view in at_once.released.iter().filter(|view| !going.contains(&view.uid)) {
            fates.insert(view.uid.clone(), (view.clone(), Fate::Released));
        }
        self.held(&mut fates, &held, &going, &mut radius.hangs);
        self.waiting_for_hanging(&mut fates, limit)?;
        self.containers(&mut fates, &mut radius.hangs);
        self.recreated(&fates, &mut radius.recreated);
        self.list_items(fates, &mut radius);
        radius.lost_volumes = self.lost;
        radius.retained_volumes = self.retained;
        radius.hangs.sort();
        radius.hangs.dedup();
        Ok(radius)
    }

    /// Says of what is held by finalizers who releases it, and which dependents wait for that.
    fn held(
        &mut self,
        fates: &mut BTreeMap<Uid, (NodeView, Fate)>,
        held: &BTreeSet<Uid>,
        going: &BTreeSet<Uid>,
        hangs: &mut Vec<String>,
    ) {
        let stuck_already = self.stuck_already();
        for (uid, (view, fate)) in fates.iter_mut() {
            let Some(key) = &view.key else { continue };
            let foreign: Vec<String> = self
                .survey
                .finalizers(key)
                .iter()
                .filter(|finalizer| !SELF_RELEASING.contains(&finalizer.as_str()))
                .cloned()
                .collect();
            let title = format!("{}/{}", view.kind, view.name);
            let is_held =
                held.contains(uid) || (going.contains(uid) && view.deletion.deleting && !foreign.is_empty());
            // A deletion replaces the finalizers of an earlier one, and the plan assumes that a collector is at work.
            let already = stuck_already.get(&uid.to_string());
            if let Some((_, why)) =
                already.filter(|(code, _)| *fate != Fate::Deleted || !is_for_collector(*code))
            {
                *fate = Fate::Hangs;
                self.remarks.entry(uid.clone()).or_default().push(format!("stuck already: {why}"));
                hangs.push(format!("{title} is stuck already: {why}"));
            } else if is_held {
                for finalizer in &foreign {
                    let controllers = finalizers::responsible(finalizer, &[], self.facts);
                    let known = finalizers::known_controller(finalizer);
                    let works = controllers.iter().find(|controller| controller.works);
                    let remark = match (works, known) {
                        (Some(controller), _) => {
                            format!("later, when {} removes {finalizer}", controller.message())
                        }
                        (None, Some(known)) if controllers.is_empty() => {
                            format!("later, when {known} removes {finalizer}")
                        }
                        (None, _) => {
                            *fate = Fate::Hangs;
                            let remark =
                                format!("hangs: no working controller was found that removes {finalizer}");
                            hangs.push(format!(
                                "{title}: no working controller was found that removes {finalizer}"
                            ));
                            remark
                        }
                    };
                    self.remarks.entry(uid.clone()).or_default().push(remark);
                }
            } else if *fate == Fate::Later {
                self.remarks.entry(uid.clone()).or_default().push("later, when its owner is released".into());
            }
            self.used(uid, view, fates_of(going), fate, hangs);
        }
    }

    /// A claim that a pod uses which stays.
    fn used(
        &mut self,
        uid: &Uid,
        view: &NodeView,
        is_going: impl Fn(&str) -> bool,
        fate: &mut Fate,
        hangs: &mut Vec<String>,
    ) {
        let Some(key) = &view.key else { return };
        if *fate == Fate::Released
            || self.resource_of(key) != (String::new(), "persistentvolumeclaims".to_owned())
        {
            return;
        }
        let claims = GroupResource::new("", "persistentvolumeclaims");
        let Some(claim) = self.facts.present(&claims, &key.namespace, &key.name) else { return };
        let users = stuck::users(claim, self.facts);
        let staying: Vec<String> =
            users.iter().filter(|pod| !is_going(pod.uid())).map(|pod| pod.name().to_owned()).collect();
        if !staying.is_empty()
            && claim.texts("/metadata/finalizers").any(|name| name == "kubernetes.io/pvc-protection")
        {
            *fate = Fate::Hangs;
            let remark =
                format!("in use by {} {}", text::plural(staying.len(), "Pod"), text::some_of(&staying, 3));
            hangs.push(format!("PersistentVolumeClaim/{} is {remark}", key.name));
            self.remarks.entry(uid.clone()).or_default().push(format!("hangs: {remark}"));
            self.lost.retain(|lost| lost.claim != format!("{}/{}", key.namespace, key.name));
        }
    }

    fn stuck_already(&self) -> BTreeMap<String, (Code, String)> {
        let mut stuck = BTreeMap::new();
        for row in stuck::diagnose(self.survey, self.facts) {
            for (place, _) in row.objects.iter().filter(|_| row.since.is_some()) {
                stuck.entry(place.uid.clone()).or_insert_with(|| (row.cause.code, row.cause.message.clone()));
            }
        }
        stuck
    }

    /// Namespaces and definitions go when everything in them is gone.
    fn containers(&mut self, fates: &mut BTreeMap<Uid, (NodeView, Fate)>, hangs: &mut Vec<String>) {
        for (uid, key) in &self.containers {
            let (_, resource) = self.resource_of(key);
            let instance = self.instance_resource(key);
            let inside = |view: &NodeView| {
                view.key.as_ref().is_some_and(|inner| {
                    if resource == "namespaces" {
                        *inner.namespace == *key.name
                    } else {
                        Some(inner.resource) == instance
                    }
                })
            };
            let worst = fates.values().filter(|(view, _)| inside(view)).map(|(_, fate)| *fate).max();
            let mut remark = match worst {
                Some(Fate::Hangs) => Some((Fate::Hangs, "hangs with its contents".to_owned())),
                Some(Fate::Later | Fate::Released) => {
                    Some((Fate::Later, "later, when its contents are gone".to_owned()))
                }
                _ => None,
            };
            let failed = &self.survey.catalog.failed;
            if resource == "namespaces" && !failed.is_empty() {
                let names = text::some_of(failed, 3);
                let title = format!("Namespace/{}", key.name);
                hangs.push(format!(
                    "{title}: discovery of {names} fails, so its remaining objects are unknown"
                ));
                remark = Some((Fate::Hangs, format!("hangs: discovery of {names} fails")));
            }
            if let (Some((fate, remark)), Some((_, known))) = (remark, fates.get_mut(uid)) {
                *known = (*known).max(fate);
                self.remarks.entry(uid.clone()).or_default().push(remark);
            }
        }
    }

    fn instance_resource(&self, definition: &ObjectKey) -> Option<gc_types::ResourceId> {
        let (plural, group) = definition.name.split_once('.')?;
        self.survey.catalog.named(&GroupResource::new(group, plural)).map(|resource| resource.id)
    }

    /// What controllers and tools create again: objects whose controlling owner stays, and what tools track.
    fn recreated(&mut self, fates: &BTreeMap<Uid, (NodeView, Fate)>, recreated: &mut Vec<String>) {
        for (uid, (view, fate)) in fates {
            let Some(key) = view.key.as_ref().filter(|_| *fate != Fate::Released) else { continue };
            let title = format!("{}/{}", view.kind, view.name);
            let owner = self.survey.engine.why(uid).and_then(|why| {
                let controls = |owner: &gc_types::OwnerReference| owner.controller == Some(true);
                why.references.into_iter().map(|(owner, _)| owner).find(controls)
            });
            let living_owner = owner.filter(|owner| {
                let is_going =
                    fates.get(&owner.coordinates.uid).is_some_and(|(_, fate)| *fate != Fate::Released);
                let view = self.survey.engine.view_of(&owner.coordinates.uid);
                !is_going
                    && view.is_some_and(|view| {
                        view.presence == gc_ownership::Presence::Observed && !view.deletion.deleting
                    })
            });
            let mut remarks = Vec::new();
            if let Some(owner) = living_owner {
                remarks.push(format!(
                    "{} {} will recreate this",
                    owner.coordinates.kind, owner.coordinates.name
                ));
            }
            // Dependents of an owner that a tool tracks are recreated by the owner.
            if self.roots.contains_key(uid)
                && let Some(recreator) = self.survey.recreator(key)
            {
                remarks.push(recreator.message());
            }
            for remark in remarks {
                recreated.push(format!("{title}: {remark}"));
                self.remarks.entry(uid.clone()).or_default().push(remark);
            }
        }
    }

    fn list_items(&mut self, fates: BTreeMap<Uid, (NodeView, Fate)>, radius: &mut BlastRadius) {
        let mut views: Vec<(NodeView, Fate)> = fates.into_values().collect();
        views.sort_by(|left, right| {
            (left.1, &left.0.kind, &left.0.key).cmp(&(right.1, &right.0.kind, &right.0.key))
        });
        let places: BTreeMap<Uid, usize> =
            views.iter().enumerate().map(|(number, (view, _))| (view.uid.clone(), number)).collect();
        for (number, (view, fate)) in views.iter().enumerate() {
            for dependent in self.survey.engine.dependents(&view.uid) {
                if let Some(other) = places.get(&dependent.uid) {
                    radius.edges.push((number, *other));
                }
            }
            let remarks = self.remarks.remove(&view.uid).unwrap_or_default();
            let resource = view.key.as_ref().and_then(|key| self.survey.resource(key));
            radius.items.push(Item {
                place: Place {
                    api_version: view.api_version.to_string(),
                    kind: view.kind.to_string(),
                    resource: resource.map(|resource| resource.name.to_string()).unwrap_or_default(),
                    namespace: view.key.as_ref().map(|key| key.namespace.to_string()).unwrap_or_default(),
                    name: view.name.to_string(),
                    uid: view.uid.to_string(),
                },
                fate: *fate,
                remarks,
                is_terminating: view.deletion.deleting,
            });
        }
    }
}

/// Whether a cause is that no garbage collector acts.
fn is_for_collector(code: Code) -> bool {
    matches!(code, Code::CollectorAbsent | Code::DependentNotDeleted | Code::ForegroundFinalizerApplied)
}

fn fates_of(going: &BTreeSet<Uid>) -> impl Fn(&str) -> bool {
    |uid| going.contains(&Uid::new(uid))
}

impl BlastRadius {
    /// Whether something would never be deleted.
    #[must_use]
    pub fn hangs(&self) -> bool {
        !self.hangs.is_empty() || self.items.iter().any(|item| item.fate == Fate::Hangs)
    }

    /// How many objects have this fate.
    #[must_use]
    pub fn count(&self, fate: Fate) -> usize {
        self.items.iter().filter(|item| item.fate == fate).count()
    }

    /// In one line: how many objects of which kinds, what storage is lost, what hangs.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        let going: Vec<&Item> = self.items.iter().filter(|item| item.fate != Fate::Released).collect();
        for item in &going {
            *kinds.entry(&item.place.kind).or_default() += 1;
        }
        let mut kinds: Vec<(&str, usize)> = kinds.into_iter().collect();
        kinds.sort_by_key(|(kind, number)| (std::cmp::Reverse(*number), *kind));
        let named: Vec<String> = kinds.iter().map(|(kind, number)| text::count(*number, kind)).collect();
        let mut parts = vec![format!("{}: {}", text::count(going.len(), "object"), text::some_of(&named, 6))];
        let volumes = self.lost_volumes.len();
        if volumes > 0 {
            let bytes: i128 = self.lost_volumes.iter().filter_map(|volume| volume.bytes).sum();
            let verb = if volumes == 1 { "is" } else { "are" };
            parts.push(format!("{} with {} {verb} lost", text::count(volumes, "volume"), gibibytes(bytes)));
        }
        for (fate, word) in [(Fate::Later, "deleted later"), (Fate::Released, "released")] {
            match self.count(fate) {
                0 => {}
                number => parts.push(format!("{} {word}", text::thousands(number))),
            }
        }
        parts.push(match self.count(Fate::Hangs) {
            0 if !self.hangs() => "nothing hangs".to_owned(),
            1 => "1 hangs".to_owned(),
            number => format!("{} hang", text::thousands(number)),
        });
        parts.join("; ")
    }

    /// As data.
    #[must_use]
    pub fn value(&self) -> Value {
        let item = |item: &Item| {
            let mut value = item.place.value();
            value["fate"] = item.fate.name().into();
            value["remarks"] = item.remarks.clone().into();
            value["terminating"] = item.is_terminating.into();
            value
        };
        let volume = |volume: &LostVolume| {
            let bytes = volume.bytes.and_then(|bytes| i64::try_from(bytes).ok());
            json!({"name": volume.name, "claim": volume.claim, "bytes": bytes})
        };
        json!({
            "summary": self.summary(), "items": self.items.iter().map(item).collect::<Vec<_>>(),
            "lostVolumes": self.lost_volumes.iter().map(volume).collect::<Vec<_>>(),
            "retainedVolumes": self.retained_volumes, "hangs": self.hangs, "recreated": self.recreated,
            "assumedLiving": self.assumed_living,
        })
    }
}

/// Bytes in the unit that fits.
#[must_use]
pub fn gibibytes(bytes: i128) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB")] {
        if bytes >= 1 << shift {
            let tenths = (bytes * 10) >> shift;
            let fraction = if tenths % 10 == 0 { String::new() } else { format!(".{}", tenths % 10) };
            return format!("{}{fraction} {unit}", tenths / 10);
        }
    }
    format!("{bytes} bytes")
}
