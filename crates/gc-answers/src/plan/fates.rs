//! What becomes of each object, and why, in words.

use std::collections::{BTreeMap, BTreeSet};

use gc_ownership::{NodeView, Progress};
use gc_types::Uid;

use super::planner::{Planner, Stages, When, survey_view};
use super::{BlastRadius, Fate, Item};
use crate::map::place_of_view;
use crate::text;

/// The remark on an object whose deletion does not begin before something that hangs is released, and which hangs then.
pub const PUT_OFF: &str = "not deleted before what hangs is released";

type Fates = BTreeMap<Uid, (NodeView, Fate)>;

fn uids(views: &[NodeView]) -> BTreeSet<&Uid> {
    views.iter().map(|view| &view.uid).collect()
}

impl Planner<'_> {
    /// Compares what happens at once with what controllers make possible, and both with what may happen in the end.
    pub(super) fn fates(mut self, stages: &Stages) -> BlastRadius {
        let Stages { at_once, in_time, in_the_end, reached } = stages;
        let mut progress = Progress::default();
        progress.gone.extend(in_time.deleted.iter().map(|view| view.uid.clone()));
        let marked = in_time.deleted.iter().chain(&in_time.held).chain(&in_time.terminating);
        progress.marked.extend(marked.map(|view| view.uid.clone()));
        let (first, second) = (uids(&at_once.deleted), uids(&in_time.deleted));
        let stays: BTreeSet<&Uid> =
            in_time.held.iter().chain(&in_time.terminating).map(|view| &view.uid).collect();
        // What is held even when everything that hangs is released, in use by what stays.
        let stays_at_last: BTreeSet<&Uid> =
            in_the_end.held.iter().chain(&in_the_end.terminating).map(|view| &view.uid).collect();
        let mut fates = Fates::new();
        let staying = in_time.held.iter().chain(&in_time.terminating);
        let held_in_the_end = in_the_end.held.iter().chain(&in_the_end.terminating);
        let concerned = in_the_end.deleted.iter().chain(staying).chain(held_in_the_end);
        for view in concerned.filter(|view| reached.contains(&view.uid)) {
            let fate = if first.contains(&view.uid) {
                Fate::Deleted
            } else if second.contains(&view.uid) {
                Fate::Later
            } else if stays.contains(&view.uid) || stays_at_last.contains(&view.uid) {
                Fate::Hangs
            } else {
                // It waits for something that hangs.
                Fate::Later
            };
            fates.insert(view.uid.clone(), (view.clone(), fate));
        }
        for view in in_time.released.iter().filter(|view| reached.contains(&view.uid)) {
            fates.entry(view.uid.clone()).or_insert_with(|| (view.clone(), Fate::Released));
        }
        let reached =
            |uid: &Uid| fates.get(uid).is_some_and(|(_, fate)| matches!(fate, Fate::Deleted | Fate::Later));
        for consequence in self.consequences.drain(..).filter(|consequence| reached(&consequence.cause)) {
            self.remarks.entry(consequence.of).or_default().push(consequence.remark);
        }
        let mut radius = BlastRadius { steps: at_once.steps.clone(), ..BlastRadius::default() };
        let owner = |uid: &Uid| match self.survey.engine.view_of(uid) {
            Some(view) => format!("{}/{} ({uid})", view.kind, view.name),
            None => uid.to_string(),
        };
        radius.assumed_living = at_once.assumed_living.iter().map(owner).collect();
        for (uid, (view, fate)) in &fates {
            let will_end = second.contains(uid);
            self.remark(view, *fate, will_end, &progress, &mut radius.hangs);
            if *fate == Fate::Hangs && !stays.contains(uid) {
                self.remarks.entry(uid.clone()).or_default().insert(0, PUT_OFF.to_owned());
            }
        }
        self.recreated(&fates, &mut radius.recreated);
        for reached_volume in self.volumes.drain(..).filter(|volume| reached(&volume.claim)) {
            if reached_volume.is_retained {
                radius.retained_volumes.push(reached_volume.volume.name);
            } else {
                radius.lost_volumes.push(reached_volume.volume);
            }
        }
        self.list_items(fates, &mut radius);
        radius.hangs.sort();
        radius.hangs.dedup();
        radius
    }

    /// Says why an object is deleted later, or is stuck.
    fn remark(
        &mut self,
        view: &NodeView,
        fate: Fate,
        will_end: bool,
        progress: &Progress,
        hangs: &mut Vec<String>,
    ) {
        let Some(key) = view.key.as_ref().filter(|_| matches!(fate, Fate::Later | Fate::Hangs)) else {
            return;
        };
        let title = format!("{}/{}", view.kind, view.name);
        let mut remarks = Vec::new();
        if let Some(why) = self.holds.stuck(view, progress) {
            remarks.push(format!("stuck already: {why}"));
            hangs.push(format!("{title} is stuck already: {why}"));
        } else if let Some(why) = self.holds.silent_kubelet(view, progress).filter(|_| fate == Fate::Hangs) {
            remarks.push(format!("hangs: {why}"));
            hangs.push(format!("Pods wait: {why}"));
        }
        for finalizer in self.holds.foreign(key) {
            if let Some(controller) = self.holds.releasing(finalizer, key) {
                remarks.push(format!("later, when {controller} removes {finalizer}"));
            } else if fate == Fate::Hangs {
                let why = format!("no working controller was found that removes {finalizer}");
                hangs.push(format!("{title}: {why}"));
                remarks.push(format!("hangs: {why}"));
            }
        }
        let users = self.resource_of(key) == ("", "persistentvolumeclaims") && fate == Fate::Hangs;
        let users = if users { self.holds.staying_users(key, progress) } else { Vec::new() };
        if !users.is_empty() {
            let names: Vec<String> = users.into_iter().map(|user| user.name).collect();
            let why = format!("in use by {} {}", text::plural(names.len(), "Pod"), text::some_of(&names, 3));
            hangs.push(format!("{title} is {why}"));
            remarks.push(format!("hangs: {why}"));
        }
        let is_volume = self.resource_of(key) == ("", "persistentvolumes") && fate == Fate::Hangs;
        if let Some(claim) = is_volume.then(|| self.holds.staying_claim(key, progress)).flatten() {
            hangs.push(format!("{title} is bound to PersistentVolumeClaim {claim}"));
            remarks.push(format!("hangs: bound to PersistentVolumeClaim {claim}"));
        }
        remarks.extend(self.container_remark(&view.uid, &title, fate, hangs));
        if remarks.is_empty() {
            remarks.push(self.waits(&view.uid, fate, will_end, progress));
        }
        self.remarks.entry(view.uid.clone()).or_default().extend(remarks);
    }

    fn container_remark(
        &self,
        uid: &Uid,
        title: &str,
        fate: Fate,
        hangs: &mut Vec<String>,
    ) -> Option<String> {
        let container = self.containers.get(uid)?;
        if let Some(why) = &container.unlisted {
            hangs.push(format!("{title}: {why}, so its remaining objects are unknown"));
            return Some(format!("hangs: {why}"));
        }
        match fate {
            _ if container.inside.is_empty() => None,
            Fate::Hangs => Some("hangs with its contents".to_owned()),
            _ => Some("later, when its contents are gone".to_owned()),
        }
    }

    /// Why an object waits that nothing of its own holds.
    fn waits(&self, uid: &Uid, fate: Fate, will_end: bool, progress: &Progress) -> String {
        if fate == Fate::Hangs {
            return "hangs: it waits for a dependent that hangs".to_owned();
        }
        let when = if will_end { "later" } else { "later, only when what hangs is released" };
        let reasons = self.roots.get(uid).map_or(&[][..], |root| &root.reasons);
        let what = reasons.iter().find_map(|reason| match reason {
            When::Asked => None,
            When::Gone(other) => {
                survey_view(self.survey, other).map(|view| format!("{}/{} is gone", view.kind, view.name))
            }
            When::Contained { container, .. } => {
                let container =
                    self.containers.get(container).filter(|_| !self.is_due(reason, progress) || will_end)?;
                Some(format!("the pods of namespace {} are gone", container.key.name))
            }
        });
        format!("{when}: when {}", what.unwrap_or_else(|| "its owner is released".to_owned()))
    }

    /// What controllers and tools create again: objects whose controlling owner stays, and what tools track.
    fn recreated(&mut self, fates: &Fates, recreated: &mut Vec<String>) {
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
                let view = survey_view(self.survey, &owner.coordinates.uid);
                !is_going && view.is_some_and(|view| !view.deletion.deleting)
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

    fn list_items(&mut self, fates: Fates, radius: &mut BlastRadius) {
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
            radius.items.push(Item {
                place: place_of_view(self.survey, view),
                fate: *fate,
                remarks,
                is_terminating: view.deletion.deleting,
            });
        }
    }
}
