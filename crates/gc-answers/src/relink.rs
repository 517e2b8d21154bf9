//! After a restore, dependents name owners by UIDs that are gone. This finds the owners that live in their place, on the
//! evidence of a backup, a journal, or a map: a name alone proves nothing, for an object that was deleted and created again
//! under its old name owns nothing of its predecessor.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::OwnerReference;
use serde_json::{Value, json};

use crate::catalog::GroupResource;
use crate::map::place_of_view;
use crate::object::Object;
use crate::stuck::Place;
use crate::survey::Survey;

/// Where an object was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty at cluster scope.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Identity {
    /// That of a whole object, with its UID.
    #[must_use]
    pub fn of(object: &Value) -> Option<(String, Self)> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let group = text("/apiVersion").split_once('/').map_or("", |(group, _)| group);
        let (uid, kind, name) = (text("/metadata/uid"), text("/kind"), text("/metadata/name"));
        let is_whole = !uid.is_empty() && !kind.is_empty() && !name.is_empty();
        is_whole.then(|| {
            let namespace = text("/metadata/namespace").to_owned();
            (
                uid.to_owned(),
                Self { group: group.to_owned(), kind: kind.to_owned(), namespace, name: name.to_owned() },
            )
        })
    }

    fn of_place(place: &Place) -> Self {
        Self {
            group: place.api_version.split_once('/').map_or("", |(group, _)| group).to_owned(),
            kind: place.kind.clone(),
            namespace: place.namespace.clone(),
            name: place.name.clone(),
        }
    }
}

/// What is known of UIDs of the past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Where the object of a UID was.
    pub identities: BTreeMap<String, Identity>,
    /// Which UID took its place, on somebody's word.
    pub map: BTreeMap<String, String>,
}

/// Why a reference stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// Nothing is known of the UID.
    NoEvidence,
    /// Nothing lives where the owner was.
    OwnerAbsent,
    /// The owner that lives there is being deleted.
    OwnerTerminating,
    /// The owner that was named is of another kind, or in a namespace that the object cannot refer to.
    OwnerUnfit,
    /// The object is being deleted, which cannot be stopped.
    Terminating,
}

impl Left {
    /// The code.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoEvidence => "NoEvidence",
            Self::OwnerAbsent => "OwnerAbsent",
            Self::OwnerTerminating => "OwnerTerminating",
            Self::OwnerUnfit => "OwnerUnfit",
            Self::Terminating => "Terminating",
        }
    }

    /// For people.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::NoEvidence => "nothing says what the UID was",
            Self::OwnerAbsent => "the owner was not restored",
            Self::OwnerTerminating => "the owner is being deleted",
            Self::OwnerUnfit => "the owner is of another kind, or in another namespace",
            Self::Terminating => "the object is being deleted already",
        }
    }
}

/// What becomes of one reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The object that refers.
    pub place: Place,
    /// Whom it refers to, as it is written.
    pub owner: String,
    /// The UID that is written.
    pub old: String,
    /// The UID that will be, or why none.
    pub new: Result<String, Left>,
}

impl Link {
    fn value(&self) -> Value {
        json!({
            "object": self.place.value(), "owner": self.owner, "oldUID": self.old,
            "newUID": self.new.as_ref().ok(), "left": self.new.as_ref().err().map(|left| left.name()),
        })
    }
}

/// A change of one object: a merge patch that holds for one version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The object.
    pub place: Place,
    /// Its resource.
    pub resource: GroupResource,
    /// The patch.
    pub body: Value,
}

/// What a relink does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relink {
    /// Every reference that leads nowhere.
    pub links: Vec<Link>,
    /// The changes.
    pub patches: Vec<Patch>,
}

impl Relink {
    /// As data.
    #[must_use]
    pub fn value(&self) -> Value {
        json!({"items": self.links.iter().map(Link::value).collect::<Vec<_>>(), "patches": self.patches.len()})
    }
}

