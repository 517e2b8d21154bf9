//! Output of the collectors' journal, and its entries about deleted objects.

use std::collections::VecDeque;
use std::io::{IsTerminal as _, Write};

use anyhow::{Result, bail};
use gc_process::journal::{Found, is_accepted, text};
use gc_process::table::Table;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::audit::DOUBTFUL;
use super::sources::Source;
use crate::output::Answer;

/// Maximum width of a line on a terminal. Nothing is shortened elsewhere.
const LINE_WIDTH: usize = 120;
/// The columns before the last one, with their widths in a followed journal; the last one takes the rest.
const COLUMNS: [(&str, usize); 5] =
    [("TIME", 20), ("VERB", 10), ("NAMESPACE", 12), ("OBJECT", 36), ("OUTCOME", 8)];
/// Maximum widths of these columns if all lines are known.
const MAXIMUM_WIDTHS: [usize; 5] = [20, 16, 14, 60, 12];
/// Minimum width of the last column, enough for a code.
const WHY_WIDTH: usize = 24;
/// Index of the column with object names.
const OBJECT: usize = 3;
/// Number of spaces after each column.
const GAP: usize = 2;

/// Formats the reason of an entry: its code with the message.
fn reason(entry: &Value) -> String {
    match (text(entry, "verdict"), text(entry, "message")) {
        (code, "") => code.to_owned(),
        (code, message) => format!("{code}, {message}"),
    }
}

fn list(entry: &Value, field: &str) -> Vec<String> {
    let items = entry[field].as_array().into_iter().flatten();
    items.map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned)).collect()
}

fn object(entry: &Value) -> String {
    let name = text(entry, "name");
    // Items on a node have no resource.
    let resource = Some(text(entry, "resource")).filter(|resource| !resource.is_empty());
    let resource = resource.unwrap_or_else(|| text(entry, "kind"));
    if name.is_empty() { resource.to_owned() } else { format!("{resource}/{name}") }
}

