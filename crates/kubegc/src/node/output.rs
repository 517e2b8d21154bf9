//! What people and programs see: plans, lists and reports.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{IsTerminal as _, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::ValueEnum;
use gc_cri::ListedContainer;
use gc_retention::containers::plan::{ContainerKeepReason, ContainerPlan, ContainerRemovalReason};
use gc_retention::containers::sandboxes::{SandboxRemoval, SandboxRemovalReason};
use gc_retention::images::history::ImageHistory;
use gc_retention::images::layers::LayerUsers;
use gc_retention::images::plan::{ImagePlan, KeepReason, Removal, RemovalReason};
use gc_retention::images::space::{BinaryBytes, Thresholds};
use gc_retention::images::{Image, ImageId};
use gc_retention::pressure::Signal;
use gc_types::{GoDuration, UnixNanoseconds};
use serde_json::{Map, Value, json};

use super::images::Observation;
use crate::table::Table;

/// Forms of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Aligned table
    #[default]
    Table,
    /// Aligned table with full identifiers
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

impl Format {
    fn is_for_programs(self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }

    /// In full where it was asked for, else the twelve digits that people compare.
    fn identifier(self, id: &str) -> String {
        if self == Self::Wide {
            return id.to_owned();
        }
        id.strip_prefix("sha256:").unwrap_or(id).chars().take(12).collect()
    }
}

/// What was removed since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Images.
    pub images: u64,
    /// Bytes that became available on the image filesystems during the pass.
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

/// What a pass removed: a sentence for people, one document for programs.
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

    /// Writes over the line. The cursor is left at its beginning, so that a line of the log (which is longer) takes its
    /// place.
    pub(super) fn show(self, what: &str, done: usize) {
        if self.shown {
            eprint!("\x1b[Kremoving {what}: {done}\r");
        }
    }

    /// Clears the line.
    pub(super) fn end(self) {
        if self.shown {
            eprint!("\x1b[K");
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
        write!(out, "{}", crate::yaml::to_string(value)?)?;
    } else {
        writeln!(out, "{}", serde_json::to_string_pretty(value)?)?;
    }
    Ok(())
}

/// What a dry run would do.
#[derive(Debug, Default)]
pub(super) struct DryRun {
    /// Images, if they are collected.
    pub images: Option<GoingImages>,
    /// Containers and what hangs on them, if they are collected.
    pub leftovers: Option<GoingLeftovers>,
}

/// How full an image filesystem is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DiskUse {
    /// Where it is mounted.
    pub path: Arc<str>,
    /// Use of bytes.
    pub usage_percent: u8,
    /// Use of inodes.
    pub inodes_usage_percent: u8,
    /// When collection begins and ends.
    pub thresholds: Thresholds,
    /// What must be freed, if it is over its threshold; [`u64::MAX`] where inodes alone are short.
    pub missing_bytes: Option<u64>,
}

impl fmt::Display for DiskUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Thresholds { high_percent, low_percent } = self.thresholds;
        write!(f, "{}: {} % used", self.path, self.usage_percent)?;
        match self.missing_bytes {
            None => write!(f, ", below its threshold of {high_percent} %."),
            Some(u64::MAX) => write!(
                f,
                " ({} % of inodes), threshold {high_percent} → {low_percent}: inodes are needed.",
                self.inodes_usage_percent
            ),
            Some(bytes) => {
                write!(f, ", threshold {high_percent} → {low_percent}: {} needed.", BinaryBytes(bytes))
            }
        }
    }
}

/// Images that would go.
#[derive(Debug)]
pub(super) struct GoingImages {
    /// In their order.
    pub removals: Vec<Removal>,
    /// How full the image filesystems are.
    pub disks: Vec<DiskUse>,
    /// Eviction signals that fire, with the bytes that each misses.
    pub pressure: Vec<(Signal, u64)>,
    /// No agent has saved ages here yet, so that every image counts as old enough.
    pub first_contact: bool,
    /// The moment from which ages are counted.
    pub now: UnixNanoseconds,
}

/// Containers, sandboxes, log directories and links that would go.
#[derive(Debug)]
pub(super) struct GoingLeftovers {
    /// What there is, and what would become of it.
    pub containers: ContainerView,
    /// Log directories.
    pub log_directories: Vec<PathBuf>,
    /// Dead links.
    pub links: Vec<PathBuf>,
}

impl DryRun {
    /// Writes all of it: one document for programs, tables for people.
    pub(super) fn write(&self, format: Format, out: &mut impl Write) -> Result<()> {
        if format.is_for_programs() {
            let mut document = Map::new();
            for part in [
                self.images.as_ref().map(GoingImages::values),
                self.leftovers.as_ref().map(GoingLeftovers::values),
            ] {
                document.extend(part.unwrap_or_default());
            }
            return write_value(&Value::Object(document), format, out);
        }
        if let Some(images) = &self.images {
            images.write_table(format, out)?;
        }
        if let Some(leftovers) = &self.leftovers {
            leftovers.write_table(format, out)?;
        }
        Ok(())
    }
}

