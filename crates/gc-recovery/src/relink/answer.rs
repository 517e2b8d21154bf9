//! Output of a relink's plan.

use std::io::Write as _;

use gc_explain::relink::{Link, Relink};
use gc_explain::text::{count, some_of};
use gc_inspect::output::Answer;
use gc_process::table::Table;
use serde_json::Value;

use super::NAMED_RESOURCES;

/// The plan of a relink.
pub struct RelinkAnswer<'a> {
    /// References that were found.
    pub found: &'a Relink,
    /// True if the patches are being sent.
    pub is_done: bool,
    /// True if not everything could be listed.
    pub is_partial: bool,
}

impl RelinkAnswer<'_> {
    fn links(&self, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let wide: &[&str] = if is_wide { &["OLD UID", "NEW UID"] } else { &[] };
        let mut table =
            Table::new(&[&["ACTION", "NAMESPACE", "OBJECT", "OWNER"], wide, &["EVIDENCE"]].concat());
        let row = |link: &Link| {
            let why = match (&link.new, &link.proof) {
                (Err(left), _) => left.message().to_owned(),
                (Ok(_), proof) => proof.as_ref().map(gc_explain::relink::Proof::message).unwrap_or_default(),
            };
            let new = link.new.as_ref().map_or("-", |new| new).to_owned();
            let place = &link.place;
            let mut cells =
                vec![link.action().to_owned(), place.namespace.clone(), place.title(), link.owner.clone()];
            cells.extend(is_wide.then(|| [link.old.clone(), new]).into_iter().flatten());
            cells.push(why);
            cells
        };
        self.found.links.iter().for_each(|link| table.row(row(link)));
        table.write(out)?;
        writeln!(out)?;
        Ok(())
    }

    /// Lists actions of controllers, and actions that are left to the user.
    fn remarks(&self, out: &mut Vec<u8>) -> anyhow::Result<()> {
        if let Some(comparison) = &self.found.comparison {
            for (from, to) in &comparison.namespaces {
                writeln!(out, "Namespace {from} of the backup is compared with {to}.")?;
            }
            let by: Vec<String> = comparison.replaced.iter().map(|one| one.by.clone()).collect();
            if !by.is_empty() {
                let objects = count(by.len(), "object");
                let shown = some_of(&by, NAMED_RESOURCES);
                writeln!(out, "In place of {objects} of the backup, controllers have made {shown}.")?;
            }
        }
        for advice in &self.found.advice {
            let place = &advice.place;
            let namespace =
                if place.namespace.is_empty() { String::new() } else { format!("{}/", place.namespace) };
            writeln!(out, "{namespace}{}: {}", place.title(), advice.text)?;
            for command in &advice.commands {
                writeln!(out, "  try: {command}")?;
            }
        }
        Ok(())
    }
}

impl Answer for RelinkAnswer<'_> {
    fn value(&self) -> Value {
        self.found.value()
    }

    fn text(&self, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let Relink { links, patches, comparison, .. } = self.found;
        if !links.is_empty() {
            self.links(is_wide, out)?;
        }
        self.remarks(out)?;
        // Changes that are made now are reported afterwards.
        if let Some(outcome) = self.found.outcome().filter(|_| !self.is_done || patches.is_empty()) {
            writeln!(out, "{outcome}.")?;
        }
        let left = links.iter().filter(|link| link.new.is_err()).count();
        match (comparison, patches.len()) {
            (Some(_), 0) if self.found.is_complete() && left == 0 && !self.is_partial => {
                writeln!(out, "Nothing to do.")?;
            }
            (None, 0) if left == 0 => writeln!(
                out,
                "No reference leads to an owner that is gone. No backup was compared: what a restore has removed is seen with --from."
            )?,
            (_, changes) => {
                let verb = if self.is_done { "Changing" } else { "Would change" };
                let (changes, left) = (count(changes, "object"), count(left, "reference"));
                writeln!(out, "{verb} {changes}; leaving {left}.")?;
            }
        }
        if !self.is_done && !patches.is_empty() {
            writeln!(out, "Nothing was changed. To do it: add --yes.")?;
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        self.found.patches.iter().map(|patch| patch.place.reference()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_do_is_said_only_of_a_backup_that_was_compared() {
        let shown = |found: &Relink, is_partial: bool| {
            let mut out = Vec::new();
            RelinkAnswer { found, is_done: false, is_partial }
                .text(false, &mut out)
                .map(|()| String::from_utf8_lossy(&out).into_owned())
        };
        let compared = gc_explain::relink::Comparison { references: 2, in_place: 2, ..Default::default() };
        let compared = Relink { comparison: Some(compared), ..Relink::default() };
        assert_eq!(
            shown(&compared, false).ok().as_deref(),
            Some("2 of 2 references of the backup restored.\nNothing to do.\n")
        );
        for (found, is_partial) in [(&compared, true), (&Relink::default(), false)] {
            assert!(shown(found, is_partial).is_ok_and(|text| !text.contains("Nothing to do")));
        }
    }
}
