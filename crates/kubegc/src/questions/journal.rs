//! `kubegc journal`: what was done and why, from the journal's files.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use gc_types::GoDuration;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::UsageError;
use crate::table::Table;

/// Older files are looked for up to this number.
const OLDER_FILES: u32 = 10_000;
/// Maximum length of a line; a longer one is not a journal entry.
const LONGEST_LINE: usize = 4 << 20;

/// Forms of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Aligned text
    #[default]
    Text,
    /// With owners, evidence and figures
    Wide,
    /// JSON
    Json,
}

/// Options of `kubegc journal`.
#[derive(Clone, Debug, Args)]
pub(crate) struct JournalOptions {
    /// Journal of `kubegc run --journal FILE`; also reads the rotated files FILE.1, FILE.2, …
    #[arg(long, value_name = "FILE", env = "KUBEGC_JOURNAL")]
    journal: PathBuf,
    /// Only entries newer than this, such as 1h
    #[arg(long, value_name = "DURATION", conflicts_with = "since_time")]
    since: Option<String>,
    /// Only entries from this time on (RFC 3339)
    #[arg(long, value_name = "TIME")]
    since_time: Option<String>,
    /// Only about this object: [NAMESPACE/]KIND/NAME, or a UID
    #[arg(long, value_name = "OBJECT")]
    object: Option<String>,
    /// Only about objects in this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Only about this resource, such as pods or replicasets.apps
    #[arg(long, value_name = "RESOURCE")]
    resource: Option<String>,
    /// Only with this outcome, such as applied, conflict, refused, failed or disagreement
    #[arg(long, value_name = "OUTCOME")]
    outcome: Option<String>,
    /// Only with this verb, such as delete, set-owners, remove-finalizer or observe
    #[arg(long, value_name = "VERB")]
    verb: Option<String>,
    /// Only from this collector, such as ttl-after-finished-controller
    #[arg(long, value_name = "NAME")]
    controller: Option<String>,
    /// Maximum number of entries, newest first; 0 means all
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    tail: usize,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Query {
    pub(super) since: Option<Timestamp>,
    pub(super) object: Option<Object>,
    pub(super) namespace: Option<String>,
    pub(super) resource: Option<String>,
    pub(super) outcome: Option<String>,
    pub(super) verb: Option<String>,
    pub(super) controller: Option<String>,
}

/// kubectl's short names of built-in resources.
const SHORT_NAMES: [(&str, &str); 28] = [
    ("cj", "cronjobs.batch"),
    ("cm", "configmaps"),
    ("crd", "customresourcedefinitions.apiextensions.k8s.io"),
    ("crds", "customresourcedefinitions.apiextensions.k8s.io"),
    ("cs", "componentstatuses"),
    ("csr", "certificatesigningrequests.certificates.k8s.io"),
    ("deploy", "deployments.apps"),
    ("ds", "daemonsets.apps"),
    ("ep", "endpoints"),
    ("ev", "events"),
    ("hpa", "horizontalpodautoscalers.autoscaling"),
    ("ing", "ingresses.networking.k8s.io"),
    ("limits", "limitranges"),
    ("netpol", "networkpolicies.networking.k8s.io"),
    ("no", "nodes"),
    ("ns", "namespaces"),
    ("pc", "priorityclasses.scheduling.k8s.io"),
    ("pdb", "poddisruptionbudgets.policy"),
    ("po", "pods"),
    ("pv", "persistentvolumes"),
    ("pvc", "persistentvolumeclaims"),
    ("quota", "resourcequotas"),
    ("rc", "replicationcontrollers"),
    ("rs", "replicasets.apps"),
    ("sa", "serviceaccounts"),
    ("sc", "storageclasses.storage.k8s.io"),
    ("sts", "statefulsets.apps"),
    ("svc", "services"),
];

/// What people call a resource, in lower case, with kubectl's short names written out.
fn long_name(called: &str) -> String {
    let called = called.to_lowercase();
    let long = SHORT_NAMES.iter().find(|(short, _)| *short == called).map(|(_, long)| (*long).to_owned());
    long.unwrap_or(called)
}

/// An object as people name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Named { namespace: Option<String>, kind: String, name: String },
    Uid(String),
}

