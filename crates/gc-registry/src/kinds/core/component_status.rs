//! Statuses of components, which are created when read.

use crate::kinds::prelude::*;

pub(crate) struct ComponentStatus;

impl Kind for ComponentStatus {
    const PARTS: Parts = Parts::Neither;
    const GENERATION: Generation = Generation::Never;
    const COLUMNS: &'static [Column] = &[
        H::NAME,
        H::text("Status", T("Status of the component conditions")),
        H::text("Message", T("Message of the component conditions")),
        H::text("Error", T("Error of the component conditions")),
    ];

    fn cells(row: &Row<'_>) -> Vec<Value> {
        let conditions = row.list(&["conditions"]);
        let healthy = conditions.iter().find(|condition| text(condition, &["type"]) == "Healthy");
        let status = match healthy.map(|condition| text(condition, &["status"])) {
            Some("True") => "Healthy",
            Some(_) => "Unhealthy",
            None => "Unknown",
        };
        let part = |key: &str| Value::from(healthy.map_or("", |condition| text(condition, &[key])));
        vec![row.name(), status.into(), part("message"), part("error")]
    }

    fn defaults(_: &mut Members) {}

    fn validate(_: &Field<'_, '_>, _: &mut Report) {}
}