/// Decides for every owner reference of a survey, and for the claims of these volumes.
#[must_use]
pub fn relink(survey: &Survey, volumes: &[Object], evidence: &Evidence) -> Relink {
    let relinker = Relinker::new(survey, evidence);
    let mut found = Relink::default();
    for (place, view) in &relinker.objects {
        let Some(why) = survey.engine.why(&view.uid) else { continue };
        let references: Vec<OwnerReference> =
            why.references.into_iter().map(|(reference, _)| reference).collect();
        let Some(resource) = view.key.as_ref().and_then(|key| survey.resource(key)) else { continue };
        let links: Vec<Option<Link>> = references
            .iter()
            .map(|reference| relinker.reference(place, view.deletion.deleting, reference))
            .collect();
        if links.iter().flatten().any(|link| link.new.is_ok()) {
            let mut owners: Vec<Value> = Vec::new();
            for (reference, link) in references.iter().zip(&links) {
                let new = link.as_ref().and_then(|link| link.new.as_ref().ok());
                let owner = relinker.owner_value(reference, new);
                // Two references to one owner are one.
                if owners.iter().all(|known| known["uid"] != owner["uid"]) {
                    owners.push(owner);
                }
            }
            let body = json!({"metadata": {
                "uid": place.uid, "resourceVersion": view.resource_version.to_string(), "ownerReferences": owners,
            }});
            found.patches.push(Patch { place: place.clone(), resource: resource.name.clone(), body });
        }
        found.links.extend(links.into_iter().flatten());
    }
    for volume in volumes {
        relinker.volume(volume, &mut found);
    }
    found.links.sort_by(|a, b| (&a.place, &a.old).cmp(&(&b.place, &b.old)));
    found
}

struct Relinker<'a> {
    evidence: &'a Evidence,
    objects: Vec<(Place, gc_ownership::NodeView)>,
    living: BTreeSet<String>,
    by_identity: BTreeMap<Identity, usize>,
    by_uid: BTreeMap<String, usize>,
}

impl<'a> Relinker<'a> {
    fn new(survey: &Survey, evidence: &'a Evidence) -> Self {
        let views = survey.engine.select(|_| true);
        let objects: Vec<(Place, gc_ownership::NodeView)> =
            views.into_iter().map(|view| (place_of_view(survey, &view), view)).collect();
        let living = objects.iter().map(|(place, _)| place.uid.clone()).collect();
        let by_identity = objects
            .iter()
            .enumerate()
            .map(|(number, (place, _))| (Identity::of_place(place), number))
            .collect();
        let by_uid =
            objects.iter().enumerate().map(|(number, (place, _))| (place.uid.clone(), number)).collect();
        Self { evidence, objects, living, by_identity, by_uid }
    }

    /// What becomes of a reference, if it leads nowhere.
    fn reference(&self, place: &Place, is_terminating: bool, reference: &OwnerReference) -> Option<Link> {
        let owner = &reference.coordinates;
        let old = owner.uid.to_string();
        if self.living.contains(&old) {
            return None;
        }
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let new = if is_terminating {
            Err(Left::Terminating)
        } else {
            self.successor(&old).and_then(|number| {
                let (new, _) = &self.objects[number];
                let identity = Identity::of_place(new);
                let is_visible = identity.namespace.is_empty() || identity.namespace == place.namespace;
                let is_fit = identity.group == group && identity.kind == *owner.kind && is_visible;
                if is_fit { Ok(new.uid.clone()) } else { Err(Left::OwnerUnfit) }
            })
        };
        Some(Link { place: place.clone(), owner: format!("{}/{}", owner.kind, owner.name), old, new })
    }

    /// The living object in the place of a UID.
    fn successor(&self, old: &str) -> Result<usize, Left> {
        let number = match (self.evidence.map.get(old), self.evidence.identities.get(old)) {
            (Some(new), _) => self.by_uid.get(new),
            (None, Some(identity)) => self.by_identity.get(identity),
            (None, None) => return Err(Left::NoEvidence),
        };
        let number = *number.ok_or(Left::OwnerAbsent)?;
        if self.objects[number].1.deletion.deleting { Err(Left::OwnerTerminating) } else { Ok(number) }
    }

