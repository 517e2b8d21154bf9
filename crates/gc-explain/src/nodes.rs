//! Reports of node agents: removals of the last hour, and images that are due.

use gc_collectors::node_report::{ANNOTATION, COLLECTOR, IMAGE_UNUSED_TOO_LONG, NodeReport, Tally};
use gc_types::Timestamp;
use serde_json::{Value, json};

use crate::forecast::Forecast;
use crate::stuck::Place;
use crate::text::count;
use crate::upcoming::{Outlook, UpcomingDeletion};

/// Nodes that are named.
const NODES_NAMED: usize = 100;

/// The report of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeAnswer {
    node: String,
    removed: Tally,
    due: usize,
    reported: Timestamp,
}

/// The reports of all nodes that somebody may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Those that removed most first.
    all: Vec<NodeAnswer>,
    removed: Tally,
    /// Number of agents that no longer run.
    silent: usize,
}

impl Nodes {
    /// Reads the Leases that agents report on, and adds the images that are due within a day to what is due: moments there are
    /// of a clock that is `ahead` milliseconds ahead of `now`.
    pub fn read(leases: &[Value], now: Timestamp, (due, ahead): (&mut Outlook, i64)) -> Self {
        let mut nodes = Self::default();
        for lease in leases {
            let text = lease["metadata"]["annotations"][ANNOTATION].as_str();
            let owners = lease["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let node =
                owners.filter(|owner| owner["kind"] == "Node").find_map(|owner| owner["name"].as_str());
            let (Some(report), Some(node)) = (text.and_then(NodeReport::read), node) else { continue };
            let (removed, (images, total)) = (report.removed(now), report.due(now));
            nodes.silent += usize::from(report.is_silent(now));
            nodes.removed += removed;
            let images =
                images.iter().map(|image| upcoming(node, &image.name, Timestamp(image.at).after(ahead)));
            due.add_all(images, total);
            let reported = report.written_at();
            nodes.all.push(NodeAnswer { node: node.to_owned(), removed, due: total, reported });
        }
        nodes.all.sort_by(|left, right| {
            let most = |one: &NodeAnswer| (one.removed.freed_bytes, one.removed.containers, one.due);
            most(right).cmp(&most(left)).then_with(|| left.node.cmp(&right.node))
        });
        nodes
    }

    /// One line about agents that do not run any more, if there are some.
    #[must_use]
    pub fn unseen(&self) -> Option<String> {
        (self.silent > 0).then(|| {
            format!(
                "what is due on {}: the agents there have not reported for two hours",
                count(self.silent, "node")
            )
        })
    }

    /// As data.
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

fn upcoming(node: &str, image: &str, at: Timestamp) -> UpcomingDeletion {
    let place = Place {
        api_version: String::new(),
        kind: "Image".into(),
        // Nothing can be asked about it: it is not an object.
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

    /// Anyone who can change a Lease can write any numbers into its report.
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
