//! Safety and liveness of policies, judged from the true policies and objects in the terms of their specification, not by the
//! engine's code.

use std::collections::{BTreeMap, BTreeSet};

use gc_collectors::policies::KIND;
use gc_types::{GoDuration, PropagationPolicy, Request, Uid};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::collector::{Collector, Flight};
use crate::oracle::Scene;
use crate::truth::{TrueChange, TrueObject, Truth};
use crate::verdicts::{keeps, list, pod_finished, text, time};
use crate::violation::Violation;
use crate::violation::broken;

type Judged = Result<(), Violation>;

/// Returns the name of a specification in a status: the first half of the SHA-256 of its JSON, in hexadecimal digits.
fn name_of_spec(spec: &Value) -> String {
    let digest = Sha256::digest(spec.to_string());
    digest[..16]
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

/// Minimum time between the starts of two runs of one policy, milliseconds.
const BETWEEN_RUNS: i64 = 10_000;

/// Maximum time between two runs of a policy with the schedule of these worlds (`every 6h`), with some allowance, in milliseconds.
const BETWEEN_SCHEDULED_RUNS: i64 = (6 * 60 + 5) * 60_000;

/// Records of the store's log about policies.
#[derive(Clone, Debug, Default)]
pub struct PolicyBook {
    /// Spec of each generation of each policy.
    specs: BTreeMap<(Uid, i64), Value>,
    /// Generations and specifications that a status has shown. A restored store takes back nothing that was seen.
    shown: BTreeSet<(Uid, i64, String)>,
    /// Deletions that each engine was granted, with the time of its last decision by its collector's steady clock. An object that a
    /// restored store brought back, and that is deleted again, counts once.
    granted: BTreeMap<(usize, u64), BTreeMap<Uid, i64>>,
    /// Collector of the last deletion by each policy, and the time of its decision by its steady clock.
    last_granted: BTreeMap<Uid, (usize, i64)>,
}

impl PolicyBook {
    /// Takes in the current state of an object.
    pub fn note(&mut self, object: &TrueObject) {
        if object.kind().kind != KIND {
            return;
        }
        let value = object.value();
        let generation = value["metadata"]["generation"].as_i64().unwrap_or_default();
        let (uid, status) = (object.object.uid.clone(), &value["status"]);
        let is_about_it = status["observedSpec"] == *name_of_spec(&value["spec"]);
        if status["observedGeneration"].as_i64() == Some(generation)
            && is_about_it
            && status["due"].is_number()
        {
            self.shown.insert((uid.clone(), generation, value["spec"].to_string()));
        }
        self.specs.insert((uid, generation), value["spec"].clone());
    }

    fn spec(&self, flight: &Flight) -> Option<(&Value, (Uid, i64))> {
        let claim = flight.policy.as_ref()?;
        let key = (Uid::new(&claim.uid), claim.generation);
        Some((self.specs.get(&key)?, key))
    }

    /// Judges a decision that a policy has just made.
    pub fn judge_decision(&self, flight: &Flight) -> Judged {
        let Some((spec, (uid, generation))) = self.spec(flight) else {
            return broken("policy", format!("a policy that never was wants {:?}", flight.effect.request));
        };
        if spec["enforce"] != true {
            return broken(
                "policy",
                format!("generation {generation} of a policy is not enforced, and acts"),
            );
        }
        if !self.shown.contains(&(uid, generation, spec.to_string())) {
            return broken("policy", format!("generation {generation} of a policy acts and showed nothing"));
        }
        Ok(())
    }

    /// Judges the change that a policy's request made.
    pub fn judge(&mut self, scene: &Scene<'_>, change: &TrueChange) -> Judged {
        let flight = scene.flight;
        let (Some((spec, _)), Some(target)) = (self.spec(flight), &change.before) else {
            return broken("policy", "a policy that never was has changed something".to_owned());
        };
        let Request::Delete { policy, .. } = &flight.effect.request else {
            return broken("scope", format!("a policy changed {}", target.show()));
        };
        let propagation = match *policy {
            PropagationPolicy::Background => "Background",
            PropagationPolicy::Foreground => "Foreground",
            PropagationPolicy::Orphan => "Orphan",
        };
        if spec["propagationPolicy"].as_str().unwrap_or("Background") != propagation {
            return broken("policy", format!("{} is deleted with {propagation}", target.show()));
        }
        let value = target.value();
        if !selects(spec, target, &value) {
            return broken("policy", format!("{} is deleted, and no policy is about it", target.show()));
        }
        let at = flight.delivered[target.kind];
        let observed = scene.truth.at_revision(target.kind().kind, at);
        if !expired(spec, &value, flight.clock)
            && !surplus(spec, observed.into_iter()).contains(&target.object.uid)
        {
            return broken("threshold", format!("{} is deleted by a policy and is not due", target.show()));
        }
        let most = spec["maxDeletionsPerRun"].as_u64().unwrap_or(100);
        let Some(claim) = &flight.policy else { return Ok(()) };
        let granted = self.granted.entry((flight.collector, claim.epoch)).or_default();
        granted.insert(target.object.uid.clone(), flight.steady);
        self.last_granted.insert(Uid::new(&claim.uid), (flight.collector, flight.steady));
        let recent =
            granted.values().filter(|at| flight.steady - **at < BETWEEN_RUNS && **at <= flight.steady);
        // At most one run ends and one begins within that time.
        if recent.count() as u64 > 2 * most {
            return broken("bounds", format!("{} is deleted, and {most} deletions are a run", target.show()));
        }
        Ok(())
    }

    /// Checks liveness: when everything has come to rest, all objects that are due by an enforced policy are gone, and each status
    /// describes the true state.
    pub fn judge_rest(&self, truth: &Truth, collector: &Collector) -> Judged {
        let now = collector.clock();
        for policy in truth.objects().filter(|object| object.kind().kind == KIND) {
            let value = policy.value();
            let (spec, status) = (&value["spec"], &value["status"]);
            let selected = || truth.objects().filter(move |object| is_selected(spec, object));
            let surplus = surplus(spec, truth.objects());
            let is_due = |object: &&TrueObject| {
                surplus.contains(&object.object.uid) || expired(spec, &object.value(), now)
            };
            let due: Vec<&TrueObject> = selected().filter(is_due).collect();
            let is_scheduled = spec["schedule"].is_string();
            if let (true, false, Some(first)) = (spec["enforce"] == true, is_scheduled, due.first()) {
                return broken("liveness", format!("{} is due by {} and stays", first.show(), policy.show()));
            }
            if spec["enforce"] == true && is_scheduled {
                self.judge_schedule(policy, spec, &due, collector)?;
            }
            let says = |name: &str| status[name].as_u64();
            let wanted = (
                value["metadata"]["generation"].as_u64(),
                Some(selected().count() as u64),
                Some(due.len() as u64),
            );
            let said = (says("observedGeneration"), says("selected"), says("due"));
            if status["observedSpec"] != *name_of_spec(spec) {
                return broken("liveness", format!("{} is said to be something else", policy.show()));
            }
            if said != wanted {
                return broken("liveness", format!("{} says {said:?}, and it is {wanted:?}", policy.show()));
            }
        }
        Ok(())
    }
}

impl PolicyBook {
    /// Checks liveness of a policy with a schedule: each run deletes something while anything is due.
    fn judge_schedule(
        &self,
        policy: &TrueObject,
        spec: &Value,
        due: &[&TrueObject],
        collector: &Collector,
    ) -> Judged {
        let long_ago = collector.clock() - BETWEEN_SCHEDULED_RUNS;
        let Some(late) = due.iter().find(|object| expired(spec, &object.value(), long_ago)) else {
            return Ok(());
        };
        let has_run = self.last_granted.get(&policy.object.uid).is_some_and(|(by, at)| {
            *by == collector.number && collector.clocks.steady() - at <= BETWEEN_SCHEDULED_RUNS
        });
        if has_run {
            return Ok(());
        }
        broken("liveness", format!("{} was due by {} more than a run ago", late.show(), policy.show()))
    }
}

/// Checks that a collector writes only the permitted part of a policy's status.
pub fn judge_status(change: &TrueChange) -> Judged {
    let (Some(before), Some(after)) = (&change.before, &change.after) else {
        return broken("scope", "a status made or removed a policy".to_owned());
    };
    let rest = |object: &TrueObject| {
        let mut value = object.value();
        value["status"] = Value::Null;
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        value
    };
    if before.object.uid != after.object.uid || rest(before) != rest(after) {
        return broken("scope", format!("a status changed more of {}", before.show()));
    }
    Ok(())
}

fn strings<'v>(value: &'v Value, path: &str) -> Vec<&'v str> {
    list(value, path).filter_map(Value::as_str).collect()
}

