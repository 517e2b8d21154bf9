//! Output for people and programs: plans, lists and reports.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use gc_collectors::containers::plan::{ContainerKeepReason, ContainerRemovalReason};
use gc_collectors::containers::sandboxes::{SandboxRemoval, SandboxRemovalReason};
use gc_collectors::images::history::ImageRecord;
use gc_collectors::images::layers::LayerUsers;
use gc_collectors::images::plan::{Removal, RemovalReason};
use gc_collectors::images::space::{BinaryBytes, SpaceNeed, Thresholds};
use gc_collectors::images::{Image, ImageId};
use gc_collectors::node_report::Tally;
use gc_collectors::pressure::Signal;
use gc_cri::ListedContainer;
use gc_node::{ContainerView, DiskUse, ImagePreview, ImageView, LeftoverPreview, Preview, keep_message};
use gc_process::table::Table;
use gc_types::GoDuration;
use serde_json::{Map, Value, json};

use super::below::{account_value, write_account};

/// Forms of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Aligned table
    #[default]
    #[value(alias = "table")]
    Text,
    /// Aligned table with full identifiers
    Wide,
    /// Names only, one on each line (of lists)
    Name,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

impl Format {
    /// Reports whether the format is for programs.
    pub(super) fn is_for_programs(self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }

    /// Returns the full identifier in the wide format, else the twelve digits that people compare.
    fn identifier(self, id: &str) -> String {
        if self == Self::Wide {
            return id.to_owned();
        }
        id.strip_prefix("sha256:").unwrap_or(id).chars().take(12).collect()
    }
}

/// Writes the removals of a pass: a sentence for people, one document for programs.
pub(super) fn write_tally(tally: &Tally, format: Format, out: &mut impl Write) -> Result<()> {
    if !format.is_for_programs() {
        writeln!(out, "{tally}")?;
        return Ok(());
    }
    let removed = json!({
        "images": tally.images, "containers": tally.containers, "sandboxes": tally.sandboxes,
        "logDirectories": tally.log_directories, "links": tally.links,
    });
    write_value(&json!({"removed": removed, "freedBytes": tally.freed_bytes}), format, out)
}

/// Formats an age for people: the two largest units, as `kubectl` shows ages.
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

/// Message shown if no agent has run yet.
const FIRST_CONTACT: &str = "No ages are saved here yet, so every image counts as old enough; the first real pass only starts to count.";

fn reason(reason: RemovalReason) -> &'static str {
    match reason {
        RemovalReason::Age => "unused for longer than the maximum age",
        RemovalReason::Space => "disk space is needed",
        RemovalReason::Unwanted => "a policy names it among the images to remove",
    }
}

/// Writes a value as JSON or YAML.
pub(super) fn write_value(value: &Value, format: Format, out: &mut impl Write) -> Result<()> {
    if format == Format::Yaml {
        write!(out, "{}", gc_process::yaml::to_string(value)?)?;
    } else {
        writeln!(out, "{}", serde_json::to_string_pretty(value)?)?;
    }
    Ok(())
}

/// Describes the use of an image filesystem.
fn disk_use(disk: &DiskUse) -> String {
    let Thresholds { high_percent, low_percent } = disk.thresholds;
    let used = format!("{}: {} % used", disk.path, disk.usage_percent);
    match &disk.need {
        None => format!("{used}, below its threshold of {high_percent} %."),
        Some(need) if need.inodes > 0 => {
            let bytes =
                if need.bytes > 0 { format!("{} and ", BinaryBytes(need.bytes)) } else { String::new() };
            format!(
                "{used} ({} % of inodes), threshold {high_percent} → {low_percent}: {bytes}{} inodes needed.",
                disk.inodes_usage_percent, need.inodes
            )
        }
        Some(need) => {
            format!("{used}, threshold {high_percent} → {low_percent}: {} needed.", BinaryBytes(need.bytes))
        }
    }
}

/// Writes a preview: one document for programs, tables for people.
pub(super) fn write_preview(preview: &Preview, format: Format, out: &mut impl Write) -> Result<()> {
    if format.is_for_programs() {
        let mut document = Map::new();
        for part in [
            preview.images.as_ref().map(image_preview_values),
            preview.leftovers.as_ref().map(leftover_values),
        ] {
            document.extend(part.unwrap_or_default());
        }
        if let Some(disk) = &preview.disk {
            document.insert("disk".into(), account_value(disk));
        }
        if !preview.checkpoints.is_empty() {
            document.insert("checkpoints".into(), paths(&preview.checkpoints).into());
        }
        return write_value(&Value::Object(document), format, out);
    }
    if let Some(images) = &preview.images {
        write_image_preview(images, format, out)?;
    }
    if let Some(leftovers) = &preview.leftovers {
        write_leftovers(leftovers, format, out)?;
    }
    for path in &preview.checkpoints {
        writeln!(
            out,
            "checkpoint {}: remove, it is too old, or more are there than are kept",
            path.display()
        )?;
    }
    if let Some(disk) = &preview.disk {
        write_account(disk, format, out)?;
    }
    Ok(())
}

