//! Bindings of volumes and claims.

use serde_json::{Map, Value, json};

use super::cluster::{ClaimReference, LivingObject};
use super::owners::{Found, Match, Relinker};
use super::{Identity, Left, Link, Relink};

impl Relinker<'_> {
    /// Decides about the claim of a volume, and returns the change of its `spec`, if any.
    pub(super) fn claim(
        &self,
        volume: &LivingObject,
        of_backup: Option<&Match<'_>>,
        found: &mut Relink,
    ) -> Map<String, Value> {
        let saved = of_backup.and_then(|one| one.saved.claim.as_ref()).filter(|claim| !claim.uid.is_empty());
        let present = volume.claim.as_ref();
        let lives = present.is_some_and(|claim| self.cluster.with_uid(&claim.uid).is_some());
        let is_it = |claim: &ClaimReference, saved: &ClaimReference| {
            claim.name == saved.name
                && self.moved(saved).iter().any(|moved| moved.namespace == claim.namespace)
        };
        if let (Some(_), Some(comparison)) = (saved, &mut found.comparison) {
            comparison.references += 1;
            comparison.in_place +=
                usize::from(lives && present.zip(saved).is_some_and(|(claim, saved)| is_it(claim, saved)));
        }
        // Without a UID here or in the backup, the volume waits for a claim of this name, which is up to the binder.
        let wanted = match (present, saved) {
            (Some(claim), Some(saved)) if is_it(claim, saved) && !lives => saved,
            (Some(claim), None) if !claim.uid.is_empty() && !lives => claim,
            (Some(claim), Some(saved)) if !claim.uid.is_empty() && !is_it(claim, saved) => {
                let new = Err(Left::BoundElsewhere);
                found.links.push(link(volume, saved, new, None, false, true));
                return Map::new();
            }
            (None, Some(saved)) => saved,
            _ => return Map::new(),
        };
        let new = self.claim_of(volume, wanted, present);
        let (new, proof) = match new {
            Ok((number, proof)) => (Ok(&self.cluster.objects[number].place), Some(proof)),
            Err(left) => (Err(left), None),
        };
        let mut patch = Map::new();
        if let Ok(claim) = new {
            // Without the version of the old claim, the binder takes the reference to be to this claim.
            let mut reference = json!({"uid": claim.uid, "resourceVersion": null});
            if present
                .is_none_or(|present| (&present.namespace, &present.name) != (&claim.namespace, &claim.name))
            {
                reference["kind"] = "PersistentVolumeClaim".into();
                reference["apiVersion"] = "v1".into();
                reference["namespace"] = claim.namespace.as_str().into();
                reference["name"] = claim.name.as_str().into();
            }
            patch.insert("spec".to_owned(), json!({"claimRef": reference}));
        }
        let is_missing = present.is_none_or(|claim| claim.uid.is_empty());
        let new = new.map(|claim| claim.uid.clone());
        found.links.push(link(volume, wanted, new, proof, is_missing, saved.is_some()));
        patch
    }

    /// Returns the claim that a volume is to be bound to.
    fn claim_of(
        &self,
        volume: &LivingObject,
        wanted: &ClaimReference,
        present: Option<&ClaimReference>,
    ) -> Found {
        if volume.is_terminating {
            return Err(Left::Terminating);
        }
        let (number, proof) = self.successor(&wanted.uid)?;
        let claim = &self.cluster.objects[number];
        let Identity { group, kind, namespace, name } = &claim.identity;
        let is_claim = (group.as_str(), kind.as_str()) == ("", "PersistentVolumeClaim");
        let is_named = present.is_none_or(|present| (&present.namespace, &present.name) == (namespace, name));
        if !is_claim || !is_named {
            return Err(Left::OwnerUnfit);
        }
        if claim.volume.is_empty() || claim.volume == volume.place.name {
            Ok((number, proof))
        } else {
            Err(Left::BoundElsewhere)
        }
    }

    /// Returns the identities of a backup's claim in the namespaces it was restored to.
    fn moved(&self, claim: &ClaimReference) -> Vec<Identity> {
        let identity = Identity {
            group: String::new(),
            kind: "PersistentVolumeClaim".to_owned(),
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
        };
        self.namespaces(&claim.namespace).iter().map(|namespace| identity.moved(namespace)).collect()
    }

    /// Returns the other volume that a claim of the backup is now bound to.
    pub(super) fn other_volume(&self, claim: &ClaimReference) -> Option<String> {
        let living = self.moved(claim).iter().find_map(|identity| self.cluster.at(identity))?;
        let volume = &self.cluster.objects[living].volume;
        let identity = Identity {
            group: String::new(),
            kind: "PersistentVolume".to_owned(),
            namespace: String::new(),
            name: volume.clone(),
        };
        let number = self.cluster.at(&identity).filter(|_| !volume.is_empty())?;
        Some(self.cluster.objects[number].place.title())
    }
}

fn link(
    volume: &LivingObject,
    claim: &ClaimReference,
    new: Result<String, Left>,
    proof: Option<super::Proof>,
    is_missing: bool,
    is_of_backup: bool,
) -> Link {
    let owner = format!("PersistentVolumeClaim/{}", claim.name);
    Link { place: volume.place.clone(), owner, old: claim.uid.clone(), new, proof, is_missing, is_of_backup }
}
