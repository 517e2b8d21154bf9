//! Mutating and validating webhooks.

use std::time::Duration;

use serde_json::Value;

use super::attributes::Form;
use super::expressions::{Asker, Conditional, Evaluation, Values};
use super::review::{self, Decision};
use super::{Attributes, Configured};
use crate::error::ApiError;
use crate::patch;
use crate::registry::call::Call;
use crate::webhooks::{WebhookAnswer, WebhookCall, WebhookEnd, WebhookFailure, WebhookReport, service};

/// Default timeout of a webhook, in seconds.
const TIMEOUT_SECONDS: u32 = 10;
/// Maximum timeout of a webhook, in seconds.
const LONGEST_SECONDS: u32 = 30;

/// A webhook that applies to a request.
struct WebhookTurn<'c> {
    webhook: &'c Value,
    name: &'c str,
    step: Step,
    form: Form,
}

/// Step in which webhooks are called, as metrics name it.
#[derive(Clone, Copy)]
enum Step {
    Admit,
    Validating,
}

impl Step {
    fn as_str(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Validating => "validating",
        }
    }
}

/// Returns the webhooks of all configurations that apply to a request, in order.
fn asked<'c>(
    call: &Call<'_>,
    (step, configurations): (Step, &'c [Value]),
    attributes: &Attributes,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<Vec<WebhookTurn<'c>>, ApiError> {
    let turns = webhooks_of(configurations).map(|webhook| turn(call, (step, webhook), attributes, new, old));
    turns.filter_map(Result::transpose).collect()
}

fn webhooks_of(configurations: &[Value]) -> impl Iterator<Item = &Value> {
    configurations.iter().filter_map(|configuration| configuration["webhooks"].as_array()).flatten()
}

/// Prepares a webhook for a request; returns `None` if the webhook does not apply.
fn turn<'c>(
    call: &Call<'_>,
    (step, webhook): (Step, &'c Value),
    attributes: &Attributes,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<Option<WebhookTurn<'c>>, ApiError> {
    let equivalent = webhook["matchPolicy"] != "Exact";
    let Some(form) = attributes.matched(&webhook["rules"], equivalent) else { return Ok(None) };
    if !attributes.in_selected_namespace(&webhook["namespaceSelector"])
        || !attributes.is_selected_object(&webhook["objectSelector"])
    {
        return Ok(None);
    }
    let name = webhook["name"].as_str().unwrap_or_default();
    let turn = WebhookTurn { webhook, name, step, form };
    Ok(conditions_hold(call, &turn, attributes, new, old)?.then_some(turn))
}

