//! Properties of parsing objects, as bodies of fuzz targets (`fuzz/` at the root), which also run as tests. Inputs of several parts
//! have one on each line.
#![allow(clippy::unwrap_used, reason = "a broken law should stop the run")]

use std::sync::Arc;

use gc_types::{GoDuration, Marks, Timestamp};
use serde_json::{Value, json};

use crate::expiry::expiry;
use crate::images::patterns::ImagePatterns;
use crate::images::plan::AgePolicy;
use crate::images::rules::ReferenceRules;
use crate::images::space::Thresholds;
use crate::images::storage::Storage;
use crate::node_policies::{ImageSettings, Moment, NodePolicy};
use crate::objects::{Facts, FactsEvent, FactsPage, Kind, parse_time, time_text, x509};
use crate::policies::cron::{Schedule, next_time};
use crate::policies::{Assessment, Policy};

/// Checks that a certificate in PEM ends at a time that certificates can express, whatever precedes it.
pub fn issued_certificate(data: &[u8]) {
    let found = x509::not_after(data);
    assert_eq!(x509::not_after(&[b"Bag Attributes\n", data].concat()), found);
    /// Times in the year 1 and before mean no time in the API.
    const FIRST_TOLD: i64 = -62_135_596_799_000;
    if let Some(end) = found.filter(|end| end.0 >= FIRST_TOLD) {
        assert_eq!(parse_time(Some(&time_text(end))), Some(end));
    }
}

/// Reads the JSON of an object as each kind: pages and watches must give the same result as the object alone.
pub fn facts(data: &[u8]) {
    let whole: Option<Value> = serde_json::from_slice(data).ok();
    for &kind in Kind::ALL {
        let _ = (FactsPage::read(kind, data), FactsEvent::read(kind, data));
        let Some(object) = &whole else { continue };
        let read = Facts::read(kind, object.to_string().as_bytes()).ok();
        let info = kind.info();
        let page = json!({
            "kind": format!("{}List", info.kind), "apiVersion": info.gvr.api_version(),
            "metadata": {"resourceVersion": "8", "continue": "c"}, "items": [object, object],
        });
        let page = FactsPage::read(kind, page.to_string().as_bytes()).ok();
        // A list with an object without a name is refused.
        let listed = read.clone().filter(|facts| !facts.meta().name.is_empty());
        assert_eq!(page.map(|page| page.items), listed.map(|facts| vec![facts.clone(), facts]));
        let line = |name: &str| {
            let line = json!({"type": name, "object": object}).to_string();
            FactsEvent::read(kind, line.as_bytes()).ok().map(|(event, _)| event)
        };
        assert_eq!(line("ADDED"), read.clone().map(FactsEvent::Present));
        assert_eq!(line("DELETED"), read.clone().map(FactsEvent::Deleted));
        if let Some(facts) = read {
            assert_eq!((facts.kind(), facts.key().resource), (kind, kind.resource()));
        }
    }
}

/// Checks the annotations `kubegc.io/ttl`, `expires-at` and `keep`, and the time from which the first counts: a kept object is
/// never deleted, and any other is deleted at the earlier of the two times, if both can be parsed.
pub fn annotations(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.split('\n').map(|line| (!line.is_empty()).then(|| Arc::from(line)));
    let mut next = || lines.next().flatten();
    let (ttl, expires_at, keep, begins): (
        Option<Arc<str>>,
        Option<Arc<str>>,
        Option<Arc<str>>,
        Option<Arc<str>>,
    ) = (next(), next(), next(), next());
    let begins = begins.and_then(|text| text.parse().ok()).map(Timestamp);
    let marks = Marks {
        created: begins,
        ttl: ttl.clone(),
        expires_at: expires_at.clone(),
        keep: keep.clone(),
        ..Marks::default()
    };
    let lived = ttl.as_deref().map(|ttl| GoDuration::parse_with_days(ttl).ok().filter(|ttl| ttl.0 >= 0));
    let time = expires_at.as_deref().map(|text| parse_time(Some(text)));
    let is_clear = lived != Some(None)
        && time != Some(None)
        && keep.as_deref().is_none_or(|keep| keep == "true" || keep == "false");
    let found = expiry(&marks, begins, &[]);
    assert_eq!(found.is_ok(), is_clear);
    let Ok(found) = found else { return };
    if keep.is_some_and(|keep| &*keep != "false") {
        assert_eq!(found, None);
        return;
    }
    let by_ttl = lived.flatten().zip(begins).map(|(ttl, begins)| {
        let rest = i64::from(ttl.0 % 1_000_000 != 0);
        Timestamp(begins.0.saturating_add(ttl.0 / 1_000_000 + rest))
    });
    assert_eq!(found.map(|(at, _)| at), by_ttl.into_iter().chain(time.flatten()).min());
}

