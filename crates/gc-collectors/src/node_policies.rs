//! Collection on nodes by policy: `NodeCollectionPolicy` objects (`kubegc.io/v1alpha1`, cluster-scoped) set thresholds, ages,
//! protected and unwanted images, and time windows of the nodes that they select.
//!
//! [`NodePolicy::compile`] validates a `spec`, [`roles`] decides which of the policies that select a node is in force there,
//! [`NodePolicy::applied_to`] applies it to the node's own settings, [`result`] is a node's report, and [`definition`] is the
//! CustomResourceDefinition. An invalid policy is in force nowhere.

pub mod definition;
pub mod result;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use gc_types::{GoDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use crate::images::patterns::ImagePatterns;
use crate::images::plan::AgePolicy;
use crate::images::rules::{Keep, KeepRule, ReferenceRules};
use crate::images::space::Thresholds;
use crate::policies::cron::{Schedule, next_time};
use crate::policies::{Problem, Problems, Requirement, WireSelector, labels};

/// Kind of the policies.
pub const KIND: &str = "NodeCollectionPolicy";
/// Resource of the policies.
pub const RESOURCE: &str = "nodecollectionpolicies";
/// Maximum number of protected images.
pub const MOST_PROTECTED: usize = 128;
/// Maximum number of patterns of images to remove, and of rules by reference.
pub const MOST_REMOVED: usize = 64;
/// Maximum number of windows.
pub const MOST_WINDOWS: usize = 16;
/// Minimum and maximum duration of a window, milliseconds.
pub const WINDOW_MILLISECONDS: (i64, i64) = (60_000, 7 * 86_400_000);
/// Maximum priority; the minimum is its negative.
pub const HIGHEST_PRIORITY: i64 = 1_000_000;
/// Maximum length of a pattern.
pub const LONGEST_PATTERN: usize = 512;

/// A compiled policy.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePolicy {
    /// True if it is to be in force; otherwise nodes only report what it would do.
    pub enforce: bool,
    /// Priority: of the policies in force that select a node, the highest one counts.
    pub priority: i64,
    selector: Vec<Requirement>,
    thresholds: Option<Thresholds>,
    minimum_age: Option<GoDuration>,
    maximum_age: Option<GoDuration>,
    protected: ImagePatterns,
    unwanted: ImagePatterns,
    keep: Vec<KeepRule>,
    windows: Vec<Window>,
}

/// A time during which images may be removed because of their age, or because they are unwanted.
#[derive(Clone, Debug, PartialEq)]
struct Window {
    start: gc_types::Cron,
    milliseconds: i64,
}

impl Window {
    fn is_open(&self, now: Timestamp) -> bool {
        // Find the first start after the latest time at which a window that is now over can have begun.
        next_time(&self.start, now.after(-self.milliseconds)).is_some_and(|start| start <= now)
    }
}

/// Settings by which a node collects its images.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageSettings {
    /// Disk thresholds.
    pub thresholds: Thresholds,
    /// Ages.
    pub ages: AgePolicy,
    /// Images that are never removed.
    pub protection: ImagePatterns,
    /// Rules by reference: images that are removed last, and images that are unwanted.
    pub rules: ReferenceRules,
}

impl ImageSettings {
    /// Reports whether images are collected periodically.
    #[must_use]
    pub fn has_loop(&self) -> bool {
        self.thresholds.high_percent < 100
            || self.ages.maximum_age.is_some()
            || self.rules.unwanted.iter().next().is_some()
    }
}

/// Time at which a policy is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// As if a window were open, for results of a dry run.
    InAWindow,
    /// At this time.
    At(Timestamp),
}

impl NodePolicy {
    /// Parses a `spec`; reports all errors at once.
    pub fn compile(spec: &Value) -> Result<Self, Vec<Problem>> {
        let wire = WireSpec::deserialize(spec)
            .map_err(|error| vec![Problem { field: "spec".into(), message: error.to_string() }])?;
        let mut problems = Problems { found: Vec::new(), place: "spec" };
        let policy = wire.understand(&mut problems);
        if problems.found.is_empty() { Ok(policy) } else { Err(problems.found) }
    }