fn conditions_hold(
    call: &Call<'_>,
    asked: &WebhookTurn<'_>,
    attributes: &Attributes,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<bool, ApiError> {
    if asked.webhook["matchConditions"].as_array().is_none_or(Vec::is_empty) {
        return Ok(true);
    }
    let converted = |object: Option<&Value>| {
        object.map_or(Ok(Value::Null), |object| attributes.converted(call, &asked.form, object))
    };
    let (object, old_object) = (converted(new)?, converted(old)?);
    let values = Values {
        object: &object,
        old_object: &old_object,
        request: &attributes.request(&asked.form),
        namespace: &Value::Null,
        params: &Value::Null,
        asker: &Asker::new(call, attributes),
    };
    let (name, step, spec) = (asked.name, asked.step.as_str(), asked.webhook);
    let conditional = Conditional { name, kind: "webhook", step, spec };
    conditional.holds(call, attributes, &mut Evaluation::new(&values)).map_err(|why| {
        ApiError::new(
            403,
            "Forbidden",
            format!("admission webhook {name:?}: failed to evaluate a match condition: {why}"),
        )
    })
}

impl WebhookTurn<'_> {
    fn ignores_failure(&self) -> bool {
        self.webhook["failurePolicy"] == "Ignore"
    }

    /// Returns the version of AdmissionReview that both sides support.
    fn version(&self) -> &'static str {
        let mut versions = self.webhook["admissionReviewVersions"].as_array().into_iter().flatten();
        versions
            .find_map(|version| ["v1", "v1beta1"].into_iter().find(|known| *version == **known))
            .unwrap_or("v1")
    }

    /// Builds the call of the webhook. An error ends the request regardless of the failure policy, because there is nothing to
    /// send.
    fn call(
        &self,
        call: &Call<'_>,
        attributes: &Attributes,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Result<WebhookCall, WebhookFailure>, ApiError> {
        let converted = |object: Option<&Value>| {
            object.map_or(Ok(Value::Null), |object| attributes.converted(call, &self.form, object))
        };
        let objects = (converted(new)?, converted(old)?);
        Ok(self.prepared(call, attributes, objects))
    }

    fn prepared(
        &self,
        call: &Call<'_>,
        attributes: &Attributes,
        objects: (Value, Value),
    ) -> Result<WebhookCall, WebhookFailure> {
        let client = &self.webhook["clientConfig"];
        let seconds = self.webhook["timeoutSeconds"].as_u64().and_then(|seconds| u32::try_from(seconds).ok());
        let wanted = Duration::from_secs(seconds.unwrap_or(TIMEOUT_SECONDS).clamp(1, LONGEST_SECONDS).into());
        let timeout = wanted.min((call.context.time_left)());
        let (url, address) =
            service::place(&*call.registry.storage, client, timeout).map_err(WebhookFailure::unavailable)?;
        let ca_bundle =
            service::ca_bundle(client).map_err(|message| WebhookFailure { code: 500, message })?;
        let body = review::review(self.version(), attributes, &self.form, objects);
        Ok(WebhookCall { url, address, ca_bundle, timeout, body })
    }

    /// Applies the webhook's decision to the request. An ignored failure decides nothing.
    fn judged(
        &self,
        call: &Call<'_>,
        attributes: &Attributes,
        answer: Result<Value, WebhookFailure>,
    ) -> (Result<Option<Value>, ApiError>, WebhookEnd) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => return self.failed("failed to call webhook", &failure),
        };
        if let Err(why) = review::undecodable(self.version(), &answer) {
            return self.failed("failed to call webhook", &WebhookFailure::unavailable(why));
        }
        let mutates = matches!(self.step, Step::Admit);
        match review::decision((self.name, self.version()), &attributes.uid, &answer, mutates) {
            Ok(Decision { refused: Some(error), warnings, .. }) => {
                call.note_all(warnings);
                let end = WebhookEnd::Rejected(error.code);
                (Err(error), end)
            }
            Ok(Decision { patch, warnings, .. }) => {
                call.note_all(warnings);
                match patch.map_or(Ok(None), |patch| patch.operations()) {
                    Ok(operations) => (Ok(operations), WebhookEnd::Allowed),
                    Err(why) => self.failed_because(&WebhookFailure::unavailable(why)),
                }
            }
            Err(why) => self.failed("received invalid webhook response", &WebhookFailure::unavailable(why)),
        }
    }

    /// Applies the failure policy of a webhook without a decision.
    fn failed(&self, step: &str, failure: &WebhookFailure) -> (Result<Option<Value>, ApiError>, WebhookEnd) {
        let message = format!("{step}: {failure}");
        self.failed_because(&WebhookFailure { message, ..*failure })
    }

    /// Applies the failure policy to a failure whose message already names the step.
    fn failed_because(&self, failure: &WebhookFailure) -> (Result<Option<Value>, ApiError>, WebhookEnd) {
        if self.ignores_failure() {
            return (Ok(None), WebhookEnd::FailedOpen(failure.code));
        }
        let why = format!("failed calling webhook {:?}: {failure}", self.name);
        (Err(ApiError::internal(why)), WebhookEnd::FailedClosed(failure.code))
    }

    fn report(&self, call: &Call<'_>, attributes: &Attributes, took: Duration, end: WebhookEnd) {
        if let Some(outside) = call.registry.outside() {
            outside.report(WebhookReport {
                webhook: self.name.to_owned(),
                step: self.step.as_str(),
                operation: attributes.operation.as_str(),
                took,
                end,
            });
        }
    }
}

/// Sends calls. Their answers are ignored once the deadline of the request has passed.
fn send(call: &Call<'_>, calls: &[WebhookCall]) -> Result<Vec<WebhookAnswer>, ApiError> {
    let Some(outside) = call.registry.outside() else {
        return Ok(calls.iter().map(|_| Err("this server calls no webhooks".to_owned()).into()).collect());
    };
    let _turn = call.registry.converter.turn()?;
    let answers = outside.call(calls, call.context.time_left);
    call.check_time()?;
    Ok(answers)
}

fn no_answer() -> WebhookAnswer {
    Err("no answer".to_owned()).into()
}

