//! Maps of ownership, with the readiness of their objects.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use gc_apiserver::ExtensionRequest;
use gc_explain::GroupResource;
use gc_explain::map::{DEFAULT_BUDGET, Emphasis, Health, Map};
use gc_inspect::view::View;
use gc_types::{ObjectKey, Uid};
use serde_json::Value;

use super::refusal::Refusal;
use super::requester::{Requester, who};
use super::{ANSWER_PATIENCE, Page, parameter, plans, views};

/// Resource that maps show only on request: Events own nothing, and outnumber the objects that they are about.
const EVENTS: &str = "events";

/// Selection of a map, and its contents besides the graph.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MapQuestion {
    /// UID of the object that the map is around; `None` for a namespace.
    uid: Option<String>,
    namespace: String,
    budget: usize,
    /// Identifier of a plan that was shown.
    plan: Option<String>,
    /// `resource/namespace/name` of an object that gets a node of its own.
    selected: Option<String>,
    /// UIDs of objects whose groups are drawn member by member, in the order in which they were expanded.
    expanded: Vec<Uid>,
    /// Resources that are drawn; `None` for all except Events.
    kinds: Option<BTreeSet<String>>,
}

impl MapQuestion {
    /// Parses the question in a request about a namespace.
    pub(super) fn of(request: &ExtensionRequest, namespace: String) -> Result<Self, Refusal> {
        let budget = match parameter(request, "budget") {
            None => DEFAULT_BUDGET,
            Some(text) => text.parse().map_err(|_| {
                let message = format!("budget={text}: expected a number of nodes such as 120");
                Refusal::new(400, "BadRequest", message)
            })?,
        };
        let text = |name: &str| parameter(request, name).map(str::to_owned);
        let list =
            |name: &str| parameter(request, name).map(|text| text.split(',').filter(|part| !part.is_empty()));
        let expanded = list("expand").into_iter().flatten().map(Uid::new).collect();
        let kinds = list("kinds").map(|all| all.map(str::to_owned).collect());
        let (uid, plan, selected) = (text("uid"), text("plan"), text("selected"));
        Ok(Self { uid, namespace, budget, plan, selected, expanded, kinds })
    }

    /// Reports whether objects of a resource are drawn.
    fn shows(&self, resource: &GroupResource) -> bool {
        match &self.kinds {
            Some(kinds) => kinds.contains(&resource.to_string()),
            None => &*resource.resource != EVENTS,
        }
    }
}

impl Page {
    /// Returns a map, and how long it is valid: until the user's permissions are checked again.
    pub(super) async fn map(
        &self,
        question: &MapQuestion,
        request: &ExtensionRequest,
        user: &Requester,
    ) -> Result<(Value, Duration), Refusal> {
        let MapQuestion { uid, namespace, budget, plan, selected, expanded, .. } = question;
        let plan = match plan {
            Some(id) => Some(self.0.plans.of(&who(&request.user), id).ok_or_else(plans::forgotten)?),
            None => None,
        };
        let views::SharedView { view, until, rights } = self.view(request, user).await?;
        let is_known = namespace.is_empty() || !rights.has_namespaces() || view.has_namespace(namespace);
        if uid.is_none() && !is_known {
            return Err(Refusal::new(404, "NotFound", format!("namespace {namespace:?} not found")));
        }
        let fate = plan.as_ref().map(|plan| |uid: &Uid| plan.fate(uid));
        let selected = selected.as_deref().and_then(|selected| view.uid_of(selected));
        let shows = |resource: &GroupResource| question.shows(resource);
        let emphasis = Emphasis {
            fate: fate.as_ref().map(|fate| fate as _),
            alone: selected.as_ref(),
            expanded,
            shows: Some(&shows),
        };
        let map = match uid {
            Some(uid) => view.map_around(uid, *budget, emphasis),
            None => view.map_of_namespace(namespace, *budget, emphasis),
        };
        let mut map = map.ok_or_else(|| Refusal::new(404, "NotFound", "there is no such object"))?;
        let begun = Instant::now();
        self.examine(&mut map, &view, user).await;
        // Its cost is limited like that of the lists of a view.
        let rest = begun.elapsed() * views::REST_FACTOR;
        Ok((map.value(), until.saturating_duration_since(Instant::now()).max(rest)))
    }

    /// Adds to a map the readiness of its objects, as far as the user may read them.
    async fn examine(&self, map: &mut Map, view: &View, user: &Requester) {
        let is_examined = |key: &ObjectKey| {
            view.survey.resource(key).is_some_and(|resource| Health::is_examined(&resource.name))
        };
        let examined = map.nodes.iter().flat_map(|node| &node.examined);
        let keys: Vec<ObjectKey> =
            examined.filter(|(_, key)| is_examined(key)).map(|(_, key)| key.clone()).collect();
        if keys.is_empty() {
            return;
        }
        // A map without readiness is better than none.
        let Ok(gatherer) = self.gatherer(user).await else { return };
        let Ok(columns) = tokio::time::timeout(ANSWER_PATIENCE, gatherer.columns(keys.iter())).await else {
            return;
        };
        map.examine(&|uid| columns.get(uid).map(|one| (one.ready.clone(), one.status.clone())));
    }
}