/// Formats a time as `2026-09-21 14:01:00Z`; other text stays as it is.
#[must_use]
pub fn time(entry: &Value) -> String {
    let text = text(entry, "time");
    text.parse::<Timestamp>()
        .map_or_else(|_| text.to_owned(), |time| time.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// Returns the columns of every human-readable form.
fn cells(entry: &Value) -> [String; 6] {
    let why = match text(entry, "failure") {
        "" => text(entry, "verdict").to_owned(),
        failure => format!("{} ({failure})", text(entry, "verdict")),
    };
    let own = |field: &str| text(entry, field).to_owned();
    [time(entry), own("verb"), own("namespace"), object(entry), own("outcome"), why]
}

fn headings() -> [String; 6] {
    let mut headings = [const { String::new() }; 6];
    for (heading, (name, _)) in headings.iter_mut().zip(COLUMNS) {
        name.clone_into(heading);
    }
    "WHY".clone_into(&mut headings[5]);
    headings
}

/// Shortens a text to at most this width by omitting the middle, which is the least telling part of a name.
fn shortened(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let begin = width / 2;
    let head: String = text.chars().take(begin).collect();
    let tail: String = text.chars().skip(count + begin + 1 - width).collect();
    format!("{head}…{tail}")
}

/// Reports whether lines are not shortened, because a program or a file receives them.
fn is_unbounded() -> bool {
    !std::io::stdout().is_terminal()
}

/// Formats one line, of at most [`LINE_WIDTH`] characters unless it is unbounded.
fn line(cells: &[String; 6], widths: [usize; 5], is_unbounded: bool) -> String {
    use std::fmt::Write as _;

    let mut line = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        let shown = if is_unbounded { cell.clone() } else { shortened(cell, width) };
        // Writing to a String cannot fail.
        let _ = write!(line, "{shown:<width$}  ");
    }
    let rest = LINE_WIDTH.saturating_sub(line.chars().count());
    line.push_str(&if is_unbounded { cells[5].clone() } else { shortened(&cells[5], rest) });
    line.trim_end().to_owned()
}

/// Writes entries as a table; the wide form includes everything about each.
pub fn table(entries: &VecDeque<Value>, is_wide: bool, out: &mut impl Write) -> Result<()> {
    if is_wide {
        return wide_table(entries, out);
    }
    let headings = gc_process::screen::has_headings().then(headings);
    let rows: Vec<[String; 6]> = headings.into_iter().chain(entries.iter().map(cells)).collect();
    narrow_table(&rows, is_unbounded(), out)
}

fn narrow_table(rows: &[[String; 6]], is_unbounded: bool, out: &mut impl Write) -> Result<()> {
    let mut widths = MAXIMUM_WIDTHS;
    for (column, width) in widths.iter_mut().enumerate() {
        let widest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        *width = if is_unbounded { widest } else { widest.min(*width) };
    }
    if is_unbounded {
        return rows.iter().try_for_each(|row| Ok(writeln!(out, "{}", line(row, widths, true))?));
    }
    let others = widths.iter().sum::<usize>() - widths[OBJECT] + GAP * widths.len() + WHY_WIDTH;
    widths[OBJECT] = widths[OBJECT].min(LINE_WIDTH - others);
    rows.iter().try_for_each(|row| Ok(writeln!(out, "{}", line(row, widths, false))?))
}

/// Writes everything about each entry, without limiting the width.
fn wide_table(entries: &VecDeque<Value>, out: &mut impl Write) -> Result<()> {
    let mut names: Vec<String> = headings().to_vec();
    names.extend(["MESSAGE", "UID", "OWNERS", "EVIDENCE", "REQUESTS", "TOOK"].map(str::to_owned));
    let mut table = Table::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for entry in entries {
        let mut row = cells(entry).to_vec();
        text(entry, "time").clone_into(&mut row[0]);
        let owners = entry["owners"].as_array().into_iter().flatten();
        let owners: Vec<String> =
            owners.map(|owner| format!("{}/{}", text(owner, "kind"), text(owner, "name"))).collect();
        let took =
            entry["durationSeconds"].as_f64().map_or(String::new(), |took| format!("{:.1}ms", took * 1e3));
        row.extend([
            text(entry, "message").to_owned(),
            text(entry, "uid").to_owned(),
            owners.join(","),
            list(entry, "evidence").join("; "),
            entry["requests"].as_u64().map_or(String::new(), |number| number.to_string()),
            took,
        ]);
        table.row(row);
    }
    table.write(out)
}

impl Answer for Found {
    fn value(&self) -> Value {
        json!({ "items": self.entries })
    }

    fn text(&self, is_wide: bool, out: &mut Vec<u8>) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(writeln!(out, "Nothing is recorded.")?);
        }
        table(&self.entries, is_wide, out)
    }

    fn names(&self) -> Vec<String> {
        self.entries.iter().map(object).collect()
    }
}

/// Returns the headings for a followed journal.
#[must_use]
pub fn followed_headings() -> String {
    line(&headings(), COLUMNS.map(|(_, width)| width), is_unbounded())
}

/// Formats one entry of a followed journal as a line below [`followed_headings`].
#[must_use]
pub fn followed_line(entry: &Value) -> String {
    line(&cells(entry), COLUMNS.map(|(_, width)| width), is_unbounded())
}

/// Explains why an object was deleted, from the journal. Returns an error if the journal has no entry about it.
pub fn why_gone(found: &Found, source: &Source, title: &str) -> Result<Value> {
    let done = |verbs: &'static [&'static str]| {
        found.entries.iter().rfind(|entry| verbs.contains(&text(entry, "verb")) && is_accepted(entry))
    };
    // Removing the last finalizer ends a deletion, and its reason is that of the deletion only if somebody else requested it.
    let Some(last) = done(&["delete", "force-delete"]).or_else(|| done(&["remove-finalizer"])) else {
        bail!(
            "{title} does not exist, and the journal has no deletion of it: this collector did not delete it \
             (journal: {source})"
        );
    };
    // Of the earlier entries, only those about the same object count.
    let same = found.entries.iter().filter(|entry| entry["uid"] == last["uid"]);
    Ok(json!({"conclusion": "Collected", "deletion": last, "entries": same.collect::<Vec<_>>(),
              "journal": source.to_string()}))
}

