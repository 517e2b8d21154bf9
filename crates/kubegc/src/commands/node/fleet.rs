//! `kubegc node images --all-nodes`: the reports of the agents of all nodes, and the results of policies.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context as _, Result};
use gc_collectors::images::space::BinaryBytes;
use gc_explain::GroupResource;
use gc_explain::nodes::Nodes;
use gc_explain::text::ago;
use gc_explain::upcoming::Outlook;
use gc_inspect::gather::{Gatherer, Scope, clock};
use gc_kube::ApiClient;
use gc_process::table::Table;
use gc_types::Timestamp;
use serde_json::{Value, json};

use super::output::{Format, write_value};

/// Number of due images to name: none, because only their count is shown.
const DUE_NAMED: usize = 0;

/// Reads the agents' reports in a namespace from the cluster (in all namespaces if it is empty), and prints them.
pub(super) async fn show(
    client: ApiClient,
    namespace: &str,
    format: Format,
    out: &mut impl Write,
) -> Result<()> {
    let now = clock(&client).await;
    let gatherer = Gatherer::new(client, now).await?;
    let resource =
        |group: &str, resource: &str| gatherer.catalog.named(&GroupResource::new(group, resource)).cloned();
    let leases = resource("coordination.k8s.io", "leases").context("the server has no Leases")?;
    // Fails if reports cannot be listed; the code below would then show none.
    let (label, value) = gc_collectors::node_report::LABEL;
    gatherer.names(&leases, namespace, &format!("{label}={value}")).await?;
    let scope = Scope { namespace: namespace.to_owned(), ..Scope::default() };
    let reports = gatherer.node_reports(&[(scope, vec![leases])]).await;
    let mut due = Outlook::new(now, now, DUE_NAMED);
    let mut nodes = Nodes::read(&reports, now, (&mut due, 0));
    if let Some(resource) = resource("", "nodes") {
        match gatherer.objects(&resource, "").await {
            Ok(all) => nodes.expect(all.into_iter().map(|node| node.name.to_string())),
            Err(error) => tracing::warn!("nodes without a report are not known: {error:#}"),
        }
    }
    let mut fleet = nodes.fleet("");
    fleet["now"] = now.to_string().into();
    fleet["policies"] = policies(&fleet);
    match format {
        Format::Json | Format::Yaml => write_value(&fleet, format, out),
        Format::Name => {
            items(&fleet["items"]).try_for_each(|node| writeln!(out, "node/{}", text(&node["node"])))?;
            Ok(())
        }
        Format::Text | Format::Wide => write_tables(&fleet, now, format == Format::Wide, out),
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Sums up the results of each policy, by its role on the nodes.
fn policies(fleet: &Value) -> Value {
    let mut sums: BTreeMap<(String, String), (u64, u64, u64, u64)> = BTreeMap::new();
    for result in items(&fleet["items"]).flat_map(|node| items(&node["policies"])) {
        let key = (text(&result["policy"]).to_owned(), text(&result["state"]).to_owned());
        let number = |field: &str| result[field].as_u64().unwrap_or_default();
        let (nodes, images, bytes, kubelets) = sums.entry(key).or_default();
        *nodes += 1;
        *images = images.saturating_add(number("images"));
        *bytes = bytes.saturating_add(number("bytes"));
        *kubelets += u64::from(!text(&result["kubelet"]).is_empty());
    }
    let row = |((policy, state), (nodes, images, bytes, kubelets))| {
        json!({
            "policy": policy, "state": state, "nodes": nodes, "images": images, "bytes": bytes,
            "kubeletsThatDisagree": kubelets,
        })
    };
    sums.into_iter().map(row).collect()
}

fn write_tables(fleet: &Value, now: Timestamp, is_wide: bool, out: &mut impl Write) -> Result<()> {
    let nodes: Vec<&Value> = items(&fleet["items"]).collect();
    if nodes.is_empty() {
        writeln!(
            out,
            "No node reports: agents (kubegc node) write their reports onto Leases, which you may have to be allowed to list."
        )?;
    } else {
        let mut headings = vec![
            "NODE",
            "DISK",
            "IMAGES",
            "NOMINAL SIZE",
            "UNEXPLAINED",
            "LAST PASS",
            "FREED (1H)",
            "POLICIES",
        ];
        if is_wide {
            headings.extend(["REPORTED", "PATH"]);
        }
        let mut table = Table::new(&headings);
        for node in &nodes {
            table.row(node_row(node, now, is_wide));
        }
        table.write(out)?;
    }
    let sums: Vec<&Value> = items(&fleet["policies"]).collect();
    if !sums.is_empty() {
        let mut table =
            Table::new(&["POLICY", "STATE", "NODES", "IMAGES", "FREES", "KUBELETS THAT DISAGREE"]);
        for sum in sums {
            table.row(vec![
                text(&sum["policy"]).to_owned(),
                text(&sum["state"]).to_owned(),
                sum["nodes"].to_string(),
                sum["images"].to_string(),
                bytes(&sum["bytes"]),
                sum["kubeletsThatDisagree"].to_string(),
            ]);
        }
        writeln!(out)?;
        table.write(out)?;
    }
    if is_wide {
        for node in &nodes {
            for result in items(&node["policies"]) {
                for field in ["message", "kubelet"] {
                    let message = text(&result[field]);
                    if !message.is_empty() {
                        let (policy, node) = (text(&result["policy"]), text(&node["node"]));
                        let line = format!("{policy} on {node}: {message}");
                        writeln!(out, "{}", gc_process::screen::visible_line(&line))?;
                    }
                }
            }
        }
    }
    let (total, shown) = (fleet["total"].as_u64().unwrap_or_default(), nodes.len() as u64);
    if total > shown {
        writeln!(out, "{} more nodes report.", total - shown)?;
    }
    let unreported = &fleet["unreported"];
    let (missing, names) = (unreported["total"].as_u64().unwrap_or_default(), items(&unreported["names"]));
    if missing > 0 {
        let names: Vec<&str> = names.map(text).collect();
        let rest = missing.saturating_sub(names.len() as u64);
        let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        let line = format!("Without a report: {}{more}.", names.join(", "));
        writeln!(out, "{}", gc_process::screen::visible_line(&line))?;
    }
    Ok(())
}

fn bytes(value: &Value) -> String {
    value.as_u64().map_or("-".into(), |bytes| BinaryBytes(bytes).to_string())
}

fn since(value: &Value, now: Timestamp) -> Option<String> {
    let at = text(value).parse::<jiff::Timestamp>().ok()?;
    Some(ago(Timestamp(at.as_millisecond()), now))
}

fn node_row(node: &Value, now: Timestamp, is_wide: bool) -> Vec<String> {
    let disks: Vec<String> =
        items(&node["disks"]).map(|disk| format!("{} %", disk["usagePercent"])).collect();
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let pass = |pass: &Value| {
        let failed = if pass["failed"] == true { " (failed)" } else { "" };
        let at = since(&pass["at"], now).unwrap_or_else(|| "?".into());
        format!("{} {at}{failed}", text(&pass["collector"]))
    };
    let passes: Vec<String> = items(&node["passes"]).map(pass).collect();
    let silent = if node["silent"] == true { "silent, " } else { "" };
    let policy = |one: &Value| format!("{} {}", text(&one["policy"]), text(&one["state"]));
    let policies: Vec<String> = items(&node["policies"]).map(policy).collect();
    let mut row = vec![
        text(&node["node"]).to_owned(),
        or_dash(disks.join(", ")),
        node["images"].as_u64().map_or("-".into(), |images| images.to_string()),
        bytes(&node["imageBytes"]),
        bytes(&node["unexplainedBytes"]),
        or_dash(format!("{silent}{}", passes.join(", "))),
        bytes(&node["removed"]["freedBytes"]),
        or_dash(policies.join(", ")),
    ];
    if is_wide {
        let paths: Vec<&str> = items(&node["disks"]).map(|disk| text(&disk["path"])).collect();
        row.extend([since(&node["reported"], now).unwrap_or_else(|| "?".into()), or_dash(paths.join(", "))]);
    }
    row
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn a_fleet_is_shown_with_its_policies() {
        let now = Timestamp(1_800_000_000_000);
        let minutes_ago = |minutes: i64| now.after(-minutes * 60_000).to_string();
        let policy = |state: &str, bytes: u64, kubelet: &str| json!({"policy": "trial", "state": state, "images": 2, "bytes": bytes, "message": "", "kubelet": kubelet});
        let node = |name: &str, policies: Vec<Value>| {
            json!({
                "node": name, "reported": minutes_ago(3), "silent": name == "b",
                "disks": [{"path": "/images", "usagePercent": 81}], "images": 7, "imageBytes": 2048, "unexplainedBytes": null,
                "passes": [{"collector": "images", "at": minutes_ago(4), "failed": name == "b"}],
                "removed": {"freedBytes": 1024}, "policies": policies,
            })
        };
        let mut fleet = json!({
            "total": 3,
            "items": [node("a", vec![policy("DryRun", 1024, "")]), node("b", vec![policy("DryRun", 3072, "it collects, too")])],
            "unreported": {"total": 3, "names": ["c", "d"]},
        });
        fleet["policies"] = policies(&fleet);
        let shown = |is_wide: bool| {
            let mut out = Vec::new();
            write_tables(&fleet, now, is_wide, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        insta::assert_snapshot!(shown(true));
        assert!(!shown(false).contains("it collects, too"));
    }
}
