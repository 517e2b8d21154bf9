//! Policies in a world beyond their effects, which are requests like all others.

use std::collections::BTreeMap;

use gc_collectors::policies::KIND;
use gc_collectors::policies::roster::StatusWrite;
use gc_registry::api::PatchType;
use gc_types::Uid;
use serde_json::Value;

use super::World;
use crate::kinds::{KINDS, kind_index};
use crate::policies::Policies;
use crate::policy_verdicts::judge_status;
use crate::random::Random;
use crate::story::RequestFault;
use crate::tenants::Tenants;
use crate::truth::{Actor, TrueObject};
use crate::violation::Violation;

impl World<'_> {
    /// One of the statuses that are on their way reaches the server. Returns whether there was one.
    pub(super) fn serve_status(
        &mut self,
        random: &mut Random,
        fault: Option<RequestFault>,
    ) -> Result<bool, Violation> {
        let waits = |policies: &Policies| !policies.statuses.is_empty();
        let senders: Vec<usize> = (0..self.collectors.len())
            .filter(|&index| self.collectors[index].policies.as_ref().is_some_and(waits))
            .collect();
        if senders.is_empty() {
            return Ok(false);
        }
        let sender = senders[random.below(senders.len())];
        let Some(policies) = &mut self.collectors[sender].policies else { return Ok(false) };
        let index = random.below(policies.statuses.len());
        let write = policies.statuses.swap_remove(index);
        if fault == Some(RequestFault::Conflict) {
            self.change_before(&write, random);
        }
        let written = match fault {
            None | Some(RequestFault::Conflict) => self.write_status(&write)?,
            Some(RequestFault::LostAfter | RequestFault::Garbled) => {
                self.write_status(&write)?;
                None
            }
            Some(_) => None,
        };
        if let Some(policies) = &mut self.collectors[sender].policies {
            policies.written(&write, written);
        }
        Ok(true)
    }

    /// A client changes the policy, or replaces it by another one of its name, just before a status of it arrives: the watch that
    /// the collector has will deliver it, and no list.
    fn change_before(&mut self, write: &StatusWrite, random: &mut Random) {
        let named = |policy: &&TrueObject| {
            policy.kind().kind == KIND && *policy.object.key.name == *write.member.name
        };
        let Some(policy) = self.truth.objects().find(named).cloned() else { return };
        let (server, truth, provider) = (&self.server, &self.truth, &mut self.provider);
        let tenants = Tenants { server, truth, provider };
        let said = if random.chance(500) {
            tenants.say_otherwise(&policy, random)
        } else {
            tenants.replace_policy(&policy, random)
        };
        self.report.note_happened("policies changed before a status");
        self.note(|| said);
        self.absorb_others();
    }

    fn write_status(&mut self, write: &StatusWrite) -> Result<Option<Value>, Violation> {
        let place = ("", &*write.member.name, "status");
        let kind = &KINDS[kind_index(KIND)];
        let answer = self.server.patch(kind, place, PatchType::Merge, write.patch.clone());
        self.report.requests += 1;
        self.note(|| format!("  status of policy {}: {}", write.member.name, write.patch["status"]));
        for change in self.changes() {
            judge_status(&change)?;
            self.report.note_happened("statuses of policies");
            if let Some(after) = &change.after {
                self.oracle.excuse(&after.object.uid);
            }
            self.apply(&change, Actor::Others);
        }
        let object = answer.and_then(Result::ok);
        let mut json = Vec::new();
        let written = object.is_some_and(|object| object.write_json(&mut json, false).is_ok());
        Ok(written.then(|| serde_json::from_slice(&json).unwrap_or_default()))
    }

    /// Returns the generation of each policy.
    pub(super) fn generations(&self) -> BTreeMap<Uid, i64> {
        let policies = self.truth.objects().filter(|object| object.kind().kind == KIND);
        let generation = |policy: &TrueObject| policy.value()["metadata"]["generation"].as_i64();
        policies.map(|policy| (policy.object.uid.clone(), generation(policy).unwrap_or_default())).collect()
    }

    /// Policies change just before the store is restored, and collectors observe it or not.
    pub(super) fn say_in_vain(&mut self, random: &mut Random) {
        let (server, truth, provider) = (&self.server, &self.truth, &mut self.provider);
        let tenants = Tenants { server, truth, provider };
        let policies = truth.objects().filter(|object| object.kind().kind == KIND);
        let said: Vec<String> = policies.map(|policy| tenants.say_otherwise(policy, random)).collect();
        for text in said {
            self.note(|| text);
        }
        self.absorb_others();
        for collector in self.collectors.iter_mut().filter(|collector| !collector.paused) {
            // Lists, and then what has changed since.
            for _ in 0..random.below(4) {
                collector.deliver_to_policies(0, 64, &self.server);
            }
        }
    }

    /// The store was restored. A client notices that a change of a policy is lost, and changes it again,
    /// before any collector observes anything: then the same generation means something else.
    pub(super) fn say_anew(&mut self, before: &BTreeMap<Uid, i64>, random: &mut Random) {
        let now = self.generations();
        let (server, truth, provider) = (&self.server, &self.truth, &mut self.provider);
        let tenants = Tenants { server, truth, provider };
        let lost = |policy: &&TrueObject| {
            let uid = &policy.object.uid;
            now.get(uid).zip(before.get(uid)).is_some_and(|(now, before)| now < before)
        };
        let said: Vec<String> =
            truth.objects().filter(lost).map(|policy| tenants.say_otherwise(policy, random)).collect();
        for text in said {
            self.report.note_happened("policies changed again after a restore");
            self.note(|| text);
        }
        self.absorb_others();
    }

    /// Everything about policies that is on its way arrives. Returns whether anything was.
    pub(super) fn round_of_policies(&mut self) -> Result<bool, Violation> {
        let mut any = false;
        let collector = &mut self.collectors[0];
        let watched = collector.policies.as_ref().map_or(0, Policies::watched);
        for position in 0..watched {
            any |= collector.deliver_to_policies(position, 64, &self.server);
        }
        while self.serve_status(&mut Random::new(self.story.seed), None)? {
            any = true;
        }
        Ok(any)
    }
}
