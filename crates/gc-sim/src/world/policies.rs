//! Actions of policies in a world other than their effects, which are requests like all others.

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

/// Number of decisions of a collector right after the response to a status write.
const DECISIONS_AFTER_A_STATUS: usize = 4;
/// Number of status writes just before which a client changes the policy, per thousand of those that first show the pending
/// deletions of an enforced policy.
const CHANGED_BEFORE: u32 = 300;

impl World<'_> {
    /// Delivers one status write to the server, perhaps just after a client has changed its policy. After the response, its
    /// collector gets a turn. Returns true if there was one.
    pub(super) fn serve_status(
        &mut self,
        random: &mut Random,
        fault: Option<RequestFault>,
    ) -> Result<bool, Violation> {
        let meets_change = |world: &Self, write: &StatusWrite, random: &mut Random| {
            fault == Some(RequestFault::Conflict)
                || fault.is_none() && world.shows_first(write) && random.chance(CHANGED_BEFORE)
        };
        let Some((sender, write)) = self.take_status(random) else { return Ok(false) };
        let is_changed = meets_change(self, &write, random);
        if is_changed {
            self.change_before(&write, random);
        }
        self.arrive(sender, &write, fault)?;
        if is_changed && !self.collectors[sender].paused {
            self.decide(sender, DECISIONS_AFTER_A_STATUS)?;
        }
        Ok(true)
    }

    /// Takes one status write in flight, and its sender.
    fn take_status(&mut self, random: &mut Random) -> Option<(usize, StatusWrite)> {
        let waits = |policies: &Policies| !policies.statuses.is_empty();
        let senders: Vec<usize> = (0..self.collectors.len())
            .filter(|&index| self.collectors[index].policies.as_ref().is_some_and(waits))
            .collect();
        if senders.is_empty() {
            return None;
        }
        let sender = senders[random.below(senders.len())];
        let policies = self.collectors[sender].policies.as_mut()?;
        let index = random.below(policies.statuses.len());
        Some((sender, policies.statuses.swap_remove(index)))
    }

    /// Reports whether a status is the first of an enforced policy to show its pending deletions.
    fn shows_first(&self, write: &StatusWrite) -> bool {
        let status = &write.patch["status"];
        let Some(policy) = self.policy_of(write) else { return false };
        let value = policy.value();
        value["spec"]["enforce"] == true
            && status["due"].as_u64().is_some_and(|due| due > 0)
            && status["observedSpec"] != value["status"]["observedSpec"]
    }

    fn policy_of(&self, write: &StatusWrite) -> Option<&TrueObject> {
        let named = |policy: &&TrueObject| {
            policy.kind().kind == KIND && *policy.object.key.name == *write.member.name
        };
        self.truth.objects().find(named)
    }

    /// Delivers a status write to the server, and its response to the sender.
    fn arrive(
        &mut self,
        sender: usize,
        write: &StatusWrite,
        fault: Option<RequestFault>,
    ) -> Result<(), Violation> {
        let written = match fault {
            None | Some(RequestFault::Conflict) => self.write_status(write)?,
            Some(RequestFault::LostAfter | RequestFault::Garbled) => {
                self.write_status(write)?;
                None
            }
            Some(_) => None,
        };
        if let Some(policies) = &mut self.collectors[sender].policies {
            policies.written(write, written);
        }
        Ok(())
    }

    /// Changes the policy as a client, or replaces it by another one of its name, just before its status arrives: the collector's
    /// existing watch, not a list, will deliver the change.
    fn change_before(&mut self, write: &StatusWrite, random: &mut Random) {
        let Some(policy) = self.policy_of(write).cloned() else { return };
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

    /// Changes policies just before the store is restored, with or without collectors observing it.
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
            // Watches list first, and then deliver the changes since.
            for _ in 0..random.below(4) {
                collector.deliver_to_policies(0, 64, &self.server);
            }
        }
    }

    /// After a restore, a client notices that its change of a policy is lost and changes the policy again before any collector
    /// observes anything: the same generation then means something else.
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

    /// Delivers everything in flight about policies. Returns true if there was anything.
    pub(super) fn round_of_policies(&mut self) -> Result<bool, Violation> {
        let mut any = false;
        let collector = &mut self.collectors[0];
        let watched = collector.policies.as_ref().map_or(0, Policies::watched);
        for position in 0..watched {
            any |= collector.deliver_to_policies(position, 64, &self.server);
        }
        while let Some((sender, write)) = self.take_status(&mut Random::new(self.story.seed)) {
            self.arrive(sender, &write, None)?;
            any = true;
        }
        Ok(any)
    }
}