/// Checks that the next time of a schedule is later, is found again from just before it, and that no time lies between.
pub fn schedule(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (text, now) = text.split_once('\n').unwrap_or((text, ""));
    let now = Timestamp(now.parse().unwrap_or(1_790_000_000_000));
    let Ok(schedule) = Schedule::parse(text) else { return };
    assert!(schedule.next(Some(now), 0, now) >= now);
    let Schedule::Cron(cron) = schedule else { return };
    let Some(next) = next_time(&cron, now) else { return };
    assert!(next > now);
    assert_eq!(next.0 % 60_000, 0);
    for between in [Timestamp(next.0 - 1), Timestamp(now.0 + (next.0 - now.0) / 2)] {
        assert_eq!(next_time(&cron, between), Some(next));
    }
}

/// Checks a policy's `spec` and an object: errors are reported, and terminating and kept objects are never selected.
pub fn retention_policy(data: &[u8]) {
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let mut next = || lines.next().and_then(|line| serde_json::from_slice::<Value>(line).ok());
    let Some(spec) = next() else { return };
    let policy = match Policy::compile(&spec) {
        Ok(policy) => policy,
        Err(problems) => {
            assert!(problems.iter().all(|problem| problem.field.starts_with("spec")) && !problems.is_empty());
            return;
        }
    };
    let Some(mut object) = next() else { return };
    let now = Timestamp(1_800_000_000_000);
    assert_eq!(policy.look(&object, now), policy.look(&object, now));
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = json!({"kubegc.io/keep": "yes"});
    metadata.insert("annotations".into(), annotations);
    assert!(!matches!(policy.look(&object, now), Assessment::Selected(_)));
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(policy.look(&object, now), Assessment::Aside);
}

/// Checks the `spec` of a policy for nodes: errors are reported, images that a node protects stay protected, and the younger age
/// comes first.
pub fn node_policy(data: &[u8]) {
    let Ok(spec) = serde_json::from_slice::<Value>(data) else { return };
    let policy = match NodePolicy::compile(&spec) {
        Ok(policy) => policy,
        Err(problems) => {
            assert!(problems.iter().all(|problem| problem.field.starts_with("spec")) && !problems.is_empty());
            return;
        }
    };
    let own = ImageSettings {
        thresholds: Thresholds { high_percent: 85, low_percent: 80 },
        ages: AgePolicy { minimum_age: GoDuration::from_seconds(120), maximum_age: None },
        protection: ImagePatterns::new(["*/pause"]).unwrap(),
        rules: ReferenceRules::default(),
    };
    for moment in [Moment::InAWindow, Moment::At(Timestamp(1_800_000_000_000))] {
        let Ok(found) = policy.applied_to(&own, moment) else { continue };
        assert!(found.thresholds.low_percent < found.thresholds.high_percent);
        assert!(found.ages.maximum_age.is_none_or(|maximum| maximum > found.ages.minimum_age));
        assert_eq!(found.protection.iter().next(), Some("*/pause"));
        assert!(
            policy.is_open(moment)
                || found.rules
                    == ReferenceRules { unwanted: ImagePatterns::default(), ..found.rules.clone() }
        );
    }
}

/// Checks storage records of CRI-O, one list per line: each recorded layer has exactly one holder.
pub fn image_storage(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.split('\n');
    let mut next = || lines.next().unwrap_or_default();
    let (images, layers, containers) = (next(), next(), next());
    let Ok(found) = Storage::read(&[images], &[layers], &[containers]) else { return };
    let recorded: Vec<Value> = serde_json::from_str(layers).unwrap_or_default();
    assert!(found.layers.len() <= recorded.len());
    assert!(
        recorded.iter().all(|layer| layer["id"].as_str().is_some_and(|id| found.layers.contains_key(id)))
    );
}

#[cfg(test)]
gc_fuzz_replay::replay_tests!(
    issued_certificate,
    facts,
    annotations,
    schedule,
    retention_policy,
    node_policy,
    image_storage
);
