//! Output of an undo's plan.

use std::io::Write as _;

use gc_explain::stuck::Place;
use gc_explain::text::count;
use gc_explain::undo::{Action, Undo, grants_rights};
use gc_inspect::output::Answer;
use gc_process::table::Table;
use serde_json::Value;

/// The plan of an undo.
pub struct UndoAnswer<'a> {
    /// The plan.
    pub undo: &'a Undo,
    /// True if the objects are being created.
    pub is_done: bool,
}

impl Answer for UndoAnswer<'_> {
    fn value(&self) -> Value {
        self.undo.value()
    }

    fn text(&self, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let wide: &[&str] = if is_wide { &["API VERSION", "UID"] } else { &[] };
        let mut table = Table::new(&[&["ACTION", "NAMESPACE", "OBJECT"], wide, &["NOTE"]].concat());
        for step in &self.undo.steps {
            let note = match &step.action {
                Action::Recreated(owner) => format!("{owner} recreates it"),
                Action::Impossible(why) => (*why).to_owned(),
                Action::Exists => "an object of this name exists; it stays as it is".to_owned(),
                Action::Complete => "an earlier run has created it".to_owned(),
                Action::Withheld => {
                    format!("it grants rights: name it to create it, {}", step.place.reference())
                }
                Action::Create => step.notes.join("; "),
            };
            let place = &step.place;
            let mut row = vec![step.action.name().to_owned(), place.namespace.clone(), place.title()];
            if is_wide {
                row.extend([place.api_version.clone(), place.uid.clone()]);
            }
            row.push(note);
            table.row(row);
        }
        table.write(out)?;
        let number =
            |wanted: fn(&Action) -> bool| self.undo.steps.iter().filter(|step| wanted(&step.action)).count();
        let created = number(|action| *action == Action::Create);
        let lost = number(|action| matches!(action, Action::Impossible(_)));
        for step in self.undo.steps.iter().filter(|step| step.action == Action::Create) {
            rights(&step.object, &step.place, out)?;
        }
        let verb = if self.is_done { "Creating" } else { "Would create" };
        writeln!(out, "\n{verb} {}; {} cannot come back.", count(created, "object"), count(lost, "object"))?;
        if !self.is_done && created > 0 {
            writeln!(out, "Nothing was changed. To do it: add --yes.")?;
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        let created = self.undo.steps.iter().filter(|step| step.action == Action::Create);
        created.map(|step| step.place.reference()).collect()
    }
}

/// Fields that do not affect what an object grants.
const COMMON: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];
/// Fields with secrets, in Secrets and in OpenShift's OAuth clients and tokens, which do not belong on a terminal.
const SECRET: [&str; 6] =
    ["data", "stringData", "secret", "additionalSecrets", "authorizeToken", "refreshToken"];

/// Shows what an object grants to whom, if anything, because records come from a disk or a bucket that others may write to. That
/// includes labels, with which a ClusterRole adds its rules to other roles.
fn rights(object: &Value, place: &Place, out: &mut Vec<u8>) -> anyhow::Result<()> {
    if !grants_rights(object) {
        return Ok(());
    }
    writeln!(out, "\n{} grants:", place.title())?;
    let labels = &object["metadata"]["labels"];
    if !labels.is_null() {
        writeln!(out, "  labels: {labels}")?;
    }
    for (field, value) in object.as_object().into_iter().flatten() {
        match field.as_str() {
            field if COMMON.contains(&field) => {}
            field if SECRET.contains(&field) => writeln!(out, "  {field}: not shown")?,
            field => writeln!(out, "  {field}: {value}")?,
        }
    }
    Ok(())
}