/// Returns the answer about an object that somebody other than the collectors has deleted.
pub(crate) fn deleted_by_others(title: &str) -> Value {
    json!({"conclusion": "Deleted", "object": title, "requestedBy": []})
}

/// Describes the deletion of an entry's object, if the entry is about its deletion.
#[must_use]
pub fn deletion(entry: &Value, journal: &str) -> Option<String> {
    let is_deletion = text(entry, "verb") == "delete" && is_accepted(entry);
    is_deletion.then(|| format!("{} at {}: {} ({journal})", by(entry), time(entry), reason(entry)))
}

/// Describes the last action on an object, and its result.
#[must_use]
pub fn attempt(entry: &Value) -> String {
    let failure = match text(entry, "failure") {
        "" => String::new(),
        failure => format!(" ({failure})"),
    };
    let (verb, outcome) = (text(entry, "verb"), text(entry, "outcome"));
    format!("{} at {}: {verb}, {outcome}{failure}: {}", by(entry), time(entry), reason(entry))
}

fn by(entry: &Value) -> &str {
    match text(entry, "controller") {
        "" => "a collector",
        controller => controller,
    }
}

/// Prefix of the accounts of kube-controller-manager's controllers and other cluster components.
const OWN_ACCOUNTS: &str = "system:serviceaccount:kube-system:";

/// Describes the deletion of an object that no collector's journal has, from the known requests.
fn by_whom(requested_by: &[String]) -> String {
    let first = requested_by.iter().find(|line| !line.starts_with(DOUBTFUL));
    let controller = first.and_then(|line| line.strip_prefix(OWN_ACCOUNTS)?.split(' ').next());
    match (first, controller) {
        (_, Some(controller)) => format!("It was deleted by {controller}, a controller of the cluster."),
        (Some(_), None) => "It was deleted, and no collector is known to have done it.".to_owned(),
        (None, _) => "It does not exist, and nothing that is known has deleted it.".to_owned(),
    }
}

/// Writes the same answer in human-readable form.
pub(crate) fn why_gone_text(answer: &Value, out: &mut impl Write) -> Result<()> {
    if answer["deletion"].is_null() {
        writeln!(out, "{}\n{}", text(answer, "object"), by_whom(&list(answer, "requestedBy")))?;
        return asked_for(answer, out);
    }
    let deletion = &answer["deletion"];
    let place = match text(deletion, "namespace") {
        "" => String::new(),
        namespace => format!(" in {namespace}"),
    };
    writeln!(out, "{}{place}", object(deletion))?;
    let by = match text(deletion, "controller") {
        "" => String::new(),
        controller => format!(" by {controller}"),
    };
    writeln!(out, "It was collected at {}{by}: {}.", time(deletion), reason(deletion))?;
    if let Some(guess) = answer["guess"].as_str() {
        writeln!(out, "({guess})")?;
    }
    let owners = deletion["owners"].as_array().into_iter().flatten();
    for owner in owners {
        let (kind, name, uid) = (text(owner, "kind"), text(owner, "name"), text(owner, "uid"));
        writeln!(out, "  owner {kind}/{name} ({uid})")?;
    }
    let evidence = list(deletion, "evidence");
    if !evidence.is_empty() {
        writeln!(out, "\nEvidence:")?;
        for fact in evidence {
            writeln!(out, "  {fact}")?;
        }
    }
    asked_for(answer, out)?;
    let entries: VecDeque<Value> = answer["entries"].as_array().into_iter().flatten().cloned().collect();
    if entries.len() > 1 {
        writeln!(out, "\nWhat was done about it:")?;
        table(&entries, false, out)?;
    }
    Ok(())
}

