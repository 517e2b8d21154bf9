//! Assessment of objects by a policy.

use std::sync::Arc;

use gc_cel::{Budget, Scope, Val};
use gc_types::{ResourceVersion, Timestamp, Uid};
use serde::Deserialize as _;
use serde_json::Value;

use super::unused::UnusedMark;
use super::{
    CONDITION_BUDGET, FINISHED, Join, NOW, Namespaces, Operator, Per, Policy, Requirement, SYSTEM_NAMESPACES,
};
use crate::objects::{Job, Pod, parse_time, time_text};

/// Assessment of an object by a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assessment {
    /// Not selected, or already terminating.
    Aside,
    /// Selected, but carries `kubegc.io/keep`.
    Kept,
    /// Unknown: the condition could not be evaluated, for this reason.
    Unclear(String),
    /// Selected.
    Selected(Item),
}

/// A selected object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// UID of the object.
    pub uid: Uid,
    /// Version of the object.
    pub resource_version: ResourceVersion,
    /// Position of the object among the objects of its group, oldest first.
    pub order: Timestamp,
    /// Group of which only the newest are kept; `None` if their number does not matter.
    pub group: Option<Group>,
    /// Time at which it is too old, with the rule.
    pub expires: Option<(Timestamp, Arc<str>)>,
    /// Time of the last check that found it unused, if that counts.
    pub seen: Option<Timestamp>,
}

/// Objects of which the newest are kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group(Arc<str>, Arc<str>);

impl Policy {
    /// Assesses an object, which may be its metadata only; `now` is the time for its condition.
    #[must_use]
    pub fn look(&self, object: &Value, now: Timestamp) -> Assessment {
        let metadata = &object["metadata"];
        if !metadata["deletionTimestamp"].is_null() || !self.selects(object) {
            return Assessment::Aside;
        }
        if let Some(condition) = &self.condition {
            let mut scope = Scope::default();
            scope.bind("object", object, None);
            if let Ok(now) = jiff::Timestamp::from_millisecond(now.0) {
                scope.set(NOW, Val::Timestamp(now.into()));
            }
            match condition.holds(&mut scope, &mut Budget::new(CONDITION_BUDGET)) {
                Ok(true) => {}
                Ok(false) => return Assessment::Aside,
                Err(error) => return Assessment::Unclear(error.to_string()),
            }
        }
        let keep = metadata["annotations"]["kubegc.io/keep"].as_str();
        if keep.is_some_and(|keep| keep != "false") {
            return Assessment::Kept;
        }
        if self.rules.unused.is_some() && UnusedMark::of(metadata).is_none() {
            return Assessment::Aside;
        }
        Assessment::Selected(self.item(object))
    }

    fn selects(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        // A Namespace is selected by the same rule as its contents.
        let is_namespace = *self.kind == *"Namespace" && *self.api_version == *"v1";
        let namespace = if is_namespace { &metadata["name"] } else { &metadata["namespace"] };
        let protected = is_namespace && namespace == "default";
        namespace.as_str().is_none_or(|name| self.namespaces.select(name, protected))
            && self.labels.iter().all(|label| label.fits(metadata["labels"][&label.key].as_str()))
            && self.fields.iter().all(|(path, field)| {
                let found = path.iter().try_fold(object, |value, step| value.get(step));
                field.fits(found.and_then(printed).as_deref())
            })
    }

    fn item(&self, object: &Value) -> Item {
        let metadata = &object["metadata"];
        let text = |name: &str| metadata[name].as_str();
        let created = parse_time(text("creationTimestamp"));
        let by_finish = self.rules.newest.as_ref().is_some_and(|newest| newest.by_finish);
        let finished = if by_finish { self.finished(object) } else { None };
        Item {
            uid: Uid::new(text("uid").unwrap_or_default()),
            resource_version: ResourceVersion::parse(text("resourceVersion").unwrap_or_default()),
            order: finished.or(created).unwrap_or_default(),
            // An unfinished object does not count among finished ones.
            group: self.group(metadata).filter(|_| !by_finish || finished.is_some()),
            expires: self.expires(object, created),
            seen: self.rules.unused.as_ref().and(UnusedMark::of(metadata)).map(|mark| mark.seen),
        }
    }

