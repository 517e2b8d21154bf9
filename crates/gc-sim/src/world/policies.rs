//! What a world does with the policies of its collectors beyond their effects, which are requests like all others.

use gc_registry::api::PatchType;
use gc_retention::policies::KIND;
use gc_retention::policies::roster::StatusWrite;
use serde_json::Value;

use super::World;
use crate::kinds::{KINDS, kind_index};
use crate::oracle::Violation;
use crate::policies::Policies;
use crate::policy_verdicts::judge_status;
use crate::random::Random;
use crate::story::RequestFault;
use crate::truth::Actor;

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
        let written = match fault {
            None | Some(RequestFault::Conflict) => self.write_status(&write)?,
            Some(RequestFault::LostAfter) => {
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

    fn write_status(&mut self, write: &StatusWrite) -> Result<Option<Value>, Violation> {
        let place = ("", &*write.member.name, "status");
        let kind = &KINDS[kind_index(KIND)];
        let answer = self.server.patch(kind, place, PatchType::Merge, write.patch.clone());
        self.report.requests += 1;
        self.note(|| format!("  status of policy {}: {}", write.member.name, write.patch["status"]));
        for change in self.changes() {
            judge_status(&change)?;
            self.happened("statuses of policies");
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