    /// Reports whether it selects a node with these labels.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.iter().all(|one| one.fits(labels.get(&one.key).map(String::as_str)))
    }

    /// Reports whether images may be removed because of their age, or because they are unwanted.
    #[must_use]
    pub fn is_open(&self, moment: Moment) -> bool {
        match moment {
            Moment::InAWindow => true,
            Moment::At(now) => {
                self.windows.is_empty() || self.windows.iter().any(|window| window.is_open(now))
            }
        }
    }

    /// Returns the settings of a node under this policy. Settings that the policy omits stay as the node has them, and images that
    /// the node protects stay protected. Fails if the two contradict each other.
    pub fn applied_to(&self, own: &ImageSettings, moment: Moment) -> Result<ImageSettings, String> {
        let minimum_age = self.minimum_age.unwrap_or(own.ages.minimum_age);
        let maximum_age = self.maximum_age.or(own.ages.maximum_age);
        if let Some(maximum) = maximum_age.filter(|maximum| *maximum <= minimum_age) {
            return Err(format!(
                "the maximum age {maximum} must be greater than the minimum age {minimum_age}"
            ));
        }
        let is_open = self.is_open(moment);
        let unwanted = own.rules.unwanted.and(&self.unwanted);
        let rules = ReferenceRules {
            keep: own.rules.keep.iter().chain(&self.keep).cloned().collect(),
            unwanted: if is_open { unwanted } else { ImagePatterns::default() },
        };
        Ok(ImageSettings {
            thresholds: self.thresholds.unwrap_or(own.thresholds),
            ages: AgePolicy { minimum_age, maximum_age: maximum_age.filter(|_| is_open) },
            protection: own.protection.and(&self.protected),
            rules,
        })
    }
}

/// A policy, as listed.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedPolicy {
    /// Name of the policy.
    pub name: Arc<str>,
    /// Content of the policy, or why it is invalid.
    pub policy: Result<NodePolicy, String>,
}

