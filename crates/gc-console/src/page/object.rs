//! One object: why it is or is not deleted, its dependents, and what was done about it.

use gc_apiserver::{ExtensionAnswer, ExtensionRequest};
use gc_explain::stuck::Place;
use gc_inspect::view::{ObjectSummary, Question};
use gc_types::Uid;
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::requester::{Requester, Sight};
use super::{ANSWER_PATIENCE, Page, feed, overview, parameter, subject};

/// Maximum number of journal lines about one object.
const JOURNAL_LINES: usize = 50;
/// Maximum number of dependents of one object that are named.
const DEPENDENTS_NAMED: usize = 50;

impl Page {
    pub(super) async fn object(
        &self,
        request: &ExtensionRequest,
        user: &Requester,
    ) -> Result<ExtensionAnswer, Refusal> {
        let subject = subject(request)?;
        let question = Question::from(self.gatherer(user).await?, &subject, ANSWER_PATIENCE)?;
        let (metadata, status, finalizers) = match question.summary().await? {
            Some(ObjectSummary { metadata, condition, finalizers }) => {
                (Some(metadata), Some(condition), finalizers)
            }
            None => (None, None, Vec::new()),
        };
        let uid = metadata.as_ref().and_then(|object| object["metadata"]["uid"].as_str()).map(Uid::new);
        let why = match metadata {
            Some(_) => question.why().await?,
            None => None,
        };
        let mut journal = Vec::new();
        // Users who may list its kind see the journal of a deleted object.
        let resource = question.resource();
        let mut sight = Sight::new(user.clone());
        sight.refresh().await;
        let about = feed::ChangeSubject {
            group: resource.group.clone(),
            resource: resource.resource.clone(),
            namespace: subject.namespace.as_str().into(),
        };
        if sight.may_see(&about) {
            journal = self.0.feed.of_object(&about, &subject.name, uid.as_ref(), JOURNAL_LINES);
        }
        if metadata.is_none() && journal.is_empty() {
            return Err(Refusal::new(
                404,
                "NotFound",
                format!("{} {:?} not found", subject.resource, subject.name),
            ));
        }
        let dependents = match &uid {
            Some(uid) if parameter(request, "dependents") == Some("true") => {
                let (first, total) = self.view(request, user).await?.view.dependents(uid, DEPENDENTS_NAMED);
                json!({"total": total, "items": first.iter().map(Place::full_value).collect::<Vec<_>>()})
            }
            _ => Value::Null,
        };
        let yaml = metadata.as_ref().and_then(|metadata| gc_process::yaml::to_string(metadata).ok());
        let why = why.map(|why| {
            let now = question.now();
            let mut value = why.value(now);
            value["holds"] = why.holds.iter().map(|row| overview::row_value(row, now)).collect();
            value
        });
        let document = json!({
            "why": why, "metadata": metadata, "status": status, "dependents": dependents, "yaml": yaml,
            "journal": journal, "finalizers": finalizers,
        });
        Ok(ExtensionAnswer::json(200, &document))
    }
}
