//! Removals and failures of passes as entries of a journal, in the format of the journal of `kubegc run`.

use gc_collectors::containers::plan::ContainerRemovalReason;
use gc_collectors::containers::sandboxes::SandboxRemovalReason;
use gc_collectors::images::plan::{Removal, RemovalReason};
use gc_collectors::images::space::SpaceNeed;
use gc_collectors::node_report::{COLLECTOR, COLLECTOR_OF_CONTAINERS, IMAGE_UNUSED_TOO_LONG};
use gc_types::UnixNanoseconds;
use serde_json::{Value, json};

use crate::below::OrphanRemoval;
use crate::containers::ContainerReport;
use crate::images::{ImageReport, Outcome};

/// Takes the entry of one removal. Passes call it, so it must not block.
pub type RecordRemoval = Box<dyn Fn(Value) + Send + Sync>;

/// Journal, if there is one.
#[derive(Default)]
pub(crate) struct NodeJournal(pub(crate) Option<RecordRemoval>);

impl NodeJournal {
    fn record(&self, entries: impl IntoIterator<Item = Value>) {
        if let Some(record) = &self.0 {
            entries.into_iter().for_each(record);
        }
    }

    /// Records the results of a pass over images.
    pub(crate) fn images(&self, report: &ImageReport) {
        let need = report.need.as_ref();
        self.record(report.removals.iter().map(|(removal, outcome)| image(removal, outcome, need)));
    }

    /// Records the removals of a pass below CRI.
    pub(crate) fn orphans(&self, done: &[OrphanRemoval]) {
        self.record(done.iter().map(orphan));
    }

    /// Records the results of a pass over the leftovers of pods.
    pub(crate) fn containers(&self, report: &ContainerReport) {
        self.record(entries(report));
    }
}

fn orphan(one: &OrphanRemoval) -> Value {
    let reason = match one.kind {
        "Ingest" => ("IngestAborted", "nothing has written to the upload for long"),
        "Lease" => ("LeaseExpired", "the lease has expired"),
        "Snapshot" => ("SnapshotUnreferenced", "no container, image or lease refers to the snapshot"),
        _ => {
            ("CheckpointSurplus", "the archive is too old, or there are more of its container than are kept")
        }
    };
    let subject = json!({"verb": "remove", "controller": COLLECTOR, "kind": one.kind, "name": one.name});
    let outcome = if one.failure.is_some() { "failed" } else { "applied" };
    finished(subject, reason, outcome, one.failure.as_deref())
}

fn image(removal: &Removal, outcome: &Outcome, need: Option<&SpaceNeed>) -> Value {
    let (verdict, message) = match removal.reason {
        RemovalReason::Age => {
            (IMAGE_UNUSED_TOO_LONG, "nothing has used the image for longer than the maximum age".to_owned())
        }
        RemovalReason::Space => {
            let need = need.map_or("space is needed".to_owned(), ToString::to_string);
            ("ImageSpaceNeeded", format!("{need}, and the image has been idle longest"))
        }
        RemovalReason::Unwanted => {
            ("ImageUnwanted", "a policy names the image among those to remove".to_owned())
        }
    };
    let at = |moment: UnixNanoseconds| {
        jiff::Timestamp::from_nanosecond(moment.0.into()).map(|at| at.to_string()).unwrap_or_default()
    };
    let mut evidence = vec![format!("first seen {}", at(removal.first_seen))];
    evidence.extend(removal.last_used.map(|used| format!("last used {}", at(used))));
    let (word, failure) = match outcome {
        Outcome::Removed => ("applied", None),
        Outcome::Kept(why) => ("kept", Some(format!("{why:?}"))),
        Outcome::Failed(why) => ("failed", Some(why.clone())),
    };
    let subject = json!({"verb": "remove", "controller": COLLECTOR, "kind": "Image", "name": &*removal.name,
        "uid": removal.id.as_str(), "nominalBytes": removal.size_bytes,
        "expectedFreedBytes": removal.freed_space.map(|space| space.bytes), "evidence": evidence});
    finished(subject, (verdict, &message), word, failure.as_deref())
}

fn entries(report: &ContainerReport) -> Vec<Value> {
    let of = |kind: &str, name: &str| json!({"verb": "remove", "controller": COLLECTOR_OF_CONTAINERS, "kind": kind, "name": name});
    let outcome = |failure: &Option<String>| if failure.is_some() { "failed" } else { "applied" };
    let mut found = Vec::new();
    for gone in &report.containers {
        let reason = match gone.reason {
            ContainerRemovalReason::PodGone => ("PodGone", "its pod is gone"),
            ContainerRemovalReason::PodFinished => {
                ("PodFinished", "its pod is finished, and space is needed")
            }
            ContainerRemovalReason::PerPodContainerLimit => {
                ("PerPodContainerLimit", "more dead containers of this name exist than the limit allows")
            }
            ContainerRemovalReason::NodeLimit => {
                ("NodeLimit", "more dead containers exist on the node than the limit allows")
            }
        };
        let mut subject = of("Container", &gone.names.container);
        subject["uid"] = gone.id.as_str().into();
        subject["namespace"] = (*gone.names.namespace).into();
        subject["pod"] = (*gone.names.pod).into();
        found.push(finished(subject, reason, outcome(&gone.failure), gone.failure.as_deref()));
    }
    for (removal, failure) in &report.sandboxes {
        let reason = match removal.reason {
            SandboxRemovalReason::PodGone => ("PodGone", "its pod is gone"),
            SandboxRemovalReason::PodFinished => ("PodFinished", "its pod is finished, and space is needed"),
            SandboxRemovalReason::Superseded => ("SandboxSuperseded", "its pod has a newer sandbox"),
        };
        found.push(finished(
            of("Sandbox", removal.id.as_str()),
            reason,
            outcome(failure),
            failure.as_deref(),
        ));
    }
    let directories =
        report.log_directories.iter().map(|path| ("LogDirectory", path, ("PodGone", "its pod is gone")));
    let links = report.links.iter().map(|path| ("LogLink", path, ("LogGone", "its target is gone")));
    for (kind, path, reason) in directories.chain(links) {
        found.push(finished(of(kind, &path.to_string_lossy()), reason, "applied", None));
    }
    found
}

fn finished(
    mut entry: Value,
    (verdict, message): (&str, &str),
    outcome: &str,
    failure: Option<&str>,
) -> Value {
    entry["verdict"] = verdict.into();
    entry["message"] = message.into();
    entry["outcome"] = outcome.into();
    if let Some(failure) = failure {
        entry["failure"] = failure.into();
    }
    entry
}
