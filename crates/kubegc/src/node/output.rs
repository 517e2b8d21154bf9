//! What people and programs see: plans, lists and reports.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{IsTerminal as _, Write};

use anyhow::Result;
use clap::ValueEnum;
use gc_cri::ListedContainer;
use gc_retention::containers::plan::ContainerPlan;
use gc_retention::containers::sandboxes::SandboxRemoval;
use gc_retention::images::ImageId;
use gc_retention::images::history::ImageHistory;
use gc_retention::images::plan::{ImagePlan, KeepReason, Removal, RemovalReason};
use gc_retention::images::space::BinaryBytes;
use gc_types::{GoDuration, UnixNanoseconds};
use serde_json::{Value, json};

use super::images::Observation;
use crate::table::Table;

/// Forms of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// An aligned table.
    #[default]
    Table,
    /// An aligned table with full identifiers.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// What was removed since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Images.
    pub images: u64,
    /// Bytes that became available on the image filesystems meanwhile.
    pub freed_bytes: u64,
    containers: u64,
    sandboxes: u64,
    log_directories: u64,
    links: u64,
}

impl Tally {
    /// Containers, sandboxes, log directories and links, in this order.
    pub(super) fn leftovers(&mut self) -> [&mut u64; 4] {
        [&mut self.containers, &mut self.sandboxes, &mut self.log_directories, &mut self.links]
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Removed {} images ({} freed), {} containers, {} sandboxes, {} log directories and {} dead links.",
            self.images,
            BinaryBytes(self.freed_bytes),
            self.containers,
            self.sandboxes,
            self.log_directories,
            self.links
        )
    }
}

/// One line on a terminal that says how far a pass is; silent elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    shown: bool,
}

impl Progress {
    /// Shown if standard error is a terminal.
    #[must_use]
    pub(super) fn on_a_terminal() -> Self {
        Self { shown: std::io::stderr().is_terminal() }
    }

    /// Writes over the line.
    pub(super) fn show(self, what: &str, done: usize) {
        if self.shown {
            eprint!("\r{what}: {done} looked at\x1b[K");
        }
    }