/// Lets webhooks change an object in sequence; each webhook is matched against the object as changed so far. Webhooks with
/// reinvocation are called once more if the object was changed after them.
pub(crate) fn mutate(
    call: &Call<'_>,
    configured: &Configured,
    attributes: &mut Attributes,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let mut asked_before = Vec::new();
    for webhook in webhooks_of(&configured.mutating_webhooks) {
        if ask(call, webhook, attributes, new, old)? {
            asked_before.push((webhook, new.clone()));
        }
    }
    for (webhook, left_as) in asked_before {
        if webhook["reinvocationPolicy"] == "IfNeeded" && left_as != *new {
            ask(call, webhook, attributes, new, old)?;
        }
    }
    Ok(())
}

/// Calls a webhook if it applies to the request with the current object; returns `false` if it does not.
fn ask(
    call: &Call<'_>,
    webhook: &Value,
    attributes: &mut Attributes,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<bool, ApiError> {
    attributes.see(new);
    let turn = turn(call, (Step::Admit, webhook), attributes, Some(new), old)?;
    let Some(webhook) = &turn else { return Ok(false) };
    let (patch, took, mut end) = answered(call, webhook, attributes, Some(new), old)?;
    let changed = match patch {
        Ok(Some(patch)) => {
            apply(call, webhook, attributes, new, &patch).inspect_err(|_| end = WebhookEnd::NotApplied)
        }
        other => other.map(drop),
    };
    webhook.report(call, attributes, took, end);
    changed.map(|()| true)
}

/// Calls mutating webhooks for a deletion, which they can refuse but not change.
pub(crate) fn admit_deletion(
    call: &Call<'_>,
    configured: &Configured,
    attributes: &Attributes,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    for webhook in &asked(call, (Step::Admit, &configured.mutating_webhooks), attributes, None, old)? {
        let (patch, took, mut end) = answered(call, webhook, attributes, None, old)?;
        let admitted = match patch {
            Ok(Some(_)) => {
                end = WebhookEnd::NotApplied;
                Err(ApiError::internal(format!(
                    "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                    webhook.name
                )))
            }
            other => other.map(drop),
        };
        webhook.report(call, attributes, took, end);
        admitted?;
    }
    Ok(())
}

/// Calls a webhook; returns its decision, the duration, and the kind of its end. An error ends the request regardless of the
/// webhook's failure policy.
fn answered(
    call: &Call<'_>,
    webhook: &WebhookTurn<'_>,
    attributes: &Attributes,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(Result<Option<Value>, ApiError>, Duration, WebhookEnd), ApiError> {
    let answer = match webhook.call(call, attributes, new, old)? {
        Ok(asked) => send(call, &[asked])?.pop().unwrap_or_else(no_answer),
        Err(failure) => WebhookAnswer { result: Err(failure), took: Duration::ZERO },
    };
    let (patch, end) = webhook.judged(call, attributes, answer.result);
    Ok((patch, answer.took, end))
}

/// Applies the patch of a webhook, in the version in which the webhook was called.
fn apply(
    call: &Call<'_>,
    webhook: &WebhookTurn<'_>,
    attributes: &Attributes,
    new: &mut Value,
    patch: &Value,
) -> Result<(), ApiError> {
    let mut changed = attributes.converted(call, &webhook.form, new)?;
    // A patch that does not apply is an error regardless of the failure policy, because the webhook did answer.
    patch::json_patch_of_webhook(&mut changed, patch).map_err(ApiError::internal)?;
    *new = attributes.converted_back(call, &webhook.form, changed)?;
    Ok(())
}

/// Calls all validating webhooks at the same time; the first refusal in their order is the answer.
pub(crate) fn validate(
    call: &Call<'_>,
    configured: &Configured,
    attributes: &Attributes,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let webhooks = asked(call, (Step::Validating, &configured.validating_webhooks), attributes, new, old)?;
    if webhooks.is_empty() {
        return Ok(());
    }
    let calls: Vec<Result<WebhookCall, WebhookFailure>> =
        webhooks.iter().map(|webhook| webhook.call(call, attributes, new, old)).collect::<Result<_, _>>()?;
    let possible: Vec<WebhookCall> = calls.iter().flatten().cloned().collect();
    let mut answers = send(call, &possible)?.into_iter();
    let mut result = Ok(());
    for (webhook, made) in webhooks.iter().zip(calls) {
        let answer = match made {
            Ok(_) => answers.next().unwrap_or_else(no_answer),
            Err(failure) => WebhookAnswer { result: Err(failure), took: Duration::ZERO },
        };
        let (judged, end) = webhook.judged(call, attributes, answer.result);
        webhook.report(call, attributes, answer.took, end);
        result = result.and(judged.map(drop));
    }
    result
}