fn freed(preview: &ImagePreview) -> u64 {
    preview.removals.iter().map(|removal| removal.expected_freed_bytes).sum()
}

/// Returns the name of the sizes of a preview.
fn sizes_name(preview: &ImagePreview) -> &'static str {
    let is_measured = preview.removals.iter().all(|removal| removal.freed_space.is_some());
    if is_measured { "measured" } else { "nominal" }
}

fn image_preview_values(preview: &ImagePreview) -> Map<String, Value> {
    let value = |(place, removal): (usize, &Removal)| {
        json!({
            "certain": place < preview.fewest,
            "id": removal.id.as_str(), "name": &*removal.name, "reason": reason(removal.reason),
            "sizeBytes": removal.size_bytes, "expectedFreedBytes": removal.expected_freed_bytes,
            "firstSeenUnixNanoseconds": removal.first_seen.0,
            "lastUsedUnixNanoseconds": removal.last_used.map(|used| used.0),
            "irreplaceable": removal.irreplaceable,
        })
    };
    let images: Vec<Value> = preview.removals.iter().enumerate().map(value).collect();
    let missing = |need: Option<&SpaceNeed>| {
        let part = |of: fn(&SpaceNeed) -> u64| need.map(of).filter(|missing| *missing > 0);
        (part(|need| need.bytes), part(|need| need.inodes))
    };
    let disk = |disk: &DiskUse| {
        let (bytes, inodes) = missing(disk.need.as_ref());
        json!({
            "path": &*disk.path, "usagePercent": disk.usage_percent,
            "inodesUsagePercent": disk.inodes_usage_percent,
            "overThreshold": disk.need.is_some(), "missingBytes": bytes, "missingInodes": inodes,
        })
    };
    let signal = |(signal, need): &(Signal, Option<SpaceNeed>)| {
        let (bytes, inodes) = missing(need.as_ref());
        json!({"signal": signal.to_string(), "missingBytes": bytes, "missingInodes": inodes})
    };
    let values = [
        ("images", images.into()),
        ("fewestImages", preview.fewest.into()),
        ("mostImages", preview.removals.len().into()),
        ("uncertainty", preview.uncertainty.map(|why| why.to_string()).into()),
        ("sizes", sizes_name(preview).into()),
        ("expectedFreedBytes", freed(preview).into()),
        ("filesystems", preview.disks.iter().map(disk).collect::<Vec<_>>().into()),
        ("evictionSignals", preview.pressure.iter().map(signal).collect::<Vec<_>>().into()),
        ("firstContact", preview.first_contact.into()),
    ];
    values.into_iter().map(|(name, value): (&str, Value)| (name.to_owned(), value)).collect()
}

fn write_image_preview(preview: &ImagePreview, format: Format, out: &mut impl Write) -> Result<()> {
    for disk in &preview.disks {
        writeln!(out, "{}", disk_use(disk))?;
    }
    for (signal, _) in &preview.pressure {
        writeln!(out, "The eviction threshold of {signal} is crossed.")?;
    }
    if preview.first_contact {
        writeln!(out, "{FIRST_CONTACT}")?;
    }
    if preview.removals.is_empty() {
        writeln!(out, "No image would be removed.")?;
        return Ok(());
    }
    let is_measured = sizes_name(preview) == "measured";
    let frees = if is_measured { "FREES" } else { "FREES (NOMINAL)" };
    let mut table = Table::new(&["#", "IMAGE", "ID", "NOMINAL SIZE", frees, "AGE", "LAST USED", "WHY"]);
    for (place, removal) in preview.removals.iter().enumerate() {
        let warning = if removal.irreplaceable { " (cannot be pulled again)" } else { "" };
        let certainty = if place < preview.fewest { "" } else { ", if it is still needed then" };
        table.row(vec![
            (place + 1).to_string(),
            removal.name.to_string(),
            format.identifier(removal.id.as_str()),
            BinaryBytes(removal.size_bytes).to_string(),
            BinaryBytes(removal.expected_freed_bytes).to_string(),
            age(preview.now.since(removal.first_seen)),
            removal.last_used.map_or("never".into(), |used| age(preview.now.since(used))),
            format!("{}{certainty}{warning}", reason(removal.reason)),
        ]);
    }
    table.write(out)?;
    let (fewest, most, frees) = (preview.fewest, preview.removals.len(), BinaryBytes(freed(preview)));
    match &preview.uncertainty {
        None => writeln!(out, "{most} images would be removed, which is expected to free {frees}.")?,
        Some(why) => writeln!(
            out,
            "Between {fewest} and {most} images would be removed, which is expected to free at most {frees}: {why}."
        )?,
    }
    if !is_measured {
        writeln!(out, "Sizes are nominal: the runtime does not tell what an image occupies.")?;
    }
    Ok(())
}

