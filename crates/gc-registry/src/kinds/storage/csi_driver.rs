//! CSI drivers.

use std::collections::BTreeSet;

use crate::kinds::prelude::*;
use crate::kubernetes::FeatureGate;

const UPDATE_SECONDS_MIN: i64 = 10;
const TOKEN_SECONDS_MIN: i64 = 600;

/// Modes of a driver's volumes.
const MODES: [&str; 2] = ["Persistent", "Ephemeral"];

pub(crate) struct CsiDriver;

impl Kind for CsiDriver {
    const PARTS: Parts = Parts::Spec;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = Metadata { update: &[MetadataCheck::Change], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::boolean("AttachRequired", F("api.storage.v1.CSIDriverSpec", "attachRequired")),
        H::boolean("PodInfoOnMount", F("api.storage.v1.CSIDriverSpec", "podInfoOnMount")),
        H::boolean("StorageCapacity", F("api.storage.v1.CSIDriverSpec", "storageCapacity")),
        H::text("TokenRequests", F("api.storage.v1.CSIDriverSpec", "tokenRequests")),
        H::boolean("RequiresRepublish", F("api.storage.v1.CSIDriverSpec", "requiresRepublish")),
        H::text("Modes", F("api.storage.v1.CSIDriverSpec", "volumeLifecycleModes")),
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let boolean = |key: &str, other: bool| row.flag_or(&["spec", key], other);
        let texts = |values: Vec<&str>| values.join(",");
        let modes =
            texts(row.list(&["spec", "volumeLifecycleModes"]).iter().filter_map(Value::as_str).collect());
        let audiences = at(row.object, &["spec", "tokenRequests"]).map_or_else(
            || UNSET.into(),
            |_| {
                texts(
                    row.list(&["spec", "tokenRequests"])
                        .iter()
                        .map(|token| text(token, &["audience"]))
                        .collect(),
                )
            },
        );
        vec![
            row.name(),
            boolean("attachRequired", true),
            boolean("podInfoOnMount", false),
            boolean("storageCapacity", false),
            audiences.into(),
            boolean("requiresRepublish", false),
            if modes.is_empty() { NONE.into() } else { modes.into() },
            row.age(),
        ]
    }

    fn defaults(members: &mut Members) {
        let Some(spec) = child(members, "spec") else { return };
        fill_absent(spec, "attachRequired", true);
        fill_absent(spec, "podInfoOnMount", false);
        fill_absent(spec, "storageCapacity", false);
        fill_absent(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        fill_absent(spec, "volumeLifecycleModes", json!(["Persistent"]));
        fill_absent(spec, "requiresRepublish", false);
        fill_absent(spec, "seLinuxMount", false);
        if FeatureGate::VolumeLimitScaling.is_on() {
            fill_absent(spec, "preventPodSchedulingIfMissing", false);
        }
    }

    fn drop_disabled(members: &mut Members) {
        if !FeatureGate::VolumeLimitScaling.is_on() {
            disabled::drop_from(members, "spec", &["preventPodSchedulingIfMissing"]);
        }
    }

    /// Increases the generation of a driver with its spec; a new driver has none.
    fn prepare_update(new: &mut Value, old: &Value, _: &Context<'_>) {
        if new.get("spec") != old.get("spec") {
            let generation = integer(old, &["metadata", "generation"]).unwrap_or_default() + 1;
            put(new, &["metadata", "generation"], generation.into());
        }
    }

    /// Warns about tokens that drivers may log, when a create or a change requests them.
    fn warnings(object: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
        let requests = |object| list(object, &["spec", "tokenRequests"]);
        if !requests(object).is_empty()
            && old.is_none_or(|old| requests(old) != requests(object))
            && at(object, &["spec", "serviceAccountTokenInSecrets"]).is_none()
        {
            texts.push(
                "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
                 possible logging of tokens in volume attributes"
                    .into(),
            );
        }
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        spec(&object.get("spec"), report);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let (new, old) = (new.get("spec"), old.get("spec"));
        spec(&new, report);
        let attach = new.named("attachedRequired", new.member("attachRequired"));
        report.immutable(&attach, &old.get("attachRequired"));
        report.immutable(&new.get("volumeLifecycleModes"), &old.get("volumeLifecycleModes"));
    }
}

fn spec(spec: &Field<'_, '_>, report: &mut Report) {
    for (member, shown) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
        ("seLinuxMount", "seLinuxMount"),
    ] {
        if !spec.has(member) {
            report.required(&spec.get(shown), "");
        }
    }
    let policy = spec.get("fsGroupPolicy");
    if policy.is_set() {
        report.one_of_if_set(&policy, &["File", "None", "ReadWriteOnceWithFSType"]);
    } else {
        report.required(&policy, "");
    }
    let requests = spec.get("tokenRequests");
    let mut audiences = BTreeSet::new();
    for request in requests.items() {
        let audience = request.get("audience");
        if !audiences.insert(audience.text()) {
            report.duplicate_text(&audience, audience.text());
            continue;
        }
        let seconds = request.get("expirationSeconds");
        if let Some(number) = seconds.integer() {
            if number < TOKEN_SECONDS_MIN {
                report.invalid(&seconds, "may not specify a duration less than 10 minutes");
            }
            if number > 1 << 32 {
                report.invalid(&seconds, "may not specify a duration larger than 2^32 seconds");
            }
        }
    }
    let modes = spec.get("volumeLifecycleModes");
    for mode in modes.items() {
        if !MODES.contains(&mode.text()) {
            report.not_supported_shown(&modes, &quoted(mode.text()), &MODES);
        }
    }
    let period = spec.get("nodeAllocatableUpdatePeriodSeconds");
    if period.integer().is_some_and(|seconds| seconds < UPDATE_SECONDS_MIN) {
        report.invalid(&period, &format!("must be greater than or equal to {UPDATE_SECONDS_MIN} seconds"));
    }
    let secrets = spec.get("serviceAccountTokenInSecrets");
    if secrets.is_set() && requests.is_empty() {
        let why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        report.invalid(&secrets, why);
    }
}