    fn owner_value(&self, reference: &OwnerReference, new: Option<&String>) -> Value {
        let owner = &reference.coordinates;
        let name =
            new.and_then(|uid| self.by_uid.get(uid)).map(|number| self.objects[*number].0.name.clone());
        let mut value = json!({
            "apiVersion": &*owner.api_version, "kind": &*owner.kind,
            "name": name.unwrap_or_else(|| owner.name.to_string()),
            "uid": new.cloned().unwrap_or_else(|| owner.uid.to_string()),
        });
        if let Some(controller) = reference.controller {
            value["controller"] = controller.into();
        }
        if let Some(block) = reference.block_owner_deletion {
            value["blockOwnerDeletion"] = block.into();
        }
        value
    }

    /// A volume whose claim has another UID than it had.
    fn volume(&self, volume: &Object, found: &mut Relink) {
        let (namespace, name, old) = (
            volume.text("/spec/claimRef/namespace"),
            volume.text("/spec/claimRef/name"),
            volume.text("/spec/claimRef/uid"),
        );
        if old.is_empty() || self.living.contains(old) {
            return;
        }
        let new = if volume.is_terminating() {
            Err(Left::Terminating)
        } else {
            self.successor(old).and_then(|number| {
                let (new, _) = &self.objects[number];
                let is_fit = (new.kind.as_str(), new.namespace.as_str(), new.name.as_str())
                    == ("PersistentVolumeClaim", namespace, name);
                if is_fit { Ok(new.uid.clone()) } else { Err(Left::OwnerUnfit) }
            })
        };
        let place = Place {
            api_version: "v1".into(),
            kind: "PersistentVolume".into(),
            resource: "persistentvolumes".into(),
            namespace: String::new(),
            name: volume.name().to_owned(),
            uid: volume.uid().to_owned(),
        };
        if let Ok(new) = &new {
            // Without the version of the old claim, the binder takes the reference for one of this claim.
            let body = json!({
                "metadata": {"uid": place.uid, "resourceVersion": volume.text("/metadata/resourceVersion")},
                "spec": {"claimRef": {"uid": new, "resourceVersion": null}},
            });
            let resource = GroupResource::new("", "persistentvolumes");
            found.patches.push(Patch { place: place.clone(), resource, body });
        }
        let owner = format!("PersistentVolumeClaim/{name}");
        found.links.push(Link { place, owner, old: old.to_owned(), new });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use gc_types::{Outcome, ResourceId, Timestamp};

    use super::*;
    use crate::catalog::Catalog;

    fn survey(objects: &[(&str, &str, &[(&str, &str)], bool)]) -> Survey {
        let core = br#"{"items":[{"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"configmaps",
            "responseKind":{"kind":"ConfigMap"},"scope":"Namespaced","verbs":["list","delete"]},
            {"resource":"persistentvolumeclaims","responseKind":{"kind":"PersistentVolumeClaim"},
            "scope":"Namespaced","verbs":["list","delete"]}]}]}]}"#;
        let mut survey = Survey::new(Catalog::read(core, br#"{"items":[]}"#).unwrap(), Timestamp(1_000));
        for (kind, name, owners, terminating) in objects {
            let owners: Vec<Value> = owners
                .iter()
                .map(|(name, uid)| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": true}))
                .collect();
            let mut object = json!({"metadata": {"namespace": "n", "name": name, "uid": format!("new-{name}"),
                "resourceVersion": "7", "ownerReferences": owners}});
            if *terminating {
                object["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z".into();
            }
            let id = survey.catalog.of_kind("v1", kind).unwrap().id;
            survey.observe(id, serde_json::from_value(object).unwrap());
        }
        survey.listed(ResourceId(0), gc_types::ResourceVersion(9));
        survey.complete();
        while let Some((id, _)) = survey.next_read() {
            survey.answer_read(id, Outcome::Absent);
        }
        survey
    }

    fn identity(name: &str) -> Identity {
        Identity { group: String::new(), kind: "ConfigMap".into(), namespace: "n".into(), name: name.into() }
    }

    fn shown(found: &Relink) -> Vec<String> {
        let line = |link: &Link| {
            let new = link.new.as_ref().map_or_else(|left| left.name().to_owned(), Clone::clone);
            format!("{} {} {} → {new}", link.place.name, link.owner, link.old)
        };
        found.links.iter().map(line).collect()
    }

    #[test]
    fn references_are_rewritten_on_evidence_alone() {
        let survey = survey(&[
            ("ConfigMap", "root", &[], false),
            ("ConfigMap", "ending", &[], true),
            ("ConfigMap", "fine", &[("root", "new-root")], false),
            ("ConfigMap", "child", &[("root", "old-root"), ("root", "new-root")], false),
            ("ConfigMap", "named", &[("root", "old-named")], false),
            ("ConfigMap", "lost", &[("root", "old-unknown")], false),
            ("ConfigMap", "late", &[("root", "old-root")], true),
            ("ConfigMap", "orphan", &[("gone", "old-gone")], false),
            ("ConfigMap", "below", &[("ending", "old-ending")], false),
            ("PersistentVolumeClaim", "claim", &[], false),
            ("ConfigMap", "mixed", &[("claim", "old-claim")], false),
        ]);
        let mut evidence = Evidence::default();
        for name in ["root", "gone", "ending"] {
            evidence.identities.insert(format!("old-{name}"), identity(name));
        }
        evidence.map.insert("old-named".into(), "new-root".into());
        evidence.map.insert("old-claim".into(), "new-claim".into());
        let found = relink(&survey, &[], &evidence);
        assert_eq!(
            shown(&found),
            [
                "below ConfigMap/ending old-ending → OwnerTerminating",
                "child ConfigMap/root old-root → new-root",
                "late ConfigMap/root old-root → Terminating",
                "lost ConfigMap/root old-unknown → NoEvidence",
                "mixed ConfigMap/claim old-claim → OwnerUnfit",
                "named ConfigMap/root old-named → new-root",
                "orphan ConfigMap/gone old-gone → OwnerAbsent",
            ]
        );
        let child = found.patches.iter().find(|patch| patch.place.name == "child").unwrap();
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "root", "uid": "new-root", "controller": true});
        assert_eq!(
            child.body,
            json!({"metadata": {"uid": "new-child", "resourceVersion": "7", "ownerReferences": [owner]}})
        );
        assert_eq!(found.patches.len(), 2);
    }

    #[test]
    fn volumes_follow_their_claims() {
        let survey = survey(&[("PersistentVolumeClaim", "data", &[], false)]);
        let volume = |name: &str, claim: &str, uid: &str| {
            Object::new(
                json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "5"},
                "spec": {"claimRef": {"kind": "PersistentVolumeClaim", "namespace": "n", "name": claim, "uid": uid}}}),
            )
        };
        let volumes = [
            volume("a", "data", "old"),
            volume("b", "data", "new-data"),
            volume("c", "data", "unknown"),
            volume("d", "other", "old"),
            volume("e", "data", ""),
        ];
        let claim = Identity { kind: "PersistentVolumeClaim".into(), ..identity("data") };
        let evidence =
            Evidence { identities: BTreeMap::from([("old".into(), claim)]), ..Evidence::default() };
        let found = relink(&survey, &volumes, &evidence);
        assert_eq!(
            shown(&found),
            [
                "a PersistentVolumeClaim/data old → new-data",
                "c PersistentVolumeClaim/data unknown → NoEvidence",
                "d PersistentVolumeClaim/other old → OwnerUnfit",
            ]
        );
        assert_eq!(
            found.patches.iter().map(|patch| patch.body.clone()).collect::<Vec<_>>(),
            [json!({"metadata": {"uid": "uid-a", "resourceVersion": "5"},
                "spec": {"claimRef": {"uid": "new-data", "resourceVersion": null}}})]
        );
    }
}
