//! Unused objects, with sizes.

use std::collections::BTreeSet;
use std::io::Write as _;

use anyhow::bail;
use gc_explain::garbage::{Certainty, Finding, Garbage, Report, Usable};
use gc_explain::text::{count, some_of, thousands};
use gc_explain::upcoming::{Horizon, upcoming};
use gc_explain::{Facts, GroupResource, Resource, UnlistedReason};
use gc_process::UsageError;
use gc_process::table::Table;
use serde_json::Value;

use super::gather::{self, Gatherer, Reading, Scope};
use crate::output::Answer;

/// Time ahead within which all due deletions are reported.
const DUE_WITHIN_MILLISECONDS: i64 = 24 * 3_600_000;
/// Maximum number of due deletions that are reported.
const DUE_LISTED: usize = 1_000;

/// Numerous resources that refer to nothing.
const SILENT: [(&str, &str); 6] = [
    ("", "events"),
    ("events.k8s.io", "events"),
    ("coordination.k8s.io", "leases"),
    ("discovery.k8s.io", "endpointslices"),
    ("", "endpoints"),
    ("", "bindings"),
];

/// Resources that show where Services lead.
const ENDPOINTS: [(&str, &str); 2] = [("discovery.k8s.io", "endpointslices"), ("", "endpoints")];

/// Reads everything that may use something, and reports the unused objects.
pub async fn ask(
    gatherer: &Gatherer,
    scope: &Scope,
    patience: std::time::Duration,
) -> anyhow::Result<Report> {
    gatherer.check_namespace(scope).await?;
    let namespace = &*scope.namespace;
    let mut garbage = Garbage::new(!namespace.is_empty());
    let rules = if namespace.is_empty() {
        None
    } else {
        super::listable::listable(gatherer.client(), namespace).await
    };
    let each = async |resource: &Resource, reading, take: &mut dyn FnMut(&Value)| {
        if rules.as_ref().is_some_and(|rules| !rules.contain(&resource.name)) {
            return Err(UnlistedReason::Forbidden);
        }
        let namespace = if resource.is_namespaced() { namespace } else { "" };
        gatherer.each(resource, namespace, reading, take).await
    };
    let (mut forbidden, mut asked) = (BTreeSet::new(), BTreeSet::new());
    let mut unread = |garbage: &mut Garbage, resource: &Resource, read: Result<(), UnlistedReason>| {
        asked.insert(resource.name.to_string());
        match read {
            Ok(()) => {}
            Err(UnlistedReason::Forbidden) => {
                forbidden.insert(resource.name.to_string());
            }
            Err(why) => garbage.unseen(format!("{} could not be listed: {why}", resource.name)),
        }
    };
    let catalog = &gatherer.catalog;
    for usable in [Usable::ServiceAccount, Usable::ConfigMap, Usable::Secret, Usable::Claim] {
        let Some(resource) = catalog.named(&usable.resource()) else { continue };
        // The contents of Secrets are never read.
        let reading = if usable == Usable::Secret { Reading::Metadata } else { Reading::Whole };
        let read = each(resource, reading, &mut |object| garbage.target(usable, resource, object)).await;
        if read.is_err() {
            garbage.not_listed(usable);
        }
        unread(&mut garbage, resource, read);
    }
    let definitions = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
    if let Some(resource) = catalog.named(&definitions) {
        let read = each(resource, Reading::Whole, &mut |object| garbage.definition(object)).await;
        unread(&mut garbage, resource, read);
    }
    for (group, name) in ENDPOINTS {
        let Some(resource) = catalog.named(&GroupResource::new(group, name)) else { continue };
        let read = each(resource, Reading::Metadata, &mut |object| garbage.endpoints(object)).await;
        unread(&mut garbage, resource, read);
    }
    let mut users: Vec<&Resource> = catalog.all().iter().filter(|resource| refers(resource)).collect();
    users.sort_by_key(|resource| !Garbage::reads_first(resource));
    for resource in users {
        let read = each(resource, Reading::Whole, &mut |object| garbage.refer(resource, object)).await;
        unread(&mut garbage, resource, read);
    }
    if forbidden.len() == asked.len() {
        match namespace {
            "" => bail!(gather::NOTHING_TO_LIST),
            namespace => bail!("this user may list nothing in namespace {namespace:?}"),
        }
    }
    if !forbidden.is_empty() {
        let names: Vec<String> = forbidden.into_iter().collect();
        let number = count(names.len(), "resource");
        let (some, why) = (some_of(&names, 3), UnlistedReason::Forbidden);
        garbage.unseen(format!("{number} could not be read ({some}): {why}"));
    }
    // Owners and users may have other labels.
    let everything = Scope { namespace: namespace.to_owned(), ..Scope::default() };
    let survey = gatherer.survey(&everything, patience).await?;
    let mut facts = Facts::at(gatherer.now);
    let namespaces = [namespace.to_owned()];
    let until = gatherer.now.after(DUE_WITHIN_MILLISECONDS);
    let horizon = Horizon { namespaces: &namespaces, until, limit: DUE_LISTED, runs: &|_| true };
    let outlook = gatherer.answer(&mut facts, |facts| upcoming(&survey, facts, &horizon)).await;
    let mut report = garbage.report(&survey, &outlook);
    if !scope.selector.is_empty() {
        select(gatherer, &mut report, scope).await?;
    }
    Ok(report)
}

