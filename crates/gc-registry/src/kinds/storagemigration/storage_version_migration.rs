//! Requests to rewrite every object of a resource in its storage version.

use crate::kinds::prelude::*;
use crate::kinds::printers::NAMED;
use crate::kinds::shared::conditions::conditions;

/// Conditions that a table shows once they are true.
const STATES: [&str; 3] = ["Running", "Succeeded", "Failed"];

pub(crate) struct StorageVersionMigration;

impl Kind for StorageVersionMigration {
    const PARTS: Parts = Parts::StatusOnly;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata =
        Metadata { update: &[MetadataCheck::Whole, MetadataCheck::Change], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        // Upstream does not mark this column as the name.
        H::text("Name", NAMED),
        H::text("Resource", T("GroupResource to migrate")),
        H::text("Status", T("Status of the migration")),
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let part = |name: &str| row.text(&["spec", "resource", name]);
        let (group, resource) = (part("group"), part("resource"));
        let resource = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        let is_shown = |condition: &&Value| {
            text(condition, &["status"]) == "True" && STATES.contains(&text(condition, &["type"]))
        };
        let shown = row.list(&["status", "conditions"]).iter().rfind(is_shown);
        let state = shown.map_or("Unknown", |condition| text(condition, &["type"]));
        vec![row.name(), resource.into(), state.into()]
    }

    fn defaults(_: &mut Members) {}

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let resource = spec.get("resource");
        if resource.text_of("resource").is_empty() {
            report.required(&resource.get("resource"), "resource is required");
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        Self::validate(new, report);
        let (spec, before) = (new.get("spec"), old.get("spec"));
        let (resource, before) = (spec.get("resource"), before.get("resource"));
        for name in ["group", "resource"] {
            if resource.text_of(name) != before.text_of(name) {
                // Upstream's path omits the parents.
                report.invalid(&new.named(name, resource.member(name)), IMMUTABLE);
            }
        }
    }

    fn validate_status(new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let (status, before) = (new.get("status"), old.get("status"));
        let version = status.get("resourceVersion");
        match version.text().parse::<i64>() {
            Ok(number) if number < 0 => report.invalid_shown(&version, &number, NOT_NEGATIVE),
            Ok(_) => {}
            Err(_) if version.text().is_empty() => {}
            Err(_) => report.invalid(&version, &not_a_number(version.text())),
        }
        let list = status.get("conditions");
        conditions(&list, report);
        if !before.text_of("resourceVersion").is_empty()
            && before.text_of("resourceVersion") != version.text()
        {
            report.invalid(&version, "cannot be updated");
        }
        outcome(&status, &before, report);
    }
}

fn not_a_number(text: &str) -> String {
    let shown = quoted(text);
    format!("failed to parse resource version {shown}: strconv.ParseInt: parsing {shown}: invalid syntax")
}

/// Checks that a migration succeeds or fails at most once, and is not running after that.
fn outcome(status: &Field<'_, '_>, before: &Field<'_, '_>, report: &mut Report) {
    let list = status.get("conditions");
    let mut refuse = |why: &str| report.invalid_shown(&list, list.value(), why);
    let (succeeded, failed, running) =
        (is_true(status, "Succeeded"), is_true(status, "Failed"), is_true(status, "Running"));
    if succeeded && failed {
        refuse("Both success and failed conditions cannot be true at the same time");
    }
    if succeeded && running {
        refuse("Running condition cannot be true when success condition is true");
    }
    if failed && running {
        refuse("Running condition cannot be true when failed condition is true");
    }
    if is_true(before, "Succeeded") && !succeeded {
        refuse("Success condition cannot be set to false once it is true");
    }
    if is_true(before, "Failed") && !failed {
        refuse("Failed condition cannot be set to false once it is true");
    }
}

fn is_true(status: &Field<'_, '_>, kind: &str) -> bool {
    let is_of = |condition: &Value| text(condition, &["type"]) == kind;
    let list = status.get("conditions");
    list.list()
        .iter()
        .find(|condition| is_of(condition))
        .is_some_and(|found| text(found, &["status"]) == "True")
}