fn label<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value["metadata"]["labels"][name].as_str()
}

/// Reports whether a policy selects an object, whatever happens to it.
fn selects(spec: &Value, object: &TrueObject, value: &Value) -> bool {
    let kind = object.kind();
    let of_kind =
        text(spec, "/target/kind") == kind.kind && kind.is_served_as(text(spec, "/target/apiVersion"));
    let namespace = &*object.object.key.namespace;
    let included = strings(spec, "/namespaces/include");
    let of_the_system = ["kube-node-lease", "kube-public", "kube-system"].contains(&namespace);
    let there = (included.is_empty() && !of_the_system) || included.contains(&namespace);
    let labels = spec["selector"]["matchLabels"].as_object();
    let labelled = labels.into_iter().flatten().all(|(name, wanted)| label(value, name) == wanted.as_str());
    // Clients of the simulated cluster use only this field and this condition.
    let phase_fits = list(spec, "/fields").all(|field| {
        text(field, "/path") == ".status.phase"
            && strings(field, "/values").contains(&text(value, "/status/phase"))
    });
    let named = spec["condition"].is_null() || &*object.object.key.name != "a";
    of_kind
        && there
        && !strings(spec, "/namespaces/exclude").contains(&namespace)
        && labelled
        && phase_fits
        && named
}