impl GoingImages {
    fn freed(&self) -> u64 {
        self.removals.iter().map(|removal| removal.expected_freed_bytes).sum()
    }

    fn values(&self) -> Map<String, Value> {
        let value = |removal: &Removal| {
            json!({
                "id": removal.id.as_str(), "name": &*removal.name, "reason": reason(removal.reason),
                "sizeBytes": removal.size_bytes, "expectedFreedBytes": removal.expected_freed_bytes,
                "firstSeenUnixNanoseconds": removal.first_seen.0,
                "lastUsedUnixNanoseconds": removal.last_used.map(|used| used.0),
                "irreplaceable": removal.irreplaceable,
            })
        };
        let images: Vec<Value> = self.removals.iter().map(value).collect();
        let needed = |bytes: u64| if bytes == u64::MAX { Value::Null } else { bytes.into() };
        let disk = |disk: &DiskUse| {
            json!({
                "path": &*disk.path, "usagePercent": disk.usage_percent,
                "inodesUsagePercent": disk.inodes_usage_percent,
                "overThreshold": disk.missing_bytes.is_some(),
                "missingBytes": disk.missing_bytes.map_or(Value::Null, needed),
            })
        };
        let signal = |(signal, bytes): &(Signal, u64)| json!({"signal": signal.to_string(), "missingBytes": needed(*bytes)});
        let values = [
            ("images", images.into()),
            ("expectedFreedBytes", self.freed().into()),
            ("filesystems", self.disks.iter().map(disk).collect::<Vec<_>>().into()),
            ("evictionSignals", self.pressure.iter().map(signal).collect::<Vec<_>>().into()),
            ("firstContact", self.first_contact.into()),
        ];
        values.into_iter().map(|(name, value): (&str, Value)| (name.to_owned(), value)).collect()
    }

    fn write_table(&self, format: Format, out: &mut impl Write) -> Result<()> {
        for disk in &self.disks {
            writeln!(out, "{disk}")?;
        }
        for (signal, _) in &self.pressure {
            writeln!(out, "The eviction threshold of {signal} is crossed.")?;
        }
        if self.first_contact {
            writeln!(
                out,
                "No ages are saved here yet, so every image counts as old enough; the first real pass only starts to count."
            )?;
        }
        if self.removals.is_empty() {
            writeln!(out, "No image would be removed.")?;
            return Ok(());
        }
        let mut table = Table::new(&["#", "IMAGE", "ID", "SIZE", "FREES", "AGE", "LAST USED", "WHY"]);
        for (place, removal) in self.removals.iter().enumerate() {
            let warning = if removal.irreplaceable { " (cannot be pulled again)" } else { "" };
            table.row(vec![
                (place + 1).to_string(),
                removal.name.to_string(),
                format.identifier(removal.id.as_str()),
                BinaryBytes(removal.size_bytes).to_string(),
                BinaryBytes(removal.expected_freed_bytes).to_string(),
                age(self.now.since(removal.first_seen)),
                removal.last_used.map_or("never".into(), |used| age(self.now.since(used))),
                format!("{}{warning}", reason(removal.reason)),
            ]);
        }
        table.write(out)?;
        writeln!(
            out,
            "{} images would be removed, which is expected to free {}.",
            self.removals.len(),
            BinaryBytes(self.freed())
        )?;
        Ok(())
    }
}

impl GoingLeftovers {
    fn values(&self) -> Map<String, Value> {
        let paths = |list: &[PathBuf]| {
            list.iter().map(|path| Value::from(path.display().to_string())).collect::<Vec<_>>()
        };
        let mut values = self.containers.values(true);
        values.insert("logDirectories".into(), paths(&self.log_directories).into());
        values.insert("links".into(), paths(&self.links).into());
        values
    }

