//! Removal of one finalizer by hand, as `kubegc release` does it: its assessment, and the order to carry it out.

use gc_apiserver::{ExtensionAnswer, ExtensionRequest};
use gc_explain::release::{NoFinalizer, Release};
use gc_inspect::release::ReleaseAnswer;
use gc_inspect::release::removal::{self, RemovalError};
use gc_inspect::subject::Subject;
use gc_inspect::view::Question;
use serde::Deserialize;
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::requester::Requester;
use super::{ANSWER_PATIENCE, Page, feed, parameter, read_order, subject};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReleaseOrder {
    #[serde(flatten)]
    subject: Subject,
    /// UID of the object that was shown.
    uid: String,
    resource_version: String,
    finalizer: String,
    /// True to remove it despite the objection that was shown.
    #[serde(default)]
    force: bool,
}

impl Page {
    async fn assessed(
        &self,
        subject: &Subject,
        finalizer: &str,
        user: &Requester,
    ) -> Result<(Question, ReleaseAnswer), Refusal> {
        if finalizer.is_empty() {
            return Err(Refusal::new(400, "BadRequest", "expected finalizer=NAME"));
        }
        let question = Question::from(self.gatherer(user).await?, subject, ANSWER_PATIENCE)?;
        match question.release(finalizer).await {
            Ok(answer) => Ok((question, answer)),
            Err(error) if error.is::<NoFinalizer>() => {
                Err(Refusal::new(404, "NotFound", format!("{error:#}")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Answers with the assessment of an object's finalizer. Changes nothing.
    pub(super) async fn finalizer(
        &self,
        request: &ExtensionRequest,
        user: &Requester,
    ) -> Result<ExtensionAnswer, Refusal> {
        let finalizer = parameter(request, "finalizer").unwrap_or_default();
        let (question, answer) = self.assessed(&subject(request)?, finalizer, user).await?;
        Ok(ExtensionAnswer::json(200, &assessment(&question, &answer)))
    }

    /// Removes a finalizer from the version of the object that was shown, with the rights of the user.
    pub(super) async fn release(
        &self,
        request: &ExtensionRequest,
        user: &Requester,
    ) -> Result<ExtensionAnswer, Refusal> {
        let order: ReleaseOrder = read_order(request)?;
        let (question, answer) = self.assessed(&order.subject, &order.finalizer, user).await?;
        let release = &answer.release;
        let refused = |code, reason, message: String| {
            let mut refusal = Refusal::new(code, reason, message);
            refusal.details = assessment(&question, &answer);
            refusal
        };
        if (&order.uid, &order.resource_version) != (&release.place.uid, &release.resource_version) {
            let message = format!("{} has changed since it was shown", release.place.title());
            return Err(refused(409, "ObjectChanged", message));
        }
        if let Some(objection) = release.objection()
            && !order.force
        {
            return Err(refused(422, "NeedsForce", objection));
        }
        match question.remove_finalizer(&answer).await {
            Ok(()) => {}
            Err(error @ RemovalError::Changed { .. }) => {
                return Err(refused(409, "ObjectChanged", error.to_string()));
            }
            Err(error @ RemovalError::Refused { code, .. }) => {
                let reason = if code == 403 { "Forbidden" } else { "Refused" };
                return Err(Refusal::new(code, reason, error.to_string()));
            }
            Err(error @ RemovalError::Unanswered { .. }) => {
                return Err(Refusal::new(502, "Unanswered", error.to_string()));
            }
        }
        let unrecorded = self.record(request, user, &question, release).await;
        let document =
            json!({"finalizer": release.finalizer, "remaining": release.remaining, "unrecorded": unrecorded});
        Ok(ExtensionAnswer::json(200, &document))
    }

    /// Records a removal in the log, the journal, the feed and an Event. If the Event could not be written, returns the reason.
    async fn record(
        &self,
        request: &ExtensionRequest,
        user: &Requester,
        question: &Question,
        release: &Release,
    ) -> Option<String> {
        let by = &request.user.name;
        let (object, finalizer) = (release.place.title(), &release.finalizer);
        tracing::warn!(user = by, object, finalizer, "a finalizer is removed from the page");
        let entry = removal::entry(release, by);
        if let Some(journal) = &self.0.journal {
            journal.record(entry.clone());
        }
        let resource = question.resource();
        let about = feed::ChangeSubject {
            group: resource.group.clone(),
            resource: resource.resource.clone(),
            namespace: release.place.namespace.as_str().into(),
        };
        self.0.feed.record(about, &release.place.name, entry);
        let written = removal::write_event(&user.client(), release, by).await;
        if let Err(why) = &written {
            tracing::warn!(user = by, object, finalizer, why, "no Event about the removal could be written");
        }
        written.err()
    }
}

/// Returns the assessment as JSON, with the lines that `kubegc release` prints.
fn assessment(question: &Question, answer: &ReleaseAnswer) -> Value {
    let mut value = answer.release.value();
    value["object"] = answer.release.place.full_value();
    let lines = answer.release.lines(question.now());
    value["lines"] =
        lines.into_iter().map(|(heading, text)| json!({"heading": heading, "text": text})).collect();
    value["unseen"] = answer.unseen.clone().into();
    value
}
