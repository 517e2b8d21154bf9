//! Fate of requests and responses in flight between collectors and the server.

use gc_controller::concurrency::Signal;
use gc_types::{Outcome, Request};

use super::World;
use crate::clients;
use crate::collector::{Collector, Flight, Return};
use crate::kinds::{KINDS, facts_of};
use crate::liars::{Lie, LieChannel};
use crate::losses::{is_loss, judge_law};
use crate::oracle::Scene;
use crate::performed::Part;
use crate::performed::PerformedRequest;
use crate::provider::{NodeQuestion, ask_outside};
use crate::random::Random;
use crate::requests::{NO_ANSWER, Performer, Trouble};
use crate::saboteur::Saboteur;
use crate::show::{show_outcome, show_request};
use crate::story::RequestFault;
use crate::truth::{Actor, TrueChange, TrueObject};
use crate::verdicts::{self, deletes};
use crate::violation::{Violation, broken};

/// Weights of faults for the first, second and third call of a request.
const CALLS_WITH_FAULTS: [u32; 3] = [6, 3, 1];

impl World<'_> {
    pub(super) fn serve_some(&mut self, salt: u64, fault: Option<RequestFault>) -> Result<(), Violation> {
        let mut random = Random::new(salt);
        if !self.adrift.is_empty() && random.chance(500) {
            let index = random.below(self.adrift.len());
            let flight = self.adrift.swap_remove(index);
            return self.serve(None, &flight, fault).map(|_| ());
        }
        if self.story.retention && random.chance(250) && self.serve_status(&mut random, fault)? {
            return Ok(());
        }
        // A request in flight also arrives while its sender is suspended.
        let senders: Vec<usize> =
            (0..self.collectors.len()).filter(|&index| !self.collectors[index].requests.is_empty()).collect();
        if senders.is_empty() {
            return Ok(());
        }
        let sender = senders[random.below(senders.len())];
        let index = random.below(self.collectors[sender].requests.len());
        let waits = !self.collectors[sender].requests[index].handed;
        if waits && (self.collectors[sender].paused || !self.hand_over(sender, index)?) {
            return Ok(());
        }
        let flight = self.collectors[sender].requests.swap_remove(index);
        let is_cut_off = self.cut_off.is(flight.collector, self.now);
        let fault = if is_cut_off { Some(RequestFault::LostBefore) } else { fault };
        let performed = self.serve(Some(sender), &flight, fault)?;
        self.return_to(sender, flight, performed);
        Ok(())
    }

    pub(super) fn return_to(&mut self, sender: usize, flight: Flight, performed: PerformedRequest) {
        let is_answered =
            !matches!(&performed.outcome, Outcome::Failed { message, .. } if message == NO_ANSWER);
        let date = is_answered.then(|| self.server_date());
        self.collectors[sender].returns.push(Return { flight, performed, date });
    }

    pub(super) fn answer_some(&mut self, salt: u64) {
        let mut random = Random::new(salt);
        let Some(index) = self.moving(&mut random) else { return };
        let collector = &mut self.collectors[index];
        if collector.returns.is_empty() {
            return;
        }
        let answer = collector.returns.swap_remove(random.below(collector.returns.len()));
        self.report.digest ^= answer.flight.effect.id.0;
        let moment = collector.clocks.moment_at(self.now);
        self.restraints.note_answer(&answer, moment);
        collector.take_return(answer, &self.server, self.now);
    }

    pub(super) fn serve(
        &mut self,
        sender: Option<usize>,
        flight: &Flight,
        fault: Option<RequestFault>,
    ) -> Result<PerformedRequest, Violation> {
        let Some(kind) = flight.kind else { return Ok(unknown_kind(flight)) };
        if let Some(fault) = fault {
            self.report.note_happened("requests failed");
            self.note(|| format!("  {} meets {fault:?}", show_request(kind, &flight.effect.request)));
            if fault == RequestFault::Conflict {
                self.touch_before(kind, flight);
            }
        }
        self.note_late(flight);
        let honest = Saboteur::default();
        let saboteur = sender.map_or(&honest, |sender| self.collectors[sender].saboteur());
        let mut random = Random::new(self.story.seed ^ self.now.unsigned_abs() ^ flight.effect.id.0);
        // Nothing arrives from a collector that is cut off.
        let is_cut_off = self.cut_off.is(flight.collector, self.now);
        let call = if is_cut_off { 0 } else { random.weighted(&CALLS_WITH_FAULTS) };
        let call = u32::try_from(call).unwrap_or_default();
        let trouble = fault.map(|fault| Trouble { fault, call });
        let lie = self.lie.filter(|(lie, _)| sender.is_some() && is_lied_to(flight, *lie));
        let performer = Performer { server: &self.server, kind: &KINDS[kind], saboteur, trouble, lie };
        let performed = match (&flight.effect.request, &flight.list, facts_of(kind)) {
            (_, Some(list), _) => performer.list(&list.place, list.not_older_than.is_some()),
            (Request::Barrier { namespace, .. }, None, Some(facts)) => {
                performer.list_live(facts, namespace.as_deref())
            }
            (Request::Outside { key, uid, resource_version, call }, ..) => {
                let read = performer.perform(&Request::Read { key: key.clone() });
                let asked =
                    NodeQuestion { key, uid, version: *resource_version, collector: flight.collector };
                ask_outside(&mut self.provider, read, &asked, call, &mut random)
            }
            (request, ..) => match saboteur.confirmed(&flight.effect) {
                Some(outcome) => PerformedRequest::of(outcome, Signal::Answered),
                None => performer.perform(request),
            },
        };
        if performed.is_lie {
            self.lie = None;
        }
        self.report.requests += u64::from(performed.round_trips);
        self.note(|| {
            let outcome = show_outcome(&performed.outcome);
            format!("  {} -> {outcome}", show_request(kind, &flight.effect.request))
        });
        self.judge(flight)?;
        let gave_up = sender.is_none() && self.collectors.iter().any(|one| one.number == flight.collector);
        let counted = if gave_up {
            self.oracle.count_given_up(flight);
            Ok(())
        } else {
            self.oracle.count(flight, &performed.outcome, self.born)
        };
        self.unless_deceived(counted)?;
        Ok(performed)
    }

    /// Writes an object as a client just before a request about it arrives.
    fn touch_before(&mut self, kind: usize, flight: &Flight) {
        if let Some(key) = key_of(&flight.effect.request)
            && let Some(target) = self.truth.at(kind, &key.namespace, &key.name)
        {
            let what = clients::touch(&self.server, target, flight.effect.id.0);
            self.note(|| format!("{what} (just before a request)"));
            self.absorb_others();
        }
    }

    /// Reports whether a false event had shown the version that a request changed before the server gave it, and the watch of its sender
    /// had not shown the true one yet: its condition holds for an object that nothing could tell from the one that it was decided about.
    fn is_foretold(&self, flight: &Flight, change: &TrueChange) -> bool {
        let Some(TrueObject { kind, object, .. }) = &change.before else { return false };
        let version = object.resource_version.0;
        let has_shown = |one: &Collector| one.has_foretold(&object.uid, version);
        flight.delivered[*kind] < version && self.collectors.iter().any(has_shown)
    }

    /// Judges what a request changed, from the store's log.
    fn judge(&mut self, flight: &Flight) -> Result<(), Violation> {
        let mut judged: Option<TrueObject> = None;
        for change in self.changes() {
            let scene = Scene { truth: &self.truth, flight, uid_only: self.story.uid_only };
            if let Some(decided) = &judged {
                judge_further(decided, &change)?;
            } else {
                judged.clone_from(&change.before);
                let judged = if flight.part == Part::Ownership {
                    self.oracle.judge(&scene, &change)
                } else {
                    match verdicts::judge(&scene, &change, &self.provider) {
                        Ok(_) if flight.part == Part::Policies => self.book.judge(&scene, &change),
                        judged => {
                            judged.map(|is_former| self.oracle.exemptions.former += u64::from(is_former))
                        }
                    }
                };
                match judged {
                    Err(violation) if self.is_deceived && !is_loss(&violation, flight.part) => {}
                    Err(_) if self.is_foretold(flight, &change) => self.oracle.exemptions.foretold += 1,
                    judged => judged?,
                }
                if self.is_deceived {
                    judge_law(&scene, &change)?;
                }
                *self.report.happened.entry(verdicts::named(flight.part)).or_default() += 1;
            }
            if deletes(&flight.effect.request) {
                self.report.collected += 1;
            }
            // The ownership engine only knows of its own changes.
            let actor = match flight.part {
                Part::Ownership => Actor::Collector(flight.collector),
                _ => Actor::Others,
            };
            self.apply(&change, actor);
        }
        Ok(())
    }
}