/// Reports whether an object counts for a policy now.
fn is_selected(spec: &Value, object: &TrueObject) -> bool {
    let value = object.value();
    !object.object.deletion.deleting && !keeps(&value) && selects(spec, object, &value)
}

fn milliseconds(value: &Value) -> Option<i64> {
    let duration: GoDuration = value.as_str()?.parse().ok()?;
    Some(duration.0 / 1_000_000)
}

fn created(value: &Value) -> i64 {
    time(&value["metadata"]["creationTimestamp"]).unwrap_or_default()
}

fn expired(spec: &Value, value: &Value, now: i64) -> bool {
    let by_age = milliseconds(&spec["maxAge"]).map(|age| created(value) + age);
    let by_finish = milliseconds(&spec["ttlAfter"]["duration"]).zip(pod_finished(value));
    let at = by_age.into_iter().chain(by_finish.map(|(after, finished)| finished + after));
    at.min().is_some_and(|at| at <= now)
}

/// Returns the objects beyond the newest of their group.
fn surplus<'t>(spec: &Value, objects: impl Iterator<Item = &'t TrueObject>) -> BTreeSet<Uid> {
    let newest = &spec["keepNewest"];
    let Some(count) = newest["count"].as_u64().and_then(|count| usize::try_from(count).ok()) else {
        return BTreeSet::new();
    };
    let mut groups: BTreeMap<(String, String), BTreeMap<(i64, String, String), Uid>> = BTreeMap::new();
    for object in objects.filter(|object| is_selected(spec, object)) {
        let value = object.value();
        let (namespace, name) = (object.object.key.namespace.to_string(), object.object.key.name.to_string());
        let group = match text(newest, "/per") {
            "Namespace" => (namespace.clone(), String::new()),
            "Label" => match label(&value, text(newest, "/label")) {
                Some(value) => (namespace.clone(), value.to_owned()),
                None => continue,
            },
            _ => (String::new(), String::new()),
        };
        groups
            .entry(group)
            .or_default()
            .insert((created(&value), namespace, name), object.object.uid.clone());
    }
    let beyond = groups.into_values().flat_map(|group| {
        let going = group.len().saturating_sub(count);
        group.into_values().take(going).collect::<Vec<_>>()
    });
    beyond.collect()
}
