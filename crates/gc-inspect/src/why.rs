//! Explanations why an object is, or is not, deleted.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use gc_explain::stuck::Place;
use gc_explain::text::some_of;
use gc_explain::why::{NOTHING_SAYS, TO_BE_DELETED, Why, needs_lists, owners, reference, why as answer_why};
use gc_explain::{GroupResource, Knowledge, Metadata, Object, Survey};
use gc_kube::ApiClient;
use gc_process::UsageError;
use gc_process::access::Access;
use gc_process::journal::{
    DEFINITIONS, DELETE, Found, Object as JournalObject, Query, Selection, text as field,
};
use gc_types::{ObjectKey, Timestamp, Uid};
use serde_json::{Value, json};

use super::audit::{self, CalledResource};
use super::gather::{self, Gatherer, Scope};
use super::release::removals;
use super::sources::{JournalFlags, Source};
use super::unanswered::UnansweredReason;
use super::{journal, requester};
use crate::output::Answer;
use crate::removed_type::{Ambiguous, Meant};
use crate::target::{NamedObject, Targets};
use crate::{removed_type as gone_type, stuck};

/// Maximum number of owners that are followed towards the roots.
const MAX_OWNERS: usize = 200;

/// Maximum number of entries about deleted objects of removed definitions; the newest are read.
const OF_DEFINITIONS_READ: usize = 10_000;

/// Maximum number of unread resources that are named for one reason.
const UNSEEN_NAMED: usize = 3;

/// Sources of answers besides the server.
#[derive(Clone, Copy)]
pub struct WhySources<'a> {
    /// Journal of the collectors.
    pub journal: &'a JournalFlags,
    /// Audit log of kube-apiserver, in JSON lines.
    pub audit_log: Option<&'a Path>,
    /// Access to servers.
    pub access: &'a Access,
}

/// Answers for one object or several.
pub struct Answers {
    answers: Vec<One>,
    now: Timestamp,
}

impl Answers {
    /// Creates an empty list of answers; ages are relative to this time.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self { answers: Vec::new(), now }
    }

    /// Creates the answer from the journal's entry about a deleted object.
    #[must_use]
    pub fn of_deletion(deletion: Value) -> Self {
        Self { answers: vec![One::Gone(deletion)], now: Timestamp(0) }
    }

    /// Answers for an object, which must exist.
    pub async fn add(
        &mut self,
        gatherer: &Gatherer,
        named: &NamedObject,
        patience: std::time::Duration,
    ) -> anyhow::Result<()> {
        let NamedObject { resource, namespace, name } = named;
        let why = ask(gatherer, named, patience).await?;
        let why = why.ok_or_else(|| UnansweredReason::no_object(resource, namespace, name))?;
        self.answers.push(One::There(Box::new(why)));
        Ok(())
    }
}

impl Answers {
    /// Adds the answer for an object, which may be gone, with the audit log's entries about it.
    pub async fn add_from(
        &mut self,
        sources: &WhySources<'_>,
        gatherer: &Gatherer,
        named: &NamedObject,
        audited: Vec<String>,
        patience: std::time::Duration,
    ) -> anyhow::Result<()> {
        self.answers.push(about(sources, gatherer, named, audited, patience).await?);
        Ok(())
    }

