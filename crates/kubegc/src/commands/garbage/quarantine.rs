//! Marks on objects that are certainly unused.

use std::io::Write as _;

use gc_explain::GroupResource;
use gc_explain::garbage::{Mark, MarkChange};
use gc_explain::text::count;
use gc_inspect::gather::{Gatherer, object_path};
use gc_inspect::output::Answer;
use gc_kube::ApiClient;
use gc_process::preflight;
use gc_process::table::Table;
use http::StatusCode;
use serde_json::Value;

/// Marks to set and to remove.
pub(super) struct MarksAnswer<'a> {
    pub(super) marks: &'a [Mark],
    /// True if the marks are being changed rather than shown.
    pub(super) is_done: bool,
}

impl Answer for MarksAnswer<'_> {
    fn value(&self) -> Value {
        serde_json::json!({"items": self.marks.iter().map(Mark::value).collect::<Vec<_>>()})
    }

    fn text(&self, _is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let mut table = Table::new(&["MARK", "NAMESPACE", "OBJECT", "WHY"]);
        for Mark { place, change, .. } in self.marks {
            let (mark, why) = match change {
                MarkChange::Set(why) => ("set", why.clone()),
                MarkChange::Keep(since) => ("kept", format!("unused since {since}")),
                MarkChange::Remove => ("removed", "it is used, or that is unknown".to_owned()),
            };
            table.row(vec![mark.to_owned(), place.namespace.clone(), place.title(), why]);
        }
        if !self.marks.is_empty() {
            table.write(out)?;
            writeln!(out)?;
        }
        let number = |is: fn(&MarkChange) -> bool| self.marks.iter().filter(|mark| is(&mark.change)).count();
        let set = number(|change| matches!(change, MarkChange::Set(_)));
        let removed = number(|change| matches!(change, MarkChange::Remove));
        let verb = if self.is_done { "Marking" } else { "Would mark" };
        writeln!(out, "{verb} {}, and ending {}.", count(set, "object"), count(removed, "mark"))?;
        if !self.is_done && set + removed > 0 {
            writeln!(out, "Nothing was changed. To do it: add --yes.")?;
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        let set = self.marks.iter().filter(|mark| matches!(mark.change, MarkChange::Set(_)));
        set.map(|mark| mark.place.reference()).collect()
    }
}

/// Changes marks, and returns what failed. An object that is gone needs no mark.
pub(super) async fn change(client: &ApiClient, gatherer: &Gatherer, marks: &[Mark]) -> Vec<String> {
    let mut failures = Vec::new();
    for mark in marks {
        let Some(patch) = mark.patch_of_look(gatherer.now) else { continue };
        let place = &mark.place;
        let (name, group) = place.resource.split_once('.').unwrap_or((&place.resource, ""));
        let Some(resource) = gatherer.catalog.named(&GroupResource::new(group, name)) else { continue };
        let path = object_path(resource, &place.namespace, &place.name);
        let request = preflight::patch(&path, "application/merge-patch+json", &patch);
        match client.call(request).await {
            Ok(answer) if answer.head.status.is_success() || answer.head.status == StatusCode::NOT_FOUND => {}
            Ok(answer) => failures.push(format!("{}: {}", place.title(), preflight::message(&answer))),
            Err(error) => failures.push(format!("{}: {error}", place.title())),
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::time::Duration;

    use gc_embedded::definitions::call;
    use gc_embedded::embedded::{Beginning, EmbeddedCluster};
    use gc_inspect::garbage;
    use gc_inspect::gather::{self, Scope};
    use http::Method;
    use serde_json::json;

    use super::*;

    /// An object is marked while it is certainly unused, and keeps the first date. An object recreated under its name is never
    /// marked by mistake.
    #[tokio::test]
    async fn marks_are_set_kept_and_removed() {
        let cluster =
            EmbeddedCluster::start(Beginning::empty(Vec::new()).with_controllers(&[])).await.unwrap();
        let way = cluster.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        let maps = "/api/v1/namespaces/default/configmaps";
        call(&client, Method::POST, maps, Some(&json!({"metadata": {"name": "left"}}))).await.unwrap();
        let look = async || {
            let gatherer = Gatherer::new(client.clone(), gather::now()).await.unwrap();
            let report = garbage::ask(&gatherer, &Scope::default(), Duration::from_mins(1)).await.unwrap();
            let mut marks = report.quarantine(None);
            marks.retain(|mark| mark.place.name == "left");
            assert_eq!(change(&client, &gatherer, &marks).await, [""; 0]);
            marks
        };
        let annotations = async || {
            let (_, left) = call(&client, Method::GET, &format!("{maps}/left"), None).await.unwrap();
            left["metadata"]["annotations"].clone()
        };
        let set = look().await;
        assert!(matches!(set[0].change, MarkChange::Set(_)), "{set:?}");
        let first = annotations().await;
        assert_eq!(first["kubegc.io/unused-because"], "UnusedConfigMap: nothing refers to it");
        let kept = look().await;
        assert!(matches!(kept[0].change, MarkChange::Keep(_)), "{kept:?}");
        assert_eq!(annotations().await, first);
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i",
            "envFrom": [{"configMapRef": {"name": "left"}}]}]}});
        call(&client, Method::POST, "/api/v1/namespaces/default/pods", Some(&pod)).await.unwrap();
        assert_eq!(look().await[0].change, MarkChange::Remove);
        assert_eq!(annotations().await, Value::Null);
        // The object that was seen is gone, and another has its name.
        call(&client, Method::DELETE, &format!("{maps}/left"), None).await.unwrap();
        call(&client, Method::POST, maps, Some(&json!({"metadata": {"name": "left"}}))).await.unwrap();
        let gatherer = Gatherer::new(client.clone(), gather::now()).await.unwrap();
        assert_eq!(change(&client, &gatherer, &set).await.len(), 1);
        assert_eq!(annotations().await, Value::Null);
        cluster.shutdown().await;
    }
}