    fn write_table(&self, format: Format, out: &mut impl Write) -> Result<()> {
        self.containers.write_table(true, format, out)?;
        for path in &self.log_directories {
            writeln!(out, "log directory {}: remove, its pod is gone", path.display())?;
        }
        for path in &self.links {
            writeln!(out, "link {}: remove, its container is gone", path.display())?;
        }
        Ok(())
    }
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
    for removal in plan.by_age.iter().chain(&plan.by_space) {
        let text = match removal.reason {
            RemovalReason::Age => "remove: unused for too long",
            RemovalReason::Space => "remove when space is needed",
        };
        verdicts.insert(&removal.id, text.into());
    }
    let each_once: BTreeMap<&ImageId, &Image> = observation.images.iter().map(|one| (&one.id, one)).collect();
    let layers = LayerUsers::of(each_once.values().copied());
    let now = observation.started;
    let mut table = Table::new(&["IMAGE", "ID", "SIZE", "SHARED", "AGE", "LAST USED", "VERDICT"]);
    let mut values = Vec::new();
    let mut images: Vec<&Image> = observation.images.iter().collect();
    images.sort_by_key(|image| (image.display_name(), &image.id));
    for image in images {
        let record = history.get(&image.id);
        let used = record.and_then(gc_retention::images::history::ImageRecord::last_used);
        let first_seen = record.map(gc_retention::images::history::ImageRecord::first_seen);
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
    match format {
        Format::Json | Format::Yaml => write_value(&json!({"images": values}), format, out),
        Format::Table | Format::Wide => table.write(out),
    }
}

/// Every container and sandbox, and what a pass would do with it.
#[derive(Debug)]
pub(super) struct ContainerView {
    /// What the runtime lists.
    pub listed: Vec<ListedContainer>,
    /// What becomes of the containers.
    pub plan: ContainerPlan,
    /// Sandboxes that go.
    pub sandboxes: Vec<SandboxRemoval>,
    /// What stays for as long as it is not known which pods exist, in words.
    pub reservations: Option<String>,
    /// The moment from which ages are counted.
    pub now: UnixNanoseconds,
}

impl ContainerView {
    /// Writes all of it.
    pub(super) fn write(&self, format: Format, out: &mut impl Write) -> Result<()> {
        if format.is_for_programs() {
            return write_value(&Value::Object(self.values(false)), format, out);
        }
        self.write_table(false, format, out)
    }

    /// The removals, in their order, then (unless only those are wanted) what is kept: whether it is removed,
    /// the name of the reason for programs, and the reason in words.
    fn rows(&self, only_going: bool) -> Vec<(&ListedContainer, bool, String, &'static str)> {
        let going = self.plan.removals.iter().map(|removal| {
            (removal.place, true, format!("{:?}", removal.reason), container_goes(removal.reason))
        });
        let kept = self.plan.kept.iter().filter(|_| !only_going);
        let kept = kept.map(|(place, why)| (*place, false, format!("{why:?}"), container_stays(*why)));
        going
            .chain(kept)
            .filter_map(|(place, goes, name, words)| Some((self.listed.get(place)?, goes, name, words)))
            .collect()
    }

    fn values(&self, only_going: bool) -> Map<String, Value> {
        let value = |(one, goes, name, words): (&ListedContainer, bool, String, &str)| {
            json!({
                "id": one.container.id.as_str(), "namespace": &*one.names.namespace, "pod": &*one.names.pod,
                "container": &*one.names.container, "state": format!("{:?}", one.container.state),
                "createdUnixNanoseconds": one.container.created_at.0, "managed": one.container.managed,
                "goes": goes, "reason": name, "verdict": verdict(goes, words),
            })
        };
        let containers: Vec<Value> = self.rows(only_going).into_iter().map(value).collect();
        let sandbox = |one: &SandboxRemoval| {
            json!({
                "id": one.id.as_str(), "goes": true, "reason": format!("{:?}", one.reason),
                "verdict": verdict(true, sandbox_goes(one.reason)),
            })
        };
        let sandboxes: Vec<Value> = self.sandboxes.iter().map(sandbox).collect();
        let values = [
            ("containers", containers.into()),
            ("sandboxes", sandboxes.into()),
            ("reservations", self.reservations.clone().into()),
        ];
        values.into_iter().map(|(name, value): (&str, Value)| (name.to_owned(), value)).collect()
    }

    fn write_table(&self, only_going: bool, format: Format, out: &mut impl Write) -> Result<()> {
        let rows = self.rows(only_going);
        if rows.is_empty() {
            writeln!(out, "No container{}.", if only_going { " would be removed" } else { "" })?;
        } else {
            let mut table = Table::new(&["NAMESPACE", "POD", "CONTAINER", "ID", "STATE", "AGE", "VERDICT"]);
            for (one, goes, _, words) in rows {
                table.row(vec![
                    one.names.namespace.to_string(),
                    one.names.pod.to_string(),
                    one.names.container.to_string(),
                    format.identifier(one.container.id.as_str()),
                    format!("{:?}", one.container.state),
                    age(self.now.since(one.container.created_at)),
                    verdict(goes, words),
                ]);
            }
            table.write(out)?;
        }
        for one in &self.sandboxes {
            let id = format.identifier(one.id.as_str());
            writeln!(out, "sandbox {id} {}", verdict(true, sandbox_goes(one.reason)))?;
        }
        if let Some(reservations) = &self.reservations {
            writeln!(out, "{reservations}")?;
        }
        Ok(())
    }
}

fn verdict(goes: bool, words: &str) -> String {
    format!("{}: {words}", if goes { "remove" } else { "keep" })
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

fn sandbox_goes(reason: SandboxRemovalReason) -> &'static str {
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