/// Names the users who requested the deletion, and those who removed finalizers.
fn asked_for(answer: &Value, out: &mut impl Write) -> Result<()> {
    let lines = list(answer, "requestedBy");
    if !lines.is_empty() {
        writeln!(out, "\nDeletion asked for by:")?;
    }
    lines.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    let released = list(answer, "released");
    if !released.is_empty() {
        writeln!(out, "\nFinalizers removed by hand:")?;
    }
    released.iter().try_for_each(|line| Ok(writeln!(out, "  {line}")?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    fn entry(number: u32, name: &str, verb: &str, outcome: &str) -> Value {
        json!({
            "time": format!("2026-09-21T14:0{number}:00.000000Z"), "verb": verb, "resource": "replicasets.apps",
            "kind": "ReplicaSet", "namespace": "shop", "name": name, "uid": format!("uid-{name}"),
            "outcome": outcome, "verdict": "OwnersAbsent", "message": "every owner is absent", "durationSeconds": 0.0021, "requests": 1,
            "owners": [{"kind": "Deployment", "name": "web", "uid": "u"}], "evidence": ["owner u: removal seen"],
        })
    }

    fn shown(entries: &[Value], is_unbounded: bool) -> String {
        let mut out = Vec::new();
        let rows: Vec<[String; 6]> = std::iter::once(headings()).chain(entries.iter().map(cells)).collect();
        narrow_table(&rows, is_unbounded, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_for_people_fit() {
        let mut long = entry(1, &"replica".repeat(20), "remove-finalizer", "refused");
        long["failure"] = "x".repeat(200).into();
        long["namespace"] = "n".repeat(63).into();
        let entries = [long, entry(2, "a", "delete", "applied")];
        let text = shown(&entries, false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= LINE_WIDTH), "{text}");
        assert!(
            lines[1].starts_with(
                "2026-09-21 14:01:00Z  remove-finalizer  nnnnnnn…nnnnnn  replicasets.ap…replicareplica  refused  "
            ),
            "{text}"
        );
        // Output that does not go to a terminal is not shortened.
        let whole = shown(&entries, true);
        assert!(!whole.contains('…') && whole.contains(&"replica".repeat(20)), "{whole}");
        let widths = COLUMNS.map(|(_, width)| width);
        let follow = line(&cells(&entry(2, "a", "delete", "applied")), widths, false);
        assert_eq!(
            follow,
            "2026-09-21 14:02:00Z  delete      shop          replicasets.apps/a                    applied   OwnersAbsent"
        );
    }

    #[test]
    fn what_was_on_a_node_is_named_by_its_kind() {
        let image = json!({"verb": "remove", "kind": "Image", "name": "localhost/app:16"});
        assert_eq!(object(&image), "Image/localhost/app:16");
    }

    #[test]
    fn why_something_is_gone_is_told() {
        let entries = vec![entry(1, "a", "delete", "conflict"), entry(2, "a", "delete", "applied")];
        let found = Found::of(entries.into());
        let source = Source::of_file("/j");
        let answer = why_gone(&found, &source, "rs/a").unwrap();
        let mut out = Vec::new();
        why_gone_text(&answer, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "replicasets.apps/a in shop\n\
             It was collected at 2026-09-21 14:02:00Z: OwnersAbsent, every owner is absent.\n  \
               owner Deployment/web (u)\n\n\
             Evidence:\n  owner u: removal seen\n\n\
             What was done about it:\n\
             TIME                  VERB    NAMESPACE  OBJECT              OUTCOME   WHY\n\
             2026-09-21 14:01:00Z  delete  shop       replicasets.apps/a  conflict  OwnersAbsent\n\
             2026-09-21 14:02:00Z  delete  shop       replicasets.apps/a  applied   OwnersAbsent\n"
        );
        assert_eq!(
            deletion(&answer["deletion"], "journal").unwrap(),
            "a collector at 2026-09-21 14:02:00Z: OwnersAbsent, every owner is absent (journal)"
        );
        let refused = Found::of(vec![entry(3, "b", "delete", "refused")].into());
        assert_eq!(deletion(&refused.entries[0], "journal"), None);
        assert_eq!(
            attempt(&refused.entries[0]),
            "a collector at 2026-09-21 14:03:00Z: delete, refused: OwnersAbsent, every owner is absent"
        );
        let error = why_gone(&refused, &source, "rs/b").unwrap_err().to_string();
        assert_eq!(
            error,
            "rs/b does not exist, and the journal has no deletion of it: this collector did not delete it (journal: /j)"
        );
    }
}