    /// Clears the line.
    pub(super) fn end(self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}

/// An age for people: the two largest units, as `kubectl` shows ages.
#[must_use]
pub(super) fn age(duration: GoDuration) -> String {
    let seconds = duration.0 / 1_000_000_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        ..120 => format!("{seconds}s"),
        120..7200 => format!("{minutes}m"),
        7200..172_800 => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

fn short(id: &str) -> String {
    id.strip_prefix("sha256:").unwrap_or(id).chars().take(12).collect()
}

fn reason(reason: RemovalReason) -> &'static str {
    match reason {
        RemovalReason::Age => "unused for longer than the maximum age",
        RemovalReason::Space => "disk space is needed",
    }
}

/// Why an image stays, in words.
pub(super) fn keep(reason: &KeepReason) -> String {
    match reason {
        KeepReason::InUse => "in use".into(),
        KeepReason::Pinned => "pinned by the runtime".into(),
        KeepReason::Protected(pattern) => format!("protected by {pattern}"),
        KeepReason::TooYoung => "younger than the minimum age".into(),
        KeepReason::UsedDuringPass => "used a moment ago".into(),
        KeepReason::Unknown => "not observed completely yet".into(),
    }
}

/// Writes a value as JSON or YAML.
pub(super) fn write_value(value: &Value, format: Format, out: &mut impl Write) -> Result<()> {
    if format == Format::Yaml {
        write!(out, "{}", serde_yaml_ng::to_string(value)?)?;
    } else {
        writeln!(out, "{}", serde_json::to_string_pretty(value)?)?;
    }
    Ok(())
}

/// What a dry run would remove of the images, in order. `needed` says how many of `by_space` the books call for.
pub(super) fn write_image_plan(
    plan: &ImagePlan,
    needed: usize,
    now: UnixNanoseconds,
    format: Format,
    out: &mut impl Write,
) -> Result<()> {
    let going: Vec<&Removal> = plan.by_age.iter().chain(plan.by_space.iter().take(needed)).collect();
    let freed: u64 = going.iter().map(|removal| removal.expected_freed_bytes).sum();
    if matches!(format, Format::Json | Format::Yaml) {
        let removals: Vec<Value> = going
            .iter()
            .map(|removal| {
                json!({
                    "id": removal.id.as_str(), "name": &*removal.name, "reason": reason(removal.reason),
                    "sizeBytes": removal.size_bytes, "expectedFreedBytes": removal.expected_freed_bytes,
                    "firstSeenUnixNanoseconds": removal.first_seen.0,
                    "lastUsedUnixNanoseconds": removal.last_used.map(|used| used.0),
                    "irreplaceable": removal.irreplaceable,
                })
            })
            .collect();
        return write_value(&json!({"images": removals, "expectedFreedBytes": freed}), format, out);
    }
    if going.is_empty() {
        writeln!(out, "No image would be removed.")?;
        return Ok(());
    }
    let mut table = Table::new(&["#", "IMAGE", "ID", "SIZE", "FREES", "AGE", "LAST USED", "WHY"]);
    for (place, removal) in going.iter().enumerate() {
        let id = removal.id.as_str();
        let warning = if removal.irreplaceable { " (no registry could give it back)" } else { "" };
        table.row(vec![
            (place + 1).to_string(),
            removal.name.to_string(),
            if format == Format::Wide { id.to_owned() } else { short(id) },
            BinaryBytes(removal.size_bytes).to_string(),
            BinaryBytes(removal.expected_freed_bytes).to_string(),
            age(now.since(removal.first_seen)),
            removal.last_used.map_or("never".into(), |used| age(now.since(used))),
            format!("{}{warning}", reason(removal.reason)),
        ]);
    }
    table.write(out)?;
    writeln!(
        out,
        "{} images would be removed, which is expected to free {}.",
        going.len(),
        BinaryBytes(freed)
    )?;
    Ok(())
}

/// What is known of every image.
pub(super) fn write_images(
    observation: &Observation,
    history: &ImageHistory,
    plan: &ImagePlan,
    format: Format,
    out: &mut impl Write,
) -> Result<()> {
    let mut verdicts: BTreeMap<&ImageId, String> =
        plan.kept.iter().map(|(id, why)| (id, keep(why))).collect();
    let mut unique: BTreeMap<&ImageId, u64> = BTreeMap::new();
    for removal in plan.by_age.iter().chain(&plan.by_space) {
        let text = match removal.reason {
            RemovalReason::Age => "goes: unused for too long",
            RemovalReason::Space => "goes when space is needed",
        };
        verdicts.insert(&removal.id, text.into());
        unique.insert(&removal.id, removal.expected_freed_bytes);
    }
    let now = observation.started;
    let mut table = Table::new(&["IMAGE", "ID", "SIZE", "SHARED", "AGE", "LAST USED", "VERDICT"]);
    let mut values = Vec::new();
    for image in &observation.images {
        let record = history.get(&image.id);
        let used = record.and_then(gc_retention::images::history::ImageRecord::last_used);
        let first_seen = record.map(gc_retention::images::history::ImageRecord::first_seen);
        let shared = unique.get(&image.id).map(|unique| image.size_bytes.saturating_sub(*unique));
        let verdict = verdicts.get(&image.id).cloned().unwrap_or_default();
        let id = image.id.as_str();
        values.push(json!({
            "id": id, "repoTags": image.repo_tags.iter().map(|t| &**t).collect::<Vec<_>>(),
            "repoDigests": image.repo_digests.iter().map(|t| &**t).collect::<Vec<_>>(),
            "sizeBytes": image.size_bytes, "sharedBytes": shared, "pinned": image.pinned,
            "firstSeenUnixNanoseconds": first_seen.map(|t| t.0), "lastUsedUnixNanoseconds": used.map(|t| t.0),
            "verdict": verdict,
        }));
        table.row(vec![
            image.display_name().to_owned(),
            if format == Format::Wide { id.to_owned() } else { short(id) },
            BinaryBytes(image.size_bytes).to_string(),
            shared.map_or("-".into(), |bytes| BinaryBytes(bytes).to_string()),
            first_seen.map_or("-".into(), |seen| age(now.since(seen))),
            used.map_or("never".into(), |used| age(now.since(used))),
            verdict,
        ]);
    }
    match format {
        Format::Json | Format::Yaml => write_value(&json!({"images": values}), format, out),
        Format::Table | Format::Wide => table.write(out),
    }
}

/// What is known of every container, and what a pass would do with it.
pub(super) fn write_containers(
    listed: &[ListedContainer],
    plan: &ContainerPlan,
    sandboxes: &[SandboxRemoval],
    now: UnixNanoseconds,
    only_going: bool,
    format: Format,
    out: &mut impl Write,
) -> Result<()> {
    let by_id: BTreeMap<&str, &ListedContainer> =
        listed.iter().map(|one| (one.container.id.as_str(), one)).collect();
    let going =
        plan.removals.iter().map(|removal| (removal.id.as_str(), format!("goes: {:?}", removal.reason)));
    let kept =
        plan.kept.iter().filter(|_| !only_going).map(|(id, why)| (id.as_str(), format!("stays: {why:?}")));
    let mut table = Table::new(&["NAMESPACE", "POD", "CONTAINER", "ID", "STATE", "AGE", "VERDICT"]);
    let mut values = Vec::new();
    for (id, verdict) in going.chain(kept) {
        let Some(one) = by_id.get(id) else { continue };
        let state = format!("{:?}", one.container.state);
        values.push(json!({
            "id": id, "namespace": &*one.names.namespace, "pod": &*one.names.pod, "container": &*one.names.container,
            "state": state, "createdUnixNanoseconds": one.container.created_at.0, "managed": one.container.managed,
            "verdict": verdict,
        }));
        table.row(vec![
            one.names.namespace.to_string(),
            one.names.pod.to_string(),
            one.names.container.to_string(),
            if format == Format::Wide { id.to_owned() } else { short(id) },
            state,
            age(now.since(one.container.created_at)),
            verdict,
        ]);
    }
    match format {
        Format::Json | Format::Yaml => {
            let sandboxes: Vec<Value> = sandboxes
                .iter()
                .map(|one| json!({"id": one.id.as_str(), "verdict": format!("goes: {:?}", one.reason)}))
                .collect();
            write_value(&json!({"containers": values, "sandboxes": sandboxes}), format, out)
        }
        Format::Table | Format::Wide => {
            if values.is_empty() {
                writeln!(out, "No container{}.", if only_going { " would be removed" } else { "" })?;
            } else {
                table.write(out)?;
            }
            for sandbox in sandboxes {
                writeln!(out, "sandbox {} goes: {:?}", short(sandbox.id.as_str()), sandbox.reason)?;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["A", "LONGER"]);
        table.row(vec!["much longer".into(), "x".into()]);
        table.row(vec!["µ".into(), "y".into()]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "A             LONGER\nmuch longer   x\nµ             y\n"
        );
    }

    #[test]
    fn ages_are_short() {
        for (seconds, text) in
            [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172_800, "2d")]
        {
            assert_eq!(age(GoDuration::from_seconds(seconds)), text);
        }
    }
}
