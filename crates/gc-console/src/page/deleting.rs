//! Deletions from the page: the plan that is shown, the order to execute it, and its progress.

use gc_apiserver::{ExtensionAnswer, ExtensionRequest};
use gc_explain::plan::Fate;
use gc_explain::stuck::Row;
use gc_inspect::subject::{ConfirmedPlan, Subject};
use gc_inspect::view::{self, PlannedDeletion, Question, View};
use gc_types::Uid;
use serde::Deserialize;
use serde_json::{Value, json};

use super::plans::{self, KeptPlan};
use super::refusal::Refusal;
use super::requester::{Requester, who};
use super::{ANSWER_PATIENCE, Page, overview, parameter, read_order, subject, views};

/// Maximum number of objects of a plan that are named.
const PLAN_NAMED: usize = 1_000;
/// Maximum number of objects of one fate and kind that are named.
const NAMED_OF_GROUP: usize = 8;
/// Maximum number of root causes that are named for a stuck deletion.
const CAUSES_NAMED: usize = 10;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeleteOrder {
    #[serde(flatten)]
    subject: Subject,
    uid: String,
    policy: String,
    /// Number of objects that the confirmed plan deletes.
    objects: usize,
    /// Number of volumes whose storage it loses.
    lost_volumes: usize,
    /// Name of the object as typed, if the plan requires it.
    #[serde(default)]
    typed: String,
}

impl Page {
    async fn planned(
        &self,
        subject: &Subject,
        policy: &str,
        user: &Requester,
    ) -> Result<(Question, PlannedDeletion), Refusal> {
        let cascade = view::cascade(policy).ok_or_else(|| {
            let message = format!("policy={policy}: expected background, foreground or orphan");
            Refusal::new(400, "BadRequest", message)
        })?;
        let question = Question::from(self.gatherer(user).await?, subject, ANSWER_PATIENCE)?;
        let planned = question.plan(cascade).await?;
        Ok((question, planned))
    }

    pub(crate) async fn plan(
        &self,
        request: &ExtensionRequest,
        user: &Requester,
    ) -> Result<ExtensionAnswer, Refusal> {
        let policy = parameter(request, "policy").unwrap_or("background");
        let (_, planned) = self.planned(&subject(request)?, policy, user).await?;
        let shown = self.shown(&planned, request, user).await?;
        Ok(ExtensionAnswer::json(200, &shown))
    }

    /// Returns a plan for display, and keeps it for maps.
    async fn shown(
        &self,
        planned: &PlannedDeletion,
        request: &ExtensionRequest,
        user: &Requester,
    ) -> Result<Value, Refusal> {
        let kept = kept(planned, user).await?;
        let mut value = plan_value(planned);
        value["id"] = self.0.plans.keep(who(&request.user), kept).into();
        Ok(value)
    }

    pub(crate) async fn delete(
        &self,
        request: &ExtensionRequest,
        user: &Requester,
    ) -> Result<ExtensionAnswer, Refusal> {
        let order: DeleteOrder = read_order(request)?;
        let (question, planned) = self.planned(&order.subject, &order.policy, user).await?;
        let DeleteOrder { objects, lost_volumes, .. } = order;
        if !planned.is_within(&ConfirmedPlan { uid: order.uid.clone(), objects, lost_volumes }) {
            let mut refusal = Refusal::new(409, "PlanChanged", "the plan has changed since it was shown");
            refusal.details = self.shown(&planned, request, user).await?;
            return Err(refusal);
        }
        if planned.needs_name() && order.typed != order.subject.name {
            let message = "this much is deleted only when the name of the object is typed";
            return Err(Refusal::new(422, "NameNotTyped", message));
        }
        // Everything that can fail comes before: an error afterwards would suggest that nothing was deleted.
        let kept = kept(&planned, user).await?;
        question.delete(&planned).await?;
        let Subject { resource, namespace, name } = &order.subject;
        tracing::info!(
            user = request.user.name,
            resource,
            namespace,
            name,
            order.policy,
            "deleted from the page"
        );
        let deletion = self.0.deletions.keep(who(&request.user), kept);
        let document = json!({"uid": planned.uid(), "objects": planned.objects(), "deletion": deletion});
        Ok(ExtensionAnswer::json(202, &document))
    }