/// Reports whether objects of a resource may refer to others by name.
fn refers(resource: &Resource) -> bool {
    let is =
        |(group, name): &(&str, &str)| *group == &*resource.name.group && *name == &*resource.name.resource;
    let is_target = Usable::ALL.iter().any(|usable| {
        // A ServiceAccount refers to Secrets, and a claim may refer to the claim that it is cloned from.
        !matches!(usable, Usable::ServiceAccount | Usable::Claim) && usable.resource() == resource.name
    });
    resource.has("list") && !is_target && !SILENT.iter().any(is)
}

/// Keeps findings about objects with the labels of a scope.
async fn select(gatherer: &Gatherer, report: &mut Report, scope: &Scope) -> anyhow::Result<()> {
    let resources: BTreeSet<String> =
        report.findings.iter().map(|finding| finding.place.resource.clone()).collect();
    let mut selected = BTreeSet::new();
    for resource in resources {
        for found in gatherer.catalog.find(&resource).map_err(UsageError::new)? {
            let namespace = if found.is_namespaced() { &*scope.namespace } else { "" };
            let names = gatherer.names(found, namespace, &scope.selector).await?;
            selected.extend(names.into_iter().map(|(namespace, name)| (resource.clone(), namespace, name)));
        }
    }
    report.findings.retain(|Finding { place, .. }| {
        selected.contains(&(place.resource.clone(), place.namespace.clone(), place.name.clone()))
    });
    if report.more_missing > 0 {
        let more = count(std::mem::take(&mut report.more_missing), "more reference");
        report.unseen.push(format!("{more} to what does not exist: the labels were not compared"));
    }
    Ok(())
}

/// The answer of `kubegc garbage`.
pub struct GarbageAnswer {
    /// The report.
    pub report: Report,
}

impl Answer for GarbageAnswer {
    fn value(&self) -> Value {
        self.report.value()
    }

    fn text(&self, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let report = &self.report;
        if report.findings.is_empty() {
            let doubt = if report.unseen.is_empty() { "" } else { " (as far as can be seen)" };
            writeln!(out, "No unused objects found{doubt}.")?;
            return Ok(());
        }
        let wide: &[&str] = if is_wide { &["API VERSION", "UID"] } else { &[] };
        let columns: [&[&str]; 3] = [&["FINDING", "NAMESPACE", "OBJECT", "SIZE", "CERTAIN"], wide, &["WHY"]];
        let mut table = Table::new(&columns.concat());
        for finding in &report.findings {
            let mut row = vec![
                finding.code.name().to_owned(),
                finding.place.namespace.clone(),
                finding.place.title(),
                finding.bytes.map_or_else(|| "-".to_owned(), size),
                if finding.certainty == Certainty::Certain { "yes" } else { "unknown" }.to_owned(),
            ];
            if is_wide {
                row.extend([finding.place.api_version.clone(), finding.place.uid.clone()]);
            }
            row.push(finding.why.clone());
            table.row(row);
        }
        table.write(out)?;
        writeln!(out)?;
        writeln!(out, "{}", summary(report))?;
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        self.report.findings.iter().map(|finding| finding.place.reference()).collect()
    }

    fn html(&self) -> Option<String> {
        Some(page(&self.report))
    }
}

/// Summarizes the report in one line.
fn summary(report: &Report) -> String {
    let mut parts: Vec<String> = report
        .totals()
        .into_iter()
        .map(|(code, (number, bytes))| {
            let size = if bytes > 0 { format!(" with {}", size(bytes)) } else { String::new() };
            format!("{} {}{size}", thousands(number), code.name())
        })
        .collect();
    if report.more_missing > 0 {
        parts.push(format!("{} to what does not exist", count(report.more_missing, "more reference")));
    }
    format!("{}. Nothing was deleted.", parts.join(", "))
}

/// Formats bytes in the largest unit that fits.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let (mut whole, mut tenths) = (bytes, 0);
    while whole >= 1024 && unit + 1 < UNITS.len() {
        (whole, tenths, unit) = (whole / 1024, whole % 1024 * 10 / 1024, unit + 1);
    }
    if tenths > 0 && whole < 10 {
        format!("{whole}.{tenths} {}", UNITS[unit])
    } else {
        format!("{whole} {}", UNITS[unit])
    }
}

