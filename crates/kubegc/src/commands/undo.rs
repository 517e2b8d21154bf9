//! `kubegc undo`: creates deleted objects again from the records of `kubegc recorder`.

use clap::Args;
use gc_inspect::gather::{self, Gatherer};
use gc_inspect::output::{self, Output};
use gc_inspect::target::Targets;
use gc_process::UsageError;
use gc_process::access::Access;
use gc_process::screen::complain;
use gc_process::tasks::block_on;
use gc_recovery::records::{self, FLUSH_PERIOD, RecordsFlags};
use gc_recovery::seal::ReadingFlags;
use gc_recovery::undo::{self, Selection, UndoAnswer};
use gc_registry::selector::LabelSelector;
use gc_types::GoDuration;

use super::Incomplete;

/// Options of `kubegc undo`.
#[derive(Clone, Debug, Args)]
#[command(
    group = clap::ArgGroup::new("choice").required(true).args(["objects", "filenames", "since", "uid"]),
    after_help = "\
Examples:
  kubegc undo deploy/web -n shop --records DIR         show what would be created again
  kubegc undo deploy/web -n shop --records DIR --yes   create it
  kubegc undo cm -l app=web -A --records DIR           the last state of each ConfigMap with these labels
  kubegc undo --since 10m --records DIR                everything that was deleted in the last ten minutes
  kubegc undo --since 10m --records s3://BUCKET/PREFIX from a bucket
  kubegc undo --since 10m --records DIR --identity FILE --recorder-key FILE
                                                       from encrypted and signed records
  kubegc undo --uid UID --records DIR                  an object, by the UID that it had, with all that depended on it

Owners are created before their dependents, which get the new UIDs. What a controller recreates is left to it. Objects that exist are never overwritten. A run that was interrupted can be repeated."
)]
pub(crate) struct UndoOptions {
    #[command(flatten)]
    targets: Targets,
    /// Everything that was deleted within this time; with -n or -l, only that
    #[arg(long, value_name = "DURATION")]
    since: Option<String>,
    /// The object that had this UID, and what depended on it
    #[arg(long, value_name = "UID", conflicts_with_all = ["namespace", "all_namespaces", "selector"])]
    uid: Option<String>,
    /// Create the objects; without it, they are only shown
    #[arg(short, long)]
    yes: bool,
    /// Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    records: RecordsFlags,
    #[command(flatten)]
    reading: ReadingFlags,
    #[command(flatten)]
    access: Access,
}

/// Explains why there is nothing to undo, and suggests what to try.
fn nothing_found(place: &records::RecordLocation) -> String {
    let soon = match place {
        records::RecordLocation::Directory(_) => String::new(),
        records::RecordLocation::Bucket { .. } => {
            format!("; the recorder writes to a bucket every {} s: try again", FLUSH_PERIOD.as_secs())
        }
    };
    format!("{place} has no record of what was asked for{soon}")
}

/// `kubegc undo`
pub(crate) fn run(options: &UndoOptions) -> anyhow::Result<()> {
    let complete = block_on(async {
        let client = options.access.connect().await?;
        let gatherer = Gatherer::new(client.clone(), gather::now()).await?;
        let selection = selection(options, &gatherer)?;
        let found = undo::read(&options.records, &options.reading, &selection).await?;
        gather::warn(found.warning.as_slice());
        let undo = undo::of_chosen(&gatherer, &found.records, &found.chosen).await;
        let place = options.records.place();
        if undo.steps.is_empty() {
            anyhow::bail!("{}", nothing_found(place));
        }
        let missing = found.missing.iter();
        let unrecorded: Vec<String> =
            missing.map(|wanted| format!("{place} has no record of {wanted}")).collect();
        gather::warn(&unrecorded);
        output::print(&UndoAnswer { undo: &undo, is_done: options.yes }, &options.output)?;
        if !options.yes {
            return anyhow::Ok(unrecorded.is_empty());
        }
        let failures = undo::perform(&client, &gatherer.catalog, &undo).await;
        for failure in &failures {
            complain!("error: {failure}");
        }
        Ok(failures.is_empty() && unrecorded.is_empty())
    })?;
    if complete { Ok(()) } else { Err(Incomplete.into()) }
}