fn paths(list: &[PathBuf]) -> Vec<Value> {
    list.iter().map(|path| Value::from(path.display().to_string())).collect()
}

fn leftover_values(preview: &LeftoverPreview) -> Map<String, Value> {
    let mut values = container_values(&preview.containers, true);
    values.insert("logDirectories".into(), paths(&preview.log_directories).into());
    values.insert("logDirectoryBytes".into(), preview.log_directory_bytes.into());
    values.insert("links".into(), paths(&preview.links).into());
    values
}

fn write_leftovers(preview: &LeftoverPreview, format: Format, out: &mut impl Write) -> Result<()> {
    write_container_table(&preview.containers, true, format, out)?;
    for path in &preview.log_directories {
        writeln!(out, "log directory {}: remove, its pod is gone", path.display())?;
    }
    if preview.log_directory_bytes > 0 {
        writeln!(out, "Logs of pods that are gone occupy {}.", BinaryBytes(preview.log_directory_bytes))?;
    }
    for path in &preview.links {
        writeln!(out, "link {}: remove, its container is gone", path.display())?;
    }
    Ok(())
}

/// Writes the list of images.
pub(super) fn write_images(view: &ImageView, format: Format, out: &mut impl Write) -> Result<()> {
    let (plan, now) = (&view.plan, view.now);
    let mut verdicts: BTreeMap<&ImageId, String> =
        plan.kept.iter().map(|(id, why)| (id, keep_message(why))).collect();
    for removal in plan.by_age.iter().chain(&plan.by_space) {
        let text = match removal.reason {
            RemovalReason::Age => "remove: unused for too long",
            RemovalReason::Space => "remove when space is needed",
            RemovalReason::Unwanted => "remove: a policy names it",
        };
        verdicts.insert(&removal.id, text.into());
    }
    let each_once: BTreeMap<&ImageId, &Image> = view.images.iter().map(|one| (&one.id, one)).collect();
    let layers = LayerUsers::of(each_once.values().copied());
    let mut table = Table::new(&["IMAGE", "ID", "SIZE", "SHARED", "AGE", "LAST USED", "VERDICT"]);
    let mut values = Vec::new();
    let mut images: Vec<&Image> = view.images.iter().collect();
    images.sort_by_key(|image| (image.display_name(), &image.id));
    for image in images {
        let record = view.history.get(&image.id);
        let used = record.and_then(ImageRecord::last_used);
        let first_seen = record.map(ImageRecord::first_seen);
        let shared = layers.shared_bytes(image);
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
            image.display_name().to_string(),
            format.identifier(id),
            BinaryBytes(image.size_bytes).to_string(),
            shared.map_or("-".into(), |bytes| BinaryBytes(bytes).to_string()),
            first_seen.map_or("-".into(), |seen| age(now.since(seen))),
            used.map_or("never".into(), |used| age(now.since(used))),
            verdict,
        ]);
    }
    if format == Format::Name {
        values.iter().filter_map(|one| one["id"].as_str()).try_for_each(|id| writeln!(out, "image/{id}"))?;
        return Ok(());
    }
    if format.is_for_programs() {
        let document = json!({"images": values, "firstContact": view.first_contact});
        return write_value(&document, format, out);
    }
    table.write(out)?;
    if view.first_contact {
        writeln!(out, "{FIRST_CONTACT}")?;
    }
    Ok(())
}

/// Writes the list of containers.
pub(super) fn write_containers(view: &ContainerView, format: Format, out: &mut impl Write) -> Result<()> {
    if format == Format::Name {
        let rows = container_rows(view, false).into_iter();
        rows.map(|(one, ..)| one.container.id.as_str()).try_for_each(|id| writeln!(out, "container/{id}"))?;
        return Ok(());
    }
    if format.is_for_programs() {
        return write_value(&Value::Object(container_values(view, false)), format, out);
    }
    write_container_table(view, false, format, out)
}