/// Formats the report as a self-contained page.
fn page(report: &Report) -> String {
    use std::fmt::Write as _;
    let mut rows = String::new();
    for finding in &report.findings {
        let certainty = if finding.certainty == Certainty::Certain { "yes" } else { "unknown" };
        let cells = [
            finding.code.name().to_owned(),
            finding.place.namespace.clone(),
            finding.place.title(),
            finding.bytes.map_or_else(|| "-".to_owned(), size),
            certainty.to_owned(),
            finding.why.clone(),
        ];
        let cells: Vec<String> = cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
        let _ = writeln!(rows, "<tr>{}</tr>", cells.concat()); // writing to a String cannot fail, here and below
    }
    let mut unseen = String::new();
    for what in &report.unseen {
        let _ = writeln!(unseen, "<li>{}</li>", escaped(what));
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Garbage</title>\n<style>\
         body{{font-family:sans-serif;margin:2em}}table{{border-collapse:collapse}}\
         td,th{{text-align:left;padding:.2em .8em;border-bottom:1px solid #ccc}}</style></head><body>\n\
         <h1>Garbage</h1>\n<p>{}</p>\n<ul>\n{unseen}</ul>\n\
         <table>\n<tr><th>Finding</th><th>Namespace</th><th>Object</th><th>Size</th><th>Certain</th><th>Why</th></tr>\n\
         {rows}</table>\n</body></html>\n",
        escaped(&summary(report))
    )
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use gc_kube::ApiClient;
    use http::Method;
    use serde_json::json;

    use super::*;
    use gc_embedded::apiserver::{self, ServerOptions};
    use gc_embedded::definitions::call;

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (20 << 30, "20 GiB"),
            (u64::MAX, "16777215 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    /// The report about an embedded server with objects in every kind of use must be what the command prints.
    #[tokio::test]
    async fn a_cluster_is_reported_as_it_is() {
        let options = ServerOptions::in_process();
        let server = apiserver::serve(&options, None).await.unwrap();
        let way = server.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        let namespace = "/api/v1/namespaces/shop";
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "secretName": {"type": "string"}, "title": {"type": "string"}}}}}}}]}});
        let named = |name: &str| json!({"metadata": {"name": name}});
        let claim = json!({"metadata": {"name": "lost"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "2Gi"}}}});
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i",
            "envFrom": [{"configMapRef": {"name": "used"}}, {"secretRef": {"name": "absent"}}]}]}});
        let old = json!({"metadata": {"name": "old", "annotations": {"kubegc.io/ttl": "1h"}}});
        let orphan = json!({"metadata": {"name": "orphan", "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap",
            "name": "gone", "uid": "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6"}]}});
        let markup = json!({"metadata": {"name": "suspect"}, "data": {"k": "v"}});
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
            "spec": {"secretName": "by-schema", "title": "suspect"}});
        for (path, body) in [
            ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition),
            ("/api/v1/namespaces", named("shop")),
            (&format!("{namespace}/configmaps"), named("used")),
            (&format!("{namespace}/configmaps"), markup),
            (&format!("{namespace}/configmaps"), old),
            (&format!("{namespace}/configmaps"), orphan),
            (&format!("{namespace}/secrets"), named("by-schema")),
            (&format!("{namespace}/secrets"), named("unused")),
            (&format!("{namespace}/persistentvolumeclaims"), claim),
            (&format!("{namespace}/serviceaccounts"), named("idle")),
            (&format!("{namespace}/pods"), pod),
            ("/apis/example.com/v1/namespaces/shop/widgets", widget),
        ] {
            let (code, answer) = call(&client, Method::POST, path, Some(&body)).await.unwrap();
            assert_eq!(code, 201, "{path}: {answer}");
        }
        let gatherer = Gatherer::new(client, gather::now()).await.unwrap();
        let report = ask(&gatherer, &Scope::default(), std::time::Duration::from_secs(30)).await.unwrap();
        let shown: Vec<String> = report
            .findings
            .iter()
            .map(|finding| {
                let doubt = if finding.certainty == Certainty::Certain { "" } else { "?" };
                format!("{}{doubt} {}", finding.code.name(), finding.place.title())
            })
            .collect();
        assert_eq!(
            shown,
            [
                "UnusedConfigMap ConfigMap/old",
                "UnusedConfigMap? ConfigMap/suspect",
                "UnusedSecret Secret/unused",
                "UnusedClaim PersistentVolumeClaim/lost",
                "UnusedServiceAccount ServiceAccount/idle",
                "InvalidOwner ConfigMap/orphan",
                "MissingTarget Pod/p",
                "Due ConfigMap/old",
            ]
        );
        assert_eq!(report.unseen, [""; 0]);
        let answer = GarbageAnswer { report };
        let mut text = Vec::new();
        answer.text(false, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("FINDING                NAMESPACE   OBJECT"), "{text}");
        assert!(text.contains("1 UnusedClaim with 2 GiB"), "{text}");
        let html = answer.html().unwrap();
        assert!(html.contains("<td>PersistentVolumeClaim/lost</td><td>2 GiB</td>"), "{html}");
        assert_eq!(escaped("<a href='x'>&\"</a>"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;&lt;/a&gt;");
        server.shutdown().await;
    }
}