impl Object {
    fn parse(text: &str) -> Result<Self, UsageError> {
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            _ if parts.iter().any(|part| part.is_empty()) => {}
            [uid] => return Ok(Self::Uid((*uid).to_owned())),
            [kind, name] => return Ok(Self::named(None, kind, name)),
            [namespace, kind, name] => return Ok(Self::named(Some(namespace), kind, name)),
            _ => {}
        }
        Err(UsageError::new(format!(
            "--object {text:?}: expected [NAMESPACE/]KIND/NAME, such as shop/pod/web-1, or a UID"
        )))
    }

    pub(super) fn named(namespace: Option<&str>, kind: &str, name: &str) -> Self {
        let namespace = namespace.map(str::to_owned);
        Self::Named { namespace, kind: long_name(kind), name: name.to_owned() }
    }

    fn matches(&self, entry: &Value) -> bool {
        match self {
            Self::Uid(uid) => entry["uid"] == uid.as_str(),
            Self::Named { namespace, kind, name } => {
                entry["name"] == name.as_str()
                    && namespace.as_ref().is_none_or(|namespace| entry["namespace"] == namespace.as_str())
                    && is_called(kind, entry)
            }
        }
    }
}

/// Whether an entry's resource is called so: by plural name or kind, with or without group.
fn is_called(kind: &str, entry: &Value) -> bool {
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_lowercase();
    let resource = text("resource");
    let (plural, group) = resource.split_once('.').unwrap_or((&resource, ""));
    let (name, asked_group) = match kind.split_once('.') {
        Some((name, group)) => (name, Some(group)),
        None => (kind, None),
    };
    asked_group.is_none_or(|asked| asked == group) && (name == plural || name == text("kind"))
}

impl Query {
    fn of(options: &JournalOptions, now: Timestamp) -> Result<Self, UsageError> {
        let since = match (&options.since, &options.since_time) {
            (Some(text), _) => {
                let age: GoDuration =
                    text.parse().map_err(|error| UsageError::new(format!("--since: {error}")))?;
                Some(now.checked_sub(age.to_std()).unwrap_or(Timestamp::MIN))
            }
            (None, Some(text)) => {
                Some(text.parse().map_err(|error| UsageError::new(format!("--since-time: {error}")))?)
            }
            (None, None) => None,
        };
        Ok(Self {
            since,
            object: options.object.as_deref().map(Object::parse).transpose()?,
            namespace: options.namespace.clone(),
            resource: options.resource.as_deref().map(long_name),
            outcome: options.outcome.clone(),
            verb: options.verb.clone(),
            controller: options.controller.clone(),
        })
    }

    fn matches(&self, entry: &Value) -> bool {
        let is = |field: &str, wanted: &Option<String>| {
            wanted.as_ref().is_none_or(|wanted| entry[field] == wanted.as_str())
        };
        let is_recent = |since: &Timestamp| {
            entry["time"]
                .as_str()
                .and_then(|text| text.parse::<Timestamp>().ok())
                .is_some_and(|at| at >= *since)
        };
        is("namespace", &self.namespace)
            && is("outcome", &self.outcome)
            && is("verb", &self.verb)
            && is("controller", &self.controller)
            && self.resource.as_ref().is_none_or(|resource| is_called(resource, entry))
            && self.object.as_ref().is_none_or(|object| object.matches(entry))
            && self.since.as_ref().is_none_or(is_recent)
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Oldest first.
    pub(super) entries: VecDeque<Value>,
    /// Older matches that were left out.
    pub(super) left_out: usize,
    /// Lines that are no entries, the torn last ones of files apart.
    pub(super) unreadable: usize,
}

/// Reads a journal and its older files, oldest first, and keeps the newest `tail` matches (0: all).
pub(super) fn search(journal: &Path, query: &Query, tail: usize) -> Result<Found> {
    let older = |number: u32| {
        let mut name = journal.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    let mut files: Vec<PathBuf> = (1..=OLDER_FILES).map(older).take_while(|file| file.exists()).collect();
    files.reverse();
    files.push(journal.to_owned());
    let mut found = Found::default();
    for file in files {
        let opened = match File::open(&file) {
            Ok(opened) => opened,
            // Put aside under another name between the look and the opening: what it held is in the next one.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && file != journal => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
        };
        scan(BufReader::new(opened), query, tail, &mut found)
            .with_context(|| format!("cannot read {}", file.display()))?;
    }
    Ok(found)
}

pub(super) fn scan(
    mut lines: impl std::io::BufRead,
    query: &Query,
    tail: usize,
    found: &mut Found,
) -> Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = std::io::Read::take(&mut lines, LONGEST_LINE as u64).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        let is_whole = line.ends_with(b"\n");
        match serde_json::from_slice::<Value>(&line) {
            Ok(entry) if entry.is_object() => {
                if query.matches(&entry) {
                    found.entries.push_back(entry);
                    if tail > 0 && found.entries.len() > tail {
                        found.entries.pop_front();
                        found.left_out += 1;
                    }
                }
            }
            // The writer was killed in the middle of its last line.
            _ if !is_whole && line.len() < LONGEST_LINE => {}
            _ => found.unreadable += 1,
        }
    }
}

fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry[field].as_str().unwrap_or_default()
}

/// Why something was done: its code with the message.
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
    let resource = text(entry, "resource");
    if name.is_empty() { resource.to_owned() } else { format!("{resource}/{name}") }
}

pub(super) fn table(entries: &VecDeque<Value>, is_wide: bool, out: &mut impl Write) -> Result<()> {
    let mut headings = vec!["TIME", "VERB", "NAMESPACE", "OBJECT", "OUTCOME", "WHY"];
    if is_wide {
        headings.extend(["MESSAGE", "UID", "OWNERS", "EVIDENCE", "REQUESTS", "TOOK"]);
    }
    let mut table = Table::new(&headings);
    for entry in entries {
        let why = match text(entry, "failure") {
            "" => text(entry, "verdict").to_owned(),
            failure => format!("{} ({failure})", text(entry, "verdict")),
        };
        let mut row = vec![
            text(entry, "time").to_owned(),
            text(entry, "verb").to_owned(),
            text(entry, "namespace").to_owned(),
            object(entry),
            text(entry, "outcome").to_owned(),
            why,
        ];
        if is_wide {
            let owners = entry["owners"].as_array().into_iter().flatten();
            let owners: Vec<String> =
                owners.map(|owner| format!("{}/{}", text(owner, "kind"), text(owner, "name"))).collect();
            let took = entry["durationSeconds"]
                .as_f64()
                .map_or(String::new(), |took| format!("{:.1}ms", took * 1e3));
            row.extend([
                text(entry, "message").to_owned(),
                text(entry, "uid").to_owned(),
                owners.join(","),
                list(entry, "evidence").join("; "),
                entry["requests"].as_u64().map_or(String::new(), |number| number.to_string()),
                took,
            ]);
        }
        table.row(row);
    }
    table.write(out)
}

/// `kubegc journal`
pub(crate) fn journal(options: &JournalOptions) -> Result<()> {
    let query = Query::of(options, Timestamp::now())?;
    let found = search(&options.journal, &query, options.tail)?;
    if found.unreadable > 0 {
        eprintln!("warning: {} lines are not journal entries", found.unreadable);
    }
    if found.left_out > 0 {
        eprintln!("warning: {} older entries are left out; --tail 0 shows all", found.left_out);
    }
    let mut out = Vec::new();
    match options.output {
        Format::Json => {
            writeln!(out, "{}", serde_json::to_string_pretty(&json!({ "items": found.entries }))?)?;
        }
        _ if found.entries.is_empty() => writeln!(out, "Nothing is noted.")?,
        Format::Text => table(&found.entries, false, &mut out)?,
        Format::Wide => table(&found.entries, true, &mut out)?,
    }
    super::print(&out)
}

/// Why an object is gone, as the journal tells it. An error if it tells nothing.
pub(super) fn why_gone(journal: &Path, object: Object, title: &str) -> Result<Value> {
    let query = Query { object: Some(object), ..Query::default() };
    let found = search(journal, &query, 0)?;
    let done = |entry: &&Value| {
        let is_removal = matches!(text(entry, "verb"), "delete" | "force-delete" | "remove-finalizer");
        is_removal && text(entry, "outcome") == "applied"
    };
    let Some(last) = found.entries.iter().rfind(done) else {
        bail!(
            "{title} does not exist, and the journal has no deletion of it: this collector did not delete it"
        );
    };
    // Of what was done before, only what happened to the same object.
    let same = found.entries.iter().filter(|entry| entry["uid"] == last["uid"]);
    Ok(json!({"conclusion": "Collected", "deletion": last, "entries": same.collect::<Vec<_>>()}))
}