/// Returns the removals, in their order, then (unless `only_removed`) the containers that are kept. Each row has the container,
/// whether it is removed, the name of the reason for programs, and the reason in words.
fn container_rows(
    view: &ContainerView,
    only_removed: bool,
) -> Vec<(&ListedContainer, bool, String, &'static str)> {
    let going = view.plan.removals.iter().map(|removal| {
        (removal.place, true, format!("{:?}", removal.reason), container_goes(removal.reason))
    });
    let kept = view.plan.kept.iter().filter(|_| !only_removed);
    let kept = kept.map(|(place, why)| (*place, false, format!("{why:?}"), container_stays(*why)));
    going
        .chain(kept)
        .filter_map(|(place, removes, name, words)| Some((view.listed.get(place)?, removes, name, words)))
        .collect()
}

fn container_values(view: &ContainerView, only_removed: bool) -> Map<String, Value> {
    let value = |(one, removes, name, words): (&ListedContainer, bool, String, &str)| {
        json!({
            "id": one.container.id.as_str(), "namespace": &*one.names.namespace, "pod": &*one.names.pod,
            "container": &*one.names.container, "state": format!("{:?}", one.container.state),
            "createdUnixNanoseconds": one.container.created_at.0, "managed": one.container.managed,
            "remove": removes, "reason": name, "verdict": verdict(removes, words),
        })
    };
    let containers: Vec<Value> = container_rows(view, only_removed).into_iter().map(value).collect();
    let sandbox = |one: &SandboxRemoval| {
        json!({
            "id": one.id.as_str(), "remove": true, "reason": format!("{:?}", one.reason),
            "verdict": verdict(true, sandbox_reason(one.reason)),
        })
    };
    let sandboxes: Vec<Value> = view.sandboxes.iter().map(sandbox).collect();
    let values = [
        ("containers", containers.into()),
        ("sandboxes", sandboxes.into()),
        ("reservations", view.reservations.clone().into()),
    ];
    values.into_iter().map(|(name, value): (&str, Value)| (name.to_owned(), value)).collect()
}

fn write_container_table(
    view: &ContainerView,
    only_removed: bool,
    format: Format,
    out: &mut impl Write,
) -> Result<()> {
    let rows = container_rows(view, only_removed);
    if rows.is_empty() {
        writeln!(out, "No container{}.", if only_removed { " would be removed" } else { "" })?;
    } else {
        let mut table = Table::new(&["NAMESPACE", "POD", "CONTAINER", "ID", "STATE", "AGE", "VERDICT"]);
        for (one, removes, _, words) in rows {
            table.row(vec![
                one.names.namespace.to_string(),
                one.names.pod.to_string(),
                one.names.container.to_string(),
                format.identifier(one.container.id.as_str()),
                format!("{:?}", one.container.state),
                age(view.age(one)),
                verdict(removes, words),
            ]);
        }
        table.write(out)?;
    }
    for one in &view.sandboxes {
        let id = format.identifier(one.id.as_str());
        writeln!(out, "sandbox {id} {}", verdict(true, sandbox_reason(one.reason)))?;
    }
    if let Some(reservations) = &view.reservations {
        writeln!(out, "{reservations}")?;
    }
    Ok(())
}

fn verdict(removes: bool, words: &str) -> String {
    format!("{}: {words}", if removes { "remove" } else { "keep" })
}

fn container_goes(reason: ContainerRemovalReason) -> &'static str {
    match reason {
        ContainerRemovalReason::PodGone => "its pod is gone",
        ContainerRemovalReason::PodFinished => "its pod is finished, and space is needed",
        ContainerRemovalReason::PerPodContainerLimit => "more dead ones of this name than are kept",
        ContainerRemovalReason::NodeLimit => "more dead ones on the node than are kept",
    }
}

fn container_stays(reason: ContainerKeepReason) -> &'static str {
    match reason {
        ContainerKeepReason::Running => "it runs",
        ContainerKeepReason::TooYoung => "younger than the minimum age",
        ContainerKeepReason::Foreign => "the kubelet did not make it",
        ContainerKeepReason::Unidentified => "it has no name or no pod",
        ContainerKeepReason::WithinLimits => "within the limits",
        ContainerKeepReason::NewestOfLivePod => "newest of its name in a pod that may be live",
        ContainerKeepReason::InitialisationUnderWay => "its pod is being initialised",
    }
}

fn sandbox_reason(reason: SandboxRemovalReason) -> &'static str {
    match reason {
        SandboxRemovalReason::PodGone => "its pod is gone",
        SandboxRemovalReason::PodFinished => "its pod is finished, and space is needed",
        SandboxRemovalReason::Superseded => "its pod has a newer one",
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