    fn group(&self, metadata: &Value) -> Option<Group> {
        let shared = |value: &Value| Arc::from(value.as_str().unwrap_or_default());
        let namespace = shared(&metadata["namespace"]);
        match &self.rules.newest.as_ref()?.per {
            Per::Cluster => Some(Group("".into(), "".into())),
            Per::Namespace => Some(Group(namespace, "".into())),
            Per::Owner => {
                let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
                let controller = owners.find(|owner| owner["controller"] == true)?;
                Some(Group(namespace, shared(&controller["uid"])))
            }
            Per::Label(label) => {
                metadata["labels"][label].as_str().map(|value| Group(namespace, value.into()))
            }
        }
    }

    fn expires(&self, object: &Value, created: Option<Timestamp>) -> Option<(Timestamp, Arc<str>)> {
        let path = self.rules.join.path();
        let by_age = self.rules.max_age_milliseconds.map(|age| {
            let created = created?;
            let why = format!("created at {}, older than {path}.maxAge", time_text(created));
            Some((created.after(age), why))
        });
        let by_condition = self.rules.ttl.as_ref().map(|ttl| {
            let since = if ttl.condition == FINISHED {
                self.finished(object)
            } else {
                condition_since(object, &ttl.condition, &ttl.status)
            }?;
            let why = format!(
                "{} is {} since {}, for longer than {path}.ttlAfter",
                ttl.condition,
                ttl.status,
                time_text(since)
            );
            Some((since.after(ttl.milliseconds), why))
        });
        let by_disuse = self.rules.unused.as_ref().map(|unused| {
            let UnusedMark { since, .. } = UnusedMark::of(&object["metadata"])?;
            let why = format!("unused at every look since {}, for longer than spec.unused", time_text(since));
            Some((since.after(unused.milliseconds), why))
        });
        let mut times = by_age.into_iter().chain(by_condition).chain(by_disuse);
        if self.rules.join != Join::All {
            return times.flatten().min_by_key(|(at, _)| *at).map(|(at, why)| (at, why.into()));
        }
        // If all rules must apply, one without a time prevents it, and otherwise the last one decides.
        let (mut last, mut whys) = (None, Vec::new());
        for time in times.by_ref() {
            let (at, why) = time?;
            last = last.max(Some(at));
            whys.push(why);
        }
        last.map(|at| (at, whys.join(", and ").into()))
    }

    fn finished(&self, object: &Value) -> Option<Timestamp> {
        match &*self.kind {
            "Pod" => Pod::deserialize(object).ok()?.finished,
            "Job" => Job::deserialize(object).ok()?.finished,
            _ => None,
        }
    }
}

fn condition_since(object: &Value, kind: &str, status: &str) -> Option<Timestamp> {
    let mut conditions = object["status"]["conditions"].as_array()?.iter();
    let found = conditions.find(|condition| condition["type"] == kind && condition["status"] == status)?;
    parse_time(found["lastTransitionTime"].as_str())
}

/// Returns a scalar as text; `None` for null, lists and empty objects.
fn printed(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

impl Requirement {
    pub(crate) fn fits(&self, found: Option<&str>) -> bool {
        let among = || found.is_some_and(|found| self.values.iter().any(|value| value == found));
        match self.operator {
            Operator::In => among(),
            Operator::NotIn => !among(),
            Operator::Exists => found.is_some(),
            Operator::DoesNotExist => found.is_none(),
        }
    }
}

impl Namespaces {
    fn select(&self, name: &str, protected: bool) -> bool {
        let named = self.include.iter().any(|include| include == name);
        if (protected || SYSTEM_NAMESPACES.contains(&name)) && !named {
            return false;
        }
        (self.include.is_empty() || self.include.iter().any(|pattern| name_matches(pattern, name)))
            && !self.exclude.iter().any(|pattern| name_matches(pattern, name))
    }
}

/// Reports whether a name matches a pattern in which each `*` stands for any text.
#[must_use]
pub fn name_matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, name, expected) in [
            ("shop", "shop", true),
            ("shop", "shops", false),
            ("preview-*", "preview-12", true),
            ("preview-*", "preview", false),
            ("*-test", "a-test", true),
            ("*", "anything", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("a*a", "a", false),
            ("*ab*b", "xab", false),
            ("*ab*b", "xabb", true),
        ] {
            assert_eq!(name_matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
