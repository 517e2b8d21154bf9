//! Mutating admission policies.

use gc_cel::Type;

use super::expressions::{NamedVariables, OBJECT, PATCH, trimmed_expression};
use super::policy;
use crate::kinds::prelude::*;

pub(crate) struct MutatingAdmissionPolicy;

impl Kind for MutatingAdmissionPolicy {
    const PARTS: Parts = Parts::Spec;
    const GENERATION: Generation = Generation::SPEC;
    const METADATA: Metadata =
        Metadata { refuses_plain_finalizers: false, update: &[MetadataCheck::Whole], ..Metadata::DEFAULT };
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::integer(
            "Mutations",
            T("Mutation indicates the number of mutations rules defined in this configuration"),
        ),
        policy::PARAM_KIND,
        H::AGE,
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        policy::cells(row, "mutations")
    }

    fn defaults(members: &mut Members) {
        policy::defaults(members);
    }

    fn warnings(new: &Value, _: Option<&Value>, texts: &mut Vec<String>) {
        warnings::static_name(new, texts);
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        let spec = object.get("spec");
        let named = policy::checked(&spec, true, report).in_mutations();
        let mutations = spec.get("mutations");
        if mutations.list().is_empty() {
            report.required(&mutations, "mutations must contain at least one item");
        }
        for mutation in mutations.items() {
            mutation_rules(&mutation, &named, report);
        }
        report.one_of(&spec.get("reinvocationPolicy"), &["IfNeeded", "Never"]);
    }
}

fn mutation_rules(field: &Field<'_, '_>, named: &NamedVariables, report: &mut Report) {
    let kind = field.get("patchType");
    let (own, other) = match kind.text() {
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        "" => {
            report.required(&kind, "");
            return;
        }
        _ => {
            report.not_supported(&kind, &["ApplyConfiguration", "JSONPatch"]);
            return;
        }
    };
    let patch = field.get(own);
    if !patch.is_set() {
        report.required(&patch, &format!("must be specified when patchType is {}", kind.text()));
    }
    if field.has(other) {
        let why = format!("must not be specified when patchType is {}", kind.text());
        report.invalid_shown(&field.get(other), &format!("\"{{{other}}}\""), &why);
    }
    if !patch.is_set() {
        return;
    }
    let text = patch.get("expression");
    if text.text().trim().is_empty() {
        report.required(&text, "");
    } else {
        let wanted =
            if own == "jsonPatch" { Type::list(Type::object(PATCH, [])) } else { Type::object(OBJECT, []) };
        trimmed_expression(&text, named, &[wanted], report);
    }
}
