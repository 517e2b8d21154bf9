//! Findings of `kubegc doctor` about the objects of a cluster, whether read by the command itself or by a server or collector that
//! uses its graph.

use std::collections::BTreeMap;
use std::time::Duration;

use gc_explain::lint::{Lint, argument, lint, relevant, unexamined};
use gc_explain::stuck::Row;
use gc_explain::{Facts, UnlistedReason};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::doctor;
use super::gather::{Gatherer, Scope};
use crate::output::Answer;
use crate::stuck;

/// Findings about the objects in a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Survey {
    /// Number of resources that were read.
    pub(crate) resources: usize,
    pub(crate) unreadable: Vec<String>,
    /// Resources that the requesting user may not list.
    pub(crate) forbidden: Vec<String>,
    /// Group versions that discovery did not return.
    pub(crate) undiscovered: Vec<String>,
    /// Stuck objects by root cause: their number, and one of them.
    pub(crate) stuck: BTreeMap<String, (usize, String)>,
    /// Problems apart from stuck objects.
    pub(crate) lints: Vec<Lint>,
    /// Checks that were skipped, with the reason.
    pub(crate) unexamined: Vec<String>,
}

impl Survey {
    /// Reports whether the inactivity of a collector is given as a cause; the real one may be that the server refused its requests.
    pub(crate) fn blames_a_collector(&self) -> bool {
        let absences = stuck::absences();
        self.stuck.keys().any(|cause| absences.iter().any(|code| cause.split(' ').next() == Some(code)))
    }
}

/// Gathers and examines.
pub(crate) async fn ask(gatherer: &Gatherer, scope: &Scope, patience: Duration) -> anyhow::Result<Survey> {
    gatherer.check_namespace(scope).await?;
    let survey = gatherer.survey(scope, patience).await?;
    // Objects that one check has read are not kept for the other.
    let stuck = stuck::diagnosed(gatherer, &survey, scope).await.rows;
    let mut facts = Facts::at(gatherer.now);
    let lints = |facts: &Facts| lint(&survey, facts, &scope.namespace);
    let lints = gatherer.answer_keeping(&mut facts, relevant, lints).await;
    let name = |id| survey.catalog.get(id).map(|resource| resource.name.to_string()).unwrap_or_default();
    let unlisted = survey.unlisted().iter().map(|(id, why)| (name(*id), why));
    let (forbidden, unreadable): (Vec<_>, Vec<_>) =
        unlisted.partition(|(_, why)| **why == UnlistedReason::Forbidden);
    let unreadable = unreadable.into_iter().map(|(name, why)| format!("{name} could not be read: {why}"));
    Ok(Survey {
        resources: gatherer.examined(scope).count(),
        unreadable: unreadable.collect(),
        forbidden: forbidden.into_iter().map(|(name, _)| name).collect(),
        undiscovered: gatherer.catalog.failed.clone(),
        stuck: by_cause(&stuck),
        lints,
        unexamined: unexamined(&survey).into_iter().chain(facts.unseen()).collect(),
    })
}

/// Returns the root causes, each with the number of objects it blocks directly, and one of them.
fn by_cause(rows: &[Row]) -> BTreeMap<String, (usize, String)> {
    let of = |row: &Row| {
        let one = row.objects.first().map(|(place, _)| argument(place)).unwrap_or_default();
        (format!("{} {}", row.cause.code.name(), row.cause.subject), (row.objects.len(), one))
    };
    rows.iter().map(of).collect()
}

impl Answer for Survey {
    fn value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn text(&self, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        doctor::text(&doctor::of_objects(self), is_wide, out)
    }

    fn names(&self) -> Vec<String> {
        doctor::names(&doctor::of_objects(self))
    }
}