/// The same for people.
pub(super) fn why_gone_text(answer: &Value, out: &mut impl Write) -> Result<()> {
    let deletion = &answer["deletion"];
    let place = match text(deletion, "namespace") {
        "" => String::new(),
        namespace => format!(" in {namespace}"),
    };
    writeln!(out, "{}{place}", object(deletion))?;
    writeln!(out, "It was collected at {}: {}.", text(deletion, "time"), reason(deletion))?;
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
    let entries: VecDeque<Value> = answer["entries"].as_array().into_iter().flatten().cloned().collect();
    if entries.len() > 1 {
        writeln!(out, "\nWhat was done about it:")?;
        table(&entries, false, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
    use super::*;

    fn entry(number: u32, name: &str, verb: &str, outcome: &str) -> Value {
        json!({
            "time": format!("2026-09-21T14:0{number}:00.000000Z"), "verb": verb, "resource": "replicasets.apps",
            "kind": "ReplicaSet", "namespace": "shop", "name": name, "uid": format!("uid-{name}"),
            "outcome": outcome, "verdict": "OwnersAbsent", "message": "every owner is absent", "durationSeconds": 0.0021, "requests": 1,
            "owners": [{"kind": "Deployment", "name": "web", "uid": "u"}], "evidence": ["owner u: removal seen"],
        })
    }

    fn journal() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let lines = |entries: &[Value]| {
            entries.iter().flat_map(|entry| [entry.to_string(), "\n".to_owned()]).collect::<String>()
        };
        std::fs::write(folder.path().join("journal.2"), lines(&[entry(1, "a", "delete", "conflict")]))
            .unwrap();
        // A torn line in a file that was put aside, too: the process was killed and another one rotated.
        let torn = lines(&[entry(2, "a", "delete", "applied")]) + "{\"time\":\"2026-";
        std::fs::write(folder.path().join("journal.1"), torn).unwrap();
        let last = lines(&[entry(3, "b", "set-owners", "applied")])
            + "not json\n[]\n"
            + &lines(&[entry(4, "b", "delete", "refused")])
            + "{\"torn";
        std::fs::write(&file, last).unwrap();
        (folder, file)
    }

    fn found(file: &Path, query: &Query, tail: usize) -> Vec<String> {
        let found = search(file, query, tail).unwrap();
        found
            .entries
            .iter()
            .map(|entry| format!("{} {}", text(entry, "name"), text(entry, "outcome")))
            .collect()
    }

    #[test]
    fn entries_are_found_by_what_they_are_about() {
        let (_folder, file) = journal();
        let all = ["a conflict", "a applied", "b applied", "b refused"];
        let of = |text: &str| Query { object: Some(Object::parse(text).unwrap()), ..Query::default() };
        let time = |text: &str| Query { since: Some(text.parse().unwrap()), ..Query::default() };
        for (query, expected) in [
            (Query::default(), &all[..]),
            (of("shop/replicaset/a"), &all[..2]),
            (of("rs/a"), &all[..2]),
            (of("ReplicaSet/a"), &all[..2]),
            (of("replicasets.apps/a"), &all[..2]),
            (of("replicasets.extensions/a"), &[]),
            (of("other/rs/a"), &[]),
            (of("pod/a"), &[]),
            (of("uid-b"), &all[2..]),
            (Query { outcome: Some("applied".into()), ..Query::default() }, &all[1..3]),
            (
                Query { verb: Some("delete".into()), outcome: Some("applied".into()), ..Query::default() },
                &all[1..2],
            ),
            (Query { resource: Some("replicasets".into()), ..Query::default() }, &all),
            (Query { resource: Some("pods".into()), ..Query::default() }, &[]),
            (Query { namespace: Some("shop".into()), ..Query::default() }, &all),
            (Query { namespace: Some("x".into()), ..Query::default() }, &[]),
            (time("2026-09-21T14:03:00Z"), &all[2..]),
            (time("2026-09-21T16:04:00+02:00"), &all[3..]),
        ] {
            assert_eq!(found(&file, &query, 0), expected, "{query:?}");
        }
        assert_eq!(found(&file, &Query::default(), 1), ["b refused"]);
        let search = search(&file, &Query::default(), 1).unwrap();
        assert_eq!((search.left_out, search.unreadable), (3, 2));
        assert!(super::search(Path::new("/nowhere/journal"), &Query::default(), 0).is_err());
    }

    #[test]
    fn short_names_are_sorted_and_listed_once() {
        assert!(SHORT_NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn objects_are_named_in_three_ways() {
        for text in ["", "/", "a//b", "a/b/c/d", "shop/"] {
            assert!(Object::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn why_something_is_gone_is_told() {
        let (_folder, file) = journal();
        let answer = why_gone(&file, Object::named(Some("shop"), "rs", "a"), "rs/a").unwrap();
        let mut out = Vec::new();
        why_gone_text(&answer, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "replicasets.apps/a in shop\n\
             It was collected at 2026-09-21T14:02:00.000000Z: OwnersAbsent, every owner is absent.\n  \
               owner Deployment/web (u)\n\n\
             Evidence:\n  owner u: removal seen\n\n\
             What was done about it:\n\
             TIME                          VERB     NAMESPACE   OBJECT               OUTCOME    WHY\n\
             2026-09-21T14:01:00.000000Z   delete   shop        replicasets.apps/a   conflict   OwnersAbsent\n\
             2026-09-21T14:02:00.000000Z   delete   shop        replicasets.apps/a   applied    OwnersAbsent\n"
        );
        let error = why_gone(&file, Object::named(None, "rs", "b"), "rs/b").unwrap_err().to_string();
        assert_eq!(
            error,
            "rs/b does not exist, and the journal has no deletion of it: this collector did not delete it"
        );
    }
}