/// Judges further changes of a request, whose first change is the decision. A pod without a node is marked and removed by one
/// request: the only further change is the removal of the object that was decided on.
fn judge_further(decided: &TrueObject, change: &TrueChange) -> Result<(), Violation> {
    let is_its_removal = change.after.is_none()
        && change
            .before
            .as_ref()
            .is_some_and(|before| before.object.uid == decided.object.uid && before.object.deletion.deleting);
    if is_its_removal {
        return Ok(());
    }
    broken("scope", format!("a request about {} changed something else: {change:?}", decided.show()))
}

/// Reports whether a lie may replace the response to a request: to the reads that verdicts need, or to the lists of barriers.
fn is_lied_to(flight: &Flight, lie: Lie) -> bool {
    match lie.channel() {
        LieChannel::Reads => matches!(flight.effect.request, Request::Read { .. }),
        LieChannel::Barriers => flight.list.is_some(),
        LieChannel::Lists | LieChannel::Watches => false,
    }
}

/// Returns the result of a request whose kind the collector no longer knows.
fn unknown_kind(flight: &Flight) -> PerformedRequest {
    match &flight.list {
        Some(_) => PerformedRequest::without_a_list(),
        None => PerformedRequest::of(Outcome::NotServed, Signal::Answered),
    }
}

fn key_of(request: &Request) -> Option<&gc_types::ObjectKey> {
    match request {
        Request::Delete { key, .. }
        | Request::SetOwners { key, .. }
        | Request::RemoveFinalizer { key, .. }
        | Request::Read { key }
        | Request::Guarded { key, .. }
        | Request::Outside { key, .. } => Some(key),
        Request::Barrier { .. } | Request::RecordEvent(_) => None,
    }
}