    /// Returns the remaining part of a deletion, as the user may see it, and the reason if it is stuck.
    pub(crate) async fn remaining(
        &self,
        request: &ExtensionRequest,
        user: &Requester,
    ) -> Result<ExtensionAnswer, Refusal> {
        let id = parameter(request, "deletion").unwrap_or_default();
        let deletion = self.0.deletions.of(&who(&request.user), id).ok_or_else(plans::forgotten)?;
        let views::SharedView { view, .. } = self.view(request, user).await?;
        let mut left = left(&deletion, &view);
        let gatherer = self.gatherer(user).await?;
        for place in &deletion.unlisted {
            if gatherer.is_there(place).await {
                left.push(Uid::new(&place.uid));
            }
        }
        left.sort_unstable();
        left.dedup();
        Ok(ExtensionAnswer::json(200, &remaining_value(&deletion, &left, &view)))
    }
}

/// Keeps the part of a plan that its maps and followers need.
async fn kept(planned: &PlannedDeletion, user: &Requester) -> Result<KeptPlan, Refusal> {
    let rights = user.rights().await?;
    let is_listed = |resource: &str, namespace: &str| {
        rights.lists.iter().any(|(within, resources)| {
            (within.is_empty() || within == namespace)
                && resources.iter().any(|listed| listed.name.to_string() == resource)
        })
    };
    let now = gc_types::Timestamp(jiff::Timestamp::now().as_millisecond());
    Ok(KeptPlan::new(&planned.radius, now, is_listed))
}

/// Returns the objects of a deletion that a view still contains: all, if it is older than the deletion.
fn left(deletion: &KeptPlan, view: &View) -> Vec<Uid> {
    let is_older = view.now < deletion.at;
    deletion.going().filter(|uid| is_older || view.has(uid)).cloned().collect()
}

/// Formats the remaining objects, sorted by UID, and the root causes that block them.
fn remaining_value(deletion: &KeptPlan, left: &[Uid], view: &View) -> Value {
    let is_left = |uid: &str| left.binary_search(&Uid::new(uid)).is_ok();
    let holds = |row: &&Row| row.places().any(|place| is_left(&place.uid));
    let rows: Vec<&Row> = view.stuck.iter().filter(holds).collect();
    let held: std::collections::BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| row.places())
        .map(|place| place.uid.as_str())
        .filter(|uid| is_left(uid))
        .collect();
    let named: Vec<Value> =
        rows.iter().take(CAUSES_NAMED).map(|row| overview::row_value(row, view.now)).collect();
    json!({
        "objects": deletion.going().count(), "remaining": left.len(), "unfollowed": deletion.unfollowed,
        "stuck": held.len(), "causes": {"total": rows.len(), "items": named},
    })
}

/// Formats a plan with at most [`PLAN_NAMED`] objects, the number of objects by fate and kind, and what has to be typed to execute
/// it.
fn plan_value(planned: &PlannedDeletion) -> Value {
    let mut value = planned.radius.value();
    let mut omitted = 0;
    if let Some(items) = value["items"].as_array_mut() {
        omitted = items.len().saturating_sub(PLAN_NAMED);
        items.truncate(PLAN_NAMED);
    }
    value["omitted"] = omitted.into();
    let group = |((fate, kind), items): ((Fate, &str), Vec<&gc_explain::plan::Item>)| {
        let named: Vec<Value> = items.iter().take(NAMED_OF_GROUP).map(|item| item.value()).collect();
        json!({"fate": fate.name(), "kind": kind, "total": items.len(), "items": named})
    };
    value["groups"] = planned.radius.groups().into_iter().map(group).collect();
    value["uid"] = planned.uid().into();
    value["objects"] = planned.objects().into();
    value["needsName"] = planned.needs_name().into();
    value["unseen"] = planned.unseen.clone().into();
    value
}