/// Role of a policy on one node that it selects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role<'a> {
    /// In force.
    Enforced(&'a NodePolicy),
    /// Another policy is in force.
    Superseded(&'a str),
    /// Reports what it would do if it were in force.
    DryRun(&'a NodePolicy),
    /// Invalid; nodes cannot know whether it selects them.
    Invalid(&'a str),
}

/// Returns the roles of policies on a node with these labels; those that do not select it have none. Of the enforced ones, the one
/// with the highest priority is in force, and of several with the same priority the first by name. A policy that is not enforced
/// changes nothing, whatever its priority.
#[must_use]
pub fn roles<'a>(
    policies: &'a [ListedPolicy],
    labels: &BTreeMap<String, String>,
) -> Vec<(&'a str, Role<'a>)> {
    let valid = |listed: &'a ListedPolicy| listed.policy.as_ref().ok();
    let selecting = |policy: &&NodePolicy| policy.selects(labels);
    let enforced = policies.iter().filter_map(|one| Some((valid(one).filter(selecting)?, &*one.name)));
    let enforced = enforced.filter(|(policy, _)| policy.enforce);
    let in_force = enforced.min_by_key(|(policy, name)| (std::cmp::Reverse(policy.priority), *name));
    let role = |listed: &'a ListedPolicy| {
        let name = &*listed.name;
        let policy = match &listed.policy {
            Err(why) => return Some((name, Role::Invalid(why))),
            Ok(policy) if !policy.selects(labels) => return None,
            Ok(policy) => policy,
        };
        let role = match in_force {
            _ if !policy.enforce => Role::DryRun(policy),
            Some((_, other)) if other != name => Role::Superseded(other),
            _ => Role::Enforced(policy),
        };
        Some((name, role))
    };
    policies.iter().filter_map(role).collect()
}

#[derive(Default, Deserialize)]
#[serde(
    rename_all = "camelCase",
    default,
    deny_unknown_fields,
    expecting = "the spec of a node collection policy"
)]
struct WireSpec {
    enforce: bool,
    priority: i64,
    node_selector: WireSelector,
    thresholds: Option<WireThresholds>,
    ages: WireAges,
    protected_images: Vec<String>,
    remove_images: Vec<String>,
    keep_images: Vec<WireKeep>,
    windows: Vec<WireWindow>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireThresholds {
    high_percent: i64,
    low_percent: i64,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WireAges {
    minimum: Option<String>,
    maximum: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireKeep {
    pattern: String,
    keep: WireWord,
}

#[derive(Clone, Copy, Deserialize)]
enum WireWord {
    Always,
    Last,
    Never,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireWindow {
    start: String,
    duration: String,
}

impl WireSpec {
    fn understand(self, problems: &mut Problems) -> NodePolicy {
        if self.says_nothing() {
            problems.add("thresholds", NOTHING);
        }
        if self.priority.unsigned_abs() > HIGHEST_PRIORITY.unsigned_abs() {
            problems.add("priority", format!("must be between -{HIGHEST_PRIORITY} and {HIGHEST_PRIORITY}"));
        }
        let ages = [("ages.minimum", self.ages.minimum), ("ages.maximum", self.ages.maximum)];
        let [minimum_age, maximum_age] =
            ages.map(|(field, text)| text.and_then(|text| problems.duration_of(field, &text)));
        if let (Some(minimum), Some(maximum)) = (minimum_age, maximum_age)
            && maximum <= minimum
        {
            problems.add("ages", "the maximum must be greater than the minimum");
        }
        let unwanted = patterns("removeImages", &self.remove_images, MOST_REMOVED, problems);
        for pattern in self.remove_images.iter().filter(|pattern| pattern.chars().all(is_no_name)) {
            problems.add(
                "removeImages",
                format!("{pattern:?} would be every image; name a repository or a digest"),
            );
        }
        if let Some(both) = self.remove_images.iter().find(|pattern| self.protected_images.contains(pattern))
        {
            problems.add("removeImages", format!("{both:?} is protected as well"));
        }
        let count = self.keep_images.len();
        if count > MOST_REMOVED {
            problems.add("keepImages", format!("{count} rules; at most {MOST_REMOVED} are taken"));
        }
        let keep = self.keep_images.into_iter().filter_map(|WireKeep { pattern, keep }| {
            let keep = match keep {
                WireWord::Always => Keep::Always,
                WireWord::Last => Keep::Last,
                WireWord::Never => Keep::Never,
            };
            check_length("keepImages", &pattern, problems);
            problems.take("keepImages", KeepRule::new(&pattern, keep))
        });
        let keep = keep.collect();
        NodePolicy {
            enforce: self.enforce,
            priority: self.priority,
            selector: labels(self.node_selector, problems),
            thresholds: self.thresholds.and_then(|wire| wire.understand(problems)),
            minimum_age,
            maximum_age,
            protected: patterns("protectedImages", &self.protected_images, MOST_PROTECTED, problems),
            unwanted,
            keep,
            windows: windows(self.windows, problems),
        }
    }

    fn says_nothing(&self) -> bool {
        let lists = [self.protected_images.len(), self.remove_images.len(), self.keep_images.len()];
        let has_ages = self.ages.minimum.is_some() || self.ages.maximum.is_some();
        self.thresholds.is_none() && !has_ages && lists == [0, 0, 0] && self.windows.is_empty()
    }
}

/// Message about a policy without a rule.
const NOTHING: &str =
    "at least one of thresholds, ages, protectedImages, removeImages, keepImages and windows is required";

/// Reports whether a character identifies nothing in a pattern.
fn is_no_name(c: char) -> bool {
    matches!(c, '*' | '/' | ':' | '@' | '.')
}

fn check_length(field: &str, pattern: &str, problems: &mut Problems) {
    if pattern.len() > LONGEST_PATTERN {
        problems
            .add(field, format!("a pattern of {} bytes; at most {LONGEST_PATTERN} are taken", pattern.len()));
    }
}

fn patterns(field: &str, texts: &[String], most: usize, problems: &mut Problems) -> ImagePatterns {
    if texts.len() > most {
        problems.add(field, format!("{} patterns; at most {most} are taken", texts.len()));
    }
    for text in texts {
        check_length(field, text, problems);
    }
    let texts = texts.iter().map(String::as_str);
    problems.take(field, ImagePatterns::new(texts)).unwrap_or_default()
}

impl Problems {
    /// Returns a positive duration; otherwise records an error and returns `None`.
    fn duration_of(&mut self, field: &str, text: &str) -> Option<GoDuration> {
        let parsed = self.take(field, GoDuration::parse_with_days(text))?;
        if parsed <= GoDuration::ZERO {
            self.add(field, format!("{text:?} is not a positive duration"));
            return None;
        }
        Some(parsed)
    }
}

impl WireThresholds {
    fn understand(self, problems: &mut Problems) -> Option<Thresholds> {
        let Self { high_percent, low_percent } = self;
        let percent = |value: i64| u8::try_from(value).ok().filter(|value| *value <= 100);
        let (Some(high), Some(low)) = (percent(high_percent), percent(low_percent)) else {
            problems.add("thresholds", "must be between 0 and 100");
            return None;
        };
        if low >= high {
            problems.add("thresholds", "lowPercent must be less than highPercent");
            return None;
        }
        Some(Thresholds { high_percent: high, low_percent: low })
    }
}

fn windows(wire: Vec<WireWindow>, problems: &mut Problems) -> Vec<Window> {
    if wire.len() > MOST_WINDOWS {
        problems.add("windows", format!("{} windows; at most {MOST_WINDOWS} are taken", wire.len()));
    }
    let mut found = Vec::new();
    for WireWindow { start, duration } in wire {
        let (shortest, longest) = WINDOW_MILLISECONDS;
        let span = problems.duration_of("windows.duration", &duration);
        let milliseconds = span.map_or(shortest, GoDuration::to_milliseconds_rounded_up);
        if !(shortest..=longest).contains(&milliseconds) {
            problems.add("windows.duration", format!("{duration:?} is not between 1m and 7d"));
        }
        match problems.take("windows.start", Schedule::parse(&start)) {
            Some(Schedule::Cron(start)) => found.push(Window { start, milliseconds }),
            Some(_) => problems.add("windows.start", format!("{start:?} does not name times of the day")),
            None => {}
        }
    }
    found
}
