//! Answers given by a running server or collector: with the permissions of the requesting user, from its graph if it has one, and
//! by the same code as on the command line.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gc_kube::ApiClient;
use gc_process::UsageError;
use gc_types::GoDuration;

use super::attached::{Confirmation, MAXIMUM_SUBJECTS, Query, QueryRequest, QueryResponse};
use super::gather::{self, Gatherer, Scope};
use super::plan::{self, Planning, ShownPlan};
use super::resident::{Lists, PermittedGraph, Resident};
use super::tree::{Forest, Shape};
use super::unanswered::UnansweredReason;
use super::{surveyed, view, why};
use crate::stuck;
use crate::subject::{ConfirmedPlan, Subject};
use crate::target::NamedObject;

/// Answers a query from what a gatherer reads.
pub async fn answer(
    gatherer: &Gatherer,
    inquiry: QueryRequest,
    patience: Duration,
) -> anyhow::Result<QueryResponse> {
    if inquiry.question.subjects().len() > MAXIMUM_SUBJECTS {
        return Err(UsageError::new(format!("a question is about at most {MAXIMUM_SUBJECTS} objects")).into());
    }
    let answered = tokio::time::timeout(patience, answer_in_time(gatherer, inquiry, patience)).await;
    answered.unwrap_or_else(|_| Err(UnansweredReason::TimedOut(patience).into()))
}

async fn answer_in_time(
    gatherer: &Gatherer,
    inquiry: QueryRequest,
    patience: Duration,
) -> anyhow::Result<QueryResponse> {
    match inquiry.question {
        Query::Stuck { namespace, at_least } => {
            let at_least: GoDuration =
                at_least.parse().map_err(|error| UsageError::new(format!("atLeast: {error}")))?;
            let scope = Scope { namespace, ..Scope::default() };
            let mut answer = stuck::ask(gatherer, &scope, patience).await?;
            answer.keep_older(at_least);
            let (unseen, found) = (answer.unseen.clone(), !answer.rows.is_empty());
            QueryResponse::new(&answer, inquiry.form, unseen, found)
        }
        Query::Tree { objects, owners, depth, full } => {
            let mut forest = Forest::new(gatherer.now, Shape { owners, depth, full });
            let mut unseen = Vec::new();
            for named in named(gatherer, objects)? {
                unseen.extend(forest.add(gatherer, &named, patience).await?);
            }
            QueryResponse::new(&forest, inquiry.form, unseen, false)
        }
        Query::Why { objects } => {
            let mut answers = why::Answers::at(gatherer.now);
            for named in named(gatherer, objects)? {
                answers.add(gatherer, &named, patience).await?;
            }
            QueryResponse::new(&answers, inquiry.form, Vec::new(), false)
        }
        Query::Doctor { namespace } => {
            let scope = Scope { namespace, ..Scope::default() };
            let surveyed = surveyed::ask(gatherer, &scope, patience).await?;
            let found = !surveyed.stuck.is_empty() || !surveyed.lints.is_empty();
            QueryResponse::new(&surveyed, inquiry.form, Vec::new(), found)
        }
        Query::Plan { objects, policy, full } => {
            let cascade = view::cascade(&policy).ok_or_else(|| {
                UsageError::new(format!("policy={policy}: expected background, foreground or orphan"))
            })?;
            let named = named(gatherer, objects)?;
            let planning = plan::ask(gatherer, named, cascade.policy(), patience).await?;
            let Planning { radius, unseen, targets, .. } = planning.complete()?;
            let planned = ShownPlan { radius: &radius, full };
            let mut answered = QueryResponse::new(&planned, inquiry.form, unseen, radius.would_get_stuck())?;
            if let [(_, target)] = &targets[..] {
                answered.confirm = Some(Confirmation {
                    confirmed: ConfirmedPlan::of(&radius, target),
                    needs_name: plan::needs_confirmation(&radius),
                });
            }
            Ok(answered)
        }
    }
}

fn named(gatherer: &Gatherer, objects: Vec<Subject>) -> anyhow::Result<Vec<NamedObject>> {
    let named = objects.into_iter().map(|Subject { resource, namespace, name }| {
        let found = gatherer.catalog.find(&resource).map_err(UsageError::new)?;
        let resource = (*found.first().context("the resource is not served")?).clone();
        let namespace = if resource.is_namespaced() { namespace } else { String::new() };
        Ok(NamedObject { resource, namespace, name })
    });
    named.collect()
}

/// Creates a gatherer for one user beside a graph, of which it uses only what the user may list.
pub async fn gatherer(
    client: ApiClient,
    resident: Option<Arc<dyn Resident>>,
    lists: &Lists,
) -> anyhow::Result<Gatherer> {
    let now = gather::clock(&client).await;
    let gatherer = Gatherer::new(client, now).await?;
    let permitted =
        resident.map(|resident| Arc::new(PermittedGraph::new(resident, lists)) as Arc<dyn Resident>);
    Ok(gatherer.beside(permitted))
}