/// Builds the selection from the command line.
fn selection(options: &UndoOptions, gatherer: &Gatherer) -> anyhow::Result<Selection> {
    let targets = &options.targets;
    let labels = LabelSelector::parse(targets.selector().unwrap_or_default())
        .map_err(|error| UsageError::new(format!("--selector: {error}")))?;
    let since = options.since.as_deref().map(GoDuration::parse_with_days).transpose();
    let since = since
        .map_err(|error| UsageError::new(format!("--since: {error}")))?
        .map(|since| gatherer.now.after(-since.to_milliseconds_rounded_up()));
    let is_named = since.is_none() && options.uid.is_none();
    let wanted = if is_named { targets.wanted(gatherer)?.complete()? } else { Vec::new() };
    let namespace = targets.namespace().filter(|_| !is_named).unwrap_or_default().to_owned();
    Ok(Selection { cascade: options.uid.clone(), since, wanted, namespace, labels })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use clap::{Command, FromArgMatches as _};
    use gc_embedded::embedded::{Beginning, EmbeddedCluster};
    use gc_explain::undo::{Record, chosen};
    use gc_inspect::target::WantedObjects;
    use gc_kube::ApiClient;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bucket_may_have_the_record_a_moment_later() {
        for (place, expected) in [
            ("/var/records", "/var/records has no record of what was asked for"),
            (
                "s3://b/a",
                "s3://b/a/ has no record of what was asked for; the recorder writes to a bucket every 10 s: try again",
            ),
        ] {
            let Ok(place) = place.parse::<records::RecordLocation>();
            assert_eq!(nothing_found(&place), expected);
        }
    }

    /// Returns the names that a command line selects, and how many of the objects that it names have no record.
    fn selected(gatherer: &Gatherer, records: &[Record], line: &str) -> Result<(Vec<String>, usize), String> {
        let words = format!("undo --records DIR {line}");
        let command = UndoOptions::augment_args(Command::new("undo"));
        let matches =
            command.try_get_matches_from(words.split_whitespace()).map_err(|error| error.to_string())?;
        let options = UndoOptions::from_arg_matches(&matches).unwrap();
        let selection = super::selection(&options, gatherer).map_err(|error| error.to_string())?;
        let is_selected = |record: &Record| selection.includes(record);
        let chosen = chosen(records, &selection.choice(&is_selected));
        let taken = records.iter().filter(|record| chosen.takes(record));
        let names = taken.map(|record| format!("{}/{}", record.place().namespace, record.place().name));
        let is_missing = |wanted: &&WantedObjects| !records.iter().any(|record| undo::names(wanted, record));
        Ok((names.collect(), selection.wanted.iter().filter(is_missing).count()))
    }

    /// `undo` selects objects like kubectl: by names, labels, namespaces and manifests.
    #[tokio::test]
    async fn an_undo_takes_kubectls_words() {
        let cluster =
            EmbeddedCluster::start(Beginning::empty(Vec::new()).with_controllers(&[])).await.unwrap();
        let way = cluster.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        let gatherer = Gatherer::new(client, gather::now()).await.unwrap();
        let record = |uid: &str, namespace: &str, name: &str, app: &str, owner: &str| Record {
            at: gather::now(),
            resource: "configmaps".to_owned(),
            object: json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace,
                "uid": uid, "labels": {"app": app}, "ownerReferences": [{"uid": owner}]}}),
        };
        let namespace = Record {
            at: gather::now(),
            resource: "namespaces".to_owned(),
            object: json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "uid": "5"}}),
        };
        let records = [
            record("1", "default", "a", "web", ""),
            record("2", "default", "b", "db", ""),
            record("3", "default", "b-part", "", "2"),
            record("4", "shop", "a", "web", ""),
            namespace,
        ];
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join("maps.yaml");
        let text = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a, namespace: shop}\n";
        std::fs::write(&manifest, text).unwrap();
        let of_file = format!("-f {}", manifest.display());
        for (line, names, unrecorded) in [
            ("cm/a", &["default/a"][..], 0),
            ("cm a b", &["default/a", "default/b", "default/b-part"], 0),
            ("cm/a cm/lost", &["default/a"], 1),
            ("cm/a -n shop", &["shop/a"], 0),
            ("cm -l app=db", &["default/b", "default/b-part"], 0),
            ("cm -l app", &["default/a", "default/b", "default/b-part"], 0),
            ("cm -A -l app=web", &["default/a", "shop/a"], 0),
            (&of_file, &["shop/a"], 0),
            ("--since 1h", &["default/a", "default/b", "default/b-part", "shop/a", "/shop"], 0),
            ("--since 1h -A", &["default/a", "default/b", "default/b-part", "shop/a", "/shop"], 0),
            ("--since 1h -n shop", &["shop/a", "/shop"], 0),
            ("--since 1h -l app=db", &["default/b", "default/b-part"], 0),
            ("--uid 2", &["default/b", "default/b-part"], 0),
        ] {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(selected(&gatherer, &records, line), Ok((names, unrecorded)), "{line}");
        }
        for (line, error) in [
            ("cm", "which cm? say cm/NAME, or -l SELECTOR"),
            ("cm/a -A", "-A selects objects by their labels: say -l SELECTOR"),
            ("cm -l =web", "--selector: "),
            ("--uid 2 -n shop", "error: the argument '--uid <UID>' cannot be used with"),
            ("-l app=web", "error: the following required arguments were not provided"),
        ] {
            let refused = selected(&gatherer, &records, line).unwrap_err();
            assert!(refused.starts_with(error), "{line}: {refused}");
        }
        cluster.shutdown().await;
    }
}
