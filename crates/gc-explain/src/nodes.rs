//! Reports of node agents: removals of the last hour, images that are due, and the state of each node.

use std::collections::BTreeSet;

use gc_collectors::node_policies::result::NodeResult;
use gc_collectors::node_report::{
    ANNOTATION, COLLECTOR, DiskState, IMAGE_UNUSED_TOO_LONG, LastPass, NodeReport, NodeState, PolicyReport,
    Tally,
};
use gc_types::Timestamp;
use serde_json::{Value, json};

use crate::forecast::Forecast;
use crate::stuck::Place;
use crate::text::count;
use crate::upcoming::{Outlook, UpcomingDeletion};

/// Maximum number of nodes that are named.
const NODES_NAMED: usize = 100;
/// Maximum number of nodes in a fleet listing; a search finds the others.
const NODES_LISTED: usize = 1_000;

/// The report of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeAnswer {
    node: String,
    removed: Tally,
    due: usize,
    reported: Timestamp,
    is_silent: bool,
    state: NodeState,
}

/// Reports of all nodes that a user may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Reports, by descending number of removals.
    all: Vec<NodeAnswer>,
    removed: Tally,
    /// Number of agents that no longer run.
    silent: usize,
    /// Nodes without a report, by name.
    unreported: Vec<String>,
}