    /// Reports whether there is no answer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}

enum One {
    There(Box<Why>),
    Gone(Value),
}

/// Answers from the journal and the audit log about objects of types that are no longer served, or returns the error about the
/// type.
pub async fn of_unserved(
    sources: &WhySources<'_>,
    targets: &Targets,
    gatherer: &Gatherer,
    error: anyhow::Error,
) -> anyhow::Result<Answers> {
    let unserved = targets.unserved(&gatherer.catalog);
    if unserved.is_empty() {
        return Err(error);
    }
    let wanted = unserved.iter().map(|(kind, name)| audit::WantedObject {
        resource: CalledResource::Word(kind.clone()),
        namespace: targets.namespace().map(str::to_owned),
        name: name.clone(),
        created: None,
    });
    let audited = search_audit_log(sources, &wanted.collect::<Vec<_>>())?;
    let source = sources.journal.of_server(sources.access, gatherer.client()).await.ok().flatten();
    let mut answers = Answers::at(gatherer.now);
    for ((kind, name), audited) in unserved.into_iter().zip(audited) {
        let title = format!("{kind}/{name}");
        let mut answer = Err(anyhow::anyhow!("no journal is found that could have a deletion of {title}"));
        if let Some(source) = &source {
            let found = of_gone_type(source, targets.namespace(), &kind, &name).await;
            let (found, guess) =
                found.map_or_else(|error| (Err(error), None), |(found, guess)| (Ok(found), guess));
            answer = found.and_then(|found| journal::why_gone(&found, source, &title));
            if let Ok(answer) = &mut answer {
                answer["guess"] = guess.into();
                let by = requester::of_entry(gatherer.client(), source, &answer["deletion"]).await;
                answer["requestedBy"] = by.into();
            }
        }
        let answer = with_audit_log(answer, &title, audited);
        let answer = answer.map_err(|journal| UsageError::new(format!("{error:#}; {journal:#}")))?;
        answers.answers.push(One::Gone(answer));
    }
    Ok(answers)
}

/// Returns the entries about an object whose type the user names, perhaps by the short name of its former definition.
async fn of_gone_type(
    source: &Source,
    namespace: Option<&str>,
    kind: &str,
    name: &str,
) -> anyhow::Result<(Found, Option<String>)> {
    // It is not known whether objects of a removed type were namespaced.
    let object = Some(JournalObject::named(namespace, kind, name));
    let selection = Selection { query: Query { object, ..Query::default() }, ..Selection::default() };
    let found = source.search(&selection).await?;
    if !found.entries.is_empty() {
        return of_one_type(kind, found);
    }
    let query = Query {
        controller: Some(DEFINITIONS.to_owned()),
        verb: Some(DELETE.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..Query::default()
    };
    let mut of_definitions =
        source.search(&Selection { query, tail: OF_DEFINITIONS_READ, ..Selection::default() }).await?;
    of_definitions.entries.retain(|entry| field(entry, "name") == name);
    of_one_type(kind, of_definitions)
}

/// Returns the entries about the one type that is meant, and remarks on the choice.
fn of_one_type(kind: &str, mut found: Found) -> anyhow::Result<(Found, Option<String>)> {
    let types = found.entries.iter().map(|entry| (field(entry, "resource"), field(entry, "kind")));
    let Some(Meant { resource, guess }) = gone_type::meant(kind, types)? else {
        return Ok((Found::default(), None));
    };
    found.entries.retain(|entry| field(entry, "resource") == resource);
    Ok((found, guess))
}

/// Reads the audit log's entries about each object, if a log is given.
pub async fn audited(
    sources: &WhySources<'_>,
    gatherer: &Gatherer,
    named: &[NamedObject],
) -> anyhow::Result<Vec<Vec<String>>> {
    let mut wanted = Vec::new();
    for NamedObject { resource, namespace, name } in named.iter().filter(|_| sources.audit_log.is_some()) {
        let created = match gatherer.object(&resource.name, namespace, name).await {
            Knowledge::Present(object) => object["metadata"]["creationTimestamp"].as_str().map(str::to_owned),
            Knowledge::Absent | Knowledge::Unreadable(_) => None,
        };
        let GroupResource { group, resource: plural } = &resource.name;
        wanted.push(audit::WantedObject {
            resource: CalledResource::Exactly(group.to_string(), plural.to_string()),
            namespace: Some(if resource.is_namespaced() { namespace.clone() } else { String::new() }),
            name: name.clone(),
            created: created.and_then(|created| created.parse().ok()),
        });
    }
    let mut lines = search_audit_log(sources, &wanted)?;
    lines.resize(named.len(), Vec::new());
    Ok(lines)
}

/// Searches the audit log for objects as it names them.
fn search_audit_log(
    sources: &WhySources<'_>,
    wanted: &[audit::WantedObject],
) -> anyhow::Result<Vec<Vec<String>>> {
    let Some(file) = sources.audit_log else { return Ok(vec![Vec::new(); wanted.len()]) };
    let searched = audit::search(file, wanted)?;
    if searched.malformed > 0 {
        let lines =
            gc_explain::text::count(usize::try_from(searched.malformed).unwrap_or(usize::MAX), "line");
        gc_process::screen::complain!(
            "warning: {}: {lines} without an Event of audit.k8s.io",
            file.display()
        );
    }
    let lines: Result<Vec<Vec<String>>, Ambiguous> = searched.lines.into_iter().collect();
    Ok(lines.map_err(|ambiguous| UsageError::new(ambiguous.to_string()))?)
}

/// Adds the audit log's entries to the answer about a deleted object; they are an answer even on their own.
fn with_audit_log(answer: anyhow::Result<Value>, title: &str, audited: Vec<String>) -> anyhow::Result<Value> {
    if audited.is_empty() {
        return answer;
    }
    let mut answer = answer.unwrap_or_else(|_| journal::deleted_by_others(title));
    let others = answer["requestedBy"].as_array().cloned().unwrap_or_default();
    answer["requestedBy"] = audited.into_iter().map(Value::from).chain(others).collect();
    Ok(answer)
}

/// Returns the answer about one object.
async fn about(
    sources: &WhySources<'_>,
    gatherer: &Gatherer,
    named: &NamedObject,
    audited: Vec<String>,
    patience: std::time::Duration,
) -> anyhow::Result<One> {
    let Some(mut why) = ask(gatherer, named, patience).await? else {
        let title = format!("{}/{}", named.resource.name, named.name);
        let answer = gone(sources, gatherer, named, &title).await;
        return Ok(One::Gone(with_audit_log(answer, &title, audited)?));
    };
    if why.holds.iter().any(|row| row.cause.code.is_absence()) {
        let refused = stuck::refusals(sources.journal, sources.access, gatherer.client()).await;
        let informed =
            Gatherer::new(gatherer.client().clone(), gatherer.now).await?.knowing_refusals(refused);
        why = ask(&informed, named, patience).await?.unwrap_or(why);
    }
    // Nothing requested the deletion of an object that is not terminating.
    if !why.requested_by.is_empty() {
        say_who_asked(&mut why, audited);
    }
    add_journal(sources, gatherer.client(), &mut why).await;
    Ok(One::There(Box::new(why)))
}

/// Puts the requesters of the deletion before indirect evidence.
fn say_who_asked(why: &mut Why, lines: Vec<String>) {
    if !lines.is_empty() {
        why.requested_by.retain(|line| line != NOTHING_SAYS);
        why.requested_by.splice(0..0, lines);
    }
}

/// Adds what a collector's journal contains: who deleted the object, or why it still exists although it should be deleted.
async fn add_journal(sources: &WhySources<'_>, client: &ApiClient, why: &mut Why) {
    let (is_due, asks_who) =
        (why.code == TO_BE_DELETED, why.requested_by.iter().any(|by| by == NOTHING_SAYS));
    if !is_due && !asks_who {
        return;
    }
    let found = async {
        let Some(source) = sources.journal.of_server(sources.access, client).await? else { return Ok(None) };
        let query = Query { object: Some(JournalObject::Uid(why.place.uid.clone())), ..Query::default() };
        let found = source.search(&Selection { query, ..Selection::default() }).await?;
        anyhow::Ok(Some((found, source)))
    };
    let (found, source) = match found.await {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(error) => {
            why.unseen.push(format!("the journal of the collectors: {error:#}"));
            return;
        }
    };
    let journal = format!("the journal of {source}");
    if asks_who {
        say_who_asked(why, requester::of_uid(client, Some(&source), &why.place.uid.clone()).await);
        if why.requested_by.iter().all(|by| by != NOTHING_SAYS) {
            return;
        }
    }
    why.journal.push(match found.entries.back().filter(|_| is_due) {
        Some(last) => format!("{} ({journal})", journal::attempt(last)),
        None => format!("{journal} has nothing about this object"),
    });
}

/// Returns the answer about an object that does not exist. Finalizers that were removed from it by hand are an answer even on their
/// own.
async fn gone(
    sources: &WhySources<'_>,
    gatherer: &Gatherer,
    named: &NamedObject,
    title: &str,
) -> anyhow::Result<Value> {
    let answer = collected(sources, gatherer, named, title).await;
    let resource = &named.resource;
    let uid = answer.as_ref().map_or("", |answer| field(&answer["deletion"], "uid"));
    let place = Place {
        api_version: resource.api_version(),
        kind: resource.kind.to_string(),
        resource: resource.name.to_string(),
        namespace: if resource.is_namespaced() { named.namespace.clone() } else { String::new() },
        name: named.name.clone(),
        uid: uid.to_owned(),
    };
    let removed = removals(gatherer.client(), &place).await;
    if removed.is_empty() {
        return answer;
    }
    let mut answer = answer.unwrap_or_else(|_| journal::deleted_by_others(title));
    answer["released"] = removed.into();
    Ok(answer)
}

/// Reads the journal's entries about an object that does not exist.
async fn collected(
    sources: &WhySources<'_>,
    gatherer: &Gatherer,
    named: &NamedObject,
    title: &str,
) -> anyhow::Result<Value> {
    let missing = || UnansweredReason::no_object(&named.resource, &named.namespace, &named.name);
    if sources.journal.journal.is_none()
        && let Some((found, source)) = sources.journal.of_page(sources.access, named).await
    {
        return journal::why_gone(&found, &source, title);
    }
    let source = match sources.journal.of_server(sources.access, gatherer.client()).await {
        Ok(Some(source)) => source,
        Ok(None) => return Err(missing().into()),
        Err(error) => {
            let what = format!("{}; whether a collector deleted it is not known: {error:#}", missing());
            return Err(UnansweredReason::NotFound(what).into());
        }
    };
    let namespace = named.resource.is_namespaced().then_some(named.namespace.as_str());
    let kind = named.resource.name.to_string();
    let object = Some(JournalObject::named(namespace, &kind, &named.name));
    let selection = Selection { query: Query { object, ..Query::default() }, ..Selection::default() };
    let found = source.search(&selection).await?;
    let client = gatherer.client();
    let last = requester::of_name(client, &kind, &named.namespace, &named.name).await;
    let is_unknown = found.entries.is_empty() && !sources.journal.is_named();
    let answer = if is_unknown { Err(missing().into()) } else { journal::why_gone(&found, &source, title) };
    match (answer, last) {
        (Ok(mut answer), last)
            if last.as_ref().is_none_or(|last| !last.is_of_another(&answer["deletion"])) =>
        {
            // A collector that finishes a foreground deletion has not requested it.
            let lines = match last.filter(|last| last.is_of(&answer["deletion"])) {
                Some(last) => vec![last.line],
                None => requester::of_entry(client, &source, &answer["deletion"]).await,
            };
            answer["requestedBy"] = lines.into();
            Ok(answer)
        }
        // The journal's entry is about an older object of that name.
        (_, Some(last)) => {
            let mut answer = journal::deleted_by_others(title);
            answer["requestedBy"] = vec![last.line].into();
            Ok(answer)
        }
        (answer, None) => answer,
    }
}

/// Answers for one object; `None` if the server reports that it does not exist.
pub async fn ask(
    gatherer: &Gatherer,
    named: &NamedObject,
    patience: std::time::Duration,
) -> anyhow::Result<Option<Why>> {
    let NamedObject { resource, namespace, name } = named;
    let mut facts = gatherer.facts();
    let object = match gatherer.object(&resource.name, namespace, name).await {
        Knowledge::Present(value) => value,
        Knowledge::Absent => return Ok(None),
        Knowledge::Unreadable(why) => return Err(UnansweredReason::unreadable(resource, name, why).into()),
    };
    facts.tell_object(resource.name.clone(), namespace, name, Knowledge::Present(object.clone()));
    let object = Object::new(object);
    let mut survey = if needs_lists(&object, resource) {
        let inner = if &*resource.name.resource == "namespaces" { name } else { namespace };
        let mut survey =
            gatherer.survey(&Scope { namespace: inner.clone(), ..Scope::default() }, patience).await?;
        // A graph has no annotations.
        if let Ok(metadata) = serde_json::from_value(object.value().clone()) {
            survey.observe(resource.id, metadata);
        }
        survey
    } else {
        let mut survey = gatherer.empty_survey();
        observe_with_owners(gatherer, &mut survey, &object, resource.id).await;
        gatherer.complete(&mut survey).await;
        survey
    };
    let key =
        ObjectKey { resource: resource.id, namespace: namespace.as_str().into(), name: name.as_str().into() };
    let mut answer = gatherer.answer(&mut facts, |facts| answer_why(&survey, facts, &key)).await;
    // The blocking object may be blocked itself: a claim waits for a pod that is past its grace period.
    let also: Vec<_> = facts
        .terminating()
        .filter_map(|(resource, object)| {
            let id = gatherer.catalog.named(resource)?.id;
            let metadata: Metadata = serde_json::from_value(object.value().clone()).ok()?;
            (!survey.terminating().contains_key(&metadata.key(id))).then_some((id, metadata))
        })
        .collect();
    if !also.is_empty() {
        for (id, metadata) in also {
            survey.observe(id, metadata);
        }
        answer = gatherer.answer(&mut facts, |facts| answer_why(&survey, facts, &key)).await;
    }
    let Some(mut answer) = answer else { return Ok(None) };
    answer.unseen.extend(gather::unlisted_summary(&survey));
    answer.unread.extend(survey.unread(if resource.is_namespaced() { namespace } else { "" }));
    if object.is_terminating() {
        let client = gatherer.client();
        let asked = requester::of_uid(client, Some(&Source::of(client)), &answer.place.uid).await;
        say_who_asked(&mut answer, asked);
        answer.journal.extend(removals(client, &answer.place).await);
    }
    Ok(Some(answer))
}

/// UIDs of the objects that were found where references lead.
pub(crate) type LookedUp = BTreeMap<ObjectKey, Knowledge<Uid>>;

/// Reads the object and its owners up to the roots, and nothing else.
pub(crate) async fn observe_with_owners(
    gatherer: &Gatherer,
    survey: &mut Survey,
    object: &Object,
    resource: gc_types::ResourceId,
) -> LookedUp {
    let mut looked_up = LookedUp::new();
    if let Ok(metadata) = serde_json::from_value(object.value().clone()) {
        survey.observe(resource, metadata);
    }
    let mut open = owners(object, survey);
    let mut seen: std::collections::BTreeSet<ObjectKey> = open.iter().cloned().collect();
    while let Some(key) = open.pop() {
        let Some(resource) = gatherer.catalog.get(key.resource) else { continue };
        let owner = match gatherer.object(&resource.name, &key.namespace, &key.name).await {
            Knowledge::Present(owner) => owner,
            Knowledge::Absent => {
                looked_up.insert(key, Knowledge::Absent);
                continue;
            }
            Knowledge::Unreadable(why) => {
                looked_up.insert(key, Knowledge::Unreadable(why));
                continue;
            }
        };
        let uid = Uid::new(owner["metadata"]["uid"].as_str().unwrap_or_default());
        looked_up.insert(key.clone(), Knowledge::Present(uid));
        if let Ok(metadata) = serde_json::from_value(owner.clone()) {
            survey.observe(key.resource, metadata);
        }
        let above = owners(&Object::new(owner), survey);
        open.extend(above.into_iter().filter(|key| seen.len() < MAX_OWNERS && seen.insert(key.clone())));
    }
    looked_up
}

impl Answer for Answers {
    fn value(&self) -> Value {
        let one = |one: &One| match one {
            One::There(why) => why.value(self.now),
            One::Gone(value) => value.clone(),
        };
        match &self.answers[..] {
            [single] => one(single),
            several => json!({"items": several.iter().map(one).collect::<Vec<_>>()}),
        }
    }

    fn text(&self, _is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        for (number, one) in self.answers.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            match one {
                One::There(why) => text(why, out)?,
                One::Gone(value) => journal::why_gone_text(value, out)?,
            }
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        let name = |one: &One| match one {
            One::There(why) => Some(why.place.reference()),
            One::Gone(_) => None,
        };
        self.answers.iter().filter_map(name).collect()
    }
}

/// Writes the answer in human-readable form.
pub fn text(why: &Why, out: &mut Vec<u8>) -> anyhow::Result<()> {
    let place = match &*why.place.namespace {
        "" => String::new(),
        namespace => format!(" in {namespace}"),
    };
    writeln!(out, "{}{place}", why.place.title())?;
    writeln!(out, "{}", why.message)?;
    let mut section = |heading: &str, lines: &[String]| -> anyhow::Result<()> {
        if !lines.is_empty() {
            writeln!(out, "\n{heading}:")?;
        }
        for line in lines {
            writeln!(out, "  {line}")?;
        }
        Ok(())
    };
    let owners: Vec<String> =
        why.ancestry.iter().map(|(depth, line)| format!("{}{line}", "  ".repeat(*depth))).collect();
    section("Owners", &owners)?;
    let evidence: Vec<String> =
        why.owners.iter().filter_map(|(_, state)| reference(state).1).map(ToString::to_string).collect();
    section("Evidence", &evidence)?;
    section("Protected by", &why.protections)?;
    section("Deletion asked for by", &why.requested_by)?;
    for row in &why.holds {
        // The conclusion may have mentioned this cause already.
        let is_said = why.message.contains(&row.cause.message);
        let mut lines: Vec<String> = if is_said { Vec::new() } else { vec![row.cause.message.clone()] };
        lines.extend(row.cause.help.iter().map(|command| format!("try:       {command}")));
        lines.extend(row.force_lines());
        section(row.cause.code.name(), &lines)?;
    }
    section("Journal", &why.journal)?;
    section("Not seen", &grouped(&why.unseen))
}

/// Joins resources that could not be read for the same reason into one line: `a, b and 3 more: why`.
fn grouped(unseen: &[String]) -> Vec<String> {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut lines = Vec::new();
    for line in unseen {
        match line.split_once(": ") {
            Some((what, reason)) => by_reason.entry(reason).or_default().push(what.to_owned()),
            None => lines.push(line.clone()),
        }
    }
    let named =
        by_reason.into_iter().map(|(reason, what)| format!("{}: {reason}", some_of(&what, UNSEEN_NAMED)));
    named.chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_for_one_reason_is_one_line() {
        let unseen =
            ["a: no", "b: no", "something else", "c: broken: by x", "d: no", "e: no"].map(str::to_owned);
        assert_eq!(grouped(&unseen), ["c: broken: by x", "a, b, d and 1 more: no", "something else"]);
    }
}
