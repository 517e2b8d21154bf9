//! Roles, of namespaces and of the cluster.

use crate::kinds::prelude::*;
use crate::kinds::shared::labels::selector;
use crate::metadata::names;

/// Roles; `CLUSTER` is true for those of the cluster.
pub(crate) struct Role<const CLUSTER: bool>;

impl<const CLUSTER: bool> Kind for Role<CLUSTER> {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation = Generation::Never;
    const METADATA: Metadata = Metadata {
        name: names::path_segment,
        update: &[MetadataCheck::Whole, MetadataCheck::Change],
        ..Metadata::DEFAULT
    };
    const COLUMNS: &'static [Column] = Column::PLAIN;

    fn cells(row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.created()]
    }

    fn defaults(members: &mut Members) {
        fill_absent(members, "rules", Value::Null);
    }

    fn validate(object: &Field<'_, '_>, report: &mut Report) {
        for rule in object.get("rules").items() {
            policy_rule(&rule, CLUSTER, report);
        }
        let aggregation = object.get("aggregationRule");
        if CLUSTER && aggregation.is_set() {
            let selectors = aggregation.get("clusterRoleSelectors");
            if selectors.list().is_empty() {
                let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
                report.required(&selectors, why);
            }
            for item in selectors.items() {
                let before = report.errors.len();
                selector(&item, report);
                if report.errors.len() > before {
                    report.invalid_shown(&item, &"null", "invalid label selector.");
                }
            }
        }
    }
}

fn policy_rule(rule: &Field<'_, '_>, cluster: bool, report: &mut Report) {
    if rule.get("verbs").is_empty() {
        report.required(&rule.get("verbs"), "verbs must contain at least one value");
    }
    let urls = rule.get("nonResourceURLs");
    if !urls.is_empty() {
        if !cluster {
            report.invalid(&urls, "namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|member| !rule.get(member).is_empty()) {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            report.invalid(&urls, why);
        }
        return;
    }
    if rule.get("apiGroups").is_empty() {
        let why = "resource rules must supply at least one api group";
        report.required(&rule.get("apiGroups"), why);
    }
    if rule.get("resources").is_empty() {
        let why = "resource rules must supply at least one resource";
        report.required(&rule.get("resources"), why);
    }
}