impl Nodes {
    /// Reads the Leases in which agents report, and adds images that are due within a day to `due`, whose clock is `ahead`
    /// milliseconds ahead of `now`.
    pub fn read(leases: &[Value], now: Timestamp, (due, ahead): (&mut Outlook, i64)) -> Self {
        let mut nodes = Self::default();
        for lease in leases {
            let text = lease["metadata"]["annotations"][ANNOTATION].as_str();
            let owners = lease["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let node =
                owners.filter(|owner| owner["kind"] == "Node").find_map(|owner| owner["name"].as_str());
            let (Some(report), Some(node)) = (text.and_then(NodeReport::read), node) else { continue };
            let (removed, (images, total)) = (report.removed(now), report.due(now));
            let is_silent = report.is_silent(now);
            nodes.silent += usize::from(is_silent);
            nodes.removed += removed;
            let images =
                images.iter().map(|image| upcoming(node, &image.name, Timestamp(image.at).after(ahead)));
            due.add_all(images, total);
            let reported = report.written_at();
            let (node, state) = (node.to_owned(), report.state().clone());
            nodes.all.push(NodeAnswer { node, removed, due: total, reported, is_silent, state });
        }
        nodes.all.sort_by(|left, right| {
            let most = |one: &NodeAnswer| (one.removed.freed_bytes, one.removed.containers, one.due);
            most(right).cmp(&most(left)).then_with(|| left.node.cmp(&right.node))
        });
        nodes
    }

    /// Takes the names of all nodes, to tell which have no report.
    pub fn expect(&mut self, names: impl IntoIterator<Item = String>) {
        let reported: BTreeSet<&str> = self.all.iter().map(|one| one.node.as_str()).collect();
        let unreported: BTreeSet<String> =
            names.into_iter().filter(|name| !reported.contains(name.as_str())).collect();
        self.unreported = unreported.into_iter().collect();
    }

    /// Returns one line about agents that no longer run, if there are any.
    #[must_use]
    pub fn unseen(&self) -> Option<String> {
        (self.silent > 0).then(|| {
            format!(
                "what is due on {}: the agents there have not reported for two hours",
                count(self.silent, "node")
            )
        })
    }

    /// Converts to JSON.
    #[must_use]
    pub fn value(&self) -> Value {
        let item = |one: &NodeAnswer| {
            json!({
                "node": one.node, "removed": one.removed, "due": one.due, "reported": one.reported.to_string(),
            })
        };
        let items: Vec<Value> = self.all.iter().take(NODES_NAMED).map(item).collect();
        json!({"total": self.all.len(), "removed": self.removed, "items": items})
    }
}

impl Nodes {
    /// Returns the fleet as JSON: the nodes whose name contains a text, those that need attention first, then the fullest.
    #[must_use]
    pub fn fleet(&self, text: &str) -> Value {
        let fits = |name: &str| name.contains(text);
        let mut found: Vec<&NodeAnswer> = self.all.iter().filter(|one| fits(&one.node)).collect();
        found.sort_by_key(|one| {
            let NodeAnswer { node, is_silent, state, .. } = one;
            let needs_somebody = *is_silent || state.has_failed();
            (std::cmp::Reverse((needs_somebody, state.fullest_percent())), node)
        });
        let unreported: Vec<&String> = self.unreported.iter().filter(|name| fits(name)).collect();
        json!({
            "total": found.len(), "silent": found.iter().filter(|one| one.is_silent).count(),
            "items": found.iter().take(NODES_LISTED).map(|one| one.value()).collect::<Vec<_>>(),
            "unreported": {
                "total": unreported.len(), "names": unreported.iter().take(NODES_NAMED).collect::<Vec<_>>(),
            },
        })
    }
}

impl NodeAnswer {
    fn value(&self) -> Value {
        let NodeState { disks, images, image_bytes, unexplained_bytes, passes, policies } = &self.state;
        let disk = |disk: &DiskState| {
            json!({
                "path": disk.path, "capacityBytes": disk.capacity_bytes, "usedBytes": disk.used_bytes,
                "usagePercent": disk.usage_percent(),
            })
        };
        let pass = |pass: &LastPass| json!({"collector": pass.collector, "at": Timestamp(pass.at).to_string(), "failed": pass.failed});
        let policy = |one: &PolicyReport| {
            let NodeResult { state, observed_generation, time, images, bytes, message, kubelet, .. } =
                &one.result;
            json!({
                "policy": one.policy, "state": state.name(), "observedGeneration": observed_generation,
                "time": time, "images": images, "bytes": bytes, "message": message, "kubelet": kubelet,
            })
        };
        json!({
            "node": self.node, "reported": self.reported.to_string(), "silent": self.is_silent,
            "policies": policies.iter().map(policy).collect::<Vec<_>>(),
            "disks": disks.iter().map(disk).collect::<Vec<_>>(), "images": images, "imageBytes": image_bytes,
            "unexplainedBytes": unexplained_bytes, "passes": passes.iter().map(pass).collect::<Vec<_>>(),
            "removed": self.removed, "due": self.due,
        })
    }
}

fn upcoming(node: &str, image: &str, at: Timestamp) -> UpcomingDeletion {
    let place = Place {
        api_version: String::new(),
        kind: "Image".into(),
        // It is not an object, so it has no resource to query.
        resource: String::new(),
        namespace: String::new(),
        name: image.to_owned(),
        uid: String::new(),
    };
    let detail = format!("unused on {node} for the maximum age");
    let (code, collector) = (IMAGE_UNUSED_TOO_LONG, COLLECTOR);
    UpcomingDeletion { place, forecast: Forecast { at, code, collector, detail, is_upstream: true } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gc_collectors::node_report::DueImage;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const MINUTE: i64 = 60_000;

    fn lease(node: &str, minutes_ago: i64, freed_bytes: u64, due: &[(&str, i64)]) -> Value {
        let (mut report, written) = (NodeReport::default(), NOW.after(-minutes_ago * MINUTE));
        let image = |(name, minutes): &(&str, i64)| DueImage {
            at: NOW.after(minutes * MINUTE).0,
            name: (*name).into(),
        };
        let removed = Tally { images: u64::from(freed_bytes > 0), freed_bytes, ..Tally::default() };
        report.observe(written, removed, due.iter().map(image).collect());
        json!({"metadata": {"annotations": {ANNOTATION: report.written(written)},
            "ownerReferences": [{"kind": "Node", "name": node}]}})
    }

    #[test]
    fn reports_of_nodes_are_one_answer() {
        let mut of_nobody = lease("c", 0, 1, &[]);
        of_nobody["metadata"]["ownerReferences"] = Value::Null;
        let leases = [
            lease("a", 5, 100, &[("nginx", 90), ("redis", 30)]),
            lease("b", 5, 200, &[]),
            lease("gone", 121, 400, &[("old", 10)]),
            of_nobody,
            json!({"metadata": {"annotations": {ANNOTATION: "nonsense"}, "ownerReferences": [{"kind": "Node", "name": "d"}]}}),
        ];
        let mut outlook = Outlook::new(NOW, NOW.after(24 * 60 * MINUTE), 1);
        let nodes = Nodes::read(&leases, NOW, (&mut outlook, 10 * MINUTE));
        let tally = |images: u64, bytes: u64| json!({"images": images, "freedBytes": bytes, "containers": 0, "sandboxes": 0, "logDirectories": 0, "links": 0});
        let item = |node: &str, removed: Value, due: usize, ago: i64| {
            let reported = NOW.after(-ago * MINUTE).to_string();
            json!({"node": node, "removed": removed, "due": due, "reported": reported})
        };
        assert_eq!(
            nodes.value(),
            json!({"total": 3, "removed": tally(2, 300), "items": [
                item("b", tally(1, 200), 0, 5), item("a", tally(1, 100), 2, 5), item("gone", tally(0, 0), 0, 121)]})
        );
        let silent = "what is due on 1 node: the agents there have not reported for two hours";
        assert_eq!(nodes.unseen().as_deref(), Some(silent));
        let due = outlook.within("");
        assert_eq!((&due.items, due.total), (&vec![upcoming("a", "redis", NOW.after(40 * MINUTE))], 2));
        // Ninety and thirty minutes ahead, by a clock that is ten minutes ahead.
        assert_eq!((due.slots[1], due.slots[3], due.slots.iter().sum::<usize>()), (1, 1, 2));
        assert_eq!(
            due.items[0].forecast.message(NOW),
            "will be deleted in 40 min: ImageUnusedTooLong, unused on a for the maximum age (node-images)"
        );
    }

    #[test]
    fn the_fleet_begins_with_nodes_that_need_somebody() {
        let lease = |node: &str, minutes_ago: i64, used_bytes: u64, failed: bool| {
            let (mut report, written) = (NodeReport::default(), NOW.after(-minutes_ago * MINUTE));
            let disk = DiskState { path: "/images".into(), capacity_bytes: 200, used_bytes };
            let pass = LastPass { collector: "images".into(), at: written.0, failed };
            report.observe_state(NodeState {
                disks: vec![disk],
                images: Some(3),
                image_bytes: Some(90),
                unexplained_bytes: Some(10),
                passes: vec![pass],
                policies: vec![PolicyReport {
                    policy: "trial".into(),
                    result: NodeResult { images: 2, bytes: 7, ..NodeResult::default() },
                }],
            });
            json!({"metadata": {"annotations": {ANNOTATION: report.written(written)},
                "ownerReferences": [{"kind": "Node", "name": node}]}})
        };
        let leases = [
            lease("node-a", 1, 20, false),
            lease("node-b", 1, 180, false),
            lease("node-c", 1, 40, true),
            lease("silent", 121, 10, false),
        ];
        let mut nodes = Nodes::read(&leases, NOW, (&mut Outlook::new(NOW, NOW.after(MINUTE), 1), 0));
        nodes.expect(["node-a", "node-d", "other", "node-d"].map(str::to_owned));
        let fleet = nodes.fleet("");
        let names = |fleet: &Value| -> Vec<String> {
            let items = fleet["items"].as_array().into_iter().flatten();
            items.filter_map(|item| item["node"].as_str().map(str::to_owned)).collect()
        };
        assert_eq!(names(&fleet), ["node-c", "silent", "node-b", "node-a"]);
        assert_eq!((&fleet["total"], &fleet["silent"]), (&json!(4), &json!(1)));
        assert_eq!(fleet["unreported"], json!({"total": 2, "names": ["node-d", "other"]}));
        assert_eq!(
            fleet["items"][0],
            json!({
                "node": "node-c", "reported": NOW.after(-MINUTE).to_string(), "silent": false,
                "disks": [{"path": "/images", "capacityBytes": 200, "usedBytes": 40, "usagePercent": 20}],
                "images": 3, "imageBytes": 90, "unexplainedBytes": 10,
                "passes": [{"collector": "images", "at": NOW.after(-MINUTE).to_string(), "failed": true}],
                "removed": Tally::default(), "due": 0,
                "policies": [{"policy": "trial", "state": "DryRun", "observedGeneration": 0, "time": "", "images": 2,
                    "bytes": 7, "message": "", "kubelet": ""}],
            })
        );
        let found = nodes.fleet("node-d");
        assert_eq!((names(&found).len(), &found["unreported"]["total"]), (0, &json!(1)));
    }

    /// Anyone who can change a Lease can write any numbers into its report; that must not cause more than wrong counts.
    #[test]
    fn hostile_numbers_only_make_counts_wrong() {
        let hostile = json!({"written": NOW.0, "dueTotal": usize::MAX, "due": [{"at": i64::MIN, "name": "a"}],
            "removed": [{"at": NOW.0, "images": u64::MAX}]});
        let lease = |node: &str| {
            json!({"metadata": {"annotations": {ANNOTATION: hostile.to_string()},
            "ownerReferences": [{"kind": "Node", "name": node}]}})
        };
        let mut outlook = Outlook::new(NOW, NOW, 1);
        let nodes = Nodes::read(&[lease("a"), lease("b")], NOW, (&mut outlook, i64::MIN));
        let due = outlook.within("");
        assert_eq!((nodes.removed.images, due.total, due.items.len()), (u64::MAX, usize::MAX, 1));
    }
}
